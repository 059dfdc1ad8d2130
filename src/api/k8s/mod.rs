//! Pruned, read-only views of Kubernetes objects.
//!
//! Every list and map accepts `null` as empty, as Go's decoder does, and every
//! type ignores fields it does not know. A field that is present with the wrong
//! type is an error that names it: the caller skips, logs and counts the object.

mod meta;
mod node;
mod node_resource_topology;
mod pod;
mod pod_group;
mod policy;
mod quantity;
mod selector;
mod storage;
mod time;
mod volume;
mod workload;

pub use meta::{ObjectMeta, OwnerReference};
pub use node::{ContainerImage, Node, NodeSpec, NodeStatus, Taint};
pub use node_resource_topology::{
    NodeResourceTopology, Zone, ZoneAttribute, ZoneCost, ZoneResource,
};
pub use pod::{
    Affinity, Container, ContainerPort, ContainerReason, ContainerState, ContainerStatus,
    EphemeralContainer, NodeAffinity, Pod, PodAffinity, PodAffinityTerm, PodCondition,
    PodSchedulingGate, PodSpec, PodStatus, ResourceRequirements, ResourceStatus, RestartRule,
    SchedulingGroup, Toleration, TopologySpreadConstraint, WeightedPodAffinityTerm,
};
pub use pod_group::{
    CoschedulingPodGroup, CoschedulingPodGroupSpec, CoschedulingPodGroupStatus, NativeGangPolicy,
    NativePodGroup, NativePodGroupSpec, NativePodGroupStatus, NativeSchedulingConstraints,
    NativeSchedulingPolicy, NativeTopology,
};
pub use policy::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus, PriorityClass,
};
pub use quantity::{ParseQuantityError, Quantity};
pub use selector::{
    LabelSelector, LabelSelectorRequirement, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PreferredSchedulingTerm,
};
pub use storage::{
    AttachedVolume, CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec,
    CSIStorageCapacity, StorageClass, TopologySelectorRequirement, TopologySelectorTerm,
    VolumeAttachment, VolumeAttachmentSpec, VolumeNodeResources,
};
pub use time::Time;
pub use volume::{
    AzureDisk, ClaimRef, ClaimVolume, CsiSource, CsiVolume, DiskId, GceDisk, ImageVolume, Iscsi,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec,
    Phase, Present, Rbd, Volume, VolumeNodeAffinity,
};
pub use workload::{
    EqualitySpec, Namespace, ReplicaSet, ReplicationController, SelectorSpec, Service, StatefulSet,
};

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// Annotations of Kubernetes that plugins read.
pub mod annotations {
    pub use super::meta::{
        BETA_STORAGE_CLASS, BIND_COMPLETED, BOUND_BY_CONTROLLER, MIGRATED_PLUGINS,
        MINIMUM_PREEMPTABLE_PRIORITY, SELECTED_NODE, TOLERATION_SECONDS,
    };
}

/// A resource list: resource name to quantity.
pub type ResourceList = BTreeMap<String, Quantity>;

/// Decodes `null` as the default value.
pub(crate) fn nullable<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(d)?.unwrap_or_default())
}
