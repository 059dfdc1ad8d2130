//! Which devices a node would give to a pod.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::{Cluster, Holder, NodeDevices, NodeView};
use crate::gpu_links::{GpuMask, Limit, MAX_GPUS, Now, Shares, mig, positions};
use crate::model::node_topology::{Device, DeviceVia, GpuHealth, NodeHardware, NodeTopology};
use crate::model::{PodId, PodShape, Predicted};
use crate::numa;

/// What a pod asks for of resources that may be GPUs: resource, number, and what has been asked
/// for of it of late.
pub(super) type Asked = SmallVec<[(Arc<str>, usize, Shares); 2]>;

/// What a pod asks for; none if it is nothing that could be a GPU.
pub(super) fn asked(shape: &PodShape, cluster: &Cluster) -> Option<Asked> {
    let named = shape.named.iter().filter_map(|name| {
        let count = usize::try_from(cluster.request_of(shape, name)).ok()?;
        (count > 0).then(|| (Arc::from(&**name), count, cluster.demand(name)))
    });
    let asked: Asked = named.collect();
    (!asked.is_empty()).then_some(asked)
}

/// What a node would give.
pub(super) struct Offer {
    /// How good it is beside the best that the node could ever give, at most 100.
    pub(super) points: u8,
    /// What others lose, in thousandths.
    pub(super) damage: u16,
    /// By resource, sorted; ids sorted too.
    given: SmallVec<[Given; 2]>,
}

/// Devices of one resource.
struct Given {
    resource: Arc<str>,
    ids: Vec<Arc<str>>,
    /// Positions of the GPUs that they are, or are parts of.
    gpus: GpuMask,
    /// Whether no set could be better.
    aligned: bool,
}

impl Offer {
    pub(super) fn predicted(self) -> Predicted {
        let given = self.given.into_iter();
        Predicted { devices: given.map(|own| (own.resource, own.ids.into())).collect() }
    }

    /// For people: which GPUs, by number, and how good they are.
    pub(super) fn words(&self) -> String {
        let one = |own: &Given| {
            let gpus: Vec<String> = positions(own.gpus).map(|at| at.to_string()).collect();
            format!("{} on GPU {}", own.resource, gpus.join(","))
        };
        let sets: Vec<String> = self.given.iter().map(one).collect();
        let kind =
            if self.given.iter().all(|own| own.aligned) { ", as good as it gets" } else { "" };
        let damage = self.damage.div_ceil(10);
        format!("{}: links {}{kind}, others lose {damage} %", sets.join("; "), self.points)
    }
}

/// What a node would give to a pod; `placed`: to one that is on it already and has got nothing yet.
/// None if it is not known, or if the devices are no GPUs.
pub(super) fn offer(
    asked: &Asked,
    shape: &PodShape,
    node: NodeView<'_>,
    placed: Option<PodId>,
) -> Option<Offer> {
    let devices = node.devices()?;
    let mut offer = Offer { points: 100, damage: 0, given: SmallVec::new() };
    for (resource, count, shares) in asked {
        let all = devices.topology.devices_of(resource);
        let given = match kind(&devices.topology.hardware, all) {
            Kind::Whole => {
                let limits = limits(resource, shape, node, placed, all);
                whole(&devices, node, (resource, *count, *shares), &limits)
            }
            Kind::Parts => parts(&devices, resource, *count),
            Kind::Other => continue,
        };
        let (given, points, damage) = given?;
        offer.points = offer.points.min(points);
        offer.damage = offer.damage.max(damage);
        offer.given.push(given);
    }
    (!offer.given.is_empty()).then_some(offer)
}

enum Kind {
    /// Whole GPUs.
    Whole,
    /// Parts of them.
    Parts,
    /// No GPUs, or GPUs that several share.
    Other,
}

fn kind(hardware: &NodeHardware, devices: &[Device]) -> Kind {
    let is_whole = |device: &Device| {
        let gpu = device.gpu.and_then(|gpu| hardware.gpus.get(usize::from(gpu)));
        gpu.and_then(|gpu| gpu.uuid.as_ref()).is_some_and(|uuid| *uuid == device.id)
    };
    let is_part = |device: &Device| device.gpu.is_some() && placement(hardware, device).is_some();
    match devices {
        [] => Kind::Other,
        all if all.iter().all(is_whole) => Kind::Whole,
        all if all.iter().all(is_part) => Kind::Parts,
        _ => Kind::Other,
    }
}

/// Where a part of a GPU lies.
fn placement(hardware: &NodeHardware, device: &Device) -> Option<mig::Slices> {
    let mig = hardware.gpus.get(usize::from(device.gpu?))?.mig.as_ref()?;
    let part = mig.devices.iter().find(|part| part.uuid == device.id)?;
    part.placement.map(|(start, size)| mig::slices(start, size))
}

type Found = (Given, u8, u16);

/// The best set of whole GPUs.
fn whole(
    devices: &NodeDevices<'_>,
    node: NodeView<'_>,
    (resource, count, shares): (&Arc<str>, usize, Shares),
    limits: &[Limit],
) -> Option<Found> {
    let links = node.links()?;
    let bit = |device: &Device| device.gpu.map_or(0, |gpu| 1 << gpu);
    let free: GpuMask = devices.free(resource).map(bit).fold(0, |all, bit| all | bit);
    let now = now(devices.topology, free);
    let choice = links.choose(now, count, limits, shares);
    // Where a kubelet's ways and what is free do not meet, too little is known of either.
    let choice = choice.or_else(|| links.choose(now, count, &[], shares))?;
    let chosen = devices.free(resource).filter(|device| choice.set & bit(device) != 0);
    let given = Given {
        resource: Arc::clone(resource),
        ids: chosen.map(|device| Arc::clone(&device.id)).collect(),
        gpus: choice.set,
        aligned: choice.aligned,
    };
    Some((given, choice.points, choice.damage))
}

/// How the GPUs of a node are.
fn now(topology: &NodeTopology, free: GpuMask) -> Now {
    let mut now = Now { free, ..Now::default() };
    for (at, gpu) in topology.gpus.iter().enumerate().take(MAX_GPUS) {
        // A process on a GPU that nobody has is somebody's whom the kubelet does not know.
        let strangers = gpu.in_use && free >> at & 1 == 1;
        match gpu.health {
            GpuHealth::Unhealthy | GpuHealth::Lost => now.broken |= 1 << at,
            _ if strangers => now.broken |= 1 << at,
            GpuHealth::Degraded => now.degraded |= 1 << at,
            _ => {}
        }
    }
    now
}

/// Parts of GPUs that leave the largest profiles possible.
fn parts(devices: &NodeDevices<'_>, resource: &Arc<str>, count: usize) -> Option<Found> {
    let hardware = &devices.topology.hardware;
    let mut gpus: Vec<mig::Divided<'_>> = Vec::with_capacity(hardware.gpus.len());
    for gpu in &hardware.gpus {
        let profiles = gpu.mig.as_ref().map_or(&[][..], |mig| &mig.profiles);
        gpus.push(mig::Divided { profiles, used: 0 });
    }
    for (device, holder) in devices.topology.devices.iter().zip(&devices.holders) {
        let held = *holder != Holder::Free;
        let at = device.gpu.map(usize::from).filter(|_| held);
        if let (Some(at), Some(slices)) = (at, placement(hardware, device)) {
            gpus[at].used |= slices;
        }
    }
    let free: Vec<&Device> = devices.free(resource).collect();
    let place = |device: &&Device| Some((usize::from(device.gpu?), placement(hardware, device)?));
    let places: Vec<mig::Part> = free.iter().filter_map(place).collect();
    let (chosen, damage) = mig::choose(&gpus, &places, count)?;
    let gpu = |at: &usize| places[*at].0;
    let given = Given {
        resource: Arc::clone(resource),
        gpus: chosen.iter().map(gpu).filter(|at| *at < MAX_GPUS).fold(0, |all, at| all | 1 << at),
        ids: chosen.iter().map(|at| Arc::clone(&free[*at].id)).collect(),
        aligned: true,
    };
    Some((given, 100, damage))
}

/// Where the node's kubelet would take the devices from; nothing if anywhere, or if it is not
/// known.
fn limits(
    resource: &str,
    shape: &PodShape,
    node: NodeView<'_>,
    placed: Option<PodId>,
    devices: &[Device],
) -> Vec<Limit> {
    let (Some(pod), Some(inside)) = (&shape.aligned, node.inside()) else { return Vec::new() };
    if inside.machine.settings.policy == numa::Policy::None || !pod.init.is_empty() {
        return Vec::new();
    }
    let others = inside.expected.iter().filter(|(id, _)| Some(*id) != placed);
    let coming: Vec<&Arc<numa::Pod>> = others.map(|(_, pod)| *pod).collect();
    let memo = node.predictions();
    let usage = numa::after(memo, inside.machine, &inside.usage, &coming);
    let Some(usage) = usage else { return Vec::new() };
    let side = |near: Option<numa::Mask>| -> GpuMask {
        let own = |device: &&Device| {
            device.via == DeviceVia::DevicePlugin && device.numa == near.map_or(0, |mask| mask.0)
        };
        let bits = devices.iter().filter(own).filter_map(|device| device.gpu);
        bits.filter(|gpu| usize::from(*gpu) < MAX_GPUS).fold(0, |side, gpu| side | 1 << gpu)
    };
    let mut limits: Vec<Limit> = Vec::new();
    for course in &memo.predict(inside.machine, &usage, pod).admitted {
        let mut limit = Limit::new();
        let given = course.given.iter().flat_map(|given| &given.devices);
        for (near, count) in given.filter(|(name, _)| **name == *resource).flat_map(|(_, n)| n) {
            let side = side(*near);
            match limit.iter_mut().find(|(own, _)| *own == side) {
                Some((_, sum)) => *sum += count,
                None => limit.push((side, *count)),
            }
        }
        if !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits
}
