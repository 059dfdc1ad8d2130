//! Which waiting pods are expected on which node.
//!
//! Owns nominations, by node name: a node may be named before it is known. A
//! nomination is no reservation: it takes no room, but filters count it for pods of
//! no higher priority. Must never hold a pod that has a place.

use std::sync::Arc;

use super::{Cluster, NodeId};
use crate::hash::TextMap;
use crate::model::{PodId, PodStage};

/// Waiting pods by the name of the node they are expected on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nominations {
    by_node: Arc<TextMap<Arc<str>, Vec<PodId>>>,
}

impl Nominations {
    fn add(&mut self, node: &Arc<str>, pod: PodId) {
        Arc::make_mut(&mut self.by_node).entry(Arc::clone(node)).or_default().push(pod);
    }

    fn remove(&mut self, node: &str, pod: PodId) {
        let by_node = Arc::make_mut(&mut self.by_node);
        let Some(pods) = by_node.get_mut(node) else {
            return;
        };
        pods.retain(|p| *p != pod);
        if pods.is_empty() {
            by_node.remove(node);
        }
    }
}

impl Cluster {
    /// Expects a waiting pod on a node, or nowhere; true if that is news.
    pub(crate) fn nominate(&mut self, pod: PodId, node: Option<Arc<str>>) -> bool {
        let Some(record) = self.pod(pod) else {
            return false;
        };
        if record.nominated == node {
            return false;
        }
        let waits = record.stage == PodStage::Pending;
        let before = record.nominated.clone();
        if waits && let Some(name) = &before {
            self.nominations.remove(name, pod);
        }
        if waits && let Some(name) = &node {
            self.nominations.add(name, pod);
        }
        for name in before.iter().chain(&node) {
            self.journal.extend(self.index.node(name));
        }
        if let Some(record) = self.pod_mut(pod) {
            record.nominated = node;
        }
        true
    }

    /// A pod asks for something else: what is known of the node that it is expected on
    /// counts what it asked for before. False if it is expected nowhere.
    pub(crate) fn expected_changed(&mut self, pod: PodId) -> bool {
        let waiting = self.pod(pod).filter(|p| p.stage == PodStage::Pending);
        let Some(name) = waiting.and_then(|p| p.nominated.clone()) else {
            return false;
        };
        self.journal.extend(self.index.node(&name));
        true
    }

    /// A pod takes a place, or has none any more: it is expected somewhere only
    /// while it waits.
    pub(super) fn expect(&mut self, pod: PodId, waits: bool) {
        let name = self.pod(pod).and_then(|p| p.nominated.clone());
        if let Some(name) = name {
            self.journal.extend(self.index.node(&name));
            if waits {
                self.nominations.add(&name, pod);
            } else {
                self.nominations.remove(&name, pod);
            }
        }
    }

    /// For how many seconds at least room is kept for a gang; nodes where some is are
    /// looked at again.
    pub(crate) fn set_kept_seconds(&mut self, seconds: i64) {
        if std::mem::replace(&mut self.kept_seconds, seconds) != seconds {
            let nodes = self.nominated_nodes();
            self.journal.extend(nodes);
        }
    }

    /// For how many seconds at least room is kept for a gang.
    pub(crate) fn kept_seconds(&self) -> i64 {
        self.kept_seconds
    }

    /// Waiting pods that are expected on a node.
    pub(crate) fn nominated_on(&self, node: NodeId) -> &[PodId] {
        let by_node = &self.nominations.by_node;
        if by_node.is_empty() {
            return &[];
        }
        by_node.get(&self.node(node).name).map_or(&[], Vec::as_slice)
    }

    /// Whether any pod is expected anywhere.
    pub(crate) fn has_nominations(&self) -> bool {
        !self.nominations.by_node.is_empty()
    }

    /// Nodes on which some waiting pod is expected, in order.
    pub(crate) fn nominated_nodes(&self) -> Vec<NodeId> {
        let names = self.nominations.by_node.keys();
        let mut nodes: Vec<NodeId> = names.filter_map(|name| self.index.node(name)).collect();
        nodes.sort_unstable();
        nodes
    }
}
