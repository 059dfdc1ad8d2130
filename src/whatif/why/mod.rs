//! Why a pod or a pod group waits, and what would let it run.
//!
//! Owns the answer: what the true cause is, which node or domain is nearest, and the smallest
//! changes that would let it run now. Every change that is named was tried out on a copy of the
//! state by the core itself: what did not work is not said.

mod cause;
mod cure;
mod gang;
mod node;
mod pod;
mod room;
mod started;
#[cfg(test)]
mod tests;
mod text;

pub use cure::Cure;
pub use text::text;

use anyhow::{Result, bail};
use muster_api::k8s::Pod;
use muster_core::gang::Api;
use muster_core::report::GangView;
use serde::Serialize;

use super::{Key, Stage};

/// Most cures that are told.
pub const MAX_CURES: usize = 8;

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// What was asked about: `pod team/train-0`, `group team/train`.
    pub subject: String,
    /// `Waiting`, `Starting`, `Running`, `Ended` or `Leaving`.
    pub state: &'static str,
    /// For how long it has been there, in seconds; none if its age is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// Where it is, or would go if nothing keeps it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Who keeps it: a plugin's name, or one of `Gang`, `Topology`, `SchedulerName`, `Container`,
    /// `Kubelet`; empty if nobody does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocker: String,
    /// The cause in one sentence.
    pub cause: String,
    /// The node or domain that lacks least.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nearest: String,
    /// Its gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangView>,
    /// Nodes by the reason for which they are out, the most first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<Count>,
    /// What an event would say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Changes of which each would let it run now, the least first; at most [`MAX_CURES`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cures: Vec<Cure>,
    /// How many changes were tried.
    pub tried: usize,
}

/// Nodes that are out for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// How many.
    pub nodes: usize,
    /// Whose reason.
    pub plugin: String,
    /// The reason.
    pub reason: String,
    /// Some of them.
    pub examples: Vec<String>,
    /// Whoever left, they would stay out.
    pub for_good: bool,
}

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A pod.
    Pod(Key),
    /// A pod group.
    Group(Api, Key),
}

impl About {
    /// What a name stands for: `pod/NAME`, `podgroup/NAME`, or a name, of a pod first.
    ///
    /// # Errors
    ///
    /// If there is neither a pod nor a group of that name.
    pub fn find(stage: &Stage<'_>, namespace: &str, name: &str) -> Result<Self> {
        let (kind, name) = match name.split_once('/') {
            Some((kind, name)) => (kind.to_ascii_lowercase(), name),
            None => (String::new(), name),
        };
        let kind = kind.split('.').next().unwrap_or_default();
        let (pods, groups) = match kind {
            "" => (true, true),
            "pod" | "pods" | "po" => (true, false),
            "podgroup" | "podgroups" | "mpg" => (false, true),
            other => bail!("{other}/{name}: write pod/NAME or podgroup/NAME"),
        };
        let key = Key::pod(namespace, name);
        if pods && stage.world().pod(&key).is_some() {
            return Ok(Self::Pod(key));
        }
        let known = |api: &Api| {
            let key = Key::group(*api, namespace, name);
            let members = || !stage.world().members(*api, namespace, name).is_empty();
            (stage.world().get(&key).is_some() || members()).then_some((*api, key))
        };
        match Api::ALL.iter().find_map(known).filter(|_| groups) {
            Some((api, key)) => Ok(Self::Group(api, key)),
            None => {
                let what = match (pods, groups) {
                    (true, false) => "pod",
                    (false, true) => "pod group",
                    _ => "pod or pod group",
                };
                bail!("there is no {what} {name:?} in namespace {namespace:?} (-n NAMESPACE)")
            }
        }
    }
}

/// Says why.
#[must_use]
pub fn why(stage: &Stage<'_>, about: &About) -> Why {
    match about {
        About::Pod(key) => of_pod(stage, key),
        About::Group(api, key) => of_group(stage, *api, key),
    }
}

fn of_pod(stage: &Stage<'_>, key: &Key) -> Why {
    let Some(pod) = stage.world().pod(key) else {
        return Why::default();
    };
    let subject = format!("pod {key}");
    let seconds = seconds(stage, pod);
    if !stage.waits(pod) || pod.metadata.deletion_timestamp.is_some() {
        return Why { subject, seconds, ..started::why(stage, pod) };
    }
    let mut pods = vec![key.clone()];
    if let Some((api, name)) = Api::of(pod) {
        pods.extend(waiting(stage, api, &key.namespace, name).filter(|other| other != key));
    }
    let goal = cause::Goal::Pod(key.clone());
    Why { subject, seconds, ..cause::why(stage, &goal, &pods) }
}

fn of_group(stage: &Stage<'_>, api: Api, key: &Key) -> Why {
    let subject = format!("group {key}");
    let members = stage.world().members(api, &key.namespace, &key.name);
    let seconds = members.iter().filter_map(|(_, pod)| seconds(stage, pod)).max();
    let pods: Vec<Key> = waiting(stage, api, &key.namespace, &key.name).collect();
    if !pods.is_empty() {
        let goal = cause::Goal::Gang;
        return Why { subject, seconds, ..cause::why(stage, &goal, &pods) };
    }
    let not_running = members.iter().map(|(_, pod)| started::why(stage, pod));
    let mut slow = not_running.filter(|why| why.state != "Running");
    let Some(first) = slow.next() else {
        let (state, cause) = match members.len() {
            0 => ("Waiting", format!("no pod is a member of it: {}", gang::how_to_join(api, key))),
            n => ("Running", format!("all of its {n} members run")),
        };
        let blocker = if members.is_empty() { "Gang".to_owned() } else { String::new() };
        return Why { subject, seconds, state, blocker, cause, ..Why::default() };
    };
    let more = slow.count();
    let rest = if more > 0 { format!("; {more} more do not run either") } else { String::new() };
    Why { subject, seconds, cause: format!("{}{rest}", first.cause), ..first }
}

/// Members that wait, in order of names.
fn waiting<'a>(
    stage: &'a Stage<'_>,
    api: Api,
    namespace: &'a str,
    name: &'a str,
) -> impl Iterator<Item = Key> + 'a {
    let waits = |pod: &Pod| stage.waits(pod) && pod.metadata.deletion_timestamp.is_none();
    let members = stage.world().members(api, namespace, name).into_iter();
    members.filter(move |(_, pod)| waits(pod)).map(|(key, _)| key.clone())
}

fn seconds(stage: &Stage<'_>, pod: &Pod) -> Option<i64> {
    let created = pod.metadata.creation_timestamp?;
    Some((stage.world().now().0 - created.0).max(0) / 1_000_000)
}
