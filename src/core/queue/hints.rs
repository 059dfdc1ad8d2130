//! Which events help which pods, and what happened while a pod was in flight.
//!
//! Owns upstream's rule of requeueing: only the plugins that rejected a pod are
//! asked, and only of events they registered for. Must never move a pod.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{EXTENDER, Entry, PluginMask, QueueCx};
use crate::framework::{Actions, ClusterEvent, Hint, HintCx, Profile, Resource, Subject, Weighted};
use crate::hash::IdMap;
use crate::model::{PodId, PodShape};

/// What an event means for a pod, the strongest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Strategy {
    /// It cannot help.
    Skip,
    /// It may help, once the pod's backoff is over.
    AfterBackoff,
    /// What the pod was surely waiting for: backing off would only lose time.
    Immediately,
}

/// The wildcard by which one pod, or whoever waited too long, is tried again.
pub(super) fn wildcard(label: &'static str) -> ClusterEvent {
    ClusterEvent { resource: Resource::Any, actions: Actions::ALL, label, subject: Subject::None }
}

/// Asks the plugins that rejected a pod whether an event may help it.
pub(super) fn decide(cx: &QueueCx<'_>, entry: &Entry, event: &ClusterEvent) -> Strategy {
    let (rejectors, pending) = (entry.rejectors, entry.pending);
    weigh(cx, entry.profile, cx.cluster.shape(entry.shape), (rejectors, pending), event)
}

/// Asks the plugins that rejected a shape, and the pending ones among them, whether an
/// event may help it.
pub(super) fn weigh(
    cx: &QueueCx<'_>,
    profile: usize,
    shape: &PodShape,
    (rejectors, pending): (PluginMask, PluginMask),
    event: &ClusterEvent,
) -> Strategy {
    if rejectors == 0 || event.resource == Resource::Any {
        return Strategy::AfterBackoff;
    }
    let Some(profile) = cx.profiles.get(profile) else {
        return Strategy::AfterBackoff;
    };
    let hint_cx = HintCx { shape, event, cluster: cx.cluster };
    let mut best = Strategy::Skip;
    // What else a pod says of itself, such as our own condition, is no news to extenders.
    let own_words = event.resource == Resource::TargetPod && event.actions == Actions::UPDATE;
    if rejectors >> EXTENDER & 1 == 1 && !own_words {
        best = Strategy::AfterBackoff;
    }
    for (i, p) in profile.plugins().iter().enumerate() {
        let pending = pending >> i & 1 == 1;
        let better = if pending { Strategy::Immediately } else { Strategy::AfterBackoff };
        if rejectors >> i & 1 == 1
            && better > best
            && registered(p, event)
            && p.plugin.hint(&hint_cx) == Hint::Queue
        {
            best = better;
        }
    }
    best
}

/// Whether a plugin asked to hear of such events.
///
/// Upstream compares masks and magnitudes, so that a general update does not match
/// a registration for particular ones. Here a general update is an action of its
/// own ([`Actions::UPDATE`]), which only general registrations contain.
pub(super) fn registered(plugin: &Weighted, event: &ClusterEvent) -> bool {
    if let Subject::Data { plugin: owner, .. } = &event.subject
        && plugin.plugin.name() != &**owner
    {
        return false;
    }
    event.resource == Resource::Any
        || plugin.events.iter().any(|r| {
            (r.resource == event.resource || r.resource == Resource::Any)
                && r.actions.intersects(event.actions)
        })
}

/// Whether any plugin asked to hear of such events.
pub(super) fn of_interest(profiles: &[Arc<Profile>], event: &ClusterEvent) -> bool {
    // Extenders cannot say what they wait for: anything may help.
    profiles.iter().any(|p| !p.extenders().is_empty())
        || profiles.iter().flat_map(|p| p.plugins()).any(|p| registered(p, event))
}

/// Events kept for pods in flight; a pod that missed more is simply tried again.
const KEPT: usize = 4096;

/// Events that arrived while pods were in flight.
#[derive(Default)]
pub(super) struct InFlightEvents {
    pods: IdMap<PodId, u64>,
    /// The same, the pod that is longest in flight first.
    oldest: BTreeSet<(u64, PodId)>,
    /// With the only pod concerned, if it is about one waiting pod itself.
    events: VecDeque<(Option<PodId>, ClusterEvent)>,
    first: u64,
}

impl InFlightEvents {
    pub(super) fn begin(&mut self, pod: PodId) {
        self.end(pod);
        let since = self.first + self.events.len() as u64;
        self.pods.insert(pod, since);
        self.oldest.insert((since, pod));
    }

    /// The pod needs no more events; those that only it could need are dropped.
    pub(super) fn end(&mut self, pod: PodId) {
        let Some(since) = self.pods.remove(&pod) else {
            return;
        };
        self.oldest.remove(&(since, pod));
        let newest = self.first + self.events.len() as u64;
        let needed = self.oldest.first().map_or(newest, |(since, _)| *since);
        while self.first < needed && self.events.pop_front().is_some() {
            self.first += 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Events remembered.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.events.len()
    }

    /// Remembers an event, if anyone may ask for it; `only` if it is about one
    /// waiting pod itself.
    pub(super) fn record(&mut self, event: &ClusterEvent, only: Option<PodId>) {
        if self.pods.is_empty() || only.is_some_and(|pod| !self.pods.contains_key(&pod)) {
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
