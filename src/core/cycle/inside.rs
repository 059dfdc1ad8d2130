//! What agents say of the inside of nodes.
//!
//! Owns what news mean for whoever waits. Kept verdicts and scores follow by themselves: news of a
//! node are a change of that node in the journal.

use std::sync::Arc;

use muster_api::muster::labels::NVLINK_DOMAIN;

use super::Core;
use crate::cluster::News;
use crate::framework::{Actions, ClusterEvent, Resource, Subject};
use crate::io::{Kind, Object, Tick};
use crate::model::PodId;
use crate::numa::Machine;

impl Core {
    /// An agent reports what a node is inside.
    pub(super) fn node_reported(&mut self, now: Tick, object: &Object) {
        let (kind, name) = (object.kind(), &object.metadata().name);
        let seen = self.relists[kind as usize];
        let (before, domains) = (self.machine(name), self.domains());
        let listed = self.listed(name);
        match self.cluster.set_node_topology(now, object, seen) {
            Ok(news) => {
                self.left_out(now, name, &listed);
                self.node_news(now, name, news, before);
                self.domains_since(now, domains);
            }
            Err(error) => {
                let label = match kind {
                    Kind::NodeTopology => "NodeTopology",
                    _ => "NodeResourceTopology",
                };
                let error = format!(
                    "{label} {name}: {error}; what it said before stays, look at its agent"
                );
                self.malformed(label, error);
            }
        }
    }

    /// A report is gone.
    pub(super) fn node_report_gone(&mut self, now: Tick, kind: Kind, name: &str) {
        let (before, domains) = (self.machine(name), self.domains());
        let news = self.cluster.remove_node_topology(kind, name);
        self.node_news(now, name, news, before);
        self.domains_since(now, domains);
    }

    /// What topologies are made from: a version of it, and whether there are NVLink domains.
    pub(super) fn domains(&self) -> (u64, bool) {
        (self.cluster.labelled(), self.cluster.has_label(NVLINK_DOMAIN))
    }

    /// Gangs go by other domains, perhaps.
    pub(super) fn domains_since(&mut self, now: Tick, before: (u64, bool)) {
        let (version, any) = self.domains();
        self.topology_news |= version != before.0;
        if any != before.1 {
            self.scheduling_policies_changed(now);
        }
    }

    /// A list is complete: reports that it did not show are gone.
    pub(super) fn sweep_node_reports(&mut self, now: Tick, kind: Kind) {
        for name in self.cluster.stale_node_topologies(kind, self.relists[kind as usize]) {
            self.node_report_gone(now, kind, &name);
        }
    }

    /// Pods on a node that its agent has seen.
    fn listed(&self, name: &str) -> Vec<PodId> {
        let Some(node) = self.cluster.node_by_name(name) else { return Vec::new() };
        let view = self.cluster.view(node);
        let Some(topology) = view.topology() else { return Vec::new() };
        let seen = |id: &PodId| {
            self.cluster.pod(*id).is_some_and(|pod| topology.pod_at(&pod.key.uid).is_some())
        };
        view.info().pods.iter().copied().filter(seen).collect()
    }

    /// Pods that the agent saw before and sees no more have ended, most likely: they are missed from
    /// now on, however long ago they were bound.
    fn left_out(&mut self, now: Tick, name: &str, listed: &[PodId]) {
        let still = self.listed(name);
        for id in listed.iter().filter(|id| !still.contains(id)) {
            if let Some(pod) = self.cluster.pod_mut(*id).filter(|pod| pod.bound.is_some()) {
                pod.bound = Some(now);
            }
        }
    }

    fn machine(&self, name: &str) -> Option<Arc<Machine>> {
        let node = self.cluster.node_by_name(name)?;
        self.cluster.view(node).machine().cloned()
    }

    /// `before`: the machine that was known.
    fn node_news(&mut self, now: Tick, name: &str, news: News, before: Option<Arc<Machine>>) {
        let (actions, label) = match news {
            News::None => return,
            News::Added => (Actions::ADD, "NodeTopologyAdd"),
            News::Updated => (Actions::UPDATE, "NodeTopologyUpdate"),
            News::Removed => (Actions::DELETE, "NodeTopologyDelete"),
        };
        // Of a node that is not known yet the event is its own coming.
        let Some(node) = self.cluster.node_by_name(name) else { return };
        let subject = Subject::Node { node, before: None };
        let event = ClusterEvent { resource: Resource::NodeTopology, actions, label, subject };
        self.queue_event(now, &event);
        self.node_heard(now, node, before.is_some());
        let after = self.cluster.view(node).machine();
        if after.is_some_and(|after| before.is_none_or(|before| !Arc::ptr_eq(&before, after))) {
            self.node_changed_inside(now, node);
        }
    }
}
