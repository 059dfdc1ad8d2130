//! Faults: the one place where chance decides what goes wrong.
//!
//! Owns every draw. Each kind of fault has a generator of its own, so that a case
//! from which one kind is dropped meets the others as before. After the plan's
//! end nothing goes wrong any more. Must never act: whoever asks does.

use std::time::Duration;

use muster_core::io::Tick;
use muster_core::outbox::{Details, Failure};

use crate::rng::Rng;
use crate::scenario::{BLOWS, Blow, Fault, FaultPlan};
use crate::time::{EPOCH, MILLISECOND, Micros, SECOND};

/// Longest that a slow call is under way: shorter than what a lease outlives the
/// last write of its holder, as a deadline on the server would have it.
const SLOW_CALL: (Micros, Micros) = (200 * MILLISECOND, 4_500 * MILLISECOND);
/// How long a slow watch event takes.
const SLOW_WATCH: (Micros, Micros) = (300 * MILLISECOND, 25 * SECOND);

/// How often each fault happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By [`Fault`].
    pub drawn: [u64; Fault::ALL.len()],
    /// By position in [`BLOWS`].
    pub blows: [u64; BLOWS.len()],
    /// Times that a process took the lease over while another still wrote.
    pub overlaps: u64,
    /// Writes that were not sent because the lease might be lost.
    pub fenced: u64,
    /// Objects that could not be decoded and were skipped.
    pub skipped: u64,
    /// Lists after the first one.
    pub relists: u64,
    /// Binds by somebody else.
    pub foreign_binds: u64,
    /// Evictions accepted, and refused for a budget.
    pub evictions: [u64; 2],
    /// Evictions that a scheduler asked about first.
    pub dry_runs: u64,
    /// Pods that were asked to save their work before they go.
    pub asked_to_save: u64,
    /// Pods evicted by a scheduler.
    pub preempted: u64,
    /// Members of half-bound gangs that a scheduler let go.
    pub released: u64,
    /// Evictions, dry runs among them, that a budget kept a scheduler from.
    pub refused_victims: u64,
    /// Nodes that changed, were lost or came back.
    pub node_changes: u64,
    /// Pods that a kubelet refused because they did not fit.
    pub misfits: u64,
    /// Configurations taken up by a process that ran.
    pub reloads: u64,
}

impl Counts {
    /// Name and number of each, in order.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let drawn = Fault::ALL.iter().map(|f| (f.name(), self.drawn[*f as usize]));
        let blows = BLOWS.iter().zip(self.blows).map(|(name, n)| (*name, n));
        let rest = [
            ("overlap", self.overlaps),
            ("fencedWrite", self.fenced),
            ("skippedObject", self.skipped),
            ("relist", self.relists),
            ("foreignBind", self.foreign_binds),
            ("eviction", self.evictions[0]),
            ("refusedEviction", self.evictions[1]),
            ("dryRun", self.dry_runs),
            ("askedToSave", self.asked_to_save),
            ("preempted", self.preempted),
            ("released", self.released),
            ("refusedVictim", self.refused_victims),
            ("nodeChange", self.node_changes),
            ("misfit", self.misfits),
            ("reload", self.reloads),
        ];
        drawn.chain(blows).chain(rest)
    }

    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        for (sum, n) in self.drawn.iter_mut().zip(other.drawn) {
            *sum += n;
        }
        for (sum, n) in self.blows.iter_mut().zip(other.blows) {
            *sum += n;
        }
        self.overlaps += other.overlaps;
        self.fenced += other.fenced;
        self.skipped += other.skipped;
        self.relists += other.relists;
        self.foreign_binds += other.foreign_binds;
        self.evictions[0] += other.evictions[0];
        self.evictions[1] += other.evictions[1];
        self.dry_runs += other.dry_runs;
        self.asked_to_save += other.asked_to_save;
        self.preempted += other.preempted;
        self.released += other.released;
        self.refused_victims += other.refused_victims;
        self.node_changes += other.node_changes;
        self.misfits += other.misfits;
        self.reloads += other.reloads;
    }
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It takes its course, this much later.
    Pass(Micros),
    /// It is answered with this; written before that if `written`.
    Answer { failure: Failure, written: bool },
    /// Nobody answers; written if `written`.
    Silence { written: bool },
}

/// The faults of one run.
#[derive(Debug)]
pub(crate) struct Faults {
    plan: FaultPlan,
    /// From then on nothing goes wrong.
    end: Tick,
    rngs: Vec<Rng>,
    away_until: Tick,
    pub(crate) counts: Counts,
}

fn status(code: u16, message: &str, retry_after: Option<u64>) -> Failure {
    let retry_after = retry_after.map(Duration::from_secs);
    // Not about any object in particular: whoever is answered so may ask again.
    let details = Details { reason: message.to_owned(), ..Details::default() };
    Failure::Status { code, message: message.to_owned(), retry_after, details }
}

impl Faults {
    pub(crate) fn new(rng: &Rng, plan: &FaultPlan) -> Self {
        let rngs = Fault::ALL.map(|fault| rng.split("fault", fault as u64)).to_vec();
        let end = if plan.is_empty() { EPOCH } else { EPOCH.after_micros(plan.until) };
        Self {
            plan: plan.clone(),
            end,
            rngs,
            away_until: Tick(i64::MIN),
            counts: Counts::default(),
        }
    }

    /// When everything is well again.
    pub(crate) fn end(&self) -> Tick {
        self.end
    }

    /// Whether this one happens now.
    pub(crate) fn strikes(&mut self, now: Tick, fault: Fault) -> bool {
        let rate = self.plan.rate(fault);
        if rate == 0 || now >= self.end {
            return false;
        }
        let hit = self.rngs[fault as usize].between(0, 999) < i64::from(rate);
        self.counts.drawn[fault as usize] += u64::from(hit);
        hit
    }

    fn draw(&mut self, fault: Fault, (low, high): (Micros, Micros)) -> Micros {
        self.rngs[fault as usize].between(low, high)
    }

    /// A blow of the plan is dealt.
    pub(crate) fn blow(&mut self, now: Tick, blow: Blow) {
        self.counts.blows[blow.index()] += 1;
        if let Blow::RestartServer { span } = blow {
            self.away_until = now.after_micros(span);
        }
    }

    /// Whether nobody listens at the API server's address.
    pub(crate) fn server_away(&self, now: Tick) -> bool {
        now < self.away_until
    }

    /// What becomes of a write that is sent now.
    pub(crate) fn call(&mut self, now: Tick) -> Fate {
        if self.server_away(now) {
            let failure = Failure::NotSent("connection refused".to_owned());
            return Fate::Answer { failure, written: false };
        }
        for fault in [Fault::LostCall, Fault::LostAnswer] {
            if self.strikes(now, fault) {
                return Fate::Silence { written: fault == Fault::LostAnswer };
            }
        }
        let refusals = [
            (Fault::Conflict, 409, None),
            (Fault::Throttle, 429, None),
            (Fault::ThrottleRetryAfter, 429, Some(1)),
            (Fault::ServerError, 500, None),
            (Fault::Unavailable, 503, Some(1)),
        ];
        for (fault, code, retry_after) in refusals {
            if self.strikes(now, fault) {
                let failure = status(code, fault.name(), retry_after);
                let written =
                    fault == Fault::ServerError && self.rngs[fault as usize].between(0, 1) == 1;
                return Fate::Answer { failure, written };
            }
        }
        let slow = self.strikes(now, Fault::SlowCall);
        Fate::Pass(if slow { self.draw(Fault::SlowCall, SLOW_CALL) } else { 0 })
    }

    /// How much longer a watch event takes.
    pub(crate) fn watch_delay(&mut self, now: Tick) -> Micros {
        if self.strikes(now, Fault::SlowWatch) {
            self.draw(Fault::SlowWatch, SLOW_WATCH)
        } else {
            0
        }
    }

    /// How long until a cut watch is asked for again: as the live watch pauses.
    pub(crate) fn reconnect_pause(&mut self) -> Micros {
        self.draw(Fault::CutStream, (100 * MILLISECOND, 3 * SECOND))
    }

    /// How many revisions a list lags behind.
    pub(crate) fn list_lag(&mut self, now: Tick) -> u64 {
        if !self.strikes(now, Fault::StaleList) {
            return 0;
        }
        self.draw(Fault::StaleList, (1, 20)).unsigned_abs()
    }

    /// How long a killed process takes to come back.
    pub(crate) fn comeback(&mut self) -> Micros {
        self.draw(Fault::KillBetweenEffects, (0, 8 * SECOND))
    }

    /// How long a failing pod runs.
    pub(crate) fn failing_after(&mut self) -> Micros {
        self.draw(Fault::PodFails, (0, 20 * SECOND))
    }
}
