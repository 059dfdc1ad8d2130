//! What is free on each NUMA node, by the kubelet's own account.
//!
//! Owns the arithmetic of `status.numa`. Must never count what the kubelet does not give away: without
//! a static CPU manager no CPU is anybody's alone, and none is listed as free.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::muster::node_topology::{FreeHugepages, Hardware, NumaState};

use crate::cpulist::CpuList;
use crate::podresources::{Memory, Reading};

/// Most sizes of hugepages that a NUMA node reports.
const MAX_SIZES: usize = 8;

/// One entry per NUMA node of the hardware, in its order.
pub fn states(hardware: &Hardware, reading: &Reading) -> Vec<NumaState> {
    let taken: BTreeSet<u32> = reading.holdings.cpus().iter().collect();
    let allocatable: BTreeSet<u32> = reading.allocatable.cpus.iter().collect();
    let memory = Ledger::new(reading);
    let node = |node: &muster_api::muster::node_topology::NumaNode| {
        let cpus = node.cpus.parse::<CpuList>().unwrap_or_default();
        let free = |cpu: &u32| allocatable.contains(cpu) && !taken.contains(cpu);
        let blocks = reading.holdings.iter().flat_map(|(_, _, _, holding)| &holding.memory);
        let with_this: Vec<&Memory> = blocks.filter(|m| m.nodes.contains(&node.id)).collect();
        let mut group: BTreeSet<u32> = BTreeSet::new();
        for block in with_this.iter().filter(|block| block.nodes.len() > 1) {
            group.extend(&block.nodes);
        }
        NumaState {
            id: node.id,
            cpus_free: cpus.iter().filter(free).collect::<CpuList>().to_string(),
            memory_free_bytes: memory.room(node.id, "memory").map(|room| room.free),
            memory_allocatable_bytes: memory.room(node.id, "memory").map(|room| room.allocatable),
            hugepages_free: memory.hugepages(node.id),
            memory_group: group.into_iter().collect(),
            memory_assignments: memory.known().then(|| assignments(reading, node.id)),
        }
    };
    hardware.numa.iter().map(node).collect()
}

/// How many containers, or pods as a whole, have memory of a NUMA node.
fn assignments(reading: &Reading, id: u32) -> u32 {
    let has = |memory: &[Memory]| memory.iter().any(|block| block.nodes.contains(&id));
    let count = reading.holdings.iter().filter(|(_, _, _, holding)| has(&holding.memory)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Memory by NUMA node and kind.
struct Ledger(BTreeMap<(u32, String), Room>);

#[derive(Clone, Copy, Default)]
struct Room {
    allocatable: u64,
    free: u64,
}

impl Ledger {
    /// Blocks from several NUMA nodes are taken from them in ascending order, as the Memory
    /// Manager does it.
    fn new(reading: &Reading) -> Self {
        let mut rooms: BTreeMap<_, Room> = BTreeMap::new();
        for block in &reading.allocatable.memory {
            for &node in block.nodes.iter().take(1) {
                let room = rooms.entry((node, block.kind.clone())).or_default();
                room.allocatable = room.allocatable.saturating_add(block.bytes);
                room.free = room.allocatable;
            }
        }
        for block in reading.holdings.iter().flat_map(|(_, _, _, holding)| &holding.memory) {
            let mut left = block.bytes;
            for &node in &block.nodes {
                if let Some(room) = rooms.get_mut(&(node, block.kind.clone())) {
                    let part = left.min(room.free);
                    room.free -= part;
                    left -= part;
                }
            }
        }
        Self(rooms)
    }

    fn known(&self) -> bool {
        !self.0.is_empty()
    }

    fn room(&self, node: u32, kind: &str) -> Option<Room> {
        self.0.get(&(node, kind.to_owned())).copied()
    }

    fn hugepages(&self, node: u32) -> Vec<FreeHugepages> {
        let of_node = self.0.iter().filter(|((n, _), _)| *n == node);
        let sizes = of_node.filter_map(|((_, kind), room)| {
            let size = kind.strip_prefix("hugepages-")?;
            let page_bytes = muster_api::k8s::Quantity::parse(size).ok()?.value();
            Some(FreeHugepages {
                page_bytes: u64::try_from(page_bytes).ok()?,
                free_bytes: room.free,
                allocatable_bytes: room.allocatable,
            })
        });
        let mut sizes: Vec<_> = sizes.take(MAX_SIZES).collect();
        sizes.sort_unstable_by_key(|size| size.page_bytes);
        sizes
    }
}

#[cfg(test)]
mod tests {
    use muster_api::muster::node_topology::NumaNode;

    use super::*;
    use crate::podresources::{Allocatable, Holding, Holdings, PodHolding};

    fn block(kind: &str, bytes: u64, nodes: &[u32]) -> Memory {
        Memory { kind: kind.to_owned(), bytes, nodes: nodes.iter().copied().collect() }
    }

    fn hardware() -> Hardware {
        let node = |id, cpus: &str| NumaNode { id, cpus: cpus.to_owned(), ..NumaNode::default() };
        Hardware { numa: vec![node(0, "0-3"), node(4, "4-7")], ..Hardware::default() }
    }

    fn reading(cpus: &str, memory: Vec<Memory>, held: Vec<(&str, Vec<Memory>)>) -> Reading {
        let containers = held.into_iter().enumerate().map(|(i, (cpus, memory))| {
            let cpus = cpus.parse().unwrap();
            (format!("c{i}"), Holding { cpus, memory, ..Holding::default() })
        });
        let pod = PodHolding { containers: containers.collect(), ..PodHolding::default() };
        Reading {
            holdings: Holdings {
                pods: [(("team".to_owned(), "p".to_owned()), pod)].into(),
                cut: false,
            },
            allocatable: Allocatable {
                cpus: cpus.parse().unwrap(),
                memory,
                ..Allocatable::default()
            },
        }
    }

    fn show(states: &[NumaState]) -> Vec<String> {
        let show = |s: &NumaState| {
            format!(
                "{} [{}] {:?}/{:?} {:?} {:?}",
                s.id,
                s.cpus_free,
                s.memory_free_bytes,
                s.memory_allocatable_bytes,
                s.memory_group,
                s.memory_assignments
            )
        };
        states.iter().map(show).collect()
    }

    #[test]
    fn without_managers_nothing_is_given_alone() {
        let states = states(&hardware(), &reading("", vec![], vec![]));
        assert_eq!(show(&states), ["0 [] None/None [] None", "4 [] None/None [] None"]);
    }

    #[test]
    fn what_pods_have_is_taken_off() {
        let offered = vec![
            block("memory", 100, &[0]),
            block("memory", 100, &[4]),
            block("hugepages-2Mi", 4 << 20, &[0]),
            block("hugepages-1Gi", 1 << 30, &[0]),
        ];
        let held = vec![
            ("2", vec![block("memory", 150, &[0, 4]), block("hugepages-2Mi", 2 << 20, &[0])]),
            ("4-5", vec![block("memory", 10, &[4])]),
        ];
        let states = states(&hardware(), &reading("1-7", offered, held));
        assert_eq!(
            show(&states),
            [
                "0 [1,3] Some(0)/Some(100) [0, 4] Some(1)",
                "4 [6-7] Some(40)/Some(100) [0, 4] Some(2)"
            ]
        );
        let pages = states[0].hugepages_free.iter();
        let pages: Vec<_> =
            pages.map(|h| (h.page_bytes, h.free_bytes, h.allocatable_bytes)).collect();
        assert_eq!(pages, [(2 << 20, 2 << 20, 4 << 20), (1 << 30, 1 << 30, 1 << 30)]);
    }
}
