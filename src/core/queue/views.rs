//! The queue as people and gauges see it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, MAX_PLUGINS, Place, Queue};
use crate::model::PodId;

impl Queue {
    /// Pods known to the queue, and those of them in flight.
    pub(crate) fn tracked(&self) -> (usize, usize) {
        (self.entries.len(), self.in_flight.len())
    }

    /// Pods that wait per (profile, rejecting plugin), by position.
    pub(crate) fn rejections(&self) -> BTreeMap<(usize, usize), usize> {
        let mut counts = BTreeMap::new();
        for ((_, rejectors, _), pods) in &self.unschedulable {
            let profile = pods.first().and_then(|p| self.entries.get(p)).map_or(0, |e| e.profile);
            for plugin in (0..MAX_PLUGINS).filter(|p| rejectors >> p & 1 == 1) {
                *counts.entry((profile, plugin)).or_default() += pods.len();
            }
        }
        counts
    }

    fn held(&self) -> impl Iterator<Item = PodId> {
        let held = |pod: &PodId| self.entries.get(pod).is_some_and(|e| e.place == Place::Held);
        self.holds.keys().copied().filter(held)
    }

    /// (active, backoff, unschedulable, gated); quarantined pods count as
    /// unschedulable, held ones as gated.
    pub(crate) fn counts(&self) -> (usize, usize, usize, usize) {
        let backoff = self.backoff.len() + self.error_backoff.len();
        let waiting = self.waiting + self.quarantined.len();
        let gated = self.gated.values().map(BTreeSet::len).sum::<usize>() + self.held().count();
        (self.active.len(), backoff, waiting, gated)
    }

    /// Waiting pods with the name of their queue, in the order they would be tried.
    pub(crate) fn listing(&self) -> impl Iterator<Item = (PodId, &'static str, &Entry)> {
        let active = self.active.iter().map(|k| (k.2, "active"));
        let backoff = self.backoff.iter().chain(&self.error_backoff).map(|k| (k.3, "backoff"));
        let unschedulable = self.unschedulable.values().flatten().map(|p| (*p, "unschedulable"));
        let gated = self.gated.values().flatten().copied().chain(self.held());
        let gated = gated.map(|p| (p, "gated"));
        let quarantined = self.quarantined.iter().map(|p| (*p, "quarantined"));
        let all = active.chain(backoff).chain(unschedulable).chain(gated).chain(quarantined);
        all.filter_map(|(pod, queue)| Some((pod, queue, self.entries.get(&pod)?)))
    }
}
