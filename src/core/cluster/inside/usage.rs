//! What is in use on a node.

use std::sync::Arc;

use crate::cluster::node_topologies::Known;
use crate::model::NodeTopology;
use crate::model::node_topology::{
    Device, DeviceState, DeviceVia, HeldMemory, NumaFree, NumaMask, Source,
};
use crate::numa::{CpuSet, Holding, Machine, Mask, NodeMemory, Usage};

use super::machine::{hugepages, kind_of};

/// What is in use if every pod that was reported is still there.
pub(in crate::cluster) fn reported(topology: &NodeTopology, machine: &Machine) -> Usage {
    let mut usage = used(topology, machine, |_| true);
    if topology.source == Source::ResourceTopology {
        let free = topology.free.iter().flat_map(|free| free.cpus.iter());
        usage.shared = free.filter_map(|cpu| u16::try_from(cpu).ok()).collect();
        for (node, state) in machine.nodes.iter().zip(&mut usage.memory) {
            if let Some(free) = topology.free.get(usize::from(node.id)) {
                count_memory(state, free);
            }
        }
    }
    usage
}

/// Memory of which only sums are told. What is in use is taken for that of pods that have it of
/// one NUMA node.
fn count_memory(node: &mut NodeMemory, free: &NumaFree) {
    let memory = free.memory.unwrap_or_default();
    let rooms = std::iter::once(memory).chain(free.hugepages.iter().map(|(_, room)| *room));
    for (left, room) in node.free.iter_mut().zip(rooms) {
        *left = room.free;
        node.blocks |= u64::from(room.free < room.allocatable);
    }
}

/// What is in use by pods that were seen on the node.
pub(super) fn without(known: &Known, machine: &Machine, seen: &[bool]) -> Usage {
    if seen.iter().all(|seen| *seen) {
        return known.usage.clone();
    }
    used(&known.topology, machine, |at| seen.get(at).copied().unwrap_or(true))
}

fn used(topology: &NodeTopology, machine: &Machine, stays: impl Fn(usize) -> bool) -> Usage {
    let mut usage = machine.unused();
    let stay = || topology.pods.iter().enumerate().filter(|(at, _)| stays(*at));
    let held: CpuSet = stay()
        .flat_map(|(_, pod)| pod.cpus.iter())
        .filter_map(|cpu| u16::try_from(cpu).ok())
        .collect();
    usage.shared = usage.shared.difference(&held);
    for block in stay().flat_map(|(_, pod)| &pod.memory) {
        charge(machine, &mut usage.memory, block);
    }
    take_devices(topology, machine, &mut usage, |pod| stays(usize::from(pod)));
    usage
}

/// Of devices alike the first are taken: which is of no consequence to a kubelet, and so nodes
/// are in the same state more often.
fn take_devices(
    topology: &NodeTopology,
    machine: &Machine,
    usage: &mut Usage,
    stays: impl Fn(u16) -> bool,
) {
    for device in topology.devices.iter().filter(|device| device.via == DeviceVia::DevicePlugin) {
        let held = match device.pod {
            Some(pod) => stays(pod),
            None => device.state == DeviceState::Allocated,
        };
        let resource = machine.devices.binary_search_by(|own| own.name.cmp(&device.resource));
        let (true, Ok(at)) = (held, resource) else { continue };
        let kind = kind_of(device);
        let mut alike = machine.devices[at].devices.iter().zip(&mut usage.taken[at]);
        if let Some((_, taken)) =
            alike.find(|(own, taken)| (own.numa, own.healthy) == kind && !**taken)
        {
            *taken = true;
        }
    }
}

/// Takes a block from its nodes in ascending order, as the Memory Manager does.
fn charge(machine: &Machine, memory: &mut [NodeMemory], block: &HeldMemory) {
    let name = name_of(block);
    let mut rest = block.bytes;
    for (node, state) in machine.nodes.iter().zip(memory) {
        if block.numa & (1 as NumaMask) << node.id == 0 {
            continue;
        }
        state.blocks += 1;
        state.group = Mask(block.numa);
        let place = node.memory.iter().position(|(own, _)| *own == name);
        if let Some(free) = place.and_then(|place| state.free.get_mut(place)) {
            let part = rest.min(*free);
            *free -= part;
            rest -= part;
        }
    }
}

/// What pods had that are gone; `None` if one of them had memory of several NUMA nodes together:
/// how much of each, and what is joined then, is not told.
pub(super) fn leaving(
    topology: &NodeTopology,
    machine: &Machine,
    seen: &[bool],
) -> Option<Vec<Arc<Holding>>> {
    let gone = (0..topology.pods.len()).filter(|at| !seen.get(*at).copied().unwrap_or(true));
    gone.map(|at| holding(topology, machine, at).map(Arc::new)).collect()
}

fn holding(topology: &NodeTopology, machine: &Machine, at: usize) -> Option<Holding> {
    let pod = topology.pods.get(at)?;
    let cpus = pod.cpus.iter().filter_map(|cpu| u16::try_from(cpu).ok()).collect();
    let mut holding = Holding { cpus, ..Holding::default() };
    for block in &pod.memory {
        let mut nodes = machine.nodes.iter().enumerate();
        let (node, own) = nodes.find(|(_, node)| block.numa == (1 as NumaMask) << node.id)?;
        let name = name_of(block);
        let resource = own.memory.iter().position(|(own, _)| *own == name)?;
        holding.memory.push((node, resource, block.bytes));
    }
    let own = |device: &&Device| device.pod.is_some_and(|pod| usize::from(pod) == at);
    for device in topology.devices.iter().filter(own) {
        let resource = machine.devices.binary_search_by(|own| own.name.cmp(&device.resource));
        let (Ok(resource), (numa, true)) = (resource, kind_of(device)) else { continue };
        let mut known = holding.devices.iter_mut();
        match known.find(|(own, near, _)| *own == resource && *near == numa) {
            Some((.., count)) => *count += 1,
            None => holding.devices.push((resource, numa, 1)),
        }
    }
    Some(holding)
}

fn name_of(block: &HeldMemory) -> Arc<str> {
    if block.page_bytes == 0 { Arc::from("memory") } else { hugepages(block.page_bytes) }
}
