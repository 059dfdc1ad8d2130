//! What moves waiting pods: events, their own changes, time.

use super::hints::{Strategy, decide, of_interest, registered, wildcard};
use super::{FLUSH_SECONDS, Place, Queue, QueueCx};
use crate::bugs::bug;
use crate::cluster::Cluster;
use crate::framework::{Actions, ClusterEvent};
use crate::io::Tick;
use crate::model::PodId;

/// Whom an event may reach.
#[derive(Clone, Copy, Default)]
pub(crate) struct Reach {
    /// All but the pod that caused it.
    pub(crate) cause: Option<PodId>,
    /// Pods of this priority at most.
    pub(crate) priority: Option<i32>,
}

impl Reach {
    fn includes(self, cluster: &Cluster, pod: PodId) -> bool {
        let low = |most| cluster.pod(pod).is_some_and(|p| p.priority <= most);
        Some(pod) != self.cause && self.priority.is_none_or(low)
    }
}

impl Queue {
    /// Moves the pods that an event may help.
    pub(crate) fn on_event(&mut self, cx: &QueueCx<'_>, event: &ClusterEvent, reach: Reach) {
        if !of_interest(cx.profiles, event) {
            return;
        }
        self.in_flight.record(event, None);
        let others = |pod: &PodId| reach.includes(cx.cluster, *pod);
        let mut moved = Vec::new();
        for pods in self.unschedulable.values() {
            let first = pods.first().and_then(|p| self.entries.get(p));
            let strategy = first.map_or(Strategy::Skip, |entry| decide(cx, entry, event));
            if strategy > Strategy::Skip {
                let most = if bug!(self.bugs, LostWake) { 1 } else { usize::MAX };
                let pods = pods.iter().copied().filter(others).take(most);
                moved.extend(pods.map(|pod| (pod, strategy)));
            }
        }
        // A gated pod is looked at again only for what its gating plugin asked to
        // hear of, and then by the hints of all that rejected it.
        for ((profile, plugin), pods) in &self.gated {
            let plugins = cx.profiles.get(*profile).map(|p| p.plugins());
            if plugins.and_then(|all| all.get(*plugin)).is_some_and(|p| registered(p, event)) {
                let pods = pods.iter().copied().filter(others);
                let entries = pods.filter_map(|p| Some((p, self.entries.get(&p)?)));
                let decided = entries.map(|(pod, entry)| (pod, decide(cx, entry, event)));
                moved.extend(decided.filter(|(_, strategy)| *strategy > Strategy::Skip));
            }
        }
        for (pod, strategy) in moved {
            self.unlink(pod);
            self.requeue(cx, pod, strategy, event.label);
        }
        self.move_gangs(cx, event);
        self.wake_held(cx, event, others);
    }

    /// A pod that waits for an event is tried without one.
    pub(crate) fn call(&mut self, cx: &QueueCx<'_>, pod: PodId, label: &'static str) {
        if self.entries.get(&pod).is_some_and(|entry| entry.place == Place::Unschedulable) {
            self.unlink(pod);
            self.requeue(cx, pod, Strategy::AfterBackoff, label);
        }
    }

    /// The pod itself changed.
    pub(crate) fn updated(&mut self, cx: &QueueCx<'_>, pod: PodId, event: &ClusterEvent) {
        let Some(record) = cx.cluster.pod(pod) else {
            return;
        };
        let shape = record.shape;
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        let place = entry.place;
        if place == Place::InFlight {
            if of_interest(cx.profiles, event) {
                self.in_flight.record(event, Some(pod));
            }
            return;
        }
        if let Place::Gang { gang } = place {
            let (news, stays) = (entry.shape != shape, cx.cluster.bound_to_gang(pod) == Some(gang));
            self.set_shape(pod, shape);
            if news || !stays || self.would_gate(cx, pod) {
                self.unlink(pod);
                self.activate(cx, pod, event.label);
            }
            return;
        }
        if place == Place::Quarantined {
            // What it says of itself, such as our own condition, is no change.
            if event.actions != Actions::UPDATE || shape != entry.shape {
                self.unlink(pod);
                self.set_shape(pod, shape);
                self.requeue(cx, pod, Strategy::AfterBackoff, event.label);
            }
            return;
        }
        self.unlink(pod);
        self.set_shape(pod, shape);
        let entry = self.entries.get(&pod);
        let strategy = entry.map_or(Strategy::Skip, |entry| decide(cx, entry, event));
        match place {
            Place::Active | Place::Backoff { .. } => {
                // Re-key: priority and order may have changed; the place stays. A list
                // may show an older version, with gates that were lifted since.
                if !self.gate(cx, pod) && (place == Place::Active || !bug!(self.bugs, LostOnUpdate))
                {
                    self.link(cx, pod, place);
                }
            }
            Place::Gated { plugin } if strategy == Strategy::Skip => {
                if let Some(entry) = self.entries.get(&pod) {
                    self.gated.entry((entry.profile, plugin)).or_default().insert(pod);
                }
                self.reword_gate(cx, pod);
            }
            Place::Held => self.wake_held(cx, event, |one| *one == pod),
            Place::Unschedulable if strategy == Strategy::Skip => self.link_unschedulable(pod),
            Place::Gated { .. } | Place::Unschedulable => {
                self.requeue(cx, pod, strategy, event.label);
            }
            Place::Gang { .. } | Place::InFlight | Place::Quarantined => {}
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
        self.advance_gangs(cx);
        if cx.now >= self.next_flush {
            self.next_flush = cx.now.after_secs(FLUSH_SECONDS);
            self.flush(cx);
        }
    }

    /// Pods that waited too long are tried again without an event, gated ones among
    /// them: a hint may be wrong.
    fn flush(&mut self, cx: &QueueCx<'_>) {
        let limit = cx.now.after_secs(-self.max_wait);
        self.flush_gangs(cx, limit);
        let waiting = self.unschedulable.values().chain(self.gated.values()).flatten();
        let mut left_over: Vec<PodId> = waiting
            .chain(self.holds.keys())
            .filter(|p| self.entries.get(p).is_some_and(|e| e.since.max(e.flushed) < limit))
            .copied()
            .collect();
        left_over.sort_unstable();
        let event = wildcard("UnschedulableTimeout");
        for pod in left_over {
            let Some(entry) = self.entries.get_mut(&pod) else {
                continue;
            };
            if matches!(entry.place, Place::InFlight | Place::Quarantined) {
                continue;
            }
            entry.flushed = cx.now;
            let strategy = self.entries.get(&pod).map_or(Strategy::Skip, |e| decide(cx, e, &event));
            self.unlink(pod);
            self.requeue(cx, pod, strategy, event.label);
        }
    }

    /// When `advance` next has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        let backoff = [&self.backoff, &self.error_backoff]
            .into_iter()
            .filter_map(|heap| heap.first())
            .map(|&(expiry, ..)| Tick((expiry + 1).saturating_mul(1_000_000)))
            .min();
        let waits = self.waiting > 0 || !self.gated.is_empty() || !self.holds.is_empty();
        let gangs = self.next_gang_deadline(self.next_flush);
        backoff.into_iter().chain(waits.then_some(self.next_flush)).chain(gangs).min()
    }
}
