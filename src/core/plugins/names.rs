//! Registry names, spelled as upstream.

/// Gates.
pub const SCHEDULING_GATES: &str = "SchedulingGates";
/// Queue order.
pub const PRIORITY_SORT: &str = "PrioritySort";
/// `spec.nodeName`.
pub const NODE_NAME: &str = "NodeName";
/// Cordoned nodes.
pub const NODE_UNSCHEDULABLE: &str = "NodeUnschedulable";
/// Taints.
pub const TAINT_TOLERATION: &str = "TaintToleration";
/// Node affinity and selector.
pub const NODE_AFFINITY: &str = "NodeAffinity";
/// What the kubelet admits; Muster's own, off by default.
pub const NODE_NUMA_FIT: &str = "NodeNumaFit";
/// GPUs that talk fast to each other; Muster's own, off by default.
pub const GPU_LINKS: &str = "GpuLinks";
/// Host ports.
pub const NODE_PORTS: &str = "NodePorts";
/// Resources.
pub const NODE_RESOURCES_FIT: &str = "NodeResourcesFit";
/// Disks and claims that cannot be shared.
pub const VOLUME_RESTRICTIONS: &str = "VolumeRestrictions";
/// Volumes per node and CSI driver.
pub const NODE_VOLUME_LIMITS: &str = "NodeVolumeLimits";
/// Claims and the volumes for them.
pub const VOLUME_BINDING: &str = "VolumeBinding";
/// Zones of volumes.
pub const VOLUME_ZONE: &str = "VolumeZone";
/// Features of the kubelet.
pub const NODE_DECLARED_FEATURES: &str = "NodeDeclaredFeatures";
/// Spreading over topology domains.
pub const POD_TOPOLOGY_SPREAD: &str = "PodTopologySpread";
/// Affinity between pods.
pub const INTER_POD_AFFINITY: &str = "InterPodAffinity";
/// Room by eviction.
pub const DEFAULT_PREEMPTION: &str = "DefaultPreemption";
/// Balance between resources.
pub const NODE_RESOURCES_BALANCED_ALLOCATION: &str = "NodeResourcesBalancedAllocation";
/// Images already there.
pub const IMAGE_LOCALITY: &str = "ImageLocality";
/// Binding.
pub const DEFAULT_BINDER: &str = "DefaultBinder";
/// Approval at Permit; Muster's own, off by default.
pub const EXTERNAL_APPROVAL: &str = "ExternalApproval";
