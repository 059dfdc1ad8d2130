//! Reads the hardware, again and again.
//!
//! Owns what must be remembered between two readings: GPUs that were seen, XIDs, bands of
//! activity, and the parts of sysfs that hardly change. Must never block for longer than
//! its time limit.

use std::time::{Duration, Instant};

use muster_api::muster::node_topology::{GpuState, Hardware, Nic, NumaNode};

use crate::Sources;
use crate::findings::{self, Facts};
use crate::health::Memory;
use crate::join::{self, Parts, Remembered};
use crate::nvml::{Client, Snapshot};
use crate::pci::PciDevice;
use crate::reading::{GpuGauges, Reading};
use crate::sysfs::{self, Tree};
use crate::{nic, numa, pci};

/// Called, from another thread, when the hardware has changed and should be read again.
pub type Notify = Box<dyn Fn() + Send + Sync>;

/// How long NUMA nodes and CPUs are believed to be as they were.
const NUMA_KEPT: Duration = Duration::from_secs(300);
/// How long devices on the bus are believed to be as they were while the same ones are there and no port of a NIC
/// has changed.
const BUS_KEPT: Duration = Duration::from_secs(60);
/// How long a reading waits for NVML, if there was one before.
const WAIT: Duration = Duration::from_secs(1);
/// How long a quick look may take; it takes a few milliseconds.
const QUICK_WAIT: Duration = Duration::from_millis(300);
/// How long the first reading waits: without persistence mode the driver initialises each GPU on
/// first use, which takes seconds.
const FIRST_WAIT: Duration = Duration::from_secs(30);
/// Most notes of one reading.
const MAX_NOTES: usize = 32;

/// The devices on the bus as they were read.
struct Bus {
    read: Instant,
    names: Vec<String>,
    devices: Vec<PciDevice>,
    nics: Vec<Nic>,
    notes: Vec<String>,
}

/// Reads the hardware of one node.
pub struct Reader {
    sysfs: Tree,
    proc: Tree,
    nvml: Client,
    numa: Option<(Instant, Vec<NumaNode>, Vec<String>)>,
    bus: Option<Bus>,
    remembered: Remembered,
    memory: Memory,
    /// States of ports as they were right before the bus was last read.
    ports: nic::Ports,
    /// What the last reading came to.
    last: Hardware,
    first: bool,
}

impl Reader {
    /// Fails if a root is not there: then nothing could ever be read. NVML's events are
    /// listened to; for one reading, see [`Reader::once`].
    pub fn new(sources: Sources, notify: Notify) -> Result<Self, sysfs::Error> {
        Self::open(sources, true, notify)
    }

    /// A single reading, without listening to events.
    pub fn once(sources: Sources) -> Result<Reading, sysfs::Error> {
        let mut reader = Self::open(sources, false, Box::new(|| {}))?;
        Ok(reader.hardware(Instant::now()))
    }

    fn open(sources: Sources, events: bool, notify: Notify) -> Result<Self, sysfs::Error> {
        Ok(Self {
            sysfs: Tree::open(&sources.sysfs_root, "--sysfs-root")?,
            proc: Tree::open(&sources.proc_root, "--proc-root")?,
            nvml: Client::start(sources.nvml_library, events, notify),
            numa: None,
            bus: None,
            remembered: Remembered::new(),
            memory: Memory::default(),
            ports: nic::Ports::default(),
            last: Hardware::default(),
            first: true,
        })
    }

    /// Everything as it is now. Blocks: to be called from a thread that may wait. If NVML takes
    /// too long, GPUs are as they were, and `notify` is called when it has answered.
    pub fn hardware(&mut self, now: Instant) -> Reading {
        let outlook = self.nvml.ask(if self.first { FIRST_WAIT } else { WAIT });
        self.first = false;
        let snapshot = outlook.answer.as_ref().ok().map(|snapshot| &**snapshot);
        let (numa, mut notes) = self.numa(now);
        let (devices, nics) = self.bus(now, &mut notes);
        notes.truncate(MAX_NOTES);
        let parts = Parts { numa: &numa, devices: &devices, nics, snapshot };
        let hardware = join::join(parts, &mut self.remembered, &self.last);
        self.last = hardware.clone();
        self.memory.take(&outlook, now);
        let gpus = self.memory.states(&hardware, snapshot, now);
        let findings = findings::all(&Facts {
            notes: &notes,
            devices: &devices,
            outlook: &outlook,
            kernel_driver: self.proc.read_first_line("driver/nvidia/version").ok(),
            hardware: &hardware,
            gpus: &gpus,
        });
        let gauges = self.gauges(&hardware, &gpus, snapshot);
        Reading { hardware, gpus, findings, gauges }
    }

    /// A quick look, for a fraction of what a reading costs: whether it is time for another one. Blocks
    /// for a moment.
    pub fn differs(&mut self) -> bool {
        self.ports.differ(&self.sysfs) || self.nvml.differs(QUICK_WAIT)
    }

    fn numa(&mut self, now: Instant) -> (Vec<NumaNode>, Vec<String>) {
        if let Some((read, numa, notes)) = &self.numa
            && now.duration_since(*read) < NUMA_KEPT
        {
            return (numa.clone(), notes.clone());
        }
        let mut notes = Vec::new();
        let numa = numa::read(&self.sysfs, &self.proc, &mut notes);
        self.numa = Some((now, numa.clone(), notes.clone()));
        (numa, notes)
    }

    /// The devices on the bus, and the NICs among them: read again when others are there than before, when a port
    /// has changed, and now and then.
    fn bus(&mut self, now: Instant, notes: &mut Vec<String>) -> (Vec<PciDevice>, Vec<Nic>) {
        let names = self.sysfs.list(pci::DEVICES).ok();
        let bus = self.bus.take().filter(|bus| {
            names.as_ref() == Some(&bus.names)
                && now.duration_since(bus.read) < BUS_KEPT
                && !self.ports.differ(&self.sysfs)
        });
        let bus = bus.unwrap_or_else(|| {
            let mut notes = Vec::new();
            self.ports = nic::Ports::read(&self.sysfs);
            let devices = pci::read(&self.sysfs, &mut notes);
            let nics = nic::read(&self.sysfs, &devices, &mut notes);
            Bus { read: now, names: names.unwrap_or_default(), devices, nics, notes }
        });
        notes.extend(bus.notes.iter().cloned());
        let found = (bus.devices.clone(), bus.nics.clone());
        self.bus = Some(bus);
        found
    }

    fn gauges(
        &self,
        hardware: &Hardware,
        states: &[GpuState],
        snapshot: Option<&Snapshot>,
    ) -> Vec<GpuGauges> {
        let gauges = |(gpu, state): (&muster_api::muster::node_topology::Gpu, &GpuState)| {
            let told = snapshot.map_or(&[][..], |s| &s.gpus);
            let nvml = told.iter().find(|g| !g.lost && g.address.as_deref() == Some(&gpu.pci));
            GpuGauges {
                uuid: gpu.uuid.clone(),
                index: gpu.index,
                pci: gpu.pci.clone(),
                healthy: state.health <= muster_api::muster::node_topology::GpuHealth::Degraded,
                utilisation_percent: nvml.and_then(|g| g.utilisation_percent),
                memory_used_bytes: nvml.and_then(|g| g.memory_used_bytes),
                power_milliwatts: nvml.and_then(|g| g.power_milliwatts),
                temperature_celsius: nvml.and_then(|g| g.temperature_celsius),
                nvlinks_active: gpu.nvlinks.map(|l| l.active),
                nvlinks_total: gpu.nvlinks.map(|l| l.total),
                ecc_uncorrected: nvml.and_then(|g| g.health.ecc_uncorrected),
                xids: self.memory.xid_count(&gpu.pci),
            }
        };
        hardware.gpus.iter().zip(states).map(gauges).collect()
    }
}
