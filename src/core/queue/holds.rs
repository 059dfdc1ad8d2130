//! Pods that the core itself holds back or calls: a preemption under way, and
//! plugins that want a pod tried now.
//!
//! A hold is upstream's PreEnqueue of DefaultPreemption, given by the core: while it
//! lasts the pod is gated. An event that would have moved it is remembered as one
//! word, so that nothing is lost when the hold ends, however much happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hints::{Strategy, decide, wildcard};
use super::{Place, Queue, QueueCx};
use crate::framework::ClusterEvent;
use crate::model::PodId;

/// Why a pod is held, and what would have moved it since.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    message: Arc<str>,
    woken: Strategy,
    label: &'static str,
}

pub(super) type Holds = BTreeMap<PodId, Hold>;

impl Queue {
    /// Holds a pod back until `unhold`: in flight it goes on, but comes back to no
    /// other place than this. What its plugins would have it tried for meanwhile
    /// counts when the hold ends.
    pub(crate) fn hold(&mut self, pod: PodId, message: Arc<str>) {
        const LABEL: &str = "Hold";
        let Some(entry) = self.entries.get(&pod) else {
            return;
        };
        // Who was about to be tried still is, and whoever was gated is asked again.
        let woken = match entry.place {
            Place::Active | Place::Gang { .. } => Strategy::Immediately,
            Place::Backoff { .. } | Place::Gated { .. } => Strategy::AfterBackoff,
            _ => Strategy::Skip,
        };
        let place = entry.place;
        if let Some(hold) = self.holds.get_mut(&pod) {
            hold.message = message;
            return;
        }
        self.holds.insert(pod, Hold { message, woken, label: LABEL });
        if !matches!(place, Place::InFlight | Place::Quarantined) {
            self.unlink(pod);
            self.keep_held(pod, woken, LABEL);
        }
    }

    /// Puts a pod aside that was just taken: it is tried when its hold ends.
    pub(crate) fn set_aside(&mut self, pod: PodId, message: Arc<str>) {
        const LABEL: &str = "SetAside";
        self.in_flight.end(pod);
        let Some(entry) = self.entries.get_mut(&pod) else {
            return;
        };
        entry.attempts -= 1;
        let woken = Strategy::Immediately;
        self.holds.insert(pod, Hold { message, woken, label: LABEL });
        self.keep_held(pod, woken, LABEL);
    }

    /// Ends a hold: the pod is tried if anything that may help it came meanwhile,
    /// and waits for such an event otherwise.
    pub(crate) fn unhold(&mut self, cx: &QueueCx<'_>, pod: PodId) {
        let Some(hold) = self.holds.remove(&pod) else {
            return;
        };
        if self.entries.get(&pod).is_some_and(|e| e.place == Place::Held) {
            self.requeue(cx, pod, hold.woken, hold.label);
        }
    }

    /// Wants a pod tried now, whatever it waits for; PreEnqueue and holds still
    /// apply. In flight it is remembered until the pod comes back: then, as
    /// upstream, it is tried again after backing off, without any event.
    pub(crate) fn activate_now(&mut self, cx: &QueueCx<'_>, pod: PodId) {
        const LABEL: &str = "ForceActivate";
        match self.entries.get(&pod).map(|e| e.place) {
            Some(Place::Unschedulable | Place::Backoff { .. } | Place::Gated { .. }) => {
                self.unlink(pod);
                self.requeue(cx, pod, Strategy::Immediately, LABEL);
            }
            Some(Place::InFlight) => self.in_flight.record(&wildcard(LABEL), Some(pod)),
            Some(Place::Held) => self.wake(pod, Strategy::Immediately, LABEL),
            // A gang goes by its own time.
            Some(Place::Active | Place::Gang { .. } | Place::Quarantined) | None => {}
        }
    }

    /// What one pod waits for has come about, whatever rejected it: it is tried again
    /// after backing off.
    pub(crate) fn stir(&mut self, cx: &QueueCx<'_>, pod: PodId, label: &'static str) {
        match self.entries.get(&pod).map(|e| e.place) {
            Some(Place::Unschedulable) => {
                self.unlink(pod);
                self.requeue(cx, pod, Strategy::AfterBackoff, label);
            }
            Some(Place::InFlight) => self.in_flight.record(&wildcard(label), Some(pod)),
            Some(Place::Held) => self.wake(pod, Strategy::AfterBackoff, label),
            _ => {}
        }
    }

    /// Remembers that a held pod would have moved; false if it is not held.
    pub(super) fn keep_held(&mut self, pod: PodId, woken: Strategy, label: &'static str) -> bool {
        let Some(message) = self.holds.get(&pod).map(|hold| Arc::clone(&hold.message)) else {
            return false;
        };
        self.wake(pod, woken, label);
        if let Some(entry) = self.entries.get_mut(&pod) {
            (entry.place, entry.gate) = (Place::Held, Some(message));
        }
        self.observe("unschedulable", label);
        true
    }

    fn wake(&mut self, pod: PodId, woken: Strategy, label: &'static str) {
        if let Some(hold) = self.holds.get_mut(&pod)
            && woken > hold.woken
        {
            (hold.woken, hold.label) = (woken, label);
        }
    }

    /// An event came that concerns some of those held.
    pub(super) fn wake_held(
        &mut self,
        cx: &QueueCx<'_>,
        event: &ClusterEvent,
        concerns: impl Fn(&PodId) -> bool,
    ) {
        let woken: Vec<(PodId, Strategy)> = self
            .holds
            .keys()
            .filter(|pod| concerns(pod))
            .filter_map(|pod| Some((*pod, self.entries.get(pod)?)))
            .filter(|(_, entry)| entry.place == Place::Held)
            .map(|(pod, entry)| (pod, decide(cx, entry, event)))
            .collect();
        for (pod, strategy) in woken {
            self.wake(pod, strategy, event.label);
        }
    }
}
