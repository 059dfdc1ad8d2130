//! Messages of the kubelet's podresources API, package `v1`.
//!
//! Owns their wire form, written by hand after `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`
//! (v1.37), so that neither `protoc` nor a build script is needed. Must never give a tag another
//! meaning. Fields that nobody reads are left out: a decoder skips what it does not know.

use prost::Message;

/// No field: asks for everything.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Empty {}

/// Answer of `List`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListResponse {
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

/// Answer of `GetAllocatableResources`: healthy devices, CPUs and memory that pods may get.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AllocatableResponse {
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<ContainerDevices>,
    /// Empty if the CPU manager's policy is none.
    #[prost(int64, repeated, tag = "2")]
    pub cpu_ids: Vec<i64>,
    /// Empty if the memory manager's policy is None.
    #[prost(message, repeated, tag = "3")]
    pub memory: Vec<ContainerMemory>,
}

/// What one pod holds. There is no UID.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PodResources {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
    /// Exclusive CPUs of the pod as a whole, from v1.37 on.
    #[prost(int64, repeated, tag = "4")]
    pub cpu_ids: Vec<i64>,
    /// Memory of the pod as a whole, from v1.37 on.
    #[prost(message, repeated, tag = "5")]
    pub memory: Vec<ContainerMemory>,
}

/// What one container holds.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerResources {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    /// Exclusive CPUs only.
    #[prost(int64, repeated, tag = "3")]
    pub cpu_ids: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    pub memory: Vec<ContainerMemory>,
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource; one entry per device and NUMA node.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// Memory or hugepages from a set of NUMA nodes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ContainerMemory {
    /// `memory`, `hugepages-2Mi`, …
    #[prost(string, tag = "1")]
    pub memory_type: String,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    #[prost(message, optional, tag = "3")]
    pub topology: Option<TopologyInfo>,
}

/// NUMA nodes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TopologyInfo {
    #[prost(message, repeated, tag = "1")]
    pub nodes: Vec<NumaNode>,
}

/// A NUMA node; node 0 is an empty message.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NumaNode {
    #[prost(int64, tag = "1")]
    pub id: i64,
}

/// Devices that a resource claim brought.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DynamicResource {
    #[prost(string, tag = "2")]
    pub claim_name: String,
    #[prost(string, tag = "3")]
    pub claim_namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// One device of a claim.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ClaimResource {
    #[prost(string, tag = "2")]
    pub driver_name: String,
    #[prost(string, tag = "3")]
    pub pool_name: String,
    #[prost(string, tag = "4")]
    pub device_name: String,
}
