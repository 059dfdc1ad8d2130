//! Muster's simulator: the same core on a model cluster, in virtual time.
//!
//! Owns scenarios ([`scenario`]), a model of everything around a scheduler
//! (`model/`), the discrete-event engine that lets them talk (`engine`, through
//! `link`), an independent check of what the scheduler did ([`check`]) and the
//! report ([`report`]).
//!
//! The same scenario and seed give the same bytes out, on every machine. So there
//! must never be a clock, a file, a thread, a default hasher or an unseeded number
//! in here; the command line reads files, draws on terminals and exits.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod agenda;
mod befall;
pub mod check;
mod digest;
mod engine;
#[cfg(test)]
mod engine_tests;
pub mod faults;
mod lease;
pub mod limits;
mod link;
pub mod model;
mod outcome;
mod progress;
mod read;
pub mod record;
pub mod report;
pub mod rng;
pub mod scenario;
mod scheduler;
pub mod swarm;
#[cfg(test)]
mod testing;
pub mod time;
mod turmoil;
mod wire;
mod writer;

pub use outcome::{Ended, Outcome, Progress, Unsettled};
pub use progress::Meter;
pub use scenario::{Scenario, ScenarioError};
pub use scheduler::{Attempt, Brain, Complaint};

use time::Micros;

/// What overrides the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Instead of the scenario's seed.
    pub seed: Option<u64>,
    /// Instead of the scenario's end.
    pub until: Option<Micros>,
}

/// Runs a scenario on Muster's core.
///
/// # Errors
///
/// If it does not settle within [`limits::MAX_STEPS`] events.
pub fn run(
    scenario: &Scenario,
    options: Options,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Unsettled> {
    let seed = options.seed.unwrap_or(scenario.seed);
    let maker = scheduler::Maker {
        config: Box::new(move |spec| spec.config(seed)),
        brain: Box::new(scheduler::muster),
    };
    start(scenario, options, maker, progress)
}

/// Runs a scenario on any [`Brain`]; a process that starts again gets Muster's core.
///
/// # Errors
///
/// If it does not settle within [`limits::MAX_STEPS`] events.
pub fn run_with(
    scenario: &Scenario,
    options: Options,
    brain: Box<dyn Brain>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Unsettled> {
    let seed = options.seed.unwrap_or(scenario.seed);
    let mut first = Some(brain);
    let maker = scheduler::Maker {
        config: Box::new(move |spec| spec.config(seed)),
        brain: Box::new(move |config| first.take().unwrap_or_else(|| scheduler::muster(config))),
    };
    start(scenario, options, maker, progress)
}

fn start<'a>(
    scenario: &'a Scenario,
    options: Options,
    maker: scheduler::Maker<'a>,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Unsettled> {
    let seed = options.seed.unwrap_or(scenario.seed);
    let until = options.until.or(scenario.until);
    engine::Engine::new(scenario, seed, maker).run(until, progress)
}
