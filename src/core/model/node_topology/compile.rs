//! From the agent's object to what decisions read.
//!
//! An object that contradicts itself is refused whole, with the field that does: half an object
//! would be believed where it is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::Quantity;
use muster_api::muster::node_topology as wire;
use muster_api::muster::node_topology::{PortState, node_condition};

use super::{
    CpuSet, Device, Gpu, GpuLink, GpuState, HeldMemory, Kubelet, MAX_CPU, Mig, MigDevice,
    MigProfile, Nic, NodeHardware, NodeTopology, NumaFree, NumaMask, NumaNode, PodHolding, Room,
    Source,
};

/// With how many NUMA nodes the Topology Manager works unless told otherwise.
pub(super) const DEFAULT_MAX_NUMA_NODES: u32 = 8;

impl NodeTopology {
    /// Compiles the agent's object. Parts that are as they were before are shared with the
    /// earlier version, and hardware with the same hash is not looked at.
    ///
    /// # Errors
    /// What is wrong with which field.
    pub fn compile(wire: &wire::NodeTopology, before: Option<&Self>) -> Result<Self, String> {
        let hardware = match (&wire.hardware, before) {
            (Some(hardware), Some(before))
                if !hardware.hash.is_empty() && *before.hardware.hash == *hardware.hash =>
            {
                Arc::clone(&before.hardware)
            }
            (Some(hardware), _) => Arc::new(compile_hardware(hardware)?),
            (None, _) => Arc::default(),
        };
        let kubelet = wire.kubelet.as_ref().map(|k| compile_kubelet(k, &hardware)).transpose()?;
        let kubelet = kubelet.map(|new| {
            let known = before.and_then(|before| before.kubelet.as_ref());
            known.filter(|known| ***known == new).map_or_else(|| Arc::new(new), Arc::clone)
        });
        let status = &wire.status;
        let (pods, keys) = compile_pods(status, &hardware)?;
        let positions: BTreeMap<_, _> =
            keys.iter().enumerate().map(|(at, key)| (*key, at)).collect();
        let gpus = status.gpus.iter().take(hardware.gpus.len()).map(compile_gpu_state);
        let mut topology = Self {
            source: Source::Agent,
            allocations_known: status.pod_set.is_some()
                || status.is_true(node_condition::POD_RESOURCES_AVAILABLE),
            free: compile_free(&status.numa, &hardware)?,
            devices: compile_devices(&status.devices, &hardware, &positions)?,
            pods,
            gpus: gpus.collect(),
            hardware,
            kubelet,
        };
        topology.gpus.resize_with(topology.hardware.gpus.len(), GpuState::default);
        Ok(topology)
    }
}

fn compile_hardware(wire: &wire::Hardware) -> Result<NodeHardware, String> {
    if wire.numa.len() > wire::MAX_NUMA_NODES || wire.gpus.len() > wire::MAX_GPUS {
        return Err("hardware: more NUMA nodes or GPUs than an object may have".to_owned());
    }
    let mut hardware = NodeHardware {
        hash: wire.hash.as_str().into(),
        threads_per_core: 1,
        nvlink_domain: wire.domain.as_ref().map(|domain| domain.clique.as_str().into()),
        ..NodeHardware::default()
    };
    for node in &wire.numa {
        hardware.numa.push(compile_numa(node)?);
        read_cores(node, &mut hardware)?;
    }
    if !hardware.numa.windows(2).all(|pair| pair[0].id < pair[1].id) {
        return Err("hardware.numa: is not sorted by id, or has one twice".to_owned());
    }
    let mut switches: Vec<&str> = Vec::new();
    for gpu in &wire.gpus {
        let switch = number(&mut switches, gpu.switch.as_deref());
        let gpu = compile_gpu(gpu, switch, &hardware);
        hardware.gpus.push(gpu);
    }
    for nic in &wire.nics {
        let switch = number(&mut switches, nic.switch.as_deref());
        let nic = compile_nic(nic, switch, &hardware);
        hardware.nics.push(nic);
    }
    hardware.links = compile_links(&wire.links, hardware.gpus.len())?;
    hardware.by_uuid = uuids(&hardware.gpus);
    Ok(hardware)
}

fn compile_numa(wire: &wire::NumaNode) -> Result<NumaNode, String> {
    let cpus = |field: &str, text: &str| {
        CpuSet::parse(text).map_err(|error| format!("hardware.numa {}: {field}: {error}", wire.id))
    };
    let caches = wire.caches.iter().map(|cache| cpus("caches", &cache.cpus));
    let sum = |pages: &wire::Hugepages| pages.page_bytes.saturating_mul(pages.count);
    Ok(NumaNode {
        id: wire.id,
        kind: wire.kind,
        socket: wire.socket,
        cpus: cpus("cpus", &wire.cpus)?,
        caches: caches.collect::<Result<_, _>>()?,
        memory_bytes: wire.memory_bytes,
        hugepages: wire.hugepages.iter().map(|pages| (pages.page_bytes, sum(pages))).collect(),
        distances: wire.distances.iter().map(|d| u16::try_from(*d).unwrap_or(u16::MAX)).collect(),
    })
}

/// Notes which CPUs of a NUMA node share a core.
fn read_cores(wire: &wire::NumaNode, hardware: &mut NodeHardware) -> Result<(), String> {
    for text in &wire.cores {
        let core = CpuSet::parse(text)
            .map_err(|error| format!("hardware.numa {}: cores: {error}", wire.id))?;
        let Some(first) = core.iter().next() else { continue };
        hardware.threads_per_core = hardware.threads_per_core.max(core.len());
        for cpu in core.iter() {
            let at = cpu as usize;
            if hardware.core_of.len() <= at {
                // A CPU has a core for itself unless told otherwise; both are at most MAX_CPU.
                const { assert!(MAX_CPU <= u16::MAX as u32) };
                hardware.core_of.extend(hardware.core_of.len() as u16..=at as u16);
            }
            hardware.core_of[at] = first as u16;
        }
    }
    Ok(())
}

/// The number of a switch, by address.
fn number<'a>(known: &mut Vec<&'a str>, pci: Option<&'a str>) -> Option<u16> {
    let pci = pci?;
    let at = known.iter().position(|known| *known == pci).unwrap_or_else(|| {
        known.push(pci);
        known.len() - 1
    });
    u16::try_from(at).ok()
}

fn compile_gpu(wire: &wire::Gpu, switch: Option<u16>, hardware: &NodeHardware) -> Gpu {
    let links = wire.nvlinks.unwrap_or_default();
    let clique = wire.fabric.as_ref().and_then(|fabric| {
        let cluster = fabric.cluster_uuid.as_ref()?;
        Some(format!("{cluster}.{}", fabric.clique).into())
    });
    let mig = wire.mig.as_ref().filter(|mig| mig.enabled).map(|mig| Mig {
        devices: mig.devices.iter().map(compile_mig_device).collect(),
        profiles: mig.profiles.iter().map(compile_mig_profile).collect(),
    });
    Gpu {
        uuid: wire.uuid.as_deref().map(Arc::from),
        minor: wire.minor,
        pci: wire.pci.as_str().into(),
        model: wire.model.as_deref().map(Arc::from),
        memory_bytes: wire.memory_bytes,
        numa: wire.numa.and_then(|id| hardware.position(id)),
        switch,
        nvlinks: (small(links.total), small(links.active)),
        clique,
        mig,
    }
}

fn compile_mig_device(wire: &wire::MigDevice) -> MigDevice {
    MigDevice {
        uuid: wire.uuid.as_str().into(),
        profile: wire.profile.as_str().into(),
        placement: wire.placement.map(|at| (small(at.start), small(at.size))),
    }
}

fn compile_mig_profile(wire: &wire::MigProfile) -> MigProfile {
    MigProfile {
        name: wire.name.as_str().into(),
        size: small(wire.size),
        starts: wire.starts.iter().copied().map(small).collect(),
    }
}

fn compile_nic(wire: &wire::Nic, switch: Option<u16>, hardware: &NodeHardware) -> Nic {
    Nic {
        name: wire.name.as_str().into(),
        numa: wire.numa.and_then(|id| hardware.position(id)),
        switch,
        rdma: wire.rdma,
        active: wire.state == PortState::Active,
        gigabits_per_second: wire.gigabits_per_second,
        gpu_paths: wire.gpu_paths.iter().copied().take(hardware.gpus.len()).collect(),
    }
}

fn compile_links(wire: &[wire::GpuLink], gpus: usize) -> Result<Vec<GpuLink>, String> {
    let mut links = vec![GpuLink::default(); gpus * gpus];
    for link in wire {
        let (a, b) = (link.a as usize, link.b as usize);
        if a >= gpus || b >= gpus || a == b {
            return Err(format!("hardware.links: there is no pair of GPUs {a} and {b}"));
        }
        let own = GpuLink {
            path: link.path,
            nvlinks: small(link.nvlinks),
            megabytes_per_second: link.megabytes_per_second,
        };
        links[a * gpus + b] = own;
        links[b * gpus + a] = own;
    }
    Ok(links)
}

/// Which GPU each id names. Of two GPUs with one id the first counts.
fn uuids(gpus: &[Gpu]) -> Vec<(Arc<str>, u8)> {
    let mut uuids = Vec::new();
    for (at, gpu) in gpus.iter().enumerate() {
        let parts = gpu.mig.iter().flat_map(|mig| &mig.devices).map(|part| &part.uuid);
        // At most MAX_GPUS.
        uuids.extend(gpu.uuid.iter().chain(parts).map(|uuid| (Arc::clone(uuid), at as u8)));
    }
    uuids.sort_unstable();
    uuids.dedup_by(|next, first| next.0 == first.0);
    uuids
}

fn compile_kubelet(
    wire: &wire::KubeletSettings,
    hardware: &NodeHardware,
) -> Result<Kubelet, String> {
    let manager = &wire.topology_manager;
    let reserved = wire.cpu_manager.reserved_cpus.as_deref().unwrap_or_default();
    let reserved_cpus = CpuSet::parse(reserved)
        .map_err(|error| format!("kubelet.cpuManager.reservedCpus: {error}"))?;
    let mut reserved_memory = Vec::new();
    for entry in &wire.memory_manager.reserved {
        let page = page_size(&entry.resource)
            .ok_or_else(|| unknown("kubelet.memoryManager.reserved", &entry.resource))?;
        if let Some(at) = hardware.position(entry.numa) {
            reserved_memory.push((at, page, entry.bytes));
        }
    }
    reserved_memory.sort_unstable();
    Ok(Kubelet {
        confidence: wire.confidence,
        version: version(&wire.version),
        policy: manager.policy,
        scope: manager.scope,
        prefer_closest: manager.prefer_closest_numa_nodes,
        max_numa_nodes: manager.max_allowable_numa_nodes.unwrap_or(DEFAULT_MAX_NUMA_NODES),
        static_cpus: wire.cpu_manager.is_static,
        cpu_options: sorted(&wire.cpu_manager.options),
        reserved_cpus,
        static_memory: wire.memory_manager.is_static,
        reserved_memory,
        feature_gates: sorted(&wire.feature_gates),
    })
}

fn sorted(texts: &[String]) -> Vec<Box<str>> {
    let mut sorted: Vec<Box<str>> = texts.iter().map(|text| text.as_str().into()).collect();
    sorted.sort_unstable();
    sorted
}

/// Major and minor of a version such as v1.36.2-gke.1; 0.0 if it is none.
pub(super) fn version(text: &str) -> (u32, u32) {
    let mut parts = text.strip_prefix('v').unwrap_or(text).split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => (0, 0),
    }
}

/// The size of the pages that a resource is made of: 0 for `memory`; none if it is no memory.
pub(super) fn page_size(resource: &str) -> Option<u64> {
    if resource == "memory" {
        return Some(0);
    }
    let size = Quantity::parse(resource.strip_prefix("hugepages-")?).ok()?.value();
    u64::try_from(size).ok().filter(|size| *size > 0)
}

fn compile_free(
    wire: &[wire::NumaState],
    hardware: &NodeHardware,
) -> Result<Vec<NumaFree>, String> {
    let mut free = vec![NumaFree::default(); hardware.numa.len()];
    for state in wire {
        // A NUMA node that came since: the hardware will show it soon.
        let Some(at) = hardware.position(state.id) else { continue };
        let cpus = CpuSet::parse(&state.cpus_free)
            .map_err(|error| format!("status.numa {}: cpusFree: {error}", state.id))?;
        let room = |free: u64, allocatable: u64| Room { free, allocatable: allocatable.max(free) };
        let pages = state.hugepages_free.iter();
        free[usize::from(at)] = NumaFree {
            cpus,
            memory: state
                .memory_free_bytes
                .map(|free| room(free, state.memory_allocatable_bytes.unwrap_or(free))),
            hugepages: pages
                .map(|p| (p.page_bytes, room(p.free_bytes, p.allocatable_bytes)))
                .collect(),
            group: mask(&state.memory_group, hardware),
            assignments: state.memory_assignments,
        };
    }
    Ok(free)
}

/// NUMA nodes by id as a set of positions. Ids that the hardware does not have are left out.
fn mask(ids: &[u32], hardware: &NodeHardware) -> NumaMask {
    ids.iter().filter_map(|id| hardware.position(*id)).fold(0, |mask, at| mask | 1 << at)
}

/// Who a pod is: UID, namespace and name, as far as they are told.
type PodKey<'a> = (&'a str, &'a str, &'a str);

fn compile_pods<'a>(
    status: &'a wire::NodeTopologyStatus,
    hardware: &NodeHardware,
) -> Result<(Vec<PodHolding>, Vec<PodKey<'a>>), String> {
    let mut pods: BTreeMap<PodKey<'a>, PodHolding> = BTreeMap::new();
    for pod in status.pods.iter().take(wire::MAX_HOLDERS) {
        let key = (pod.uid.as_deref().unwrap_or_default(), &*pod.namespace, &*pod.name);
        let cpus = CpuSet::parse(&pod.cpus)
            .map_err(|error| format!("status.pods {}/{}: cpus: {error}", key.1, key.2))?;
        let mut memory = Vec::new();
        for block in &pod.memory {
            let page_bytes = page_size(&block.resource)
                .ok_or_else(|| unknown("status.pods.memory", &block.resource))?;
            let numa = mask(&block.numa, hardware);
            memory.push(HeldMemory { page_bytes, numa, bytes: block.bytes });
        }
        pods.insert(key, PodHolding { uid: key.0.into(), cpus, memory });
    }
    for pod in status.devices.iter().take(wire::MAX_DEVICES).filter_map(|d| d.pod.as_ref()) {
        let key = pod_key(pod);
        pods.entry(key).or_insert_with(|| PodHolding { uid: key.0.into(), ..Default::default() });
    }
    let keys = pods.keys().copied().collect();
    Ok((pods.into_values().collect(), keys))
}

fn pod_key(pod: &wire::PodRef) -> PodKey<'_> {
    (pod.uid.as_deref().unwrap_or_default(), &pod.namespace, &pod.name)
}

fn compile_devices(
    wire: &[wire::Device],
    hardware: &NodeHardware,
    pods: &BTreeMap<PodKey<'_>, usize>,
) -> Result<Vec<Device>, String> {
    if wire.len() > wire::MAX_DEVICES {
        return Err(format!("status.devices: more than {} devices", wire::MAX_DEVICES));
    }
    let mut devices: Vec<Device> = Vec::with_capacity(wire.len());
    for device in wire {
        let known = devices.last().filter(|last| *last.resource == *device.resource);
        let resource = known.map(|last| Arc::clone(&last.resource));
        let pod = device.pod.as_ref().and_then(|pod| pods.get(&pod_key(pod)));
        devices.push(Device {
            resource: resource.unwrap_or_else(|| device.resource.as_str().into()),
            id: device.id.as_str().into(),
            numa: mask(&device.numa, hardware),
            state: device.state,
            via: device.via,
            gpu: hardware.gpu_of(&device.id),
            pod: pod.and_then(|at| u16::try_from(*at).ok()),
        });
    }
    devices.sort_by(|a, b| (&*a.resource, &*a.id).cmp(&(&*b.resource, &*b.id)));
    Ok(devices)
}

fn compile_gpu_state(wire: &wire::GpuState) -> GpuState {
    GpuState {
        health: wire.health,
        activity: wire.activity,
        in_use: wire.processes.is_some_and(|count| count > 0),
        unhealthy_mig: wire.unhealthy_mig_devices.iter().map(|id| id.as_str().into()).collect(),
    }
}

/// A number that the schema keeps below 256.
fn small(number: u32) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

fn unknown(field: &str, resource: &str) -> String {
    format!("{field}: {resource:?} is neither memory nor hugepages of a size")
}
