//! What the status of a gang depends on, of one member.

use muster_api::k8s;

use crate::model::LabelSet;

/// Longest word or message that is kept of a member.
const MAX_TEXT: usize = 256;
/// What a container says while all is well.
const PATIENT: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// One member, as far as the status is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Name of the pod.
    pub name: Box<str>,
    /// Its labels: they say which role it has.
    pub labels: LabelSet,
    /// The node it is bound to; empty if it is not.
    pub node: Box<str>,
    /// What it does.
    pub state: State,
    /// It is being deleted.
    pub terminating: bool,
    /// What keeps it from running, or what it failed by.
    pub trouble: Option<Box<Trouble>>,
}

/// What a member does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Not all of its containers run.
    #[default]
    Pending,
    /// All of its containers run.
    Running,
    /// It has ended well.
    Succeeded,
    /// It has ended badly.
    Failed,
}

/// Why a member does not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trouble {
    /// In one word: `ImagePullBackOff`, `OOMKilled`.
    pub reason: Box<str>,
    /// For people; may be empty.
    pub message: Box<str>,
}

impl Member {
    /// What the status needs of a pod.
    #[must_use]
    pub fn of(pod: &k8s::Pod) -> Self {
        let status = &pod.status;
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses);
        let waiting = || containers().filter_map(|c| c.state.waiting.as_ref());
        let state = match status.phase.as_str() {
            "Succeeded" => State::Succeeded,
            "Failed" => State::Failed,
            "Running" if waiting().next().is_none() => State::Running,
            _ => State::Pending,
        };
        let trouble = match state {
            State::Running | State::Succeeded => None,
            State::Pending => waiting()
                .find(|w| !PATIENT.contains(&w.reason.as_str()))
                .or_else(|| waiting().next())
                .map(|w| Trouble::of(&w.reason, &w.message)),
            State::Failed if !status.reason.is_empty() => {
                Some(Trouble::of(&status.reason, &status.message))
            }
            State::Failed => containers()
                .filter_map(|c| c.state.terminated.as_ref())
                .find(|t| t.exit_code != 0)
                .map(|t| Trouble::of(&t.reason, &format!("exit code {}", t.exit_code))),
        };
        Self {
            name: pod.metadata.name.as_str().into(),
            labels: LabelSet::of(&pod.metadata.labels),
            node: pod.spec.node_name.as_str().into(),
            state,
            terminating: pod.metadata.deletion_timestamp.is_some(),
            trouble: trouble.map(Box::new),
        }
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Succeeded | State::Failed)
    }
}

impl Trouble {
    fn of(reason: &str, message: &str) -> Self {
        Self { reason: cut(reason, MAX_TEXT).into(), message: cut(message, MAX_TEXT).into() }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.reason, &*self.message) {
            (reason, "") => f.write_str(reason),
            ("", message) => f.write_str(message),
            (reason, message) => write!(f, "{reason}: {message}"),
        }
    }
}

/// The beginning of a text, at most `max` bytes.
pub(super) fn cut(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_read_for_what_keeps_it_from_running() {
        let read = |status: &str| {
            let text = format!(r#"{{"metadata": {{"name": "a"}}, "status": {status}}}"#);
            let pod: k8s::Pod = serde_json::from_str(&text).unwrap();
            let member = Member::of(&pod);
            let trouble = member.trouble.map(|t| t.to_string()).unwrap_or_default();
            (member.state, trouble)
        };
        for (status, state, trouble) in [
            ("{}", State::Pending, ""),
            (r#"{"phase": "Pending"}"#, State::Pending, ""),
            (
                r#"{"phase": "Pending", "containerStatuses": [{"name": "m",
                    "state": {"waiting": {"reason": "ContainerCreating"}}}]}"#,
                State::Pending,
                "ContainerCreating",
            ),
            (
                r#"{"phase": "Pending", "containerStatuses": [
                    {"name": "m", "state": {"waiting": {"reason": "PodInitializing"}}}],
                    "initContainerStatuses": [{"name": "i", "state": {"waiting":
                    {"reason": "ErrImagePull", "message": "not found"}}}]}"#,
                State::Pending,
                "ErrImagePull: not found",
            ),
            (
                r#"{"phase": "Running", "containerStatuses": [{"name": "m", "state": {"waiting":
                    {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}}]}"#,
                State::Pending,
                "CrashLoopBackOff: back-off 10s",
            ),
            (
                r#"{"phase": "Running", "containerStatuses": [{"name": "m", "state": {"running":
                    {"startedAt": "2026-11-16T10:00:00Z"}}}]}"#,
                State::Running,
                "",
            ),
            (r#"{"phase": "Succeeded"}"#, State::Succeeded, ""),
            (
                r#"{"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"}"#,
                State::Failed,
                "UnexpectedAdmissionError: no GPU",
            ),
            (
                r#"{"phase": "Failed", "containerStatuses": [
                    {"name": "s", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    {"name": "m", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}"#,
                State::Failed,
                "OOMKilled: exit code 137",
            ),
            (r#"{"phase": "Unknown"}"#, State::Pending, ""),
        ] {
            assert_eq!(read(status), (state, trouble.to_owned()), "{status}");
        }
    }
}
