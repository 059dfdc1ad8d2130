//! Which GPUs there are, and what each of them is.

use std::ffi::{c_char, c_int, c_uint, c_ulong};
use std::mem::size_of;

use muster_machines::cpus;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlPlatformInfo_v2_t, nvmlReturn_t,
};

use crate::memory::{fill, get, put, string, text};
use crate::{
    Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH, World, answer,
    device_functions,
};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    match crate::start() {
        Ok(()) => answer("nvmlInit_v2", |_| Ok(())),
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(_result: nvmlReturn_t) -> *const c_char {
    c"an error of the mock".as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    answer("nvmlSystemGetDriverVersion", |world| {
        text(version, length, world.machine.driver.as_deref().unwrap_or_default())
    })
}

/// The library's version is that of CUDA and that of the driver.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    answer("nvmlSystemGetNVMLVersion", |world| {
        let driver = world.machine.driver.as_deref().unwrap_or_default();
        let cuda = if driver.starts_with("580") { 13 } else { 12 };
        text(version, length, &format!("{cuda}.{driver}"))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int) -> nvmlReturn_t {
    answer("nvmlSystemGetCudaDriverVersion_v2", |_| put(version, 12_040))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    answer("nvmlDeviceGetCount_v2", |world| put(count, world.present().len() as c_uint))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer("nvmlDeviceGetHandleByIndex_v2", |world| {
        let gpu = *world.present().get(index as usize).ok_or(INVALID_ARGUMENT)?;
        put(device, handle(world, gpu)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(
    uuid: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer("nvmlDeviceGetHandleByUUID", |world| {
        let uuid = string(uuid)?;
        let is = |&gpu: &u32| world.at(gpu).is_ok_and(|g| g.uuid() == uuid);
        put(device, handle(world, world.present().into_iter().find(is).ok_or(NOT_FOUND)?)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    answer("nvmlDeviceGetHandleByPciBusId_v2", |world| {
        let wanted = string(bus_id)?.to_lowercase();
        let is = |&gpu: &u32| world.at(gpu).is_ok_and(|g| wanted.ends_with(g.address()));
        put(device, handle(world, world.present().into_iter().find(is).ok_or(NOT_FOUND)?)?)
    })
}

/// A handle of a GPU that is lost cannot be had either.
fn handle(world: &World, gpu: u32) -> Result<nvmlDevice_t, u32> {
    let device = Handle { gpu, instance: None }.to_device();
    world.gpu(device).map(|_| device)
}

/// An address as NVML has it; all is zero for none.
pub(crate) fn pci_info(address: &str, device: u16) -> nvmlPciInfo_t {
    let mut numbers = address.split([':', '.']).map(|t| c_uint::from_str_radix(t, 16).unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    let (domain, bus, slot, function) = (next(), next(), next(), next());
    let long = format!("{domain:08X}:{bus:02X}:{slot:02X}.{function:X}");
    let short = format!("{:04X}:{bus:02X}:{slot:02X}.{function:X}", domain & 0xffff);
    let name = |text: String| if address.is_empty() { String::new() } else { text };
    nvmlPciInfo_t {
        busIdLegacy: crate::memory::field(&name(short)),
        domain,
        bus,
        device: slot,
        pciDeviceId: (c_uint::from(device) << 16) | 0x10de,
        pciSubSystemId: 0x1463_10de,
        busId: crate::memory::field(&name(long)),
    }
}

device_functions! {
    fn nvmlDeviceGetName(handle, gpu, world; name: *mut c_char, length: c_uint) {
        text(name, length, &world.machine.model.name)
    }

    fn nvmlDeviceGetUUID(handle, gpu, world; uuid: *mut c_char, length: c_uint) {
        match handle.instance {
            None => text(uuid, length, &gpu.uuid()),
            Some(_) => text(uuid, length, &gpu.mig_uuid(&world.part(handle)?)),
        }
    }

    fn nvmlDeviceGetIndex(handle, gpu, world; index: *mut c_uint) {
        let at = world.present().iter().position(|&g| g == handle.gpu).ok_or(NOT_FOUND)?;
        put(index, at as c_uint)
    }

    fn nvmlDeviceGetMinorNumber(handle, gpu, world; minor: *mut c_uint) {
        put(minor, handle.gpu)
    }

    fn nvmlDeviceGetPciInfo_v3(handle, gpu, world; pci: *mut nvmlPciInfo_t) {
        put(pci, pci_info(gpu.address(), world.machine.model.device))
    }

    fn nvmlDeviceGetMemoryInfo(handle, gpu, world; memory: *mut nvmlMemory_t) {
        let total = world.machine.model.memory << 20;
        put(memory, nvmlMemory_t { total, free: total, used: 0 })
    }

    fn nvmlDeviceGetMemoryInfo_v2(handle, gpu, world; memory: *mut nvmlMemory_v2_t) {
        let version = get(memory)?.version;
        if version != (size_of::<nvmlMemory_v2_t>() | (2 << 24)) as u32 {
            return Err(VERSION_MISMATCH);
        }
        let total = world.machine.model.memory << 20;
        let used = world.utilisation(handle.gpu) * (total / 200);
        put(memory, nvmlMemory_v2_t { version, total, reserved: 0, free: total - used, used })
    }

    fn nvmlDeviceGetCudaComputeCapability(handle, gpu, world; major: *mut c_int, minor: *mut c_int) {
        put(major, world.machine.model.compute.0)?;
        put(minor, world.machine.model.compute.1)
    }

    fn nvmlDeviceGetArchitecture(handle, gpu, world; architecture: *mut c_uint) {
        put(architecture, world.machine.model.architecture)
    }

    fn nvmlDeviceGetModuleId(handle, gpu, world; module: *mut c_uint) {
        put(module, gpu.module.ok_or(NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetNumaNodeId(handle, gpu, world; node: *mut c_uint) {
        put(node, gpu.memory_numa.ok_or(NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetPlatformInfo(handle, gpu, world; info: *mut nvmlPlatformInfo_v2_t) {
        let mut found = get(info)?;
        if found.version != (size_of::<nvmlPlatformInfo_v2_t>() | (2 << 24)) as u32 {
            return Err(VERSION_MISMATCH);
        }
        let platform = world.machine.platform.as_ref().ok_or(NOT_SUPPORTED)?;
        let chassis = crate::memory::field::<16>(&platform.chassis);
        found.chassisSerialNumber = chassis.map(|c| c as u8);
        found.slotNumber = platform.slot;
        found.trayIndex = platform.tray;
        found.hostId = platform.host;
        found.moduleId = gpu.module.unwrap_or(0) as u8;
        put(info, found)
    }

    fn nvmlDeviceGetCpuAffinityWithinScope(handle, gpu, world; size: c_uint, set: *mut c_ulong, _scope: c_uint) {
        let machine = &world.machine;
        let near = machine.numa.iter().filter(|n| gpu.numa < 0 || n.id == gpu.numa as u32);
        let near: Vec<u32> = match &gpu.affinity {
            Some(list) => cpus(list),
            None => near.flat_map(|n| cpus(&n.cpus)).collect(),
        };
        let mut words = vec![0; size as usize];
        for cpu in near {
            let word = words.get_mut((cpu / c_ulong::BITS) as usize);
            *word.ok_or(crate::INSUFFICIENT_SIZE)? |= 1 << (cpu % c_ulong::BITS);
        }
        fill(set, &words)
    }
}
