//! Nodes that are waited for, and nodes that are avoided: as filters read it.
//!
//! Owns no time: whoever does tells what has come to pass.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::{Cluster, NodeId, NodeView};
use crate::hash::{IdMap, IdSet};
use crate::io::Tick;
use crate::model::PodId;
use crate::numa::Pod;

/// Pods for which a node is avoided, and what is said of it.
type Avoided = SmallVec<[(Arc<Pod>, Arc<str>); 1]>;

/// What is known of nodes that something is the matter with: few at any time.
#[derive(Clone, Default)]
pub(crate) struct Vigil {
    /// Nodes that have reported nothing yet and are waited for: for how many seconds they were.
    awaited: Arc<IdMap<NodeId, i64>>,
    /// Nodes whose agents have not seen pods that are bound there, and for how many seconds.
    overdue: Arc<IdMap<NodeId, i64>>,
    avoided: Arc<IdMap<NodeId, Avoided>>,
    /// Nodes that a pod has left which the agent never saw, since its last report.
    haunted: Arc<IdSet<NodeId>>,
}

impl NodeView<'_> {
    /// Whether the node has reported nothing yet, and is younger than so many seconds.
    #[must_use]
    pub fn is_awaited(self, seconds: i64) -> bool {
        let waited = self.cluster().vigil.awaited.get(&self.id());
        waited.is_some_and(|waited| *waited < seconds)
    }

    /// Whether its agent has not seen a pod for so many seconds or more that is bound there.
    #[must_use]
    pub fn is_overdue(self, seconds: i64) -> bool {
        let waited = self.cluster().vigil.overdue.get(&self.id());
        waited.is_some_and(|waited| *waited >= seconds)
    }

    /// Why the node is avoided for pods that ask a kubelet for this, if it is.
    #[must_use]
    pub fn avoided_for(&self, pod: &Pod) -> Option<&Arc<str>> {
        let avoided = self.cluster().vigil.avoided.get(&self.id())?;
        avoided.iter().find(|(own, _)| **own == *pod).map(|(_, why)| why)
    }

    /// Whether a pod was there and has left since the last report: what others got beside it
    /// nobody knows.
    pub(super) fn is_haunted(self) -> bool {
        self.cluster().vigil.haunted.contains(&self.id())
    }

    /// Since when something has been missing: a report that says enough, or a pod in it. A pod
    /// that is not seen bound yet is not missed.
    pub(crate) fn missing_since(self, silent: Option<Tick>) -> Option<Tick> {
        let Some(inside) = self.inside() else { return silent };
        let bound = |(id, _): &(_, _)| self.cluster().pod(*id)?.bound;
        inside.expected.iter().filter_map(bound).min()
    }
}

impl Cluster {
    /// A node that has reported nothing was waited for so long; `None`: it is waited for no
    /// more. A change of that node, if it is one.
    pub(crate) fn set_awaited(&mut self, node: NodeId, seconds: Option<i64>) -> bool {
        set(&mut self.vigil.awaited, node, seconds) && self.changed(node)
    }

    /// As [`Cluster::set_awaited`], of a node whose agent misses a pod.
    pub(crate) fn set_overdue(&mut self, node: NodeId, seconds: Option<i64>) -> bool {
        set(&mut self.vigil.overdue, node, seconds) && self.changed(node)
    }

    /// A pod leaves a node for good: notes it if its agent has not seen the pod.
    pub(super) fn note_unseen(&mut self, pod: PodId, node: NodeId) {
        let Some(record) = self.pod(pod).filter(|pod| pod.bound.is_some()) else { return };
        let asks = self.shape(record.shape).aligned.is_some();
        let topology = self.view(node).topology();
        if asks && topology.is_some_and(|topology| topology.pod_at(&record.key.uid).is_none()) {
            Arc::make_mut(&mut self.vigil.haunted).insert(node);
        }
    }

    /// An agent has spoken.
    pub(crate) fn note_report(&mut self, node: NodeId) {
        if self.vigil.haunted.contains(&node) {
            Arc::make_mut(&mut self.vigil.haunted).remove(&node);
        }
    }

    /// A node is avoided for pods that ask for this, for a reason; `None`: no longer.
    pub(crate) fn set_avoided(&mut self, node: NodeId, pod: &Arc<Pod>, why: Option<Arc<str>>) {
        let avoided = Arc::make_mut(&mut self.vigil.avoided);
        let own = avoided.entry(node).or_default();
        own.retain(|(other, _)| *other != *pod);
        own.extend(why.map(|why| (Arc::clone(pod), why)));
        if own.is_empty() {
            avoided.remove(&node);
        }
        self.changed(node);
    }

    /// How many pairs of a node and what is asked of it are avoided.
    pub(crate) fn avoided(&self) -> usize {
        self.vigil.avoided.values().map(SmallVec::len).sum()
    }

    fn changed(&mut self, node: NodeId) -> bool {
        self.journal.push(node);
        true
    }
}

fn set(map: &mut Arc<IdMap<NodeId, i64>>, node: NodeId, seconds: Option<i64>) -> bool {
    if map.get(&node).copied() == seconds {
        return false;
    }
    let map = Arc::make_mut(map);
    match seconds {
        Some(seconds) => map.insert(node, seconds),
        None => map.remove(&node),
    };
    true
}
