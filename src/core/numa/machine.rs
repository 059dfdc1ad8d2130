//! What the predictor is told of a node: how its kubelet is set, what is built in,
//! and what is in use.

use std::sync::Arc;

use super::cpus::{CpuLayout, CpuSet};
use super::mask::Mask;

/// Most NUMA nodes for which every set is tried, unless the kubelet was told to
/// allow more. The kubelet itself refuses to start beyond its own limit.
pub const DEFAULT_MAX_NODES: usize = 8;

/// The Topology Manager's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Nothing is aligned.
    #[default]
    None,
    /// The best alignment there is; none is no reason to refuse.
    BestEffort,
    /// Only the alignment that an empty machine would give.
    Restricted,
    /// Only one NUMA node.
    SingleNumaNode,
}

/// What is aligned together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each container by itself.
    #[default]
    Container,
    /// The whole pod.
    Pod,
}

/// Options of the CPU Manager's static policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuOptions {
    /// `full-pcpus-only`.
    pub full_cores_only: bool,
    /// `distribute-cpus-across-numa`.
    pub across_numa: bool,
    /// `align-by-socket`.
    pub align_by_socket: bool,
    /// `distribute-cpus-across-cores`.
    pub across_cores: bool,
    /// `prefer-align-cpus-by-uncorecache`.
    pub align_by_uncore: bool,
}

/// How a kubelet is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The Topology Manager's policy.
    pub policy: Policy,
    /// The Topology Manager's scope.
    pub scope: Scope,
    /// `prefer-closest-numa-nodes`.
    pub prefer_closest: bool,
    /// The CPU Manager's static policy with its options; `None` for the policy `none`.
    pub cpu: Option<CpuOptions>,
    /// The Memory Manager's policy is `Static`.
    pub memory: bool,
    /// The feature gate `PodLevelResourceManagers` is on.
    pub pod_level: bool,
    /// Devices are looked for on NUMA nodes that have some, as kubelets of 1.36 and
    /// later do; older ones look at all.
    pub device_nodes_only: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::None,
            scope: Scope::Container,
            prefer_closest: false,
            cpu: None,
            memory: false,
            pod_level: false,
            device_nodes_only: true,
        }
    }
}

/// A machine and its kubelet, apart from what is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Machine {
    /// How the kubelet is set.
    pub settings: Settings,
    /// Ids of NUMA nodes with their distances to every node by id, ascending. Nodes
    /// without CPUs are nodes too.
    pub nodes: Vec<NumaNode>,
    /// The CPUs.
    pub cpus: CpuLayout,
    /// CPUs that no container gets for itself.
    pub reserved: CpuSet,
    /// Resources of device plugins, by name.
    pub devices: Vec<DeviceResource>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NumaNode {
    /// Its id.
    pub id: u8,
    /// Distances to the nodes with ids 0, 1, 2 and so on.
    pub distances: Vec<u64>,
    /// Memory and hugepages that containers can get of it, by resource name.
    pub memory: Vec<(Arc<str>, u64)>,
}

/// A resource that a device plugin serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceResource {
    /// Its name.
    pub name: Arc<str>,
    /// All devices that were ever reported and not withdrawn, healthy or not.
    pub devices: Vec<Device>,
    /// The plugin may say which devices it would rather give: it then may choose
    /// freely where the kubelet would go by NUMA nodes. True where it is not known.
    pub plugin_chooses: bool,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// The plugin's name for it.
    pub id: Arc<str>,
    /// NUMA nodes it is near; `None` if the plugin said nothing, which is not the same
    /// to the kubelet as to say that there are none.
    pub numa: Option<Mask>,
    /// It can be given away.
    pub healthy: bool,
}

/// What is in use on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Usage {
    /// CPUs that no container has for itself, reserved ones among them.
    pub shared: CpuSet,
    /// Memory per NUMA node, in the order of [`Machine::nodes`].
    pub memory: Vec<NodeMemory>,
    /// Per device resource, in the order of [`Machine::devices`] and its devices:
    /// whether a container has it.
    pub taken: Vec<Vec<bool>>,
}

/// What the Memory Manager knows of a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeMemory {
    /// Free bytes per resource, in the order of [`NumaNode::memory`].
    pub free: Vec<u64>,
    /// How many blocks of containers count this node among theirs.
    pub blocks: u64,
    /// The nodes whose memory is given away together with this one's.
    pub group: Mask,
}

impl Machine {
    /// All NUMA nodes.
    #[must_use]
    pub fn all_nodes(&self) -> Mask {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// The position of a NUMA node.
    pub(super) fn position(&self, id: u8) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// A machine on which nothing runs.
    #[must_use]
    pub fn unused(&self) -> Usage {
        let memory = |node: &NumaNode| NodeMemory {
            free: node.memory.iter().map(|(_, bytes)| *bytes).collect(),
            blocks: 0,
            group: Mask::one(node.id),
        };
        Usage {
            shared: self.cpus.all().clone(),
            memory: self.nodes.iter().map(memory).collect(),
            taken: self.devices.iter().map(|r| vec![false; r.devices.len()]).collect(),
        }
    }
}
