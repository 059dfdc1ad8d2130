//! All nodes with what pods have left of them, for a look at one moment.

use std::collections::BTreeMap;

use muster_api::k8s::{Node, Pod};
use muster_api::muster::TopologyLevel;

use super::gpus::{Gpus, idle_because, of_node};
use super::tree::{Room, Tree};

/// Nodes and what pods take from them, in any order.
#[derive(Debug, Default)]
pub struct Census {
    nodes: BTreeMap<String, (BTreeMap<String, String>, Room)>,
    used: BTreeMap<String, i64>,
    gpus: Gpus,
}

impl Census {
    /// Counts a node.
    pub fn node(&mut self, node: &Node) {
        let room = Room { gpus: of_node(node), used: 0, closed: idle_because(node) };
        let meta = &node.metadata;
        self.nodes.insert(meta.name.clone(), (meta.labels.clone(), room));
    }

    /// Counts a pod: it takes GPUs if it is on a node and has not ended.
    pub fn pod(&mut self, pod: &Pod) {
        let ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        if pod.spec.node_name.is_empty() || ended {
            return;
        }
        let gpus = self.gpus.of_pod(pod);
        if gpus > 0 {
            *self.used.entry(pod.spec.node_name.clone()).or_default() += gpus;
        }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The tree of these levels.
    #[must_use]
    pub fn tree(&self, levels: Vec<TopologyLevel>) -> Tree {
        let mut tree = Tree::new(levels);
        for (name, (labels, room)) in &self.nodes {
            let used = self.used.get(name).copied().unwrap_or(0);
            let label = |key: &str| labels.get(key).map(String::as_str);
            tree.put(name, label, Room { used, ..*room });
        }
        tree
    }
}
