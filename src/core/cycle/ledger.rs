//! What a shape knows of every node, kept current change by change.
//!
//! Owns verdicts and scores per shape. A node change re-keys that node; a changed
//! extreme re-keys classes of nodes, not nodes; the best node is the top of a
//! heap. The next pod of the same shape costs O(changed · log n). Must never
//! disagree with a fresh evaluation: a property test holds them equal.

use std::collections::BinaryHeap;

use rayon::prelude::*;
use smallvec::SmallVec;

use super::prepare::{Prepared, Raw, stamp};
use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId, NodeSet};
use crate::framework::{Profile, Status};
use crate::hash::{TextMap, scramble, unscramble};
use crate::model::PodShape;

/// Verdict of a node that fits.
const FITS: u16 = 0;
/// Verdict of an index that is no node.
const NO_NODE: u16 = u16::MAX;
/// Nodes from which rating is worth spreading over threads.
const PARALLEL_FROM: usize = 8192;

#[derive(Clone, Copy)]
struct Cell {
    score: i32,
    class: u32,
    verdict: u16,
}

const EMPTY: Cell = Cell { score: 0, class: 0, verdict: NO_NODE };

/// Nodes whose normalised scores are equal because their raw scores are.
#[derive(Default)]
struct Class {
    raw: SmallVec<[i64; 4]>,
    /// Feasible nodes in the class.
    live: u32,
    /// (score, rank) packed; may hold entries that are no longer true.
    heap: BinaryHeap<u64>,
}

/// A distinct verdict: which plugin, what it said, on how many nodes.
pub(crate) struct Verdict {
    pub(crate) plugin: Option<usize>,
    pub(crate) status: Status,
    pub(crate) nodes: u32,
}

/// Verdicts and scores of all nodes for one shape.
pub(crate) struct Ledger {
    pub(crate) prepared: Prepared,
    cells: Vec<Cell>,
    classes: Vec<Class>,
    class_index: TextMap<SmallVec<[i64; 4]>, u32>,
    verdicts: Vec<Verdict>,
    verdict_index: TextMap<(Option<usize>, Status), u16>,
    feasible: u32,
    live_classes: u32,
    synced: u64,
    stamp: u64,
    seed: u32,
    pub(crate) last_used: u64,
}

fn pack(score: i32, node: NodeId, seed: u32) -> u64 {
    let biased = (i64::from(score) - i64::from(i32::MIN)) as u64;
    biased << 32 | u64::from(scramble(node.0, seed))
}

fn unpack(key: u64, seed: u32) -> (i32, NodeId) {
    let score = (key >> 32) as i64 + i64::from(i32::MIN);
    (score as i32, NodeId(unscramble(key as u32, seed)))
}

impl Ledger {
    pub(crate) fn build(profile: &Profile, shape: &PodShape, cluster: &Cluster, seed: u32) -> Self {
        let mut ledger = Self {
            prepared: Prepared::new(profile, shape, cluster),
            cells: vec![EMPTY; cluster.node_capacity()],
            classes: Vec::new(),
            class_index: TextMap::default(),
            verdicts: vec![],
            verdict_index: TextMap::default(),
            feasible: 0,
            live_classes: 0,
            synced: cluster.journal.head(),
            stamp: stamp(profile, shape, cluster),
            seed,
            last_used: 0,
        };
        if ledger.prepared.rejected.is_none() {
            ledger.fill(profile, shape, cluster);
        }
        ledger
    }

    /// Approximate bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let heaps: usize = self.classes.iter().map(|c| c.heap.capacity() * 8).sum();
        self.cells.capacity() * size_of::<Cell>() + heaps + 1024
    }

    fn fill(&mut self, profile: &Profile, shape: &PodShape, cluster: &Cluster) {
        let mut set = cluster.nodes().clone();
        if let (Some(allowed), Some(outside)) = (&self.prepared.allowed, &self.prepared.outside) {
            let mut rest = set.clone();
            rest.subtract(allowed);
            set.intersect(allowed);
            // Counted at once, not cell by cell: a pinned shape (a DaemonSet's pod) is
            // rebuilt whenever a node changes.
            let (status, count) = (outside.clone(), rest.len());
            let verdict = self.verdict(None, status);
            self.verdicts[usize::from(verdict) - 1].nodes =
                u32::try_from(count).unwrap_or(u32::MAX);
        }
        let mut lost: Vec<(usize, NodeSet)> = Vec::new();
        self.prepared.narrow_all(profile, shape, cluster, &mut set, |p, nodes| {
            lost.push((p, nodes.clone()));
        });
        for (plugin, nodes) in lost {
            for node in nodes.iter() {
                let status = self.prepared.verdict_of(profile, shape, plugin, cluster.view(node));
                debug_assert!(status.is_some(), "narrow() and filter() disagree");
                if let Some(status) = status {
                    let verdict = self.verdict(Some(plugin), status);
                    self.set_verdict(node, verdict);
                }
            }
        }
        let nodes: Vec<NodeId> = set.iter().collect();
        let prepared = &self.prepared;
        let rate = |node: &NodeId| prepared.rate(profile, shape, cluster.view(*node));
        // Collected in index order: the same bytes whatever the number of threads.
        let raws: Vec<Raw> = if nodes.len() >= PARALLEL_FROM {
            nodes.par_iter().with_min_len(1024).map(rate).collect()
        } else {
            nodes.iter().map(rate).collect()
        };
        for (node, raw) in nodes.into_iter().zip(raws) {
            self.set_feasible(node, &raw);
        }
    }

    fn verdict(&mut self, plugin: Option<usize>, status: Status) -> u16 {
        let key = (plugin, status);
        if let Some(&id) = self.verdict_index.get(&key) {
            return id;
        }
        // Distinct verdicts per shape are few: reasons times resources.
        let id = u16::try_from(self.verdicts.len() + 1).unwrap_or(NO_NODE).min(NO_NODE - 1);
        if usize::from(id) > self.verdicts.len() {
            self.verdicts.push(Verdict { plugin, status: key.1.clone(), nodes: 0 });
            self.verdict_index.insert(key, id);
        }
        id
    }

    fn set_verdict(&mut self, node: NodeId, verdict: u16) {
        self.verdicts[usize::from(verdict) - 1].nodes += 1;
        self.cells[node.index()] = Cell { verdict, ..EMPTY };
    }

    fn set_feasible(&mut self, node: NodeId, raw: &Raw) {
        let class = match self.class_index.get(&raw.open) {
            Some(&class) => class,
            None => {
                let class = self.classes.len() as u32;
                self.classes.push(Class { raw: raw.open.clone(), ..Class::default() });
                self.class_index.insert(raw.open.clone(), class);
                class
            }
        };
        // Profiles guarantee that weighted sums fit; a custom plugin that breaks
        // its range must not wrap around.
        let score =
            i32::try_from(raw.fixed).unwrap_or(if raw.fixed < 0 { i32::MIN } else { i32::MAX });
        self.cells[node.index()] = Cell { score, class, verdict: FITS };
        self.feasible += 1;
        let seed = self.seed;
        let slot = &mut self.classes[class as usize];
        self.live_classes += u32::from(slot.live == 0);
        slot.live += 1;
        slot.heap.push(pack(score, node, seed));
        if slot.heap.len() > 2 * slot.live as usize + 64 {
            let cells = &self.cells;
            slot.heap.retain(|&key| {
                let (score, node) = unpack(key, seed);
                let cell = cells[node.index()];
                cell.verdict == FITS && cell.class == class && cell.score == score
            });
        }
    }

    fn clear(&mut self, node: NodeId) {
        let cell = std::mem::replace(&mut self.cells[node.index()], EMPTY);
        match cell.verdict {
            NO_NODE => {}
            FITS => {
                self.feasible -= 1;
                let slot = &mut self.classes[cell.class as usize];
                slot.live -= 1;
                self.live_classes -= u32::from(slot.live == 0);
            }
            verdict => self.verdicts[usize::from(verdict) - 1].nodes -= 1,
        }
    }

    fn refresh(&mut self, profile: &Profile, shape: &PodShape, cluster: &Cluster, node: NodeId) {
        if node.index() >= self.cells.len() {
            self.cells.resize(cluster.node_capacity(), EMPTY);
        }
        self.clear(node);
        if !cluster.nodes().contains(node) {
            return;
        }
        debug_assert!(self.prepared.allowed.is_none(), "pinned shapes are rebuilt");
        let view = cluster.view(node);
        match self.prepared.judge(profile, shape, view) {
            Ok(()) => {
                let raw = self.prepared.rate(profile, shape, view);
                self.set_feasible(node, &raw);
            }
            Err((plugin, status)) => {
                let verdict = self.verdict(Some(plugin), status);
                self.set_verdict(node, verdict);
            }
        }
    }

    /// Catches up with the journal. False if the ledger must be rebuilt.
    pub(crate) fn sync(&mut self, profile: &Profile, shape: &PodShape, cluster: &Cluster) -> bool {
        // Names pinned by PreFilter, or plugin state, may refer to nodes by what
        // they were: such shapes are rebuilt when nodes come or go.
        let fixed_names = self.prepared.allowed.is_some() || self.prepared.rejected.is_some();
        if stamp(profile, shape, cluster) != self.stamp
            || fixed_names && self.synced != cluster.journal.head()
        {
            return false;
        }
        // Raw scores that drift leave empty classes behind; start afresh.
        if self.classes.len() > 64 + 4 * self.live_classes as usize {
            return false;
        }
        let Some(changes) = cluster.journal.since(self.synced) else {
            return false;
        };
        if changes.len() > self.cells.len().max(64) {
            return false;
        }
        let mut changes: SmallVec<[NodeId; 16]> = changes.collect();
        changes.sort_unstable();
        changes.dedup();
        if bug!(cluster.bugs, StaleLedger) {
            changes.clear();
        }
        for node in changes {
            if bug!(cluster.bugs, StaleScore) && self.still_fits(profile, shape, cluster, node) {
                continue;
            }
            self.refresh(profile, shape, cluster, node);
        }
        self.synced = cluster.journal.head();
        true
    }

    /// Whether a node fitted and still does.
    fn still_fits(
        &self,
        profile: &Profile,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
    ) -> bool {
        self.cells.get(node.index()).is_some_and(|c| c.verdict == FITS)
            && cluster.nodes().contains(node)
            && self.prepared.judge(profile, shape, cluster.view(node)).is_ok()
    }

    /// How many nodes fit.
    pub(crate) fn feasible(&self) -> u32 {
        self.feasible
    }

    /// Distinct verdicts with the number of nodes each holds for.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|v| v.nodes > 0)
    }

    /// The best node and its total score; ties go to the greater rank.
    pub(crate) fn best(&mut self) -> Option<(NodeId, i64)> {
        let parts = self.class_parts();
        let mut best: Option<(i64, u32, NodeId)> = None;
        for (class, part) in parts {
            let slot = &mut self.classes[class as usize];
            while let Some(&key) = slot.heap.peek() {
                let (score, node) = unpack(key, self.seed);
                let cell = self.cells[node.index()];
                if cell.verdict == FITS && cell.class == class && cell.score == score {
                    let candidate = (part.saturating_add(score.into()), key as u32, node);
                    if best.is_none_or(|b| (candidate.0, candidate.1) > (b.0, b.1)) {
                        best = Some(candidate);
                    }
                    break;
                }
                slot.heap.pop();
            }
        }
        best.map(|(total, _, node)| (node, total))
    }

    /// The normalised, weighted part of each class that has nodes.
    fn class_parts(&self) -> SmallVec<[(u32, i64); 8]> {
        let live = || self.classes.iter().enumerate().filter(|(_, c)| c.live > 0);
        let mut parts: SmallVec<[(u32, i64); 8]> = live().map(|(i, _)| (i as u32, 0)).collect();
        for (dimension, (weight, normalize)) in self.prepared.normalizers().enumerate() {
            let raw = |i: u32| self.classes[i as usize].raw[dimension];
            let extremes = parts.iter().map(|(i, _)| raw(*i));
            let (min, max) =
                extremes.fold((i64::MAX, i64::MIN), |(lo, hi), r| (lo.min(r), hi.max(r)));
            for (i, part) in &mut parts {
                let score = normalize.apply(raw(*i), min, max);
                *part = part.saturating_add(weight.saturating_mul(score));
            }
        }
        parts
    }

    /// The total of one feasible node, for checks.
    #[cfg(test)]
    pub(crate) fn total(&self, node: NodeId) -> Option<i64> {
        let cell = self.cells.get(node.index()).filter(|c| c.verdict == FITS)?;
        let part = self.class_parts().into_iter().find(|(i, _)| *i == cell.class)?.1;
        Some(part.saturating_add(cell.score.into()))
    }
}
