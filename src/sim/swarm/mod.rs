//! The swarm: small random worlds, each with its own faults, each judged.
//!
//! Owns what a seed means. A seed draws a cluster, its workloads, the schedulers'
//! configuration and a subset of all faults ([`draw`]); it runs until the faults are
//! over and nothing moves any more; an audit watches every step of every process and
//! the checker every write. A seed that breaks an invariant is made small
//! ([`shrink`]) and written as a scenario file. Must never use a thread or a clock:
//! whoever has seeds to run may spread them.

mod brain;
mod contend;
mod draw;
mod focus;
mod gangs;
mod limits;
mod machines;
mod near;
mod pods;
mod policies;
mod shrink;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use muster_core::Config;
use muster_core::audit::PointLog;

use crate::faults::Counts;
use crate::limits::MAX_SWARM_STEPS;
use crate::scenario::{Scenario, SchedulerSpec};
use crate::scheduler::Maker;
use crate::time::{Micros, since_epoch};

pub use draw::draw;
pub use shrink::shrink;

/// Alters a configuration.
pub type Change = Arc<dyn Fn(&mut Config) + Send + Sync>;

/// What is changed of a drawn world, for tests of the swarm itself.
#[derive(Clone)]
pub struct Tweak {
    /// Alters the configuration of every core.
    pub config: Option<Change>,
    /// Whether every step is audited.
    pub audit: bool,
    /// Where test plugins write what was called, for the audit to read.
    pub calls: Option<PointLog>,
    /// Test plugins that any event makes look again at what they rejected.
    pub eager: Vec<&'static str>,
    /// Whether decisions carry a fresh evaluation, for the audit to compare.
    pub trace: bool,
}

impl Default for Tweak {
    fn default() -> Self {
        Self { config: None, audit: true, calls: None, eager: Vec::new(), trace: false }
    }
}

impl Tweak {
    /// Alters the configuration of every core.
    #[must_use]
    pub fn config(change: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        Self { config: Some(Arc::new(change)), ..Self::default() }
    }
}

/// What came of one seed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// A fingerprint of all effects and all writes.
    pub digest: u64,
    /// Events handled.
    pub steps: u64,
    /// Virtual time.
    pub time: Micros,
    /// Binds that the API server accepted.
    pub binds: u64,
    /// Pods that were created.
    pub pods: u64,
    /// Faults that happened.
    pub faults: Counts,
    /// What should never be.
    pub violations: Vec<String>,
    /// Which invariants were broken, in order of the first time.
    pub broken: Vec<&'static str>,
}

impl SeedReport {
    /// Whether nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty()
    }
}

/// Draws and runs one seed.
#[must_use]
pub fn run_seed(seed: u64, tweak: &Tweak) -> SeedReport {
    run_scenario(&draw(seed), tweak)
}

/// Runs a scenario under the eyes of the audit.
#[must_use]
pub fn run_scenario(scenario: &Scenario, tweak: &Tweak) -> SeedReport {
    let seed = scenario.seed;
    let config = |spec: &SchedulerSpec| {
        let mut config = spec.config(seed);
        if let Some(change) = &tweak.config {
            change(&mut config);
        }
        config
    };
    let brain = |config: Config| {
        if tweak.audit { brain::audited(config, tweak) } else { crate::scheduler::muster(config) }
    };
    let maker = Maker { config: Box::new(config), brain: Box::new(brain) };
    let run = || {
        let mut engine = crate::engine::Engine::new(scenario, seed, maker);
        engine.most_steps = MAX_SWARM_STEPS;
        engine.run(scenario.until, &mut |_| {})
    };
    // Outside a cycle a panic ends the process: here it is a finding.
    let outcome = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let what = format!("panic: {}", text.unwrap_or("no message"));
            return SeedReport {
                seed,
                violations: vec![what],
                broken: vec!["panic"],
                ..SeedReport::default()
            };
        }
    };
    match outcome {
        Err(unsettled) => SeedReport {
            seed,
            violations: vec![format!("L2: {unsettled}")],
            broken: vec!["L2"],
            ..SeedReport::default()
        },
        Ok(outcome) => SeedReport {
            seed,
            digest: outcome.digest,
            steps: outcome.steps,
            time: since_epoch(outcome.end),
            binds: outcome.verdict.binds,
            pods: outcome.record.pods.len() as u64,
            faults: outcome.faults,
            violations: outcome.verdict.violations,
            broken: outcome.verdict.broken,
        },
    }
}

/// The line that replays a seed.
#[must_use]
pub fn replay_line(seed: u64) -> String {
    format!("muster simulate --fuzz --seeds 1 --from {seed}")
}
