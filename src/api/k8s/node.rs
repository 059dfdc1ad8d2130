//! Nodes.

use serde::Deserialize;

use super::{ObjectMeta, ResourceList, nullable};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What its owner wants of it.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    /// What it reports.
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

/// The node spec fields the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    #[serde(deserialize_with = "nullable")]
    pub unschedulable: bool,
    /// Taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
}

/// A taint.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value; may be empty.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The node status fields the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What pods may use.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: ResourceList,
    /// Container images on the node.
    #[serde(deserialize_with = "nullable")]
    pub images: Vec<ContainerImage>,
    /// Features the kubelet declares.
    #[serde(deserialize_with = "nullable")]
    pub declared_features: Vec<String>,
}

/// A container image on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerImage {
    /// Names by which the image is known.
    #[serde(deserialize_with = "nullable")]
    pub names: Vec<String>,
    /// Size in bytes.
    #[serde(deserialize_with = "nullable")]
    pub size_bytes: i64,
}
