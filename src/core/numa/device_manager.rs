//! The Device Manager: hints for devices, and which devices a container could get.
//!
//! Which device of several alike is given is chance (or the plugin's wish), so devices
//! are told apart by their NUMA nodes only, and a request has as many outcomes as
//! there are ways to choose among those kinds.

use std::sync::Arc;

use smallvec::SmallVec;

use super::hints::{Affinity, Hints};
use super::machine::{DeviceResource, Machine, Usage};
use super::mask::Mask;
use super::pod::{Container, Pod, amount};
use super::refusal::Cause;

/// Numbers of devices per kind, in the order of [`Kinds`].
pub(super) type Counts = SmallVec<[u32; 8]>;

/// The devices of one resource by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) name: Arc<str>,
    /// What devices of a kind say of their NUMA nodes.
    pub(super) numa: SmallVec<[Option<Mask>; 8]>,
    /// How many there are, healthy or not, free or not.
    all: Counts,
    healthy: u32,
    plugin_chooses: bool,
}

/// Devices of one resource in one course of an admission.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Devices {
    /// Healthy devices that nobody has.
    pub(super) free: Counts,
    /// Devices of the pod's init containers that have ended.
    pub(super) reusable: Counts,
}

/// A way to serve a request: what comes from init containers, what from free devices.
pub(super) type Choice = (Counts, Counts);

impl Kinds {
    /// The kinds of a resource's devices, and how many of each are free.
    pub(super) fn of(resource: &DeviceResource, taken: &[bool]) -> (Self, Devices) {
        let mut kinds = Self {
            name: Arc::clone(&resource.name),
            numa: SmallVec::new(),
            all: Counts::new(),
            healthy: 0,
            plugin_chooses: resource.plugin_chooses,
        };
        let mut devices = Devices::default();
        for (at, device) in resource.devices.iter().enumerate() {
            let kind = kinds.kind(device.numa, &mut devices);
            kinds.all[kind] += 1;
            if device.healthy {
                kinds.healthy += 1;
                let taken = taken.get(at).copied().unwrap_or(false);
                devices.free[kind] += u32::from(!taken);
            }
        }
        (kinds, devices)
    }

    fn kind(&mut self, numa: Option<Mask>, devices: &mut Devices) -> usize {
        self.numa.iter().position(|known| *known == numa).unwrap_or_else(|| {
            self.numa.push(numa);
            self.all.push(0);
            devices.free.push(0);
            devices.reusable.push(0);
            self.numa.len() - 1
        })
    }

    /// Whether any device says where it is: else the resource is given from anywhere.
    fn has_topology(&self) -> bool {
        self.numa.iter().flatten().any(|mask| !mask.is_empty())
    }

    /// Devices of kinds that are near a set of nodes.
    fn near(&self, counts: &Counts, mask: Mask) -> u32 {
        let near = |numa: &Option<Mask>| numa.is_some_and(|numa| !numa.and(mask).is_empty());
        self.numa.iter().zip(counts).filter(|(numa, _)| near(numa)).map(|(_, n)| *n).sum()
    }

    /// Nodes that are looked at.
    fn nodes(&self, machine: &Machine) -> Mask {
        let all = machine.all_nodes();
        let with = self.numa.iter().flatten().fold(Mask::EMPTY, |with, numa| with.or(*numa));
        let with = with.and(all);
        if with.is_empty() || !machine.settings.device_nodes_only { all } else { with }
    }

    /// The fewest NUMA nodes that could hold so many devices if all were free.
    pub(super) fn least_nodes(&self, machine: &Machine, asked: u32) -> usize {
        let nodes = self.nodes(machine);
        let enough = nodes.subsets().filter(|mask| self.near(&self.all, *mask) >= asked);
        enough.map(Mask::count).min().unwrap_or(nodes.count())
    }

    /// Hints for some devices.
    pub(super) fn hints(&self, machine: &Machine, devices: &Devices, asked: u32) -> Hints {
        if !self.has_topology() {
            return Hints::Any;
        }
        if sum(&devices.free) + sum(&devices.reusable) < asked {
            return Hints::Some(Vec::new());
        }
        let nodes = self.nodes(machine);
        let mut least = nodes.count();
        let mut found = Vec::new();
        for mask in nodes.subsets() {
            if self.near(&self.all, mask) >= asked {
                least = least.min(mask.count());
            }
            let Some(reused) = self.reusable_within(devices, mask) else { continue };
            if reused + self.near(&devices.free, mask) >= asked {
                found.push((mask, false));
            }
        }
        for (mask, good) in &mut found {
            *good = mask.count() == least;
        }
        Hints::Some(found)
    }

    /// Devices to be used again, if a set of nodes has them all. Those that say nothing
    /// of where they are do not count.
    fn reusable_within(&self, devices: &Devices, mask: Mask) -> Option<u32> {
        let mut within = 0;
        for (numa, count) in self.numa.iter().zip(&devices.reusable) {
            let Some(numa) = numa else { continue };
            if *count > 0 && numa.and(mask).is_empty() {
                return None;
            }
            within += count;
        }
        Some(within)
    }

    /// Every way in which the kubelet may serve a request.
    pub(super) fn choices(
        &self,
        devices: &Devices,
        asked: u32,
        affinity: Affinity,
    ) -> Result<Vec<Choice>, Cause> {
        if self.healthy == 0 {
            return Err(Cause::NoHealthyDevice { resource: Arc::clone(&self.name) });
        }
        let none: Counts = devices.free.iter().map(|_| 0).collect();
        if asked == 0 {
            return Ok(vec![(none.clone(), none)]);
        }
        let reused = sum(&devices.reusable);
        if reused >= asked {
            let ways = ways(&devices.reusable, asked);
            return Ok(ways.into_iter().map(|reused| (reused, none.clone())).collect());
        }
        let needed = asked - reused;
        if sum(&devices.free) < needed {
            return Err(Cause::TooFewDevices {
                resource: Arc::clone(&self.name),
                asked: needed as usize,
                available: sum(&devices.free) as usize,
            });
        }
        let fresh = self.fresh(devices, needed, affinity);
        Ok(fresh.into_iter().map(|free| (devices.reusable.clone(), free)).collect())
    }

    /// Ways to take free devices: aligned ones first, then others that say where they
    /// are, then the rest.
    fn fresh(&self, devices: &Devices, needed: u32, affinity: Affinity) -> Vec<Counts> {
        let part = |wanted: Near| -> Counts {
            let kinds = self.numa.iter().zip(&devices.free);
            kinds
                .map(|(numa, n)| if self.near_to(*numa, affinity) == wanted { *n } else { 0 })
                .collect()
        };
        let aligned = part(Near::Aligned);
        if needed <= sum(&aligned) {
            return ways(&aligned, needed);
        }
        let rest = needed - sum(&aligned);
        let with = |base: &Counts, more: Vec<Counts>| -> Vec<Counts> {
            more.into_iter().map(|more| plus(base, &more)).collect()
        };
        let (elsewhere, nowhere) = (part(Near::Elsewhere), part(Near::Nowhere));
        if self.plugin_chooses {
            return with(&aligned, ways(&plus(&elsewhere, &nowhere), rest));
        }
        if rest <= sum(&elsewhere) {
            return with(&aligned, ways(&elsewhere, rest));
        }
        let more = ways(&nowhere, rest - sum(&elsewhere));
        with(&plus(&aligned, &elsewhere), more)
    }

    fn near_to(&self, numa: Option<Mask>, affinity: Affinity) -> Near {
        match (numa.filter(|numa| !numa.is_empty()), affinity.mask) {
            (Some(numa), Some(mask)) if self.has_topology() => {
                if numa.and(mask).is_empty() {
                    Near::Elsewhere
                } else {
                    Near::Aligned
                }
            }
            _ => Near::Nowhere,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Near {
    Aligned,
    Elsewhere,
    Nowhere,
}

impl Devices {
    /// Takes what was chosen for a container.
    pub(super) fn give(&mut self, (reused, fresh): &Choice, ends: bool) {
        self.free = minus(&self.free, fresh);
        self.reusable =
            if ends { plus(&self.reusable, fresh) } else { minus(&self.reusable, reused) };
    }
}

/// The kinds of all resources, and what is free of them.
pub(super) fn kinds(machine: &Machine, usage: &Usage) -> (Vec<Kinds>, Vec<Devices>) {
    let taken = usage.taken.iter().map(Vec::as_slice).chain(std::iter::repeat(&[][..]));
    machine.devices.iter().zip(taken).map(|(r, taken)| Kinds::of(r, taken)).unzip()
}

/// Devices that a pod asks for as a whole; `None` if it does not name the resource.
pub(super) fn asked_by_pod(pod: &Pod, resource: &str) -> Option<u32> {
    let of = |container: &Container| amount(&container.devices, resource);
    pod.all().any(|container| of(container).is_some()).then(|| {
        let peak = pod.peak(|container| u64::from(of(container).unwrap_or(0)));
        u32::try_from(peak).unwrap_or(u32::MAX)
    })
}

pub(super) fn sum(counts: &Counts) -> u32 {
    counts.iter().sum()
}

pub(super) fn plus(a: &Counts, b: &Counts) -> Counts {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn minus(a: &Counts, b: &Counts) -> Counts {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// Every way to take so many out of some.
fn ways(from: &Counts, count: u32) -> Vec<Counts> {
    fn walk(from: &[u32], count: u32, held: &mut Counts, found: &mut Vec<Counts>) {
        let Some((&first, rest)) = from.split_first() else {
            if count == 0 {
                found.push(held.clone());
            }
            return;
        };
        let beyond: u32 = rest.iter().sum();
        for part in count.saturating_sub(beyond)..=first.min(count) {
            held.push(part);
            walk(rest, count - part, held, found);
            held.pop();
        }
    }
    let mut found = Vec::new();
    walk(from, count, &mut Counts::new(), &mut found);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_choose_occurs_once() {
        let from: Counts = [2, 0, 1, 3].into_iter().collect();
        let found = ways(&from, 4);
        let expected: [[u32; 4]; 4] = [[0, 0, 1, 3], [1, 0, 0, 3], [1, 0, 1, 2], [2, 0, 0, 2]];
        let mut expected: Vec<Counts> =
            expected.iter().map(|way| way.iter().copied().collect()).collect();
        expected.push([2, 0, 1, 1].into_iter().collect());
        assert_eq!(found, expected);
        assert!(ways(&from, 7).is_empty());
        assert_eq!(ways(&from, 0).len(), 1);
    }
}
