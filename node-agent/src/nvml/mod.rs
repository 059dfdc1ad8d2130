//! What NVIDIA's management library (NVML) says about the GPUs.
//!
//! Owns every call into NVML. Must never let a driver hang the agent (the calls run on
//! their own thread, see [`client`]), and never fail where there is no GPU: it says why
//! instead. A function that the driver does not have is a fact that is absent.

pub mod client;
pub mod events;
mod glance;
mod links;
mod mig;
mod query;
mod raw;

use muster_api::muster::node_topology::{Fabric, Mig, PciPath};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;

pub use client::{Client, Outlook};

use crate::cpulist::CpuList;
use crate::pci::Address;

/// All that NVML tells at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub driver: Option<String>,
    pub version: Option<String>,
    pub gpus: Vec<NvmlGpu>,
    pub pairs: Vec<Pair>,
    /// What single GPUs did not answer.
    pub problems: Vec<String>,
    /// Functions that this driver does not have.
    pub missing: Vec<&'static str>,
}

/// A GPU as NVML tells it. What it does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NvmlGpu {
    pub index: u32,
    /// It does not answer any more.
    pub lost: bool,
    /// In the form of sysfs.
    pub address: Option<String>,
    pub uuid: Option<String>,
    pub minor: Option<u32>,
    pub model: Option<String>,
    pub architecture: Option<String>,
    pub compute: Option<(u32, u32)>,
    pub memory_bytes: Option<u64>,
    pub memory_used_bytes: Option<u64>,
    pub module: Option<u32>,
    pub memory_numa: Option<u32>,
    /// CPUs beside it.
    pub affinity: Option<CpuList>,
    pub links: Links,
    pub fabric: Option<Fabric>,
    pub platform: Option<Platform>,
    pub mig: Option<Mig>,
    pub health: Health,
    pub utilisation_percent: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub processes: Option<u32>,
}

/// The NVLinks of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    pub total: u32,
    /// Which links are up: a bit for each.
    pub up: u64,
    /// Active links by what they lead to.
    pub active: Vec<Remote>,
    pub megabytes_per_second: u32,
}

/// What an active link leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remote {
    Switch,
    /// The address of a GPU, in the form of sysfs.
    Gpu(String),
}

impl Links {
    pub fn to_switch(&self) -> u32 {
        self.count(|remote| *remote == Remote::Switch)
    }

    pub fn to(&self, address: &str) -> u32 {
        self.count(|remote| matches!(remote, Remote::Gpu(other) if other == address))
    }

    fn count(&self, is: impl Fn(&Remote) -> bool) -> u32 {
        self.active.iter().filter(|remote| is(remote)).count() as u32
    }
}

/// What NVML says about two GPUs, named by their places in the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub a: usize,
    pub b: usize,
    pub path: Option<PciPath>,
    /// Whether they can talk over NVLink; asked only where switches are between them.
    pub nvlink: Option<bool>,
}

/// Where a GPU is in its rack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    pub chassis: String,
    pub slot: u32,
    pub tray: u32,
    pub host: u32,
}

/// What a GPU says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// As NVML numbers it.
    pub recovery_action: Option<u64>,
    pub remap_pending: bool,
    pub remap_failed: bool,
    pub retirement_pending: bool,
    /// Since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
}

/// NVML pads the domain to eight digits, and the text may cut it: the numbers decide.
fn bus_id(pci: &PciInfo) -> String {
    let function = Address::parse(&pci.bus_id).map_or(0, |address| address.function);
    let PciInfo { domain, bus, device, .. } = *pci;
    Address { domain, bus, device, function }.to_string()
}

/// Whether it means that the driver does not have the function, or the GPU not the feature.
fn is_absent(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotSupported | NvmlError::NoData | NvmlError::NotFound)
        || is_missing(error)
}

fn is_missing(error: &NvmlError) -> bool {
    matches!(error, NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound)
}

/// The error in the words of someone who has to fix it.
fn explain(error: &NvmlError) -> String {
    let remedy = match error {
        NvmlError::LibloadingError(cause) => {
            let cause = cause.to_string();
            // dlopen has no error codes, only texts.
            return if cause.contains("No such file") {
                format!(
                    "library not found: {cause}; without NVIDIA GPUs this is as it should be, else \
                     install the driver or give its path with --nvml-library"
                )
            } else {
                format!("library not loaded: {cause}; is it built for this machine?")
            };
        }
        NvmlError::FailedToLoadSymbol(_) => "the driver is too old, or the library not NVIDIA's",
        NvmlError::DriverNotLoaded => "load the kernel module (modprobe nvidia)",
        NvmlError::LibRmVersionMismatch => "reboot, or reload the kernel module, after an update",
        NvmlError::NoPermission => "allow access to /dev/nvidiactl and /dev/nvidia*",
        NvmlError::GpuLost => "drain the node and reset the GPU or reboot",
        NvmlError::ResetRequired => "drain the node and run nvidia-smi --gpu-reset",
        _ => return error.to_string(),
    };
    format!("{error}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_id_is_that_of_sysfs() {
        let pci = |domain, bus_id: &str| PciInfo {
            bus: 7,
            bus_id: bus_id.to_owned(),
            device: 0,
            domain,
            pci_device_id: 0,
            pci_sub_system_id: None,
        };
        assert_eq!(bus_id(&pci(0, "00000000:07:00.0")), "0000:07:00.0");
        assert_eq!(bus_id(&pci(0x1_0000, "00010000:07:00.1")), "10000:07:00.1");
        assert_eq!(bus_id(&pci(1, "")), "0001:07:00.0");
    }
}
