//! GPUs of nodes and pods, and nodes that take no pods.

use muster_api::k8s::{Node, Pod, ResourceList, Taint};
use muster_core::model::{PodRequests, ResourceTable};

/// Taints by which Kubernetes itself keeps pods off a node, and what they mean.
const CLOSED: [(&str, &str); 4] = [
    ("node.kubernetes.io/unschedulable", "cordoned"),
    ("node.kubernetes.io/not-ready", "not ready"),
    ("node.kubernetes.io/unreachable", "unreachable"),
    ("node.kubernetes.io/out-of-service", "out of service"),
];

/// Whether a resource is whole GPUs: `nvidia.com/gpu`, `amd.com/gpu`, `example.com/gpu`.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    resource.strip_suffix("/gpu").is_some_and(|domain| !domain.is_empty())
}

/// GPUs that a node offers, of all makes.
#[must_use]
pub fn of_node(node: &Node) -> i64 {
    let gpus = node.status.allocatable.iter().filter(|(name, _)| is_gpu(name));
    gpus.fold(0_i64, |sum, (_, amount)| sum.saturating_add(amount.value().max(0)))
}

/// Why a node takes no pods, if it takes none. Taints of the cluster's owner are not
/// counted: some pods tolerate them.
#[must_use]
pub fn idle_because(node: &Node) -> Option<&'static str> {
    if node.spec.unschedulable {
        return Some("cordoned");
    }
    let closes = |taint: &&Taint| taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    node.spec.taints.iter().filter(closes).find_map(|taint| {
        CLOSED.iter().find(|(key, _)| *key == taint.key).map(|(_, because)| *because)
    })
}

/// Counts GPUs of pods, as the scheduler does.
#[derive(Default)]
pub struct Gpus {
    table: ResourceTable,
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpus").finish_non_exhaustive()
    }
}

impl Gpus {
    /// GPUs that a pod takes from its node. Cheap for pods that name none.
    pub fn of_pod(&mut self, pod: &Pod) -> i64 {
        let spec = &pod.spec;
        let names = |list: &ResourceList| list.keys().any(|name| is_gpu(name));
        let containers = spec.containers.iter().chain(&spec.init_containers);
        let mut requests = containers.map(|c| &c.resources.requests);
        let whole = spec.resources.as_ref().is_some_and(|r| names(&r.requests));
        if !whole && !requests.any(names) {
            return 0;
        }
        let charged = PodRequests::charged_of(pod, &mut self.table);
        let gpus = charged.iter().filter(|(id, _)| is_gpu(self.table.name(*id)));
        gpus.fold(0_i64, |sum, (_, amount)| sum.saturating_add(*amount))
    }
}
