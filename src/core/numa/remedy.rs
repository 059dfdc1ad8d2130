//! What a pod would have to ask for so that a kubelet admits it, if nothing else ran there.
//!
//! Whatever is proposed was tried: the predictor says that an empty machine admits it.

use std::fmt;
use std::sync::Arc;

use super::clash::Clash;
use super::cpu_manager::least_nodes;
use super::machine::Machine;
use super::memo::Memo;
use super::pod::{Container, Pod, amount};
use super::refusal::Cause;
use super::{Refusal, cpus::numa_id};

/// Most changes that are tried for one refusal.
const MAX_TRIES: u32 = 16;
const MIB: u64 = 1 << 20;

/// A change of what one container asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    /// So many CPUs; more or fewer than before.
    Cpus(u32),
    /// A number of CPUs that is not whole: they are shared then.
    PartOfCpu,
    /// So many devices, fewer than before.
    Devices(Arc<str>, u32),
    /// So many bytes of memory or hugepages.
    Memory(Arc<str>, u64),
}

/// What would fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    change: Change,
    more: bool,
    /// Which container, counted from one, and of how many.
    container: (usize, usize),
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.more { "at least" } else { "at most" };
        match &self.change {
            Change::Cpus(1) => write!(f, "ask for {bound} 1 CPU"),
            Change::Cpus(n) => write!(f, "ask for {bound} {n} CPUs"),
            Change::PartOfCpu => f.write_str("ask for a number of CPUs that is not whole"),
            Change::Devices(name, n) => write!(f, "ask for {bound} {n} {name}"),
            Change::Memory(name, bytes) => {
                write!(f, "ask for {bound} {} MiB of {name}", bytes / MIB)
            }
        }?;
        match self.container {
            (_, 1) => Ok(()),
            (at, all) => write!(f, " in container {at} of {all}"),
        }
    }
}

/// What would fit instead of a pod that is refused, if a small change would do.
pub fn remedy(
    memo: &Memo,
    machine: &Arc<Machine>,
    pod: &Arc<Pod>,
    refusal: &Refusal,
) -> Option<Remedy> {
    let all = pod.all().count();
    let tried = |at: usize, change: Change| {
        let more = is_more(pod.all().nth(at)?, &change);
        let changed = Arc::new(changed(pod, at, &change)?);
        let empty = machine.unused();
        let fits = memo.predict(machine, &empty, &changed).certain();
        fits.then_some(Remedy { change, more, container: (at + 1, all) })
    };
    let found = candidates(machine, pod, refusal);
    found.into_iter().take(MAX_TRIES as usize).find_map(|(at, change)| tried(at, change))
}

/// Changes of a container that may help, the smallest first.
fn candidates(machine: &Machine, pod: &Pod, refusal: &Refusal) -> Vec<(usize, Change)> {
    if let Cause::PartOfCore { per_core, .. } = refusal.cause {
        let at = refusal.container.unwrap_or_else(|| most(pod, |c| u64::from(c.cpus)));
        let Some(own) = pod.all().nth(at).map(|c| c.cpus as usize) else { return Vec::new() };
        let up = u32::try_from(own.next_multiple_of(per_core.max(1))).unwrap_or(u32::MAX);
        return vec![(at, Change::Cpus(up))];
    }
    match &refusal.clash {
        Some(Clash::Widths { narrow, wide }) => {
            let raised = raise(machine, pod, refusal, narrow, wide.2);
            let lowered = lower(machine, pod, refusal, wide, narrow.2);
            raised.into_iter().chain(lowered).collect()
        }
        Some(Clash::TooWide { resource, asked, nodes }) => {
            let wide = (Arc::clone(resource), *asked, *nodes);
            lower(machine, pod, refusal, &wide, 1)
        }
        _ => Vec::new(),
    }
}

/// More of what needs few NUMA nodes, so that it needs as many as the rest.
fn raise(
    machine: &Machine,
    pod: &Pod,
    refusal: &Refusal,
    (name, asked, _): &(Arc<str>, u64, usize),
    nodes: usize,
) -> Vec<(usize, Change)> {
    if &**name == "cpu" {
        let at = refusal.container.unwrap_or_else(|| most(pod, |c| u64::from(c.cpus)));
        let own = pod.all().nth(at).map_or(0, |c| c.cpus);
        let count = machine.cpus.all().len();
        let first = (1..=count).find(|cpus| least_nodes(machine, *cpus) == nodes);
        // The others ask for the rest, if all are aligned as one.
        let rest = usize::try_from(*asked).unwrap_or(usize::MAX).saturating_sub(own as usize);
        let from = first.map_or(u32::MAX, |first| first.saturating_sub(rest) as u32);
        let up = (from.max(own + 1)..from.saturating_add(MAX_TRIES / 2)).map(Change::Cpus);
        return up.chain([Change::PartOfCpu]).map(|change| (at, change)).collect();
    }
    if !is_memory(name) {
        return Vec::new();
    }
    let at = refusal.container.unwrap_or_else(|| most(pod, |c| bytes(c, name)));
    let own = pod.all().nth(at).map_or(0, |c| bytes(c, name));
    let mut sizes: Vec<u64> =
        machine.nodes.iter().map(|node| amount(&node.memory, name).unwrap_or(0)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let beyond: u64 = sizes.iter().take(nodes.saturating_sub(1)).sum();
    let rest = asked.saturating_sub(own);
    let more = (beyond / MIB + 1).saturating_mul(MIB).saturating_sub(rest);
    vec![(at, Change::Memory(Arc::clone(name), more))]
}

/// Less of what needs many NUMA nodes, so that it needs as few as the rest.
fn lower(
    machine: &Machine,
    pod: &Pod,
    refusal: &Refusal,
    (name, _, _): &(Arc<str>, u64, usize),
    nodes: usize,
) -> Vec<(usize, Change)> {
    if &**name == "cpu" {
        let at = refusal.container.unwrap_or_else(|| most(pod, |c| u64::from(c.cpus)));
        let own = pod.all().nth(at).map_or(0, |c| c.cpus);
        let fits = (1..own).rev().find(|cpus| least_nodes(machine, *cpus as usize) <= nodes);
        let down = (1..=fits.unwrap_or(0)).rev().take(MAX_TRIES as usize);
        return down.map(|cpus| (at, Change::Cpus(cpus))).collect();
    }
    if is_memory(name) {
        let at = refusal.container.unwrap_or_else(|| most(pod, |c| bytes(c, name)));
        let ids = machine.cpus.numas.iter().map(numa_id);
        let with_cpus = ids.filter_map(|id| machine.nodes.iter().find(|node| node.id == id));
        let mut sizes: Vec<u64> = with_cpus.filter_map(|node| amount(&node.memory, name)).collect();
        sizes.sort_unstable();
        let most: u64 = sizes.iter().rev().take(nodes).sum();
        return vec![(at, Change::Memory(Arc::clone(name), most / MIB * MIB))];
    }
    let of = |c: &Container| amount(&c.devices, name).unwrap_or(0);
    let at = refusal.container.unwrap_or_else(|| most(pod, |c| u64::from(of(c))));
    let own = pod.all().nth(at).map_or(0, of);
    let down = (1..own).rev().take(MAX_TRIES as usize);
    down.map(|count| (at, Change::Devices(Arc::clone(name), count))).collect()
}

/// The container that asks for the most.
fn most(pod: &Pod, amount: impl Fn(&Container) -> u64) -> usize {
    let best = pod.all().map(amount).enumerate().max_by_key(|(at, n)| (*n, usize::MAX - at));
    best.map_or(0, |(at, _)| at)
}

fn is_memory(name: &str) -> bool {
    name == "memory" || name.starts_with("hugepages-")
}

fn bytes(container: &Container, name: &str) -> u64 {
    amount(&container.memory, name).unwrap_or(0)
}

fn is_more(container: &Container, change: &Change) -> bool {
    match change {
        Change::Cpus(n) => *n > container.cpus,
        Change::PartOfCpu => false,
        Change::Devices(name, n) => Some(*n) > amount(&container.devices, name),
        Change::Memory(name, n) => *n > bytes(container, name),
    }
}

/// The pod, if one container asked for something else.
fn changed(pod: &Pod, at: usize, change: &Change) -> Option<Pod> {
    let mut pod = pod.clone();
    let containers = pod.init.iter_mut().chain(&mut pod.containers);
    let container = containers.into_iter().nth(at)?;
    match change {
        Change::Cpus(n) => container.cpus = *n,
        Change::PartOfCpu => container.cpus = 0,
        Change::Devices(name, n) => {
            container.devices.iter_mut().find(|(own, _)| own == name)?.1 = *n;
        }
        Change::Memory(name, n) => {
            container.memory.iter_mut().find(|(own, _)| own == name)?.1 = *n;
        }
    }
    Some(pod)
}
