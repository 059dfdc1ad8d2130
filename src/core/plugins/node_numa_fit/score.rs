//! How good the place is that a pod would get inside a node.

use super::NodeNumaFit;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{PreScoreResult, Score, State};
use crate::model::PodShape;
use crate::model::node_topology::NodeTopology;
use crate::numa::{Course, Machine, Mask, Pod, spread};

/// What a place loses, in percent, if the node has network devices for RDMA and none is beside
/// the devices that the pod gets.
const NO_NIC_BESIDE: i64 = 10;

impl Score for NodeNumaFit {
    fn pre_score(&self, shape: &PodShape, _: &Cluster) -> PreScoreResult {
        match shape.aligned {
            Some(_) => PreScoreResult::Go(None),
            None => PreScoreResult::Skip,
        }
    }

    /// 100 if all that the pod has is on one NUMA node; less, the farther the nodes are
    /// apart on which it may be at worst, and if no network device is beside them. 0 where
    /// nothing is known.
    fn score(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> i64 {
        let (Some(pod), Some(inside)) = (&shape.aligned, node.inside()) else { return 0 };
        let Some(prediction) = inside.likely(node.predictions(), pod) else { return 0 };
        let rate = |course: &Course| rate(inside.topology, inside.machine, pod, course);
        prediction.admitted.iter().map(rate).min().unwrap_or(0)
    }
}

fn rate(topology: &NodeTopology, machine: &Machine, pod: &Pod, course: &Course) -> i64 {
    // 10 is a node's distance to itself.
    let near = 1000 / i64::from(spread(machine, course.nodes(machine)).max(10));
    let asks_devices = pod.all().any(|container| container.devices.iter().any(|(_, n)| *n > 0));
    if asks_devices && !has_nic_beside(topology, course.nodes(machine)) {
        return near * (100 - NO_NIC_BESIDE) / 100;
    }
    near
}

/// Whether a network device for RDMA is beside one of the NUMA nodes, or the node has none at
/// all.
fn has_nic_beside(topology: &NodeTopology, nodes: Mask) -> bool {
    let mut nics = topology.hardware.nics.iter().filter(|nic| nic.rdma && nic.active).peekable();
    nics.peek().is_none() || nics.any(|nic| nic.numa.is_none_or(|numa| nodes.has(numa)))
}
