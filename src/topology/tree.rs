//! The tree: domains within domains, with what their nodes have.
//!
//! A change of one node costs O(levels), so that the controller can keep a tree up
//! to date while watches speak.

use std::collections::{BTreeMap, HashMap};

use muster_api::muster::TopologyLevel;

/// The label that every node has to itself.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a node has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// GPUs that it offers.
    pub gpus: i64,
    /// GPUs that pods on it ask for.
    pub used: i64,
    /// Why it takes no pods, if it takes none.
    pub closed: Option<&'static str>,
}

impl Room {
    /// GPUs that a pod could have: none on a node that takes no pods.
    #[must_use]
    pub fn free(&self) -> i64 {
        if self.closed.is_some() { 0 } else { self.gpus - self.taken() }
    }

    /// GPUs in use: no more than there are, even if others have overcommitted.
    #[must_use]
    pub fn taken(&self) -> i64 {
        self.used.clamp(0, self.gpus.max(0))
    }
}

/// What the nodes of a domain have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Nodes.
    pub nodes: i64,
    /// Nodes that take no pods.
    pub closed: i64,
    /// Nodes with GPUs, all of them free.
    pub idle: i64,
    /// GPUs.
    pub gpus: i64,
    /// GPUs in use.
    pub used: i64,
    /// GPUs that a pod could have.
    pub free: i64,
}

impl Sums {
    /// Of one node.
    #[must_use]
    pub fn of(room: &Room) -> Self {
        let (gpus, used, free) = (room.gpus.max(0), room.taken(), room.free().max(0));
        Self {
            nodes: 1,
            closed: i64::from(room.closed.is_some()),
            idle: i64::from(gpus > 0 && free == gpus),
            gpus,
            used,
            free,
        }
    }

    fn add(&mut self, other: &Self, sign: i64) {
        self.nodes += sign * other.nodes;
        self.closed += sign * other.closed;
        self.idle += sign * other.idle;
        self.gpus += sign * other.gpus;
        self.used += sign * other.used;
        self.free += sign * other.free;
    }
}

/// Position of a domain in the tree; the root is the cluster.
pub(super) type At = usize;
pub(super) const ROOT: At = 0;

#[derive(Clone, Debug, Default)]
pub(super) struct Domain {
    pub(super) name: Box<str>,
    pub(super) parent: At,
    pub(super) sums: Sums,
    pub(super) children: BTreeMap<Box<str>, At>,
}

/// A node in the tree.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The narrowest domain it is in.
    pub(super) domain: At,
    /// How many levels it has labels of, from the widest on without a gap.
    pub(super) depth: usize,
    pub(super) room: Room,
}

/// The tree of one topology.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub(super) levels: Vec<TopologyLevel>,
    pub(super) domains: Vec<Domain>,
    vacant: Vec<At>,
    pub(super) nodes: HashMap<Box<str>, Place>,
    /// By level: domains, and nodes in them.
    counts: Vec<(i64, i64)>,
    /// How often a domain came or went.
    built: u64,
}

impl Tree {
    /// A tree of these levels, widest first, without nodes.
    #[must_use]
    pub fn new(levels: Vec<TopologyLevel>) -> Self {
        let counts = vec![(0, 0); levels.len()];
        Self { levels, domains: vec![Domain::default()], counts, ..Self::default() }
    }

    /// Its levels, widest first.
    #[must_use]
    pub fn levels(&self) -> &[TopologyLevel] {
        &self.levels
    }

    /// A number that grows whenever a domain comes or goes.
    #[must_use]
    pub fn built(&self) -> u64 {
        self.built
    }

    /// What all nodes have.
    #[must_use]
    pub fn sums(&self) -> Sums {
        self.domains[ROOT].sums
    }

    /// How many domains a level has.
    #[must_use]
    pub fn domains_of(&self, level: usize) -> i64 {
        self.counts.get(level).map_or(0, |(domains, _)| *domains)
    }

    /// How many nodes lack the label of a level, or of a wider one.
    #[must_use]
    pub fn nodes_without(&self, level: usize) -> i64 {
        self.sums().nodes - self.counts.get(level).map_or(0, |(_, nodes)| *nodes)
    }

    /// A node is there, or has changed; `true` if the tree is another one now.
    pub fn put<'a>(
        &mut self,
        name: &str,
        label: impl Fn(&str) -> Option<&'a str>,
        room: Room,
    ) -> bool {
        let path: Vec<&str> =
            self.levels.iter().map_while(|level| label(&level.node_label)).collect();
        if let Some(place) = self.nodes.get_mut(name) {
            let (at, depth) = (place.domain, place.depth);
            let before = std::mem::replace(&mut place.room, room);
            if depth == path.len() && self.is_path(at, &path) {
                let (old, new) = (Sums::of(&before), Sums::of(&room));
                self.charge(at, &old, -1);
                self.charge(at, &new, 1);
                return old != new || before.closed != room.closed;
            }
            self.place_gone(at, depth, &Sums::of(&before));
        }
        let mut at = ROOT;
        for (level, value) in path.iter().enumerate() {
            at = self.child(at, level, value);
            self.counts[level].1 += 1;
        }
        self.charge(at, &Sums::of(&room), 1);
        self.nodes.insert(name.into(), Place { domain: at, depth: path.len(), room });
        true
    }

    /// A node is gone; `true` if it was there.
    pub fn take(&mut self, name: &str) -> bool {
        let Some(place) = self.nodes.remove(name) else { return false };
        self.place_gone(place.domain, place.depth, &Sums::of(&place.room));
        true
    }

    /// Takes a node out of its domains; those without nodes are gone.
    fn place_gone(&mut self, domain: At, depth: usize, sums: &Sums) {
        self.charge(domain, sums, -1);
        for (_, nodes) in &mut self.counts[..depth] {
            *nodes -= 1;
        }
        let (mut at, mut level) = (domain, depth);
        while at != ROOT && self.domains[at].sums.nodes == 0 {
            let gone = std::mem::take(&mut self.domains[at]);
            self.domains[gone.parent].children.remove(&gone.name);
            self.vacant.push(at);
            level -= 1;
            self.counts[level].0 -= 1;
            self.built += 1;
            at = gone.parent;
        }
    }

    fn child(&mut self, parent: At, level: usize, name: &str) -> At {
        if let Some(at) = self.domains[parent].children.get(name) {
            return *at;
        }
        let domain = Domain { name: name.into(), parent, ..Domain::default() };
        let at = if let Some(at) = self.vacant.pop() {
            self.domains[at] = domain;
            at
        } else {
            self.domains.push(domain);
            self.domains.len() - 1
        };
        self.domains[parent].children.insert(name.into(), at);
        self.counts[level].0 += 1;
        self.built += 1;
        at
    }

    fn charge(&mut self, domain: At, sums: &Sums, sign: i64) {
        let mut at = domain;
        loop {
            self.domains[at].sums.add(sums, sign);
            if at == ROOT {
                return;
            }
            at = self.domains[at].parent;
        }
    }

    /// Whether a domain is the one that these values lead to.
    fn is_path(&self, mut at: At, path: &[&str]) -> bool {
        for value in path.iter().rev() {
            let domain = &self.domains[at];
            if at == ROOT || *domain.name != **value {
                return false;
            }
            at = domain.parent;
        }
        at == ROOT
    }

    /// Whether the narrowest level, below a wider one, has a domain per host: then nodes
    /// are shown, and that level is not.
    pub(super) fn ends_in_hosts(&self) -> bool {
        let last = self.levels.len().saturating_sub(1);
        let (domains, nodes) = self.counts.last().copied().unwrap_or_default();
        last > 0 && self.levels[last].node_label == HOSTNAME && domains == nodes
    }
}
