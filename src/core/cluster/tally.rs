//! How many pods of each matcher, and with each term, are on each node.
//!
//! Owns the counts and keeps them with every placement. Must never be recounted
//! by a cycle: a new counter is seeded from the groups its matcher matches.

use smallvec::SmallVec;

use super::NodeId;
use super::chunked::Chunked;
use super::kin::{GroupId, Kin, MatchKey, MatcherId};
use crate::hash::IdMap;
use crate::model::TermId;

/// Pods per node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    by_node: Chunked<u32>,
}

impl Count {
    /// How many are on a node.
    #[inline]
    pub(crate) fn on(&self, node: NodeId) -> u32 {
        if node.index() < self.by_node.len() { *self.by_node.get(node.index()) } else { 0 }
    }

    fn add(&mut self, node: NodeId, pods: u32, more: bool) {
        self.by_node.grow(node.index() + 1);
        let cell = self.by_node.get_mut(node.index());
        *cell = if more { *cell + pods } else { *cell - pods };
    }
}

/// What a shape keeps alive while it lives.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    pub(super) terms: Box<[TermId]>,
    pub(super) matchers: Box<[MatcherId]>,
}

#[derive(Clone, Default)]
pub(crate) struct Tally {
    matched: IdMap<MatcherId, Count>,
    having: IdMap<TermId, Count>,
    /// Nodes of each group's pods.
    placed: Chunked<SmallVec<[(NodeId, u32); 1]>>,
    /// For lookups that find nothing.
    none: Count,
}

impl Tally {
    /// Pods that a matcher matches; nobody's counter is empty.
    pub(crate) fn matched(&self, matcher: MatcherId) -> &Count {
        self.matched.get(&matcher).unwrap_or(&self.none)
    }

    /// Pods that have a term.
    pub(crate) fn having(&self, term: TermId) -> &Count {
        self.having.get(&term).unwrap_or(&self.none)
    }

    /// A count made now, for a question nobody keeps a counter for.
    pub(crate) fn count(&self, kin: &Kin, key: &MatchKey) -> Count {
        let mut count = Count::default();
        for group in kin.groups_of(key) {
            self.placed(group).iter().for_each(|&(node, pods)| count.add(node, pods, true));
        }
        count
    }

    fn placed(&self, group: GroupId) -> &[(NodeId, u32)] {
        let at = group.0 as usize;
        if at < self.placed.len() { self.placed.get(at) } else { &[] }
    }

    /// Puts a pod on a node, or takes it off.
    pub(super) fn shift(
        &mut self,
        kin: &Kin,
        group: GroupId,
        terms: &[TermId],
        node: NodeId,
        more: bool,
    ) {
        for matcher in kin.matchers(group).iter() {
            self.matched.entry(*matcher).or_default().add(node, 1, more);
        }
        for term in terms {
            self.having.entry(*term).or_default().add(node, 1, more);
        }
        self.placed.grow(group.0 as usize + 1);
        let nodes = self.placed.get_mut(group.0 as usize);
        match nodes.binary_search_by_key(&node, |(n, _)| *n) {
            Ok(at) if more => nodes[at].1 += 1,
            Ok(at) if nodes[at].1 > 1 => nodes[at].1 -= 1,
            Ok(at) => {
                nodes.remove(at);
            }
            Err(at) => nodes.insert(at, (node, 1)),
        }
    }

    /// A group joins a counter, or leaves it.
    pub(super) fn admit(&mut self, matcher: MatcherId, group: GroupId, more: bool) {
        let nodes: SmallVec<[(NodeId, u32); 8]> = self.placed(group).into();
        let count = self.matched.entry(matcher).or_default();
        nodes.iter().for_each(|&(node, pods)| count.add(node, pods, more));
    }

    pub(super) fn forget_matcher(&mut self, matcher: MatcherId) {
        self.matched.remove(&matcher);
    }

    pub(super) fn forget_term(&mut self, term: TermId) {
        self.having.remove(&term);
    }
}
