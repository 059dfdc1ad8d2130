//! From what an agent says of a node to what the predictor reads.
//!
//! Pods are reconciled by UID: what pods have that are not on the node any more counts as
//! free (the kubelet forgets them before it admits another), and pods that are on the node and
//! that the agent has not seen are expected.

use std::sync::Arc;

use crate::cluster::NodeView;
use crate::model::node_topology::{
    DeviceState, DeviceVia, HeldMemory, Kubelet, NodeTopology, NumaMask, Source, TopologyPolicy,
    TopologyScope,
};
use crate::numa::{
    Cpu, CpuLayout, CpuOptions, CpuSet, Device, DeviceResource, Machine, Mask, NodeMemory,
    NumaNode, Pod, Policy, Scope, Settings, Usage,
};

/// A node, what is in use there, and who is on the way.
pub(super) struct Inside {
    pub(super) machine: Machine,
    pub(super) usage: Usage,
    /// Pods of ours that the agent has not seen.
    pub(super) expected: Vec<Pod>,
    /// Pods of others that ask for devices and that the agent has not seen: of those it is not
    /// known what the kubelet will give them.
    pub(super) strangers: usize,
}

/// What is known of a node; `None` if it is too little to predict anything.
pub(super) fn inside(node: NodeView<'_>) -> Option<Inside> {
    let topology = node.topology()?;
    let kubelet = topology.kubelet.as_deref()?;
    // What another agent reports has no settings, no ids and no pods.
    if topology.source != Source::Agent || !topology.allocations_known {
        return None;
    }
    let cluster = node.cluster();
    let here: Vec<_> = node.info().pods.iter().filter_map(|pod| cluster.pod(*pod)).collect();
    let gone = |uid: &str| !uid.is_empty() && !here.iter().any(|pod| *pod.key.uid == *uid);
    let gone: Vec<bool> = topology.pods.iter().map(|pod| gone(&pod.uid)).collect();
    let machine = machine(topology, kubelet)?;
    let usage = usage(topology, &machine, &gone);
    let mut inside = Inside { machine, usage, expected: Vec::new(), strangers: 0 };
    for pod in here.iter().filter(|pod| topology.pod(&pod.key.uid).is_none()) {
        let shape = cluster.shape(pod.shape);
        match super::pod::of(shape) {
            Some(pod) if holds(&inside.machine, &pod) => inside.expected.push(pod),
            Some(_) => {}
            None if pod.ours => {}
            None => {
                let asks = |device: &DeviceResource| cluster.request_of(shape, &device.name) > 0;
                inside.strangers += usize::from(inside.machine.devices.iter().any(asks));
            }
        }
    }
    Some(inside)
}

/// Whether a pod with resources of its own is decided by what a scheduler does not see: the
/// limits of its containers.
pub(super) fn not_judged(machine: &Machine, pod: &Pod) -> bool {
    machine.settings.pod_level && pod.whole.is_some()
}

/// Whether a pod would have anything to itself on a machine: if not, no agent will ever
/// report it.
fn holds(machine: &Machine, pod: &Pod) -> bool {
    let settings = &machine.settings;
    let served = |name: &str| machine.devices.iter().any(|device| &*device.name == name);
    let device = |name: &Arc<str>, count: u32| count > 0 && served(name);
    pod.all().any(|container| {
        (settings.cpu.is_some() && pod.guaranteed && container.cpus > 0)
            || (settings.memory && pod.guaranteed)
            || container.devices.iter().any(|(name, count)| device(name, *count))
    })
}

fn machine(topology: &NodeTopology, kubelet: &Kubelet) -> Option<Machine> {
    let hardware = &topology.hardware;
    let mut cpus = Vec::new();
    let mut nodes = Vec::new();
    let mut caches = 0_u16;
    for (at, numa) in (0_u8..).zip(&hardware.numa) {
        // A node without a number of its socket is a socket of its own.
        let socket = numa.socket.unwrap_or(1 << 15 | u32::from(at));
        let socket = u16::try_from(socket).ok()?;
        for cpu in numa.cpus.iter() {
            let cache = numa.caches.iter().position(|cache| cache.contains(cpu));
            let cache = cache.and_then(|cache| u16::try_from(cache).ok());
            cpus.push(Cpu {
                id: u16::try_from(cpu).ok()?,
                core: u16::try_from(hardware.core_of(cpu)).ok()?,
                socket,
                numa: at,
                uncore: cache.map_or(socket, |cache| caches + cache),
            });
        }
        caches = caches.checked_add(u16::try_from(numa.caches.len()).ok()?)?;
        let free = topology.free.get(usize::from(at));
        let room = free.and_then(|free| free.memory).unwrap_or_default();
        let mut memory = vec![(Arc::from("memory"), room.allocatable)];
        let pages = free.map(|free| free.hugepages.as_slice()).unwrap_or_default();
        memory.extend(pages.iter().map(|(size, room)| (hugepages(*size), room.allocatable)));
        let distances = numa.distances.iter().map(|distance| u64::from(*distance)).collect();
        nodes.push(NumaNode { id: at, distances, memory });
    }
    let layout = CpuLayout::new(&cpus);
    let mut machine = Machine {
        settings: settings(kubelet),
        nodes,
        reserved: CpuSet::default(),
        cpus: layout,
        devices: devices(topology),
    };
    // What nobody has and nobody can get is kept for the system.
    let held = topology.pods.iter().flat_map(|pod| pod.cpus.iter());
    let free = topology.free.iter().flat_map(|free| free.cpus.iter());
    let known: CpuSet = held.chain(free).filter_map(|cpu| u16::try_from(cpu).ok()).collect();
    machine.reserved = machine.cpus.all().difference(&known);
    Some(machine)
}

fn settings(kubelet: &Kubelet) -> Settings {
    let on = |option: &str| kubelet.cpu_options.iter().any(|own| **own == *option);
    let options = CpuOptions {
        full_cores_only: on("full-pcpus-only"),
        across_numa: on("distribute-cpus-across-numa"),
        align_by_socket: on("align-by-socket"),
        across_cores: on("distribute-cpus-across-cores"),
        align_by_uncore: on("prefer-align-cpus-by-uncorecache"),
    };
    Settings {
        policy: match kubelet.policy {
            TopologyPolicy::None => Policy::None,
            TopologyPolicy::BestEffort => Policy::BestEffort,
            TopologyPolicy::Restricted => Policy::Restricted,
            TopologyPolicy::SingleNumaNode => Policy::SingleNumaNode,
        },
        scope: match kubelet.scope {
            TopologyScope::Container => Scope::Container,
            TopologyScope::Pod => Scope::Pod,
        },
        prefer_closest: kubelet.prefer_closest,
        cpu: kubelet.static_cpus.then_some(options),
        memory: kubelet.static_memory,
        pod_level: kubelet
            .feature_gates
            .iter()
            .any(|gate| **gate == *"PodLevelResourceManagers=true"),
        // A version that is not known is taken for a new one.
        device_nodes_only: kubelet.version == (0, 0) || kubelet.version >= (1, 36),
    }
}

/// Devices of plugins, by resource. Which plugins have wishes is not told: all may.
fn devices(topology: &NodeTopology) -> Vec<DeviceResource> {
    let mut found: Vec<DeviceResource> = Vec::new();
    for device in topology.devices.iter().filter(|device| device.via == DeviceVia::DevicePlugin) {
        if found.last().is_none_or(|last| last.name != device.resource) {
            found.push(DeviceResource {
                name: Arc::clone(&device.resource),
                devices: Vec::new(),
                plugin_chooses: true,
            });
        }
        let healthy = matches!(device.state, DeviceState::Free | DeviceState::Allocated);
        let numa = (device.numa != 0).then_some(Mask(device.numa));
        if let Some(last) = found.last_mut() {
            last.devices.push(Device { id: Arc::clone(&device.id), numa, healthy });
        }
    }
    found
}

/// What is in use without the pods that are gone.
fn usage(topology: &NodeTopology, machine: &Machine, gone: &[bool]) -> Usage {
    let mut usage = machine.unused();
    let stay = || topology.pods.iter().zip(gone).filter(|(_, gone)| !**gone).map(|(pod, _)| pod);
    let held: CpuSet =
        stay().flat_map(|pod| pod.cpus.iter()).filter_map(|cpu| u16::try_from(cpu).ok()).collect();
    usage.shared = usage.shared.difference(&held);
    for block in stay().flat_map(|pod| &pod.memory) {
        charge(machine, &mut usage.memory, block);
    }
    let devices = topology.devices.iter().filter(|device| device.via == DeviceVia::DevicePlugin);
    let held = devices.map(|device| match device.pod {
        Some(pod) => !gone.get(usize::from(pod)).copied().unwrap_or(false),
        None => device.state == DeviceState::Allocated,
    });
    for (taken, held) in usage.taken.iter_mut().flatten().zip(held) {
        *taken = held;
    }
    usage
}

/// Takes a block from its nodes in ascending order, as the Memory Manager does.
fn charge(machine: &Machine, memory: &mut [NodeMemory], block: &HeldMemory) {
    let name =
        if block.page_bytes == 0 { Arc::from("memory") } else { hugepages(block.page_bytes) };
    let mut rest = block.bytes;
    for (at, (node, state)) in machine.nodes.iter().zip(memory).enumerate() {
        if block.numa & (1 as NumaMask) << at == 0 {
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

/// The name of hugepages of a size, as in hugepages-2Mi.
fn hugepages(bytes: u64) -> Arc<str> {
    let units = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = units.iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size));
    match unit {
        Some((size, unit)) => format!("hugepages-{}{unit}", bytes / size).into(),
        None => format!("hugepages-{bytes}").into(),
    }
}
