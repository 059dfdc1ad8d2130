//! `PodGroup`: pods that start together or not at all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{names, selector};
use super::status::PodGroupStatus;
use super::topology::TopologyRequest;
use crate::k8s::{LabelSelector, ObjectMeta, nullable};

/// Most members that a minimum may ask for. Also in the rules below.
pub const MAX_MEMBERS: i32 = 10_000;
/// Most roles of a group.
pub const MAX_ROLES: usize = 16;
/// Longest time a field may ask for: a week.
pub const MAX_SECONDS: i32 = 604_800;

/// Pods that start together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodGroup {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PodGroupSpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: PodGroupStatus,
}

impl PodGroup {
    /// The kind's name.
    pub const KIND: &'static str = "PodGroup";
    /// The kind's name in paths.
    pub const PLURAL: &'static str = "podgroups";
}

/// What the group asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.minMember) || (has(self.roles) && self.roles.exists(r, r.minMember > 0))",
        "fieldPath": ".minMember",
        "reason": "FieldValueRequired",
        "message": "must be set unless a role has a minMember above 0",
    },
    {
        "rule": "!has(self.minMember) || !has(self.roles) || self.roles.map(r, r.minMember).sum() <= self.minMember",
        "fieldPath": ".minMember",
        "reason": "FieldValueInvalid",
        "message": "must be at least the sum of the roles' minMember",
    },
    {
        "rule": "has(self.minMember) || !has(self.roles) || self.roles.map(r, r.minMember).sum() <= 10000",
        "fieldPath": ".roles",
        "reason": "FieldValueInvalid",
        "message": "the sum of minMember must be at most 10000",
    },
    {
        "rule": "self.reservation != 'Accumulate' || has(self.scheduleTimeoutSeconds)",
        "fieldPath": ".scheduleTimeoutSeconds",
        "reason": "FieldValueRequired",
        "message": "must be set when reservation is Accumulate: room must not be held for ever",
    },
]))]
pub struct PodGroupSpec {
    /// How many members must be placed together: none is bound before there is room
    /// for all of them. Members that have succeeded count. Members beyond it join one
    /// by one, when there is room. May be left out if there are roles: then it is the
    /// sum of their minimums. It may be changed at any time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub min_member: Option<i32>,
    /// Kinds of members, each with a minimum of its own, for jobs of several kinds of
    /// pods: a launcher and its workers, prefill and decode. All minimums must be
    /// reached at once. A member belongs to the first role whose selector matches it;
    /// a member that no selector matches counts toward the group's minimum only.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_ROLES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub roles: Vec<Role>,
    /// How long room may be held before the minimum is bound: the deadline of waits
    /// at Permit, and of a gang of which only a part is bound. After it all that was
    /// reserved is given up and the gang is tried again later. Without it: what the
    /// SchedulingPolicy says, else 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub schedule_timeout_seconds: Option<i32>,
    /// How long members may take from being bound to running. After it the condition
    /// Started is False with reason StartTimeout, and names the member and what keeps
    /// it. Nothing is stopped. Without it: what the SchedulingPolicy says, else no
    /// limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub start_timeout_seconds: Option<i32>,
    /// How long the gang may be passed over by smaller work before room is held for
    /// it. Without it: what the SchedulingPolicy says, else no room is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub starvation_seconds: Option<i32>,
    /// What happens to room that was found while there is not enough for the minimum.
    /// Atomic: nothing is kept, the gang is tried whole. Accumulate: what was found is
    /// kept until the rest is there or scheduleTimeoutSeconds have passed, for clusters
    /// where room comes bit by bit; only the first gang in order may do so.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("x-default" = "Atomic"))]
    pub reservation: Reservation,
    /// What to do with a gang of which only a part is bound when its deadline has
    /// passed, as after a crash or the loss of nodes in that moment. Release: the bound
    /// members are evicted, so that they hold nothing. Wait: they stay, and the rest is
    /// tried until there is room. Without it: what the SchedulingPolicy says, else
    /// Release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_half_bound: Option<HalfBound>,
    /// The PriorityClass that decides the gang's place in the queue and whom it may
    /// preempt. Without it: the highest priority of its members.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
    )]
    pub priority_class_name: Option<String>,
    /// Where the members shall be, relative to each other: in one rack, one NVLink
    /// domain. Levels are named as in a ClusterTopology (rack), or by a node label
    /// (topology.kubernetes.io/zone). It may be changed only while no member is placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyRequest>,
    /// How the gang may be disrupted, by preemption or by a drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,
}

impl PodGroupSpec {
    /// The minimum in force: the group's own, or the sum of its roles'.
    #[must_use]
    pub fn min_member(&self) -> i32 {
        let roles = || self.roles.iter().fold(0_i32, |sum, r| sum.saturating_add(r.min_member));
        self.min_member.unwrap_or_else(roles).clamp(1, MAX_MEMBERS)
    }
}

/// A kind of members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// The role's name, as status and messages use it.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// How many members of this role must be placed together with the rest of the
    /// minimum. 0 for a role whose members are all optional.
    #[schemars(range(min = 0, max = 10_000))]
    pub min_member: i32,
    /// Which members have this role, by their labels.
    #[schemars(schema_with = "selector")]
    pub selector: LabelSelector,
    /// Where the members of this role shall be, relative to each other, within what
    /// the group asks for. It may be changed only while no member is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyRequest>,
}

/// How the gang may be disrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Disruption {
    /// What preemption may take. SurplusFirst: members above the minimum one by one,
    /// then the gang as a whole. Whole: all members or none. A gang is never left with
    /// fewer members than its minimum.
    #[serde(deserialize_with = "nullable")]
    #[schemars(extend("x-default" = "SurplusFirst"))]
    pub mode: DisruptionMode,
    /// How long the gang is not preempted after its minimum has started. Without it:
    /// what the SchedulingPolicy says, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_SECONDS))]
    pub min_runtime_seconds: Option<i32>,
}

names! {
    /// What happens to room that was found while there is not enough.
    Reservation {
        /// Nothing is kept.
        #[default]
        Atomic,
        /// It is kept until the rest is there, or the deadline.
        Accumulate,
    }
}

names! {
    /// What to do with a gang that is still half bound at its deadline.
    HalfBound {
        /// The bound members are evicted.
        #[default]
        Release,
        /// They stay.
        Wait,
    }
}

names! {
    /// What preemption may take of a gang.
    DisruptionMode {
        /// Members above the minimum, then the whole.
        #[default]
        SurplusFirst,
        /// All or none.
        Whole,
    }
}
