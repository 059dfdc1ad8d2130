//! Verdicts and scores that depend on other nodes.
//!
//! A plugin such as PodTopologySpread says of a node what it says of every node of
//! the same zone with as many pods. It names the numbers by which it tells nodes
//! apart; nodes with equal numbers form a class, which is judged and rated once.
//! A placement then re-keys the nodes whose numbers changed, and everything
//! that follows from sums over the cluster costs a look at each class.

use smallvec::SmallVec;

use super::{State, Status};
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::model::PodShape;

/// Numbers by which plugins tell nodes apart.
pub type ClassKey = SmallVec<[i64; 8]>;

/// What a plugin derives from all feasible nodes before it rates any.
pub type Survey = SmallVec<[f64; 2]>;

/// The raw score of a node that is left out of the ranking.
pub const UNRANKED: i64 = i64::MIN;

/// A filter that judges classes of nodes.
pub trait ClassFilter {
    /// Appends the numbers that decide on a node; always as many.
    fn tell(&self, state: &State, node: NodeView<'_>, key: &mut ClassKey);

    /// Judges the nodes with these numbers; `Err` names a reason.
    fn judge(&self, state: &State, key: &[i64]) -> Result<(), u8>;

    /// The status that a reason stands for.
    fn status(&self, reason: u8) -> Status;

    /// Follows a change of one node. Other nodes whose numbers changed with it are
    /// added to `also`. False if the state must be made anew.
    fn follow(
        &self,
        state: &mut State,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool;
}

/// A score that rates classes of nodes.
pub trait ClassScore {
    /// Appends the numbers that decide on a node; always as many.
    fn tell(&self, state: &State, node: NodeView<'_>, key: &mut ClassKey);

    /// Looks at the feasible nodes: numbers, and how many nodes have them.
    fn survey(&self, _state: &State, _feasible: &mut dyn Iterator<Item = (&[i64], u32)>) -> Survey {
        Survey::new()
    }

    /// The raw score of the nodes with these numbers.
    fn rate(&self, state: &State, survey: &Survey, key: &[i64]) -> i64;

    /// Whether the plugin has nothing to say for now: its scores are 0 then.
    fn is_silent(&self, _state: &State) -> bool {
        false
    }

    /// As [`ClassFilter::follow`].
    fn follow(
        &self,
        state: &mut State,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool;
}
