//! What NVIDIA's management library (NVML) says about the GPUs.
//!
//! Owns every call into NVML. Must never let a driver hang or crash the program (the calls run on
//! their own thread, with a time limit), and never fail where there is no GPU: it says why instead.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::PciInfo;
use nvml_wrapper::{Device, Nvml as Library};
use serde::Serialize;

use crate::pci::Address;

const SONAME: &str = "libnvidia-ml.so.1";
/// Without persistence mode the driver initialises each GPU on first use, which takes seconds.
const TIME_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Nvml {
    Available {
        driver_version: Option<String>,
        gpus: Vec<Gpu>,
        /// What single GPUs did not answer.
        problems: Vec<String>,
    },
    Unavailable {
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Gpu {
    pub index: u32,
    pub uuid: Option<String>,
    pub name: Option<String>,
    pub memory_bytes: Option<u64>,
    /// In the form of sysfs.
    pub pci_bus_id: Option<String>,
}

/// Loads the library (the system's, if none is given) and asks it for all GPUs.
pub fn read(library: Option<PathBuf>) -> Nvml {
    let (sender, receiver) = mpsc::channel();
    let work = move || {
        let name = library.as_ref().map_or(OsStr::new(SONAME), |path| path.as_os_str());
        // Nobody listens any more after the time limit.
        let _ = sender.send(inventory(name));
    };
    if let Err(error) = thread::Builder::new().name("nvml".to_owned()).spawn(work) {
        return unavailable(format!("no thread for it: {error}; raise the limit of processes"));
    }
    match receiver.recv_timeout(TIME_LIMIT) {
        Ok(Ok(nvml)) => nvml,
        Ok(Err(error)) => unavailable(explain(&error)),
        Err(RecvTimeoutError::Timeout) => unavailable(format!(
            "no answer within {} s; look for Xid lines in dmesg",
            TIME_LIMIT.as_secs()
        )),
        Err(RecvTimeoutError::Disconnected) => {
            unavailable("the library crashed; is it really NVIDIA's?".to_owned())
        }
    }
}

fn unavailable(reason: String) -> Nvml {
    Nvml::Unavailable { reason }
}

fn inventory(name: &OsStr) -> Result<Nvml, NvmlError> {
    let library = Library::builder().lib_path(name).init()?;
    let found = library.device_count().map(|count| {
        let mut problems = Vec::new();
        let gpus = (0..count).filter_map(|i| read_gpu(&library, i, &mut problems)).collect();
        Nvml::Available { driver_version: library.sys_driver_version().ok(), gpus, problems }
    });
    if library.lib().nvmlShutdown.is_err() {
        // The wrapper would panic when dropped; the process ends soon anyway.
        std::mem::forget(library);
    }
    found
}

fn read_gpu(library: &Library, index: u32, problems: &mut Vec<String>) -> Option<Gpu> {
    let mut noted = |what: &str, error: &NvmlError| {
        problems.push(format!("GPU {index}: {what}: {}", explain(error)));
    };
    let device: Device<'_> =
        library.device_by_index(index).map_err(|e| noted("handle", &e)).ok()?;
    Some(Gpu {
        index,
        uuid: device.uuid().map_err(|e| noted("uuid", &e)).ok(),
        name: device.name().map_err(|e| noted("name", &e)).ok(),
        memory_bytes: device.memory_info().map_err(|e| noted("memory", &e)).ok().map(|m| m.total),
        pci_bus_id: device.pci_info().map_err(|e| noted("PCI", &e)).ok().map(|p| bus_id(&p)),
    })
}

/// NVML pads the domain to eight digits, and the text may cut it: the numbers decide.
fn bus_id(pci: &PciInfo) -> String {
    let function = Address::parse(&pci.bus_id).map_or(0, |address| address.function);
    let PciInfo { domain, bus, device, .. } = *pci;
    Address { domain, bus, device, function }.to_string()
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

    fn reason(library: PathBuf) -> String {
        match read(Some(library)) {
            Nvml::Unavailable { reason } => reason,
            available @ Nvml::Available { .. } => panic!("{available:?}"),
        }
    }

    #[test]
    fn says_why_there_is_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libnvidia-ml.so.1");
        let missing = reason(library.clone());
        assert!(missing.starts_with("library not found: "), "{missing}");

        std::fs::write(&library, "not a library".repeat(100)).unwrap();
        let broken = reason(library);
        assert!(broken.starts_with("library not loaded: "), "{broken}");
    }

    #[test]
    fn another_library_is_refused() {
        let other = reason(PathBuf::from("libc.so.6"));
        assert!(other.contains("the driver is too old, or the library not NVIDIA's"), "{other}");
    }

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
