//! What a `SchedulingPolicy` says of preemption: whom its pods push out and how fast, and when
//! they are pushed out themselves.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pod_group::MAX_SECONDS;
use super::schema::names;

/// Most victims in a minute that a policy may name.
pub const MAX_VICTIMS_PER_MINUTE: i32 = 1_000_000;
/// Greatest gap between two priorities that a policy may ask for.
pub const MAX_PRIORITY_GAP: i32 = 1_000_000_000;

/// Whom pods push out and how fast, and when they are pushed out themselves. The first half
/// speaks of governed pods that find no room, the second of governed pods that others would
/// push out. Each field is merged by itself. What is left out is as in kube-scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionPolicy {
    /// Whether pods that find no room push out others. Enabled: as their priority and
    /// preemptionPolicy allow. Simulate: whom they would push out is said in events,
    /// conditions and by muster explain, and nobody is evicted. Never: they push out
    /// nobody. Without it: Enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<PreemptionMode>,
    /// How many pods may be evicted for governed pods, all together: so many a minute, and
    /// what was not used for up to a minute may be used at once. A plan that needs more than
    /// that waits until a whole minute's worth is there, is carried out whole, and the next
    /// one waits the longer. Who is first in the queue goes first. Without it: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_VICTIMS_PER_MINUTE))]
    pub victims_per_minute: Option<i32>,
    /// How long a pod or gang has to have found no room before anybody is evicted for it,
    /// so that an autoscaler can act first. Without it: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_SECONDS))]
    pub delay_seconds: Option<i32>,
    /// After a plan failed, or a gang's search for one, the next waits a second, and twice
    /// as long after each further failure, up to this. 0 and without it: no pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_SECONDS))]
    pub max_pause_seconds: Option<i32>,
    /// Pods of a priority above this may have others deleted although a
    /// PodDisruptionBudget forbids their eviction, if there is no other way. Muster needs
    /// the right to delete pods for that (rbac.deletePods of its chart). Without it: nobody
    /// may, unless the profile's allowBudgetViolations says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i32::MIN, max = i32::MAX))]
    pub force_above_priority: Option<i32>,
    /// Of pods that others would push out: they stay for this long after they have started.
    /// Pods that are bound and have not started stay too. Without it: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_SECONDS))]
    pub min_runtime_seconds: Option<i32>,
    /// Of pods that others would push out: only those go for whom their own priority is at
    /// least so much lower. Without it: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_PRIORITY_GAP))]
    pub min_priority_gap: Option<i32>,
    /// Of pods that others would push out: one that was evicted twice within this time, or
    /// replaces such a pod of the same controller, stays for as long again. Muster remembers
    /// its own evictions only, and forgets them at a restart. Without it: it may be evicted
    /// again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub repeat_window_seconds: Option<i32>,
    /// Of pods that others would push out: while more than this share of the nodes of their
    /// zone is not ready (and more than two are), only one of them goes every 100 seconds in
    /// a zone of more than 50 nodes, and none in a smaller one, nor where no node is ready.
    /// As the node lifecycle controller does, which begins at 55. Without it: zones do not
    /// matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub unhealthy_zone_percent: Option<i32>,
}

names! {
    /// Whether pods that find no room push out others.
    PreemptionMode {
        /// They do.
        #[default]
        Enabled,
        /// Whom they would push out is said, and nobody is evicted.
        Simulate,
        /// They do not.
        Never,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_written_again() {
        let spec = json!({
            "mode": "Simulate", "victimsPerMinute": 60, "delaySeconds": 0,
            "maxPauseSeconds": 300, "forceAbovePriority": 1000, "minRuntimeSeconds": 600,
            "minPriorityGap": 10, "repeatWindowSeconds": 3600, "unhealthyZonePercent": 55,
        });
        let read: PreemptionPolicy = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(read.mode, Some(PreemptionMode::Simulate));
        assert_eq!(serde_json::to_value(&read).unwrap(), spec);
    }
}
