//! Which pods were evicted, and which of those that came since replace them.
//!
//! Owns the memory of our own evictions: a pod of the same controller takes over what its
//! predecessor went through, one of the same name before any other. Bounded: of the oldest
//! nothing is known any more. Must never say what follows from it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::Cluster;
use crate::hash::IdMap;
use crate::io::Tick;
use crate::model::PodId;

/// Pods that were evicted and not replaced yet, that are remembered.
const MAX_LEFT: usize = 8_192;

/// When a pod, or those it replaces, were evicted: the last time, and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Evictions {
    last: Tick,
    before: Option<Tick>,
}

/// Evictions by whom they concern.
#[derive(Clone, Debug, Default)]
pub(super) struct Lineages {
    /// Of pods that are there.
    known: IdMap<PodId, Evictions>,
    /// Of pods that have to go, for whoever replaces them: by controller, or by name.
    left: BTreeMap<Box<str>, VecDeque<(Arc<str>, Evictions)>>,
    /// In the order in which they were noted; some may be taken already.
    order: VecDeque<(Box<str>, Arc<str>)>,
}

impl Lineages {
    /// Until when a pod is protected that is so if evicted twice within so many seconds.
    pub(super) fn protected(&self, pod: PodId, window: i64) -> Option<Tick> {
        let Evictions { last, before } = *self.known.get(&pod)?;
        (before?.after_secs(window) >= last).then(|| last.after_secs(window))
    }

    fn evicted(&mut self, now: Tick, pod: PodId, (line, name): (Box<str>, Arc<str>)) {
        let before = self.known.get(&pod).map(|own| own.last);
        let own = Evictions { last: now, before };
        self.left.entry(line.clone()).or_default().push_back((Arc::clone(&name), own));
        self.order.push_back((line, name));
        while self.order.len() > MAX_LEFT {
            if let Some((line, name)) = self.order.pop_front() {
                self.take(&line, |known| *known == *name);
            }
        }
    }

    /// Takes the first of a line that is wanted, or nothing.
    fn take(&mut self, line: &str, wanted: impl Fn(&str) -> bool) -> Option<Evictions> {
        let left = self.left.get_mut(line)?;
        let at = left.iter().position(|(name, _)| wanted(name))?;
        let (_, found) = left.remove(at)?;
        if left.is_empty() {
            self.left.remove(line);
        }
        Some(found)
    }
}

impl Cluster {
    /// The line of a pod: its controller, or its own name.
    fn line_of(&self, pod: PodId) -> Option<(Box<str>, Arc<str>)> {
        let record = self.pod(pod)?;
        let line = match self.controller_of(pod) {
            Some(uid) => uid.into(),
            None => record.key.to_string().into(),
        };
        Some((line, Arc::clone(&record.key.name)))
    }

    /// A pod is evicted: whoever replaces it is known by it.
    pub(crate) fn note_eviction(&mut self, pod: PodId) {
        let now = self.now();
        if let Some(line) = self.line_of(pod).filter(|_| self.policies_protect()) {
            Arc::make_mut(&mut self.shields.lineages).evicted(now, pod, line);
        }
    }

    /// It was not evicted after all.
    pub(crate) fn unnote_eviction(&mut self, pod: PodId) {
        if self.shields.lineages.left.is_empty() {
            return;
        }
        if let Some((line, name)) = self.line_of(pod) {
            Arc::make_mut(&mut self.shields.lineages).take(&line, |known| *known == *name);
        }
    }

    /// A pod has come: it may replace one that was evicted.
    pub(crate) fn inherit_evictions(&mut self, pod: PodId) {
        if self.shields.lineages.left.is_empty() {
            return;
        }
        let Some((line, name)) = self.line_of(pod) else { return };
        if !self.shields.lineages.left.contains_key(&line) {
            return;
        }
        let lineages = Arc::make_mut(&mut self.shields.lineages);
        let same = lineages.take(&line, |known| *known == *name);
        if let Some(found) = same.or_else(|| lineages.take(&line, |_| true)) {
            lineages.known.insert(pod, found);
        }
    }

    /// A pod is gone.
    pub(super) fn forget_evictions(&mut self, pod: PodId) {
        if self.shields.lineages.known.contains_key(&pod) {
            Arc::make_mut(&mut self.shields.lineages).known.remove(&pod);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(line: &str, name: &str) -> (Box<str>, Arc<str>) {
        (line.into(), name.into())
    }

    #[test]
    fn two_evictions_within_the_window_protect_for_as_long_again() {
        // (first, second, until when whoever replaces it is protected), with a window of 100.
        for (first, second, until) in [(0, 50, Some(150)), (0, 100, Some(200)), (0, 101, None)] {
            let at = |secs: i64| Tick::default().after_secs(secs);
            let mut all = Lineages::default();
            all.evicted(at(first), PodId(1), line("c", "a"));
            assert_eq!(all.protected(PodId(1), 100), None);
            let left = all.take("c", |_| true).unwrap();
            all.known.insert(PodId(2), left);
            assert_eq!(all.protected(PodId(2), 100), None, "once is not enough");
            all.evicted(at(second), PodId(2), line("c", "b"));
            let left = all.take("c", |_| true).unwrap();
            all.known.insert(PodId(3), left);
            assert_eq!(all.protected(PodId(3), 100), until.map(at));
        }
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut all = Lineages::default();
        for i in 0..=MAX_LEFT {
            all.evicted(Tick::default(), PodId(1), line(&format!("c{i}"), "a"));
        }
        assert_eq!(all.order.len(), MAX_LEFT);
        assert_eq!(all.left.len(), MAX_LEFT);
        assert!(all.take("c0", |_| true).is_none());
        assert!(all.take("c1", |_| true).is_some());
    }
}
