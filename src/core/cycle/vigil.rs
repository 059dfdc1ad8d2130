//! For how long nodes are waited for whose agents are silent.
//!
//! Owns the time: since when a node has reported nothing, when to look at it again. Filters read
//! for how long it was waited for (`cluster/inside/vigil`); what follows from that is theirs. A
//! node is waited for from its making, or from when its report was lost; an agent that misses
//! a pod from when the pod was seen bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use crate::cluster::NodeId;
use crate::framework::{Actions, ClusterEvent, Profile, Resource, Subject};
use crate::hash::IdMap;
use crate::io::Tick;
use crate::model::PodId;

/// Nodes that are looked at again.
#[derive(Default)]
pub(super) struct Vigil {
    /// The waits that profiles ask for, in seconds, ascending. If there are none nothing is
    /// kept.
    limits: Vec<i64>,
    timers: BTreeSet<(Tick, NodeId)>,
    armed: IdMap<NodeId, Tick>,
    /// Nodes that have reported nothing, since when, while they are waited for.
    silent: IdMap<NodeId, Tick>,
}

impl Vigil {
    pub(super) fn new(profiles: &[Arc<Profile>]) -> Self {
        let mut vigil = Self::default();
        vigil.set_limits(profiles);
        vigil
    }

    fn set_limits(&mut self, profiles: &[Arc<Profile>]) {
        let plugins = profiles.iter().flat_map(|profile| profile.plugins());
        let waits = plugins.filter_map(|p| p.plugin.node_care()).map(|care| care.wait_seconds);
        self.limits = waits.filter(|seconds| *seconds > 0).collect();
        self.limits.sort_unstable();
        self.limits.dedup();
    }

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.timers.first().map(|(due, _)| *due)
    }

    fn arm(&mut self, node: NodeId, due: Option<Tick>) {
        let before = match due {
            Some(due) => self.armed.insert(node, due),
            None => self.armed.remove(&node),
        };
        self.timers.extend(due.map(|due| (due, node)));
        if let Some(before) = before.filter(|before| due != Some(*before)) {
            self.timers.remove(&(before, node));
        }
    }
}

impl Core {
    /// A node came, which was made then.
    pub(super) fn node_came(&mut self, now: Tick, node: NodeId, made: Tick) {
        if !self.vigil.limits.is_empty() {
            self.vigil.silent.insert(node, made.min(now));
            self.look_in(now, node);
        }
    }

    /// A node is gone.
    pub(super) fn node_went(&mut self, node: NodeId) {
        self.vigil.silent.remove(&node);
        self.vigil.arm(node, None);
        self.cluster.set_awaited(node, None);
        self.cluster.set_overdue(node, None);
        self.cluster.note_report(node);
    }

    /// An agent has said something else of a node, or what it said is gone.
    pub(super) fn node_heard(&mut self, now: Tick, node: NodeId, was_known: bool) {
        if self.vigil.limits.is_empty() {
            return;
        }
        if was_known && !self.cluster.view(node).is_known() {
            self.vigil.silent.insert(node, now);
        }
        self.look_in(now, node);
    }

    /// A pod was seen bound: its agent has to see it, too, if it asks for anything of its own.
    pub(super) fn expect_report(&mut self, now: Tick, pod: PodId) {
        let Some(record) = self.cluster.pod_mut(pod) else { return };
        record.bound.get_or_insert(now);
        let (node, shape) = (record.stage.node(), record.shape);
        let (Some(node), Some(limit)) = (node, self.vigil.limits.first().copied()) else { return };
        let asks = self.cluster.shape(shape).aligned.is_some();
        if asks && !self.vigil.armed.contains_key(&node) {
            self.vigil.arm(node, Some(now.after_secs(limit)));
        }
    }

    /// Looks at the nodes whose time has come.
    pub(super) fn look_in_on_nodes(&mut self, now: Tick) {
        while let Some(&(due, node)) = self.vigil.timers.first() {
            if due > now {
                break;
            }
            self.vigil.arm(node, None);
            self.look_in(now, node);
        }
    }

    /// Other profiles are in force.
    pub(super) fn reload_vigil(&mut self, now: Tick) {
        self.vigil.set_limits(&self.profiles);
        let nodes: BTreeSet<NodeId> =
            self.vigil.armed.keys().chain(self.vigil.silent.keys()).copied().collect();
        for node in nodes {
            self.look_in(now, node);
        }
    }

    /// For how long a node was waited for.
    fn look_in(&mut self, now: Tick, node: NodeId) {
        let view = self.cluster.view(node);
        let (known, silent) = (view.is_known(), self.vigil.silent.get(&node).copied());
        let since = view.missing_since(silent.filter(|_| !known));
        let over = |limit: &&i64| since.is_some_and(|since| since.after_secs(**limit) <= now);
        let waited = self.vigil.limits.iter().take_while(over).last().copied().unwrap_or(0);
        let next = self.vigil.limits.iter().find(|limit| **limit > waited);
        let due = since.and_then(|since| Some(since.after_secs(*next?)));
        if known || due.is_none() {
            self.vigil.silent.remove(&node);
        }
        let (awaited, overdue) = match known {
            true => (None, Some(waited).filter(|waited| *waited > 0)),
            false => (due.map(|_| waited), None),
        };
        self.vigil.arm(node, due);
        let news = self.cluster.set_awaited(node, awaited);
        if self.cluster.set_overdue(node, overdue) || news {
            self.node_may_do(now, node, "NodeTopologyWaitOver");
        }
    }

    /// What is known of the inside of a node has changed without a report.
    pub(super) fn node_may_do(&mut self, now: Tick, node: NodeId, label: &'static str) {
        let (resource, actions) = (Resource::NodeTopology, Actions::UPDATE);
        let subject = Subject::Node { node, before: None };
        self.queue_event(now, &ClusterEvent { resource, actions, label, subject });
    }
}
