//! How GPUs are connected: PCI, NVLink, fabric.

use std::ffi::{c_int, c_uint};
use std::mem::size_of;

use muster_machines::Fabric;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t, nvmlPciInfo_t,
    nvmlReturn_t, nvmlValue_t,
};

use crate::inventory::pci_info;
use crate::memory::{get, put};
use crate::{
    Answer, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH, World, answer,
    device_functions,
};

const TO_GPU: c_uint = 0;
const TO_SWITCH: c_uint = 2;
const P2P_OK: c_uint = 0;
const P2P_NOT_SUPPORTED: c_uint = 5;
const P2P_NVLINK: c_uint = 2;

/// Where a link leads.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Switch(String),
    /// The GPU, and which of the links between the two it is.
    Gpu(u32, u32),
    Nothing,
}

impl World {
    /// Where the links of a GPU lead, up or not.
    fn ends(&self, gpu: u32) -> Vec<End> {
        let nvlink = &self.machine.nvlink;
        let to_switches =
            nvlink.switches.iter().flat_map(|s| (0..s.links).map(|_| End::Switch(s.pci.clone())));
        let peer = |&(a, b, count): &(u32, u32, u32)| match gpu {
            g if g == a => Some((b, count)),
            g if g == b => Some((a, count)),
            _ => None,
        };
        let pairs = nvlink.direct.iter().filter_map(peer);
        let to_gpus = pairs.flat_map(|(other, count)| (0..count).map(move |n| End::Gpu(other, n)));
        let all = self.machine.model.links as usize;
        to_switches.chain(to_gpus).chain(std::iter::repeat(End::Nothing)).take(all).collect()
    }

    /// Whether a link is up: at both ends, if it leads to another GPU.
    pub(crate) fn is_up(&self, gpu: u32, link: u32) -> bool {
        let up_here = |gpu: u32, link: u32| {
            let down = self.faults.links_down.get(&gpu);
            let dead = self.at(gpu).is_ok_and(|g| g.links_down) || self.faults.lost.contains(&gpu);
            !dead && !down.is_some_and(|links| links.contains(&link))
        };
        match self.ends(gpu).get(link as usize) {
            None | Some(End::Nothing) => false,
            Some(End::Switch(_)) => up_here(gpu, link),
            Some(&End::Gpu(other, n)) => {
                let back = self.ends(other).iter().position(|end| *end == End::Gpu(gpu, n));
                up_here(gpu, link) && back.is_some_and(|link| up_here(other, link as u32))
            }
        }
    }

    fn up_links(&self, gpu: u32, wanted: impl Fn(&End) -> bool) -> usize {
        let ends = self.ends(gpu);
        let up = |(link, end): &(usize, &End)| wanted(end) && self.is_up(gpu, *link as u32);
        ends.iter().enumerate().filter(up).count()
    }

    fn fabric(&self, gpu: u32) -> Option<Fabric> {
        let fault = self.faults.fabric.get(&gpu);
        let own = self.at(gpu).ok()?.fabric.as_ref();
        fault.or(own).or(self.machine.fabric.as_ref()).cloned()
    }

    /// Whether two GPUs can talk over NVLink.
    fn nvlink_works(&self, a: u32, b: u32) -> bool {
        if self.up_links(a, |end| matches!(end, End::Gpu(other, _) if *other == b)) > 0 {
            return true;
        }
        [a, b].into_iter().all(|gpu| {
            let registered = self.fabric(gpu).is_none_or(|f| f.state == 3 && f.status == 0);
            let divided = self.division(gpu).is_some_and(|mig| mig.enabled);
            let links = self.up_links(gpu, |end| matches!(end, End::Switch(_)));
            registered && !divided && links > 0
        })
    }

    /// NVML's level for two paths: how far up they meet.
    fn ancestor(&self, a: u32, b: u32) -> Result<c_uint, u32> {
        let (one, two) = (self.at(a)?, self.at(b)?);
        let (p, q): (Vec<&str>, Vec<&str>) =
            (one.path.split('/').collect(), two.path.split('/').collect());
        let shared = p.iter().zip(&q).take_while(|(x, y)| x == y).count();
        // Bridges between the lowest shared one and the device.
        let below = |path: &[&str]| path.len() - 1 - shared;
        Ok(match shared {
            0 if one.numa >= 0 && one.numa == two.numa => 40,
            0 => 50,
            1 => 30,
            _ if below(&p) <= 1 && below(&q) <= 1 => 10,
            _ => 20,
        })
    }
}

/// Functions about two devices.
fn pair(
    function: &str,
    (one, two): (nvmlDevice_t, nvmlDevice_t),
    work: impl FnOnce(&World, u32, u32) -> Answer,
) -> nvmlReturn_t {
    answer(function, |world| {
        let (a, _) = world.gpu(one)?;
        let (b, _) = world.gpu(two)?;
        work(world, a.gpu, b.gpu)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTopologyCommonAncestor(
    one: nvmlDevice_t,
    two: nvmlDevice_t,
    level: *mut c_uint,
) -> nvmlReturn_t {
    pair("nvmlDeviceGetTopologyCommonAncestor", (one, two), |world, a, b| {
        put(level, world.ancestor(a, b)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetP2PStatus(
    one: nvmlDevice_t,
    two: nvmlDevice_t,
    index: c_uint,
    status: *mut c_uint,
) -> nvmlReturn_t {
    pair("nvmlDeviceGetP2PStatus", (one, two), |world, a, b| {
        let works = index != P2P_NVLINK || world.nvlink_works(a, b);
        put(status, if works { P2P_OK } else { P2P_NOT_SUPPORTED })
    })
}

device_functions! {
    fn nvmlDeviceGetNvLinkState(handle, gpu, world; link: c_uint, active: *mut c_uint) {
        if link >= world.machine.model.links {
            return Err(NOT_SUPPORTED);
        }
        put(active, c_uint::from(world.is_up(handle.gpu, link)))
    }

    fn nvmlDeviceGetNvLinkVersion(handle, gpu, world; _link: c_uint, version: *mut c_uint) {
        put(version, world.machine.model.architecture / 2)
    }

    fn nvmlDeviceGetNvLinkCapability(handle, gpu, world; _link: c_uint, _which: c_uint, value: *mut c_uint) {
        put(value, 1)
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(handle, gpu, world; link: c_uint, pci: *mut nvmlPciInfo_t) {
        let ends = world.ends(handle.gpu);
        match ends.get(link as usize) {
            Some(End::Switch(address)) => put(pci, pci_info(address, 0x22a3)),
            Some(&End::Gpu(other, _)) => {
                put(pci, pci_info(world.at(other)?.address(), world.machine.model.device))
            }
            Some(End::Nothing) => Err(NOT_SUPPORTED),
            None => Err(INVALID_ARGUMENT),
        }
    }

    fn nvmlDeviceGetNvLinkRemoteDeviceType(handle, gpu, world; link: c_uint, kind: *mut c_uint) {
        match world.ends(handle.gpu).get(link as usize) {
            Some(End::Switch(_)) => put(kind, TO_SWITCH),
            Some(End::Gpu(..)) => put(kind, TO_GPU),
            Some(End::Nothing) => Err(NOT_SUPPORTED),
            None => Err(INVALID_ARGUMENT),
        }
    }

    fn nvmlDeviceGetFieldValues(handle, gpu, world; count: c_int, values: *mut nvmlFieldValue_t) {
        for i in 0..usize::try_from(count).map_err(|_| INVALID_ARGUMENT)? {
            // As many as `count` says are there.
            let at = values.wrapping_add(i);
            let mut value = get(at)?;
            let found = world.field(handle.gpu, value.fieldId, value.scopeId);
            value.nvmlReturn = found.err().unwrap_or(SUCCESS);
            value.valueType = 1;
            value.value = nvmlValue_t { ullVal: u64::from(found.unwrap_or(0)) };
            put(at, value)?;
        }
        Ok(())
    }

    fn nvmlDeviceGetGpuFabricInfoV(handle, gpu, world; info: *mut nvmlGpuFabricInfo_v3_t) {
        // The version comes first in all of them, and says how much room there is.
        let version = get(info.cast::<c_uint>())?;
        let v2 = (size_of::<nvmlGpuFabricInfo_v2_t>() | (2 << 24)) as c_uint;
        let v3 = (size_of::<nvmlGpuFabricInfo_v3_t>() | (3 << 24)) as c_uint;
        let fabric = world.fabric(handle.gpu).ok_or(NOT_SUPPORTED)?;
        let hex: String = fabric.cluster.chars().filter(|c| *c != '-').collect();
        let mut uuid = [0; 16];
        for (byte, digits) in uuid.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).unwrap_or("0");
            *byte = u8::from_str_radix(digits, 16).map_err(|_| crate::UNKNOWN)?;
        }
        if version == v2 {
            return put(info.cast(), nvmlGpuFabricInfo_v2_t {
                version, clusterUuid: uuid, status: fabric.status, cliqueId: fabric.clique,
                state: fabric.state, healthMask: 0,
            });
        }
        if version != v3 {
            return Err(VERSION_MISMATCH);
        }
        put(info, nvmlGpuFabricInfo_v3_t {
            version, clusterUuid: uuid, status: fabric.status, cliqueId: fabric.clique,
            state: fabric.state, healthMask: 0, healthSummary: fabric.health,
        })
    }
}
