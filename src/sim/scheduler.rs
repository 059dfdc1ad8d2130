//! A scheduler process: a core, and when it may next be asked.
//!
//! Owns the modelled cost of thinking. [`Brain`] is all the engine knows of a
//! core, so that a test can put a wrong one in its place and see it caught.

use std::sync::Arc;

use muster_core::io::{Effect, Input, PodRef, Tick};
use muster_core::report::Observation;
use muster_core::{Config, Core, Outcome};

use crate::time::{MILLISECOND, Micros};

/// Virtual time of one cycle.
pub(crate) const CYCLE: Micros = 100;
/// A timer that is due already fires this much later, so that virtual time moves.
const TIMER_STEP: Micros = MILLISECOND;

/// What the engine asks of a core.
pub trait Brain {
    /// Tells it something.
    fn apply(&mut self, now: Tick, input: Input);
    /// Lets its timers fire.
    fn advance(&mut self, now: Tick);
    /// Lets it decide on one pod.
    fn schedule_one(&mut self, now: Tick) -> Option<Attempt>;
    /// When `advance` next has something to do.
    fn next_deadline(&self) -> Option<Tick>;
    /// What it wants done.
    fn take_effects(&mut self) -> Vec<Effect>;
    /// Objects it could not understand, since the last call.
    fn take_complaints(&mut self) -> Vec<String>;
}

/// One decision on one pod.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The pod.
    pub pod: PodRef,
    /// Whether it got a node.
    pub placed: bool,
    /// Why not.
    pub message: Option<Arc<str>>,
}

impl Brain for Core {
    fn apply(&mut self, now: Tick, input: Input) {
        Self::apply(self, now, input);
    }

    fn advance(&mut self, now: Tick) {
        Self::advance(self, now);
    }

    fn schedule_one(&mut self, now: Tick) -> Option<Attempt> {
        let decision = Self::schedule_one(self, now)?;
        let placed = match decision.outcome {
            Outcome::Scheduled { .. } | Outcome::WaitingOnPermit { .. } => true,
            Outcome::Unschedulable | Outcome::Error | Outcome::Skipped => false,
        };
        Some(Attempt { pod: decision.pod, placed, message: decision.message })
    }

    fn next_deadline(&self) -> Option<Tick> {
        Self::next_deadline(self)
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        Self::take_effects(self)
    }

    fn take_complaints(&mut self) -> Vec<String> {
        self.take_observations()
            .into_iter()
            .filter_map(|observation| match observation {
                Observation::Malformed { kind, error } => Some(format!("{kind}: {error}")),
                _ => None,
            })
            .collect()
    }
}

/// Muster's core with its default profile.
pub(crate) fn muster(seed: u64) -> Box<dyn Brain> {
    Box::new(Core::new(Config { seed, ..Config::default() }))
}

/// What a process wants of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A cycle then.
    Cycle(Tick),
    /// A timer then.
    Timer(Tick),
}

/// A scheduler process.
pub(crate) struct Process {
    brain: Box<dyn Brain>,
    free_at: Tick,
    cycle_at: Option<Tick>,
    timer_at: Option<Tick>,
}

impl Process {
    pub(crate) fn new(brain: Box<dyn Brain>, now: Tick) -> Self {
        Self { brain, free_at: now, cycle_at: None, timer_at: None }
    }

    /// A message arrives.
    pub(crate) fn hear(&mut self, now: Tick, input: Input) -> Option<Wish> {
        self.brain.apply(now, input);
        self.want_cycle(now)
    }

    /// A timer is due; one that was replaced by an earlier one does nothing.
    pub(crate) fn timer(&mut self, now: Tick) -> Option<Wish> {
        if self.timer_at != Some(now) {
            return None;
        }
        self.timer_at = None;
        self.want_cycle(now)
    }

    fn want_cycle(&mut self, now: Tick) -> Option<Wish> {
        if self.cycle_at.is_some() {
            return None;
        }
        let at = now.max(self.free_at);
        self.cycle_at = Some(at);
        Some(Wish::Cycle(at))
    }

    /// A cycle is due.
    pub(crate) fn cycle(&mut self, now: Tick) -> (Option<Attempt>, Option<Wish>) {
        self.cycle_at = None;
        self.brain.advance(now);
        if let Some(attempt) = self.brain.schedule_one(now) {
            self.free_at = now.after_micros(CYCLE);
            return (Some(attempt), self.want_cycle(self.free_at));
        }
        let wish = self.brain.next_deadline().and_then(|deadline| {
            let at = deadline.max(now.after_micros(TIMER_STEP));
            if self.timer_at.is_some_and(|set| set <= at && set > now) {
                return None;
            }
            self.timer_at = Some(at);
            Some(Wish::Timer(at))
        });
        (None, wish)
    }

    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        self.brain.take_effects()
    }

    pub(crate) fn take_complaints(&mut self) -> Vec<String> {
        self.brain.take_complaints()
    }
}
