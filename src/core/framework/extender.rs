//! Extenders: programs of others that take part in decisions, by calls.
//!
//! Owns what the core knows of an extender: which calls it answers and which pods
//! concern it. Must never know where it listens: whoever drives the core does.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::PodShape;

/// The name of all extenders where plugins are named.
pub const EXTENDER_NAME: &str = "Extender";

/// Upstream's largest score of an extender.
pub const MAX_EXTENDER_SCORE: i64 = 10;

/// Names an extender to whoever makes the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtenderId(pub u32);

/// What the core knows of an extender.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtenderSpec {
    /// Which one.
    pub id: ExtenderId,
    /// Its name in messages: where it listens.
    pub name: Arc<str>,
    /// Whether it filters nodes.
    pub filters: bool,
    /// Whether it scores nodes.
    pub prioritizes: bool,
    /// Whether it has a say in who is preempted.
    pub preempts: bool,
    /// Whether it binds.
    pub binds: bool,
    /// Multiplies its scores.
    pub weight: i64,
    /// Whether scheduling goes on without it when it fails.
    pub ignorable: bool,
    /// Only pods that name one of these resources concern it; empty: all do.
    pub managed: BTreeSet<Box<str>>,
}

impl ExtenderSpec {
    /// Whether pods of a shape concern it.
    #[must_use]
    pub fn is_interested(&self, shape: &PodShape) -> bool {
        self.managed.is_empty() || shape.named.iter().any(|name| self.managed.contains(name))
    }

    /// Whether a cycle may have to wait for it.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.filters || self.prioritizes || self.preempts
    }

    /// What one of its scores adds to a node's total: as upstream, out of range or
    /// not, but it never wraps around.
    #[must_use]
    pub fn weighted(&self, score: i64) -> i64 {
        let scale = super::MAX_SCORE / MAX_EXTENDER_SCORE;
        score.saturating_mul(self.weight).saturating_mul(scale)
    }
}
