//! What is built into a node: NUMA nodes, PCI switches, GPUs, links and NICs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::digest;
use crate::k8s::nullable;
use crate::muster::schema::names;

/// Most NUMA nodes: a GB200 tray has 34, most of them for memory of GPUs.
pub const MAX_NUMA_NODES: usize = 64;
/// Most GPUs and other accelerators.
pub const MAX_GPUS: usize = 32;
/// Most PCI switches above GPUs and NICs.
pub const MAX_SWITCHES: usize = 128;
/// Most NICs; virtual functions are not listed.
pub const MAX_NICS: usize = 64;
/// Most MIG devices of a GPU.
pub const MAX_MIG_DEVICES: usize = 16;
/// Largest distance between NUMA nodes.
pub const MAX_DISTANCE: u32 = 1023;
/// Longest list of CPUs, in bytes.
pub const MAX_CPU_LIST: usize = 4096;

/// Most of anything that is counted, bytes included: larger numbers lose digits in
/// readers that know floating numbers only.
pub const MAX_COUNT: u64 = 1 << 53;

/// What is built in. Written again only when its hash changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct Hardware {
    /// A hash over the rest of this part: who has seen it need not look again.
    #[schemars(length(max = 64), regex(pattern = "^[a-z0-9]+:[0-9a-f]+$"))]
    pub hash: String,
    /// What was asked.
    pub source: Source,
    /// NUMA nodes, by id. Ids may have holes.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NUMA_NODES), extend("x-kubernetes-list-type" = "atomic"))]
    pub numa: Vec<NumaNode>,
    /// PCI switches above GPUs and NICs.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_SWITCHES), extend("x-kubernetes-list-type" = "atomic"))]
    pub switches: Vec<PciSwitch>,
    /// GPUs and other accelerators by PCI address, those included that no driver reports.
    /// Links and NICs name a GPU by its position here, from 0.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_GPUS), extend("x-kubernetes-list-type" = "atomic"))]
    pub gpus: Vec<Gpu>,
    /// How each pair of GPUs is connected.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_GPUS * (MAX_GPUS - 1) / 2), extend("x-kubernetes-list-type" = "atomic"))]
    pub links: Vec<GpuLink>,
    /// Network devices on the PCI bus, by address.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NICS), extend("x-kubernetes-list-type" = "atomic"))]
    pub nics: Vec<Nic>,
    /// The NVLink domain that the node is a part of, if it is larger than the node and all
    /// GPUs of the node agree on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<NvlinkDomain>,
}

impl Hardware {
    /// The same with the right hash.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.hash = String::new();
        // Fields have a fixed order, so equal values have equal texts. A value of
        // this type always has a text: it has no maps and no floating numbers.
        let text = serde_json::to_vec(&self).unwrap_or_default();
        self.hash = digest(&text);
        self
    }
}

/// What was asked for the hardware, in which version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    /// The version of the agent.
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub agent: String,
    /// The version of NVIDIA's driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub driver: Option<String>,
    /// The version of NVIDIA's management library.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub nvml: Option<String>,
}

names! {
    /// What a NUMA node is made of.
    NumaKind {
        /// CPUs, and usually memory.
        #[default]
        Cpu,
        /// Memory without CPUs, as that of CXL.
        Memory,
        /// Memory of a GPU.
        GpuMemory,
        /// Neither: kept for memory that may be plugged in.
        Empty,
    }
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["id"]))]
pub struct NumaNode {
    /// Its number.
    #[schemars(range(max = 1_048_575))]
    pub id: u32,
    /// What it is made of. Cpu: CPUs, and usually memory. Memory: memory without CPUs, as
    /// that of CXL. GpuMemory: memory of a GPU. Empty: neither.
    pub kind: NumaKind,
    /// The socket of its CPUs, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 65_535))]
    pub socket: Option<u32>,
    /// Its online CPUs, as in 0-15,32-47.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_CPU_LIST), regex(pattern = "^[0-9,-]*$"))]
    pub cpus: String,
    /// CPUs that share a core, core by core, as in 0,32. Absent where each CPU has a
    /// core for itself.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1024),
        inner(length(max = 64), regex(pattern = "^[0-9,-]*$")),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub cores: Vec<String>,
    /// CPUs that share a cache of the last level, if there are several of them.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub caches: Vec<CpuCache>,
    /// Its memory.
    #[schemars(range(max = MAX_COUNT))]
    pub memory_bytes: u64,
    /// Pages set aside, by size.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub hugepages: Vec<Hugepages>,
    /// Distances to all NUMA nodes in the order of this list, 10 to itself. Absent if not
    /// known.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NUMA_NODES),
        inner(range(max = MAX_DISTANCE)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub distances: Vec<u32>,
}

/// A cache of the last level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CpuCache {
    /// CPUs that share it.
    #[schemars(length(max = MAX_CPU_LIST), regex(pattern = "^[0-9,-]*$"))]
    pub cpus: String,
    /// Its size.
    #[schemars(range(max = MAX_COUNT))]
    pub bytes: u64,
}

/// Pages of one size that are set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Hugepages {
    /// The size of a page.
    #[schemars(range(max = MAX_COUNT))]
    pub page_bytes: u64,
    /// How many there are.
    #[schemars(range(max = MAX_COUNT))]
    pub count: u64,
}

/// A PCI switch: two devices below it reach each other without the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PciSwitch {
    /// The address of its upstream port.
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f:.]*$"))]
    pub pci: String,
    /// The root complex, as in pci0000:00.
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub root: String,
    /// The switch above it, if it is not the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f:.]*$"))]
    pub parent: Option<String>,
    /// Its NUMA node, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_048_575))]
    pub numa: Option<u32>,
}

names! {
    /// Where the NUMA node of a device is known from.
    NumaSource {
        /// It is not known.
        #[default]
        None,
        /// The kernel says it of the device.
        Sysfs,
        /// The CPUs that the driver names are all on one NUMA node.
        Affinity,
    }
}

/// A GPU or another accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gpu {
    /// Its UUID, as device plugins name it. Absent if no driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 96), regex(pattern = "^[ -~]*$"))]
    pub uuid: Option<String>,
    /// Its number in the driver's order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 65_535))]
    pub index: Option<u32>,
    /// The number of its device file, and of its device in the DRA driver (gpu-0).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 65_535))]
    pub minor: Option<u32>,
    /// Its address on the PCI bus.
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f:.]*$"))]
    pub pci: String,
    /// Vendor and device on the PCI bus, as in 10de:2330.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 9), regex(pattern = "^[0-9a-f:]*$"))]
    pub pci_id: String,
    /// The name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 96), regex(pattern = "^[ -~]*$"))]
    pub model: Option<String>,
    /// The family of the chip, as in Hopper.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub architecture: Option<String>,
    /// The CUDA compute capability, as in 9.0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), regex(pattern = "^[0-9.]*$"))]
    pub compute_capability: Option<String>,
    /// Its memory; 0 if not known.
    #[schemars(range(max = MAX_COUNT))]
    pub memory_bytes: u64,
    /// The NUMA node of the CPUs beside it. Absent if not known, as in most virtual
    /// machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_048_575))]
    pub numa: Option<u32>,
    /// Where the NUMA node is known from. Sysfs: the kernel says it. Affinity: the CPUs that
    /// the driver names are all on one NUMA node. None: it is not known.
    pub numa_source: NumaSource,
    /// The NUMA node that its own memory is, on machines where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_048_575))]
    pub memory_numa: Option<u32>,
    /// The CPUs beside it.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_CPU_LIST), regex(pattern = "^[0-9,-]*$"))]
    pub cpus: String,
    /// The root complex, as in pci0000:00: pcieRoot of its DRA device.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub root: String,
    /// The PCI switch right above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f:.]*$"))]
    pub switch: Option<String>,
    /// Its place on the board, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub module: Option<u32>,
    /// Its NVLinks, if it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvlinks: Option<NvLinks>,
    /// What the fabric manager says, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Fabric>,
    /// How it is divided, if it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
}

/// The NVLinks of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NvLinks {
    /// How many it has.
    #[schemars(range(max = 64))]
    pub total: u32,
    /// How many are up.
    #[schemars(range(max = 64))]
    pub active: u32,
    /// How many of those lead to a switch.
    #[schemars(range(max = 64))]
    pub to_switch: u32,
    /// The rate of one link in one direction, in MB/s; 0 if not known.
    #[schemars(range(max = 10_000_000))]
    pub megabytes_per_second: u32,
}

names! {
    /// Whether a GPU is registered with its fabric.
    FabricState {
        /// The driver does not say.
        #[default]
        Unknown,
        /// There is no fabric to register with.
        NotSupported,
        /// It has not begun.
        NotStarted,
        /// It is under way.
        InProgress,
        /// It is done; whether it went well is in `error`.
        Completed,
    }
}

names! {
    /// What the fabric manager says of the health of the links.
    FabricHealth {
        /// It does not say.
        #[default]
        Unknown,
        /// All is well.
        Healthy,
        /// Not to be used.
        Unhealthy,
        /// Works with less than full bandwidth.
        Limited,
    }
}

/// A GPU in its NVLink fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Fabric {
    /// The cluster of the fabric manager; absent if the fabric is no larger than the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 36), regex(pattern = "^[0-9a-f-]*$"))]
    pub cluster_uuid: Option<String>,
    /// The clique: GPUs with the same cluster and clique reach each other by NVLink.
    #[schemars(range(max = u32::MAX))]
    pub clique: u32,
    /// Whether it is registered: NotSupported, NotStarted, InProgress, Completed, Unknown.
    pub state: FabricState,
    /// NVML's error of the registration; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128), regex(pattern = "^[ -~]*$"))]
    pub error: Option<String>,
    /// The health of its links: Healthy, Unhealthy, Limited (works with less than full
    /// bandwidth), Unknown.
    pub health: FabricHealth,
}

/// How a GPU is divided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Mig {
    /// Whether it is divided.
    pub enabled: bool,
    /// Whether it will be after the next reset, if that differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    /// Its parts.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MIG_DEVICES), extend("x-kubernetes-list-type" = "atomic"))]
    pub devices: Vec<MigDevice>,
    /// What it can be divided into, while it is divided.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub profiles: Vec<MigProfile>,
}

/// A part of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MigDevice {
    /// Its UUID, as device plugins name it.
    #[schemars(length(max = 96), regex(pattern = "^[ -~]*$"))]
    pub uuid: String,
    /// Its profile, as in 1g.5gb.
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub profile: String,
    /// The id of its GPU instance.
    #[schemars(range(max = 65_535))]
    pub gpu_instance: u32,
    /// The id of its compute instance.
    #[schemars(range(max = 65_535))]
    pub compute_instance: u32,
    /// Its memory.
    #[schemars(range(max = MAX_COUNT))]
    pub memory_bytes: u64,
    /// Where its GPU instance lies on the GPU, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<MigPlacement>,
}

/// Where a GPU instance lies, in memory slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MigPlacement {
    /// The first memory slice.
    #[schemars(range(max = 255))]
    pub start: u32,
    /// How many memory slices it takes.
    #[schemars(range(max = 255))]
    pub size: u32,
}

/// A way to divide a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MigProfile {
    /// Its name, as in 1g.5gb.
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub name: String,
    /// Its number for the driver.
    #[schemars(range(max = 65_535))]
    pub id: u32,
    /// How many memory slices one takes.
    #[schemars(range(max = 255))]
    pub size: u32,
    /// The memory slices at which one may start.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 32),
        inner(range(max = 255)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub starts: Vec<u32>,
}

names! {
    /// The way between two PCI devices, in the words of `nvidia-smi topo -m`, nearest first.
    PciPath {
        /// On one board.
        BOARD,
        /// Over at most one PCI bridge.
        PIX,
        /// Over several PCI bridges, not over the CPU's.
        PXB,
        /// Over a PCI host bridge of the CPU.
        PHB,
        /// Between host bridges of one NUMA node.
        NODE,
        /// Between NUMA nodes.
        #[default]
        SYS,
    }
}

names! {
    /// What the NVLinks of a pair lead through.
    LinkVia {
        /// Nothing.
        #[default]
        Direct,
        /// NVSwitches.
        Switch,
    }
}

/// How two GPUs are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuLink {
    /// The position of one GPU in the list.
    #[schemars(range(max = 255))]
    pub a: u32,
    /// The position of the other GPU, which is higher.
    #[schemars(range(max = 255))]
    pub b: u32,
    /// The way over PCI. BOARD: on one board. PIX: over at most one PCI bridge. PXB: over
    /// several bridges, not over the CPU's. PHB: over a host bridge of the CPU. NODE: between
    /// host bridges of one NUMA node. SYS: between NUMA nodes.
    pub path: PciPath,
    /// NVLinks that this pair can use; absent if none.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(max = 64))]
    pub nvlinks: u32,
    /// What the NVLinks lead through: Direct, or Switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<LinkVia>,
    /// What the pair can be expected to carry in one direction, in MB/s, for comparing
    /// pairs.
    #[schemars(range(max = 100_000_000))]
    pub megabytes_per_second: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

names! {
    /// The state of a port.
    PortState {
        /// Not known: no RDMA device, or another state.
        #[default]
        Unknown,
        /// Up.
        Active,
        /// Down.
        Down,
    }
}

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Nic {
    /// The name of its RDMA device, else of its first interface, else its address.
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub name: String,
    /// Its address on the PCI bus.
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f:.]*$"))]
    pub pci: String,
    /// Vendor and device on the PCI bus, as in 15b3:1021.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 9), regex(pattern = "^[0-9a-f:]*$"))]
    pub pci_id: String,
    /// Its NUMA node, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_048_575))]
    pub numa: Option<u32>,
    /// The root complex, as in pci0000:00.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub root: String,
    /// The PCI switch right above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), regex(pattern = "^[0-9a-f:.]*$"))]
    pub switch: Option<String>,
    /// Its network interfaces.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(max = 64), regex(pattern = "^[ -~]*$")),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub interfaces: Vec<String>,
    /// Whether it has an RDMA device.
    pub rdma: bool,
    /// InfiniBand or Ethernet, of its first RDMA port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[ -~]*$"))]
    pub link_layer: Option<String>,
    /// The state of its first RDMA port: Active, Down, Unknown.
    pub state: PortState,
    /// The rate of its first RDMA port, in Gbit/s; 0 if not known.
    #[schemars(range(max = 1_000_000))]
    pub gigabits_per_second: u32,
    /// The GUID of its RDMA device.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), regex(pattern = "^[0-9a-f:]*$"))]
    pub guid: Option<String>,
    /// The way to each GPU, in the order of the GPUs: PIX, PXB, PHB, NODE or SYS.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_GPUS), extend("x-kubernetes-list-type" = "atomic"))]
    pub gpu_paths: Vec<PciPath>,
}

/// The NVLink domain of a node that is a part of a larger machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NvlinkDomain {
    /// Cluster and clique, as in the node label nvidia.com/gpu.clique.
    #[schemars(length(max = 64), regex(pattern = "^[0-9a-f.-]*$"))]
    pub clique: String,
    /// The serial number of the chassis.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = "^[ -~]*$"))]
    pub chassis: Option<String>,
    /// The slot in the rack.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub slot: Option<u32>,
    /// The tray among compute trays.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub tray: Option<u32>,
    /// The host on the tray.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 255))]
    pub host: Option<u32>,
}
