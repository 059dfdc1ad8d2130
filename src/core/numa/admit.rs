//! The order of things in an admission: hints, choice and allocation per container or
//! per pod, in every course that chance among devices may take.

use std::sync::Arc;

use super::clash::Clash;
use super::cpu_manager::{self, Cpus, managed_whole};
use super::cpus::CpuSet;
use super::device_manager::{self, Choice, Devices, Kinds};
use super::hints::{Affinity, Ask, Hints, merge};
use super::machine::{Machine, Policy, Scope, Usage};
use super::mask::Mask;
use super::memory_manager::{self, Memory};
use super::pod::{Container, Pod, amount};
use super::refusal::Cause;

/// Most courses that are followed: beyond that the answer is that it depends.
pub const MAX_COURSES: usize = 256;
/// Most NUMA nodes of which all sets are tried.
pub const MAX_NODES: usize = 16;

/// How many devices are near which NUMA nodes; `None` for those that say nothing of it.
pub type Near = Vec<(Option<Mask>, u32)>;

/// What a container would have for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// CPUs; none if it shares those of the others.
    pub cpus: CpuSet,
    /// NUMA nodes that its memory comes from; `None` if that is from anywhere.
    pub memory: Option<Mask>,
    /// Devices per resource name: how many near which NUMA nodes.
    pub devices: Vec<(Arc<str>, Near)>,
}

/// One way in which a pod would be admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// CPUs that no container has for itself afterwards.
    pub shared: CpuSet,
    /// Memory per NUMA node afterwards.
    pub memory: Vec<super::machine::NodeMemory>,
    /// Free healthy devices afterwards, per resource in the order of
    /// [`Machine::devices`]: how many near which NUMA nodes.
    pub free: Vec<Near>,
    /// Per container, init containers first.
    pub given: Vec<Given>,
}

impl Course {
    /// What is in use afterwards. Of devices alike the first are taken: which is of no
    /// consequence to later predictions.
    #[must_use]
    pub fn usage(&self, machine: &Machine, before: &Usage) -> Usage {
        let mut taken = before.taken.clone();
        for ((resource, taken), free) in machine.devices.iter().zip(&mut taken).zip(&self.free) {
            taken.resize(resource.devices.len(), false);
            for (numa, left) in free {
                let mut kept = 0;
                let kind = resource.devices.iter().zip(taken.iter_mut());
                let kind = kind
                    .filter(|(device, taken)| device.numa == *numa && device.healthy && !**taken);
                // The last ones stay free.
                for (_, taken) in kind.collect::<Vec<_>>().into_iter().rev() {
                    if kept < *left {
                        kept += 1;
                    } else {
                        *taken = true;
                    }
                }
            }
        }
        Usage { shared: self.shared.clone(), memory: self.memory.clone(), taken }
    }

    /// NUMA nodes of all that the pod has for itself.
    #[must_use]
    pub fn nodes(&self, machine: &Machine) -> Mask {
        let of = |given: &Given| {
            let cpus = machine.cpus.per_numa(&given.cpus).filter(|(_, count)| *count > 0);
            let cpus: Mask = cpus.map(|(id, _)| id).collect();
            let devices = given.devices.iter().flat_map(|(_, kinds)| kinds);
            let devices = devices.filter_map(|(numa, _)| *numa);
            devices.fold(cpus, Mask::or).or(given.memory.unwrap_or_default())
        };
        self.given.iter().map(of).fold(Mask::EMPTY, Mask::or)
    }
}

/// One way in which a pod would be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What went wrong.
    pub cause: Cause,
    /// The container it went wrong with, counted from the first init container;
    /// `None` if it was the pod as a whole.
    pub container: Option<usize>,
    /// What stands against what, if it is a matter of alignment.
    pub clash: Option<Clash>,
}

/// What a kubelet would do with a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// Ways in which it would admit it.
    pub admitted: Vec<Course>,
    /// Ways in which it would refuse it.
    pub refused: Vec<Refusal>,
    /// Not every course was followed.
    pub incomplete: bool,
}

impl Prediction {
    /// It is admitted whatever device is given.
    #[must_use]
    pub fn certain(&self) -> bool {
        self.refused.is_empty() && !self.incomplete
    }
}

/// A course under way.
#[derive(Clone, Debug)]
struct World {
    cpus: Cpus,
    memory: Memory,
    devices: Vec<Devices>,
    given: Vec<Given>,
}

impl World {
    /// Whether all that follows is the same.
    fn same(&self, other: &Self) -> bool {
        self.cpus == other.cpus && self.memory == other.memory && self.devices == other.devices
    }
}

/// Predicts what a kubelet does with a pod that is not there yet.
#[must_use]
pub fn predict(machine: &Machine, usage: &Usage, pod: &Pod) -> Prediction {
    let mut admission = Admission::new(machine, usage, pod);
    if machine.nodes.len() > MAX_NODES {
        admission.out.incomplete = true;
        return admission.out;
    }
    let world = World {
        cpus: Cpus { shared: usage.shared.clone(), reusable: CpuSet::default() },
        memory: Memory { nodes: usage.memory.clone(), reusable: Vec::new() },
        devices: std::mem::take(&mut admission.devices),
        given: Vec::new(),
    };
    let pod_scope = machine.settings.policy != Policy::None && machine.settings.scope == Scope::Pod;
    let worlds = match (pod_scope, managed_whole(machine, pod)) {
        (true, true) => admission.whole_pod(world),
        (true, false) => admission.pod_scope(world),
        (false, _) => admission.container_scope(world),
    };
    admission.finish(worlds)
}

struct Admission<'a> {
    machine: &'a Machine,
    pod: &'a Pod,
    kinds: Vec<Kinds>,
    devices: Vec<Devices>,
    out: Prediction,
}

impl<'a> Admission<'a> {
    fn new(machine: &'a Machine, usage: &Usage, pod: &'a Pod) -> Self {
        let (kinds, devices) = device_manager::kinds(machine, usage);
        Self { machine, pod, kinds, devices, out: Prediction::default() }
    }

    /// Each container is aligned for itself, after those before it have what they got.
    fn container_scope(&mut self, world: World) -> Vec<World> {
        let (machine, pod) = (self.machine, self.pod);
        let mut worlds = vec![world];
        for (position, container) in pod.all().enumerate() {
            let mut next = Vec::new();
            for world in worlds {
                let asks = match machine.settings.policy {
                    Policy::None => Vec::new(),
                    _ => self.asks_of(&world, container),
                };
                let (affinity, admitted) = merge(machine, &asks);
                if admitted {
                    self.allocate(world, position, container, affinity, &mut next);
                } else {
                    let cause = if managed_whole(machine, pod) {
                        Cause::ContainerOfPodNotAligned
                    } else {
                        Cause::NotAligned
                    };
                    self.refuse(cause, Some(position), &asks, &world);
                }
            }
            worlds = next;
        }
        worlds
    }

    /// The pod is aligned as a whole, then each container gets its part.
    fn pod_scope(&mut self, world: World) -> Vec<World> {
        let Some(affinity) = self.align_pod(&world, Cause::NotAligned) else { return Vec::new() };
        let mut worlds = vec![world];
        for (position, container) in self.pod.all().enumerate() {
            let mut next = Vec::new();
            for world in worlds {
                self.allocate(world, position, container, affinity, &mut next);
            }
            worlds = next;
        }
        worlds
    }

    /// The pod gets what it asks for as a whole; devices are given later.
    fn whole_pod(&mut self, mut world: World) -> Vec<World> {
        let (machine, pod) = (self.machine, self.pod);
        let Some(affinity) = self.align_pod(&world, Cause::PodNotAligned) else {
            return Vec::new();
        };
        let given =
            cpu_manager::allocate_pod(machine, &mut world.cpus, pod, affinity).and_then(|cpus| {
                let memory =
                    memory_manager::allocate_pod(machine, &mut world.memory, pod, affinity)?;
                Ok((cpus, memory))
            });
        match given {
            Ok((cpus, memory)) => {
                let mut cpus = cpus.into_iter();
                world.given = pod
                    .all()
                    .map(|_| Given {
                        cpus: cpus.next().unwrap_or_default(),
                        memory,
                        devices: Vec::new(),
                    })
                    .collect();
                vec![world]
            }
            Err(cause) => {
                self.refuse(cause, None, &[], &world);
                Vec::new()
            }
        }
    }

    fn align_pod(&mut self, world: &World, cause: Cause) -> Option<Affinity> {
        let asks = self.asks_of_pod(world);
        let (affinity, admitted) = merge(self.machine, &asks);
        if !admitted {
            self.refuse(cause, None, &asks, world);
        }
        admitted.then_some(affinity)
    }

    fn asks_of(&self, world: &World, container: &Container) -> Vec<Ask> {
        let (machine, pod) = (self.machine, self.pod);
        let cpus = cpu_manager::exclusive(machine, pod, container);
        let memory = memory_manager::exclusive(machine, pod, container);
        let mut asks = self.asks(world, |name| amount(&container.devices, name));
        asks.push(cpu_ask(cpus, cpu_manager::hints(machine, &world.cpus, pod, cpus)));
        let hints = memory_manager::hints(machine, &world.memory, pod, &memory);
        asks.extend(memory_asks(&memory, hints));
        asks
    }

    fn asks_of_pod(&self, world: &World) -> Vec<Ask> {
        let (machine, pod) = (self.machine, self.pod);
        let whole = managed_whole(machine, pod);
        let cpus = cpu_manager::exclusive_of_pod(machine, pod);
        let memory = memory_manager::exclusive_of_pod(machine, pod);
        let mut asks = self.asks(world, |name| device_manager::asked_by_pod(pod, name));
        let mut hints = cpu_manager::hints(machine, &world.cpus, pod, cpus);
        if whole && hints != Hints::Any && cpu_manager::pool_is_left(machine, pod).is_err() {
            hints = Hints::Some(Vec::new());
        }
        asks.push(cpu_ask(cpus, hints));
        let empty = whole
            && machine.settings.memory
            && pod.guaranteed
            && memory_manager::pool_is_left(machine, pod).is_err();
        let hints = if empty {
            vec![Hints::Some(Vec::new()); memory.len()]
        } else {
            memory_manager::hints(machine, &world.memory, pod, &memory)
        };
        asks.extend(memory_asks(&memory, hints));
        asks
    }

    /// What device plugins are asked for.
    fn asks(&self, world: &World, asked: impl Fn(&str) -> Option<u32>) -> Vec<Ask> {
        let resources = self.kinds.iter().zip(&world.devices);
        let ask = |(kinds, devices): (&Kinds, &Devices)| {
            let amount = asked(&kinds.name)?;
            Some(Ask {
                resource: Arc::clone(&kinds.name),
                amount: u64::from(amount),
                hints: kinds.hints(self.machine, devices, amount),
            })
        };
        resources.filter_map(ask).collect()
    }

    /// Devices, CPUs and memory for a container, in that order.
    fn allocate(
        &mut self,
        world: World,
        position: usize,
        container: &Container,
        affinity: Affinity,
        next: &mut Vec<World>,
    ) {
        let (machine, pod) = (self.machine, self.pod);
        for mut world in self.with_devices(world, position, container, affinity) {
            let given =
                cpu_manager::allocate(machine, &mut world.cpus, pod, position, container, affinity)
                    .and_then(|cpus| {
                        let memory = memory_manager::allocate(
                            machine,
                            &mut world.memory,
                            pod,
                            position,
                            container,
                            affinity,
                        )?;
                        Ok((cpus, memory))
                    });
            match given {
                Err(cause) => self.refuse(cause, Some(position), &[], &world),
                Ok((cpus, memory)) => {
                    if let Some(given) = world.given.last_mut() {
                        (given.cpus, given.memory) = (cpus, memory);
                    }
                    if next.iter().any(|other| other.same(&world)) {
                        continue;
                    }
                    if next.len() >= MAX_COURSES {
                        self.out.incomplete = true;
                    } else {
                        next.push(world);
                    }
                }
            }
        }
    }

    /// The worlds in which a container has its devices.
    fn with_devices(
        &mut self,
        mut world: World,
        position: usize,
        container: &Container,
        affinity: Affinity,
    ) -> Vec<World> {
        let ends = self.pod.ends_first(position);
        let asked: Vec<(usize, u32)> = self
            .kinds
            .iter()
            .enumerate()
            .filter_map(|(at, kinds)| Some((at, amount(&container.devices, &kinds.name)?)))
            .collect();
        let ways: Vec<(usize, Result<Vec<Choice>, Cause>)> = asked
            .into_iter()
            .map(|(at, n)| (at, self.kinds[at].choices(&world.devices[at], n, affinity)))
            .collect();
        // The kubelet takes resources in no order: each that fails may be the one it names.
        if ways.iter().any(|(_, ways)| ways.is_err()) {
            for cause in ways.into_iter().filter_map(|(_, ways)| ways.err()) {
                self.refuse(cause, Some(position), &[], &world);
            }
            return Vec::new();
        }
        world.given.push(Given::default());
        let mut worlds = vec![world];
        for (at, choices) in ways.into_iter().filter_map(|(at, ways)| Some((at, ways.ok()?))) {
            self.out.incomplete |= choices.len() * worlds.len() > MAX_COURSES;
            let pairs = choices.iter().flat_map(|c| worlds.iter().map(move |w| (w, c)));
            worlds = pairs
                .take(MAX_COURSES)
                .map(|(world, choice)| {
                    let mut world = world.clone();
                    world.devices[at].give(choice, ends);
                    if let Some(given) = world.given.last_mut() {
                        let kinds = &self.kinds[at];
                        given.devices.push((Arc::clone(&kinds.name), chosen(kinds, choice)));
                    }
                    world
                })
                .collect();
        }
        worlds
    }

    fn refuse(&mut self, cause: Cause, container: Option<usize>, asks: &[Ask], world: &World) {
        let known = self.out.refused.iter().any(|r| r.cause == cause && r.container == container);
        if known {
            return;
        }
        let clash = (!asks.is_empty())
            .then(|| Clash::of(self.machine, asks, &self.kinds, &world.cpus, &world.devices));
        self.out.refused.push(Refusal { cause, container, clash: clash.flatten() });
    }

    fn finish(mut self, worlds: Vec<World>) -> Prediction {
        let near = |kinds: &Kinds, counts: &Devices| {
            kinds.numa.iter().copied().zip(counts.free.iter().copied()).collect()
        };
        self.out.admitted = worlds
            .into_iter()
            .map(|world| Course {
                shared: world.cpus.shared,
                memory: world.memory.nodes,
                free: self.kinds.iter().zip(&world.devices).map(|(k, d)| near(k, d)).collect(),
                given: world.given,
            })
            .collect();
        self.out
    }
}

fn chosen(kinds: &Kinds, (reused, fresh): &Choice) -> Near {
    let counts = device_manager::plus(reused, fresh);
    kinds.numa.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect()
}

fn cpu_ask(cpus: usize, hints: Hints) -> Ask {
    Ask { resource: "cpu".into(), amount: cpus as u64, hints }
}

fn memory_asks(memory: &memory_manager::Request, hints: Vec<Hints>) -> Vec<Ask> {
    let asks = memory.iter().zip(hints);
    asks.map(|((name, bytes), hints)| Ask { resource: Arc::clone(name), amount: *bytes, hints })
        .collect()
}
