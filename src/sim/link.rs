//! The wire: every message between the schedulers, the controllers and the model
//! API server passes here, and here alone it is given its time of arrival.
//!
//! Owns delay and order. A watch keeps the order of its kind, as a real one does;
//! calls and their answers may overtake each other. What faults do to a message
//! (loss, repetition, a cut stream) is decided in [`Link::arrival`] and nowhere else.

use std::collections::BTreeMap;

use muster_core::io::{Kind, Tick};

use crate::rng::Rng;
use crate::time::{MILLISECOND, Micros};

/// A scheduler process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Replica(pub(crate) u8);

/// Who watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Watcher {
    Scheduler(Replica),
    Kubelets,
    Controllers,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hop {
    /// A watch event.
    Watch(Watcher, Kind),
    /// A scheduler calls the API server.
    Call(Replica),
    /// The API server answers.
    Answer(Replica),
}

/// How long messages take, drawn evenly from each range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) watch: (Micros, Micros),
    pub(crate) call: (Micros, Micros),
    pub(crate) answer: (Micros, Micros),
}

impl Default for Latency {
    /// An unloaded API server in the same cluster.
    fn default() -> Self {
        Self {
            watch: (MILLISECOND, 8 * MILLISECOND),
            call: (MILLISECOND, 4 * MILLISECOND),
            answer: (MILLISECOND, 4 * MILLISECOND),
        }
    }
}

/// All connections.
#[derive(Debug)]
pub(crate) struct Link {
    rng: Rng,
    latency: Latency,
    hops: BTreeMap<Hop, (Rng, Tick)>,
}

impl Link {
    pub(crate) fn new(rng: &Rng, latency: Latency) -> Self {
        Self { rng: rng.split("link", 0), latency, hops: BTreeMap::new() }
    }

    /// When a message sent now arrives; `None` would mean that it is lost.
    pub(crate) fn arrival(&mut self, hop: Hop, now: Tick) -> Option<Tick> {
        let root = &self.rng;
        let (rng, last) =
            self.hops.entry(hop).or_insert_with(|| (root.split(&format!("{hop:?}"), 0), now));
        let (low, high) = match hop {
            Hop::Watch(..) => self.latency.watch,
            Hop::Call(_) => self.latency.call,
            Hop::Answer(_) => self.latency.answer,
        };
        let at = now.after_micros(rng.between(low, high));
        Some(match hop {
            Hop::Watch(..) => {
                *last = at.max(*last);
                *last
            }
            Hop::Call(_) | Hop::Answer(_) => at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_keeps_its_order() {
        let mut link = Link::new(&Rng::new(3), Latency::default());
        let hop = Hop::Watch(Watcher::Kubelets, Kind::Pod);
        let mut last = Tick(0);
        for now in 0..1_000 {
            let at = link.arrival(hop, Tick(now)).unwrap();
            assert!(at >= last && at > Tick(now), "{at:?} after {last:?}");
            last = at;
        }
    }
}
