//! GPUs that are divided.

use std::ffi::{c_char, c_uint};

use muster_machines::{Mig, MigDevice, MigProfile};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t, nvmlGpuInstanceProfileInfo_v2_t,
    nvmlReturn_t,
};

use crate::memory::{field, get, list, put};
use crate::{Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, World, answer, device_functions};

impl World {
    /// How a GPU is divided now; `None` if it cannot be.
    pub(crate) fn division(&self, gpu: u32) -> Option<&Mig> {
        self.faults.mig.get(&gpu).or_else(|| self.at(gpu).ok()?.mig.as_ref())
    }

    /// The part that a handle names.
    pub(crate) fn part(&self, handle: Handle) -> Result<MigDevice, u32> {
        let mig = self.division(handle.gpu).filter(|mig| mig.enabled).ok_or(NOT_FOUND)?;
        let part = mig.devices.iter().find(|d| Some(d.instance) == handle.instance);
        part.cloned().ok_or(NOT_FOUND)
    }

    fn profile(&self, name: &str) -> Result<&MigProfile, u32> {
        self.machine.model.mig_profiles.iter().find(|p| p.name == name).ok_or(NOT_FOUND)
    }

    fn profile_at(&self, index: u32) -> Result<&MigProfile, u32> {
        let found = self.machine.model.mig_profiles.iter().find(|p| p.index == index);
        found.ok_or(NOT_SUPPORTED)
    }

    fn enabled(&self, gpu: u32) -> bool {
        self.division(gpu).is_some_and(|mig| mig.enabled)
    }
}

device_functions! {
    fn nvmlDeviceGetMigMode(handle, gpu, world; current: *mut c_uint, pending: *mut c_uint) {
        if world.machine.model.mig_profiles.is_empty() {
            return Err(NOT_SUPPORTED);
        }
        let enabled = c_uint::from(world.enabled(handle.gpu));
        put(current, enabled)?;
        put(pending, enabled)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(handle, gpu, world; count: *mut c_uint) {
        put(count, if world.machine.model.mig_profiles.is_empty() { 0 } else { 7 })
    }

    // The driver leaves holes: here, the index is the id of the instance modulo 7.
    fn nvmlDeviceGetMigDeviceHandleByIndex(handle, gpu, world; index: c_uint, part: *mut nvmlDevice_t) {
        let mig = world.division(handle.gpu).filter(|mig| mig.enabled).ok_or(NOT_FOUND)?;
        let found = mig.devices.iter().find(|d| d.instance % 7 == index).ok_or(NOT_FOUND)?;
        put(part, Handle { gpu: handle.gpu, instance: Some(found.instance) }.to_device())
    }

    fn nvmlDeviceIsMigDeviceHandle(handle, gpu, world; is: *mut c_uint) {
        put(is, c_uint::from(handle.instance.is_some()))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle, gpu, world; parent: *mut nvmlDevice_t) {
        put(parent, Handle { gpu: handle.gpu, instance: None }.to_device())
    }

    fn nvmlDeviceGetGpuInstanceId(handle, gpu, world; id: *mut c_uint) {
        put(id, world.part(handle)?.instance)
    }

    fn nvmlDeviceGetComputeInstanceId(handle, gpu, world; id: *mut c_uint) {
        world.part(handle)?;
        put(id, 0)
    }

    fn nvmlDeviceGetAttributes_v2(handle, gpu, world; attributes: *mut nvmlDeviceAttributes_t) {
        let profile = world.profile(&world.part(handle)?.profile)?;
        put(attributes, nvmlDeviceAttributes_t {
            multiprocessorCount: profile.slices * 14,
            sharedCopyEngineCount: profile.slices,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: profile.slices,
            computeInstanceSliceCount: profile.slices,
            memorySizeMB: profile.memory,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfo(handle, gpu, world; profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_t) {
        let profile = world.profile_at(profile)?;
        put(info, nvmlGpuInstanceProfileInfo_t {
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.slices,
            instanceCount: profile.starts.len() as c_uint,
            multiprocessorCount: profile.slices * 14,
            copyEngineCount: profile.slices,
            decoderCount: 0,
            encoderCount: 0,
            jpegCount: 0,
            ofaCount: 0,
            memorySizeMB: profile.memory,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(handle, gpu, world; profile: c_uint, info: *mut nvmlGpuInstanceProfileInfo_v2_t) {
        let mut found = get(info)?;
        let profile = world.profile_at(profile)?;
        found.id = profile.id;
        found.sliceCount = profile.slices;
        found.instanceCount = profile.starts.len() as c_uint;
        found.memorySizeMB = profile.memory;
        found.name = field::<96>(&format!("MIG {}", profile.name)).map(|c| c as c_char);
        put(info, found)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle, gpu, world; id: c_uint, placements: *mut nvmlGpuInstancePlacement_t, count: *mut c_uint) {
        if !world.enabled(handle.gpu) {
            return Err(NOT_SUPPORTED);
        }
        let profiles = &world.machine.model.mig_profiles;
        let profile = profiles.iter().find(|p| p.id == id).ok_or(INVALID_ARGUMENT)?;
        let place = |&start: &u32| nvmlGpuInstancePlacement_t { start, size: profile.size };
        let all: Vec<_> = profile.starts.iter().map(place).collect();
        // Asked with no place to write to, the real one tells the number.
        if placements.is_null() {
            return put(count, all.len() as c_uint);
        }
        list(placements, count, &all)
    }

    fn nvmlDeviceGetGpuInstanceById(handle, gpu, world; id: c_uint, instance: *mut nvmlGpuInstance_t) {
        let part = Handle { gpu: handle.gpu, instance: Some(id) };
        world.part(part)?;
        put(instance, part.to_device().cast())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpuInstanceGetInfo(
    instance: nvmlGpuInstance_t,
    info: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    answer("nvmlGpuInstanceGetInfo", |world| {
        let (handle, _) = world.gpu(instance.cast())?;
        let part = world.part(handle)?;
        let profile = world.profile(&part.profile)?;
        put(
            info,
            nvmlGpuInstanceInfo_t {
                device: Handle { gpu: handle.gpu, instance: None }.to_device(),
                id: part.instance,
                profileId: profile.id,
                placement: nvmlGpuInstancePlacement_t { start: part.start, size: profile.size },
            },
        )
    })
}
