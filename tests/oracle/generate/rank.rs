//! How much a pod counts for: its priority, since when it runs, and whether it
//! is on its way out already.

use serde_json::{Value, json};

use crate::rng::Rng;

/// A priority around that of the pod in question; below it in `percent` of a
/// hundred cases. None is zero.
pub(super) fn other_priority(rng: &mut Rng, own: i64, percent: usize) -> Option<i64> {
    let around =
        [Some(-2_147_483_648), Some(-10), Some(-10), Some(0), None, Some(5), Some(100), Some(100)];
    if rng.chance(percent) {
        let below = |p: &Option<i64>| p.unwrap_or(0) < own;
        let lower: Vec<Option<i64>> = around.into_iter().filter(below).collect();
        return match rng.below(lower.len() + 1) {
            0 => Some(own - 1),
            i => lower[i - 1],
        };
    }
    Some([own, own, own + 1, 2_000_000_000][rng.below(4)])
}

pub(super) fn set_priority(pod: &mut Value, priority: Option<i64>) {
    match (priority, pod["spec"].as_object_mut()) {
        (Some(priority), Some(spec)) => drop(spec.insert("priority".to_owned(), json!(priority))),
        (None, Some(spec)) => drop(spec.remove("priority")),
        (_, None) => {}
    }
}

/// Marks a pod as being deleted, or about to be, by one or another.
pub(super) fn terminate(rng: &mut Rng, pod: &mut Value) {
    let condition = |status: &str, reason: &str| {
        json!([
            {"type": "Ready", "status": "True"},
            {"type": "DisruptionTarget", "status": status, "reason": reason},
        ])
    };
    if !rng.chance(15) {
        pod["metadata"]["deletionTimestamp"] = json!("2020-01-03T00:00:00Z");
    }
    pod["status"]["conditions"] = match rng.below(6) {
        0 => return,
        // Not "EvictionByEvictionAPI", by which Muster knows its own victims.
        1 => condition("True", "DeletionByTaintManager"),
        2 => condition("False", "PreemptionByScheduler"),
        _ => condition("True", "PreemptionByScheduler"),
    };
}

/// Start times of the pods of one node, no two alike; those of different nodes
/// often are.
pub(super) struct StartTimes {
    minutes: Vec<usize>,
    /// One of them may not have started yet.
    unstarted: bool,
}

impl StartTimes {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self { minutes: (0..12).collect(), unstarted: rng.chance(40) }
    }

    pub(super) fn next(&mut self, rng: &mut Rng) -> Option<String> {
        if self.unstarted && rng.chance(25) {
            self.unstarted = false;
            return None;
        }
        let minute = self.minutes.swap_remove(rng.below(self.minutes.len()));
        Some(Self::at(minute))
    }

    pub(super) fn at(minute: usize) -> String {
        format!("2020-01-01T00:{minute:02}:00Z")
    }
}
