//! What the controller says of a `PodGroup`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_group::MAX_ROLES;
use super::schema::{MAX_KEY, names, time};
use crate::k8s::{Time, nullable};

/// Most conditions.
pub const MAX_CONDITIONS: usize = 16;
/// Longest message that is written, in bytes.
pub const MAX_MESSAGE: usize = 1024;

/// Types of conditions of a `PodGroup`.
pub mod condition {
    /// The minimum is bound: `kubectl wait --for=condition=Scheduled mpg/x`.
    pub const SCHEDULED: &str = "Scheduled";
    /// The minimum runs, or has succeeded.
    pub const STARTED: &str = "Started";
    /// Members that ran were lost; the message names the node.
    pub const DEGRADED: &str = "Degraded";
    /// All members have ended.
    pub const FINISHED: &str = "Finished";
}

/// Reasons of conditions of a `PodGroup`, and of `PodScheduled` of its members.
pub mod reason {
    /// Fewer members exist than the minimum asks for. Autoscalers leave such pods
    /// alone: more nodes would not help.
    pub const GANG_INCOMPLETE: &str = "GangIncomplete";
    /// The minimum exists and has not been tried yet.
    pub const SCHEDULING: &str = "Scheduling";
    /// The minimum exists, and there is no room for all of it.
    pub const UNSCHEDULABLE: &str = "Unschedulable";
    /// Room is reserved, and something outside has to allow it.
    pub const WAITING_FOR_PERMIT: &str = "WaitingForPermit";
    /// Room is kept until there is enough.
    pub const ACCUMULATING: &str = "Accumulating";
    /// The deadline passed; what was reserved was given up.
    pub const SCHEDULE_TIMEOUT: &str = "ScheduleTimeout";
    /// Something outside did not allow it.
    pub const REJECTED: &str = "Rejected";
    /// A part is bound, the rest is on its way.
    pub const HALF_BOUND: &str = "HalfBound";
    /// The minimum is bound.
    pub const SCHEDULED: &str = "Scheduled";
    /// The minimum is not bound, so it cannot run.
    pub const NOT_SCHEDULED: &str = "NotScheduled";
    /// The minimum is bound, and not all of it runs yet.
    pub const STARTING: &str = "Starting";
    /// The minimum does not run although its time is over.
    pub const START_TIMEOUT: &str = "StartTimeout";
    /// The minimum runs.
    pub const RUNNING: &str = "Running";
    /// A node with members is not ready, or is gone.
    pub const NODE_LOST: &str = "NodeLost";
    /// Members have failed or were deleted.
    pub const MEMBERS_LOST: &str = "MembersLost";
    /// Nothing is lost.
    pub const AS_EXPECTED: &str = "AsExpected";
    /// All members have ended, and the minimum has succeeded.
    pub const SUCCEEDED: &str = "Succeeded";
    /// All members have ended, and fewer than the minimum have succeeded.
    pub const FAILED: &str = "Failed";
    /// Members have not all ended.
    pub const NOT_FINISHED: &str = "NotFinished";
}

names! {
    /// Where a group is on its way.
    Phase {
        /// Fewer members exist than the minimum asks for.
        #[default]
        Pending,
        /// The minimum exists, and is not bound.
        Scheduling,
        /// Room is reserved, and it waits for a permit or for more room.
        Waiting,
        /// The minimum is bound, and not all of it runs yet.
        Scheduled,
        /// The minimum runs or has succeeded.
        Running,
        /// The minimum was bound and is no longer reached: members were lost, or it
        /// was raised.
        Degraded,
        /// All members have ended, and the minimum has succeeded.
        Succeeded,
        /// All members have ended, and fewer than the minimum have succeeded.
        Failed,
    }
}

/// What is, as the controller saw it last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Where the group is on its way. Pending: fewer members exist than the minimum
    /// asks for. Scheduling: the minimum exists, and is not bound. Waiting: room is
    /// reserved, and it waits for a permit or for more room. Scheduled: the minimum is
    /// bound, and not all of it runs yet. Running: the minimum runs or has succeeded.
    /// Degraded: the minimum was bound and is no longer reached, because members were
    /// lost or it was raised. Succeeded, Failed: all members have ended, and the minimum
    /// has or has not succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Why it is in this phase, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub reason: Option<String>,
    /// Why it is in this phase, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub message: Option<String>,
    /// The minimum in force: of the spec, or the sum of its roles' minimums.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_member: Option<i32>,
    /// Members of the group, counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<MemberCounts>,
    /// Members of each role, counted.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_ROLES),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub roles: Vec<RoleStatus>,
    /// The domain that the group got for its topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
    /// What is true of the group. Scheduled: the minimum is bound. Started: the minimum
    /// runs or has succeeded. Degraded: members that ran were lost. Finished: all members
    /// have ended.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_CONDITIONS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// When the minimum existed, so that the gang could be tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub schedule_start_time: Option<Time>,
    /// When the minimum was bound, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub scheduled_time: Option<Time>,
    /// When the minimum ran, the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub start_time: Option<Time>,
    /// When all members had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub completion_time: Option<Time>,
}

impl PodGroupStatus {
    /// The condition of a type.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// Whether a condition is there and true.
    #[must_use]
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(Condition::is_true)
    }
}

/// Members, counted. A member that has not ended and is being deleted, or is on a
/// node that is lost, counts as that and as nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MemberCounts {
    /// Members that exist: those that have not ended, and those that have succeeded.
    pub existing: i32,
    /// Members that are bound to a node and have not ended.
    pub scheduled: i32,
    /// Members of which all containers run.
    pub running: i32,
    /// Members that run, or have succeeded: what is compared with the minimum.
    pub ready: i32,
    /// Members that have succeeded.
    pub succeeded: i32,
    /// Members that have failed.
    pub failed: i32,
    /// Members on nodes that are not ready or are gone: they count as nothing else.
    pub lost: i32,
    /// Members that are being deleted: they neither count nor block a replacement.
    pub terminating: i32,
}

/// Members of one role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["name"]))]
pub struct RoleStatus {
    /// The role's name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// The role's minimum.
    pub min_member: i32,
    /// Its members, counted.
    pub members: MemberCounts,
    /// The domain that the role got for its topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<Domain>,
}

/// A part of the cluster: the nodes on which a label has a value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// The level, as it was asked for.
    #[schemars(length(max = MAX_KEY))]
    pub level: String,
    /// The node label.
    #[schemars(length(max = MAX_KEY))]
    pub key: String,
    /// Its value.
    #[schemars(length(max = 63))]
    pub value: String,
}

/// One thing that is true, false or not known of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub kind: String,
    /// True, False or Unknown.
    #[schemars(extend("enum" = ["True", "False", "Unknown"]))]
    pub status: String,
    /// The generation of the spec that it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// When its status changed.
    #[schemars(schema_with = "time")]
    pub last_transition_time: Time,
    /// Why, in one word.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// Why, for people.
    #[schemars(length(max = 32_768))]
    pub message: String,
}

impl Condition {
    /// Whether it is true.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}
