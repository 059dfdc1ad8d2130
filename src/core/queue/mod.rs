//! The scheduling queue: active, backing off, unschedulable and gated pods.
//!
//! Owns when a waiting pod is tried next. Pods rejected by the same plugins with
//! the same shape wait as one group, so that an event is weighed once per group
//! and not once per pod. Must never lose a pod: every known pod of ours is in
//! exactly one queue, in flight, or placed.

mod backoff;
mod gangs;
mod hints;
mod holds;
mod links;
mod moves;
mod reload;
#[cfg(test)]
mod tests;
mod views;

pub use backoff::Backoff;
pub(crate) use gangs::{GangEntry, Rank, Rejected};
pub(crate) use moves::Reach;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bugs::{Bugs, bug};
use crate::cluster::Cluster;
use crate::framework::{Profile, SortKey};
use crate::gang::GangId;
use crate::hash::IdMap;
use crate::io::Tick;
use crate::model::{PodId, ShapeId};
use crate::report::Observation;
use gangs::GangQueue;
use hints::{InFlightEvents, Strategy, decide};
use holds::Holds;

/// Plugins of a profile, by position, as a set.
pub(crate) type PluginMask = u64;

/// Most plugins a profile may have, so that a set of them is one word.
pub(crate) const MAX_PLUGINS: usize = 63;

/// The position that stands for extenders: they wait for any event.
pub(crate) const EXTENDER: usize = MAX_PLUGINS;

/// How often pods left over in `unschedulable` are looked at.
const FLUSH_SECONDS: i64 = 30;

/// A waiting pod.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) profile: usize,
    pub(crate) shape: ShapeId,
    /// When it entered its queue; failures renew it.
    pub(crate) since: Tick,
    /// When it was first seen.
    pub(crate) first: Tick,
    /// When the leftover flush last moved it.
    flushed: Tick,
    pub(crate) attempts: u32,
    unschedulable_count: u32,
    error_count: u32,
    /// Plugins that rejected it; none after an error.
    pub(crate) rejectors: PluginMask,
    /// Those of them that wait for something that will surely come.
    pending: PluginMask,
    /// What its last attempt said, for people.
    message: Option<Arc<str>>,
    /// What holds it back, while it is gated.
    gate: Option<Arc<str>>,
    pub(crate) place: Place,
    arrival: u64,
    /// The sort key under which it is linked.
    linked: Option<SortKey>,
    /// Its cycle asks outside, and all turns were taken when it was last due.
    turn: bool,
}

impl Entry {
    /// Why it waits, for people.
    pub(crate) fn message(&self) -> Option<&str> {
        let shut = matches!(self.place, Place::Gated { .. } | Place::Held);
        let gate = self.gate.as_ref().filter(|_| shut);
        gate.or(self.message.as_ref()).map(|text| &**text)
    }

    /// Pods that any event means the same to.
    fn group(&self) -> Group {
        (self.shape, self.rejectors, self.pending)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Active,
    Backoff {
        error: bool,
        expiry: i64,
    },
    Unschedulable,
    Gated {
        plugin: usize,
    },
    /// Held back by the core.
    Held,
    /// It moves with its gang.
    Gang {
        gang: GangId,
    },
    InFlight,
    /// Its cycle panicked: left alone until it changes.
    Quarantined,
}

/// Shape, rejecting plugins, and the pending ones among them.
type Group = (ShapeId, PluginMask, PluginMask);
type ActiveKey = (SortKey, u64, PodId);
type BackoffKey = (i64, SortKey, u64, PodId);

/// The queue.
pub(crate) struct Queue {
    entries: IdMap<PodId, Entry>,
    active: BTreeSet<ActiveKey>,
    /// Active pods that wait for a turn to ask outside.
    turns: BTreeSet<ActiveKey>,
    backoff: BTreeSet<BackoffKey>,
    error_backoff: BTreeSet<BackoffKey>,
    unschedulable: BTreeMap<Group, BTreeSet<PodId>>,
    waiting: usize,
    gated: BTreeMap<(usize, usize), BTreeSet<PodId>>,
    quarantined: BTreeSet<PodId>,
    holds: Holds,
    gangs: GangQueue,
    in_flight: InFlightEvents,
    next_arrival: u64,
    next_flush: Tick,
    settings: Backoff,
    max_wait: i64,
    pub(crate) observations: Vec<Observation>,
    bugs: Bugs,
}

/// What is to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Popped {
    /// A pod by itself.
    Pod(PodId),
    /// A gang.
    Gang(GangId),
}

/// What the queue needs to know to move pods.
pub(crate) struct QueueCx<'a> {
    pub(crate) profiles: &'a [Arc<Profile>],
    pub(crate) cluster: &'a Cluster,
    pub(crate) now: Tick,
}

impl Queue {
    pub(crate) fn new(settings: Backoff, max_wait: i64) -> Self {
        Self {
            entries: IdMap::default(),
            active: BTreeSet::new(),
            turns: BTreeSet::new(),
            backoff: BTreeSet::new(),
            error_backoff: BTreeSet::new(),
            unschedulable: BTreeMap::new(),
            waiting: 0,
            gated: BTreeMap::new(),
            quarantined: BTreeSet::new(),
            holds: Holds::new(),
            gangs: GangQueue::default(),
            in_flight: InFlightEvents::default(),
            next_arrival: 0,
            next_flush: Tick(i64::MIN),
            settings,
            max_wait,
            observations: Vec::new(),
            bugs: Bugs::default(),
        }
    }

    /// The queue with a mistake in it, perhaps.
    pub(crate) fn with(self, bugs: Bugs) -> Self {
        Self { bugs, ..self }
    }

    /// A pod seen for the first time.
    pub(crate) fn add(&mut self, cx: &QueueCx<'_>, pod: PodId, profile: usize) {
        let Some(record) = cx.cluster.pod(pod) else {
            return;
        };
        self.remove(pod);
        let entry = Entry {
            profile,
            shape: record.shape,
            since: cx.now,
            first: cx.now,
            flushed: Tick(i64::MIN),
            attempts: 0,
            unschedulable_count: 0,
            error_count: 0,
            rejectors: 0,
            pending: 0,
            message: None,
            gate: None,
            place: Place::Unschedulable,
            arrival: self.next_arrival,
            linked: None,
            turn: false,
        };
        self.next_arrival += 1;
        self.entries.insert(pod, entry);
        self.activate(cx, pod, "UnscheduledPodAdd");
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, pod: PodId) -> Option<Entry> {
        self.unlink(pod);
        self.holds.remove(&pod);
        self.entries.remove(&pod)
    }

    pub(crate) fn entry(&self, pod: PodId) -> Option<&Entry> {
        self.entries.get(&pod)
    }

    /// Takes what is to be tried next: the first in order of all pods and gangs.
    /// `may_ask`: whether there is a turn for one whose cycle asks outside.
    pub(crate) fn pop(&mut self, may_ask: bool) -> Option<Popped> {
        let turn = self.turns.first().filter(|_| may_ask);
        let pod = self.active.first().into_iter().chain(turn).min();
        if let Some(gang) = self.first_gang()
            && pod.is_none_or(|(key, arrival, _)| gang < (*key, *arrival))
        {
            return self.pop_gang().map(Popped::Gang);
        }
        self.pop_pod(may_ask).map(Popped::Pod)
    }

    /// Takes the next pod; it is in flight until `done` or requeued.
    fn pop_pod(&mut self, may_ask: bool) -> Option<PodId> {
        let next = match (self.active.first(), self.turns.first().filter(|_| may_ask)) {
            (Some(active), Some(turn)) if turn < active => self.turns.pop_first(),
            (None, Some(_)) => self.turns.pop_first(),
            _ => self.active.pop_first(),
        };
        let early = next.is_none();
        let pod = match next {
            Some((_, _, pod)) => pod,
            // It might only have to be put back.
            None if !may_ask => return None,
            // Nothing better to do: a rejected pod may be tried early, one that
            // met an error not.
            None if bug!(self.bugs, ErrorTriedEarly) && self.backoff.is_empty() => {
                self.error_backoff.pop_first()?.3
            }
            None => self.backoff.pop_first()?.3,
        };
        let entry = self.entries.get_mut(&pod).expect("every linked pod has an entry");
        entry.attempts += 1;
        entry.turn = false;
        entry.place = Place::InFlight;
        self.in_flight.begin(pod);
        if early {
            self.observe("active", "PopFromBackoffQ");
        }
        Some(pod)
    }

    /// Puts back a pod that was just taken: its cycle asks outside, and there is no
    /// turn for it.
    pub(crate) fn postpone(&mut self, cx: &QueueCx<'_>, pod: PodId) {
        self.in_flight.end(pod);
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.attempts -= 1;
            entry.turn = true;
            self.link(cx, pod, Place::Active);
        }
    }

    /// The pod needs no more events: it is being bound, or gone.
    pub(crate) fn done(&mut self, pod: PodId) {
        self.in_flight.end(pod);
    }

    /// An attempt was rejected by plugins: waits for an event that helps. What the
    /// pending ones among them wait for will surely come, so that it ends backoff.
    pub(crate) fn rejected(
        &mut self,
        cx: &QueueCx<'_>,
        pod: PodId,
        (rejectors, pending): (PluginMask, PluginMask),
        message: Arc<str>,
    ) {
        if rejectors == 0 {
            // No event could wake it: as upstream, this counts as an error.
            return self.failed(cx, pod, message);
        }
        let (Some(entry), Some(record)) = (self.entries.get_mut(&pod), cx.cluster.pod(pod)) else {
            return;
        };
        entry.unschedulable_count += 1;
        entry.error_count = 0;
        entry.since = cx.now;
        (entry.rejectors, entry.pending) = (rejectors, pending);
        if entry.message.is_none() || !bug!(self.bugs, ExplanationStale) {
            entry.message = Some(message);
        }
        entry.shape = record.shape;
        let mut strategy = self.missed(cx, pod);
        if bug!(self.bugs, LostEvent) {
            strategy = Strategy::Skip;
        }
        self.in_flight.end(pod);
        self.requeue(cx, pod, strategy, "ScheduleAttemptFailure");
    }

    /// What the events that came while the pod was in flight mean for it; what is no
    /// longer known may have helped.
    fn missed(&self, cx: &QueueCx<'_>, pod: PodId) -> Strategy {
        let (Some(entry), Some(events)) = (self.entries.get(&pod), self.in_flight.missed(pod))
        else {
            return Strategy::AfterBackoff;
        };
        let most = if entry.pending == 0 { Strategy::AfterBackoff } else { Strategy::Immediately };
        let mut best = Strategy::Skip;
        for event in events {
            best = best.max(decide(cx, entry, event));
            if best == most {
                break;
            }
        }
        best
    }

    /// An attempt failed with an error: tried again after backing off.
    pub(crate) fn failed(&mut self, cx: &QueueCx<'_>, pod: PodId, message: Arc<str>) {
        self.in_flight.end(pod);
        let (Some(entry), Some(record)) = (self.entries.get_mut(&pod), cx.cluster.pod(pod)) else {
            return;
        };
        entry.error_count += 1;
        entry.since = cx.now;
        entry.shape = record.shape;
        (entry.rejectors, entry.pending) = (0, 0);
        entry.message = Some(message);
        self.requeue(cx, pod, Strategy::AfterBackoff, "ScheduleAttemptFailure");
    }

    /// The pod's cycle panicked: it is left alone until it changes.
    pub(crate) fn quarantine(&mut self, pod: PodId, message: Arc<str>) {
        self.unlink(pod);
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.message = Some(message);
            entry.place = Place::Quarantined;
            self.quarantined.insert(pod);
            self.observe("quarantined", "Panic");
        }
    }

    /// Counts a pod that enters a queue; as upstream, gated pods enter `unschedulable`.
    fn observe(&mut self, queue: &'static str, event: &'static str) {
        self.observations.push(Observation::Enqueued { queue, event });
    }
}
