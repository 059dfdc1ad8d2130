//! Gangs in the queue: one entity each, whatever the number of members.
//!
//! Owns when a gang is tried next. A member that nothing but its gang holds back is at
//! [`Place::Gang`](super::Place::Gang); all of them move with the gang. A gang that failed
//! waits for an event that helps any of its members' shapes, and then backs off. Must
//! never lose a member: it is at its gang, in a queue of its own, in flight, or placed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::hints::{Strategy, weigh};
use super::{Place, PluginMask, Queue, QueueCx};
use crate::bugs::bug;
use crate::framework::{ClusterEvent, ExtensionPoint, SortKey};
use crate::gang::GangId;
use crate::hash::IdMap;
use crate::io::Tick;
use crate::model::{PodId, PodShape};
use crate::report::GangCounts;

/// Why members of one shape found no room.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub(crate) shape: Arc<PodShape>,
    pub(crate) rejectors: PluginMask,
    pub(crate) pending: PluginMask,
}

/// A gang in the queue.
#[derive(Clone, Debug)]
pub(crate) struct GangEntry {
    pub(crate) profile: usize,
    /// When it last failed.
    since: Tick,
    /// Since when it could be tried, and was not bound.
    pub(crate) first: Tick,
    /// Since when its minimum exists; none if it is bound, or was said to be.
    complete: Option<Tick>,
    flushed: Tick,
    pub(crate) attempts: u32,
    unschedulable_count: u32,
    error_count: u32,
    rejected: Vec<Rejected>,
    pub(crate) place: GangPlace,
    arrival: u64,
    linked: Option<SortKey>,
    rank: Rank,
}

impl GangEntry {
    /// Whether it would be tried now.
    pub(crate) fn is_active(&self) -> bool {
        self.place == GangPlace::Active
    }
}

/// What a gang's place in the order depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    /// A part of it is bound: it comes before all else.
    pub(crate) urgent: bool,
    pub(crate) priority: i32,
    /// Its age.
    pub(crate) created: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GangPlace {
    /// There is nothing to try: members are missing, or all is bound.
    Idle,
    Active,
    Backoff {
        error: bool,
        expiry: i64,
    },
    /// It waits for an event.
    Waiting,
    /// It has room, and is on its way to be bound.
    InFlight,
    /// Its cycle panicked: left alone until it changes.
    Quarantined,
    /// Pods are being made to go for it: not tried before that is settled.
    Held,
}

impl GangPlace {
    /// The queue that its members are said to be in.
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "gated",
            Self::Active | Self::InFlight => "active",
            Self::Backoff { .. } => "backoff",
            Self::Waiting | Self::Held => "unschedulable",
            Self::Quarantined => "quarantined",
        }
    }
}

/// How a gang has changed since it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stir {
    /// Worth another try: members came, went, or became something else.
    pub(crate) news: bool,
}

/// All gangs in the queue.
#[derive(Default)]
pub(crate) struct GangQueue {
    entries: IdMap<GangId, GangEntry>,
    active: BTreeSet<(SortKey, u64, GangId)>,
    backoff: BTreeSet<(i64, SortKey, u64, GangId)>,
    waiting: BTreeSet<GangId>,
    /// Members that nothing but their gang holds back.
    pub(super) members: BTreeMap<GangId, BTreeSet<PodId>>,
    changed: BTreeMap<GangId, Stir>,
}

impl Queue {
    /// A gang has to be looked at.
    pub(crate) fn gang_changed(&mut self, gang: GangId, news: bool) {
        self.gangs.changed.entry(gang).or_default().news |= news;
    }

    pub(crate) fn take_changed_gangs(&mut self) -> BTreeMap<GangId, Stir> {
        std::mem::take(&mut self.gangs.changed)
    }

    /// What has changed of a gang is no reason to try it again.
    pub(crate) fn take_gang_news(&mut self, gang: GangId) {
        self.gangs.changed.remove(&gang);
    }

    pub(crate) fn gang(&self, gang: GangId) -> Option<&GangEntry> {
        self.gangs.entries.get(&gang)
    }

    /// Members that nothing but their gang holds back, in order of their numbers.
    pub(crate) fn gathered(&self, gang: GangId) -> impl Iterator<Item = PodId> + '_ {
        self.gangs.members.get(&gang).into_iter().flatten().copied()
    }

    pub(crate) fn is_gathered(&self, gang: GangId, pod: PodId) -> bool {
        self.gangs.members.get(&gang).is_some_and(|members| members.contains(&pod))
    }

    /// Puts a pod that is in no queue to its gang.
    pub(super) fn join_gang(&mut self, gang: GangId, pod: PodId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = Place::Gang { gang };
            self.gangs.members.entry(gang).or_default().insert(pod);
            self.gang_changed(gang, true);
        }
    }

    /// Takes a pod from its gang.
    pub(super) fn leave_gang(&mut self, gang: GangId, pod: PodId) {
        if let Some(members) = self.gangs.members.get_mut(&gang) {
            members.remove(&pod);
            if members.is_empty() {
                self.gangs.members.remove(&gang);
            }
        }
        self.gang_changed(gang, true);
    }

    /// Members go alone from now on.
    pub(crate) fn disband(&mut self, cx: &QueueCx<'_>, gang: GangId) {
        for pod in self.gangs.members.remove(&gang).unwrap_or_default() {
            self.activate(cx, pod, "GangFormed");
        }
    }

    /// Members that wait by themselves come back to their gang.
    pub(crate) fn gather(&mut self, cx: &QueueCx<'_>, pods: impl Iterator<Item = PodId>) {
        for pod in pods {
            let place = self.entries.get(&pod).map(|entry| entry.place);
            if let Some(Place::Active | Place::Backoff { .. } | Place::Unschedulable) = place {
                self.unlink(pod);
                self.activate(cx, pod, "GangUnformed");
            }
        }
    }

    /// Members of the gang are on their way: they are in flight.
    pub(crate) fn depart(&mut self, gang: GangId, pods: &[PodId]) {
        let attempts = self.gangs.entries.get(&gang).map_or(1, |entry| entry.attempts);
        for pod in pods {
            if let Some(members) = self.gangs.members.get_mut(&gang) {
                members.remove(pod);
            }
            if let Some(entry) = self.entries.get_mut(pod) {
                entry.place = Place::InFlight;
                entry.attempts = attempts;
            }
        }
        if self.gangs.members.get(&gang).is_some_and(BTreeSet::is_empty) {
            self.gangs.members.remove(&gang);
        }
    }

    /// Members are back from where they were on their way to.
    pub(crate) fn come_back(&mut self, cx: &QueueCx<'_>, pods: impl Iterator<Item = PodId>) {
        for pod in pods {
            if self.entries.get(&pod).is_some_and(|entry| entry.place == Place::InFlight) {
                self.in_flight.end(pod);
                self.activate(cx, pod, "GangFailed");
            }
        }
    }

    /// What its members are told; they say the same.
    pub(crate) fn word_member(&mut self, pod: PodId, message: &Arc<str>) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.message = Some(Arc::clone(message));
        }
    }

    /// A gang can be tried: now if it is new or has news, else when its time has come.
    pub(crate) fn offer_gang(
        &mut self,
        cx: &QueueCx<'_>,
        gang: GangId,
        (profile, rank): (usize, Rank),
        news: bool,
    ) {
        let arrival = self.next_arrival;
        let entry = self.gangs.entries.entry(gang).or_insert_with(|| GangEntry {
            profile,
            since: cx.now,
            first: cx.now,
            complete: None,
            flushed: Tick(i64::MIN),
            attempts: 0,
            unschedulable_count: 0,
            error_count: 0,
            rejected: Vec::new(),
            place: GangPlace::Idle,
            arrival,
            linked: None,
            rank,
        });
        self.next_arrival += u64::from(entry.arrival == arrival);
        let (place, ranked) = (entry.place, entry.rank != rank);
        entry.complete.get_or_insert(cx.now);
        if place == GangPlace::InFlight {
            return;
        }
        (entry.profile, entry.rank) = (profile, rank);
        match place {
            GangPlace::Idle => {
                entry.first = cx.now;
                self.retry_gang(cx, gang);
            }
            GangPlace::Waiting | GangPlace::Quarantined if news => self.retry_gang(cx, gang),
            _ if ranked => {
                self.unlink_gang(gang);
                self.link_gang(cx, gang, place);
            }
            _ => {}
        }
    }

    /// There is nothing to try. `formed`: because all is well.
    pub(crate) fn idle_gang(&mut self, gang: GangId, formed: bool) {
        self.unlink_gang(gang);
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.place = GangPlace::Idle;
            if formed {
                (entry.unschedulable_count, entry.error_count) = (0, 0);
            }
        }
    }

    /// Its minimum is bound: since when it existed, once.
    pub(crate) fn take_complete(&mut self, gang: GangId) -> Option<Tick> {
        self.gangs.entries.get_mut(&gang)?.complete.take()
    }

    /// The gang is no more.
    pub(crate) fn forget_gang(&mut self, gang: GangId) {
        self.unlink_gang(gang);
        self.gangs.entries.remove(&gang);
        self.gangs.changed.remove(&gang);
    }

    /// The attempt found no room: it waits for an event that helps one of these.
    pub(crate) fn gang_rejected(
        &mut self,
        cx: &QueueCx<'_>,
        gang: GangId,
        rejected: Vec<Rejected>,
    ) {
        let Some(entry) = self.gangs.entries.get_mut(&gang) else {
            return;
        };
        if rejected.iter().all(|r| r.rejectors == 0) {
            return self.gang_failed(cx, gang);
        }
        entry.unschedulable_count += 1;
        entry.error_count = 0;
        entry.since = cx.now;
        entry.rejected = rejected;
        entry.place = GangPlace::Waiting;
        self.gangs.waiting.insert(gang);
        self.observe("unschedulable", "ScheduleAttemptFailure");
    }

    /// The attempt failed: it is tried again after backing off.
    pub(crate) fn gang_failed(&mut self, cx: &QueueCx<'_>, gang: GangId) {
        self.unlink_gang(gang);
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.error_count += 1;
            entry.since = cx.now;
            entry.rejected.clear();
            self.retry_gang(cx, gang);
        }
    }

    /// The attempt ended for a reason outside it: it is tried again at once.
    pub(crate) fn gang_again(&mut self, cx: &QueueCx<'_>, gang: GangId) {
        self.unlink_gang(gang);
        self.link_gang(cx, gang, GangPlace::Active);
    }

    /// How long a gang was passed over is counted from now on.
    pub(crate) fn gang_waits_anew(&mut self, now: Tick, gang: GangId) {
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.first = now;
        }
    }

    /// A gang that waits for an event is tried without one.
    pub(crate) fn call_gang(&mut self, cx: &QueueCx<'_>, gang: GangId) {
        if self.gang(gang).is_some_and(|entry| entry.place == GangPlace::Waiting) {
            self.retry_gang(cx, gang);
        }
    }

    /// Pods are being made to go for it: it is not tried until that is settled.
    pub(crate) fn hold_gang(&mut self, gang: GangId) {
        self.unlink_gang(gang);
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.place = GangPlace::Held;
        }
    }

    /// That is settled: it is tried after backing off, or at once.
    pub(crate) fn unhold_gang(&mut self, cx: &QueueCx<'_>, gang: GangId, at_once: bool) {
        if !self.gang(gang).is_some_and(|entry| entry.place == GangPlace::Held) {
            return;
        }
        if at_once {
            self.gang_again(cx, gang);
        } else {
            self.retry_gang(cx, gang);
        }
    }

    /// What it waited for has come about: it is tried now, whatever it waits for else.
    pub(crate) fn gang_now(&mut self, cx: &QueueCx<'_>, gang: GangId) {
        let place = self.gang(gang).map(|entry| entry.place);
        if let Some(GangPlace::Waiting | GangPlace::Backoff { error: false, .. }) = place {
            self.gang_again(cx, gang);
        }
    }

    /// All it needs is on its way: it is not tried until that is over.
    pub(crate) fn gang_departs(&mut self, gang: GangId) {
        self.unlink_gang(gang);
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.place = GangPlace::InFlight;
        }
    }

    /// What it had is gone, though it was on its way: the next try backs off.
    pub(crate) fn gang_lost(&mut self, now: Tick, gang: GangId) {
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.error_count += 1;
            entry.since = now;
        }
    }

    pub(crate) fn quarantine_gang(&mut self, gang: GangId) {
        self.unlink_gang(gang);
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            entry.place = GangPlace::Quarantined;
        }
    }

    fn retry_gang(&mut self, cx: &QueueCx<'_>, gang: GangId) {
        self.unlink_gang(gang);
        let Some(entry) = self.gangs.entries.get(&gang) else {
            return;
        };
        let (errors, rejections) = (entry.error_count, entry.unschedulable_count);
        let count = if errors > 0 { errors } else { rejections };
        match self.settings.expiry(entry.since, count) {
            Some(expiry) if expiry >= cx.now.secs() => {
                let place = GangPlace::Backoff { error: errors > 0, expiry };
                self.link_gang(cx, gang, place);
            }
            _ => self.link_gang(cx, gang, GangPlace::Active),
        }
    }

    fn gang_key(&self, cx: &QueueCx<'_>, gang: GangId) -> Option<(SortKey, u64)> {
        let entry = self.gangs.entries.get(&gang)?;
        let any = cx.cluster.gang(gang)?.members.first().copied();
        let mut sorts = cx.profiles.get(entry.profile)?.called(ExtensionPoint::QueueSort);
        let sort = sorts.find_map(|(_, p)| p.plugin.as_queue_sort());
        let mut key = [0; 3];
        if let (Some(sort), Some(pod)) = (sort, any.and_then(|pod| cx.cluster.pod(pod))) {
            let mut pod = pod.clone();
            pod.priority = entry.rank.priority;
            key = sort.key(&pod, entry.rank.created);
        }
        if entry.rank.urgent {
            key[0] = i64::MIN;
        }
        Some((key, entry.arrival))
    }

    /// Whether one gang comes before another.
    pub(crate) fn goes_before(&self, cx: &QueueCx<'_>, one: GangId, other: GangId) -> bool {
        match (self.gang_key(cx, one), self.gang_key(cx, other)) {
            (Some(one), Some(other)) => one < other,
            _ => false,
        }
    }

    fn link_gang(&mut self, cx: &QueueCx<'_>, gang: GangId, place: GangPlace) {
        let Some((key, arrival)) = self.gang_key(cx, gang) else {
            return;
        };
        match place {
            GangPlace::Active => drop(self.gangs.active.insert((key, arrival, gang))),
            GangPlace::Backoff { expiry, .. } => {
                self.gangs.backoff.insert((expiry, key, arrival, gang));
            }
            GangPlace::Waiting => drop(self.gangs.waiting.insert(gang)),
            GangPlace::Idle | GangPlace::InFlight | GangPlace::Quarantined | GangPlace::Held => {}
        }
        if let Some(entry) = self.gangs.entries.get_mut(&gang) {
            (entry.place, entry.linked) = (place, Some(key));
        }
    }

    fn unlink_gang(&mut self, gang: GangId) {
        let Some(entry) = self.gangs.entries.get(&gang) else {
            return;
        };
        let (key, arrival) = (entry.linked.unwrap_or_default(), entry.arrival);
        match entry.place {
            GangPlace::Active => drop(self.gangs.active.remove(&(key, arrival, gang))),
            GangPlace::Backoff { expiry, .. } => {
                self.gangs.backoff.remove(&(expiry, key, arrival, gang));
            }
            GangPlace::Waiting => drop(self.gangs.waiting.remove(&gang)),
            GangPlace::Idle | GangPlace::InFlight | GangPlace::Quarantined | GangPlace::Held => {}
        }
    }

    /// The first gang in order, with its key.
    pub(super) fn first_gang(&self) -> Option<(SortKey, u64)> {
        self.gangs.active.first().map(|(key, arrival, _)| (*key, *arrival))
    }

    /// Takes the first gang to try it.
    pub(super) fn pop_gang(&mut self) -> Option<GangId> {
        let (_, _, gang) = self.gangs.active.pop_first()?;
        let entry = self.gangs.entries.get_mut(&gang)?;
        entry.attempts += 1;
        entry.place = GangPlace::InFlight;
        Some(gang)
    }

    /// Moves the gangs that an event may help.
    pub(super) fn move_gangs(&mut self, cx: &QueueCx<'_>, event: &ClusterEvent) {
        if bug!(self.bugs, GangEventLost) {
            return;
        }
        let weighed = self.gangs.waiting.iter().filter_map(|gang| {
            let entry = self.gangs.entries.get(gang)?;
            let each = entry
                .rejected
                .iter()
                .map(|r| weigh(cx, entry.profile, &r.shape, (r.rejectors, r.pending), event));
            Some((*gang, each.max()?))
        });
        let moved: Vec<_> = weighed.filter(|(_, strategy)| *strategy > Strategy::Skip).collect();
        for (gang, strategy) in moved {
            self.unlink_gang(gang);
            match strategy {
                Strategy::Immediately => self.link_gang(cx, gang, GangPlace::Active),
                _ => self.retry_gang(cx, gang),
            }
        }
    }

    /// Timers of gangs.
    pub(super) fn advance_gangs(&mut self, cx: &QueueCx<'_>) {
        while let Some(&(expiry, _, _, gang)) = self.gangs.backoff.first() {
            if expiry >= cx.now.secs() {
                break;
            }
            self.unlink_gang(gang);
            self.link_gang(cx, gang, GangPlace::Active);
        }
    }

    /// Gangs that waited too long are tried again without an event.
    pub(super) fn flush_gangs(&mut self, cx: &QueueCx<'_>, limit: Tick) {
        let stale = |gang: &&GangId| {
            let entry = self.gangs.entries.get(gang);
            entry.is_some_and(|e| e.since.max(e.flushed) < limit)
        };
        let left: Vec<GangId> = self.gangs.waiting.iter().filter(stale).copied().collect();
        for gang in left {
            if let Some(entry) = self.gangs.entries.get_mut(&gang) {
                entry.flushed = cx.now;
            }
            self.retry_gang(cx, gang);
        }
    }

    /// When `advance_gangs` next has something to do; `flush`: when leftovers are flushed.
    pub(super) fn next_gang_deadline(&self, flush: Tick) -> Option<Tick> {
        let backoff = self.gangs.backoff.first();
        let backoff = backoff.map(|&(expiry, ..)| Tick((expiry + 1).saturating_mul(1_000_000)));
        let waits = (!self.gangs.waiting.is_empty()).then_some(flush);
        backoff.into_iter().chain(waits).min()
    }

    /// Other profiles are in force: who rejected a gang is forgotten.
    pub(super) fn reload_gangs(&mut self, cx: &QueueCx<'_>) {
        let waiting: Vec<GangId> = self.gangs.waiting.iter().copied().collect();
        for gang in waiting {
            if let Some(entry) = self.gangs.entries.get_mut(&gang) {
                entry.rejected.clear();
            }
            self.retry_gang(cx, gang);
        }
        let all: Vec<GangId> = self.gangs.entries.keys().copied().collect();
        for gang in all {
            self.gang_changed(gang, false);
        }
    }

    /// Members at their gangs, with the name of the queue that the gang is in.
    pub(super) fn gang_listing(&self) -> impl Iterator<Item = (PodId, &'static str)> + '_ {
        self.gangs.members.iter().flat_map(|(gang, pods)| {
            let place = self.gangs.entries.get(gang).map_or(GangPlace::Idle, |e| e.place);
            pods.iter().map(move |pod| (*pod, place.name()))
        })
    }

    /// Gangs that have members here, by queue.
    pub(crate) fn count_gangs(&self) -> GangCounts {
        let mut counts = GangCounts::default();
        for gang in self.gangs.members.keys() {
            let place = self.gangs.entries.get(gang).map_or(GangPlace::Idle, |e| e.place);
            *match place {
                GangPlace::Active | GangPlace::InFlight => &mut counts.active,
                GangPlace::Backoff { .. } => &mut counts.backoff,
                GangPlace::Waiting | GangPlace::Quarantined | GangPlace::Held => {
                    &mut counts.unschedulable
                }
                GangPlace::Idle => &mut counts.incomplete,
            } += 1;
        }
        counts
    }

    /// Members at gangs by queue: active, backing off, waiting, gated.
    pub(super) fn gang_counts(&self) -> (usize, usize, usize, usize) {
        let mut counts = (0, 0, 0, 0);
        for (gang, pods) in &self.gangs.members {
            let place = self.gangs.entries.get(gang).map_or(GangPlace::Idle, |e| e.place);
            *match place {
                GangPlace::Active | GangPlace::InFlight => &mut counts.0,
                GangPlace::Backoff { .. } => &mut counts.1,
                GangPlace::Waiting | GangPlace::Quarantined | GangPlace::Held => &mut counts.2,
                GangPlace::Idle => &mut counts.3,
            } += pods.len();
        }
        counts
    }
}
