//! How far a run is, and what came of it.

use muster_core::io::Tick;

use crate::check::Verdict;
use crate::faults::Counts;
use crate::model::GpuCounts;
use crate::record::Record;
use crate::time::Micros;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time since the beginning.
    pub time: Micros,
    /// Pods bound so far.
    pub bound: u64,
    /// Pods ended so far.
    pub ended: u64,
    /// Pods of the whole run.
    pub pods: u64,
    /// Pods of the whole run that will end.
    pub finite: u64,
}

impl Progress {
    /// Parts in a hundred.
    #[must_use]
    pub fn percent(&self) -> u64 {
        ((self.bound + self.ended) * 100)
            .checked_div(self.pods + self.finite)
            .unwrap_or(100)
            .min(100)
    }
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing more can happen.
    Quiet,
    /// The time to simulate was over.
    Until,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed that was used.
    pub seed: u64,
    /// When it ended.
    pub end: Tick,
    /// Why it ended.
    pub ended: Ended,
    /// Events handled.
    pub steps: u64,
    /// A fingerprint of all effects and all writes.
    pub digest: u64,
    /// Faults that happened.
    pub faults: Counts,
    /// What pods got of machines whose GPUs have ids.
    pub gpus: GpuCounts,
    /// Decisions of the scheduler.
    pub attempts: u64,
    /// Binds that the API server refused.
    pub refused: u64,
    /// The history.
    pub record: Record,
    /// What the checker says.
    pub verdict: Verdict,
    /// What else a person should know, the first few in full.
    pub warnings: Vec<String>,
}

/// The run did not come to an end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the simulation did not settle within {steps} events (virtual time {}); shorten it with until or --until",
    crate::time::show_duration(*.reached)
)]
pub struct Unsettled {
    /// How many events it was given.
    pub steps: u64,
    /// How far it came.
    pub reached: Micros,
}
