//! What the predictor is told of a pod.

use std::sync::Arc;

use super::machine::Machine;

/// A pod as the kubelet's managers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Its class is Guaranteed: only then do its containers get CPUs and memory of
    /// their own.
    pub guaranteed: bool,
    /// It names resources of the pod as a whole.
    pub whole: Option<WholePod>,
    /// Init containers, in their order.
    pub init: Vec<Container>,
    /// The other containers.
    pub containers: Vec<Container>,
}

/// What a pod asks for as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WholePod {
    /// CPUs; 0 if they are not a whole number.
    pub cpus: u32,
    /// Memory and hugepages that are not zero, by resource name.
    pub memory: Vec<(Arc<str>, u64)>,
}

/// A container as the kubelet's managers see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Container {
    /// An init container that goes on beside the others.
    pub sidecar: bool,
    /// CPUs it requests; 0 if they are not a whole number.
    pub cpus: u32,
    /// Its requests for CPU and memory are set and equal to its limits.
    pub equal: bool,
    /// Memory and hugepages it requests, zero ones too, by resource name.
    pub memory: Vec<(Arc<str>, u64)>,
    /// Limits of all other resources, zero ones too, by resource name. Those that no
    /// device plugin serves are passed over.
    pub devices: Vec<(Arc<str>, u32)>,
}

impl Pod {
    /// Containers in the order in which the kubelet serves them.
    pub fn all(&self) -> impl Iterator<Item = &Container> {
        self.init.iter().chain(&self.containers)
    }

    /// Whether it would have anything to itself on a machine: CPUs, memory or devices. If not,
    /// no agent ever reports it.
    #[must_use]
    pub fn holds(&self, machine: &Machine) -> bool {
        let settings = &machine.settings;
        let managed = self.guaranteed && (settings.pod_level || self.whole.is_none());
        let served = |name: &str| machine.devices.iter().any(|device| &*device.name == name);
        let whole = self.whole.as_ref().filter(|_| settings.pod_level);
        let cpus = whole.map_or(0, |whole| whole.cpus);
        let memory = whole.is_some_and(|whole| !whole.memory.is_empty());
        let mut all = self.all();
        (managed && settings.cpu.is_some() && cpus > 0)
            || (managed && settings.memory && memory)
            || all.any(|container| {
                (managed && settings.cpu.is_some() && container.cpus > 0)
                    || (managed && settings.memory && !container.memory.is_empty())
                    || container.devices.iter().any(|(name, count)| *count > 0 && served(name))
            })
    }

    /// Whether the container at a position of [`Pod::all`] ends before the others
    /// begin: what it had is used again.
    pub(super) fn ends_first(&self, position: usize) -> bool {
        self.init.get(position).is_some_and(|container| !container.sidecar)
    }

    /// The most that containers hold at one time, by the rule for init containers and
    /// sidecars.
    #[must_use]
    pub fn peak(&self, amount: impl Fn(&Container) -> u64) -> u64 {
        let (mut sidecars, mut peak) = (0, 0);
        for container in &self.init {
            if container.sidecar {
                sidecars += amount(container);
            } else {
                peak = peak.max(sidecars + amount(container));
            }
        }
        let running: u64 = self.containers.iter().map(amount).sum();
        peak.max(running + sidecars)
    }
}

/// The amount of a named resource in a list; `None` if it is not in there.
pub(super) fn amount<T: Copy>(list: &[(Arc<str>, T)], name: &str) -> Option<T> {
    list.iter().find(|(other, _)| &**other == name).map(|(_, amount)| *amount)
}
