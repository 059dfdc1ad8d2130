//! What will happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use muster_core::io::{Effect, Input, Tick};

use crate::link::{Replica, Watcher};
use crate::model::api::Notice;
use crate::model::kubelet;

/// Something that will happen.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message reaches a scheduler.
    Hear(Replica, Input),
    /// A call of a scheduler reaches the API server.
    Call(Replica, Effect),
    /// A watch event reaches kubelets or controllers.
    Notify(Watcher, Notice),
    /// A scheduler is free for its next cycle.
    Cycle(Replica),
    /// A scheduler's own timer is due.
    Timer(Replica),
    /// A kubelet's timer is due.
    Kubelet(kubelet::Timer),
    /// A user submits a workload.
    Submit { workload: u32, round: u32 },
    /// An event of the scenario.
    Cluster(usize),
    /// The pods of a lost node are collected.
    Orphans(String),
}

impl Event {
    /// Whether the cluster may still move because of it. A scheduler that only
    /// tries again, or says again why it cannot, moves nothing.
    fn moves(&self) -> bool {
        match self {
            Self::Hear(_, input) => matches!(input, Input::BindDone { .. }),
            Self::Call(_, effect) => matches!(effect, Effect::Bind { .. }),
            Self::Notify(..) | Self::Cycle(_) | Self::Timer(_) => false,
            Self::Kubelet(_) | Self::Submit { .. } | Self::Cluster(_) | Self::Orphans(_) => true,
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
        agenda.push(Tick(4), Event::Cycle(Replica(0)));
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
