//! NVLinks of a GPU, and what of them is kept where asking is slow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_LINK_COUNT, NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON,
};

use super::query::{Asked, number};
use super::{Links, NvmlGpu, Pair, Remote, bus_id, raw};
use crate::pci::Address;

/// Most links of a GPU: more than any has today.
const MAX_LINKS: u32 = 64;
/// A look at all links that takes longer than this is not repeated at every reading.
const SLOW: Duration = Duration::from_secs(1);
/// How long links are kept where looking is slow.
const KEPT: Duration = Duration::from_secs(300);

/// The links of a GPU.
pub(super) fn read(asked: &mut Asked<'_, '_>, device: &Device<'_>) -> Links {
    let fields =
        [FieldId(NVML_FI_DEV_NVLINK_LINK_COUNT), FieldId(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)];
    let values = asked.ask("nvmlDeviceGetFieldValues", |_| device.field_values_for(&fields));
    let field = |i: usize| number(values.as_ref()?.get(i)?.as_ref().ok()?.value.as_ref().ok()?);
    let told = field(0).map(|n| u32::try_from(n).unwrap_or(u32::MAX).min(MAX_LINKS));
    let mut links = Links {
        total: 0,
        active: Vec::new(),
        megabytes_per_second: field(1).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
    };
    for link in 0..told.unwrap_or(MAX_LINKS) {
        let wrapper = device.link_wrapper_for(link);
        let active = asked.ask("nvmlDeviceGetNvLinkState", |_| match wrapper.is_active() {
            // Beyond the last link.
            Err(NvmlError::InvalidArg) => Err(NvmlError::NotSupported),
            active => active,
        });
        let Some(active) = active else {
            if told.is_none() {
                break;
            }
            continue;
        };
        links.total = link + 1;
        if active {
            links.active.push(remote(asked, device, link));
        }
    }
    // The driver counts links that it does not let be asked about.
    links.total = links.total.max(told.unwrap_or(0));
    links
}

/// What a link leads to. A remote end that cannot be named is a switch that a virtual
/// machine does not see.
fn remote(asked: &mut Asked<'_, '_>, device: &Device<'_>, link: u32) -> Remote {
    let switch =
        asked.ask("nvmlDeviceGetNvLinkRemoteDeviceType", |n| raw::leads_to_switch(n, device, link));
    if switch.flatten() == Some(true) {
        return Remote::Switch;
    }
    let wrapper = device.link_wrapper_for(link);
    let pci = asked.ask("nvmlDeviceGetNvLinkRemotePciInfo_v2", |_| wrapper.remote_pci_info());
    match pci {
        Some(pci) if Address::parse(&pci.bus_id).is_some() => Remote::Gpu(bus_id(&pci)),
        _ => Remote::Switch,
    }
}

/// Links and pairs of the last look.
#[derive(Default)]
pub(super) struct LinkCache {
    links: BTreeMap<String, Links>,
    pub(super) pairs: Vec<Pair>,
    uuids: Vec<Option<String>>,
    until: Option<Instant>,
}

impl LinkCache {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(super) fn get(&self, uuid: &str) -> Option<&Links> {
        self.links.get(uuid)
    }

    /// Whether the pairs speak of these GPUs.
    pub(super) fn fits<D>(&self, devices: &[(D, NvmlGpu)]) -> bool {
        self.uuids.iter().eq(devices.iter().map(|(_, gpu)| &gpu.uuid))
    }

    /// Keeps what was seen since `began`, for a while if looking was slow.
    pub(super) fn put<D>(&mut self, devices: &[(D, NvmlGpu)], pairs: &[Pair], began: Instant) {
        let now = Instant::now();
        let slow = now.duration_since(began) > SLOW;
        self.until = slow.then(|| now + KEPT);
        let of = |(_, gpu): &(D, NvmlGpu)| Some((gpu.uuid.clone()?, gpu.links.clone()));
        self.links = devices.iter().filter_map(of).collect();
        self.uuids = devices.iter().map(|(_, gpu)| gpu.uuid.clone()).collect();
        self.pairs = pairs.to_vec();
    }

    /// Something has happened: the next look is a real one.
    pub(super) fn forget(&mut self) {
        self.until = None;
    }
}
