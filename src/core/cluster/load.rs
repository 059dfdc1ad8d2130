//! How much of the cluster is requested.
//!
//! Owns the sums over all nodes that exist, kept with every change of a node's columns. A
//! property test compares them with a fresh sum.

use super::{Cluster, NodeId};
use crate::model::{ResId, is_extended_resource};
use crate::policy::Thresholds;

/// Sums over all nodes that exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    allocatable: i128,
    requested: i128,
    /// It counts where no resource is named.
    counts: bool,
}

impl Row {
    /// Compares the share that is requested with one in percent.
    fn share(self, percent: i64) -> std::cmp::Ordering {
        (self.requested * 100).cmp(&(self.allocatable * i128::from(percent)))
    }
}

impl Load {
    /// More of a resource is requested, or less.
    #[inline]
    pub(super) fn request(&mut self, id: ResId, before: i64, after: i64) {
        if let Some(row) = self.rows.get_mut(id.index()) {
            row.requested += i128::from(after) - i128::from(before);
        }
    }
}

impl Cluster {
    /// Every column has a sum; a new one is zero on all nodes.
    #[inline]
    pub(super) fn grow_load(&mut self) {
        for at in self.load.rows.len()..self.columns.allocatable.len() {
            let id = ResId(at as u16);
            let counts = matches!(id, ResId::CPU | ResId::MEMORY)
                || is_extended_resource(self.resources.name(id));
            self.load.rows.push(Row { counts, ..Row::default() });
        }
    }

    /// A node begins to count, or ceases to.
    pub(super) fn weigh_node(&mut self, node: NodeId, more: bool) {
        let (i, sign) = (node.index(), if more { 1 } else { -1 });
        self.grow_load();
        for (at, row) in self.load.rows.iter_mut().enumerate() {
            row.allocatable += sign * i128::from(*self.columns.allocatable[at].get(i));
            row.requested += sign * i128::from(*self.columns.requested[at].get(i));
        }
    }

    /// Whether a policy that packed until now, or did not, packs at this load.
    pub(super) fn packs(&self, thresholds: &Thresholds, packed: bool) -> bool {
        let named = thresholds.resource.as_deref();
        let own = named.map(|name| self.resources.get(name));
        let mut rows = self.load.rows.iter().enumerate().filter(|(at, row)| match own {
            Some(id) => id.is_some_and(|id| id.index() == *at) && row.allocatable > 0,
            None => row.counts && row.allocatable > 0,
        });
        if packed {
            !rows.any(|(_, row)| row.share(thresholds.above).is_gt())
        } else {
            rows.all(|(_, row)| row.share(thresholds.below).is_lt())
        }
    }

    /// The same sums, made now.
    #[cfg(test)]
    pub(crate) fn load_is_right(&self) -> bool {
        self.load.rows.iter().enumerate().all(|(at, row)| {
            let id = ResId(at as u16);
            let sum = |of: &dyn Fn(NodeId) -> i64| -> i128 {
                self.live.iter().map(|node| i128::from(of(node))).sum()
            };
            row.allocatable == sum(&|n| self.view(n).allocatable(id))
                && row.requested == sum(&|n| self.view(n).requested(id))
        })
    }
}
