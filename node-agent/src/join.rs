//! One picture from what sysfs and NVML say.
//!
//! Owns which of the two is believed about what: sysfs about places, NVML about GPUs and
//! links. Must never guess: a NUMA node that nobody names is absent.

use std::collections::BTreeMap;

use muster_api::muster::node_topology::{
    Gpu, GpuLink, Hardware, LinkVia, MAX_GPUS, MAX_SWITCHES, Nic, NumaKind, NumaNode, NumaSource,
    NvLinks, NvlinkDomain, PciPath, Source,
};

use crate::cpulist::CpuList;
use crate::nvml::{NvmlGpu, Snapshot};
use crate::pci::{self, Address, Kind, PciDevice};

/// What a slot carries if sysfs does not say: the third generation with 16 lanes, in MB/s.
const USUAL_SLOT: u32 = 12_000;
/// What goes between sockets, in MB/s: NCCL's number for AMD, between those of Intel's.
const BETWEEN_SOCKETS: u32 = 16_000;

/// What was read, before it is put together.
pub(crate) struct Parts<'a> {
    pub(crate) numa: &'a [NumaNode],
    pub(crate) devices: &'a [PciDevice],
    pub(crate) nics: Vec<Nic>,
    pub(crate) snapshot: Option<&'a Snapshot>,
}

/// GPUs that NVML has reported once: one that is lost keeps its name.
pub(crate) type Remembered = BTreeMap<Address, Gpu>;

/// Puts the parts together. The hash is made only of what is other than `last`.
pub(crate) fn join(parts: Parts<'_>, remembered: &mut Remembered, last: &Hardware) -> Hardware {
    let places = Places::new(&parts, remembered);
    let gpus: Vec<Gpu> = places.0.iter().map(|place| place.gpu(&parts, remembered)).collect();
    for (place, gpu) in places.0.iter().zip(&gpus) {
        if place.nvml.is_some() {
            remembered.insert(place.address, gpu.clone());
        }
    }
    let mut numa = parts.numa.to_vec();
    for node in &mut numa {
        if gpus.iter().any(|gpu| gpu.memory_numa == Some(node.id)) {
            node.kind = NumaKind::GpuMemory;
        }
    }
    let mut nics = parts.nics;
    for nic in &mut nics {
        let own = parts.devices.iter().find(|d| d.address.to_string() == nic.pci);
        let way = |place: &Place<'_>| match (own, place.device) {
            (Some(own), Some(gpu)) => own.way_to(gpu),
            _ => PciPath::SYS,
        };
        nic.gpu_paths = places.0.iter().map(way).collect();
    }
    let mut switches = pci::switches(parts.devices.iter().filter(|d| !d.is_virtual));
    switches.truncate(MAX_SWITCHES);
    let source = Source {
        agent: env!("CARGO_PKG_VERSION").to_owned(),
        driver: parts.snapshot.and_then(|s| s.driver.as_deref()).map(|text| clean(text, 64)),
        nvml: parts.snapshot.and_then(|s| s.version.as_deref()).map(|text| clean(text, 64)),
    };
    let links = places.links(parts.snapshot);
    let domain = domain(&gpus, parts.snapshot);
    let hash = last.hash.clone();
    let hardware = Hardware { hash, source, numa, switches, gpus, links, nics, domain };
    if hardware == *last { hardware } else { hardware.sealed() }
}

/// Printable ASCII, cut to a length: what the API takes.
fn clean(text: &str, most: usize) -> String {
    text.chars().filter(|c| (' '..='~').contains(c)).take(most).collect()
}

/// A GPU on the bus, in NVML, or in memory.
struct Place<'a> {
    address: Address,
    device: Option<&'a PciDevice>,
    /// Its place in the snapshot, if it answers.
    nvml: Option<(usize, &'a NvmlGpu)>,
}

struct Places<'a>(Vec<Place<'a>>);

impl<'a> Places<'a> {
    fn new(parts: &Parts<'a>, remembered: &Remembered) -> Self {
        let mut found: BTreeMap<Address, Place<'a>> = BTreeMap::new();
        let empty = |address| Place { address, device: None, nvml: None };
        let is_gpu =
            |d: &&PciDevice| matches!(d.kind, Kind::Gpu | Kind::Accelerator) && !d.is_virtual;
        for device in parts.devices.iter().filter(is_gpu) {
            found.insert(device.address, Place { device: Some(device), ..empty(device.address) });
        }
        let told = parts.snapshot.map_or(&[][..], |s| &s.gpus).iter().enumerate();
        for (i, gpu) in told.filter(|(_, gpu)| !gpu.lost) {
            let Some(address) = gpu.address.as_deref().and_then(Address::parse) else { continue };
            found.entry(address).or_insert_with(|| empty(address)).nvml = Some((i, gpu));
        }
        for &address in remembered.keys() {
            found.entry(address).or_insert_with(|| empty(address));
        }
        Self(found.into_values().take(MAX_GPUS).collect())
    }

    /// Every pair, by position.
    fn links(&self, snapshot: Option<&Snapshot>) -> Vec<GpuLink> {
        let mut links = Vec::new();
        for (a, one) in self.0.iter().enumerate() {
            for (b, two) in self.0.iter().enumerate().skip(a + 1) {
                links.push(GpuLink { a: a as u32, b: b as u32, ..one.link_to(two, snapshot) });
            }
        }
        links
    }
}

impl Place<'_> {
    fn gpu(&self, parts: &Parts<'_>, remembered: &Remembered) -> Gpu {
        let mut gpu = match (self.nvml, remembered.get(&self.address)) {
            (Some((_, nvml)), _) => from_nvml(nvml),
            (None, Some(seen)) => {
                let links = seen.nvlinks.map(|l| NvLinks { active: 0, to_switch: 0, ..l });
                // Who is lost is on no fabric, and nobody knows how it is divided.
                Gpu { nvlinks: links, fabric: None, mig: None, index: None, ..seen.clone() }
            }
            (None, None) => Gpu::default(),
        };
        gpu.pci = self.address.to_string();
        if let Some(device) = self.device {
            gpu.pci_id = device.id();
            device.path.root().clone_into(&mut gpu.root);
            gpu.switch = device.path.switch();
            gpu.numa = device.numa;
            gpu.numa_source = device.numa.map_or(NumaSource::None, |_| NumaSource::Sysfs);
        }
        let affinity = self.nvml.and_then(|(_, nvml)| nvml.affinity.as_ref());
        if let (None, Some(near)) = (gpu.numa, affinity.filter(|cpus| !cpus.is_empty())) {
            gpu.numa = only_node(near, parts.numa);
            gpu.numa_source = gpu.numa.map_or(NumaSource::None, |_| NumaSource::Affinity);
        }
        if gpu.numa.is_some() {
            let local = self.device.map(|d| d.local_cpus.clone()).unwrap_or_default();
            gpu.cpus = affinity.map_or(local, ToString::to_string);
        }
        gpu
    }

    fn link_to(&self, other: &Self, snapshot: Option<&Snapshot>) -> GpuLink {
        let pair = match (self.nvml, other.nvml, snapshot) {
            (Some((a, _)), Some((b, _)), Some(snapshot)) => {
                let is = |p: &&crate::nvml::Pair| (p.a, p.b) == (a.min(b), a.max(b));
                snapshot.pairs.iter().find(is)
            }
            _ => None,
        };
        let on_bus = match (self.device, other.device) {
            (Some(a), Some(b)) => a.way_to(b),
            _ => PciPath::SYS,
        };
        let path = pair.and_then(|p| p.path).unwrap_or(on_bus);
        let (nvlinks, via) = match (self.nvml, other.nvml) {
            (Some((_, a)), Some((_, b))) => nvlinks(a, b, pair.and_then(|p| p.nvlink)),
            _ => (0, None),
        };
        let slot = |place: &Self| place.device.and_then(|d| d.megabytes_per_second);
        let slot = slot(self).unwrap_or(USUAL_SLOT).min(slot(other).unwrap_or(USUAL_SLOT));
        let megabytes_per_second = match self.nvml {
            Some((_, gpu)) if nvlinks > 0 => nvlinks * per_link(gpu),
            _ => over_pci(path, slot),
        };
        GpuLink { a: 0, b: 0, path, nvlinks, via, megabytes_per_second }
    }
}

/// As `nvidia-smi topo -m` counts: links that lead from one to the other, else those to
/// switches if the two can talk. Links that are up prove nothing: they train even where the
/// fabric is dead.
fn nvlinks(a: &NvmlGpu, b: &NvmlGpu, works: Option<bool>) -> (u32, Option<LinkVia>) {
    let direct = b.address.as_ref().map_or(0, |address| a.links.to(address));
    if direct > 0 {
        return (direct, Some(LinkVia::Direct));
    }
    match (works, a.links.to_switch().min(b.links.to_switch())) {
        (Some(true), count @ 1..) => (count, Some(LinkVia::Switch)),
        _ => (0, None),
    }
}

/// What one NVLink carries in one direction, in MB/s, by NCCL's table.
fn per_link(gpu: &NvmlGpu) -> u32 {
    match gpu.compute {
        Some((6, _)) => 18_000,
        Some((8, 6..)) => 12_000,
        Some((9, _)) => 20_600,
        Some((10.., _)) => 40_100,
        _ => 20_000,
    }
}

/// What goes over PCI: through a CPU a sixth less, by NCCL's measure.
fn over_pci(path: PciPath, slot: u32) -> u32 {
    let through_cpu = slot / 6 * 5;
    match path {
        PciPath::BOARD | PciPath::PIX | PciPath::PXB => slot,
        PciPath::PHB | PciPath::NODE => through_cpu,
        PciPath::SYS => through_cpu.min(BETWEEN_SOCKETS),
    }
}

fn from_nvml(nvml: &NvmlGpu) -> Gpu {
    let links = &nvml.links;
    Gpu {
        uuid: nvml.uuid.as_deref().map(|text| clean(text, 96)),
        index: Some(nvml.index),
        minor: nvml.minor,
        model: nvml.model.as_deref().map(|text| clean(text, 96)),
        architecture: nvml.architecture.clone(),
        compute_capability: nvml.compute.map(|(major, minor)| format!("{major}.{minor}")),
        memory_bytes: nvml.memory_bytes.unwrap_or(0),
        memory_numa: nvml.memory_numa,
        module: nvml.module,
        nvlinks: (links.total > 0).then(|| NvLinks {
            total: links.total,
            active: links.active.len() as u32,
            to_switch: links.to_switch(),
            megabytes_per_second: links.megabytes_per_second,
        }),
        fabric: nvml.fabric.clone(),
        mig: nvml.mig.clone(),
        ..Gpu::default()
    }
}

/// The NUMA node that all these CPUs are on.
fn only_node(cpus: &CpuList, nodes: &[NumaNode]) -> Option<u32> {
    // With one NUMA node there is nothing to tell apart.
    let mut with_cpus = nodes.iter().filter(|node| !node.cpus.is_empty());
    let within =
        |node: &&NumaNode| node.cpus.parse::<CpuList>().is_ok_and(|own| cpus.is_within(&own));
    with_cpus.find(within).map(|node| node.id)
}

/// The domain, if it is larger than the node and all GPUs that answer agree.
fn domain(gpus: &[Gpu], snapshot: Option<&Snapshot>) -> Option<NvlinkDomain> {
    use muster_api::muster::node_topology::FabricState::Completed;
    let mut cliques = gpus.iter().filter(|gpu| gpu.index.is_some()).map(|gpu| {
        let fabric = gpu.fabric.as_ref().filter(|f| f.state == Completed && f.error.is_none())?;
        Some(format!("{}.{}", fabric.cluster_uuid.as_ref()?, fabric.clique))
    });
    let clique = cliques.next()??;
    if !cliques.all(|other| other.as_ref() == Some(&clique)) {
        return None;
    }
    let platform = snapshot?.gpus.iter().find_map(|gpu| gpu.platform.as_ref());
    Some(NvlinkDomain {
        clique,
        chassis: platform.map(|p| clean(&p.chassis, 64)).filter(|text| !text.is_empty()),
        slot: platform.map(|p| p.slot),
        tray: platform.map(|p| p.tray),
        host: platform.map(|p| p.host),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvml::{Links, Remote};

    #[test]
    fn nvlinks_as_nvidia_smi_counts_them() {
        let gpu = |address: &str, switch: usize, to: &[&str]| NvmlGpu {
            address: Some(address.to_owned()),
            links: Links {
                total: 18,
                active: (0..switch)
                    .map(|_| Remote::Switch)
                    .chain(to.iter().map(|a| Remote::Gpu((*a).to_owned())))
                    .collect(),
                ..Links::default()
            },
            ..NvmlGpu::default()
        };
        let cases = [
            (gpu("a", 18, &[]), gpu("b", 18, &[]), Some(true), 18),
            (gpu("a", 18, &[]), gpu("b", 17, &[]), Some(true), 17),
            // The links are up, and the fabric is dead.
            (gpu("a", 18, &[]), gpu("b", 18, &[]), Some(false), 0),
            (gpu("a", 18, &[]), gpu("b", 18, &[]), None, 0),
            (gpu("a", 0, &["b", "b", "c"]), gpu("b", 0, &["a", "a"]), None, 2),
            (gpu("a", 0, &["c"]), gpu("b", 0, &[]), None, 0),
        ];
        for (a, b, works, expected) in cases {
            assert_eq!(nvlinks(&a, &b, works).0, expected, "{a:?} {b:?}");
        }
    }

    #[test]
    fn nearer_is_never_slower() {
        for slot in [4_000, 12_000, 24_000, 48_000] {
            let speeds: Vec<u32> = PciPath::ALL.iter().map(|path| over_pci(*path, slot)).collect();
            assert!(speeds.is_sorted_by(|a, b| a >= b), "{speeds:?}");
        }
    }
}
