//! The `storage.k8s.io` kinds.

use serde::Deserialize;

use super::{LabelSelector, ObjectMeta, Quantity, nullable};

/// A storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Who makes its volumes.
    #[serde(deserialize_with = "nullable")]
    pub provisioner: String,
    /// `Immediate` or `WaitForFirstConsumer`.
    pub volume_binding_mode: Option<String>,
    /// Where volumes may be made, ORed; none is everywhere.
    #[serde(deserialize_with = "nullable")]
    pub allowed_topologies: Vec<TopologySelectorTerm>,
}

/// Requirements on node labels, ANDed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySelectorTerm {
    /// Requirements.
    #[serde(deserialize_with = "nullable")]
    pub match_label_expressions: Vec<TopologySelectorRequirement>,
}

/// A label and the values it may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TopologySelectorRequirement {
    /// Label.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Values.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

/// What CSI drivers registered on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CSINode {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The drivers.
    #[serde(deserialize_with = "nullable")]
    pub spec: CSINodeSpec,
}

/// The drivers of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CSINodeSpec {
    /// The drivers.
    #[serde(deserialize_with = "nullable")]
    pub drivers: Vec<CSINodeDriver>,
}

/// One driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CSINodeDriver {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// What the node can take.
    pub allocatable: Option<VolumeNodeResources>,
}

/// What a node can take of a driver's volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeNodeResources {
    /// Most volumes.
    pub count: Option<i32>,
}

/// A CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CSIDriver {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it can do.
    #[serde(deserialize_with = "nullable")]
    pub spec: CSIDriverSpec,
}

/// The fields of a CSI driver that the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CSIDriverSpec {
    /// Whether it publishes how much room it has.
    pub storage_capacity: Option<bool>,
    /// Whether pods must stay off nodes without the driver.
    pub prevent_pod_scheduling_if_missing: Option<bool>,
}

/// How much room a driver has for a class in a topology segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CSIStorageCapacity {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// Nodes from which it can be reached; absent is none.
    pub node_topology: Option<LabelSelector>,
    /// The class it is about.
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    /// Room left.
    pub capacity: Option<Quantity>,
    /// The largest volume possible.
    pub maximum_volume_size: Option<Quantity>,
}

/// A volume that is, or shall be, attached to a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeAttachment {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is attached where.
    #[serde(deserialize_with = "nullable")]
    pub spec: VolumeAttachmentSpec,
}

/// What is attached where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachmentSpec {
    /// The driver.
    #[serde(deserialize_with = "nullable")]
    pub attacher: String,
    /// The node.
    #[serde(deserialize_with = "nullable")]
    pub node_name: String,
    /// The volume.
    #[serde(deserialize_with = "nullable")]
    pub source: AttachedVolume,
}

/// Which volume is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachedVolume {
    /// Name of the persistent volume, if it is one.
    pub persistent_volume_name: Option<String>,
}
