//! From a NodeResourceTopology to what decisions read.
//!
//! It has counts where the agent has ids: CPUs and devices get ids that are made up, in order of
//! NUMA nodes, the free ones first. So whoever counts them counts right, and nobody may name them.

use std::sync::Arc;

use muster_api::k8s::{NodeResourceTopology, Zone, ZoneResource};
use muster_api::muster::node_topology as wire;

use super::compile::{DEFAULT_MAX_NUMA_NODES, page_size};
use super::{
    Confidence, CpuSet, Device, DeviceState, Kubelet, MAX_CPU, NodeHardware, NodeTopology,
    NumaFree, NumaNode, Room, Source, TopologyPolicy, TopologyScope,
};

/// The type of zones that are NUMA nodes.
const NUMA_ZONE: &str = "Node";

impl NodeTopology {
    /// Compiles what another agent says.
    ///
    /// # Errors
    /// What is wrong with which field.
    pub fn compile_foreign(object: &NodeResourceTopology) -> Result<Self, String> {
        let mut zones: Vec<(u32, &Zone)> = Vec::new();
        for zone in object.zones.iter().filter(|zone| zone.kind == NUMA_ZONE) {
            zones.push((id(&zone.name)?, zone));
        }
        zones.sort_by_key(|(id, _)| *id);
        if let Some(twice) = zones.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("zones: {} is there twice", twice[0].1.name));
        }
        if zones.len() > wire::MAX_NUMA_NODES {
            return Err(format!("zones: more than {} NUMA nodes", wire::MAX_NUMA_NODES));
        }
        let (mut hardware, mut free) =
            (NodeHardware { threads_per_core: 1, ..NodeHardware::default() }, Vec::new());
        let (mut devices, mut next_cpu) = (Vec::new(), 0);
        for (at, (id, zone)) in zones.iter().enumerate() {
            let mut node = NumaNode { id: *id, ..NumaNode::default() };
            let mut left = NumaFree::default();
            for resource in &zone.resources {
                let amounts = Amounts::of(resource);
                if resource.name == "cpu" {
                    (node.cpus, left.cpus) = cpus(&amounts, &mut next_cpu);
                } else if let Some(page) = page_size(&resource.name) {
                    memory(page, &amounts, &mut node, &mut left);
                } else {
                    push_devices(&mut devices, &resource.name, &amounts, (*id, at))?;
                }
            }
            node.distances = distances(zone, &zones);
            hardware.numa.push(node);
            free.push(left);
        }
        devices.sort_by(|a, b| (&*a.resource, &*a.id).cmp(&(&*b.resource, &*b.id)));
        Ok(Self {
            source: Source::ResourceTopology,
            hardware: Arc::new(hardware),
            kubelet: kubelet(object).map(Arc::new),
            allocations_known: true,
            free,
            devices,
            ..Self::default()
        })
    }
}

/// The number in `node-0`.
fn id(name: &str) -> Result<u32, String> {
    let number = name.strip_prefix("node-").and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("zones: {name:?} is not the name of a NUMA node, as node-0 is"))
}

/// Whole units of a resource; no more free than allocatable, and no more of that than built in.
struct Amounts {
    capacity: u64,
    allocatable: u64,
    available: u64,
}

impl Amounts {
    fn of(resource: &ZoneResource) -> Self {
        // Half a CPU is none that could be given alone.
        let whole = |quantity: muster_api::k8s::Quantity| {
            u64::try_from(quantity.milli_value() / 1000).unwrap_or_default()
        };
        let (capacity, allocatable) = (whole(resource.capacity), whole(resource.allocatable));
        let capacity = capacity.max(allocatable);
        Self { capacity, allocatable, available: whole(resource.available).min(allocatable) }
    }
}

fn cpus(amounts: &Amounts, next: &mut u32) -> (CpuSet, CpuSet) {
    let room = u64::from(MAX_CPU + 1 - *next);
    // At most MAX_CPU + 1.
    let count = |amount: u64| amount.min(room) as u32;
    let range = |amount: u64| (*next..*next + count(amount)).collect::<CpuSet>();
    let sets = (range(amounts.capacity), range(amounts.available));
    *next += count(amounts.capacity);
    sets
}

fn memory(page: u64, amounts: &Amounts, node: &mut NumaNode, free: &mut NumaFree) {
    let room = Room { allocatable: amounts.allocatable, free: amounts.available };
    if page == 0 {
        node.memory_bytes = amounts.capacity;
        free.memory = Some(room);
    } else {
        node.hugepages.push((page, amounts.capacity));
        free.hugepages.push((page, room));
    }
}

fn push_devices(
    devices: &mut Vec<Device>,
    resource: &str,
    amounts: &Amounts,
    (id, at): (u32, usize),
) -> Result<(), String> {
    if devices.len() as u64 + amounts.capacity > wire::MAX_DEVICES as u64 {
        return Err(format!("zones: more than {} devices", wire::MAX_DEVICES));
    }
    let name: Arc<str> = resource.into();
    for number in 0..amounts.capacity {
        let state = match number {
            n if n < amounts.available => DeviceState::Free,
            n if n < amounts.allocatable => DeviceState::Allocated,
            _ => DeviceState::Unhealthy,
        };
        devices.push(Device {
            resource: Arc::clone(&name),
            id: format!("node-{id}/{number:04}").into(),
            numa: 1 << at,
            state,
            ..Device::default()
        });
    }
    Ok(())
}

/// Distances in the order of the zones; none unless all are told.
fn distances(zone: &Zone, zones: &[(u32, &Zone)]) -> Vec<u16> {
    let to = |other: &Zone| {
        let cost = zone.costs.iter().find(|cost| cost.name == other.name)?;
        u16::try_from(cost.value).ok()
    };
    zones.iter().map(|(_, other)| to(other)).collect::<Option<_>>().unwrap_or_default()
}

/// The settings, if any are told. Whether the CPU and the Memory Manager are static is not: where
/// the Topology Manager has a policy, they are taken for static if they have something to give.
fn kubelet(object: &NodeResourceTopology) -> Option<Kubelet> {
    let (policy, scope) = match object.attribute("topologyManagerPolicy") {
        Some(policy) => (policy_of(policy)?, object.attribute("topologyManagerScope")),
        None => old_policy(object.topology_policies.first()?)?,
    };
    let scope = if scope == Some("pod") { TopologyScope::Pod } else { TopologyScope::Container };
    let max = object.attribute("topologyManagerMaxNUMANodes").and_then(|max| max.parse().ok());
    let aligns = policy != TopologyPolicy::None;
    Some(Kubelet {
        confidence: Confidence::Inferred,
        policy,
        scope,
        max_numa_nodes: max.unwrap_or(DEFAULT_MAX_NUMA_NODES),
        static_cpus: aligns && gives(object, "cpu"),
        static_memory: aligns && gives(object, "memory"),
        ..Kubelet::default()
    })
}

fn gives(object: &NodeResourceTopology, name: &str) -> bool {
    let mut resources = object.zones.iter().flat_map(|zone| &zone.resources);
    resources.any(|resource| resource.name == name && !resource.allocatable.is_zero())
}

fn policy_of(text: &str) -> Option<TopologyPolicy> {
    Some(match text {
        "none" => TopologyPolicy::None,
        "best-effort" => TopologyPolicy::BestEffort,
        "restricted" => TopologyPolicy::Restricted,
        "single-numa-node" => TopologyPolicy::SingleNumaNode,
        _ => return None,
    })
}

/// Policy and scope in one word, as agents wrote them before.
fn old_policy(text: &str) -> Option<(TopologyPolicy, Option<&'static str>)> {
    let (policy, scope) = match text.strip_suffix("PodLevel") {
        Some(policy) => (policy, "pod"),
        None => (text.strip_suffix("ContainerLevel").unwrap_or(text), "container"),
    };
    let policy = match policy {
        "None" => TopologyPolicy::None,
        "BestEffort" => TopologyPolicy::BestEffort,
        "Restricted" => TopologyPolicy::Restricted,
        "SingleNUMANode" => TopologyPolicy::SingleNumaNode,
        _ => return None,
    };
    Some((policy, Some(scope)))
}
