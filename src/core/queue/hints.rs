//! Which events help which pods, and what happened while a pod was in flight.

use std::collections::VecDeque;

use super::{Entry, QueueCx};
use crate::framework::{ClusterEvent, Hint, HintCx, Resource, Weighted};
use crate::hash::IdMap;
use crate::model::PodId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Stay,
    Queue,
}

/// Asks the plugins that rejected a pod whether an event may help it.
pub(super) fn decide(cx: &QueueCx<'_>, entry: &Entry, event: &ClusterEvent) -> Decision {
    if event.resource == Resource::Any {
        return Decision::Queue;
    }
    let Some(profile) = cx.profiles.get(entry.profile) else {
        return Decision::Stay;
    };
    let hint_cx = HintCx { shape: cx.cluster.shape(entry.shape), event, cluster: cx.cluster };
    let helps = profile.plugins().iter().enumerate().any(|(i, p)| {
        entry.rejectors >> i & 1 == 1
            && registered(p, event)
            && p.plugin.hint(&hint_cx) == Hint::Queue
    });
    if helps { Decision::Queue } else { Decision::Stay }
}

/// Whether a plugin asked to hear of such events.
pub(super) fn registered(plugin: &Weighted, event: &ClusterEvent) -> bool {
    plugin.events.iter().any(|r| {
        (r.resource == event.resource || r.resource == Resource::Any)
            && r.actions.intersects(event.actions)
    })
}

/// Events kept for pods in flight; a pod that missed more is simply tried again.
const KEPT: usize = 4096;

/// Events that arrived while pods were in flight.
#[derive(Default)]
pub(super) struct InFlightEvents {
    pods: IdMap<PodId, u64>,
    /// With the only pod concerned, if it is one pod's own update.
    events: VecDeque<(Option<PodId>, ClusterEvent)>,
    first: u64,
}

impl InFlightEvents {
    pub(super) fn begin(&mut self, pod: PodId) {
        self.pods.insert(pod, self.first + self.events.len() as u64);
    }

    pub(super) fn end(&mut self, pod: PodId) {
        if self.pods.remove(&pod).is_some() && self.pods.is_empty() {
            self.first += self.events.len() as u64;
            self.events.clear();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Remembers an event; `only` if it is about one waiting pod itself.
    pub(super) fn record(&mut self, event: &ClusterEvent, only: Option<PodId>) {
        if self.pods.is_empty() {
            return;
        }
        if self.events.len() == KEPT {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back((only, event.clone()));
    }

    /// Events since the pod was popped; `None` if some are no longer known.
    pub(super) fn missed(&self, pod: PodId) -> Option<impl Iterator<Item = &ClusterEvent>> {
        let since = *self.pods.get(&pod)?;
        let skip = usize::try_from(since.checked_sub(self.first)?).ok()?;
        let events = self.events.iter().skip(skip);
        Some(events.filter(move |(only, _)| only.is_none_or(|p| p == pod)).map(|(_, e)| e))
    }
}
