//! Pruned, read-only views of Kubernetes objects.
//!
//! Every list and map accepts `null` as empty, as Go's decoder does, and every
//! type ignores fields it does not know. A field that is present with the wrong
//! type is an error that names it: the caller skips, logs and counts the object.

mod meta;
mod node;
mod pod;
mod quantity;
mod selector;
mod time;
mod workload;

pub use meta::{ObjectMeta, OwnerReference};
pub use node::{ContainerImage, Node, NodeSpec, NodeStatus, Taint};
pub use pod::{
    Affinity, Container, ContainerPort, ContainerStatus, ImageVolume, NodeAffinity, Pod,
    PodAffinity, PodAffinityTerm, PodCondition, PodSchedulingGate, PodSpec, PodStatus,
    ResourceRequirements, ResourceStatus, SchedulingGroup, Toleration, TopologySpreadConstraint,
    Volume, WeightedPodAffinityTerm,
};
pub use quantity::{ParseQuantityError, Quantity};
pub use selector::{
    LabelSelector, LabelSelectorRequirement, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PreferredSchedulingTerm,
};
pub use time::Time;
pub use workload::{
    EqualitySpec, Namespace, ReplicaSet, ReplicationController, SelectorSpec, Service, StatefulSet,
};

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

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
