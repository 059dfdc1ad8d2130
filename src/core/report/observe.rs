//! What happened, for metrics: drained by the driver after each step.

use std::sync::Arc;

/// One thing worth counting. The core has no clock of its own: durations come
/// from ticks, or from the [`crate::Stopwatch`] the driver handed in.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// A node was looked for: filtering, scoring and choosing.
    Algorithm {
        /// Nanoseconds (0 without a stopwatch).
        nanos: u64,
    },
    /// One scheduling attempt ended; a successful one ends with the bind.
    Attempt {
        /// Profile.
        profile: Arc<str>,
        /// How it ended.
        result: AttemptResult,
        /// Nanoseconds it took, by the driver's ticks if it was bound.
        nanos: u64,
    },
    /// An extension point ran.
    Point {
        /// Profile.
        profile: Arc<str>,
        /// Upstream's name of the point, e.g. `Filter`.
        point: &'static str,
        /// Upstream's name of the status code, e.g. `Success`.
        status: &'static str,
        /// Nanoseconds (0 without a stopwatch).
        nanos: u64,
    },
    /// A pod was bound by us.
    Bound {
        /// Attempts it took.
        attempts: u32,
        /// Microseconds since it was first queued.
        since_queued_micros: i64,
    },
    /// The minimum of a gang is bound.
    GangBound {
        /// Members that are bound or have ended well.
        members: usize,
        /// Microseconds since its minimum existed.
        since_complete_micros: i64,
    },
    /// A wait at Permit ended.
    PermitWait {
        /// `Success`, `Unschedulable`, …
        status: &'static str,
        /// Microseconds waited.
        micros: i64,
    },
    /// A pod entered a queue.
    Enqueued {
        /// `active`, `backoff`, `unschedulable` or `gated`.
        queue: &'static str,
        /// Upstream's name of the event, e.g. `ScheduleAttemptFailure`.
        event: &'static str,
    },
    /// A pod was rejected by these plugins.
    Rejected {
        /// Profile.
        profile: Arc<str>,
        /// Rejecting plugins.
        plugins: Vec<&'static str>,
    },
    /// Victims of a pod were chosen.
    Preemption {
        /// How many.
        victims: usize,
    },
    /// Victims of a gang were chosen.
    GangPreemption {
        /// How many.
        victims: usize,
        /// Of how many gangs.
        gangs: usize,
        /// Seconds of work that they lose.
        lost_seconds: u64,
    },
    /// Nobody is made to go for a pod or a gang, although somebody might be.
    PreemptionHeld {
        /// `delay`, `pause`, `rate`, `protected`, `simulate` or `never`.
        reason: &'static str,
    },
    /// An eviction was not carried out.
    EvictionRefused {
        /// `budget`, `unavailable` or `failed`.
        cause: &'static str,
        /// It was only asked whether it would be.
        dry_run: bool,
    },
    /// A victim was asked to save its work, or was waited for.
    Checkpoint {
        /// `asked`, `saved` or `late`.
        result: &'static str,
    },
    /// A preemption was carried out, or given up.
    PreemptionDone {
        /// `success` or `error`.
        result: &'static str,
        /// Microseconds it took.
        micros: i64,
    },
    /// A pod's cycle panicked: it is not tried again until it changes.
    Quarantined {
        /// The pod and the panic's message.
        error: String,
    },
    /// A kubelet refused a pod of ours.
    Refused {
        /// The kubelet's reason.
        reason: &'static str,
    },
    /// A node is avoided for a while, because its kubelet refuses pods.
    NodeAvoided {
        /// The kubelet's reason.
        reason: &'static str,
    },
    /// An object could not be understood and was skipped.
    Malformed {
        /// Kind.
        kind: &'static str,
        /// Object, field and remedy.
        error: String,
    },
}

/// Upstream's `result` label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttemptResult {
    /// A node was chosen.
    Scheduled,
    /// No node fits.
    Unschedulable,
    /// Something went wrong.
    Error,
}

impl AttemptResult {
    /// The label value.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}
