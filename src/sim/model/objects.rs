//! From scenario to objects: nodes and pods as the API server would hold them.

use muster_api::k8s::{Node, ObjectMeta, OwnerReference, Pod, Time};
use muster_api::muster::{PodGroup, annotations, labels};

use super::api::PodId;
use crate::scenario::{NodeGroup, Shape, Workload};
use crate::time::SECOND;

pub(crate) const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

/// UIDs look like UIDs and count up.
pub(crate) fn pod_uid(id: PodId) -> String {
    format!("00000000-0000-4000-8000-{:012x}", u64::from(id.0) + 1)
}

/// The pod that a UID was made for; whether it still exists is another question.
pub(crate) fn pod_of_uid(uid: &str) -> Option<PodId> {
    let number = u32::from_str_radix(uid.strip_prefix("00000000-0000-4000-8000-")?, 16).ok()?;
    number.checked_sub(1).map(PodId)
}

pub(crate) fn group_uid(number: u64) -> String {
    format!("00000000-0000-4000-a000-{number:012x}")
}

pub(crate) fn node_uid(number: u64) -> String {
    format!("00000000-0000-4000-9000-{number:012x}")
}

/// Whether a pod has ended.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// The pod group that a pod names.
pub(crate) fn group_name(pod: &Pod) -> Option<&str> {
    pod.metadata.labels.get(labels::POD_GROUP).map(String::as_str).filter(|name| !name.is_empty())
}

/// Whether a watch of ended members shows it.
pub(crate) fn is_ended_member(pod: &Pod) -> bool {
    pod.metadata.labels.contains_key(labels::POD_GROUP) && is_terminal(pod)
}

/// Whether a pod runs and is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
}

/// A time that an annotation says, in microseconds.
pub(crate) fn time_on(pod: &Pod, name: &str) -> Option<i64> {
    Time::parse(pod.metadata.annotations.get(name)?).ok().map(|time| time.0)
}

/// Node `index` of a group.
pub(crate) fn node(group: &NodeGroup, index: u32) -> Node {
    let name = group.name.expand(index);
    let mut node = Node {
        metadata: ObjectMeta { name: name.clone(), ..ObjectMeta::default() },
        ..Node::default()
    };
    node.metadata.labels.insert(HOSTNAME_LABEL.to_owned(), name);
    for (key, value) in &group.labels {
        node.metadata.labels.insert(key.clone(), value.expand(index));
    }
    node.spec.unschedulable = group.unschedulable;
    node.spec.taints.clone_from(&group.taints);
    node.status.allocatable.clone_from(&group.allocatable);
    node
}

/// The name of one submission of a workload.
pub(crate) fn round_name(workload: &Workload, round: u32) -> String {
    if workload.repeat == 1 { workload.name.clone() } else { format!("{}-{round}", workload.name) }
}

/// The pod group of one submission of a workload.
pub(crate) fn pod_group(workload: &Workload, round: u32) -> PodGroup {
    let mut group = PodGroup::default();
    group.metadata.name = round_name(workload, round);
    group.metadata.namespace.clone_from(&workload.namespace);
    if let Some(asked) = &workload.pod_group {
        group.spec.clone_from(&asked.spec);
    }
    group
}

/// Whether the pods of a workload are kept together by their ranks.
fn has_segments(workload: &Workload) -> bool {
    let topology = workload.pod_group.as_ref().and_then(|group| group.spec.topology.as_ref());
    topology.is_some_and(|topology| !topology.segments.is_empty())
}

/// Pod `index` of one submission of a workload.
pub(crate) fn pod(workload: &Workload, round: u32, index: u32) -> Pod {
    let mut pod = Pod::clone(&workload.template);
    let owner = round_name(workload, round);
    let alone = workload.shape == Shape::Pods { replicas: 1 };
    pod.metadata.name = if alone { owner.clone() } else { format!("{owner}-{index}") };
    if workload.pod_group.is_some() {
        pod.metadata.labels.insert(labels::POD_GROUP.to_owned(), owner.clone());
    }
    if has_segments(workload) {
        // Whoever takes the place of another has its rank.
        let count = match workload.shape {
            Shape::Pods { replicas } | Shape::Set { replicas, .. } => replicas,
            Shape::Job { completions, .. } => completions,
        };
        let rank = (index % count.max(1)).to_string();
        pod.metadata.labels.insert(labels::DEFAULT_RANK.to_owned(), rank);
    }
    if let Some(checkpoint) = &workload.checkpoint {
        let wait = (checkpoint.wait / SECOND).to_string();
        pod.metadata.annotations.insert(annotations::CHECKPOINT_BEFORE_EVICTION.to_owned(), wait);
    }
    let (api_version, kind) = match workload.shape {
        Shape::Pods { .. } => return pod,
        Shape::Job { .. } => {
            pod.metadata.labels.insert(JOB_NAME_LABEL.to_owned(), owner.clone());
            ("batch/v1", "Job")
        }
        Shape::Set { stable_names: true, .. } => ("apps/v1", "StatefulSet"),
        Shape::Set { .. } => ("apps/v1", "ReplicaSet"),
    };
    let owner_uid = format!("{}.{owner}", workload.namespace);
    pod.metadata.owner_references = vec![OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: owner,
        uid: format!("uid-of-{owner_uid}"),
        controller: true,
    }];
    pod
}
