//! Pods on nodes that are not known: of another shard, or not seen yet.
//!
//! Owns which they are, by the name of the node, so that they take their room as
//! soon as the node is known. Until then a pod costs its record and nothing else:
//! no row in any column, no count, no place in the journal. Must never lose a pod,
//! and never hold one whose node has a row.

use std::sync::Arc;

use super::Cluster;
use crate::hash::TextMap;
use crate::model::{PodId, PodStage};

/// A node that is not known: a dense index, reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AwayId(u32);

#[derive(Clone, Debug, Default)]
struct Slot {
    name: Arc<str>,
    pods: Vec<PodId>,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Away {
    slots: Vec<Slot>,
    by_name: TextMap<Arc<str>, AwayId>,
    free: Vec<AwayId>,
}

impl Away {
    fn add(&mut self, name: &str, pod: PodId) -> AwayId {
        let id = match self.by_name.get(name) {
            Some(id) => *id,
            None => self.claim(name.into()),
        };
        self.slots[id.0 as usize].pods.push(pod);
        id
    }

    fn claim(&mut self, name: Arc<str>) -> AwayId {
        let id = self.free.pop().unwrap_or_else(|| {
            let next = u32::try_from(self.slots.len()).expect("fewer than 2^32 nodes");
            self.slots.push(Slot::default());
            AwayId(next)
        });
        self.slots[id.0 as usize].name = Arc::clone(&name);
        self.by_name.insert(name, id);
        id
    }

    fn remove(&mut self, id: AwayId, pod: PodId) {
        let slot = &mut self.slots[id.0 as usize];
        if let Some(at) = slot.pods.iter().position(|p| *p == pod) {
            slot.pods.swap_remove(at);
        }
        if slot.pods.is_empty() {
            let name = std::mem::take(&mut slot.name);
            self.by_name.remove(&name);
            self.free.push(id);
        }
    }

    /// The pods of a node, which is known from now on.
    fn take(&mut self, name: &str) -> Vec<PodId> {
        let Some(id) = self.by_name.remove(name) else {
            return Vec::new();
        };
        self.free.push(id);
        std::mem::take(&mut self.slots[id.0 as usize]).pods
    }

    /// How many nodes are named by pods and not known.
    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.by_name.len()
    }
}

impl Cluster {
    /// A pending pod turns out to be bound: puts it on its node; false if that is
    /// not known.
    pub(crate) fn put(&mut self, pod: PodId, name: &str) -> bool {
        if let Some(node) = self.index.node(name).or_else(|| self.ghosts.get(name).copied()) {
            self.place(pod, node, false);
            return true;
        }
        self.expect(pod, false);
        let id = Arc::make_mut(&mut self.away).add(name, pod);
        if let Some(pod) = self.pod_mut(pod) {
            pod.stage = PodStage::Away(id);
        }
        false
    }

    /// Forgets where a pod on an unknown node is.
    pub(super) fn recall(&mut self, pod: PodId) {
        if let Some(record) = self.pod_mut(pod)
            && let PodStage::Away(id) = record.stage
        {
            record.stage = PodStage::Pending;
            Arc::make_mut(&mut self.away).remove(id, pod);
        }
    }

    /// A node is known now: its pods take their room.
    pub(super) fn gather(&mut self, node: super::NodeId, name: &str) -> Vec<PodId> {
        if !self.away.by_name.contains_key(name) {
            return Vec::new();
        }
        let pods = Arc::make_mut(&mut self.away).take(name);
        for &pod in &pods {
            if let Some(record) = self.pod_mut(pod) {
                record.stage = PodStage::Pending;
            }
            self.place(pod, node, false);
        }
        pods
    }
}
