//! What a node really is: NUMA nodes, CPUs, memory, hugepages, PCI devices, GPUs, links and NICs.
//!
//! Owns the reading of these facts; [`reader::Reader`] gives them to the rest of the agent. Must
//! never guess: a fact that cannot be read is absent and a condition says why. Must never fail
//! because a node has no GPU, driver or NUMA.

pub mod agent;
mod band;
pub mod cpulist;
mod findings;
mod health;
mod join;
pub mod kubelet;
mod nic;
pub mod numa;
pub mod nvml;
pub mod pci;
pub mod podresources;
pub mod print;
pub mod reader;
pub mod reading;
pub mod sysfs;

use std::path::PathBuf;

/// Where to look.
#[derive(Clone, Debug)]
pub struct Sources {
    pub sysfs_root: PathBuf,
    pub proc_root: PathBuf,
    /// The NVML library to load; the system's `libnvidia-ml.so.1` if absent.
    pub nvml_library: Option<PathBuf>,
}
