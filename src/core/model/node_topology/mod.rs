//! What a node is inside, as far as decisions read it.
//!
//! Owns the compact form of a `NodeTopology`, and of a NodeResourceTopology where that is all
//! there is. Two values are equal if no decision can tell them apart: times, sequence numbers and
//! words for people are not in here. Must never hold what the scheduler plans: pods that the agent
//! has not seen yet are the reader's to count.
//!
//! NUMA nodes are named by their position in [`NodeHardware::numa`], which is sorted by id, and
//! sets of them by a [`NumaMask`]: ids have holes, positions have none, and the order is the same.

mod compile;
mod cpu_set;
mod foreign;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use cpu_set::{CpuSet, MAX_CPU};
pub use muster_api::muster::node_topology::{
    Activity, Confidence, DeviceState, DeviceVia, GpuHealth, NumaKind, PciPath, TopologyPolicy,
    TopologyScope,
};

/// A set of NUMA nodes: a bit for each position, the lowest for the first.
pub type NumaMask = u64;

/// What a node is inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeTopology {
    /// Who says it.
    pub source: Source,
    /// What is built in.
    pub hardware: Arc<NodeHardware>,
    /// How the kubelet is set; nothing is known of it if there is none.
    pub kubelet: Option<Arc<Kubelet>>,
    /// Whether the kubelet's account of pods and devices has been seen at all. If not, the
    /// following lists are empty because nobody knows.
    pub allocations_known: bool,
    /// What is free, in the order of [`NodeHardware::numa`].
    pub free: Vec<NumaFree>,
    /// Devices that the kubelet knows, broken ones included, by resource and id.
    pub devices: Vec<Device>,
    /// Pods that have CPUs, memory or devices to themselves, by UID.
    pub pods: Vec<PodHolding>,
    /// How GPUs are, in the order of [`NodeHardware::gpus`].
    pub gpus: Vec<GpuState>,
}

/// Who says what a node is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Muster's agent.
    #[default]
    Agent,
    /// A NodeResourceTopology: it has counts, so ids of CPUs and devices are made up, nothing
    /// is known of links, and of pods nothing but their sum.
    ResourceTopology,
}

/// What is built in. Shared by all versions of the object until its hash changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHardware {
    /// The hash that the agent gave it; empty if there is none.
    pub hash: Box<str>,
    /// NUMA nodes by id, at most 64.
    pub numa: Vec<NumaNode>,
    /// Of each CPU, by its number: the lowest CPU of its core. Empty where each CPU has a core
    /// for itself.
    pub core_of: Vec<u16>,
    /// Most CPUs of a core; 1 if they are not known to share.
    pub threads_per_core: u32,
    /// GPUs, in the order of the object's list.
    pub gpus: Vec<Gpu>,
    /// How GPUs are connected: a square, row by row. See [`NodeHardware::link`].
    pub links: Vec<GpuLink>,
    /// Network devices.
    pub nics: Vec<Nic>,
    /// Cluster UUID and clique of the NVLink domain that the node is a part of, joined by a dot,
    /// if it is larger than the node and all GPUs agree.
    pub nvlink_domain: Option<Arc<str>>,
    /// Which GPU a device's id names, sorted: UUIDs of GPUs and of MIG devices.
    pub(crate) by_uuid: Vec<(Arc<str>, u8)>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u32,
    /// What it is made of.
    pub kind: NumaKind,
    /// The socket of its CPUs, if it is one.
    pub socket: Option<u32>,
    /// Its CPUs, reserved ones included.
    pub cpus: CpuSet,
    /// CPUs that share a cache of the last level, if it has several.
    pub caches: Vec<CpuSet>,
    /// Its memory, hugepages included.
    pub memory_bytes: u64,
    /// Bytes set aside for hugepages: size of a page, and sum.
    pub hugepages: Vec<(u64, u64)>,
    /// Distances to all NUMA nodes by position; empty if not known.
    pub distances: Vec<u16>,
}

/// What is free on a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaFree {
    /// CPUs that may still be given to a container alone; none without a static CPU Manager.
    pub cpus: CpuSet,
    /// Memory, if the Memory Manager gives it by NUMA node.
    pub memory: Option<Room>,
    /// Hugepages, by the size of a page.
    pub hugepages: Vec<(u64, Room)>,
    /// NUMA nodes that the Memory Manager has joined with this one, itself included; 0 if none.
    pub group: NumaMask,
    /// How many containers have memory of it, if known.
    pub assignments: Option<u32>,
}

/// Memory of one kind on one NUMA node, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What pods may have when there are none.
    pub allocatable: u64,
    /// What is left.
    pub free: u64,
}

/// A device that the kubelet gives to containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The resource; of a claim, the driver.
    pub resource: Arc<str>,
    /// Its id.
    pub id: Arc<str>,
    /// Its NUMA nodes; 0 if the plugin names none.
    pub numa: NumaMask,
    /// What it is to the kubelet.
    pub state: DeviceState,
    /// How it comes to pods.
    pub via: DeviceVia,
    /// The position of the GPU that it is, or is a part of.
    pub gpu: Option<u8>,
    /// The position in [`NodeTopology::pods`] of the pod that has it.
    pub pod: Option<u16>,
}

/// A pod that has something to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodHolding {
    /// Its UID; empty if the agent does not know it.
    pub uid: Arc<str>,
    /// CPUs that are its alone.
    pub cpus: CpuSet,
    /// Memory by NUMA node.
    pub memory: Vec<HeldMemory>,
}

/// Memory that a pod has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldMemory {
    /// The size of a page; 0 for memory that is not of hugepages.
    pub page_bytes: u64,
    /// The NUMA nodes that it is from, together.
    pub numa: NumaMask,
    /// How much.
    pub bytes: u64,
}

/// How the kubelet is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// How sure this is.
    pub confidence: Confidence,
    /// Major and minor version; 0.0 if not known.
    pub version: (u32, u32),
    /// The policy of the Topology Manager.
    pub policy: TopologyPolicy,
    /// What it aligns as one.
    pub scope: TopologyScope,
    /// Its option prefer-closest-numa-nodes.
    pub prefer_closest: bool,
    /// Most NUMA nodes with which the Topology Manager works.
    pub max_numa_nodes: u32,
    /// Whether CPUs are given alone.
    pub static_cpus: bool,
    /// Options of the CPU Manager that are on, sorted.
    pub cpu_options: Vec<Box<str>>,
    /// CPUs kept for the system, if they are named.
    pub reserved_cpus: CpuSet,
    /// Whether memory is given by NUMA node.
    pub static_memory: bool,
    /// Memory kept for the system: position of the NUMA node, size of a page (0 for other
    /// memory), bytes.
    pub reserved_memory: Vec<(u8, u64, u64)>,
    /// Feature gates that were set, sorted, as in PodLevelResourceManagers=true.
    pub feature_gates: Vec<Box<str>>,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Its UUID; none if no driver reports it.
    pub uuid: Option<Arc<str>>,
    /// The number of its device in the DRA driver.
    pub minor: Option<u32>,
    /// Its place on the PCI bus.
    pub pci: Box<str>,
    /// The name of the model.
    pub model: Option<Arc<str>>,
    /// Its memory; 0 if not known.
    pub memory_bytes: u64,
    /// The position of the NUMA node beside it.
    pub numa: Option<u8>,
    /// The PCI switch right above it: equal numbers, equal switches, GPUs and NICs together.
    pub switch: Option<u16>,
    /// NVLinks that it has, and that are up.
    pub nvlinks: (u8, u8),
    /// Cluster UUID and clique, joined by a dot, if its fabric is larger than the node.
    pub clique: Option<Arc<str>>,
    /// How it is divided, if it is.
    pub mig: Option<Mig>,
}

/// How a GPU is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mig {
    /// Its parts.
    pub devices: Vec<MigDevice>,
    /// What it can be divided into.
    pub profiles: Vec<MigProfile>,
}

/// A part of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigDevice {
    /// Its UUID.
    pub uuid: Arc<str>,
    /// Its profile, as in 1g.5gb.
    pub profile: Arc<str>,
    /// First memory slice and how many it takes, if known.
    pub placement: Option<(u8, u8)>,
}

/// A way to divide a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigProfile {
    /// Its name.
    pub name: Arc<str>,
    /// How many memory slices one takes.
    pub size: u8,
    /// Memory slices at which one may start.
    pub starts: Vec<u8>,
}

/// How two GPUs are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuLink {
    /// The way over PCI.
    pub path: PciPath,
    /// NVLinks that the pair can use, directly or through switches.
    pub nvlinks: u8,
    /// What the pair can carry in one direction, for comparing pairs.
    pub megabytes_per_second: u32,
}

/// How a GPU is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuState {
    /// Whether it may be used.
    pub health: GpuHealth,
    /// Whether it is at work.
    pub activity: Activity,
    /// Whether a process computes on it, whoever started it.
    pub in_use: bool,
    /// UUIDs of parts that are not to be used although the GPU is.
    pub unhealthy_mig: Vec<Arc<str>>,
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: Arc<str>,
    /// The position of its NUMA node.
    pub numa: Option<u8>,
    /// The PCI switch right above it, as in [`Gpu::switch`].
    pub switch: Option<u16>,
    /// Whether it has an RDMA device.
    pub rdma: bool,
    /// Whether its first RDMA port is up.
    pub active: bool,
    /// Its rate; 0 if not known.
    pub gigabits_per_second: u32,
    /// The way to each GPU.
    pub gpu_paths: Vec<PciPath>,
}

impl NodeHardware {
    /// The position of the NUMA node with an id.
    #[must_use]
    pub fn position(&self, id: u32) -> Option<u8> {
        // Positions fit: there are at most 64.
        self.numa.binary_search_by_key(&id, |node| node.id).ok().map(|at| at as u8)
    }

    /// How two GPUs are connected, by position.
    #[must_use]
    pub fn link(&self, a: usize, b: usize) -> GpuLink {
        let count = self.gpus.len();
        let at = (a < count && b < count).then(|| a * count + b);
        at.and_then(|at| self.links.get(at)).copied().unwrap_or_default()
    }

    /// The GPU that a device's id names, or is a part of. Replicas of a device that is shared in
    /// time are named after it (`GPU-…::2`).
    #[must_use]
    pub fn gpu_of(&self, id: &str) -> Option<u8> {
        let uuid = id.split("::").next().unwrap_or(id);
        let at = self.by_uuid.binary_search_by(|(own, _)| (**own).cmp(uuid)).ok()?;
        Some(self.by_uuid[at].1)
    }

    /// The lowest CPU of a CPU's core.
    #[must_use]
    pub fn core_of(&self, cpu: u32) -> u32 {
        self.core_of.get(cpu as usize).map_or(cpu, |core| u32::from(*core))
    }

    /// All NUMA nodes.
    #[must_use]
    pub fn all(&self) -> NumaMask {
        mask_of_first(self.numa.len())
    }
}

impl NodeTopology {
    /// What a pod has, if the agent has seen it.
    #[must_use]
    pub fn pod(&self, uid: &str) -> Option<&PodHolding> {
        Some(&self.pods[self.pod_at(uid)?])
    }

    /// The position in [`NodeTopology::pods`] of a pod that the agent has seen.
    #[must_use]
    pub fn pod_at(&self, uid: &str) -> Option<usize> {
        self.pods.binary_search_by(|pod| (*pod.uid).cmp(uid)).ok()
    }

    /// Devices of a resource that come by a device plugin.
    #[must_use]
    pub fn devices_of(&self, resource: &str) -> &[Device] {
        let from = self.devices.partition_point(|device| *device.resource < *resource);
        let rest = &self.devices[from..];
        let end = rest.partition_point(|device| *device.resource == *resource);
        &rest[..end]
    }
}

/// The first `count` NUMA nodes.
pub(crate) const fn mask_of_first(count: usize) -> NumaMask {
    if count >= 64 { NumaMask::MAX } else { (1 << count) - 1 }
}
