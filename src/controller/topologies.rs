//! Topologies: their trees, and what their status says. No I/O, no clock, no lock.

use std::collections::BTreeMap;

use muster_api::k8s::Time;
use muster_api::muster::{
    ClusterTopology, ClusterTopologyStatus, Condition, TopologyLevel, topology_condition,
    topology_reason,
};
use muster_core::topology::MAX_TOPOLOGIES;
use tokio::time::Instant;

use super::Note;
use super::board::Outcome;
use super::ground::Ground;
use super::pace::{GATHER, Pace};
use crate::topology::{Tree, counted};

/// A status to be written.
#[derive(Debug)]
pub(super) struct TopologyWrite {
    pub(super) name: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) version: Box<str>,
    pub(super) status: ClusterTopologyStatus,
    /// Whether more than counts has changed.
    substance: bool,
}

#[derive(Debug)]
struct Topology {
    uid: Box<str>,
    version: Box<str>,
    generation: Option<i64>,
    status: ClusterTopologyStatus,
    list: u32,
    tree: Tree,
    /// The tree's [`Tree::built`] when it was last looked at.
    built: u64,
    pace: Pace,
    /// When it will be looked at.
    wake: Option<Instant>,
    flying: bool,
}

impl Topology {
    fn look_at(&mut self, at: Instant) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// All topologies, by name.
#[derive(Debug, Default)]
pub(super) struct Topologies {
    all: BTreeMap<Box<str>, Topology>,
    list: u32,
    listed: bool,
    /// Only a part of the nodes is seen here: somebody who sees all of them must write.
    part: bool,
}

impl Topologies {
    /// Nothing is written from now on: only a part of the nodes is seen here.
    pub(super) fn see_only_a_part(&mut self) {
        self.part = true;
    }

    /// The levels of each, in the order in which names of levels are looked for.
    pub(super) fn levels(&self) -> Vec<&[TopologyLevel]> {
        self.all.values().take(MAX_TOPOLOGIES).map(|t| t.tree.levels()).collect()
    }

    /// The tree of a topology.
    #[cfg(test)]
    pub(super) fn tree(&self, name: &str) -> Option<&Tree> {
        self.all.get(name).map(|topology| &topology.tree)
    }

    /// A watch speaks; `true` if levels are other ones now.
    pub(super) fn note(
        &mut self,
        note: Note<&ClusterTopology>,
        ground: &Ground,
        now: Instant,
    ) -> bool {
        match note {
            Note::Listing => {
                self.list += 1;
                false
            }
            Note::Changed(topology) => self.seen(topology, ground, now),
            Note::Gone(topology) => {
                let meta = &topology.metadata;
                let same = |known: &Topology| *known.uid == *meta.uid;
                self.all.get(meta.name.as_str()).is_some_and(same) && self.forget(&meta.name, now)
            }
            Note::Listed => {
                self.listed = true;
                let stale = self.all.iter().filter(|(_, t)| t.list != self.list);
                let gone: Vec<Box<str>> = stale.map(|(name, _)| name.clone()).collect();
                for name in gone {
                    self.forget(&name, now);
                }
                true
            }
        }
    }

    fn forget(&mut self, name: &str, now: Instant) -> bool {
        let was = self.all.remove(name).is_some();
        // Others may be meant now where it was.
        self.look_at_all(now);
        was
    }

    fn seen(&mut self, wire: &ClusterTopology, ground: &Ground, now: Instant) -> bool {
        let meta = &wire.metadata;
        let mut known = self.all.remove(meta.name.as_str()).filter(|t| *t.uid == *meta.uid);
        let levels = &wire.spec.levels;
        let old = known.take_if(|known| *known.tree.levels() != **levels);
        let news = known.is_none();
        let tree = match &known {
            Some(_) => Tree::default(), // the one that is there stays
            None => {
                let mut tree = Tree::new(levels.clone());
                for node in ground.nodes() {
                    put(&mut tree, ground, node);
                }
                tree
            }
        };
        let mut topology = known.unwrap_or_else(|| Topology {
            uid: meta.uid.as_str().into(),
            version: Box::default(),
            generation: None,
            status: ClusterTopologyStatus::default(),
            list: 0,
            built: tree.built(),
            tree,
            pace: old.as_ref().map(|old| old.pace.clone()).unwrap_or_default(),
            wake: None,
            flying: old.is_some_and(|old| old.flying),
        });
        topology.version = meta.resource_version.as_str().into();
        topology.generation = meta.generation;
        topology.status = wire.status.clone();
        topology.list = self.list;
        topology.look_at(now + GATHER);
        self.all.insert(meta.name.as_str().into(), topology);
        if news {
            self.look_at_all(now);
        }
        news
    }

    /// Takes over what has changed on the ground.
    pub(super) fn follow(&mut self, ground: &mut Ground, now: Instant) {
        let changed = ground.take_changed();
        for topology in self.all.values_mut() {
            let tree = &mut topology.tree;
            let mut any = false;
            for node in &changed {
                any |= put(tree, ground, node);
            }
            let built = tree.built() != topology.built;
            // Counts alone wait until they may be written.
            if built || (any && topology.wake.is_none()) {
                topology.look_at(now + GATHER);
            }
        }
    }

    pub(super) fn look_at_all(&mut self, now: Instant) {
        self.all.values_mut().for_each(|topology| topology.look_at(now + GATHER));
    }

    /// The first appointment, if all watches have shown what there is.
    pub(super) fn first(&self, complete: bool) -> Option<Instant> {
        let may = complete && self.listed && !self.part;
        self.all.values().filter(|t| may && !t.flying).filter_map(|t| t.wake).min()
    }

    /// What is to be written now, at most `room` of it.
    pub(super) fn due(&mut self, now: Instant, time: Time, room: usize) -> Vec<TopologyWrite> {
        let mut writes = Vec::new();
        if !self.listed || self.part {
            return writes;
        }
        let names: Vec<(Box<str>, Vec<TopologyLevel>)> =
            self.all.iter().map(|(n, t)| (n.clone(), t.tree.levels().to_vec())).collect();
        for (place, (name, topology)) in self.all.iter_mut().enumerate() {
            if writes.len() == room || topology.flying || topology.wake.is_none_or(|at| at > now) {
                continue;
            }
            topology.wake = None;
            topology.built = topology.tree.built();
            let accepted = accepted(&names, place);
            let status = status(topology, accepted, time);
            if status == topology.status {
                continue;
            }
            let substance = skeleton(&status) != skeleton(&topology.status);
            let allowed = topology.pace.allowed(substance, now);
            if allowed > now {
                topology.wake = Some(allowed);
                continue;
            }
            topology.flying = true;
            writes.push(TopologyWrite {
                name: name.clone(),
                uid: topology.uid.clone(),
                version: topology.version.clone(),
                status,
                substance,
            });
        }
        writes
    }

    /// What became of a write; returns how often it has failed in a row.
    pub(super) fn settled(&mut self, write: TopologyWrite, outcome: Outcome, now: Instant) -> u32 {
        let Some(topology) = self.all.get_mut(&write.name) else { return 0 };
        topology.flying = false;
        let next = match outcome {
            Outcome::Written(version) => {
                topology.pace.wrote(write.substance, now);
                if topology.uid == write.uid && topology.version == write.version {
                    // Ahead of the watch; not if the watch was faster.
                    topology.version = version;
                    topology.status = write.status;
                }
                now + GATHER
            }
            Outcome::Conflict => topology.pace.conflicted(now),
            _ => topology.pace.failed(now),
        };
        topology.look_at(next);
        topology.pace.failures()
    }
}

/// Brings a node in a tree up to date; `true` if that changes anything.
fn put(tree: &mut Tree, ground: &Ground, node: &str) -> bool {
    match ground.room(node) {
        Some(room) => tree.put(node, |key| ground.label(node, key), room),
        None => tree.take(node),
    }
}

/// Whether groups may ask for the levels of the topology at a place, with reason and
/// message.
fn accepted(all: &[(Box<str>, Vec<TopologyLevel>)], place: usize) -> (bool, &'static str, String) {
    if place >= MAX_TOPOLOGIES {
        let message = format!(
            "only the first {MAX_TOPOLOGIES} topologies by name are read: delete those that are \
             not needed"
        );
        return (false, topology_reason::TOO_MANY, message);
    }
    // Who asks for a level by name gets that of the first topology that has it.
    let shadowed = all[place].1.iter().filter_map(|level| {
        let first = all[..place].iter().find(|(_, l)| l.iter().any(|l| l.name == level.name))?;
        Some(format!("level {} is also one of {}, which comes first", level.name, first.0))
    });
    let shadowed: Vec<String> = shadowed.collect();
    (true, topology_reason::ACCEPTED, shadowed.join("; "))
}

fn status(
    topology: &Topology,
    (holds, reason, message): (bool, &str, String),
    time: Time,
) -> ClusterTopologyStatus {
    let before = &topology.status.conditions;
    let kind = topology_condition::ACCEPTED;
    let status = if holds { "True" } else { "False" };
    let same = before.iter().find(|c| c.kind == kind && c.status == status);
    let own = Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        observed_generation: topology.generation,
        last_transition_time: same.map_or(time.whole_seconds(), |c| c.last_transition_time),
        reason: reason.to_owned(),
        message,
    };
    let others = before.iter().filter(|c| c.kind != kind).cloned();
    ClusterTopologyStatus {
        observed_generation: topology.generation,
        conditions: std::iter::once(own).chain(others).collect(),
        ..counted(&topology.tree)
    }
}

/// A status without its counts.
fn skeleton(status: &ClusterTopologyStatus) -> ClusterTopologyStatus {
    let mut bare = status.clone();
    for level in &mut bare.levels {
        level.nodes_without_label = 0;
    }
    for domain in &mut bare.domains {
        (domain.nodes, domain.gpus, domain.free_gpus) = (0, 0, 0);
    }
    bare
}
