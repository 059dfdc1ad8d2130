//! What of a machine says how good a set of GPUs is.

use super::{GpuMask, MAX_GPUS, positions};
use crate::model::node_topology::{NodeHardware, PciPath};

/// The wiring of a machine: equal values, equal answers, so that machines of a kind share
/// one table. Ids, addresses and names are not in here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wiring {
    /// How many GPUs.
    pub count: usize,
    /// What a pair can carry in one direction, in megabytes per second: a square, row by row.
    pub bandwidth: Vec<u32>,
    /// How far apart a pair is, over PCI and between NUMA nodes: a square.
    pub distance: Vec<u32>,
    /// The network devices nearest to each GPU, a bit for each, if they are nearer than
    /// another socket's or another host bridge's.
    pub nics: Vec<u64>,
    /// GPUs with links that are down.
    pub down: GpuMask,
}

impl Wiring {
    /// The wiring of a machine; none if it has no GPU, or more than can be judged.
    #[must_use]
    pub fn of(hardware: &NodeHardware) -> Option<Self> {
        let count = hardware.gpus.len();
        if count == 0 || count > MAX_GPUS {
            return None;
        }
        let mut wiring = Self { count, ..Self::default() };
        for a in 0..count {
            for b in 0..count {
                let link = hardware.link(a, b);
                let own = a == b;
                wiring.bandwidth.push(if own { 0 } else { link.megabytes_per_second });
                wiring.distance.push(if own { 0 } else { distance(hardware, a, b) });
            }
            wiring.nics.push(near_nics(hardware, a));
        }
        let linked = hardware.gpus.iter().any(|gpu| gpu.nvlinks.0 > 0);
        for (at, gpu) in hardware.gpus.iter().enumerate() {
            let (total, active) = gpu.nvlinks;
            if linked && (total == 0 || active < total) {
                wiring.down |= 1 << at;
            }
        }
        Some(wiring)
    }

    /// All GPUs.
    #[must_use]
    pub const fn all(&self) -> GpuMask {
        (GpuMask::MAX as u32 >> (MAX_GPUS - self.count)) as GpuMask
    }

    /// The same without anything down. Where all other pairs are alike, as behind switches, it is
    /// known what the rest would be; elsewhere it is not, and nothing is changed.
    #[must_use]
    pub fn healed(&self) -> Self {
        let sound = self.all() & !self.down;
        let mut pairs = positions(sound)
            .flat_map(|a| positions(sound).filter(move |b| a < *b).map(move |b| (a, b)))
            .map(|(a, b)| self.bandwidth[a * self.count + b]);
        let mut healed = self.clone();
        let Some(usual) = pairs.next() else { return healed };
        if self.down == 0 || pairs.any(|other| other != usual) {
            return healed;
        }
        healed.down = 0;
        for a in 0..self.count {
            for b in (0..self.count).filter(|b| a != *b) {
                healed.bandwidth[a * self.count + b] = usual;
            }
        }
        healed
    }
}

/// The class of the way over PCI, then the distance of the NUMA nodes.
fn distance(hardware: &NodeHardware, a: usize, b: usize) -> u32 {
    let numa = |gpu: usize| hardware.gpus.get(gpu).and_then(|gpu| gpu.numa);
    let apart = numa(a).zip(numa(b)).and_then(|(a, b)| {
        hardware.numa.get(usize::from(a))?.distances.get(usize::from(b)).copied()
    });
    class(hardware.link(a, b).path) * 1024 + u32::from(apart.unwrap_or(0).min(1023))
}

/// The nearer the smaller.
const fn class(path: PciPath) -> u32 {
    match path {
        PciPath::BOARD => 0,
        PciPath::PIX => 1,
        PciPath::PXB => 2,
        PciPath::PHB => 3,
        PciPath::NODE => 4,
        PciPath::SYS => 5,
    }
}

/// Network devices that are up, as near as any is and below the same host bridge at least.
fn near_nics(hardware: &NodeHardware, gpu: usize) -> u64 {
    let usable =
        hardware.nics.iter().enumerate().take(64).filter(|(_, nic)| nic.rdma && nic.active);
    let way = |nic: &crate::model::node_topology::Nic| {
        nic.gpu_paths.get(gpu).map_or(u32::MAX, |path| class(*path))
    };
    let ways = usable.map(|(at, nic)| (at, way(nic)));
    let nearest = ways.clone().map(|(_, way)| way).min().filter(|way| *way <= class(PciPath::PHB));
    let Some(nearest) = nearest else { return 0 };
    ways.filter(|(_, way)| *way == nearest).fold(0, |nics, (at, _)| nics | 1 << at)
}
