//! From scenario to objects: nodes and pods as the API server would hold them.

use muster_api::k8s::{Node, ObjectMeta, OwnerReference, Pod};

use super::api::PodId;
use crate::scenario::{NodeGroup, Shape, Workload};

const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";
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

pub(crate) fn node_uid(number: u64) -> String {
    format!("00000000-0000-4000-9000-{number:012x}")
}

/// Whether a pod has ended.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
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

/// Pod `index` of one submission of a workload.
pub(crate) fn pod(workload: &Workload, round: u32, index: u32) -> Pod {
    let mut pod = Pod::clone(&workload.template);
    let owner = round_name(workload, round);
    let alone = workload.shape == Shape::Pods { replicas: 1 };
    pod.metadata.name = if alone { owner.clone() } else { format!("{owner}-{index}") };
    if let Shape::Job { .. } = workload.shape {
        pod.metadata.labels.insert(JOB_NAME_LABEL.to_owned(), owner.clone());
        pod.metadata.owner_references = vec![OwnerReference {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            name: owner,
            controller: true,
        }];
    }
    pod
}
