//! A scheduler process: a core, and when it may next be asked.
//!
//! Owns the modelled cost of thinking. [`Brain`] is all the engine knows of a
//! core, so that a test can put a wrong one in its place and see it caught.

use std::sync::Arc;

use muster_core::gang::GangKey;
use muster_core::io::{Effect, Input, Kind, PodRef, Tick};
use muster_core::report::Observation;
use muster_core::{CacheView, Config, Core, Decision, Outcome, QueueView, Reload, ReloadError};

use crate::agenda::Event;
use crate::check::Finding;
use crate::lease::{Candidate, Identity};
use crate::model::log::{Served, WATCHED, slot};
use crate::scenario::SchedulerSpec;
use crate::time::{MILLISECOND, Micros};
use crate::writer::Writer;

/// Virtual time of one cycle.
pub(crate) const CYCLE: Micros = 100;
/// A timer that is due already fires this much later, so that virtual time moves.
const TIMER_STEP: Micros = MILLISECOND;
/// A standby that takes over waits this long for what its watches still owe it,
/// as the live one does.
pub(crate) const SETTLE: Micros = 250 * MILLISECOND;

/// What the engine asks of a core.
pub trait Brain {
    /// Tells it something.
    fn apply(&mut self, now: Tick, input: Input);
    /// Lets its timers fire.
    fn advance(&mut self, now: Tick);
    /// Lets it decide on one pod.
    fn schedule_one(&mut self, now: Tick) -> Option<Attempt>;
    /// Puts another configuration into force.
    ///
    /// # Errors
    ///
    /// As [`Core::reload`]; a core that has no configuration takes any.
    fn reload(&mut self, _now: Tick, _reload: Reload) -> Result<(), ReloadError> {
        Ok(())
    }
    /// When `advance` next has something to do.
    fn next_deadline(&self) -> Option<Tick>;
    /// What it wants done.
    fn take_effects(&mut self) -> Vec<Effect>;
    /// Objects it could not understand, since the last call.
    fn take_complaints(&mut self) -> Vec<Complaint>;
    /// What it believes and what waits, if it can say.
    fn views(&self) -> Option<(CacheView, QueueView)> {
        None
    }
    /// What an audit of its own has found since the last call.
    fn take_findings(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

/// One decision on one pod.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The pod; of a gang, any member.
    pub pod: PodRef,
    /// The gang, if one was tried: all its members that wait were.
    pub gang: Option<GangKey>,
    /// Whether it got a node.
    pub placed: bool,
    /// Why not.
    pub message: Option<Arc<str>>,
}

/// Something a core could not cope with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// An object that makes no sense was skipped.
    Malformed(String),
    /// A cycle panicked; the pod is left alone. Never expected.
    Panic(String),
}

pub(crate) fn attempt_of(decision: Decision) -> Attempt {
    let placed = match decision.outcome {
        Outcome::Scheduled { .. }
        | Outcome::WaitingOnPermit { .. }
        | Outcome::Gathered { .. }
        | Outcome::Accumulating { .. } => true,
        Outcome::Unschedulable | Outcome::Error | Outcome::Skipped | Outcome::Asking => false,
    };
    Attempt { pod: decision.pod, gang: decision.gang, placed, message: decision.message }
}

pub(crate) fn complaints_of(core: &mut Core) -> Vec<Complaint> {
    let observations = core.take_observations().into_iter();
    observations
        .filter_map(|observation| match observation {
            Observation::Malformed { kind, error } => {
                Some(Complaint::Malformed(format!("{kind}: {error}")))
            }
            Observation::Quarantined { error } => Some(Complaint::Panic(error)),
            _ => None,
        })
        .collect()
}

impl Brain for Core {
    fn apply(&mut self, now: Tick, input: Input) {
        Self::apply(self, now, input);
    }

    fn advance(&mut self, now: Tick) {
        Self::advance(self, now);
    }

    fn schedule_one(&mut self, now: Tick) -> Option<Attempt> {
        Self::schedule_one(self, now).map(attempt_of)
    }

    fn reload(&mut self, now: Tick, reload: Reload) -> Result<(), ReloadError> {
        Self::reload(self, now, reload)
    }

    fn next_deadline(&self) -> Option<Tick> {
        Self::next_deadline(self)
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        Self::take_effects(self)
    }

    fn take_complaints(&mut self) -> Vec<Complaint> {
        complaints_of(self)
    }

    fn views(&self) -> Option<(CacheView, QueueView)> {
        Some((self.cache_view(), self.queue_view()))
    }
}

/// Makes the brain of a process that starts.
pub(crate) struct Maker<'a> {
    /// What a core is set up with.
    pub(crate) config: Box<dyn Fn(&SchedulerSpec) -> Config + 'a>,
    /// The core.
    pub(crate) brain: Box<dyn FnMut(Config) -> Box<dyn Brain> + 'a>,
}

/// Muster's core.
pub(crate) fn muster(config: Config) -> Box<dyn Brain> {
    Box::new(Core::new(config))
}

/// What a process wants of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A cycle then.
    Cycle(Tick),
    /// A timer then.
    Timer(Tick),
}

/// One kind's watch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    /// Raised by each cut: what was on its way before is lost.
    pub(crate) generation: u32,
    /// The revision of the last thing heard.
    pub(crate) seen: u64,
    pub(crate) connected: bool,
    /// A list is complete since the last one began.
    pub(crate) listed: bool,
}

/// A scheduler process.
pub(crate) struct Process {
    brain: Box<dyn Brain>,
    pub(crate) me: Identity,
    pub(crate) writer: Writer,
    pub(crate) streams: [Stream; WATCHED.len()],
    /// Without a lease the process always leads.
    pub(crate) candidate: Option<Candidate>,
    /// While it stands still: what has arrived.
    pub(crate) frozen: Option<Vec<Event>>,
    free_at: Tick,
    cycle_at: Option<Tick>,
    timer_at: Option<Tick>,
    /// How far its clock is ahead.
    offset: Micros,
    /// The kinds that it watches.
    watched: Served,
    listed: [bool; WATCHED.len()],
    /// When all kinds were listed first, by its own clock.
    listed_at: Option<Tick>,
}

impl Process {
    pub(crate) fn new(
        brain: Box<dyn Brain>,
        now: Tick,
        me: Identity,
        elects: bool,
        watched: Served,
    ) -> Self {
        Self {
            brain,
            watched,
            me,
            writer: Writer::default(),
            streams: [Stream::default(); WATCHED.len()],
            candidate: elects.then(|| Candidate::new(me)),
            frozen: None,
            free_at: now,
            cycle_at: None,
            timer_at: None,
            offset: 0,
            listed: [false; WATCHED.len()],
            listed_at: None,
        }
    }

    /// Its own clock.
    pub(crate) fn local(&self, now: Tick) -> Tick {
        now.after_micros(self.offset)
    }

    /// Its clock jumps ahead; a jump back is held up by the driver.
    pub(crate) fn jump(&mut self, by: Micros) {
        self.offset += by.max(0);
    }

    /// Whether it may write now.
    pub(crate) fn may_write(&self, now: Tick) -> bool {
        self.candidate.as_ref().is_none_or(|c| c.leads(self.local(now)))
    }

    /// When it must have ended writing, if that is soon.
    pub(crate) fn write_deadline(&self, now: Tick) -> Option<Tick> {
        let until = self.candidate.as_ref()?.may_write_until();
        Some(Tick(until.0 - self.offset).max(now))
    }

    /// When it may decide: it leads, has listed, and has waited for what its
    /// watches owed it when it took over.
    fn decides_from(&self, now: Tick) -> Option<Tick> {
        let listed = self.listed_at?;
        let Some(candidate) = &self.candidate else {
            return Some(now);
        };
        let local = self.local(now);
        let since = candidate.leads_since().filter(|_| candidate.leads(local))?;
        if listed > since { Some(now) } else { Some(Tick(since.0 + SETTLE - self.offset)) }
    }

    /// A message arrives.
    pub(crate) fn hear(&mut self, now: Tick, input: Input) -> Option<Wish> {
        let local = self.local(now);
        if let Input::RelistDone(kind) = input {
            self.listed[slot(kind)] = true;
            if self.watched.kinds().all(|kind| self.listed[slot(kind)]) {
                self.listed_at.get_or_insert(local);
            }
        }
        self.brain.apply(local, input);
        self.want_cycle(now)
    }

    /// Takes up another configuration; false if it has to wait.
    pub(crate) fn reload(&mut self, now: Tick, config: Config) -> (bool, Option<Wish>) {
        let reload = Reload { profiles: config.profiles, backoff: config.backoff };
        let local = self.local(now);
        match self.brain.reload(local, reload) {
            Ok(()) => (true, self.want_cycle(now)),
            Err(_) => (false, None),
        }
    }

    /// A timer is due; one that was replaced by an earlier one does nothing.
    pub(crate) fn timer(&mut self, now: Tick) -> Option<Wish> {
        if self.timer_at.is_none_or(|at| at > now) {
            return None;
        }
        self.timer_at = None;
        self.want_cycle(now)
    }

    pub(crate) fn want_cycle(&mut self, now: Tick) -> Option<Wish> {
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
        let local = self.local(now);
        self.brain.advance(local);
        let decides = self.decides_from(now);
        if decides.is_some_and(|from| from <= now)
            && let Some(attempt) = self.brain.schedule_one(local)
        {
            self.free_at = now.after_micros(CYCLE);
            return (Some(attempt), self.want_cycle(self.free_at));
        }
        let timer = self.brain.next_deadline().map(|at| Tick(at.0.saturating_sub(self.offset)));
        let settled = decides.filter(|from| *from > now);
        let wish = timer.into_iter().chain(settled).min().and_then(|deadline| {
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

    pub(crate) fn take_complaints(&mut self) -> Vec<Complaint> {
        self.brain.take_complaints()
    }

    pub(crate) fn take_findings(&mut self) -> Vec<Finding> {
        self.brain.take_findings()
    }

    pub(crate) fn views(&self) -> Option<(CacheView, QueueView)> {
        self.brain.views()
    }

    pub(crate) fn stream(&mut self, kind: Kind) -> &mut Stream {
        &mut self.streams[slot(kind)]
    }
}
