//! `ClusterTopology`: the levels of the network between nodes, told by node labels.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{KEY, MAX_KEY};
use super::status::{Condition, MAX_CONDITIONS};
use crate::k8s::{ObjectMeta, nullable};

/// Most levels of one topology.
pub const MAX_LEVELS: usize = 8;
/// Most domains that a status lists.
pub const MAX_DOMAINS: usize = 512;

/// Types of conditions of a `ClusterTopology`.
pub mod topology_condition {
    /// Groups may ask for its levels.
    pub const ACCEPTED: &str = "Accepted";
}

/// Reasons of conditions of a `ClusterTopology`.
pub mod topology_reason {
    /// Groups may ask for its levels.
    pub const ACCEPTED: &str = "Accepted";
    /// There are more topologies than are read.
    pub const TOO_MANY: &str = "TooManyTopologies";
}

/// The levels of the network between nodes, told by node labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClusterTopology {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: ClusterTopologySpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: ClusterTopologyStatus,
}

impl ClusterTopology {
    /// The kind's name.
    pub const KIND: &'static str = "ClusterTopology";
    /// The kind's name in paths.
    pub const PLURAL: &'static str = "clustertopologies";
}

/// The levels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend(
    "required" = ["levels"],
    "x-kubernetes-validations" = [{
        "rule": "self.levels.all(a, self.levels.exists_one(b, a.nodeLabel == b.nodeLabel))",
        "fieldPath": ".levels",
        "reason": "FieldValueInvalid",
        "message": "every level needs a nodeLabel of its own",
    }],
))]
pub struct ClusterTopologySpec {
    /// The levels, widest first: block, rack, NVLink domain, host. A domain of a level
    /// is the set of nodes on which its label has one value, within a domain of the
    /// level before: two racks named r1 in two blocks are two domains.
    #[serde(deserialize_with = "nullable")]
    #[schemars(
        length(min = 1, max = MAX_LEVELS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level: a name for a node label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The level's name, as groups ask for it: rack.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The node label whose values are the level's domains, such as
    /// topology.kubernetes.io/zone, kubernetes.io/hostname or nvidia.com/gpu.clique.
    /// Nodes without it are in no domain of this level.
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub node_label: String,
}

/// The tree, as the controller saw it last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterTopologyStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The levels, widest first, counted.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_LEVELS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub levels: Vec<LevelStatus>,
    /// The domains, level by level, widest level first.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_DOMAINS), extend("x-kubernetes-list-type" = "atomic"))]
    pub domains: Vec<DomainStatus>,
    /// How many domains are not listed, because there are too many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains_omitted: Option<i32>,
    /// What is true of the topology. Accepted: groups may ask for its levels.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_CONDITIONS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// One level, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct LevelStatus {
    /// The level's name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The node label whose values are its domains.
    #[schemars(length(max = MAX_KEY))]
    pub node_label: String,
    /// How many domains it has.
    pub domains: i32,
    /// How many nodes lack the label, or that of a wider level: gangs that require this
    /// level never use them.
    pub nodes_without_label: i32,
}

/// One domain, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["level", "name"]))]
pub struct DomainStatus {
    /// The level's name.
    #[schemars(length(max = 63))]
    pub level: String,
    /// The label's value.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The domains it is in, as values of the wider levels' labels from the widest
    /// down, joined by slashes. Empty at the widest level.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub parent: String,
    /// How many nodes it has.
    pub nodes: i32,
    /// How many GPUs its nodes offer.
    pub gpus: i64,
    /// How many of them a pod could have: none has asked for them, and their node takes
    /// pods.
    pub free_gpus: i64,
}
