//! Who refused whom, and when: bounded, the oldest is forgotten first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cluster::NodeId;
use crate::framework::NodeCare;
use crate::hash::{IdMap, TextMap};
use crate::io::Tick;
use crate::numa::Pod;

/// Most nodes, times what was asked of them, of which refusals are remembered.
const MAX_SUSPECTS: usize = 4096;
/// Most of them on one node.
const MAX_SUSPECTS_OF_NODE: usize = 16;
/// Most pods that are remembered to have been counted.
const MAX_COUNTED: usize = 4096;

/// A kubelet that refused pods that ask for the same.
pub(super) struct Suspect {
    pub(super) node: NodeId,
    pub(super) asks: Arc<Pod>,
    pub(super) care: NodeCare,
    /// When it refused one, lately.
    pub(super) refused: VecDeque<Tick>,
    /// How often it was left alone.
    pub(super) times: u32,
    /// It is left alone until then.
    pub(super) until: Option<Tick>,
    /// When there is something to do.
    pub(super) due: Tick,
}

/// Who refused whom.
#[derive(Default)]
pub(in crate::cycle) struct Quarantine {
    pub(super) suspects: BTreeMap<u64, Suspect>,
    pub(super) by_node: IdMap<NodeId, Vec<u64>>,
    pub(super) timers: BTreeSet<(Tick, u64)>,
    next: u64,
    /// UIDs of pods that were counted, the oldest first: lists show them again.
    counted: VecDeque<Box<str>>,
    is_counted: TextMap<Box<str>, ()>,
}

impl Quarantine {
    pub(in crate::cycle) fn next_deadline(&self) -> Option<Tick> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Whether a pod is counted for the first time.
    pub(super) fn count(&mut self, uid: &str) -> bool {
        if self.is_counted.insert(uid.into(), ()).is_some() {
            return false;
        }
        self.counted.push_back(uid.into());
        if self.counted.len() > MAX_COUNTED
            && let Some(oldest) = self.counted.pop_front()
        {
            self.is_counted.remove(&oldest);
        }
        true
    }

    pub(super) fn find(&self, node: NodeId, asks: &Pod) -> Option<u64> {
        let own = self.by_node.get(&node)?;
        own.iter().copied().find(|id| self.suspects.get(id).is_some_and(|s| *s.asks == *asks))
    }

    pub(super) fn add(&mut self, suspect: Suspect) -> u64 {
        self.next += 1;
        self.by_node.entry(suspect.node).or_default().push(self.next);
        self.timers.insert((suspect.due, self.next));
        self.suspects.insert(self.next, suspect);
        self.next
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Suspect> {
        let suspect = self.suspects.remove(&id)?;
        self.timers.remove(&(suspect.due, id));
        if let Some(own) = self.by_node.get_mut(&suspect.node) {
            own.retain(|other| *other != id);
            if own.is_empty() {
                self.by_node.remove(&suspect.node);
            }
        }
        Some(suspect)
    }

    pub(super) fn set_due(&mut self, id: u64, due: Tick) {
        if let Some(suspect) = self.suspects.get_mut(&id) {
            self.timers.remove(&(suspect.due, id));
            suspect.due = due;
            self.timers.insert((due, id));
        }
    }

    /// Who has to be forgotten before another one is noted on a node.
    pub(super) fn surplus(&self, node: NodeId) -> Option<u64> {
        let own = self.by_node.get(&node).filter(|own| own.len() >= MAX_SUSPECTS_OF_NODE);
        let oldest = (self.suspects.len() >= MAX_SUSPECTS).then(|| self.suspects.keys().next());
        own.and_then(|own| own.first()).or(oldest.flatten()).copied()
    }
}
