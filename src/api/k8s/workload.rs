//! Namespaces, and the objects whose selectors say which pods belong together.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LabelSelector, ObjectMeta, nullable};

/// A namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Metadata.
    pub metadata: ObjectMeta,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: EqualitySpec,
}

/// A replication controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReplicationController {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: EqualitySpec,
}

/// A spec that selects by equal labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EqualitySpec {
    /// Labels; absent selects nothing.
    pub selector: Option<BTreeMap<String, String>>,
}

/// A replica set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: SelectorSpec,
}

/// A stateful set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: SelectorSpec,
}

/// A spec that selects by a label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SelectorSpec {
    /// The selector; absent selects nothing.
    pub selector: Option<LabelSelector>,
}
