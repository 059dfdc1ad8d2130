//! What will happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use std::sync::Arc;

use muster_api::k8s::{Node, Pod};
use muster_core::io::{Input, Kind, Object, Tick};
use muster_core::outbox::{Failure, PodCall};

use crate::lease::Identity;
use crate::link::{Replica, Watcher};
use crate::model::api::Notice;
use crate::model::kubelet;
use crate::writer::Serial;

/// How the API server answers a call.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    /// As it finds things.
    Plain,
    /// With this failure, whether or not it is written.
    Fail(Failure, bool),
    /// Not at all; written all the same.
    Silent,
}

/// What a watch delivers.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// A list begins.
    Begin,
    /// An object of a list, and whether it cannot be decoded.
    Node(Arc<Node>, bool),
    /// An object of a list, and whether it cannot be decoded.
    Pod(Arc<Pod>, bool),
    /// An object of a list, and whether it cannot be decoded.
    Object(Arc<Object>, bool),
    /// The list is complete, as of this revision.
    End(u64),
    /// Something changed.
    Notice(Notice),
}

/// Something that will happen. What concerns a process that has ended since is
/// dropped when it is due.
#[derive(Debug)]
pub(crate) enum Event {
    /// A watch delivers; `u32` is the stream's generation.
    Stream(Identity, Kind, u32, Item),
    /// A cut watch is asked for again.
    Reconnect(Identity, Kind),
    /// The answer to a call of a plugin.
    Hear(Identity, Input),
    /// A call of a scheduler reaches the API server.
    Call(Identity, Serial, PodCall, Manner),
    /// Its answer reaches the writer; or its deadline has passed.
    Answer(Identity, Serial, Result<(), Failure>),
    /// A call is made again.
    Again(Identity, Serial),
    /// A candidate looks at the lease.
    Lease(Identity),
    /// A process looks at its configuration.
    Reload(Identity),
    /// A scheduler process starts.
    Start(Replica),
    /// A process that stood still goes on.
    Thaw(Identity),
    /// A fault of the plan, by position.
    Blow(usize),
    /// Nothing goes wrong any more: what is broken is mended.
    Mend,
    /// A watch event reaches kubelets or controllers.
    Notify(Watcher, Notice),
    /// A scheduler is free for its next cycle.
    Cycle(Identity),
    /// A scheduler's own timer is due.
    Timer(Identity),
    /// A kubelet's timer is due.
    Kubelet(kubelet::Timer),
    /// A user submits a workload.
    Submit { workload: u32, round: u32 },
    /// A user creates the pod group of a workload, later than the workload itself.
    Group { workload: u32, round: u32 },
    /// An event of the scenario.
    Cluster(usize),
    /// The pods of a lost node are collected.
    Orphans(String),
    /// The pods of a silent node are deleted.
    TaintEviction(String),
}

impl Event {
    /// Whether the cluster may still move because of it. A scheduler that only
    /// tries again, or says again why it cannot, moves nothing.
    pub(crate) fn moves(&self) -> bool {
        match self {
            Self::Call(_, _, PodCall::Patch(_), _)
            | Self::Hear(..)
            | Self::Stream(..)
            | Self::Lease(_)
            | Self::Notify(..)
            | Self::Cycle(_)
            | Self::Timer(_) => false,
            // Asking whether something would be allowed changes nothing.
            Self::Call(_, serial, ..) | Self::Answer(_, serial, _) | Self::Again(_, serial) => {
                !serial.dry
            }
            _ => true,
        }
    }

    /// Whether the world has not come to rest by then. What is asked for again and again
    /// and refused changes nothing; if it is not refused, the write itself stirs.
    pub(crate) fn stirs(&self) -> bool {
        match self {
            Self::Call(_, serial, ..) | Self::Answer(_, serial, _) | Self::Again(_, serial) => {
                !serial.release && self.moves()
            }
            _ => self.moves(),
        }
    }

    /// The process it concerns, if it is one that stands still when the process does.
    pub(crate) fn process(&self) -> Option<Identity> {
        match self {
            Self::Stream(who, ..)
            | Self::Reconnect(who, _)
            | Self::Hear(who, _)
            | Self::Answer(who, ..)
            | Self::Again(who, _)
            | Self::Lease(who)
            | Self::Reload(who)
            | Self::Cycle(who)
            | Self::Timer(who) => Some(*who),
            _ => None,
        }
    }
}

/// The heap of events, by time and then in the order they were put in. Events lie
/// in slots of their own: only three words move when the heap is mended.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(Tick, u64, usize)>>,
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    sequence: u64,
    moving: usize,
}

impl Agenda {
    pub(crate) fn push(&mut self, at: Tick, event: Event) {
        self.moving += usize::from(event.moves());
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.heap.push(Reverse((at, self.sequence, slot)));
        self.sequence += 1;
    }

    pub(crate) fn pop(&mut self) -> Option<(Tick, Event)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        let event = self.slots[slot].take()?;
        self.free.push(slot);
        self.moving -= usize::from(event.moves());
        Some((at, event))
    }

    /// When the next event is due.
    pub(crate) fn next(&self) -> Option<Tick> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether anything but watch events and the schedulers' own cycles is left.
    pub(crate) fn moving(&self) -> bool {
        self.moving > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_in_order_within_an_instant() {
        let mut agenda = Agenda::default();
        for (at, workload) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            agenda.push(Tick(at), Event::Submit { workload, round: 0 });
        }
        agenda.push(Tick(4), Event::Cycle((Replica(0), 0)));
        let mut order = Vec::new();
        while let Some((Tick(at), event)) = agenda.pop() {
            let Event::Submit { workload, .. } = event else {
                continue;
            };
            order.push((at, workload));
        }
        assert_eq!(order, [(3, 1), (3, 3), (5, 0), (5, 2)]);
        assert!(!agenda.moving());
    }
}
