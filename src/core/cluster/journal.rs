//! What changed since: lets a shape replay the node changes it missed.

use std::collections::VecDeque;

use super::NodeId;

/// Changes kept; a reader further behind rebuilds.
const KEPT: usize = 1 << 16;

/// The last changes of nodes, numbered.
#[derive(Clone, Default)]
pub(crate) struct Journal {
    first: u64,
    entries: VecDeque<NodeId>,
}

impl Journal {
    /// Empty, but counting on from `self`: whoever is up to date with the
    /// original is up to date with its fork, and whoever is not rebuilds.
    pub(crate) fn fork(&self) -> Self {
        Self { first: self.head(), entries: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, node: NodeId) {
        if self.entries.len() == KEPT {
            self.entries.pop_front();
            self.first += 1;
        }
        self.entries.push_back(node);
    }

    pub(crate) fn extend(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        nodes.into_iter().for_each(|node| self.push(node));
    }

    /// The number the next change will get.
    pub(crate) fn head(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Changes from number `since` on; `None` if some are no longer kept.
    pub(crate) fn since(&self, since: u64) -> Option<impl ExactSizeIterator<Item = NodeId> + '_> {
        let skip = usize::try_from(since.checked_sub(self.first)?).ok()?;
        (skip <= self.entries.len()).then(|| self.entries.range(skip..).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_numbered_on_when_old_ones_are_forgotten() {
        let mut journal = Journal::default();
        (0..KEPT as u32 + 5).for_each(|node| journal.push(NodeId(node)));
        assert_eq!(journal.head(), KEPT as u64 + 5);
        assert!(journal.since(4).is_none());
        let first = journal.since(5).and_then(|mut changes| changes.next());
        assert_eq!(first, Some(NodeId(5)));
        assert_eq!(journal.since(journal.head()).map(|changes| changes.len()), Some(0));
    }
}
