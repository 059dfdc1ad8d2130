//! What a node really is: NUMA nodes, CPUs, memory, hugepages, PCI devices and GPUs.
//!
//! Owns the collection of these facts into one [`Machine`]. Must never guess: a fact that cannot be
//! read is absent and a note says why. Must never fail because a node has no GPU, driver or NUMA.

pub mod agent;
pub mod cpulist;
pub mod kubelet;
pub mod numa;
pub mod nvml;
pub mod pci;
pub mod podresources;
pub mod print;
pub mod reader;
pub mod reading;
pub mod sysfs;

use std::path::PathBuf;

use serde::Serialize;

use crate::numa::NumaNode;
use crate::nvml::Nvml;
use crate::pci::PciDevice;
use crate::sysfs::Tree;

/// Where to look.
#[derive(Clone, Debug)]
pub struct Sources {
    pub sysfs_root: PathBuf,
    pub proc_root: PathBuf,
    /// The NVML library to load; the system's `libnvidia-ml.so.1` if absent.
    pub nvml_library: Option<PathBuf>,
}

/// Everything found on this node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    pub numa_nodes: Vec<NumaNode>,
    /// GPUs, accelerators and NICs on the PCI bus, in the order of their addresses.
    pub pci_devices: Vec<PciDevice>,
    pub nvml: Nvml,
    /// What could not be read, and what to do about it.
    pub notes: Vec<String>,
}

/// Reads everything. Fails only where nothing at all can be said about the node.
pub fn collect(sources: &Sources) -> Result<Machine, sysfs::Error> {
    let sysfs = Tree::open(&sources.sysfs_root, "--sysfs-root")?;
    let proc = Tree::open(&sources.proc_root, "--proc-root")?;
    let mut notes = Vec::new();
    let numa_nodes = numa::read(&sysfs, &proc, &mut notes)?;
    let pci_devices = pci::read(&sysfs, &mut notes);
    let nvml = nvml::read(sources.nvml_library.clone());
    let mut machine = Machine { numa_nodes, pci_devices, nvml, notes };
    machine.compare_with_nvml(&proc);
    Ok(machine)
}

impl Machine {
    /// The NUMA node of the PCI device at `address`, if known.
    pub fn numa_of(&self, address: &str) -> Option<u32> {
        self.pci_devices.iter().find(|d| d.address == address)?.numa_node
    }

    /// Says where the PCI bus and NVML disagree: a GPU may be lost, or driven by something else.
    fn compare_with_nvml(&mut self, proc: &Tree) {
        let on_bus = self.pci_devices.iter().filter(|d| d.is_nvidia_gpu());
        match &self.nvml {
            Nvml::Available { gpus, .. } => {
                let known = |d: &PciDevice| {
                    gpus.iter().any(|g| g.pci_bus_id.as_deref() == Some(d.address.as_str()))
                };
                self.notes.extend(on_bus.filter(|d| !known(d)).map(|d| {
                    format!(
                        "{}: on the PCI bus but not reported by NVML; look for Xid lines in dmesg \
                         and at its driver (vfio-pci means passed through)",
                        d.address
                    )
                }));
            }
            Nvml::Unavailable { .. } => {
                let count = on_bus.count();
                if count == 0 {
                    return;
                }
                let driver = match proc.read_first_line("driver/nvidia/version") {
                    Ok(line) => format!("the kernel driver is loaded ({line})"),
                    Err(_) => "the kernel driver is not loaded".to_owned(),
                };
                self.notes.push(format!(
                    "{count} NVIDIA GPU(s) on the PCI bus but NVML does not answer; {driver}"
                ));
            }
        }
    }
}
