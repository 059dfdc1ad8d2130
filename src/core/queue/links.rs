//! Where a pod is: linking, unlinking, and the one way from "may be tried again"
//! to a queue.

use std::sync::Arc;

use super::hints::Strategy;
use super::{Place, Queue, QueueCx};
use crate::bugs::bug;
use crate::framework::{ExtensionPoint, SortKey, Status};
use crate::model::{PodId, ShapeId};

impl Queue {
    /// Puts a pod that is in no queue where it belongs: held, waiting for an event,
    /// backing off, gated or active.
    pub(super) fn requeue(
        &mut self,
        cx: &QueueCx<'_>,
        pod: PodId,
        strategy: Strategy,
        label: &'static str,
    ) {
        if self.keep_held(pod, strategy, label) {
            return;
        }
        match strategy {
            // It waits with its gang, whatever it waits for.
            Strategy::Skip if cx.cluster.bound_to_gang(pod).is_some() => {
                self.activate(cx, pod, label);
            }
            Strategy::Skip => {
                self.link_unschedulable(pod);
                self.observe("unschedulable", label);
            }
            Strategy::AfterBackoff => self.retry(cx, pod, label),
            Strategy::Immediately => self.activate(cx, pod, label),
        }
    }

    /// Active, or back to backing off if that is not over.
    fn retry(&mut self, cx: &QueueCx<'_>, pod: PodId, label: &'static str) {
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        let count =
            if entry.error_count > 0 { entry.error_count } else { entry.unschedulable_count };
        let error = entry.rejectors == 0 && entry.error_count > 0;
        match self.settings.expiry(entry.since, count) {
            Some(expiry) if expiry >= cx.now.secs() && !bug!(self.bugs, BackoffIgnored) => {
                // PreEnqueue runs on the way in, because a pod may be popped from here.
                if self.gate(cx, pod) {
                    return self.observe("unschedulable", label);
                }
                self.link(cx, pod, Place::Backoff { error, expiry });
                self.observe("backoff", label);
            }
            _ => self.activate(cx, pod, label),
        }
    }

    pub(super) fn activate(&mut self, cx: &QueueCx<'_>, pod: PodId, label: &'static str) {
        if self.gate(cx, pod) {
            return self.observe("unschedulable", label);
        }
        self.link(cx, pod, Place::Active);
        self.observe("active", label);
    }

    /// The first PreEnqueue plugin that says no; the one that gated the pod before
    /// is asked first.
    fn gatekeeper(&self, cx: &QueueCx<'_>, pod: PodId) -> Option<(usize, Status)> {
        let (entry, record) = (self.entries.get(&pod)?, cx.cluster.pod(pod)?);
        let profile = cx.profiles.get(entry.profile)?;
        let before = match entry.place {
            Place::Gated { plugin } => Some(plugin),
            _ => None,
        };
        let gates = profile.at(ExtensionPoint::PreEnqueue).iter().copied();
        let others = gates.filter(|i| Some(*i) != before);
        before.into_iter().chain(others).find_map(|i| {
            let gate = profile.plugins().get(i)?.plugin.as_pre_enqueue()?;
            Some((i, gate.pre_enqueue(record).err()?))
        })
    }

    /// Whether PreEnqueue would gate the pod.
    pub(super) fn would_gate(&self, cx: &QueueCx<'_>, pod: PodId) -> bool {
        self.gatekeeper(cx, pod).is_some()
    }

    /// Runs PreEnqueue; true if the pod is gated now. The plugin counts among those
    /// that rejected the pod, so that its hints are asked.
    pub(super) fn gate(&mut self, cx: &QueueCx<'_>, pod: PodId) -> bool {
        let Some((plugin, status)) = self.gatekeeper(cx, pod) else {
            return false;
        };
        if bug!(self.bugs, GatedScheduled) {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = Place::Gated { plugin };
            entry.gate = Some(status.message().into());
            entry.rejectors |= 1 << plugin;
            self.gated.entry((entry.profile, plugin)).or_default().insert(pod);
        }
        true
    }

    /// Says anew what holds a gated pod back.
    pub(super) fn reword_gate(&mut self, cx: &QueueCx<'_>, pod: PodId) {
        let Some((_, status)) = self.gatekeeper(cx, pod) else {
            return;
        };
        if let Some(entry) = self.entries.get_mut(&pod) {
            let text: Arc<str> = status.message().into();
            entry.gate = Some(text);
        }
    }

    fn sort_key(&self, cx: &QueueCx<'_>, pod: PodId) -> Option<(SortKey, u64)> {
        let (entry, record) = (self.entries.get(&pod)?, cx.cluster.pod(pod)?);
        let mut sorts = cx.profiles.get(entry.profile)?.called(ExtensionPoint::QueueSort);
        let sort = sorts.find_map(|(_, p)| p.plugin.as_queue_sort());
        let mut key = sort.map_or([0; 3], |s| s.key(record, entry.since));
        if bug!(self.bugs, OrderInverted) {
            key[0] = -key[0];
        }
        Some((key, entry.arrival))
    }

    pub(super) fn link(&mut self, cx: &QueueCx<'_>, pod: PodId, place: Place) {
        if let Some(gang) = cx.cluster.bound_to_gang(pod) {
            return self.join_gang(gang, pod);
        }
        let Some((key, arrival)) = self.sort_key(cx, pod) else {
            return;
        };
        match place {
            Place::Active => {
                let waits = self.entries.get(&pod).is_some_and(|e| e.turn);
                let active = if waits { &mut self.turns } else { &mut self.active };
                active.insert((key, arrival, pod));
            }
            Place::Backoff { error, expiry } => {
                let heap = if error { &mut self.error_backoff } else { &mut self.backoff };
                heap.insert((expiry, key, arrival, pod));
            }
            Place::Unschedulable
            | Place::Gated { .. }
            | Place::Held
            | Place::Gang { .. }
            | Place::InFlight
            | Place::Quarantined => {}
        }
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = place;
            entry.linked = Some(key);
        }
    }

    pub(super) fn link_unschedulable(&mut self, pod: PodId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.place = Place::Unschedulable;
            let group = self.unschedulable.entry(entry.group()).or_default();
            self.waiting += usize::from(group.insert(pod));
        }
    }

    /// Takes a pod out of whatever queue it is in. Its entry keeps the old place
    /// until it gets a new one.
    pub(super) fn unlink(&mut self, pod: PodId) {
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        let key = entry.linked.unwrap_or_default();
        match entry.place {
            Place::Active => {
                let active = if entry.turn { &mut self.turns } else { &mut self.active };
                active.remove(&(key, entry.arrival, pod));
            }
            Place::Backoff { error, expiry } => {
                let heap = if error { &mut self.error_backoff } else { &mut self.backoff };
                heap.remove(&(expiry, key, entry.arrival, pod));
            }
            Place::Unschedulable => {
                let group = entry.group();
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
            Place::Gang { gang } => self.leave_gang(gang, pod),
            Place::InFlight => self.in_flight.end(pod),
            Place::Quarantined => {
                self.quarantined.remove(&pod);
            }
            Place::Held => {}
        }
    }

    pub(super) fn set_shape(&mut self, pod: PodId, shape: ShapeId) {
        if let Some(entry) = self.entries.get_mut(&pod) {
            entry.shape = shape;
            // As another it may need no turn.
            entry.turn = false;
        }
    }
}
