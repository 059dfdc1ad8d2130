//! The wire: every message between the schedulers, the controllers and the model
//! API server passes here, and here alone it is given its time of arrival.
//!
//! Owns delay and order. A watch keeps the order of its kind, as a real one does;
//! calls and their answers may overtake each other. What faults do to a message
//! (loss, delay, a cut stream) is drawn by [`Faults`], which the link holds, and
//! nowhere else.

use std::collections::BTreeMap;

use muster_core::io::{Kind, Tick};

use crate::faults::Faults;
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
    /// The API server answers a bind.
    Answer(Replica),
    /// The API server answers another call.
    Done(Replica),
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
    pub(crate) faults: Faults,
}

impl Link {
    pub(crate) fn new(rng: &Rng, latency: Latency, faults: Faults) -> Self {
        Self { rng: rng.split("link", 0), latency, hops: BTreeMap::new(), faults }
    }

    /// When a message sent now arrives.
    pub(crate) fn arrival(&mut self, hop: Hop, now: Tick) -> Tick {
        let late = match hop {
            Hop::Watch(Watcher::Scheduler(_), _) => self.faults.watch_delay(now),
            _ => 0,
        };
        let root = &self.rng;
        let (rng, last) =
            self.hops.entry(hop).or_insert_with(|| (root.split(&format!("{hop:?}"), 0), now));
        let (low, high) = match hop {
            Hop::Watch(..) => self.latency.watch,
            Hop::Call(_) => self.latency.call,
            Hop::Answer(_) | Hop::Done(_) => self.latency.answer,
        };
        let at = now.after_micros(late + rng.between(low, high));
        match hop {
            Hop::Watch(..) => {
                *last = at.max(*last);
                *last
            }
            Hop::Call(_) | Hop::Answer(_) | Hop::Done(_) => at,
        }
    }

    /// Nothing more arrives over this hop before `at`.
    pub(crate) fn hold(&mut self, hop: Hop, at: Tick) {
        let root = &self.rng;
        let (_, last) =
            self.hops.entry(hop).or_insert_with(|| (root.split(&format!("{hop:?}"), 0), at));
        *last = at.max(*last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_keeps_its_order() {
        let mut link = Link::new(
            &Rng::new(3),
            Latency::default(),
            Faults::new(&Rng::new(3), &crate::scenario::FaultPlan::default()),
        );
        let hop = Hop::Watch(Watcher::Kubelets, Kind::Pod);
        let mut last = Tick(0);
        for now in 0..1_000 {
            let at = link.arrival(hop, Tick(now));
            assert!(at >= last && at > Tick(now), "{at:?} after {last:?}");
            last = at;
        }
    }
}
