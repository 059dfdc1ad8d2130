//! GPUs of model nodes: what a device manager gives to pods, and what an agent reports of it.
//!
//! Owns who has which GPU. What is given is what NVIDIA's plugin prefers of what the kubelet's
//! policy leaves: all that is free, or one side of it, or nothing. A report is written as soon as
//! anything has changed. Must never ask the scheduler what it expects: that is compared with what
//! was given, and counted; nor share its reading of kubelets.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::{Pod, Time};
use muster_api::muster::annotations::PREDICTED_DEVICES;
use muster_api::muster::node_topology as api;
use muster_core::io::Tick;

use super::allocator::best_effort;
use super::api::PodId;
use crate::rng::Rng;
use crate::scenario::{GPU, Machine};

/// How many pods got GPUs, and how good the sets were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuCounts {
    /// By number of GPUs: pods, and those of them whose set could not have been better.
    pub served: BTreeMap<usize, (u64, u64)>,
    /// Pods that got what the scheduler expected.
    pub expected: u64,
    /// Pods that got other GPUs.
    pub unexpected: u64,
    /// Pods that kubelets refused because of where free GPUs were.
    pub refused: u64,
}

/// All machines.
#[derive(Debug)]
pub(crate) struct Machines {
    rng: Rng,
    nodes: BTreeMap<String, Node>,
    /// Where pods are that have GPUs.
    holders: BTreeMap<PodId, String>,
    changed: BTreeSet<String>,
    pub(crate) counts: GpuCounts,
}

#[derive(Debug)]
struct Node {
    machine: Machine,
    /// By GPU: the pod that has it.
    held: Vec<Option<(PodId, api::PodRef)>>,
    report: api::NodeTopology,
}

impl Machines {
    pub(crate) fn new(rng: &Rng) -> Self {
        Self {
            rng: rng.split("device plugin", 0),
            nodes: BTreeMap::new(),
            holders: BTreeMap::new(),
            changed: BTreeSet::new(),
            counts: GpuCounts::default(),
        }
    }

    /// A node joins, or joins again with nothing on it.
    pub(crate) fn join(&mut self, name: &str, machine: Machine) {
        let held = vec![None; machine.gpus()];
        self.nodes.insert(name.to_owned(), Node { machine, held, report: report(name, machine) });
        self.changed.insert(name.to_owned());
    }

    /// Nodes are back; nothing is on them.
    pub(crate) fn restore(&mut self, names: &[String]) {
        for name in names {
            if let Some(node) = self.nodes.get_mut(name) {
                node.held.iter_mut().for_each(|held| *held = None);
                self.holders.retain(|_, on| on != name);
                self.changed.insert(name.clone());
            }
        }
    }

    /// Whether a node's GPUs are known one by one.
    pub(crate) fn has(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// A pod is admitted: it gets its GPUs. Else why it is refused, as a kubelet says it.
    pub(crate) fn admit(
        &mut self,
        node: &str,
        id: PodId,
        pod: &Pod,
        count: usize,
    ) -> Result<(), &'static str> {
        let Some(own) = self.nodes.get_mut(node).filter(|_| count > 0) else {
            return Ok(());
        };
        let free: Vec<usize> = (0..own.held.len()).filter(|gpu| own.held[*gpu].is_none()).collect();
        if free.len() < count {
            return Err("UnexpectedAdmissionError");
        }
        let Some(free) = own.machine.offers(&free, count) else {
            self.counts.refused += 1;
            return Err("TopologyAffinityError");
        };
        let mut rng = self.rng.split("choice", u64::from(id.0));
        let pair = |a: usize, b: usize| if side(a) == side(b) { 20 } else { 10 };
        let given = best_effort(pair, &free, count, &mut rng);
        let sides: BTreeSet<usize> = given.iter().map(|gpu| side(*gpu)).collect();
        let (pods, aligned) = self.counts.served.entry(count).or_default();
        *pods += 1;
        *aligned += u64::from(sides.len() == count.div_ceil(own.held.len() / 2));
        let meta = &pod.metadata;
        let holder = api::PodRef {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: Some(meta.uid.clone()),
        };
        for gpu in &given {
            own.held[*gpu] = Some((id, holder.clone()));
        }
        if let Some(text) = meta.annotations.get(PREDICTED_DEVICES) {
            let expected: BTreeMap<String, BTreeSet<String>> =
                serde_json::from_str(text).unwrap_or_default();
            let ids: BTreeSet<String> = given.iter().map(|gpu| uuid(node, *gpu)).collect();
            let same = expected.get(GPU) == Some(&ids);
            *(if same { &mut self.counts.expected } else { &mut self.counts.unexpected }) += 1;
        }
        self.holders.insert(id, node.to_owned());
        self.changed.insert(node.to_owned());
        Ok(())
    }

    /// A pod has ended, or is gone.
    pub(crate) fn release(&mut self, id: PodId) {
        let Some(name) = self.holders.remove(&id) else { return };
        if let Some(node) = self.nodes.get_mut(&name) {
            let own = |held: &&mut Option<(PodId, api::PodRef)>| {
                held.as_ref().is_some_and(|(holder, _)| *holder == id)
            };
            node.held.iter_mut().filter(own).for_each(|held| *held = None);
            self.changed.insert(name);
        }
    }

    /// Reports of what has changed.
    pub(crate) fn take_reports(&mut self, now: Tick) -> Vec<api::NodeTopology> {
        let changed = std::mem::take(&mut self.changed);
        changed
            .iter()
            .filter_map(|name| Some(self.nodes.get_mut(name)?.observe(name, now)))
            .collect()
    }
}

impl Machine {
    /// The GPUs out of which its kubelet gives some, of those that are free: of one side, the
    /// first that has enough, if they fit on one; none if the policy refuses.
    fn offers(self, free: &[usize], count: usize) -> Option<Vec<usize>> {
        let on = |own: usize| free.iter().copied().filter(move |gpu| side(*gpu) == own);
        let fits_one = count <= self.gpus() / 2;
        match self {
            Self::HgxSingleNumaNode | Self::HgxRestricted if fits_one => {
                let side = (0..2).find(|own| on(*own).count() >= count)?;
                Some(on(side).collect())
            }
            Self::Hgx | Self::HgxRestricted => Some(free.to_vec()),
            Self::HgxSingleNumaNode => None,
        }
    }
}

impl Node {
    fn observe(&mut self, name: &str, now: Tick) -> api::NodeTopology {
        let device = |(gpu, held): (usize, &Option<(PodId, api::PodRef)>)| api::Device {
            resource: GPU.to_owned(),
            id: uuid(name, gpu),
            numa: vec![side(gpu) as u32],
            state: match held {
                Some(_) => api::DeviceState::Allocated,
                None => api::DeviceState::Free,
            },
            via: api::DeviceVia::DevicePlugin,
            pod: held.as_ref().map(|(_, pod)| pod.clone()),
            container: None,
        };
        debug_assert_eq!(self.held.len(), self.machine.gpus());
        let status = &mut self.report.status;
        status.devices = self.held.iter().enumerate().map(device).collect();
        status.sequence += 1;
        status.observed_at = Some(Time(now.0));
        self.report.clone()
    }
}

/// The socket that a GPU is beside.
const fn side(gpu: usize) -> usize {
    gpu / 4
}

fn uuid(node: &str, gpu: usize) -> String {
    format!("GPU-{node}-{gpu}")
}

fn settings(machine: Machine) -> api::KubeletSettings {
    let policy = match machine {
        Machine::Hgx => api::TopologyPolicy::None,
        Machine::HgxRestricted => api::TopologyPolicy::Restricted,
        Machine::HgxSingleNumaNode => api::TopologyPolicy::SingleNumaNode,
    };
    let topology_manager = api::TopologyManager { policy, ..api::TopologyManager::default() };
    api::KubeletSettings {
        version: "v1.37.1".to_owned(),
        topology_manager,
        ..api::KubeletSettings::default()
    }
}

/// What the agent says of a machine that nobody uses.
fn report(node: &str, machine: Machine) -> api::NodeTopology {
    let numa = |at: u32| api::NumaNode {
        id: at,
        socket: Some(at),
        cpus: format!("{}-{}", at * 48, at * 48 + 47),
        distances: if at == 0 { vec![10, 21] } else { vec![21, 10] },
        ..api::NumaNode::default()
    };
    let gpu = |at: usize| api::Gpu {
        uuid: Some(uuid(node, at)),
        index: Some(at as u32),
        pci: format!("0000:{:02x}:00.0", 16 + at),
        numa: Some(side(at) as u32),
        nvlinks: Some(api::NvLinks { total: 18, active: 18, to_switch: 18, ..Default::default() }),
        ..api::Gpu::default()
    };
    let link = |(a, b): (usize, usize)| api::GpuLink {
        a: a as u32,
        b: b as u32,
        path: if side(a) == side(b) { api::PciPath::NODE } else { api::PciPath::SYS },
        nvlinks: 18,
        megabytes_per_second: 370_800,
        ..api::GpuLink::default()
    };
    let pairs = (0..machine.gpus()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let hardware = api::Hardware {
        numa: vec![numa(0), numa(1)],
        gpus: (0..machine.gpus()).map(gpu).collect(),
        links: pairs.map(link).collect(),
        ..api::Hardware::default()
    };
    let mut report = api::NodeTopology {
        hardware: Some(hardware.sealed()),
        kubelet: Some(settings(machine)),
        ..api::NodeTopology::default()
    };
    node.clone_into(&mut report.metadata.name);
    report.status.pod_set = Some(api::PodSet::default());
    report
}
