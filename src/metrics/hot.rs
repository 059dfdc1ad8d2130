//! Label children that are looked up for every pod, resolved once.
//!
//! Owns small tables from the core's words to prometheus' children, so that an
//! observation costs a short scan and an atomic, never a string. Must never grow
//! with what users write: past [`MAX_CHILDREN`] a table stops remembering.

use std::sync::Arc;

use muster_core::report::AttemptResult;
use prometheus::{Histogram, IntCounter};

/// How many children a table remembers; labels are plugin, point and profile
/// names, so that a process has a few dozen.
const MAX_CHILDREN: usize = 256;
/// Attempts from which on upstream counts no more exactly.
pub(super) const MANY_ATTEMPTS: u32 = 15;

/// A short list searched from its beginning.
pub(super) struct Table<K, C>(Vec<(K, C)>);

impl<K, C> Default for Table<K, C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, C: Clone> Table<K, C> {
    /// The child whose key `is` the wanted one, made if it is not known yet.
    pub(super) fn child(
        &mut self,
        is: impl Fn(&K) -> bool,
        make: impl FnOnce() -> (K, C),
        act: impl FnOnce(&C),
    ) {
        if let Some((_, child)) = self.0.iter().find(|(key, _)| is(key)) {
            return act(child);
        }
        let (key, child) = make();
        act(&child);
        if self.0.len() < MAX_CHILDREN {
            self.0.push((key, child));
        }
    }
}

/// Counter and duration of the attempts of one profile with one result.
#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) total: IntCounter,
    pub(super) seconds: Histogram,
}

/// Point, status, profile.
pub(super) type PointKey = (&'static str, &'static str, Arc<str>);

/// All tables.
#[derive(Default)]
pub(super) struct Hot {
    pub(super) attempts: Table<(AttemptResult, Arc<str>), Attempt>,
    pub(super) points: Table<PointKey, Histogram>,
    pub(super) enqueued: Table<(&'static str, &'static str), IntCounter>,
    pub(super) rejected: Table<(&'static str, Arc<str>), IntCounter>,
    pub(super) permit: Table<&'static str, Histogram>,
    /// By the number of attempts.
    pub(super) sli: Table<u32, Histogram>,
}

/// Equality that is usually decided by the address.
pub(super) fn same(a: &str, b: &str) -> bool {
    std::ptr::eq(a, b) || a == b
}
