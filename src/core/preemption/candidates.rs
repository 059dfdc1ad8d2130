//! What dry runs said of every node, kept for one shape.
//!
//! Owns the ranking. A node is tried again when it changed, so the next pod of
//! the same shape costs as many dry runs as nodes changed. Must never be kept for
//! a shape whose verdicts depend on more than the node, the shape and its stamp.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::dry_run::dry_run;
use super::{Candidate, Rank};
use crate::cluster::NodeId;
use crate::cycle::Trial;
use crate::framework::{Code, Status};
use crate::hash::scramble;
use crate::io::Tick;
use crate::model::PodId;

/// Best first; ties by a seeded permutation of the nodes.
type Order = BTreeSet<(Rank, u32, NodeId)>;

#[derive(Default)]
enum Slot {
    /// Evicting pods would not help.
    #[default]
    Hopeless,
    /// The dry run failed.
    Failed(Arc<Status>),
    /// It could be made to fit.
    Candidate(Arc<Candidate>),
}

#[derive(Default)]
struct Entry {
    slot: Slot,
    rejector: Option<usize>,
    budgeted: bool,
    until: Option<Tick>,
    protects: bool,
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, u32>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Candidates {
    seed: u32,
    entries: Vec<Entry>,
    order: Order,
    failed: BTreeMap<Arc<Status>, u32>,
    /// How many nodes each plugin rejects even without their lesser pods.
    rejectors: BTreeMap<usize, u32>,
    /// Nodes whose verdict depends on budgets.
    budgeted: BTreeSet<NodeId>,
    /// When another pod of a node may go, with the node.
    lapses: BTreeSet<(Tick, NodeId)>,
    /// How many nodes have lesser pods that may not go now.
    protecting: usize,
}

impl Candidates {
    pub(crate) fn new(seed: u32) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Tries a node (again); `potential` if evicting pods might help there.
    pub(crate) fn try_node(
        &mut self,
        trial: &mut Trial<'_>,
        node: NodeId,
        own: Option<PodId>,
        potential: bool,
    ) {
        self.forget(node);
        if !potential {
            return;
        }
        if self.entries.len() <= node.index() {
            self.entries.resize_with(trial.cluster().node_capacity(), Entry::default);
        }
        let verdict = dry_run(trial, node, own);
        let slot = match verdict.result {
            Ok(candidate) => {
                let tie = !scramble(node.0, self.seed);
                self.order.insert((candidate.rank.clone(), tie, node));
                Slot::Candidate(Arc::new(candidate))
            }
            Err(status) => {
                let status = Arc::new(status);
                *self.failed.entry(Arc::clone(&status)).or_default() += 1;
                Slot::Failed(status)
            }
        };
        if verdict.budgeted {
            self.budgeted.insert(node);
        }
        if let Some(plugin) = verdict.rejector {
            *self.rejectors.entry(plugin).or_default() += 1;
        }
        self.lapses.extend(verdict.until.map(|until| (until, node)));
        self.protecting += usize::from(verdict.protects);
        let (rejector, budgeted) = (verdict.rejector, verdict.budgeted);
        let (until, protects) = (verdict.until, verdict.protects);
        self.entries[node.index()] = Entry { slot, rejector, budgeted, until, protects };
    }

    fn forget(&mut self, node: NodeId) {
        let Some(entry) = self.entries.get_mut(node.index()).map(std::mem::take) else {
            return;
        };
        match entry.slot {
            Slot::Hopeless => {}
            Slot::Failed(status) => one_less(&mut self.failed, &status),
            Slot::Candidate(candidate) => {
                let tie = !scramble(node.0, self.seed);
                self.order.remove(&(candidate.rank.clone(), tie, node));
            }
        }
        if let Some(plugin) = entry.rejector {
            one_less(&mut self.rejectors, &plugin);
        }
        if entry.budgeted {
            self.budgeted.remove(&node);
        }
        if let Some(until) = entry.until {
            self.lapses.remove(&(until, node));
        }
        self.protecting -= usize::from(entry.protects);
    }

    /// Plugins that keep the pod off some node whoever leaves it: what they wait for may
    /// make a preemption possible.
    pub(crate) fn rejectors(&self) -> impl Iterator<Item = usize> {
        self.rejectors.keys().copied()
    }

    /// Nodes to try again when a budget changed.
    pub(crate) fn budgeted(&self) -> Vec<NodeId> {
        self.budgeted.iter().copied().collect()
    }

    /// Nodes to try again because another of their pods may go by now.
    pub(crate) fn lapsed(&self, now: Tick) -> impl Iterator<Item = NodeId> {
        self.lapses.iter().take_while(move |(until, _)| *until <= now).map(|(_, node)| *node)
    }

    /// Whether any node has lesser pods that may not go now.
    pub(crate) fn protects(&self) -> bool {
        self.protecting > 0
    }

    /// When another pod of some node may go.
    pub(crate) fn next_lapse(&self) -> Option<Tick> {
        self.lapses.first().map(|(until, _)| *until)
    }

    /// Candidates, the best first.
    pub(crate) fn ranked(&self) -> impl Iterator<Item = &Arc<Candidate>> {
        self.order.iter().filter_map(|(_, _, node)| match &self.entries[node.index()].slot {
            Slot::Candidate(candidate) => Some(candidate),
            _ => None,
        })
    }

    /// How many nodes could be made to fit, and whether one without a violation.
    pub(crate) fn found(&self) -> (usize, bool) {
        (self.order.len(), self.order.first().is_some_and(|(rank, ..)| rank.violations == 0))
    }

    /// Those equal to the best by all criteria.
    pub(crate) fn best(&self) -> impl Iterator<Item = &Arc<Candidate>> {
        let first = self.order.first().map(|(rank, ..)| rank);
        self.ranked().take_while(move |c| Some(&c.rank) == first)
    }

    /// What was said of the nodes that could not, with how many each.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (&Status, u32)> {
        self.failed.iter().map(|(status, nodes)| (&**status, *nodes))
    }

    /// What went wrong where it was tried whether somebody could go, as upstream adds errors up.
    pub(crate) fn errors(&self) -> Option<String> {
        let failed = self.failed.keys().filter(|status| status.code == Code::Error);
        let texts: BTreeSet<String> = failed.map(|status| status.message()).collect();
        let all = || texts.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        match texts.len() {
            0 => None,
            1 => texts.first().cloned(),
            _ => Some(format!("[{}]", all())),
        }
    }

    /// About how many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.order.len() * 160
    }
}
