//! Which CPUs the CPU Manager takes: whole NUMA nodes and sockets first, then caches
//! where that is asked for, then cores, then single threads, always from the fullest
//! group that will do.
//!
//! Which CPUs of a NUMA node are taken decides what later containers can have, so
//! this follows the kubelet to the single CPU, averages and all.

use super::cpus::{CpuLayout, CpuSet, Group};
use super::distribute;
use super::machine::CpuOptions;
use super::refusal::Cause;

/// The CPUs that a kubelet keeps for the system if it is told how many, not which.
#[must_use]
pub fn reserve(layout: &CpuLayout, options: CpuOptions, count: usize) -> CpuSet {
    take(layout, options, &layout.all, count).unwrap_or_default()
}

/// Takes CPUs out of those that are available.
pub(super) fn take(
    layout: &CpuLayout,
    options: CpuOptions,
    available: &CpuSet,
    count: usize,
) -> Result<CpuSet, Cause> {
    if options.across_numa {
        return distribute::take(layout, options, available, count);
    }
    packed(layout, available, count, options.across_cores, options.align_by_uncore)
}

/// As few groups as possible.
pub(super) fn packed(
    layout: &CpuLayout,
    available: &CpuSet,
    count: usize,
    spread: bool,
    by_uncore: bool,
) -> Result<CpuSet, Cause> {
    let mut hand = Hand::new(layout, available, count);
    if hand.satisfied() {
        return Ok(hand.taken);
    }
    if hand.left.len() < count {
        return Err(Cause::TooFewCpus { asked: count, available: available.len() });
    }
    if hand.numas_contain_sockets() {
        hand.take_whole_numas();
    } else {
        hand.take_whole_sockets();
    }
    if hand.satisfied() {
        return Ok(hand.taken);
    }
    if hand.numas_contain_sockets() {
        hand.take_whole_sockets();
    } else {
        hand.take_whole_numas();
    }
    if !hand.satisfied() && by_uncore {
        hand.take_caches();
    }
    if !hand.satisfied() && !spread {
        hand.take_whole_cores();
    }
    if !hand.satisfied() {
        hand.take_threads(spread);
    }
    if hand.satisfied() { Ok(hand.taken) } else { Err(Cause::CpusNotFound) }
}

/// CPUs in hand, CPUs that are left, and how many are still wanted.
pub(super) struct Hand<'a> {
    layout: &'a CpuLayout,
    pub(super) left: CpuSet,
    /// Can end below zero: what is taken is counted, not what was left of it.
    pub(super) wanted: i64,
    pub(super) taken: CpuSet,
}

impl<'a> Hand<'a> {
    pub(super) fn new(layout: &'a CpuLayout, available: &CpuSet, count: usize) -> Self {
        Self {
            layout,
            left: layout.all.intersection(available),
            wanted: signed(count),
            taken: CpuSet::default(),
        }
    }

    pub(super) const fn satisfied(&self) -> bool {
        self.wanted < 1
    }

    pub(super) fn take(&mut self, cpus: &CpuSet) {
        self.taken = self.taken.union(cpus);
        self.left = self.left.difference(&self.taken);
        self.wanted -= signed(cpus.len());
    }

    /// Whether a NUMA node has one socket or more, rather than a socket several nodes.
    const fn numas_contain_sockets(&self) -> bool {
        self.layout.sockets.len() >= self.layout.numas.len()
    }

    /// Groups with CPUs left (inside an outer group, if there is one), the fullest
    /// first: those with the fewest left, then by id.
    fn sorted(&self, groups: &'a [Group], outer: Option<&Group>) -> Vec<&'a Group> {
        let inside = outer.map(|outer| outer.cpus.intersection(&self.left));
        let inside = inside.as_ref().unwrap_or(&self.left);
        let mut found: Vec<(usize, &Group)> = groups
            .iter()
            .filter(|group| group.cpus.common(inside) > 0)
            .map(|group| (group.cpus.common(&self.left), group))
            .collect();
        found.sort_by_key(|(left, group)| (*left, group.id));
        found.into_iter().map(|(_, group)| group).collect()
    }

    fn inside(&self, outers: &[&Group], groups: &'a [Group]) -> Vec<&'a Group> {
        outers.iter().flat_map(|outer| self.sorted(groups, Some(outer))).collect()
    }

    pub(super) fn numas(&self) -> Vec<&'a Group> {
        if self.numas_contain_sockets() {
            self.sorted(&self.layout.numas, None)
        } else {
            self.inside(&self.sockets(), &self.layout.numas)
        }
    }

    fn sockets(&self) -> Vec<&'a Group> {
        if self.numas_contain_sockets() {
            self.inside(&self.numas(), &self.layout.sockets)
        } else {
            self.sorted(&self.layout.sockets, None)
        }
    }

    fn cores(&self) -> Vec<&'a Group> {
        let outers = if self.numas_contain_sockets() { self.sockets() } else { self.numas() };
        self.inside(&outers, &self.layout.cores)
    }

    fn caches(&self) -> Vec<&'a Group> {
        self.inside(&self.numas(), &self.layout.uncores)
    }

    /// Takes groups of which as many CPUs are left as `size` says of them, while that
    /// many are wanted.
    fn take_whole(&mut self, groups: Vec<&Group>, size: impl Fn(&Group) -> usize) {
        let whole: Vec<&Group> = groups
            .into_iter()
            .filter(|group| group.cpus.common(&self.left) == size(group))
            .collect();
        for group in whole {
            if self.wanted >= signed(group.cpus.len()) {
                self.take(&group.cpus);
            }
        }
    }

    fn take_whole_numas(&mut self) {
        self.take_whole(self.numas(), |numa| numa.cpus.len());
    }

    fn take_whole_sockets(&mut self) {
        let size = self.layout.per_socket();
        self.take_whole(self.sockets(), |_| size);
    }

    fn take_whole_cores(&mut self) {
        let size = self.layout.per_core();
        self.take_whole(self.cores(), |_| size);
    }

    fn take_caches(&mut self) {
        for cache in self.caches() {
            if self.wanted >= signed(self.layout.per_uncore()) {
                self.take_whole(self.caches(), |cache| cache.cpus.len());
            }
            if self.satisfied() {
                return;
            }
            self.take_part_of(cache);
            if self.satisfied() {
                return;
            }
        }
    }

    /// All that is wanted from the lowest cores of one cache, or nothing.
    fn take_part_of(&mut self, cache: &Group) {
        let threads = signed(self.layout.per_core());
        let cores = usize::try_from((self.wanted + threads - 1) / threads).unwrap_or(0);
        let here = cache.cpus.intersection(&self.left);
        let lowest = self.layout.cores.iter().filter(|core| core.cpus.common(&here) > 0);
        let mut cpus = lowest
            .take(cores)
            .fold(CpuSet::default(), |cpus, core| cpus.union(&core.cpus.intersection(&self.left)));
        // One thread of the last core is too many if an odd number is wanted.
        if self.wanted % 2 != 0 && threads > 1 && signed(cpus.len()) > self.wanted {
            let fewer = cpus.len() - 1;
            cpus = cpus.iter().take(fewer).collect();
        }
        if signed(cpus.len()) == self.wanted {
            self.take(&cpus);
        }
    }

    fn take_threads(&mut self, spread: bool) {
        let outers = if spread { self.sockets() } else { self.cores() };
        let cpus: Vec<u16> = outers
            .into_iter()
            .flat_map(|outer| outer.cpus.intersection(&self.left).iter().collect::<Vec<_>>())
            .collect();
        for cpu in cpus {
            self.take(&[cpu].into_iter().collect());
            if self.satisfied() {
                return;
            }
        }
    }
}

pub(super) fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
