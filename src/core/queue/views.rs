//! The queue as people and gauges see it.

use std::collections::{BTreeMap, BTreeSet};

use super::{EXTENDER, Entry, Place, Queue};
use crate::model::PodId;

/// Positions of plugins, and the one of extenders.
const POSITIONS: usize = EXTENDER + 1;

impl Queue {
    /// Pods known to the queue, and those of them in flight.
    pub(crate) fn tracked(&self) -> (usize, usize) {
        (self.entries.len(), self.in_flight.len())
    }

    /// Pods per (profile, plugin that rejected or gated them), by position; as
    /// upstream, until they are tried again.
    pub(crate) fn rejections(&self) -> BTreeMap<(usize, usize), usize> {
        // A row per profile: there may be many pods, and this is asked time and again.
        let mut rows: Vec<[usize; POSITIONS]> = Vec::new();
        let waits = |e: &&Entry| !matches!(e.place, Place::InFlight | Place::Quarantined);
        for entry in self.entries.values().filter(waits) {
            let mut left = entry.rejectors;
            if left != 0 && rows.len() <= entry.profile {
                rows.resize(entry.profile + 1, [0; POSITIONS]);
            }
            while left != 0 {
                rows[entry.profile][left.trailing_zeros() as usize] += 1;
                left &= left - 1;
            }
        }
        let rows = rows.iter().enumerate();
        let counts = rows.flat_map(|(profile, row)| {
            row.iter().enumerate().map(move |(plugin, pods)| ((profile, plugin), *pods))
        });
        counts.filter(|(_, pods)| *pods > 0).collect()
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
        let active = self.active.len() + self.turns.len();
        let gangs = self.gang_counts();
        (active + gangs.0, backoff + gangs.1, waiting + gangs.2, gated + gangs.3)
    }

    /// Waiting pods with the name of their queue, in the order they would be tried.
    pub(crate) fn listing(&self) -> impl Iterator<Item = (PodId, &'static str, &Entry)> {
        let active = self.active.iter().chain(&self.turns).map(|k| (k.2, "active"));
        let backoff = self.backoff.iter().chain(&self.error_backoff).map(|k| (k.3, "backoff"));
        let unschedulable = self.unschedulable.values().flatten().map(|p| (*p, "unschedulable"));
        let gated = self.gated.values().flatten().copied().chain(self.held());
        let gated = gated.map(|p| (p, "gated"));
        let quarantined = self.quarantined.iter().map(|p| (*p, "quarantined"));
        let all = active.chain(backoff).chain(unschedulable).chain(gated).chain(quarantined);
        let all = all.chain(self.gang_listing());
        all.filter_map(|(pod, queue)| Some((pod, queue, self.entries.get(&pod)?)))
    }
}
