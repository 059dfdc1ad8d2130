//! What waits, in the order in which it is tried.
//!
//! The order is the scheduler's own: gangs of which a part is bound, then by priority, then by
//! age. Pods of a gang are one entry.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use muster_api::k8s::{Pod, PriorityClass, Time};
use muster_core::gang::{Api, GangSpec};
use muster_core::io::Object;
use serde::Serialize;

use super::{Column, Key, Stage, Table, World, age};
use crate::explain::Decoded;

/// Something that waits: a pod, or a gang with its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Its place in the queue of the whole cluster, from 1.
    pub position: usize,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `Pod` or `PodGroup`.
    pub kind: &'static str,
    /// Priority.
    pub priority: i32,
    /// Pods that wait.
    pub pods: usize,
    /// Members that have to be placed together; none of a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_member: Option<usize>,
    /// For how long it has waited.
    pub seconds: i64,
    /// `Queued`: it has not failed; `Unschedulable`, `Incomplete`: its gang lacks members;
    /// `Gated`: somebody holds it back.
    pub state: &'static str,
    /// What the scheduler said last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Everything of the scheduler's that waits, in order.
#[must_use]
pub fn waiting(stage: &Stage<'_>) -> Vec<Waiting> {
    let world = stage.world();
    let view = stage.queue();
    let queued: BTreeMap<&str, &muster_core::QueuedPod> =
        view.pods.iter().map(|pod| (pod.pod.as_str(), pod)).collect();
    let mut entries: BTreeMap<Key, Vec<(&Key, &Pod)>> = BTreeMap::new();
    for (key, pod) in world.pods().filter(|(_, pod)| stage.waits(pod) && stage.is_ours(pod)) {
        let of = Api::of(pod).map(|(api, name)| Key::group(api, &key.namespace, name));
        entries.entry(of.unwrap_or_else(|| key.clone())).or_default().push((key, pod));
    }
    let mut all: Vec<(Rank, Waiting)> = entries
        .iter()
        .map(|(key, pods)| {
            let first = queued.get(pods[0].0.to_string().as_str()).copied();
            entry(stage, key, pods, first)
        })
        .collect();
    all.sort_by(|(a, x), (b, y)| {
        a.cmp(b).then_with(|| (&x.namespace, &x.name).cmp(&(&y.namespace, &y.name)))
    });
    let number = |(i, (_, waiting)): (usize, (_, Waiting))| Waiting { position: i + 1, ..waiting };
    all.into_iter().enumerate().map(number).collect()
}

type Rank = (Reverse<bool>, Reverse<i32>, Time);

fn entry(
    stage: &Stage<'_>,
    key: &Key,
    pods: &[(&Key, &Pod)],
    queued: Option<&muster_core::QueuedPod>,
) -> (Rank, Waiting) {
    let world = stage.world();
    let spec = group_spec(world, key);
    let is_group = key.kind == "PodGroup";
    let of_pods = pods.iter().map(|(_, pod)| priority_of(world, pod)).max().unwrap_or(0);
    let of_group = spec.as_ref().and_then(|spec| {
        let class = spec.class.as_ref().and_then(|name| class(world, name));
        spec.priority.or_else(|| class.map(|class| class.value))
    });
    let priority = of_group.unwrap_or(of_pods);
    let created = |pod: &Pod| pod.metadata.creation_timestamp;
    let oldest = pods.iter().filter_map(|(_, pod)| created(pod)).min();
    let age_of = spec.as_ref().map(|spec| Time(spec.created.0)).filter(|t| t.0 > 0).or(oldest);
    let begun = is_group
        && Api::of(pods[0].1).is_some_and(|(api, name)| {
            let members = world.members(api, &key.namespace, name);
            members.iter().any(|(_, pod)| !pod.spec.node_name.is_empty())
        });
    let since = oldest.map_or(0, |t| (world.now().0 - t.0).max(0) / 1_000_000);
    let (state, message) = state(pods, queued, is_group);
    let waiting = Waiting {
        position: 0,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        kind: if is_group { "PodGroup" } else { "Pod" },
        priority,
        pods: pods.len(),
        min_member: spec.map(|spec| spec.min).filter(|_| is_group),
        seconds: since,
        state,
        message,
    };
    ((Reverse(begun), Reverse(priority), age_of.unwrap_or_default()), waiting)
}

/// How something waits, and what was said of it last.
fn state(
    pods: &[(&Key, &Pod)],
    queued: Option<&muster_core::QueuedPod>,
    is_group: bool,
) -> (&'static str, String) {
    let now = queued.map(|pod| pod.message.clone()).unwrap_or_default();
    if queued.is_some_and(|pod| pod.queue == "gated") {
        let gated = pods.iter().all(|(_, pod)| !pod.spec.scheduling_gates.is_empty());
        return (if is_group && !gated { "Incomplete" } else { "Gated" }, now);
    }
    let of = |(_, pod): &(&Key, &Pod)| {
        let mut all = pod.status.conditions.iter();
        let said = all.find(|c| c.kind == "PodScheduled" && c.status == "False")?;
        Some((said.reason == "Unschedulable", said.message.clone()))
    };
    match pods.iter().find_map(of) {
        Some((true, message)) => ("Unschedulable", message),
        Some((false, message)) => ("Queued", message),
        None => ("Queued", String::new()),
    }
}

/// What a pod group asks for, whatever API it comes from.
pub(super) fn group_spec(world: &World, key: &Key) -> Option<GangSpec> {
    match world.items.get(key).map(|item| &item.decoded) {
        Some(Decoded::Object(object)) => GangSpec::of(object),
        _ => None,
    }
}

fn class<'a>(world: &'a World, name: &str) -> Option<&'a PriorityClass> {
    world.items.values().find_map(|item| match &item.decoded {
        Decoded::Object(object) => match &**object {
            Object::PriorityClass(class) if class.metadata.name == name => Some(class),
            _ => None,
        },
        _ => None,
    })
}

fn priority_of(world: &World, pod: &Pod) -> i32 {
    let own = pod.spec.priority;
    let named = || class(world, &pod.spec.priority_class_name).map(|class| class.value);
    own.or_else(named).unwrap_or(0)
}

/// The queue as a table; those of one namespace, or all.
#[must_use]
pub fn queue_table(all: &[Waiting], of_all: bool) -> Table {
    let mut columns = vec![Column::new("POSITION")];
    if of_all {
        columns.push(Column::new("NAMESPACE"));
    }
    columns.extend(["NAME", "KIND", "PRIORITY", "PODS", "WAITING", "STATE"].map(Column::new));
    columns.push(Column::wide("MESSAGE"));
    let mut table = Table::new(&columns);
    for entry in all {
        let pods = match entry.min_member {
            Some(min) => format!("{}/{min}", entry.pods),
            None => entry.pods.to_string(),
        };
        let mut row = vec![entry.position.to_string()];
        if of_all {
            row.push(entry.namespace.clone());
        }
        row.extend([
            entry.name.clone(),
            entry.kind.to_owned(),
            entry.priority.to_string(),
            pods,
            age(entry.seconds),
            entry.state.to_owned(),
            entry.message.clone(),
        ]);
        table.row(row);
    }
    table
}
