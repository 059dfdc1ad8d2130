//! Calls that nvml-wrapper 0.13 lacks, or makes wrongly: `NvLink::remote_device_type`
//! always says "unknown" and `Device::possible_placements` is always empty, because both
//! lose what the library wrote.
//!
//! Owns all `unsafe` of the agent: each function passes a handle that NVML gave, and
//! pointers to values of its own, of the type that NVML's header names.
#![expect(unsafe_code, reason = "calls into a C library that the safe wrapper does not make")]

use std::ffi::CStr;
use std::mem::size_of;
use std::ptr;

use muster_api::muster::node_topology::{Fabric, FabricHealth, FabricState, MigPlacement};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try, nvml_try_count};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlGpuFabricInfo_v2_t,
    nvmlGpuFabricInfo_v3_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t, nvmlMemory_t, nvmlPlatformInfo_v2_t, nvmlValue_t,
};

use super::Platform;

type Answer<T> = Result<T, NvmlError>;

const TYPE_SWITCH: u32 = 2;
const TYPE_UNKNOWN: u32 = 255;
/// More placements than any profile has.
const MAX_PLACEMENTS: u32 = 64;

/// The version field of a structure.
fn version<T>(number: usize) -> u32 {
    (size_of::<T>() | (number << 24)) as u32
}

/// Whether a link leads to a switch; `None` if the driver does not know.
pub(super) fn leads_to_switch(nvml: &Nvml, device: &Device<'_>, link: u32) -> Answer<Option<bool>> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref())?;
    let mut kind = TYPE_UNKNOWN;
    unsafe { nvml_try(call(device.handle(), link, &raw mut kind))? };
    Ok((kind != TYPE_UNKNOWN).then_some(kind == TYPE_SWITCH))
}

/// What the fabric manager says, in the newest form that the driver has.
pub(super) fn fabric(nvml: &Nvml, device: &Device<'_>) -> Answer<Fabric> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetGpuFabricInfoV.as_ref())?;
    let mut info = nvmlGpuFabricInfo_v3_t {
        version: version::<nvmlGpuFabricInfo_v3_t>(3),
        clusterUuid: [0; 16],
        status: 0,
        cliqueId: 0,
        state: 0,
        healthMask: 0,
        healthSummary: 0,
    };
    if unsafe { nvml_try(call(device.handle(), &raw mut info)) }.is_err() {
        // An older driver writes the shorter structure, which is a beginning of this one.
        info.version = version::<nvmlGpuFabricInfo_v2_t>(2);
        unsafe { nvml_try(call(device.handle(), &raw mut info))? };
    }
    Ok(Fabric {
        cluster_uuid: (info.clusterUuid != [0; 16]).then(|| uuid(&info.clusterUuid)),
        clique: info.cliqueId,
        state: match info.state {
            0 => FabricState::NotSupported,
            1 => FabricState::NotStarted,
            2 => FabricState::InProgress,
            3 => FabricState::Completed,
            _ => FabricState::Unknown,
        },
        error: nvml_try(info.status).err().map(|error| error.to_string()),
        health: match info.healthSummary {
            1 => FabricHealth::Healthy,
            2 => FabricHealth::Unhealthy,
            3 => FabricHealth::Limited,
            _ => FabricHealth::Unknown,
        },
    })
}

fn uuid(bytes: &[u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Fields of a GPU, each by its id and scope (of a link's, the link): the value, or NVML's return
/// value if there is none.
pub(super) fn fields(
    nvml: &Nvml,
    device: &Device<'_>,
    wanted: &[(u32, u32)],
) -> Answer<Vec<Result<u64, u32>>> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetFieldValues.as_ref())?;
    let blank = |&(field, scope): &(u32, u32)| nvmlFieldValue_t {
        fieldId: field,
        scopeId: scope,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: 0,
        value: nvmlValue_t { ullVal: 0 },
    };
    let mut values: Vec<nvmlFieldValue_t> = wanted.iter().map(blank).collect();
    let count = i32::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
    unsafe { nvml_try(call(device.handle(), count, values.as_mut_ptr()))? };
    // Values that are shorter leave the rest as it was: 0.
    let value = |v: &nvmlFieldValue_t| match v.nvmlReturn {
        0 => Ok(unsafe { v.value.ullVal }),
        error => Err(error),
    };
    Ok(values.iter().map(value).collect())
}

pub(super) fn module(nvml: &Nvml, device: &Device<'_>) -> Answer<u32> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetModuleId.as_ref())?;
    let mut module = 0;
    unsafe { nvml_try(call(device.handle(), &raw mut module))? };
    Ok(module)
}

pub(super) fn platform(nvml: &Nvml, device: &Device<'_>) -> Answer<Platform> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetPlatformInfo.as_ref())?;
    let mut info = nvmlPlatformInfo_v2_t {
        version: version::<nvmlPlatformInfo_v2_t>(2),
        ibGuid: [0; 16],
        chassisSerialNumber: [0; 16],
        slotNumber: 0,
        trayIndex: 0,
        hostId: 0,
        peerType: 0,
        moduleId: 0,
    };
    unsafe { nvml_try(call(device.handle(), &raw mut info))? };
    let serial = CStr::from_bytes_until_nul(&info.chassisSerialNumber);
    Ok(Platform {
        chassis: serial.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default(),
        slot: info.slotNumber.into(),
        tray: info.trayIndex.into(),
        host: info.hostId.into(),
    })
}

/// Total and used memory from the function that drivers before 510 have.
pub(super) fn memory_v1(nvml: &Nvml, device: &Device<'_>) -> Answer<(u64, u64)> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    unsafe { nvml_try(call(device.handle(), &raw mut memory))? };
    Ok((memory.total, memory.used))
}

/// Rows of memory that wait for a reset to be replaced, and whether a replacement failed.
pub(super) fn remapped_rows(nvml: &Nvml, device: &Device<'_>) -> Answer<(bool, bool)> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetRemappedRows.as_ref())?;
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
    unsafe {
        nvml_try(call(
            device.handle(),
            &raw mut corrected,
            &raw mut uncorrected,
            &raw mut pending,
            &raw mut failed,
        ))?;
    }
    Ok((pending != 0, failed != 0))
}

/// Ids of GPU instance and compute instance of a part.
pub(super) fn instance_ids(nvml: &Nvml, part: &Device<'_>) -> Answer<(u32, u32)> {
    let gpu = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let (mut gpu_id, mut compute_id) = (0, 0);
    unsafe {
        nvml_try(gpu(part.handle(), &raw mut gpu_id))?;
        nvml_try(compute(part.handle(), &raw mut compute_id))?;
    }
    Ok((gpu_id, compute_id))
}

/// The profile's id, and where the instance lies.
pub(super) fn instance(nvml: &Nvml, gpu: &Device<'_>, id: u32) -> Answer<(u32, MigPlacement)> {
    let by_id = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceById.as_ref())?;
    let get_info = nvml_sym(nvml.lib().nvmlGpuInstanceGetInfo.as_ref())?;
    let mut handle: nvmlGpuInstance_t = ptr::null_mut();
    let mut info = nvmlGpuInstanceInfo_t {
        device: ptr::null_mut(),
        id: 0,
        profileId: 0,
        placement: nvmlGpuInstancePlacement_t { start: 0, size: 0 },
    };
    unsafe {
        nvml_try(by_id(gpu.handle(), id, &raw mut handle))?;
        nvml_try(get_info(handle, &raw mut info))?;
    }
    let nvmlGpuInstancePlacement_t { start, size } = info.placement;
    Ok((info.profileId, MigPlacement { start, size }))
}

/// A way to divide a GPU: id, slices and memory in MiB.
pub(super) fn profile(nvml: &Nvml, gpu: &Device<'_>, index: u32) -> Answer<(u32, u32, u64)> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceProfileInfo.as_ref())?;
    let mut info = nvmlGpuInstanceProfileInfo_t {
        id: 0,
        isP2pSupported: 0,
        sliceCount: 0,
        instanceCount: 0,
        multiprocessorCount: 0,
        copyEngineCount: 0,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: 0,
    };
    unsafe { nvml_try(call(gpu.handle(), index, &raw mut info))? };
    Ok((info.id, info.sliceCount, info.memorySizeMB))
}

/// Where instances of a profile may lie.
pub(super) fn placements(nvml: &Nvml, gpu: &Device<'_>, profile: u32) -> Answer<Vec<MigPlacement>> {
    let call = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstancePossiblePlacements_v2.as_ref())?;
    let mut count = 0;
    unsafe {
        nvml_try_count(call(gpu.handle(), profile, ptr::null_mut(), &raw mut count))?;
    }
    count = count.min(MAX_PLACEMENTS);
    let mut places = vec![nvmlGpuInstancePlacement_t { start: 0, size: 0 }; count as usize];
    unsafe {
        nvml_try(call(gpu.handle(), profile, places.as_mut_ptr(), &raw mut count))?;
    }
    places.truncate(count as usize);
    let place = |p: &nvmlGpuInstancePlacement_t| MigPlacement { start: p.start, size: p.size };
    Ok(places.iter().map(place).collect())
}

/// The number of a device's handle: the same in all events about it.
pub(super) fn number(device: &Device<'_>) -> usize {
    unsafe { device.handle() as usize }
}

/// A set of events. Unlike the wrapper's it tells the GPU instance, and may be dropped
/// whatever functions the library lacks.
pub(super) struct EventSet<'a> {
    nvml: &'a Nvml,
    set: nvmlEventSet_t,
}

/// Something that happened to a GPU.
pub(super) struct RawEvent {
    pub(super) device: usize,
    pub(super) kind: u64,
    pub(super) data: u64,
    pub(super) instance: Option<u32>,
}

impl<'a> EventSet<'a> {
    pub(super) fn new(nvml: &'a Nvml) -> Answer<Self> {
        let call = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        let mut set: nvmlEventSet_t = ptr::null_mut();
        unsafe { nvml_try(call(&raw mut set))? };
        Ok(Self { nvml, set })
    }

    /// Asks for those of the kinds that the device has.
    pub(super) fn register(&self, device: &Device<'_>, kinds: u64) -> Answer<()> {
        let supported = nvml_sym(self.nvml.lib().nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let call = nvml_sym(self.nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
        let mut known = 0;
        unsafe {
            nvml_try(supported(device.handle(), &raw mut known))?;
            nvml_try(call(device.handle(), kinds & known, self.set))
        }
    }

    pub(super) fn wait(&self, milliseconds: u32) -> Answer<RawEvent> {
        let call = nvml_sym(self.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
        let mut data = nvmlEventData_t {
            device: ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        unsafe { nvml_try(call(self.set, &raw mut data, milliseconds))? };
        Ok(RawEvent {
            device: data.device as usize,
            kind: data.eventType,
            data: data.eventData,
            instance: (data.gpuInstanceId != u32::MAX).then_some(data.gpuInstanceId),
        })
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        if let Ok(call) = self.nvml.lib().nvmlEventSetFree.as_ref() {
            // An error leaves nothing to do: the set is not used again.
            let _ = unsafe { call(self.set) };
        }
    }
}
