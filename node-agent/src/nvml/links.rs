//! NVLinks of a GPU, and what of them is kept where asking is slow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_GET_STATE, NVML_FI_DEV_NVLINK_LINK_COUNT,
    NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON,
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

/// The links of a GPU. Where they lead to is asked only if other ones are up than `before`.
pub(super) fn read(
    asked: &mut Asked<'_, '_>,
    device: &Device<'_>,
    before: Option<&Links>,
) -> Links {
    let fields =
        [FieldId(NVML_FI_DEV_NVLINK_LINK_COUNT), FieldId(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)];
    let values = asked.ask("nvmlDeviceGetFieldValues", |_| device.field_values_for(&fields));
    let field = |i: usize| number(values.as_ref()?.get(i)?.as_ref().ok()?.value.as_ref().ok()?);
    let told = field(0).map(|n| u32::try_from(n).unwrap_or(u32::MAX).min(MAX_LINKS));
    let mut links = Links {
        megabytes_per_second: field(1).and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        ..Links::default()
    };
    match told.and_then(|told| states(asked, device, told)) {
        Some(up) => (links.up, links.total) = (up, u64::BITS - up.leading_zeros()),
        None => ask_each(asked, device, told, &mut links),
    }
    // The driver counts links that it does not let be asked about.
    links.total = links.total.max(told.unwrap_or(0));
    if let Some(before) = before
        && (before.total, before.up) == (links.total, links.up)
        && before.megabytes_per_second == links.megabytes_per_second
    {
        return before.clone();
    }
    for link in (0..MAX_LINKS).filter(|link| links.up >> link & 1 == 1) {
        links.active.push(remote(asked, device, link));
    }
    links
}

/// Which links are up, all in one call; none if the chip does not tell it so, as those before
/// Hopper.
fn states(asked: &mut Asked<'_, '_>, device: &Device<'_>, count: u32) -> Option<u64> {
    let fields: Vec<(u32, u32)> =
        (0..count).map(|link| (NVML_FI_DEV_NVLINK_GET_STATE, link)).collect();
    if fields.is_empty() {
        return Some(0);
    }
    let states = asked.ask("nvmlDeviceGetFieldValues", |n| raw::fields(n, device, &fields))?;
    let mut up = 0;
    for (link, state) in states.into_iter().enumerate() {
        up |= u64::from(state.ok()? != 0) << link;
    }
    Some(up)
}

/// Which links are up, one by one.
fn ask_each(asked: &mut Asked<'_, '_>, device: &Device<'_>, told: Option<u32>, links: &mut Links) {
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
        links.up |= u64::from(active) << link;
    }
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
    /// Until when it is believed that links lead to where they did.
    ends_until: Option<Instant>,
}

impl LinkCache {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(super) fn get(&self, uuid: &str) -> Option<&Links> {
        self.links.get(uuid)
    }

    /// What was seen of a GPU's links, as long as it is believed where they lead to.
    pub(super) fn known(&self, uuid: Option<&String>, now: Instant) -> Option<&Links> {
        self.links.get(uuid?).filter(|_| self.ends_until.is_some_and(|until| now < until))
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
        if self.ends_until.is_none_or(|until| now >= until) {
            self.ends_until = Some(now + KEPT);
        }
        let of = |(_, gpu): &(D, NvmlGpu)| Some((gpu.uuid.clone()?, gpu.links.clone()));
        self.links = devices.iter().filter_map(of).collect();
        self.uuids = devices.iter().map(|(_, gpu)| gpu.uuid.clone()).collect();
        self.pairs = pairs.to_vec();
    }

    /// Something has happened: the next look is a real one.
    pub(super) fn forget(&mut self) {
        self.until = None;
        self.ends_until = None;
    }
}
