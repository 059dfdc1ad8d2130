//! The CPU Manager's static policy: hints for whole CPUs of Guaranteed pods, and which
//! CPUs they get.

use super::cpus::{CpuSet, numa_id};
use super::hints::{Affinity, Hints};
use super::machine::{CpuOptions, Machine};
use super::mask::Mask;
use super::pod::{Container, Pod};
use super::refusal::Cause;
use super::take::take;

/// CPUs in one course of an admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cpus {
    /// CPUs that no container has for itself.
    pub(super) shared: CpuSet,
    /// CPUs of the pod's init containers that have ended.
    pub(super) reusable: CpuSet,
}

/// CPUs that a container gets for itself.
pub(super) fn exclusive(machine: &Machine, pod: &Pod, container: &Container) -> usize {
    if !pod.guaranteed || (managed_whole(machine, pod) && !container.equal) {
        return 0;
    }
    container.cpus as usize
}

/// Whether the pod's own resources are what is managed.
pub(super) const fn managed_whole(machine: &Machine, pod: &Pod) -> bool {
    machine.settings.pod_level && pod.whole.is_some()
}

/// Whether the pod has resources of its own, which this kubelet does not manage: its
/// containers then get no CPUs and no memory of their own.
pub(super) const fn unmanaged_whole(machine: &Machine, pod: &Pod) -> bool {
    !machine.settings.pod_level && pod.whole.is_some()
}

/// CPUs that a pod gets for itself.
pub(super) fn exclusive_of_pod(machine: &Machine, pod: &Pod) -> usize {
    if let (true, Some(whole)) = (machine.settings.pod_level, &pod.whole) {
        return if pod.guaranteed { whole.cpus as usize } else { 0 };
    }
    let peak = pod.peak(|container| exclusive(machine, pod, container) as u64);
    usize::try_from(peak).unwrap_or(usize::MAX)
}

/// Hints for a container, or for a pod.
pub(super) fn hints(machine: &Machine, cpus: &Cpus, pod: &Pod, asked: usize) -> Hints {
    let Some(options) = machine.settings.cpu else { return Hints::Any };
    if asked == 0 || unmanaged_whole(machine, pod) {
        return Hints::Any;
    }
    let available = cpus.shared.difference(&machine.reserved);
    let nodes: Mask = machine.cpus.numas.iter().map(numa_id).collect();
    let per_node = |set: &CpuSet| {
        let counts = machine.cpus.per_numa(set);
        counts.fold([0_usize; 64], |mut sums, (id, count)| {
            if let Some(sum) = sums.get_mut(usize::from(id)) {
                *sum = count;
            }
            sums
        })
    };
    let (built, free) = (per_node(machine.cpus.all()), per_node(&available));
    let reused: Mask = machine
        .cpus
        .per_numa(&cpus.reusable)
        .filter(|(_, count)| *count > 0)
        .map(|(id, _)| id)
        .collect();
    let sum = |counts: &[usize; 64], mask: Mask| -> usize {
        mask.ids().map(|id| counts[usize::from(id)]).sum()
    };
    let mut least = nodes.count();
    let mut found = Vec::new();
    for mask in nodes.subsets() {
        if sum(&built, mask) >= asked {
            least = least.min(mask.count());
        }
        // What the pod has already must stay within.
        if mask.covers(reused) && cpus.reusable.len() + sum(&free, mask) >= asked {
            found.push((mask, false));
        }
    }
    for (mask, good) in &mut found {
        *good = mask.count() == least
            || (options.align_by_socket && in_fewest_sockets(machine, *mask, least));
    }
    Hints::Some(found)
}

/// The fewest NUMA nodes that could hold so many CPUs if nothing ran.
pub(super) fn least_nodes(machine: &Machine, asked: usize) -> usize {
    let mut sizes: Vec<usize> = machine.cpus.numas.iter().map(|numa| numa.cpus.len()).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    for (nodes, size) in sizes.iter().enumerate() {
        sum += size;
        if sum >= asked {
            return nodes + 1;
        }
    }
    sizes.len()
}

fn in_fewest_sockets(machine: &Machine, mask: Mask, least: usize) -> bool {
    let layout = &machine.cpus;
    let per_socket = layout.numas.len().checked_div(layout.sockets.len()).unwrap_or(0);
    per_socket > 0 && sockets_of(machine, mask).len() == least.div_ceil(per_socket)
}

/// CPUs of each socket that has CPUs on these nodes.
fn sockets_of(machine: &Machine, mask: Mask) -> Vec<&CpuSet> {
    let layout = &machine.cpus;
    let numas: Vec<_> = layout.numas.iter().filter(|numa| mask.has(numa_id(numa))).collect();
    let on = |socket: &CpuSet| numas.iter().any(|numa| numa.cpus.common(socket) > 0);
    layout.sockets.iter().map(|socket| &socket.cpus).filter(|socket| on(socket)).collect()
}

/// Gives a container its CPUs.
pub(super) fn allocate(
    machine: &Machine,
    cpus: &mut Cpus,
    pod: &Pod,
    position: usize,
    container: &Container,
    affinity: Affinity,
) -> Result<CpuSet, Cause> {
    let asked = exclusive(machine, pod, container);
    let Some(options) = machine.settings.cpu else { return Ok(CpuSet::default()) };
    if asked == 0 || unmanaged_whole(machine, pod) {
        return Ok(CpuSet::default());
    }
    whole_cores_only(machine, options, cpus, asked)?;
    let reusable = cpus.reusable.clone();
    let got = choose(machine, options, cpus, asked, affinity, &reusable)?;
    cpus.reusable =
        if pod.ends_first(position) { reusable.union(&got) } else { reusable.difference(&got) };
    Ok(got)
}

/// What `full-pcpus-only` refuses.
fn whole_cores_only(
    machine: &Machine,
    options: CpuOptions,
    cpus: &Cpus,
    asked: usize,
) -> Result<(), Cause> {
    if !options.full_cores_only {
        return Ok(());
    }
    let per_core = machine.cpus.per_core();
    if per_core == 0 || !asked.is_multiple_of(per_core) {
        return Err(Cause::PartOfCore { asked, per_core });
    }
    let available = cpus.shared.difference(&machine.cpus.whole_cores(&machine.reserved)).len();
    if asked > available {
        return Err(Cause::TooFewCores { asked, per_core, available });
    }
    Ok(())
}

/// CPUs on the chosen nodes first, then any.
fn choose(
    machine: &Machine,
    options: CpuOptions,
    cpus: &mut Cpus,
    asked: usize,
    affinity: Affinity,
    reusable: &CpuSet,
) -> Result<CpuSet, Cause> {
    let available = cpus.shared.difference(&machine.reserved).union(reusable);
    let mut got = CpuSet::default();
    if let Some(mask) = affinity.mask {
        let aligned = aligned(machine, options, mask, &available);
        got = take(&machine.cpus, options, &aligned, asked.min(aligned.len()))?;
    }
    let rest = asked.saturating_sub(got.len());
    got = got.union(&take(&machine.cpus, options, &available.difference(&got), rest)?);
    cpus.shared = cpus.shared.difference(&got);
    Ok(got)
}

fn aligned(machine: &Machine, options: CpuOptions, mask: Mask, available: &CpuSet) -> CpuSet {
    let near = if options.align_by_socket {
        let sockets = sockets_of(machine, mask);
        sockets.into_iter().fold(CpuSet::default(), |near, socket| near.union(socket))
    } else {
        let numas = machine.cpus.numas.iter().filter(|numa| mask.has(numa_id(numa)));
        numas.fold(CpuSet::default(), |near, numa| near.union(&numa.cpus))
    };
    near.intersection(available)
}

/// Whether every container of a pod with resources of its own would have a CPU.
pub(super) fn pool_is_left(machine: &Machine, pod: &Pod) -> Result<(), Cause> {
    let total = exclusive_of_pod(machine, pod);
    let empty = |init| Cause::EmptyPool { resource: "cpu".into(), init };
    let (mut sharing, mut used) = (false, 0);
    for (position, container) in pod.all().enumerate() {
        let (own, ends) = (exclusive(machine, pod, container), pod.ends_first(position));
        if own == 0 && ends && used >= total {
            return Err(empty(true));
        }
        if !ends {
            sharing |= own == 0;
            used += own;
        }
    }
    if sharing && used >= total { Err(empty(false)) } else { Ok(()) }
}

/// Gives a pod with resources of its own its CPUs, and its containers their parts.
pub(super) fn allocate_pod(
    machine: &Machine,
    cpus: &mut Cpus,
    pod: &Pod,
    affinity: Affinity,
) -> Result<Vec<CpuSet>, Cause> {
    let total = exclusive_of_pod(machine, pod);
    let Some(options) = machine.settings.cpu else { return Ok(Vec::new()) };
    if total == 0 {
        return Ok(Vec::new());
    }
    pool_is_left(machine, pod)?;
    whole_cores_only(machine, options, cpus, total)?;
    let whole = choose(machine, options, cpus, total, affinity, &CpuSet::default())?;
    let mut parts: Vec<Option<CpuSet>> = Vec::new();
    let mut pool = whole;
    for (position, container) in pod.all().enumerate() {
        let own = exclusive(machine, pod, container);
        let ends = pod.ends_first(position);
        let part = match own {
            0 => ends.then(|| pool.clone()),
            own => Some(take(&machine.cpus, options, &pool, own)?),
        };
        if let (false, Some(part)) = (ends, &part) {
            pool = pool.difference(part);
        }
        parts.push(part);
    }
    Ok(parts.into_iter().map(|part| part.unwrap_or_else(|| pool.clone())).collect())
}
