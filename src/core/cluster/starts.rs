//! Pods that start, by node: bound, or about to be, and not running yet.
//!
//! Owns the counts, kept with every placement. Must never decide what follows from them.

use std::sync::Arc;

use super::{Cluster, NodeId, NodeSet};
use crate::hash::IdMap;
use crate::model::PodId;

/// How long a pod is waited for at most: one whose image never comes starts no more.
const START_SECONDS: i64 = 300;

/// How many pods start on each node, of those that have any.
#[derive(Clone, Default)]
pub(super) struct Starts {
    by_node: Arc<IdMap<NodeId, u32>>,
}

impl Starts {
    fn count(&mut self, node: NodeId, add: bool) {
        let by_node = Arc::make_mut(&mut self.by_node);
        let count = by_node.entry(node).or_default();
        *count = if add { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            by_node.remove(&node);
        }
    }
}

impl Cluster {
    /// A pod is on a node from now on.
    pub(super) fn begin_start(&mut self, id: PodId, node: NodeId) {
        let now = self.now();
        let Some(pod) = self.pod_mut(id).filter(|pod| !pod.running && !pod.deleting) else {
            return;
        };
        (pod.starting, pod.placed) = (true, now);
        self.starts.count(node, true);
    }

    /// A pod leaves a node, or runs, or is deleted. True if it was starting.
    pub(crate) fn end_start(&mut self, id: PodId, node: NodeId) -> bool {
        let Some(pod) = self.pod_mut(id).filter(|pod| pod.starting) else {
            return false;
        };
        pod.starting = false;
        self.starts.count(node, false);
        true
    }

    /// Nodes on which so many pods start, or more; none if there is no such node.
    pub(crate) fn crowded(&self, most: u32) -> Option<NodeSet> {
        let since = self.now().after_secs(-START_SECONDS);
        let lately =
            |id: &&PodId| self.pod(**id).is_some_and(|pod| pod.starting && pod.placed > since);
        let full = |node: &NodeId| {
            // Only where it matters they are looked at one by one.
            let starting = self.node(*node).pods.iter().filter(lately).count();
            starting >= usize::try_from(most).unwrap_or(usize::MAX)
        };
        let counted = self.starts.by_node.iter().filter(|(_, count)| **count >= most);
        let mut nodes = counted.map(|(node, _)| *node).filter(full).peekable();
        nodes.peek()?;
        let mut set = NodeSet::with_capacity(self.node_capacity());
        nodes.for_each(|node| set.insert(node));
        Some(set)
    }
}
