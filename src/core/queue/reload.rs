//! Waiting pods under another version of their profile.
//!
//! Owns what a reload means for whoever waits: which plugins rejected a pod are
//! positions in the old version, so they are forgotten, PreEnqueue is asked anew, and the
//! pod is tried again as soon as its backoff is over. Must never move a pod whose attempt
//! is under way: that ends under the version it began with.

use std::sync::Arc;

use super::hints::Strategy;
use super::{Backoff, Place, Queue, QueueCx};
use crate::bugs::bug;
use crate::model::PodId;

/// What moved a pod, for metrics.
const LABEL: &str = "ConfigurationReload";

impl Queue {
    /// Takes all that waits over to the profiles in force now.
    pub(crate) fn reload(&mut self, cx: &QueueCx<'_>, settings: Backoff) {
        self.settings = settings;
        let mut pods: Vec<PodId> = self.entries.keys().copied().collect();
        pods.sort_unstable();
        for pod in pods {
            self.take_over(cx, pod);
        }
        self.reload_gangs(cx);
    }

    fn take_over(&mut self, cx: &QueueCx<'_>, pod: PodId) {
        let Some(place) = self.entries.get(&pod).map(|entry| entry.place) else {
            return;
        };
        if place == Place::Unschedulable && bug!(self.bugs, RejectorsKept) {
            return;
        }
        if place != Place::InFlight {
            self.unlink(pod);
        }
        let Some(entry) = self.entries.get_mut(&pod) else {
            return;
        };
        (entry.rejectors, entry.pending, entry.turn) = (0, 0, false);
        if place == Place::InFlight {
            return;
        }
        // The gate that it stood at is a position too.
        entry.place = Place::Unschedulable;
        if !matches!(place, Place::Active | Place::Gang { .. }) {
            return self.requeue(cx, pod, Strategy::AfterBackoff, LABEL);
        }
        if !self.gate(cx, pod) {
            self.link(cx, pod, Place::Active);
        }
    }

    /// An attempt under an older version was rejected. Who rejected it says nothing of
    /// the version in force: no event is waited for.
    pub(crate) fn rejected_before(&mut self, cx: &QueueCx<'_>, pod: PodId, message: Arc<str>) {
        self.in_flight.end(pod);
        let (Some(entry), Some(record)) = (self.entries.get_mut(&pod), cx.cluster.pod(pod)) else {
            return;
        };
        entry.unschedulable_count += 1;
        entry.error_count = 0;
        entry.since = cx.now;
        entry.shape = record.shape;
        (entry.rejectors, entry.pending) = (0, 0);
        entry.message = Some(message);
        self.requeue(cx, pod, Strategy::AfterBackoff, "ScheduleAttemptFailure");
    }
}
