//! The Memory Manager's static policy: memory and hugepages of Guaranteed pods come from
//! groups of NUMA nodes, and a node is in one group at a time.

use std::sync::Arc;

use super::cpu_manager::{managed_whole, unmanaged_whole};
use super::hints::{Affinity, Hints};
use super::machine::{Machine, NodeMemory};
use super::mask::Mask;
use super::pod::{Container, Pod, amount};
use super::refusal::Cause;

/// What is asked for, by resource name.
pub(super) type Request = Vec<(Arc<str>, u64)>;

/// Memory in one course of an admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Memory {
    pub(super) nodes: Vec<NodeMemory>,
    /// What the pod's init containers that have ended leave to the others, by the
    /// nodes it came from.
    pub(super) reusable: Vec<(Mask, Arc<str>, u64)>,
}

impl Memory {
    fn reusable(&self, mask: Mask, resource: &str) -> u64 {
        let mut found = self.reusable.iter().filter(|(m, r, _)| *m == mask && &**r == resource);
        found.next().map_or(0, |(_, _, bytes)| *bytes)
    }
}

/// What a container gets for itself.
pub(super) fn exclusive(machine: &Machine, pod: &Pod, container: &Container) -> Request {
    if managed_whole(machine, pod) && !container.equal {
        return Request::new();
    }
    container.memory.clone()
}

/// What a pod gets for itself.
pub(super) fn exclusive_of_pod(machine: &Machine, pod: &Pod) -> Request {
    if let (true, Some(whole)) = (machine.settings.pod_level, &pod.whole) {
        return whole.memory.clone();
    }
    // What init containers alone ask for is passed over.
    let mut names: Vec<&Arc<str>> =
        pod.containers.iter().flat_map(|c| c.memory.iter().map(|(name, _)| name)).collect();
    names.sort_unstable();
    names.dedup();
    let peak = |name: &str| pod.peak(|c| amount(&c.memory, name).unwrap_or(0));
    names.into_iter().map(|name| (Arc::clone(name), peak(name))).collect()
}

/// Hints, one list per resource.
pub(super) fn hints(machine: &Machine, memory: &Memory, pod: &Pod, asked: &Request) -> Vec<Hints> {
    if !machine.settings.memory || !pod.guaranteed || unmanaged_whole(machine, pod) {
        return vec![Hints::Any];
    }
    let found = serving(machine, memory, asked);
    // If there is none at all the kubelet says nothing, which is taken for "any".
    if found.is_empty() {
        return vec![Hints::Any];
    }
    vec![Hints::Some(found); asked.len()]
}

/// Sets of nodes that could serve a request, marked if they are as few as it needs.
fn serving(machine: &Machine, memory: &Memory, asked: &Request) -> Vec<(Mask, bool)> {
    if asked.is_empty() {
        return Vec::new();
    }
    let all = machine.all_nodes();
    let mut least = all.count();
    let mut found = Vec::new();
    for mask in all.subsets() {
        let enough = |bytes: &dyn Fn(&str) -> u64| asked.iter().all(|(r, n)| bytes(r) >= *n);
        if !enough(&|resource| built_in(machine, mask, resource)) {
            continue;
        }
        least = least.min(mask.count());
        if groups_allow(machine, memory, mask)
            && enough(&|resource| {
                let free = free(machine, memory, mask, resource);
                free.saturating_add(memory.reusable(mask, resource))
            })
        {
            found.push((mask, false));
        }
    }
    for (mask, good) in &mut found {
        *good = mask.count() == least;
    }
    found
}

fn built_in(machine: &Machine, mask: Mask, resource: &str) -> u64 {
    let nodes = machine.nodes.iter().filter(|node| mask.has(node.id));
    nodes.filter_map(|node| amount(&node.memory, resource)).sum()
}

fn free(machine: &Machine, memory: &Memory, mask: Mask, resource: &str) -> u64 {
    let nodes = machine.nodes.iter().zip(&memory.nodes).filter(|(node, _)| mask.has(node.id));
    let of = |(node, state): (&super::machine::NumaNode, &NodeMemory)| {
        let at = node.memory.iter().position(|(name, _)| &**name == resource)?;
        state.free.get(at).copied()
    };
    nodes.filter_map(of).sum()
}

/// Whether a set of nodes may become, or is, a group.
fn groups_allow(machine: &Machine, memory: &Memory, mask: Mask) -> bool {
    let single = mask.count() == 1;
    let mut nodes = machine.nodes.iter().zip(&memory.nodes).filter(|(node, _)| mask.has(node.id));
    nodes.all(|(_, state)| {
        if single {
            state.group.count() <= 1
        } else {
            state.blocks == 0 || (state.group.count() > 1 && state.group == mask)
        }
    })
}

/// Gives a container its memory; `None` if it gets none of its own.
pub(super) fn allocate(
    machine: &Machine,
    memory: &mut Memory,
    pod: &Pod,
    position: usize,
    container: &Container,
    affinity: Affinity,
) -> Result<Option<Mask>, Cause> {
    let asked = exclusive(machine, pod, container);
    if !machine.settings.memory
        || !pod.guaranteed
        || unmanaged_whole(machine, pod)
        || asked.is_empty()
    {
        return Ok(None);
    }
    let mask = choose(machine, memory, &asked, affinity)?;
    for (resource, bytes) in &asked {
        let reused = memory.reusable(mask, resource);
        charge(machine, memory, mask, resource, bytes.saturating_sub(reused));
    }
    reuse(memory, mask, &asked, pod.ends_first(position));
    Ok(Some(mask))
}

/// Gives a pod with resources of its own its memory.
pub(super) fn allocate_pod(
    machine: &Machine,
    memory: &mut Memory,
    pod: &Pod,
    affinity: Affinity,
) -> Result<Option<Mask>, Cause> {
    if !machine.settings.memory || !pod.guaranteed {
        return Ok(None);
    }
    let asked = exclusive_of_pod(machine, pod);
    pool_is_left(machine, pod)?;
    let mask = choose(machine, memory, &asked, affinity)?;
    for (resource, bytes) in &asked {
        charge(machine, memory, mask, resource, *bytes);
    }
    Ok(Some(mask))
}

/// The nodes that memory comes from: those that were chosen, or more with them.
fn choose(
    machine: &Machine,
    memory: &Memory,
    asked: &Request,
    affinity: Affinity,
) -> Result<Mask, Cause> {
    let (mut mask, preferred) = match affinity.mask {
        Some(mask) => (mask, affinity.preferred),
        None => {
            let (mask, good) = best(&serving(machine, memory, asked)).ok_or(Cause::NoMemory)?;
            if !good && affinity.preferred {
                return Err(Cause::MemoryNotPreferred);
            }
            (mask, good)
        }
    };
    if !asked.iter().all(|(resource, bytes)| free(machine, memory, mask, resource) >= *bytes) {
        let mut found = serving(machine, memory, asked);
        found.retain(|(wider, _)| wider.covers(mask));
        let (wider, good) = best(&found).ok_or(Cause::NoMemoryBeside)?;
        if !good && preferred {
            return Err(Cause::MemoryBesideNotPreferred);
        }
        mask = wider;
    }
    let violates = mask.count() > 1 && !groups_allow(machine, memory, mask);
    if violates { Err(Cause::MemoryGroups) } else { Ok(mask) }
}

/// The best of some sets: marked ones first, then the narrowest.
fn best(found: &[(Mask, bool)]) -> Option<(Mask, bool)> {
    found.iter().copied().min_by_key(|(mask, good)| (!good, mask.count(), *mask))
}

/// Takes memory from the nodes of a group in ascending order.
fn charge(machine: &Machine, memory: &mut Memory, mask: Mask, resource: &str, bytes: u64) {
    let mut rest = bytes;
    for id in mask.ids() {
        let Some(at) = machine.position(id) else { continue };
        let place = machine.nodes[at].memory.iter().position(|(name, _)| &**name == resource);
        let node = &mut memory.nodes[at];
        node.blocks += 1;
        node.group = mask;
        if let Some(free) = place.and_then(|place| node.free.get_mut(place)) {
            let part = rest.min(*free);
            *free -= part;
            rest -= part;
        }
    }
}

/// Notes what an init container leaves to others, or what a container used of that.
fn reuse(memory: &mut Memory, mask: Mask, asked: &Request, ends: bool) {
    for (resource, bytes) in asked {
        let at = memory.reusable.iter().position(|(m, r, _)| *m == mask && r == resource);
        match (at, ends) {
            (Some(at), true) => {
                let left = &mut memory.reusable[at].2;
                *left = (*left).max(*bytes);
            }
            (None, true) => memory.reusable.push((mask, Arc::clone(resource), *bytes)),
            (Some(at), false) => {
                let left = &mut memory.reusable[at].2;
                *left = left.saturating_sub(*bytes);
            }
            (None, false) => {}
        }
    }
    memory.reusable.sort_unstable();
}

/// Whether every container of a pod with resources of its own would have memory.
pub(super) fn pool_is_left(machine: &Machine, pod: &Pod) -> Result<(), Cause> {
    let total = exclusive_of_pod(machine, pod);
    let mut used: Request = total.iter().map(|(name, _)| (Arc::clone(name), 0)).collect();
    let left = |used: &Request, init: bool| {
        let spent = total.iter().find(|(r, bytes)| amount(used, r).unwrap_or(0) >= *bytes);
        match spent {
            Some((resource, _)) => Err(Cause::EmptyPool { resource: Arc::clone(resource), init }),
            None => Ok(()),
        }
    };
    let mut sharing = false;
    for (position, container) in pod.all().enumerate() {
        let own = exclusive(machine, pod, container);
        match (own.is_empty(), pod.ends_first(position)) {
            (true, true) => left(&used, true)?,
            (true, false) => sharing = true,
            (false, true) => {}
            (false, false) => {
                for (resource, bytes) in &mut used {
                    *bytes += amount(&own, resource).unwrap_or(0);
                }
            }
        }
    }
    if sharing { left(&used, false) } else { Ok(()) }
}
