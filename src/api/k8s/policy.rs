//! Disruption budgets and priority classes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{LabelSelector, ObjectMeta, Time, nullable};

/// How many pods of a kind may be disrupted at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudget {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodDisruptionBudgetSpec,
    /// What the disruption controller has worked out.
    #[serde(deserialize_with = "nullable")]
    pub status: PodDisruptionBudgetStatus,
}

/// The part of a budget's spec that the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodDisruptionBudgetSpec {
    /// Which pods; absent or empty selects nothing for preemption.
    pub selector: Option<LabelSelector>,
}

/// The part of a budget's status that the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// Evictions that are allowed now.
    #[serde(deserialize_with = "nullable")]
    pub disruptions_allowed: i32,
    /// Pods whose eviction was accepted and whose deletion was not seen yet.
    #[serde(deserialize_with = "nullable")]
    pub disrupted_pods: BTreeMap<String, Option<Time>>,
}

/// A named priority.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The priority.
    #[serde(deserialize_with = "nullable")]
    pub value: i32,
    /// Whether pods that name no class have it.
    #[serde(deserialize_with = "nullable")]
    pub global_default: bool,
    /// `PreemptLowerPriority` or `Never`.
    pub preemption_policy: Option<String>,
}
