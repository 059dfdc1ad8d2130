//! From what an agent says of a node to what the predictor reads.

use std::sync::Arc;

use crate::hash::TextMap;
use crate::model::node_topology::{
    Device as Reported, DeviceState, DeviceVia, Kubelet, NodeTopology, Source, TopologyPolicy,
    TopologyScope,
};
use crate::numa::{
    Cpu, CpuLayout, CpuOptions, CpuSet, Device, DeviceResource, MAX_NODES, Machine, Mask, NumaNode,
    Policy, Scope, Settings,
};

/// Machines that are alike are one: predictions for one are predictions for all.
#[derive(Clone, Debug, Default)]
pub(in crate::cluster) struct Machines {
    known: TextMap<Arc<Machine>, ()>,
    /// How many there were when unused ones were last looked for.
    swept: usize,
}

impl Machines {
    /// The one that is like this.
    pub(in crate::cluster) fn shared(&mut self, machine: Machine) -> Arc<Machine> {
        if let Some((known, ())) = self.known.get_key_value(&machine) {
            return Arc::clone(known);
        }
        if self.known.len() >= 64 + 2 * self.swept {
            self.known.retain(|machine, ()| Arc::strong_count(machine) > 1);
            self.swept = self.known.len();
        }
        let machine = Arc::new(machine);
        self.known.insert(Arc::clone(&machine), ());
        machine
    }
}

/// The machine of a report; `None` if it says too little, or what no kubelet has.
pub(in crate::cluster) fn machine(topology: &NodeTopology) -> Option<Machine> {
    let kubelet = topology.kubelet.as_deref().filter(|_| topology.allocations_known)?;
    build(topology, kubelet)
}

fn build(topology: &NodeTopology, kubelet: &Kubelet) -> Option<Machine> {
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
    leave_out_empty(topology, &mut nodes);
    let reserved = reserved(topology, &layout);
    let devices = devices(topology);
    Some(Machine { settings: settings(kubelet), nodes, reserved, cpus: layout, devices })
}

/// Of very many NUMA nodes those that have nothing are left out (a GB200 sets some aside for
/// parts of GPUs): no set of nodes is better for having one of them.
fn leave_out_empty(topology: &NodeTopology, nodes: &mut Vec<NumaNode>) {
    if nodes.len() <= MAX_NODES {
        return;
    }
    let near = topology.devices.iter().fold(0, |near, device| near | device.numa);
    let numa = &topology.hardware.numa;
    nodes.retain(|node| {
        let cpus =
            numa.get(usize::from(node.id)).is_some_and(|own| own.cpus.iter().next().is_some());
        cpus || near & 1 << node.id != 0 || node.memory.iter().any(|(_, bytes)| *bytes > 0)
    });
}

/// What nobody has and nobody can get is kept for the system.
fn reserved(topology: &NodeTopology, layout: &CpuLayout) -> CpuSet {
    if topology.source == Source::ResourceTopology {
        // Who has what is not told: what is not free is in use.
        return CpuSet::default();
    }
    let held = topology.pods.iter().flat_map(|pod| pod.cpus.iter());
    let free = topology.free.iter().flat_map(|free| free.cpus.iter());
    let given: CpuSet = held.chain(free).filter_map(|cpu| u16::try_from(cpu).ok()).collect();
    layout.all().difference(&given)
}

/// Whether two reports are of one machine, so that `before`'s, which is this, need not be made
/// again.
pub(in crate::cluster) fn is_same(
    machine: &Machine,
    before: &NodeTopology,
    after: &NodeTopology,
) -> bool {
    let kubelet =
        |t: &NodeTopology| t.kubelet.as_ref().filter(|_| t.allocations_known).map(Arc::as_ptr);
    let memory = |t: &NodeTopology| -> Vec<_> {
        let rooms = t.free.iter().flat_map(|free| {
            let pages = free.hugepages.iter().map(|(size, room)| (*size, room.allocatable));
            pages.chain(free.memory.map(|room| (0, room.allocatable)))
        });
        rooms.collect()
    };
    Arc::ptr_eq(&before.hardware, &after.hardware)
        && kubelet(before) == kubelet(after)
        && memory(before) == memory(after)
        && devices_of(before).eq(devices_of(after))
        && reserved(after, &machine.cpus) == machine.reserved
}

fn devices_of(topology: &NodeTopology) -> impl Iterator<Item = (&Arc<str>, (Option<Mask>, bool))> {
    let devices = topology.devices.iter().filter(|device| device.via == DeviceVia::DevicePlugin);
    devices.map(|device| (&device.resource, kind_of(device)))
}

/// What a kubelet tells devices of a resource apart by: NUMA nodes and health.
pub(super) fn kind_of(device: &Reported) -> (Option<Mask>, bool) {
    let healthy = matches!(device.state, DeviceState::Free | DeviceState::Allocated);
    ((device.numa != 0).then_some(Mask(device.numa)), healthy)
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

/// Devices of plugins, by resource, without their ids. Which plugins have wishes is not told:
/// all may.
fn devices(topology: &NodeTopology) -> Vec<DeviceResource> {
    let mut found: Vec<DeviceResource> = Vec::new();
    for (resource, (numa, healthy)) in devices_of(topology) {
        if found.last().is_none_or(|last| last.name != *resource) {
            let name = Arc::clone(resource);
            found.push(DeviceResource { name, devices: Vec::new(), plugin_chooses: true });
        }
        if let Some(last) = found.last_mut() {
            last.devices.push(Device { id: Arc::default(), numa, healthy });
        }
    }
    for resource in &mut found {
        resource.devices.sort_by_key(|device| (device.numa, device.healthy));
    }
    found
}

/// The name of hugepages of a size, as in hugepages-2Mi.
pub(super) fn hugepages(bytes: u64) -> Arc<str> {
    let units = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = units.iter().find(|(size, _)| bytes >= *size && bytes.is_multiple_of(*size));
    match unit {
        Some((size, unit)) => format!("hugepages-{}{unit}", bytes / size).into(),
        None => format!("hugepages-{bytes}").into(),
    }
}
