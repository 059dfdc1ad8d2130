//! What a `SchedulingPolicy` says of pace: how fast pods are bound and started.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most binds in a second that a policy may name.
pub const MAX_BINDS_PER_SECOND: i32 = 100_000;
/// Most starting pods on a node that a policy may name.
pub const MAX_STARTING_PODS: i32 = 1_000;

/// How fast governed pods are bound and started, so that thousands of them do not fetch
/// their images at once. Each field is merged by itself. Without it there is no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PacingPolicy {
    /// How many governed pods are bound, all together: so many a second, and what was not
    /// used for up to a second may be used at once. A gang is charged whole and never
    /// split: one of more members waits for a second's worth, and the next pod the longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_BINDS_PER_SECOND))]
    pub binds_per_second: Option<i32>,
    /// A governed pod is placed on nodes only on which fewer pods than this are starting:
    /// bound for at most five minutes and not running yet. A gang looks once, before its
    /// first member, and is never split.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_STARTING_PODS))]
    pub starting_pods_per_node: Option<i32>,
}
