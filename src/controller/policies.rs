//! The status of scheduling policies: what the core says of them, written at a pace.
//!
//! Owns what the API has of each policy, and when it is written. Must never decide which
//! policies are in force: the core does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use muster_api::k8s::Time;
use muster_api::muster::{
    self, Condition, MAX_CONDITIONS, MAX_MESSAGE, SchedulingPolicy, SchedulingPolicyStatus,
    policy_condition,
};
use muster_core::outbox::Failure;
use muster_core::report::PolicyView;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{Board, Note, far, now};
use crate::client::Call;
use crate::elect::Leadership;
use crate::write::{Fenced, version_in};

/// Two writes of a policy are at least this far apart.
const APART: Duration = Duration::from_secs(1);
/// The same, if only the number of pods has changed.
const COUNTS_APART: Duration = Duration::from_secs(5);
/// Pause after a write that failed, twice as long each time in a row.
const RETRY: Duration = Duration::from_secs(1);
/// Longest such pause.
const MAX_RETRY: Duration = Duration::from_secs(30);

/// A policy as the API has it.
#[derive(Debug)]
struct Seen {
    uid: Box<str>,
    version: Box<str>,
    status: SchedulingPolicyStatus,
    list: u32,
    wrote: Option<Instant>,
    /// No write before this.
    pause: Option<Instant>,
    failures: u32,
}

/// A status to be written.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) name: Box<str>,
    uid: Box<str>,
    version: Box<str>,
    pub(super) status: SchedulingPolicyStatus,
}

#[derive(Debug, Default)]
struct State {
    seen: BTreeMap<Box<str>, Seen>,
    said: BTreeMap<Box<str>, PolicyView>,
    list: u32,
}

/// What the controller knows of policies.
#[derive(Debug, Default)]
pub(super) struct Policies {
    state: Mutex<State>,
    changed: Notify,
}

impl Policies {
    /// A watch speaks of policies.
    pub(super) fn note(&self, note: Note<&SchedulingPolicy>) {
        self.state.lock().note(note);
        self.changed.notify_one();
    }

    /// The core says what is true of them.
    pub(super) fn say(&self, views: Vec<PolicyView>) {
        self.state.lock().said = views.into_iter().map(|v| (v.name.clone(), v)).collect();
        self.changed.notify_one();
    }

    pub(super) fn due(&self, now: Instant, time: Time) -> (Option<Write>, Option<Instant>) {
        self.state.lock().due(now, time)
    }

    /// What became of a write: the new version, or nothing. Returns how often it has failed
    /// in a row.
    pub(super) fn settled(&self, write: Write, version: Option<Box<str>>, now: Instant) -> u32 {
        self.state.lock().settled(write, version, now)
    }
}

impl State {
    fn note(&mut self, note: Note<&SchedulingPolicy>) {
        match note {
            Note::Listing => self.list += 1,
            Note::Changed(policy) => {
                let meta = &policy.metadata;
                let before = self.seen.remove(meta.name.as_str());
                let same = before.filter(|before| *before.uid == meta.uid);
                let mut seen = same.unwrap_or_else(|| Seen {
                    uid: meta.uid.as_str().into(),
                    version: Box::default(),
                    status: SchedulingPolicyStatus::default(),
                    list: 0,
                    wrote: None,
                    pause: None,
                    failures: 0,
                });
                seen.version = meta.resource_version.as_str().into();
                seen.status = policy.status.clone();
                seen.list = self.list;
                self.seen.insert(meta.name.as_str().into(), seen);
            }
            Note::Gone(policy) => {
                let meta = &policy.metadata;
                if self.seen.get(meta.name.as_str()).is_some_and(|seen| *seen.uid == meta.uid) {
                    self.seen.remove(meta.name.as_str());
                }
            }
            Note::Listed => {
                let list = self.list;
                self.seen.retain(|_, seen| seen.list == list);
            }
        }
    }

    /// The next write, or when to look again.
    fn due(&mut self, now: Instant, time: Time) -> (Option<Write>, Option<Instant>) {
        let mut wake: Option<Instant> = None;
        for (name, seen) in &mut self.seen {
            let Some(view) = self.said.get(name).filter(|view| view.uid == seen.uid) else {
                continue;
            };
            let status = status(view, &seen.status, time);
            if status == seen.status {
                continue;
            }
            let counts = SchedulingPolicyStatus {
                governed_pods: seen.status.governed_pods,
                ..status.clone()
            } == seen.status;
            let apart = if counts { COUNTS_APART } else { APART };
            let allowed = seen.wrote.map(|wrote| wrote + apart).max(seen.pause);
            if let Some(allowed) = allowed.filter(|allowed| *allowed > now) {
                wake = Some(wake.map_or(allowed, |wake| wake.min(allowed)));
                continue;
            }
            let (uid, version) = (seen.uid.clone(), seen.version.clone());
            return (Some(Write { name: name.clone(), uid, version, status }), None);
        }
        (None, wake)
    }

    fn settled(&mut self, write: Write, version: Option<Box<str>>, now: Instant) -> u32 {
        let Some(seen) = self.seen.get_mut(&write.name).filter(|seen| seen.uid == write.uid) else {
            return 0;
        };
        let Some(version) = version else {
            seen.failures += 1;
            let pause = RETRY.saturating_mul(1 << (seen.failures - 1).min(8)).min(MAX_RETRY);
            seen.pause = Some(now + pause);
            return seen.failures;
        };
        (seen.wrote, seen.pause, seen.failures) = (Some(now), None, 0);
        if seen.version == write.version {
            // Ahead of the watch; not if the watch was faster.
            (seen.version, seen.status) = (version, write.status);
        }
        0
    }
}

/// What is said of a policy, as its status has it. Conditions of others are kept.
fn status(
    view: &PolicyView,
    before: &SchedulingPolicyStatus,
    time: Time,
) -> SchedulingPolicyStatus {
    let kind = policy_condition::ACCEPTED;
    let word = if view.accepted { "True" } else { "False" };
    let old = before.conditions.iter().find(|c| c.kind == kind);
    let since = old.filter(|c| c.status == word).map_or(time, |c| c.last_transition_time);
    let mut message = view.message.to_string();
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    let own = Condition {
        kind: kind.to_owned(),
        status: word.to_owned(),
        observed_generation: view.generation,
        last_transition_time: since,
        reason: view.reason.to_owned(),
        message,
    };
    let mut conditions = before.conditions.clone();
    match conditions.iter_mut().find(|c| c.kind == kind) {
        Some(known) => *known = own,
        None => {
            conditions.truncate(MAX_CONDITIONS - 1);
            conditions.push(own);
        }
    }
    SchedulingPolicyStatus {
        observed_generation: view.generation,
        governed_pods: Some(i64::try_from(view.governed).unwrap_or(i64::MAX)),
        conditions,
    }
}

/// Writes what has changed, one policy at a time, for ever.
pub(super) async fn control(board: Arc<Board>, fenced: Arc<Fenced>, mut leadership: Leadership) {
    let policies = board.policies();
    loop {
        let mut wake = None;
        if leadership.is_leader() {
            let (write, again) = policies.due(Instant::now(), now());
            if let Some(write) = write {
                send(policies, &fenced, write).await;
                continue;
            }
            wake = again;
        }
        tokio::select! {
            () = policies.changed.notified() => {}
            () = tokio::time::sleep_until(wake.unwrap_or_else(far)), if wake.is_some() => {}
            () = leadership.changed() => {}
        }
    }
}

async fn send(policies: &Policies, fenced: &Fenced, write: Write) {
    let policy = write.name.clone();
    match fenced.once(call(&write)).await {
        Ok(body) => {
            debug!(%policy, "status written");
            policies.settled(write, Some(version_in(&body)), Instant::now());
        }
        Err(failure) => {
            let failures = policies.settled(write, None, Instant::now());
            let stale = matches!(failure, Failure::Status { code: 404 | 409, .. });
            // Once per trouble.
            if failures == 1 && !stale && fenced.leadership.is_leader() {
                warn!(%policy, "status of the policy not written, it is tried again: {failure}");
            }
        }
    }
}

/// A merge patch that names the version it was made from.
fn call(write: &Write) -> Call {
    let body = json!({
        "metadata": {"uid": write.uid, "resourceVersion": write.version},
        "status": write.status,
    });
    let (group, version, plural) = (muster::GROUP, muster::VERSION, SchedulingPolicy::PLURAL);
    let name = &write.name;
    Call {
        method: Method::PATCH,
        path: format!(
            "/apis/{group}/{version}/{plural}/{name}/status?fieldManager=muster-controller"
        ),
        content_type: "application/merge-patch+json",
        body: Bytes::from(body.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn policy(name: &str, version: &str, status: &Value) -> SchedulingPolicy {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name, "resourceVersion": version, "generation": 1},
            "spec": {"priority": 1}, "status": status,
        }))
        .unwrap()
    }

    fn view(name: &str, accepted: bool, governed: u64) -> PolicyView {
        PolicyView {
            name: name.into(),
            uid: name.into(),
            generation: Some(1),
            accepted,
            reason: if accepted { "Accepted" } else { "Invalid" },
            message: "said".into(),
            governed,
        }
    }

    fn board(policies: &[SchedulingPolicy]) -> Policies {
        let board = Policies::default();
        board.note(Note::Listing);
        policies.iter().for_each(|policy| board.note(Note::Changed(policy)));
        board.note(Note::Listed);
        board
    }

    #[test]
    fn a_policy_is_written_at_once_then_at_a_pace_and_counts_more_rarely() {
        let board = board(&[policy("a", "1", &Value::Null)]);
        let (begin, time) = (Instant::now(), Time(5));
        assert!(board.due(begin, time).0.is_none(), "nothing is said of it yet");
        board.say(vec![view("a", true, 3)]);
        let write = board.due(begin, time).0.expect("the first write");
        assert_eq!(write.status.governed_pods, Some(3));
        assert_eq!(write.status.conditions[0].status, "True");
        board.settled(write, Some("2".into()), begin);
        assert!(board.due(begin, time).0.is_none(), "it is as it should be");

        board.say(vec![view("a", true, 4)]);
        assert_eq!(board.due(begin, time).1, Some(begin + COUNTS_APART));
        board.say(vec![view("a", false, 0)]);
        assert_eq!(board.due(begin, time).1, Some(begin + APART));
        let write = board.due(begin + APART, Time(9)).0.expect("the second write");
        let condition = &write.status.conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Invalid"));
        assert_eq!(condition.last_transition_time, Time(9));
    }

    #[test]
    fn a_write_that_fails_is_made_again_ever_later() {
        let board = board(&[policy("a", "1", &Value::Null)]);
        board.say(vec![view("a", true, 0)]);
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            let write = board.due(now, Time(0)).0.expect("it is tried again");
            board.settled(write, None, now);
            let again = board.due(now, Time(0)).1.expect("a pause");
            pauses.push((again - now).as_secs());
            now = again;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn what_is_said_of_another_incarnation_is_not_written_and_what_others_wrote_is_kept() {
        let other = json!({"conditions": [{"type": "Mine", "status": "True", "reason": "R",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let board = board(&[policy("a", "1", &other), policy("b", "1", &Value::Null)]);
        let foreign = PolicyView { uid: "old".into(), ..view("b", true, 1) };
        board.say(vec![view("a", true, 1), foreign]);
        let write = board.due(Instant::now(), Time(0)).0.expect("one write");
        let kinds: Vec<&str> = write.status.conditions.iter().map(|c| &*c.kind).collect();
        assert_eq!((&*write.name, kinds), ("a", vec!["Mine", "Accepted"]));
        board.settled(write, Some("2".into()), Instant::now());
        assert!(board.due(Instant::now(), Time(0)).0.is_none());
    }

    #[test]
    fn what_is_not_listed_any_more_is_forgotten() {
        let board = board(&[policy("a", "1", &Value::Null)]);
        board.note(Note::Listing);
        board.note(Note::Listed);
        board.say(vec![view("a", true, 0)]);
        assert!(board.due(Instant::now(), Time(0)).0.is_none());
    }
}
