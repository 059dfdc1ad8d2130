//! Pod groups of others: Kubernetes' own, and those of scheduler-plugins.

use serde::{Deserialize, Serialize};

use super::{ObjectMeta, Time, nullable};
use crate::muster::Condition;

/// `scheduling.k8s.io` PodGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NativePodGroup {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: NativePodGroupSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: NativePodGroupStatus,
}

impl NativePodGroup {
    /// The condition that says that the gang was scheduled; once true it stays so.
    pub const INITIALLY_SCHEDULED: &'static str = "PodGroupInitiallyScheduled";
}

/// The spec fields that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativePodGroupSpec {
    /// Whether its pods go together.
    #[serde(deserialize_with = "nullable")]
    pub scheduling_policy: NativeSchedulingPolicy,
    /// Where they go.
    #[serde(deserialize_with = "nullable")]
    pub scheduling_constraints: NativeSchedulingConstraints,
    /// The class its priority comes from.
    #[serde(deserialize_with = "nullable")]
    pub priority_class_name: String,
    /// Its priority.
    pub priority: Option<i32>,
}

/// Whether pods go together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NativeSchedulingPolicy {
    /// They do; without it each goes alone.
    pub gang: Option<NativeGangPolicy>,
}

/// How many go together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NativeGangPolicy {
    /// Fewest pods with which it runs.
    #[serde(deserialize_with = "nullable")]
    pub min_count: i32,
}

/// Where pods go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NativeSchedulingConstraints {
    /// All within one domain of this label.
    #[serde(deserialize_with = "nullable")]
    pub topology: Vec<NativeTopology>,
}

/// A label whose values are domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NativeTopology {
    /// The node label.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
}

/// The status fields that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NativePodGroupStatus {
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// `scheduling.x-k8s.io/v1alpha1` PodGroup, of scheduler-plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CoschedulingPodGroup {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: CoschedulingPodGroupSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: CoschedulingPodGroupStatus,
}

impl CoschedulingPodGroup {
    /// On a pod: the group it is a member of.
    pub const LABEL: &'static str = "scheduling.x-k8s.io/pod-group";
}

/// The spec fields that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoschedulingPodGroupSpec {
    /// Fewest members with which it runs.
    #[serde(deserialize_with = "nullable")]
    pub min_member: i32,
    /// How long members wait for the rest.
    pub schedule_timeout_seconds: Option<i32>,
}

/// What its controller says; who occupies it is left to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoschedulingPodGroupStatus {
    /// `Pending`, `Scheduling`, `Scheduled`, `Running`, `Unknown`, `Finished` or `Failed`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
    /// Members that run.
    #[serde(deserialize_with = "nullable")]
    pub running: i32,
    /// Members that have succeeded.
    #[serde(deserialize_with = "nullable")]
    pub succeeded: i32,
    /// Members that have failed.
    #[serde(deserialize_with = "nullable")]
    pub failed: i32,
    /// When the minimum existed.
    pub schedule_start_time: Option<Time>,
}
