//! What a shape knows of every node, kept current change by change.
//!
//! Owns verdicts and scores per shape. A node change re-keys that node; a changed
//! extreme re-keys classes of nodes, not nodes; the best node is the top of a
//! heap. The next pod of the same shape costs O(changed · log n). Must never
//! disagree with a fresh evaluation: a property test holds them equal.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use rayon::prelude::*;
use smallvec::SmallVec;

use super::preempt::Kept;
use super::prepare::{Prepared, Raw, stamp};
use super::prepare_classes::Layout;
use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId, NodeSet, NodeView};
use crate::framework::{ClassKey, Code, Profile, Status, UNRANKED};
use crate::hash::{TextMap, scramble, unscramble};
use crate::model::PodShape;

/// Verdict of a node that is in a class: it fits if its class does.
const FITS: u16 = 0;
/// Verdict of an index that is no node.
const NO_NODE: u16 = u16::MAX;
/// Nodes from which rating is worth spreading over threads.
const PARALLEL_FROM: usize = 8192;

/// About what a plugin that judges or rates classes remembers of a node.
const CLASS_PLUGIN_BYTES: usize = 64;

#[derive(Clone, Copy)]
struct Cell {
    score: i32,
    class: u32,
    verdict: u16,
}

const EMPTY: Cell = Cell { score: 0, class: 0, verdict: NO_NODE };

/// Nodes that plugins cannot tell apart, but for scores that need no normalising.
#[derive(Default)]
struct Class {
    /// See [`Layout`]; first the verdict of nodes that a later filter rejects.
    key: ClassKey,
    /// Nodes in the class.
    live: u32,
    /// (score, rank) packed; may hold entries that are no longer true.
    heap: BinaryHeap<u64>,
}

/// Why the nodes of a class do not fit.
enum ClassVerdict {
    /// A filter that judges classes: its position, and the reason.
    Plugin(usize, u8),
    /// A later filter that looked at each node.
    Late(u16),
}

/// A distinct verdict: which plugin, what it said, on how many nodes.
#[derive(Clone)]
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
    class_index: TextMap<ClassKey, u32>,
    layout: Layout,
    /// Classes whose nodes fit.
    open: Vec<u32>,
    verdicts: Vec<Verdict>,
    verdict_index: TextMap<(Option<usize>, Status), u16>,
    feasible: u32,
    live_classes: u32,
    synced: u64,
    stamp: u64,
    /// Of which version of the profile it is.
    pub(super) version: u64,
    seed: u32,
    /// Nodes whose verdict counts pods that are expected there.
    expecting: BTreeSet<NodeId>,
    /// Nodes to look at again although they did not change.
    dirty: Vec<NodeId>,
    /// What preemption found, while it is worth keeping.
    pub(super) preemption: Option<Box<Kept>>,
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
            layout: Layout::default(),
            open: Vec::new(),
            verdicts: vec![],
            verdict_index: TextMap::default(),
            feasible: 0,
            live_classes: 0,
            synced: cluster.journal.head(),
            stamp: stamp(profile, shape, cluster),
            version: profile.version(),
            seed,
            expecting: BTreeSet::new(),
            dirty: Vec::new(),
            preemption: None,
            last_used: 0,
        };
        if ledger.prepared.rejected.is_none() {
            ledger.fill(profile, shape, cluster);
            ledger.open_classes(profile);
        }
        ledger
    }

    /// Approximate bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let heaps: usize = self.classes.iter().map(|c| c.heap.capacity() * 8).sum();
        let by_class = self.prepared.class_plugins() * self.cells.capacity() * CLASS_PLUGIN_BYTES;
        let kept = self.preemption.as_ref().map_or(0, |kept| kept.bytes());
        self.cells.capacity() * size_of::<Cell>() + heaps + by_class + kept + 1024
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
                let view = cluster.view(node);
                let status = self.prepared.verdict_of(profile, shape, plugin, view);
                debug_assert!(status.is_some(), "narrow() and filter() disagree");
                if let Some(status) = status {
                    self.reject(profile, view, plugin, status);
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
            self.set_class(profile, cluster.view(node), &raw, FITS);
        }
    }

    /// A filter that looks at shape and node only rejects a node. If it comes after
    /// one that judges classes, that one has the first word.
    fn reject(&mut self, profile: &Profile, node: NodeView<'_>, plugin: usize, status: Status) {
        let verdict = self.verdict(Some(plugin), status);
        if plugin > self.prepared.first_class_filter() {
            self.set_class(profile, node, &Raw::default(), verdict);
        } else {
            self.set_verdict(node.id(), verdict);
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

    fn set_class(&mut self, profile: &Profile, view: NodeView<'_>, raw: &Raw, late: u16) {
        let node = view.id();
        let mut key = ClassKey::new();
        key.push(late.into());
        if late == FITS {
            key.extend_from_slice(&raw.open);
        } else {
            key.resize(1 + self.prepared.open_scores(), 0);
        }
        self.prepared.tell(profile, view, &mut key, &mut self.layout);
        let class = match self.class_index.get(&key) {
            Some(&class) => class,
            None => {
                let class = self.classes.len() as u32;
                self.classes.push(Class { key: key.clone(), ..Class::default() });
                self.class_index.insert(key, class);
                class
            }
        };
        // Profiles guarantee that weighted sums fit; a custom plugin that breaks
        // its range must not wrap around.
        let score =
            i32::try_from(raw.fixed).unwrap_or(if raw.fixed < 0 { i32::MIN } else { i32::MAX });
        self.cells[node.index()] = Cell { score, class, verdict: FITS };
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
        self.expecting.remove(&node);
        if !cluster.nodes().contains(node) {
            return;
        }
        debug_assert!(self.prepared.allowed.is_none(), "pinned shapes are rebuilt");
        let view = cluster.view(node);
        match self.prepared.judge_alone(profile, shape, view) {
            Ok(()) => {
                let raw = self.prepared.rate(profile, shape, view);
                self.set_class(profile, view, &raw, FITS);
            }
            Err((plugin, status)) => self.reject(profile, view, plugin, status),
        }
    }

    /// What is said of a class: the first filter to reject it, with its words or
    /// the number of its verdict.
    fn class_verdict(&self, profile: &Profile, class: &Class) -> Result<(), ClassVerdict> {
        let late = class.key[0] as u16;
        match self.prepared.judge_class(profile, &class.key, &self.layout) {
            Err((plugin, reason)) => {
                let by = self.verdicts.get(usize::from(late).wrapping_sub(1));
                if late != FITS && by.is_some_and(|v| v.plugin < Some(plugin)) {
                    return Err(ClassVerdict::Late(late));
                }
                Err(ClassVerdict::Plugin(plugin, reason))
            }
            Ok(()) if late == FITS => Ok(()),
            Ok(()) => Err(ClassVerdict::Late(late)),
        }
    }

    /// Finds the classes whose nodes fit.
    pub(super) fn open_classes(&mut self, profile: &Profile) {
        let mut open = std::mem::take(&mut self.open);
        open.clear();
        self.feasible = 0;
        for (i, class) in self.classes.iter().enumerate().filter(|(_, c)| c.live > 0) {
            if self.class_verdict(profile, class).is_ok() {
                open.push(i as u32);
                self.feasible += class.live;
            }
        }
        self.open = open;
    }

    /// Catches up with the journal. False if the ledger must be rebuilt.
    pub(crate) fn sync(&mut self, profile: &Profile, shape: &PodShape, cluster: &Cluster) -> bool {
        // Names pinned by PreFilter, or plugin state, may refer to nodes by what
        // they were: such shapes are rebuilt when nodes come or go.
        let fixed_names = self.prepared.allowed.is_some() || self.prepared.rejected.is_some();
        if stamp(profile, shape, cluster) != self.stamp
            || fixed_names && (self.synced != cluster.journal.head() || !self.dirty.is_empty())
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
        let mut changes: Vec<NodeId> = changes.collect();
        changes.append(&mut self.dirty);
        changes.sort_unstable();
        changes.dedup();
        for i in 0..changes.len() {
            let node = changes[i];
            if !self.prepared.follow(profile, shape, cluster, node, &mut changes) {
                return false;
            }
        }
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
        self.open_classes(profile);
        true
    }

    /// Nodes whose verdict has to count pods that are expected there, and does not
    /// yet; all of them if verdicts depend on more than the node.
    pub(super) fn unexpected(
        &mut self,
        profile: &Profile,
        shape: &PodShape,
        cluster: &Cluster,
    ) -> Vec<NodeId> {
        if self.prepared.rejected.is_some() {
            return Vec::new();
        }
        let allowed = |node: &NodeId| {
            self.prepared.allowed.as_ref().is_none_or(|allowed| allowed.contains(*node))
        };
        let nodes: Vec<NodeId> = cluster.nominated_nodes().into_iter().filter(allowed).collect();
        // Pinned shapes are rebuilt with every change.
        if self.prepared.first_class_filter() == usize::MAX || self.prepared.allowed.is_some() {
            return nodes.into_iter().filter(|n| !self.expecting.contains(n)).collect();
        }
        for node in std::mem::take(&mut self.expecting) {
            self.refresh(profile, shape, cluster, node);
        }
        nodes
    }

    /// What is said of a node that counts the pods expected there.
    pub(super) fn expect(&mut self, node: NodeId, verdict: Result<(), (usize, Status)>) {
        if let Err((plugin, status)) = verdict {
            self.clear(node);
            let verdict = self.verdict(Some(plugin), status);
            self.set_verdict(node, verdict);
        }
        self.expecting.insert(node);
    }

    /// As `expect`, for one pod only: the node is looked at again for the next one.
    pub(super) fn expect_once(
        &mut self,
        profile: &Profile,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        verdict: Result<(), (usize, Status)>,
    ) {
        match &self.prepared.allowed {
            Some(allowed) if !allowed.contains(node) => return,
            Some(_) => {}
            None => self.refresh(profile, shape, cluster, node),
        }
        self.expect(node, verdict);
        self.dirty.push(node);
    }

    /// Whether what preemption finds for one pod holds for the next: verdicts depend
    /// on nothing but the node.
    pub(super) fn keeps_preemption(&self) -> bool {
        let prepared = &self.prepared;
        prepared.first_class_filter() == usize::MAX
            && prepared.rejected.is_none()
            && prepared.allowed.is_none()
    }

    /// What was said of a node: the code, success if it fits.
    pub(super) fn code_of(&self, profile: &Profile, node: NodeId) -> Option<Code> {
        self.said_of(profile, node).map(|(code, _)| code)
    }

    /// What was said of a node, and by which filter if it does not fit.
    pub(super) fn said_of(&self, profile: &Profile, node: NodeId) -> Option<(Code, Option<usize>)> {
        if let Some((plugin, status)) = &self.prepared.rejected {
            return Some((status.code, *plugin));
        }
        if self.prepared.allowed.as_ref().is_some_and(|allowed| !allowed.contains(node)) {
            return self.prepared.outside.as_ref().map(|s| (s.code, None));
        }
        let cell = self.cells.get(node.index())?;
        let said = |verdict: u16| {
            self.verdicts.get(usize::from(verdict) - 1).map(|v| (v.status.code, v.plugin))
        };
        match cell.verdict {
            NO_NODE => None,
            FITS => match self.class_verdict(profile, &self.classes[cell.class as usize]) {
                Ok(()) => Some((Code::Success, None)),
                Err(ClassVerdict::Late(verdict)) => said(verdict),
                Err(ClassVerdict::Plugin(plugin, reason)) => {
                    let status = Prepared::class_status(profile, plugin, reason);
                    status.map(|s| (s.code, Some(plugin)))
                }
            },
            verdict => said(verdict),
        }
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

    /// Whether a plugin could not judge some node.
    pub(crate) fn is_broken(&self) -> bool {
        self.verdicts.iter().any(|v| v.nodes > 0 && v.status.code == Code::Error)
    }

    /// How many nodes fit.
    pub(crate) fn feasible(&self) -> u32 {
        self.feasible
    }

    /// Distinct verdicts with the number of nodes each holds for.
    pub(crate) fn verdicts(&self, profile: &Profile) -> Vec<Verdict> {
        let mut all: Vec<Verdict> = self.verdicts.iter().map(Verdict::clone).collect();
        let mut by_class: BTreeMap<(usize, u8), u32> = BTreeMap::new();
        for class in self.classes.iter().filter(|c| c.live > 0) {
            match self.class_verdict(profile, class) {
                Ok(()) => {}
                Err(ClassVerdict::Late(verdict)) => {
                    all[usize::from(verdict) - 1].nodes += class.live;
                }
                Err(ClassVerdict::Plugin(plugin, reason)) => {
                    *by_class.entry((plugin, reason)).or_default() += class.live;
                }
            }
        }
        for ((plugin, reason), nodes) in by_class {
            if let Some(status) = Prepared::class_status(profile, plugin, reason) {
                all.push(Verdict { plugin: Some(plugin), status, nodes });
            }
        }
        all.retain(|v| v.nodes > 0);
        all
    }

    /// The best node and its total score; ties go to the greater rank.
    pub(crate) fn best(&mut self, profile: &Profile) -> Option<(NodeId, i64)> {
        let parts = self.class_parts(profile);
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

    /// The nodes that fit, in order.
    pub(super) fn fitting(&self) -> Vec<NodeId> {
        let mut open = vec![false; self.classes.len()];
        self.open.iter().for_each(|class| open[*class as usize] = true);
        let fits = |cell: &Cell| cell.verdict == FITS && open[cell.class as usize];
        let cells = self.cells.iter().enumerate().filter(|(_, cell)| fits(cell));
        cells.map(|(i, _)| NodeId(i as u32)).collect()
    }

    /// As `best`, among some of the nodes that fit, each with what is added to its score:
    /// scores are normalised over these.
    pub(super) fn best_among(
        &self,
        profile: &Profile,
        nodes: &[(NodeId, i64)],
    ) -> Option<(NodeId, i64)> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for (node, _) in nodes {
            *counts.entry(self.cells.get(node.index())?.class).or_default() += 1;
        }
        let classes: Vec<(u32, u32)> = counts.into_iter().collect();
        let parts: BTreeMap<u32, i64> = self.parts_of(profile, &classes).into_iter().collect();
        let total = |&(node, extra): &(NodeId, i64)| {
            let cell = &self.cells[node.index()];
            let own = parts.get(&cell.class).copied().unwrap_or(0);
            (own.saturating_add(cell.score.into()).saturating_add(extra), node)
        };
        let rank = |&(total, node): &(i64, NodeId)| (total, scramble(node.0, self.seed));
        nodes.iter().map(total).max_by_key(rank).map(|(total, node)| (node, total))
    }

    /// Whether a node fits, or could if the pods of other nodes were others.
    pub(super) fn might_fit(&self, node: NodeId) -> bool {
        let cell = self.cells.get(node.index()).filter(|cell| cell.verdict == FITS);
        self.prepared.rejected.is_none()
            && cell.is_some_and(|cell| self.classes[cell.class as usize].key[0] == i64::from(FITS))
    }

    /// Whether any of these nodes fits.
    pub(super) fn fits_any(&self, nodes: &[NodeId]) -> bool {
        nodes.iter().any(|node| {
            let cell = self.cells.get(node.index()).filter(|cell| cell.verdict == FITS);
            cell.is_some_and(|cell| self.open.binary_search(&cell.class).is_ok())
        })
    }

    /// As `best`, among these nodes: scores are normalised over those of them that fit.
    pub(super) fn best_within(&self, profile: &Profile, nodes: &[NodeId]) -> Option<(NodeId, i64)> {
        let fits = |node: &NodeId| {
            let cell = self.cells.get(node.index()).filter(|cell| cell.verdict == FITS)?;
            self.open.binary_search(&cell.class).ok()?;
            Some((cell.class, *node))
        };
        let mut fitting: SmallVec<[(u32, NodeId); 32]> = nodes.iter().filter_map(fits).collect();
        fitting.sort_unstable();
        let same = |a: &(u32, NodeId), b: &(u32, NodeId)| a.0 == b.0;
        let classes: SmallVec<[(u32, u32); 8]> =
            fitting.chunk_by(same).map(|own| (own[0].0, own.len() as u32)).collect();
        let parts = self.parts_of(profile, &classes);
        let mut best: Option<(i64, u32, NodeId)> = None;
        for (own, (_, part)) in fitting.chunk_by(same).zip(parts) {
            for (_, node) in own {
                let total = part.saturating_add(self.cells[node.index()].score.into());
                let candidate = (total, scramble(node.0, self.seed), *node);
                best = best.max(Some(candidate));
            }
        }
        best.map(|(total, _, node)| (node, total))
    }

    /// As `verdicts`, of these nodes only.
    pub(super) fn verdicts_within(&self, profile: &Profile, nodes: &[NodeId]) -> Vec<Verdict> {
        let mut all: Vec<Verdict> = Vec::new();
        let mut count = |plugin: Option<usize>, status: Status| {
            let same = |v: &&mut Verdict| v.plugin == plugin && v.status == status;
            match all.iter_mut().find(same) {
                Some(known) => known.nodes += 1,
                None => all.push(Verdict { plugin, status, nodes: 1 }),
            }
        };
        let kept = |verdict: u16| self.verdicts.get(usize::from(verdict) - 1);
        for node in nodes {
            let cell = self.cells.get(node.index()).copied().unwrap_or(EMPTY);
            let late = match cell.verdict {
                NO_NODE => {
                    if let Some(outside) = &self.prepared.outside {
                        count(None, outside.clone());
                    }
                    continue;
                }
                FITS => match self.class_verdict(profile, &self.classes[cell.class as usize]) {
                    Ok(()) => continue,
                    Err(ClassVerdict::Late(verdict)) => verdict,
                    Err(ClassVerdict::Plugin(plugin, reason)) => {
                        if let Some(status) = Prepared::class_status(profile, plugin, reason) {
                            count(Some(plugin), status);
                        }
                        continue;
                    }
                },
                verdict => verdict,
            };
            if let Some(verdict) = kept(late) {
                count(verdict.plugin, verdict.status.clone());
            }
        }
        all
    }

    /// The normalised, weighted part of each class whose nodes fit.
    fn class_parts(&self, profile: &Profile) -> SmallVec<[(u32, i64); 8]> {
        let live = |i: &u32| (*i, self.classes[*i as usize].live);
        self.parts_of(profile, &self.open.iter().map(live).collect::<SmallVec<[_; 8]>>())
    }

    /// The same of some classes, with as many nodes each.
    fn parts_of(&self, profile: &Profile, classes: &[(u32, u32)]) -> SmallVec<[(u32, i64); 8]> {
        let mut parts: SmallVec<[(u32, i64); 8]> = classes.iter().map(|(i, _)| (*i, 0)).collect();
        let key = |i: u32| self.classes[i as usize].key.as_slice();
        let open: SmallVec<[(&[i64], u32); 8]> =
            classes.iter().map(|(i, nodes)| (key(*i), *nodes)).collect();
        for (weight, normalize, raws) in self.prepared.raw_columns(profile, &self.layout, &open) {
            let ranked = raws.iter().filter(|r| **r != UNRANKED);
            let (min, max) =
                ranked.fold((i64::MAX, i64::MIN), |(lo, hi), &r| (lo.min(r), hi.max(r)));
            for ((_, part), raw) in parts.iter_mut().zip(raws) {
                let score = normalize.apply(raw, min, max);
                *part = part.saturating_add(weight.saturating_mul(score));
            }
        }
        parts
    }

    /// The total of one feasible node, for checks.
    #[cfg(test)]
    pub(crate) fn total(&self, profile: &Profile, node: NodeId) -> Option<i64> {
        let cell = self.cells.get(node.index()).filter(|c| c.verdict == FITS)?;
        let part = self.class_parts(profile).into_iter().find(|(i, _)| *i == cell.class)?.1;
        Some(part.saturating_add(cell.score.into()))
    }
}
