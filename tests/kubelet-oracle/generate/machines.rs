//! Random machines.

use std::collections::BTreeMap;

use muster_core::numa;
use serde::Serialize;

use crate::rng::Rng;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// A machine and its kubelet's settings, as the oracle reads them.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MachineSpec {
    pub(crate) policy: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) policy_options: BTreeMap<&'static str, &'static str>,
    pub(crate) cpu_policy: &'static str,
    pub(crate) cpu_options: BTreeMap<&'static str, &'static str>,
    pub(crate) memory_policy: &'static str,
    /// Feature gates are the process's, so this is not part of the question.
    #[serde(skip)]
    pub(crate) pod_level: bool,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) reserved_cpus: Vec<u16>,
    pub(crate) reserved_count: usize,
    pub(crate) devices: Vec<DeviceResource>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeSpec {
    pub(crate) id: u8,
    pub(crate) distances: Vec<u64>,
    pub(crate) memory: u64,
    pub(crate) hugepages: Vec<PagesSpec>,
    pub(crate) reserved: BTreeMap<&'static str, u64>,
    pub(crate) cores: Vec<CoreSpec>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PagesSpec {
    pub(crate) kib: u64,
    pub(crate) pages: u64,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CoreSpec {
    core_id: u16,
    thread_ids: Vec<u16>,
    socket_id: u16,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    uncore_caches: Vec<CacheSpec>,
}

#[derive(Clone, Debug, Serialize)]
struct CacheSpec {
    id: u16,
}

/// What a device plugin has.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceResource {
    pub(crate) resource: &'static str,
    pub(crate) chooses: bool,
    pub(crate) devices: Vec<DeviceSpec>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceSpec {
    pub(crate) id: String,
    pub(crate) numa: Option<Vec<u8>>,
    pub(crate) healthy: bool,
}

pub(crate) const HUGEPAGES: &[(&str, u64)] = &[("hugepages-2Mi", 2 * MIB), ("hugepages-1Gi", GIB)];
pub(crate) const RESOURCES: &[&str] = &["nvidia.com/gpu", "example.com/nic", "example.com/fpga"];

pub(crate) fn machine(rng: &mut Rng) -> MachineSpec {
    let nodes = nodes(rng);
    let dense = nodes.iter().enumerate().all(|(i, node)| usize::from(node.id) == i);
    let policy = match rng.below(100) {
        0..12 => "none",
        12..40 => "best-effort",
        40..72 => "restricted",
        _ => "single-numa-node",
    };
    let mut policy_options = BTreeMap::new();
    // Where ids have gaps the kubelet looks distances up beyond the end of the row.
    if dense && rng.chance(30) {
        policy_options.insert("prefer-closest-numa-nodes", "true");
    }
    let (cpu_policy, cpu_options) = cpu_policy(rng, policy, &nodes);
    let mut spec = MachineSpec {
        policy,
        scope: if rng.chance(50) { "container" } else { "pod" },
        policy_options,
        cpu_policy,
        cpu_options,
        memory_policy: if rng.chance(70) { "Static" } else { "None" },
        pod_level: rng.chance(30),
        devices: devices(rng, &nodes),
        nodes,
        reserved_cpus: Vec::new(),
        reserved_count: 0,
    };
    let threads: Vec<u16> = spec.threads().collect();
    let count = rng.between(1, 3).min(threads.len());
    if rng.chance(25) {
        spec.reserved_count = count;
    } else {
        spec.reserved_cpus = (0..count).map(|_| threads[rng.below(threads.len())]).collect();
        spec.reserved_cpus.sort_unstable();
        spec.reserved_cpus.dedup();
    }
    spec
}

fn cpu_policy(
    rng: &mut Rng,
    policy: &str,
    nodes: &[NodeSpec],
) -> (&'static str, BTreeMap<&'static str, &'static str>) {
    let mut options = BTreeMap::new();
    if rng.chance(12) {
        return ("none", options);
    }
    let mut on = |rng: &mut Rng, name, percent| {
        let on = rng.chance(percent);
        if on {
            options.insert(name, "true");
        }
        on
    };
    on(rng, "strict-cpu-reservation", 15);
    // Which options go together is the kubelet's rule.
    let cores = on(rng, "distribute-cpus-across-cores", 10);
    if !cores {
        on(rng, "full-pcpus-only", 30);
        if !on(rng, "distribute-cpus-across-numa", 25) {
            on(rng, "prefer-align-cpus-by-uncorecache", 30);
        }
    }
    let mut sockets: Vec<u16> =
        nodes.iter().flat_map(|node| node.cores.iter().map(|core| core.socket_id)).collect();
    sockets.sort_unstable();
    sockets.dedup();
    let with_cpus = nodes.iter().filter(|node| !node.cores.is_empty()).count();
    if policy != "single-numa-node" && sockets.len() <= with_cpus {
        on(rng, "align-by-socket", 20);
    }
    ("static", options)
}

fn nodes(rng: &mut Rng) -> Vec<NodeSpec> {
    let count = [1, 1, 2, 2, 2, 2, 2, 3, 4, 4, 4, 4, 5, 6, 7, 8][rng.below(16)];
    let sparse = rng.chance(10);
    let threads = [1, 2, 2, 2, 2, 4][rng.below(6)];
    let adjacent = rng.chance(40);
    // One socket per node, several nodes per socket, or two sockets in a node.
    let per_socket = [1, 1, 2, 4][rng.below(4)];
    let two_sockets = count <= 2 && rng.chance(15);
    let cores_each = rng.between(1, if count > 4 { 4 } else { 8 });
    let uneven = rng.chance(15);
    let uncore = rng.below(4);
    let hugepages = [rng.chance(35), rng.chance(10)];
    let mut id = 0;
    let mut shapes = Vec::new();
    for number in 0..count {
        if sparse && rng.chance(40) {
            id += rng.between(1, 5);
        }
        // A node may have memory and no CPUs, but not the first.
        let bare = number > 0 && rng.chance(5);
        let cores = match (bare, uneven) {
            (true, _) => 0,
            (false, true) => rng.between(1, cores_each + 2),
            (false, false) => cores_each,
        };
        shapes.push((id, cores));
        id += 1;
    }
    let all: usize = shapes.iter().map(|(_, cores)| cores).sum();
    let mut next = 0;
    let mut nodes: Vec<NodeSpec> = Vec::new();
    for (number, (id, cores)) in shapes.into_iter().enumerate() {
        let built = (0..cores).map(|place| {
            let core = next + place;
            let thread = |t: usize| if adjacent { core * threads + t } else { t * all + core };
            let socket = if two_sockets { 2 * number + place % 2 } else { number / per_socket };
            let cache = match uncore {
                0 => None,
                1 => Some(number),
                2 => Some(core / 2),
                _ => Some(core / 4),
            };
            CoreSpec {
                core_id: small(core),
                thread_ids: (0..threads).map(|t| small(thread(t))).collect(),
                socket_id: small(socket),
                uncore_caches: cache.map(|id| CacheSpec { id: small(id) }).into_iter().collect(),
            }
        });
        let built = built.collect();
        nodes.push(memory_of(rng, number == 0, small(id), built, hugepages));
        next += cores;
    }
    // Some threads are switched off.
    if rng.chance(6) {
        for _ in 0..rng.between(1, 3) {
            let node = rng.below(nodes.len());
            let cores = &mut nodes[node].cores;
            if !cores.is_empty() {
                let core = rng.below(cores.len());
                if cores[core].thread_ids.len() > 1 {
                    cores[core].thread_ids.pop();
                }
            }
        }
    }
    distances(rng, &mut nodes);
    nodes
}

fn memory_of(
    rng: &mut Rng,
    first: bool,
    id: u8,
    cores: Vec<CoreSpec>,
    hugepages: [bool; 2],
) -> NodeSpec {
    let mut reserved = BTreeMap::new();
    if first || rng.chance(30) {
        reserved.insert("memory", rng.between(1, 4) as u64 * 64 * MIB);
    }
    let mut pages = Vec::new();
    let mut paged = 0;
    for ((name, size), used) in HUGEPAGES.iter().zip(hugepages) {
        if used {
            let count = rng.between(0, if *size == GIB { 2 } else { 256 }) as u64;
            pages.push(PagesSpec { kib: size / 1024, pages: count });
            paged += count * size;
            if count > 2 && rng.chance(15) {
                reserved.insert(*name, *size);
            }
        }
    }
    let memory = paged + rng.between(1, 8) as u64 * 512 * MIB;
    NodeSpec { id, distances: Vec::new(), memory, hugepages: pages, reserved, cores }
}

fn distances(rng: &mut Rng, nodes: &mut [NodeSpec]) {
    let count = nodes.len();
    let mut table = vec![vec![10_u64; count]; count];
    for (a, b) in (0..count).flat_map(|a| (0..a).map(move |b| (a, b))) {
        let distance = [11, 12, 20, 21, 21, 31][rng.below(6)];
        table[a][b] = distance;
        table[b][a] = distance;
    }
    for (node, row) in nodes.iter_mut().zip(table) {
        node.distances = row;
    }
}

fn devices(rng: &mut Rng, nodes: &[NodeSpec]) -> Vec<DeviceResource> {
    let mut found = Vec::new();
    for resource in RESOURCES {
        if !rng.chance(if found.is_empty() { 75 } else { 35 }) {
            continue;
        }
        let somewhere = rng.chance(85);
        let per_node = rng.chance(50);
        // On a few nodes only, or on all.
        let on = if rng.chance(30) { rng.between(1, nodes.len()) } else { nodes.len() };
        let count = rng.between(1, 8);
        let devices = (0..count).map(|number| {
            let near = nodes[if per_node { number * on / count } else { rng.below(on) }].id;
            let numa = match rng.below(100) {
                _ if !somewhere => None,
                0..4 => None,
                4..7 => Some(Vec::new()),
                7..14 => Some(vec![near, nodes[rng.below(nodes.len())].id]),
                14..16 => Some(vec![61]),
                _ => Some(vec![near]),
            };
            let healthy = rng.chance(88);
            DeviceSpec { id: format!("{number}"), numa, healthy }
        });
        let devices = devices.collect();
        found.push(DeviceResource { resource, chooses: rng.chance(40), devices });
    }
    found
}

fn small<T: TryFrom<usize>>(number: usize) -> T {
    T::try_from(number).ok().expect("a small number")
}

impl MachineSpec {
    pub(crate) fn threads(&self) -> impl Iterator<Item = u16> {
        self.cores().flat_map(|(_, core)| core.thread_ids.iter().copied())
    }

    fn cores(&self) -> impl Iterator<Item = (u8, &CoreSpec)> {
        self.nodes.iter().flat_map(|node| node.cores.iter().map(|core| (node.id, core)))
    }

    fn option(&self, name: &str) -> bool {
        self.cpu_options.contains_key(name)
    }

    /// The machine as the predictor reads it.
    pub(crate) fn model(&self) -> numa::Machine {
        let cpus: Vec<numa::Cpu> = self
            .cores()
            .flat_map(|(numa, core)| {
                let first = core.thread_ids.iter().copied().min().unwrap_or(0);
                let uncore = core.uncore_caches.first().map_or(core.socket_id, |cache| cache.id);
                let cpu = move |id: &u16| numa::Cpu {
                    id: *id,
                    core: first,
                    socket: core.socket_id,
                    numa,
                    uncore,
                };
                core.thread_ids.iter().map(cpu)
            })
            .collect();
        let layout = numa::CpuLayout::new(&cpus);
        let options = numa::CpuOptions {
            full_cores_only: self.option("full-pcpus-only"),
            across_numa: self.option("distribute-cpus-across-numa"),
            align_by_socket: self.option("align-by-socket"),
            across_cores: self.option("distribute-cpus-across-cores"),
            align_by_uncore: self.option("prefer-align-cpus-by-uncorecache"),
        };
        let reserved = if self.reserved_count > 0 {
            numa::reserve(&layout, options, self.reserved_count)
        } else {
            self.reserved_cpus.iter().copied().collect()
        };
        numa::Machine {
            settings: numa::Settings {
                policy: match self.policy {
                    "none" => numa::Policy::None,
                    "best-effort" => numa::Policy::BestEffort,
                    "restricted" => numa::Policy::Restricted,
                    _ => numa::Policy::SingleNumaNode,
                },
                scope: if self.scope == "pod" { numa::Scope::Pod } else { numa::Scope::Container },
                prefer_closest: self.policy_options.contains_key("prefer-closest-numa-nodes"),
                cpu: (self.cpu_policy == "static").then_some(options),
                memory: self.memory_policy == "Static",
                pod_level: self.pod_level,
                device_nodes_only: true,
            },
            nodes: self.nodes.iter().map(NodeSpec::model).collect(),
            cpus: layout,
            reserved,
            devices: self.devices.iter().map(DeviceResource::model).collect(),
        }
    }
}

impl NodeSpec {
    fn model(&self) -> numa::NumaNode {
        let kept = |name: &str| self.reserved.get(name).copied().unwrap_or(0);
        let paged: u64 = self.hugepages.iter().map(|p| p.kib * 1024 * p.pages).sum();
        let mut memory = vec![("memory".into(), self.memory - paged - kept("memory"))];
        for pages in &self.hugepages {
            let name = HUGEPAGES.iter().find(|(_, size)| *size == pages.kib * 1024);
            let (name, size) = name.expect("a known size of pages");
            memory.push(((*name).into(), size * pages.pages - kept(name)));
        }
        numa::NumaNode { id: self.id, distances: self.distances.clone(), memory }
    }
}

impl DeviceResource {
    fn model(&self) -> numa::DeviceResource {
        let device = |device: &DeviceSpec| numa::Device {
            id: device.id.as_str().into(),
            numa: device.numa.as_ref().map(|ids| ids.iter().copied().collect()),
            healthy: device.healthy,
        };
        numa::DeviceResource {
            name: self.resource.into(),
            devices: self.devices.iter().map(device).collect(),
            plugin_chooses: self.chooses,
        }
    }
}
