//! Topology between nodes: levels told by labels, domains, and the arithmetic of how many
//! fit where.
//!
//! Owns which levels there are ([`Topologies`]), what a wish means ([`Asked`]), who is in
//! which domain ([`Tree`]) and which domains are worth a try, in which order ([`Room`]).
//! Counts here are upper bounds: whether members really fit is decided by seating them.
//! Must never seat anybody, or judge a node.

mod asked;
mod pack;
mod pick;
mod room;
mod segments;
#[cfg(test)]
mod tests;
mod tree;

pub(crate) use asked::Asked;
pub(crate) use pack::{Alike, Packed, pack};
pub(crate) use room::{Room, Worth};
pub(crate) use segments::{Cut, Piece, lay};
#[cfg(test)]
pub(crate) use tests::Dice;
pub(crate) use tree::{Domain, Tree};

use std::sync::Arc;

use muster_api::muster::{ClusterTopology, MAX_LEVELS};

use crate::cluster::Objects;

/// Topologies that are read; by name, the rest are as if they were not there.
pub const MAX_TOPOLOGIES: usize = 32;

/// One topology: its levels, widest first, each a name and a node label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels(pub Vec<(Box<str>, Box<str>)>);

impl Levels {
    fn of(wire: &ClusterTopology) -> Self {
        let mut levels: Vec<(Box<str>, Box<str>)> = Vec::new();
        for level in wire.spec.levels.iter().take(MAX_LEVELS) {
            // The API server refuses these; a list without it may have them.
            let known = levels.iter().any(|(name, key)| {
                **name == *level.name || **key == *level.node_label || level.node_label.is_empty()
            });
            if !known && !level.name.is_empty() {
                levels.push((level.name.as_str().into(), level.node_label.as_str().into()));
            }
        }
        Self(levels)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|(own, _)| **own == *name)
    }
}

/// All topologies, by name. Shared between forks.
#[derive(Clone, Default)]
pub struct Topologies {
    levels: Objects<Levels>,
}

impl Topologies {
    /// Takes in a topology; true if its levels are news.
    pub(crate) fn upsert(&mut self, wire: &ClusterTopology, seen: u64) -> bool {
        let levels = Arc::new(Levels::of(wire));
        let before = self.levels.insert(&wire.metadata.name, Arc::clone(&levels), seen);
        before.is_none_or(|before| before != levels)
    }

    /// Forgets a topology; true if it was known.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        self.levels.remove(name).is_some()
    }

    /// Forgets what was last seen before relist `seen`; true if anything was.
    pub(crate) fn sweep(&mut self, seen: u64) -> bool {
        let stale = self.levels.stale(seen);
        stale.iter().for_each(|name| drop(self.levels.remove(name)));
        !stale.is_empty()
    }

    /// Those that are read, in order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &Levels> {
        self.levels.iter().map(|(_, levels)| &**levels).take(MAX_TOPOLOGIES)
    }
}
