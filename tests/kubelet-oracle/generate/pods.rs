//! Random pods.

use std::collections::BTreeMap;

use muster_core::numa;
use serde::Serialize;
use serde_json::{Value, json};

use super::machines::{HUGEPAGES, MachineSpec, RESOURCES};
use crate::rng::Rng;

const MIB: u64 = 1 << 20;

/// Amounts by resource: thousandths of CPUs, else units.
pub(crate) type Amounts = BTreeMap<&'static str, u64>;

/// A pod.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PodSpec {
    pub(crate) uid: String,
    pub(crate) whole: Option<Resources>,
    pub(crate) init: Vec<ContainerSpec>,
    pub(crate) containers: Vec<ContainerSpec>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Resources {
    pub(crate) requests: Amounts,
    pub(crate) limits: Amounts,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct ContainerSpec {
    pub(crate) sidecar: bool,
    pub(crate) resources: Resources,
}

pub(crate) fn pod(rng: &mut Rng, machine: &MachineSpec, number: usize) -> PodSpec {
    let class = rng.below(100);
    let many = if machine.nodes.len() > 5 { 1 } else { 3 };
    let one = |rng: &mut Rng, init: bool| ContainerSpec {
        sidecar: init && rng.chance(40),
        resources: resources(rng, machine, class),
    };
    let init = if rng.chance(30) { rng.between(1, 2) } else { 0 };
    let init: Vec<ContainerSpec> = (0..init).map(|_| one(rng, true)).collect();
    let containers: Vec<ContainerSpec> =
        (0..rng.between(1, many)).map(|_| one(rng, false)).collect();
    let mut pod = PodSpec { uid: format!("pod-{number}"), whole: None, init, containers };
    if rng.chance(if machine.pod_level { 40 } else { 6 }) {
        pod.whole = Some(whole(rng, &mut pod));
    }
    pod
}

fn resources(rng: &mut Rng, machine: &MachineSpec, class: usize) -> Resources {
    let mut requests = Amounts::new();
    let threads = machine.threads().count();
    let typical = threads.div_ceil(machine.nodes.len());
    if class < 85 {
        let cpus = if rng.chance(15) {
            rng.between(1, threads + 1)
        } else {
            rng.between(1, (typical + typical / 4).max(1))
        };
        let milli = if rng.chance(12) { cpus * 1000 - 500 } else { cpus * 1000 };
        requests.insert("cpu", milli as u64);
        let most = machine.nodes.iter().map(|node| node.memory / MIB).max().unwrap_or(64);
        let most = usize::try_from(most / 64).unwrap_or(1).max(1);
        let most = if rng.chance(20) { most * 2 } else { most / 2 + 1 };
        requests.insert("memory", rng.between(1, most) as u64 * 64 * MIB);
        for pages in machine.nodes.first().map(|node| node.hugepages.as_slice()).unwrap_or_default()
        {
            if let Some((name, size)) = HUGEPAGES.iter().find(|(_, size)| *size == pages.kib * 1024)
                && rng.chance(25)
            {
                let most = if *size > 1 << 28 { 2 } else { 200 };
                requests.insert(name, rng.between(0, most) as u64 * size);
            }
        }
    }
    let mut limits = requests.clone();
    // A class between: a request below its limit, or none.
    if class >= 65 && rng.chance(70) {
        requests.insert("cpu", 100);
        if rng.chance(50) {
            limits.remove("memory");
        }
    }
    for resource in RESOURCES {
        let known = machine.devices.iter().find(|devices| devices.resource == *resource);
        let (percent, most) = known.map_or((2, 2), |known| (45, known.devices.len()));
        if rng.chance(percent) {
            let count = if rng.chance(6) { 0 } else { rng.between(1, most.div_ceil(2) + 1) } as u64;
            requests.insert(resource, count);
            limits.insert(resource, count);
        }
    }
    Resources { requests, limits }
}

/// Resources of a pod as a whole: no less than its containers hold at one time, which
/// the API server sees to.
fn whole(rng: &mut Rng, pod: &mut PodSpec) -> Resources {
    if rng.chance(60) {
        for container in pod.init.iter_mut().chain(&mut pod.containers) {
            if rng.chance(50) {
                let resources = &mut container.resources;
                resources.requests.retain(|name, _| RESOURCES.contains(name));
                resources.limits.retain(|name, _| RESOURCES.contains(name));
            }
        }
    }
    let peak = |name: &str| {
        let amount = |c: &ContainerSpec| c.resources.requests.get(name).copied().unwrap_or(0);
        let (mut sidecars, mut peak) = (0, 0);
        for container in &pod.init {
            if container.sidecar {
                sidecars += amount(container);
            } else {
                peak = peak.max(sidecars + amount(container));
            }
        }
        peak.max(sidecars + pod.containers.iter().map(amount).sum::<u64>())
    };
    let mut requests = Amounts::new();
    let cpus = peak("cpu").div_ceil(1000) + [0, 0, 0, 1, 2][rng.below(5)];
    let half = if rng.chance(10) { 500 } else { 0 };
    requests.insert("cpu", cpus.max(1) * 1000 + half);
    requests.insert("memory", (peak("memory") + rng.below(3) as u64 * 64 * MIB).max(64 * MIB));
    for (name, size) in HUGEPAGES {
        let asked = peak(name);
        if asked > 0 {
            requests.insert(name, asked + rng.below(2) as u64 * size);
        }
    }
    let mut limits = requests.clone();
    if rng.chance(15) {
        limits.insert("cpu", (cpus + 2) * 1000);
    }
    Resources { requests, limits }
}

/// Kubernetes' classes of pods, as far as they matter here.
#[derive(PartialEq)]
enum Class {
    Nothing,
    Guaranteed,
    Between,
}

impl Resources {
    fn class(&self) -> Class {
        if self.requests.is_empty() && self.limits.is_empty() {
            return Class::Nothing;
        }
        let of = |name: &str| {
            let amount = |list: &Amounts| list.get(name).copied().unwrap_or(0);
            match (amount(&self.requests), amount(&self.limits)) {
                (0, 0) => Class::Nothing,
                (request, limit) if request == limit => Class::Guaranteed,
                _ => Class::Between,
            }
        };
        let (cpu, memory) = (of("cpu"), of("memory"));
        if cpu == memory { cpu } else { Class::Between }
    }

    fn object(&self) -> Value {
        let list = |amounts: &Amounts| -> Value {
            amounts
                .iter()
                .map(|(name, amount)| {
                    let unit = if *name == "cpu" { "m" } else { "" };
                    ((*name).to_owned(), Value::String(format!("{amount}{unit}")))
                })
                .collect()
        };
        json!({ "requests": list(&self.requests), "limits": list(&self.limits) })
    }

    /// CPUs, if they are a whole number.
    fn cpus(&self) -> u32 {
        let milli = self.requests.get("cpu").copied().unwrap_or(0);
        let whole = milli.is_multiple_of(1000).then_some(milli / 1000);
        whole.and_then(|cpus| u32::try_from(cpus).ok()).unwrap_or(0)
    }

    fn memory(&self) -> Vec<(std::sync::Arc<str>, u64)> {
        let is_memory = |name: &str| name == "memory" || name.starts_with("hugepages-");
        let amounts = self.requests.iter().filter(|(name, _)| is_memory(name));
        amounts.map(|(name, bytes)| ((*name).into(), *bytes)).collect()
    }
}

impl PodSpec {
    /// The pod as the API server has it.
    pub(crate) fn object(&self) -> Value {
        let containers = |list: &[ContainerSpec], kind: &str| -> Vec<Value> {
            list.iter()
                .enumerate()
                .map(|(number, container)| {
                    let mut object = json!({
                        "name": format!("{kind}-{number}"),
                        "resources": container.resources.object(),
                    });
                    if container.sidecar {
                        object["restartPolicy"] = "Always".into();
                    }
                    object
                })
                .collect()
        };
        let mut spec = json!({
            "initContainers": containers(&self.init, "init"),
            "containers": containers(&self.containers, "main"),
        });
        if let Some(whole) = &self.whole {
            spec["resources"] = whole.object();
        }
        json!({ "metadata": { "name": self.uid, "uid": self.uid }, "spec": spec })
    }

    /// Names of containers, in the predictor's order.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        let init = (0..self.init.len()).map(|number| format!("init-{number}"));
        init.chain((0..self.containers.len()).map(|number| format!("main-{number}")))
    }

    /// The pod as the predictor reads it.
    pub(crate) fn model(&self) -> numa::Pod {
        let container = |spec: &ContainerSpec| {
            let resources = &spec.resources;
            let devices = resources.limits.iter().filter(|(name, _)| RESOURCES.contains(name));
            numa::Container {
                sidecar: spec.sidecar,
                cpus: resources.cpus(),
                equal: resources.class() == Class::Guaranteed,
                memory: resources.memory(),
                devices: devices
                    .map(|(name, n)| ((*name).into(), u32::try_from(*n).unwrap_or(u32::MAX)))
                    .collect(),
            }
        };
        let all = || self.init.iter().chain(&self.containers);
        let guaranteed = match &self.whole {
            Some(whole) => whole.class() == Class::Guaranteed,
            None => all().all(|c| c.resources.class() == Class::Guaranteed),
        };
        let mut whole = self
            .whole
            .as_ref()
            .map(|whole| numa::WholePod { cpus: whole.cpus(), memory: whole.memory() });
        if let Some(whole) = &mut whole {
            whole.memory.retain(|(_, bytes)| *bytes > 0);
        }
        numa::Pod {
            guaranteed,
            whole,
            init: self.init.iter().map(container).collect(),
            containers: self.containers.iter().map(container).collect(),
        }
    }
}
