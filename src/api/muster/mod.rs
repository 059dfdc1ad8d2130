//! Muster's own kinds, `muster.dev/v1alpha1`.
//!
//! Owns their wire form, the schema the API server checks them by (types, limits,
//! rules and the text of `kubectl explain` all come from the Rust types), and the
//! names of labels, conditions and reasons. Must never hold a client, a clock or
//! a decision.
//!
//! The doc comments of fields in this module are read by users of `kubectl
//! explain`: they speak of the API, not of Rust.

mod cluster_topology;
mod crd;
pub mod node_topology;
mod pacing_policy;
mod pod_group;
mod preemption_policy;
mod scheduling_policy;
mod schema;
mod status;
mod topology;

pub use cluster_topology::{
    ClusterTopology, ClusterTopologySpec, ClusterTopologyStatus, DomainStatus, LevelStatus,
    MAX_DOMAINS, MAX_LEVELS, TopologyLevel, topology_condition, topology_reason,
};
pub use crd::crds;
pub use node_topology::NodeTopology;
pub use pacing_policy::{MAX_BINDS_PER_SECOND, MAX_STARTING_PODS, PacingPolicy};
pub use pod_group::{
    Disruption, DisruptionMode, HalfBound, MAX_MEMBERS, MAX_ROLES, MAX_SECONDS, PodGroup,
    PodGroupSpec, Reservation, Role,
};
pub use preemption_policy::{
    MAX_PRIORITY_GAP, MAX_VICTIMS_PER_MINUTE, PreemptionMode, PreemptionPolicy,
};
pub use scheduling_policy::{
    GangDefaults, MAX_POLICY_PRIORITY, MAX_WEIGHT, MAX_WEIGHTS, PlacementPolicy, PlacementStrategy,
    SchedulingPolicy, SchedulingPolicySpec, SchedulingPolicyStatus, ScoreWeight, TopologyDefault,
    policy_condition, policy_reason,
};
pub use status::{
    Condition, Domain, MAX_CONDITIONS, MAX_MESSAGE, MemberCounts, Phase, PodGroupStatus,
    RoleStatus, condition, reason,
};
pub use topology::{MAX_SEGMENTS, Segment, TopologyRequest};

/// API group of Muster's kinds.
pub const GROUP: &str = "muster.dev";
/// The version of the group that is served and stored.
pub const VERSION: &str = "v1alpha1";

/// Longest that a pod is waited for that was asked to save its work, in seconds.
pub const MAX_CHECKPOINT_SECONDS: i64 = 300;

/// Names of labels.
pub mod labels {
    /// On a pod: the `PodGroup` of its namespace that it is a member of.
    pub const POD_GROUP: &str = "muster.dev/pod-group";
    /// Where a topology names a node label: the NVLink domain that a node is in, if that is
    /// larger than a node. Nodes need not have such a label: its value is what the node's agent
    /// reports, cluster UUID and clique joined by a dot, or else that of [`GPU_CLIQUE`].
    pub const NVLINK_DOMAIN: &str = "muster.dev/nvlink-domain";
    /// On a node: the same, as NVIDIA's GPU Feature Discovery says it.
    pub const GPU_CLIQUE: &str = "nvidia.com/gpu.clique";
    /// On a pod: its rank, unless the group names another label.
    pub const DEFAULT_RANK: &str = "batch.kubernetes.io/job-completion-index";
}

/// Names of annotations.
pub mod annotations {
    /// On a pod: when it last saved its work, as an RFC 3339 time. What it has done since
    /// is lost if it has to go.
    pub const LAST_CHECKPOINT: &str = "muster.dev/last-checkpoint";
    /// On a pod: before it is pushed out it wants to be asked to save its work, and has so
    /// many seconds for that, at most [`MAX_CHECKPOINT_SECONDS`](super::MAX_CHECKPOINT_SECONDS).
    pub const CHECKPOINT_BEFORE_EVICTION: &str = "muster.dev/checkpoint-before-eviction";
    /// On a pod: when it was asked to save its work, as an RFC 3339 time. It has done so when
    /// [`LAST_CHECKPOINT`] is not older.
    pub const CHECKPOINT_REQUESTED: &str = "muster.dev/checkpoint-requested";
    /// On a pod: the devices that its scheduler expects the kubelet to choose, as a JSON
    /// object of lists of ids by resource: `{"nvidia.com/gpu": ["GPU-…"]}`. The node agent
    /// compares it with what the kubelet chose.
    pub const PREDICTED_DEVICES: &str = "muster.dev/predicted-devices";
}
