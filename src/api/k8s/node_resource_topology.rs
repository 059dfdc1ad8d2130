//! What a node is inside, as other agents report it.

use serde::Deserialize;

use super::{ObjectMeta, Quantity, nullable};

/// `topology.node.k8s.io/v1alpha2` NodeResourceTopology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResourceTopology {
    /// Metadata; the name is the node's.
    pub metadata: ObjectMeta,
    /// The policies of the Topology Manager, as agents wrote them before there were attributes.
    #[serde(deserialize_with = "nullable")]
    pub topology_policies: Vec<String>,
    /// What is true of the node as a whole.
    #[serde(deserialize_with = "nullable")]
    pub attributes: Vec<ZoneAttribute>,
    /// Parts of the node.
    #[serde(deserialize_with = "nullable")]
    pub zones: Vec<Zone>,
}

impl NodeResourceTopology {
    /// API group.
    pub const GROUP: &'static str = "topology.node.k8s.io";
    /// API version.
    pub const VERSION: &'static str = "v1alpha2";
    /// The kind's name in paths.
    pub const PLURAL: &'static str = "noderesourcetopologies";

    /// The value of an attribute.
    #[must_use]
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|own| own.name == name).map(|own| own.value.as_str())
    }
}

/// A name and a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ZoneAttribute {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Value.
    #[serde(deserialize_with = "nullable")]
    pub value: String,
}

/// A part of a node; a NUMA node if its type is Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Zone {
    /// Its name: `node-0`.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// What it is.
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub kind: String,
    /// Distances to other zones.
    #[serde(deserialize_with = "nullable")]
    pub costs: Vec<ZoneCost>,
    /// What it has.
    #[serde(deserialize_with = "nullable")]
    pub resources: Vec<ZoneResource>,
}

/// The distance to another zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ZoneCost {
    /// The other zone.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// The distance.
    #[serde(deserialize_with = "nullable")]
    pub value: i64,
}

/// What a zone has of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ZoneResource {
    /// The resource.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// What is built in.
    #[serde(deserialize_with = "nullable")]
    pub capacity: Quantity,
    /// What pods may have.
    #[serde(deserialize_with = "nullable")]
    pub allocatable: Quantity,
    /// What is free.
    #[serde(deserialize_with = "nullable")]
    pub available: Quantity,
}
