//! Kubelets that refuse pods although they should not.
//!
//! A kubelet that refused a number of pods that ask it for the same, within a window, is left
//! alone with such pods for a while; twice as long each further time, up to a limit. It is
//! tried again when the time is over, or when its agent reports another machine (other
//! settings, hardware or health of devices): what was wrong may be right then. Once it was left
//! alone, one refusal is enough, until it was not for as long as the longest pause.
//!
//! Owns when a node is left alone and for how long. Must never judge a node: filters read it.

mod suspects;

use std::collections::VecDeque;
use std::sync::Arc;

use muster_api::k8s;

pub(super) use suspects::Quarantine;
use suspects::Suspect;

use super::Core;
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::NodeCare;
use crate::io::{Effect, EventRecord, PodRef, Tick};
use crate::model::aligned;
use crate::numa::{Pod, Reason};
use crate::report::{Observation, truncate_note};

/// The reason for which a kubelet refused a pod, if it did.
fn refusal(wire: &k8s::Pod) -> Option<Reason> {
    let failed = wire.status.phase == "Failed" && !wire.spec.node_name.is_empty();
    Reason::ALL.into_iter().find(|reason| failed && reason.as_str() == wire.status.reason)
}

impl Core {
    /// A pod has failed: perhaps because its kubelet refused it.
    pub(super) fn pod_failed(&mut self, now: Tick, wire: &k8s::Pod) {
        let Some(reason) = refusal(wire) else { return };
        if bug!(self.bugs, RefusalsIgnored) {
            return;
        }
        let Some((care, profile)) = self.care_for(&wire.spec.scheduler_name) else { return };
        let (Some(node), Some(asks)) =
            (self.cluster.node_by_name(&wire.spec.node_name), aligned(wire))
        else {
            return;
        };
        // The kubelet sets it when it refuses the pod.
        let at = wire.status.start_time.or(wire.metadata.creation_timestamp);
        let at = at.map_or(now, |at| Tick(at.0)).min(now);
        if at.after_secs(care.window_seconds) <= now || !self.quarantine.count(&wire.metadata.uid) {
            return;
        }
        self.observations.push(Observation::Refused { reason: reason.as_str() });
        let id = self.suspect(node, &asks, care, at);
        let Some(seconds) = self.convict(now, id) else { return };
        let (name, reason) = (&wire.spec.node_name, reason.as_str());
        let why = format!(
            "node(s) that are avoided for a while: their kubelet refused pods like this ({reason})"
        );
        self.cluster.set_avoided(node, &asks, Some(why.into()));
        self.observations.push(Observation::NodeAvoided { reason });
        let note = format!(
            "The kubelet of node {name} refused pods like this one ({reason}): the node is avoided \
             for such pods for {seconds} s, or until its agent reports another machine"
        );
        let meta = &wire.metadata;
        self.effects.push(Effect::Event(EventRecord {
            pod: PodRef {
                namespace: meta.namespace.as_str().into(),
                name: meta.name.as_str().into(),
                uid: meta.uid.as_str().into(),
            },
            related: None,
            warning: true,
            reason: "NodeAvoided",
            action: "Scheduling",
            note: truncate_note(&note),
            reporting_controller: profile,
        }));
    }

    /// Whether any profile counts refusals of kubelets.
    #[must_use]
    pub fn counts_refusals(&self) -> bool {
        self.profiles.iter().any(|profile| self.care_for(profile.scheduler_name()).is_some())
    }

    fn care_for(&self, scheduler: &str) -> Option<(NodeCare, Arc<str>)> {
        let profile = self.profiles.get(*self.by_scheduler.get(scheduler)?)?;
        let care = profile.plugins().iter().find_map(|p| p.plugin.node_care())?;
        (care.refusals > 0).then(|| (care, Arc::clone(profile.scheduler_name())))
    }

    /// Notes a refusal.
    fn suspect(&mut self, node: NodeId, asks: &Arc<Pod>, care: NodeCare, at: Tick) -> u64 {
        let known = self.quarantine.find(node, asks);
        let id = known.unwrap_or_else(|| {
            if let Some(surplus) = self.quarantine.surplus(node) {
                self.acquit(surplus);
            }
            let (refused, times, until) = (VecDeque::new(), 0, None);
            let due = at.after_secs(care.window_seconds);
            let asks = Arc::clone(asks);
            self.quarantine.add(Suspect { node, asks, care, refused, times, until, due })
        });
        if let Some(suspect) = self.quarantine.suspects.get_mut(&id) {
            suspect.care = care;
            suspect.refused.push_back(at);
            if suspect.refused.len() > care.refusals as usize {
                suspect.refused.pop_front();
            }
        }
        id
    }

    /// For how many seconds a node is left alone from now on, if it has to be.
    fn convict(&mut self, now: Tick, id: u64) -> Option<i64> {
        let suspect = self.quarantine.suspects.get_mut(&id)?;
        let care = suspect.care;
        suspect.refused.retain(|at| at.after_secs(care.window_seconds) > now);
        let enough = if suspect.times > 0 { 1 } else { care.refusals as usize };
        if suspect.until.is_some() || suspect.refused.len() < enough {
            let last = suspect.refused.back().copied().unwrap_or(now);
            if suspect.until.is_none() && suspect.times == 0 {
                self.quarantine.set_due(id, last.after_secs(care.window_seconds));
            }
            return None;
        }
        let doubled = care.avoid_seconds.saturating_mul(1 << suspect.times.min(30));
        let seconds = doubled.min(care.max_avoid_seconds);
        suspect.times = suspect.times.saturating_add(1);
        suspect.refused.clear();
        let until = now.after_secs(seconds);
        suspect.until = Some(until);
        self.quarantine.set_due(id, until);
        Some(seconds)
    }

    /// Forgets what a kubelet did; true if its node was left alone for it.
    fn acquit(&mut self, id: u64) -> bool {
        let Some(suspect) = self.quarantine.remove(id) else { return false };
        if suspect.until.is_some() {
            self.cluster.set_avoided(suspect.node, &suspect.asks, None);
        }
        suspect.until.is_some()
    }

    /// Pauses end, and what is old is forgotten.
    pub(super) fn end_quarantines(&mut self, now: Tick) {
        while let Some(&(due, id)) = self.quarantine.timers.first() {
            if due > now {
                break;
            }
            let over = self.quarantine.suspects.get(&id).is_some_and(|s| s.until.is_some());
            if over {
                self.release_suspect(now, id);
            } else {
                self.acquit(id);
            }
        }
    }

    /// A node is tried again. That it was left alone is remembered for a while.
    fn release_suspect(&mut self, now: Tick, id: u64) {
        let Some(suspect) = self.quarantine.suspects.get_mut(&id) else { return };
        suspect.until = None;
        let (node, asks) = (suspect.node, Arc::clone(&suspect.asks));
        let forget = now.after_secs(suspect.care.max_avoid_seconds);
        self.quarantine.set_due(id, forget);
        self.cluster.set_avoided(node, &asks, None);
        self.node_may_do(now, node, "NodeAvoidedNoLonger");
    }

    /// Another machine is reported of a node: it is tried again.
    pub(super) fn node_changed_inside(&mut self, now: Tick, node: NodeId) {
        for id in self.quarantine.by_node.get(&node).cloned().unwrap_or_default() {
            if self.quarantine.suspects.get(&id).is_some_and(|s| s.until.is_some()) {
                self.release_suspect(now, id);
            }
        }
    }

    /// A node is gone, and what its kubelet did with it.
    pub(super) fn forget_refusals(&mut self, node: NodeId) {
        for id in self.quarantine.by_node.get(&node).cloned().unwrap_or_default() {
            self.acquit(id);
        }
    }
}
