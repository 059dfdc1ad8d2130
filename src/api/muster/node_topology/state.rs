//! What of a node is in use, and what is wrong with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hardware::{MAX_COUNT, MAX_CPU_LIST, MAX_GPUS, MAX_MIG_DEVICES, MAX_NUMA_NODES};
use crate::k8s::{Time, nullable};
use crate::muster::schema::{names, time};
use crate::muster::status::{Condition, MAX_CONDITIONS};

/// Most devices of all resources together. More are not reported.
pub const MAX_DEVICES: usize = 1024;
/// Most pods that hold something. More are not reported.
pub const MAX_HOLDERS: usize = 512;
/// Most blocks of memory that a pod holds. More are not reported.
pub const MAX_HELD_BLOCKS: usize = 64;

/// What is in use, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NodeTopologyStatus {
    /// Rises with each change, from when the agent was started.
    #[schemars(range(max = MAX_COUNT))]
    pub sequence: u64,
    /// When the agent was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub started_at: Option<Time>,
    /// When this was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub observed_at: Option<Time>,
    /// The pods that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set: Option<PodSet>,
    /// What is true of the node. HardwareRead: the kernel's files were read. NvmlAvailable:
    /// NVIDIA's management library answers. GpusHealthy: no GPU is lost or unhealthy.
    /// FabricReady: every GPU is whole on its NVLink fabric. PodResourcesAvailable: the
    /// kubelet's pod resources API answers. KubeletConfigKnown: its settings were read, not
    /// inferred. PredictionsHold: predicted placements were what the kubelet did.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_CONDITIONS), extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// What is free on each NUMA node.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_NUMA_NODES), extend("x-kubernetes-list-type" = "atomic"))]
    pub numa: Vec<NumaState>,
    /// Devices as the kubelet sees them.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_DEVICES), extend("x-kubernetes-list-type" = "atomic"))]
    pub devices: Vec<Device>,
    /// Pods that have CPUs, memory or devices to themselves, and what they have beside devices.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_HOLDERS), extend("x-kubernetes-list-type" = "atomic"))]
    pub pods: Vec<PodHolding>,
    /// GPUs as their driver sees them, in the order of the hardware's list.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_GPUS), extend("x-kubernetes-list-type" = "atomic"))]
    pub gpus: Vec<GpuState>,
    /// How often predicted placements were what the kubelet did, since the agent was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predictions: Option<Predictions>,
}

impl NodeTopologyStatus {
    /// The condition of a type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// Whether a condition is there and true.
    #[must_use]
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }
}

/// A set of pods: who has the same set has seen the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    /// A hash over the sorted UIDs of pods that hold CPUs, memory or devices alone.
    #[schemars(length(max = 64))]
    pub hash: String,
    /// How many there are.
    pub count: u32,
}

impl PodSet {
    /// The set of these UIDs.
    #[must_use]
    pub fn of<'a>(uids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut uids: Vec<&str> = uids.into_iter().collect();
        uids.sort_unstable();
        uids.dedup();
        let count = u32::try_from(uids.len()).unwrap_or(u32::MAX);
        // No UID has a newline in it, so two sets never have one text.
        Self { hash: super::digest(uids.join("\n").as_bytes()), count }
    }
}

/// What is free on a NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NumaState {
    /// Its number.
    #[schemars(range(max = 1_048_575))]
    pub id: u32,
    /// CPUs that may still be given to a container alone.
    #[schemars(length(max = MAX_CPU_LIST))]
    pub cpus_free: String,
    /// Memory that the Memory Manager may still give; absent if it does not give any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_COUNT))]
    pub memory_free_bytes: Option<u64>,
    /// Memory that it may give when no pod has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = MAX_COUNT))]
    pub memory_allocatable_bytes: Option<u64>,
    /// Hugepages that it may still give, by size.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub hugepages_free: Vec<FreeHugepages>,
    /// The NUMA nodes that the Memory Manager has joined with this one for a pod.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NUMA_NODES),
        inner(range(max = 1_048_575)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub memory_group: Vec<u32>,
    /// How many containers have memory of this NUMA node; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_assignments: Option<u32>,
}

/// Hugepages of one size that are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FreeHugepages {
    /// The size of a page.
    #[schemars(range(max = MAX_COUNT))]
    pub page_bytes: u64,
    /// How much is free.
    #[schemars(range(max = MAX_COUNT))]
    pub free_bytes: u64,
    /// How much is free when no pod has any.
    #[schemars(range(max = MAX_COUNT))]
    pub allocatable_bytes: u64,
}

names! {
    /// What a device is to the kubelet.
    DeviceState {
        /// The kubelet does not say.
        #[default]
        Unknown,
        /// It may be given to a pod.
        Free,
        /// A pod has it.
        Allocated,
        /// Its plugin said that it is broken, or does not list it any more.
        Unhealthy,
    }
}

names! {
    /// How a device came to its pod.
    DeviceVia {
        /// By a device plugin.
        #[default]
        DevicePlugin,
        /// By a claim (DRA).
        Claim,
    }
}

/// A device as the kubelet sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// The resource, as in nvidia.com/gpu; of a claim, the driver.
    #[schemars(length(max = 316))]
    pub resource: String,
    /// Its id: of a device plugin's, the plugin's; of a claim's, pool/device.
    #[schemars(length(max = 320))]
    pub id: String,
    /// Its NUMA nodes, if the plugin names any.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NUMA_NODES),
        inner(range(max = 1_048_575)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub numa: Vec<u32>,
    /// Free: it may be given to a pod. Allocated: a pod has it. Unhealthy: its plugin said that
    /// it is broken, or does not list it any more. Unknown: the kubelet does not say.
    pub state: DeviceState,
    /// DevicePlugin, or Claim.
    pub via: DeviceVia,
    /// The pod that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// The container that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub container: Option<String>,
}

/// A pod of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRef {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
}

/// A pod that has CPUs, memory or devices to itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodHolding {
    /// Its namespace.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its UID, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
    /// CPUs that it alone has, as in 2-5,34-37.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = MAX_CPU_LIST), regex(pattern = "^[0-9,-]*$"))]
    pub cpus: String,
    /// Memory that the Memory Manager gave it.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_HELD_BLOCKS), extend("x-kubernetes-list-type" = "atomic"))]
    pub memory: Vec<HeldMemory>,
}

/// A block of memory that a pod has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HeldMemory {
    /// The resource: memory, or hugepages of a size.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9-]*$"))]
    pub resource: String,
    /// The NUMA nodes that it is from, together.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_NUMA_NODES),
        inner(range(max = 1_048_575)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub numa: Vec<u32>,
    /// How much.
    #[schemars(range(max = MAX_COUNT))]
    pub bytes: u64,
}

names! {
    /// How a GPU is.
    GpuHealth {
        /// Its driver does not say.
        #[default]
        Unknown,
        /// All is well.
        Healthy,
        /// It works with less than it has: links are down.
        Degraded,
        /// Not to be used.
        Unhealthy,
        /// It does not answer, or is on the bus and not reported.
        Lost,
    }
}

names! {
    /// What helps.
    Recovery {
        /// Nothing is needed.
        #[default]
        None,
        /// A reset of the GPU.
        ResetGpu,
        /// A reboot of the node.
        RebootNode,
        /// Ending work that talks to other GPUs.
        DrainPeerToPeer,
        /// Draining the GPU, then a reset.
        DrainAndReset,
        /// Recovering the IMEX domain.
        RecoverImexDomain,
    }
}

names! {
    /// Whether a GPU is at work.
    Activity {
        /// Not known.
        #[default]
        Unknown,
        /// It has done nothing for a while.
        Idle,
        /// It is at work.
        Busy,
    }
}

/// A GPU as its driver sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GpuState {
    /// Its UUID; absent if no driver reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 96))]
    pub uuid: Option<String>,
    /// Its address on the PCI bus.
    #[schemars(length(max = 16))]
    pub pci: String,
    /// Healthy; Degraded: it works with less than it has, as links are down; Unhealthy: not to
    /// be used; Lost: it does not answer, or is on the bus and not reported; Unknown.
    pub health: GpuHealth,
    /// What is wrong, in words such as XID79, each with its time where it has one.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 16),
        inner(length(max = 128)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub reasons: Vec<String>,
    /// What helps: None, ResetGpu, RebootNode, DrainPeerToPeer, DrainAndReset,
    /// RecoverImexDomain.
    pub recovery: Recovery,
    /// MIG devices of this GPU that are not to be used although the GPU is.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_MIG_DEVICES),
        inner(length(max = 96)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub unhealthy_mig_devices: Vec<String>,
    /// Idle: it has done nothing for a while. Busy: it is at work. Unknown.
    pub activity: Activity,
    /// Processes that compute on it, whoever started them; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// Predicted placements, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Predictions {
    /// Pods that the kubelet placed as predicted.
    #[schemars(range(max = MAX_COUNT))]
    pub held: u64,
    /// Pods that it placed otherwise.
    #[schemars(range(max = MAX_COUNT))]
    pub missed: u64,
}
