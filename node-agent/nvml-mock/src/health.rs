//! How GPUs are: errors, power, work.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{nvmlProcessInfo_t, nvmlUtilization_t};

use crate::memory::{list, put};
use crate::{NOT_SUPPORTED, World, device_functions};

const LINK_SPEED: u32 = 90;
const LINK_COUNT: u32 = 91;
const LINK_STATE: u32 = 165;
const RECOVERY_ACTION: u32 = 230;
/// NVML's number of the architecture.
const HOPPER: u32 = 9;
/// From this driver on the mock tells the recovery action: a number chosen for tests.
const RECOVERY_SINCE: u32 = 565;

impl World {
    /// In percent.
    pub(crate) fn utilisation(&self, gpu: u32) -> u64 {
        u64::from(self.faults.utilisation.get(&gpu).copied().unwrap_or(0))
    }

    /// A field of a GPU.
    pub(crate) fn field(&self, gpu: u32, id: u32, scope: u32) -> Result<u32, u32> {
        let model = &self.machine.model;
        match id {
            LINK_COUNT => Ok(model.links),
            // Chips before Hopper are asked link by link.
            LINK_STATE if scope < model.links && model.architecture >= HOPPER => {
                Ok(u32::from(self.is_up(gpu, scope)))
            }
            LINK_SPEED if model.links > 0 => Ok(model.link_speed),
            RECOVERY_ACTION => {
                let driver = self.machine.driver.as_deref().unwrap_or_default();
                let major = driver.split('.').next().and_then(|n| n.parse::<u32>().ok());
                if major.is_none_or(|major| major < RECOVERY_SINCE) {
                    return Err(NOT_SUPPORTED);
                }
                Ok(self.faults.recovery.get(&gpu).copied().unwrap_or(0))
            }
            _ => Err(NOT_SUPPORTED),
        }
    }
}

device_functions! {
    fn nvmlDeviceGetUtilizationRates(handle, gpu, world; rates: *mut nvmlUtilization_t) {
        // A divided GPU does not tell.
        if world.division(handle.gpu).is_some_and(|mig| mig.enabled) {
            return Err(NOT_SUPPORTED);
        }
        let percent = world.utilisation(handle.gpu) as c_uint;
        put(rates, nvmlUtilization_t { gpu: percent, memory: percent / 2 })
    }

    fn nvmlDeviceGetPowerUsage(handle, gpu, world; milliwatts: *mut c_uint) {
        put(milliwatts, 70_000 + 5_000 * world.utilisation(handle.gpu) as c_uint)
    }

    fn nvmlDeviceGetTemperature(handle, gpu, world; _sensor: c_uint, celsius: *mut c_uint) {
        put(celsius, 30 + world.utilisation(handle.gpu) as c_uint / 4)
    }

    fn nvmlDeviceGetTotalEccErrors(handle, gpu, world; kind: c_uint, _counter: c_uint, count: *mut c_ulonglong) {
        let uncorrected = world.faults.ecc.get(&handle.gpu).copied().unwrap_or(0);
        put(count, if kind == 1 { uncorrected } else { 0 })
    }

    fn nvmlDeviceGetRemappedRows(handle, gpu, world; corrected: *mut c_uint, uncorrected: *mut c_uint, pending: *mut c_uint, failed: *mut c_uint) {
        let fault = world.faults.remap.get(&handle.gpu);
        put(corrected, 0)?;
        put(uncorrected, c_uint::from(fault.is_some()))?;
        put(pending, c_uint::from(fault == Some(&false)))?;
        put(failed, c_uint::from(fault == Some(&true)))
    }

    fn nvmlDeviceGetRetiredPagesPendingStatus(handle, gpu, world; pending: *mut c_uint) {
        // Only chips before those that replace rows.
        if world.machine.model.architecture >= 7 {
            return Err(NOT_SUPPORTED);
        }
        put(pending, c_uint::from(world.faults.remap.contains_key(&handle.gpu)))
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(handle, gpu, world; count: *mut c_uint, infos: *mut nvmlProcessInfo_t) {
        let processes = world.faults.processes.get(&handle.gpu).copied().unwrap_or(0);
        let info = |i| nvmlProcessInfo_t {
            pid: 1000 + i,
            usedGpuMemory: 1 << 30,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        let all: Vec<_> = (0..processes).map(info).collect();
        list(infos, count, &all)
    }
}
