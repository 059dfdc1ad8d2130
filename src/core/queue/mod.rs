//! The scheduling queue: active, backing off, unschedulable and gated pods.
//!
//! Owns when a waiting pod is tried next. Pods rejected by the same plugins with
//! the same shape wait as one group, so that an event is weighed once per group
//! and not once per pod. Must never lose a pod: every known pod of ours is in
//! exactly one queue, in flight, or placed.

mod backoff;
mod hints;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::bugs::{Bugs, bug};
use crate::cluster::Cluster;
use crate::framework::{ClusterEvent, Profile, SortKey};
use crate::hash::IdMap;
use crate::io::Tick;
use crate::model::{PodId, ShapeId};
use crate::report::Observation;
use hints::{Decision, InFlightEvents, decide, registered};

/// Plugins of a profile, by position, as a set.
pub(crate) type PluginMask = u64;

/// Most plugins a profile may have, so that a set of them is one word.
pub(crate) const MAX_PLUGINS: usize = 64;

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
    /// What its last attempt said, for people.
    message: Option<Arc<str>>,
    /// What holds it back, while it is gated.
    gate: Option<Arc<str>>,
    pub(crate) place: Place,
    arrival: u64,
    /// The sort key under which it is linked.
    linked: Option<SortKey>,
}

impl Entry {
    /// Why it waits, for people.
    pub(crate) fn message(&self) -> Option<&str> {
        let gated = self.gate.as_ref().filter(|_| matches!(self.place, Place::Gated { .. }));
        gated.or(self.message.as_ref()).map(|text| &**text)
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
    InFlight,
    /// Its cycle panicked: left alone until it changes.
    Quarantined,
}

type ActiveKey = (SortKey, u64, PodId);
type BackoffKey = (i64, SortKey, u64, PodId);

/// The queue.
pub(crate) struct Queue {
    entries: IdMap<PodId, Entry>,
    active: BTreeSet<ActiveKey>,
    backoff: BTreeSet<BackoffKey>,
    error_backoff: BTreeSet<BackoffKey>,
    unschedulable: BTreeMap<(ShapeId, PluginMask), BTreeSet<PodId>>,
    waiting: usize,
    gated: BTreeMap<(usize, usize), BTreeSet<PodId>>,
    quarantined: BTreeSet<PodId>,
    in_flight: InFlightEvents,
    next_arrival: u64,
    next_flush: Tick,
    settings: Backoff,
    max_wait: i64,
    pub(crate) observations: Vec<Observation>,
    bugs: Bugs,
}

/// What the queue needs to know to move pods.
pub(crate) struct QueueCx<'a> {
    pub(crate) profiles: &'a [Profile],
    pub(crate) cluster: &'a Cluster,
    pub(crate) now: Tick,
}

impl Queue {
    pub(crate) fn new(settings: Backoff, max_wait: i64) -> Self {
        Self {
            entries: IdMap::default(),
            active: BTreeSet::new(),
            backoff: BTreeSet::new(),
            error_backoff: BTreeSet::new(),
            unschedulable: BTreeMap::new(),
            waiting: 0,
            gated: BTreeMap::new(),
            quarantined: BTreeSet::new(),
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
            message: None,
            gate: None,
            place: Place::Unschedulable,
            arrival: self.next_arrival,
            linked: None,
        };
        self.next_arrival += 1;
        self.entries.insert(pod, entry);
        self.activate(cx, pod, "PodAdd");
    }

    /// Forgets a pod.
    pub(crate) fn remove(&mut self, pod: PodId) -> Option<Entry> {
        self.unlink(pod);
        self.entries.remove(&pod)
    }

    pub(crate) fn entry(&self, pod: PodId) -> Option<&Entry> {
        self.entries.get(&pod)
    }

    /// Takes the next pod to try; it is in flight until `done` or requeued.
    pub(crate) fn pop(&mut self) -> Option<PodId> {
        let pod = match self.active.pop_first() {
            Some((_, _, pod)) => pod,
            // Nothing better to do: a rejected pod may be tried early, one that
            // met an error not.
            None if bug!(self.bugs, ErrorTriedEarly) && self.backoff.is_empty() => {
                self.error_backoff.pop_first()?.3
            }
            None => self.backoff.pop_first()?.3,
        };
        let entry = self.entries.get_mut(&pod).expect("every linked pod has an entry");
        entry.attempts += 1;
        entry.place = Place::InFlight;
        self.in_flight.begin(pod);
        Some(pod)
    }

    /// The pod needs no more events: it is being bound, or gone.
    pub(crate) fn done(&mut self, pod: PodId) {
        self.in_flight.end(pod);
    }

    /// An attempt was rejected by plugins: waits for an event that helps.
    pub(crate) fn rejected(
        &mut self,
        cx: &QueueCx<'_>,
        pod: PodId,
        rejectors: PluginMask,
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
        entry.rejectors = rejectors;
        if entry.message.is_none() || !bug!(self.bugs, ExplanationStale) {
            entry.message = Some(message);
        }
        entry.shape = record.shape;
        let entry = &*entry;
        let helped = self
            .in_flight
            .missed(pod)
            .is_none_or(|mut events| events.any(|e| decide(cx, entry, e) == Decision::Queue));
        self.in_flight.end(pod);
        if helped && !bug!(self.bugs, LostEvent) {
            self.retry(cx, pod, "ScheduleAttemptFailure");
        } else {
            self.link_unschedulable(pod);
            self.observe("unschedulable", "ScheduleAttemptFailure");
        }
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
        entry.rejectors = 0;
        entry.message = Some(message);
        self.retry(cx, pod, "ScheduleAttemptFailure");
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

    /// The pod itself changed: an event if that may let it schedule.
    pub(crate) fn updated(&mut self, cx: &QueueCx<'_>, pod: PodId, event: Option<&ClusterEvent>) {
        let Some(record) = cx.cluster.pod(pod) else {
            return;
        };
        let shape = record.shape;
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        match entry.place {
            Place::InFlight => {
                if let Some(event) = event {
                    self.in_flight.record(event, Some(pod));
                }
            }
            Place::Active | Place::Backoff { .. } => {
                // Re-key: priority and order may have changed; the place stays.
                let place = entry.place;
                self.unlink(pod);
                self.set_shape(pod, shape);
                // A list may show an older version, with gates that were lifted since.
                if self.gate(cx, pod) {
                    return;
                }
                if place == Place::Active || !bug!(self.bugs, LostOnUpdate) {
                    self.link(cx, pod, place);
                }
            }
            Place::Gated { .. } => {
                self.unlink(pod);
                self.set_shape(pod, shape);
                if !self.gate(cx, pod) {
                    self.retry(cx, pod, "PodUpdate");
                }
            }
            Place::Quarantined => {
                if event.is_some() || shape != entry.shape {
                    self.unlink(pod);
                    self.set_shape(pod, shape);
                    self.retry(cx, pod, "PodUpdate");
                }
            }
            Place::Unschedulable => {
                self.unlink(pod);
                self.set_shape(pod, shape);
                let entry = self.entries.get(&pod);
                let helps = |e: &ClusterEvent| {
                    entry.is_some_and(|entry| decide(cx, entry, e) == Decision::Queue)
                };
                if event.is_some_and(helps) {
                    self.retry(cx, pod, "PodUpdate");
                } else {
                    self.link_unschedulable(pod);
                }
            }
        }
    }

    fn set_shape(&mut self, pod: PodId, shape: ShapeId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.shape = shape;
        }
    }

    /// Moves the pods that an event may help, all but the one that caused it.
    pub(crate) fn on_event(
        &mut self,
        cx: &QueueCx<'_>,
        event: &ClusterEvent,
        cause: Option<PodId>,
    ) {
        self.in_flight.record(event, None);
        let mut moved = Vec::new();
        for ((_, _), pods) in &self.unschedulable {
            let first = pods.first().and_then(|p| self.entries.get(p));
            if first.is_some_and(|entry| decide(cx, entry, event) == Decision::Queue) {
                let most = if bug!(self.bugs, LostWake) { 1 } else { usize::MAX };
                moved.extend(pods.iter().copied().filter(|p| Some(*p) != cause).take(most));
            }
        }
        for pod in moved {
            self.unlink(pod);
            self.retry(cx, pod, event.label);
        }
        let gates: Vec<_> = self
            .gated
            .keys()
            .filter(|(profile, plugin)| {
                let profile = cx.profiles.get(*profile);
                profile.is_some_and(|p| registered(&p.plugins()[*plugin], event))
            })
            .copied()
            .collect();
        for gate in gates {
            for pod in self.gated.remove(&gate).unwrap_or_default() {
                self.retry(cx, pod, event.label);
            }
        }
    }

    /// Timers: backoff that ended, pods that waited too long for an event.
    pub(crate) fn advance(&mut self, cx: &QueueCx<'_>) {
        for error in [false, true] {
            loop {
                let heap = if error { &self.error_backoff } else { &self.backoff };
                let Some(&(expiry, _, _, pod)) = heap.first() else {
                    break;
                };
                if expiry >= cx.now.secs() {
                    break;
                }
                self.unlink(pod);
                self.activate(cx, pod, "BackoffComplete");
            }
        }
        if cx.now >= self.next_flush {
            self.next_flush = cx.now.after_secs(FLUSH_SECONDS);
            let limit = cx.now.after_secs(-self.max_wait);
            let mut left_over: Vec<PodId> = self
                .unschedulable
                .values()
                .flatten()
                .chain(self.gated.values().flatten())
                .filter(|p| self.entries.get(p).is_some_and(|e| e.since.max(e.flushed) < limit))
                .copied()
                .collect();
            left_over.sort_unstable();
            for pod in left_over {
                self.unlink(pod);
                if let Some(entry) = self.entries.get_mut(&pod) {
                    entry.flushed = cx.now;
                }
                self.retry(cx, pod, "UnschedulableTimeout");
            }
        }
    }

    /// When `advance` next has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        let backoff = [&self.backoff, &self.error_backoff]
            .into_iter()
            .filter_map(|heap| heap.first())
            .map(|&(expiry, ..)| Tick((expiry + 1).saturating_mul(1_000_000)))
            .min();
        let flush = (self.waiting > 0 || !self.gated.is_empty()).then_some(self.next_flush);
        backoff.into_iter().chain(flush).min()
    }

    /// Puts a pod where it belongs after a failure or an event.
    fn retry(&mut self, cx: &QueueCx<'_>, pod: PodId, label: &'static str) {
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        let count =
            if entry.error_count > 0 { entry.error_count } else { entry.unschedulable_count };
        let error = entry.rejectors == 0;
        match self.settings.expiry(entry.since, count) {
            Some(expiry) if expiry >= cx.now.secs() && !bug!(self.bugs, BackoffIgnored) => {
                if self.gate(cx, pod) {
                    return;
                }
                self.link(cx, pod, Place::Backoff { error, expiry });
                self.observe("backoff", label);
            }
            _ => self.activate(cx, pod, label),
        }
    }

    fn activate(&mut self, cx: &QueueCx<'_>, pod: PodId, label: &'static str) {
        if self.gate(cx, pod) {
            self.observe("gated", label);
            return;
        }
        self.link(cx, pod, Place::Active);
        self.observe("active", label);
    }

    /// Runs PreEnqueue; true if the pod is gated now.
    fn gate(&mut self, cx: &QueueCx<'_>, pod: PodId) -> bool {
        let (Some(entry), Some(record)) = (self.entries.get(&pod), cx.cluster.pod(pod)) else {
            return false;
        };
        let Some(profile) = cx.profiles.get(entry.profile) else {
            return false;
        };
        let gate = profile.plugins().iter().enumerate().find_map(|(i, p)| {
            let status = p.plugin.as_pre_enqueue()?.pre_enqueue(record).err()?;
            Some((i, status))
        });
        let Some((plugin, status)) = gate.filter(|_| !bug!(self.bugs, GatedScheduled)) else {
            return false;
        };
        let entry_profile = entry.profile;
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = Place::Gated { plugin };
            entry.gate = Some(status.message().into());
        }
        self.gated.entry((entry_profile, plugin)).or_default().insert(pod);
        true
    }

    fn sort_key(&self, cx: &QueueCx<'_>, pod: PodId) -> Option<(SortKey, u64)> {
        let (entry, record) = (self.entries.get(&pod)?, cx.cluster.pod(pod)?);
        let plugins = cx.profiles.get(entry.profile)?.plugins();
        let sort = plugins.iter().find_map(|p| p.plugin.as_queue_sort());
        let mut key = sort.map_or([0; 3], |s| s.key(record, entry.since));
        if bug!(self.bugs, OrderInverted) {
            key[0] = -key[0];
        }
        Some((key, entry.arrival))
    }

    fn link(&mut self, cx: &QueueCx<'_>, pod: PodId, place: Place) {
        let Some((key, arrival)) = self.sort_key(cx, pod) else {
            return;
        };
        match place {
            Place::Active => {
                self.active.insert((key, arrival, pod));
            }
            Place::Backoff { error, expiry } => {
                let heap = if error { &mut self.error_backoff } else { &mut self.backoff };
                heap.insert((expiry, key, arrival, pod));
            }
            Place::Unschedulable | Place::Gated { .. } | Place::InFlight | Place::Quarantined => {}
        }
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = place;
            entry.linked = Some(key);
        }
    }

    fn link_unschedulable(&mut self, pod: PodId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = Place::Unschedulable;
            let group = self.unschedulable.entry((entry.shape, entry.rejectors)).or_default();
            self.waiting += usize::from(group.insert(pod));
        }
    }

    /// Takes a pod out of whatever queue it is in.
    fn unlink(&mut self, pod: PodId) {
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        let key = entry.linked.unwrap_or_default();
        match entry.place {
            Place::Active => {
                self.active.remove(&(key, entry.arrival, pod));
            }
            Place::Backoff { error, expiry } => {
                let heap = if error { &mut self.error_backoff } else { &mut self.backoff };
                heap.remove(&(expiry, key, entry.arrival, pod));
            }
            Place::Unschedulable => {
                let group = (entry.shape, entry.rejectors);
                if let Some(pods) = self.unschedulable.get_mut(&group) {
                    self.waiting -= usize::from(pods.remove(&pod));
                    if pods.is_empty() {
                        self.unschedulable.remove(&group);
                    }
                }
            }
            Place::Gated { plugin } => {
                let group = (entry.profile, plugin);
                if let Some(pods) = self.gated.get_mut(&group) {
                    pods.remove(&pod);
                    if pods.is_empty() {
                        self.gated.remove(&group);
                    }
                }
            }
            Place::InFlight => self.in_flight.end(pod),
            Place::Quarantined => {
                self.quarantined.remove(&pod);
            }
        }
    }

    fn observe(&mut self, queue: &'static str, event: &'static str) {
        self.observations.push(Observation::Enqueued { queue, event });
    }

    /// Pods known to the queue, and those of them in flight.
    pub(crate) fn tracked(&self) -> (usize, usize) {
        (self.entries.len(), self.in_flight.len())
    }

    /// Pods that wait per (profile, rejecting plugin), by position.
    pub(crate) fn rejections(&self) -> BTreeMap<(usize, usize), usize> {
        let mut counts = BTreeMap::new();
        for ((_, rejectors), pods) in &self.unschedulable {
            let profile = pods.first().and_then(|p| self.entries.get(p)).map_or(0, |e| e.profile);
            for plugin in (0..MAX_PLUGINS).filter(|p| rejectors >> p & 1 == 1) {
                *counts.entry((profile, plugin)).or_default() += pods.len();
            }
        }
        counts
    }

    /// (active, backoff, unschedulable, gated); quarantined pods count as unschedulable.
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        let backoff = self.backoff.len() + self.error_backoff.len();
        let waiting = self.waiting + self.quarantined.len();
        (self.active.len(), backoff, waiting, self.gated.values().map(BTreeSet::len).sum())
    }

    /// Waiting pods with the name of their queue, in the order they would be tried.
    pub(crate) fn listing(&self) -> impl Iterator<Item = (PodId, &'static str, &Entry)> {
        let active = self.active.iter().map(|k| (k.2, "active"));
        let backoff = self.backoff.iter().chain(&self.error_backoff).map(|k| (k.3, "backoff"));
        let unschedulable = self.unschedulable.values().flatten().map(|p| (*p, "unschedulable"));
        let gated = self.gated.values().flatten().map(|p| (*p, "gated"));
        let quarantined = self.quarantined.iter().map(|p| (*p, "quarantined"));
        let all = active.chain(backoff).chain(unschedulable).chain(gated).chain(quarantined);
        all.filter_map(|(pod, queue)| Some((pod, queue, self.entries.get(&pod)?)))
    }
}
