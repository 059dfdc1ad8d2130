//! How each GPU is, and the conditions that follow.
//!
//! Owns what makes a GPU unfit. Must never keep one unfit for ever: an XID counts until the
//! driver, asked later, wants nothing done any more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use muster_api::muster::node_topology::{
    FabricHealth, FabricState, Gpu, GpuHealth, GpuState, Hardware, MigDevice, Recovery,
};

use crate::band::Band;
use crate::nvml::client::Outlook;
use crate::nvml::events::{Event, EventKind};
use crate::nvml::{NvmlGpu, Snapshot};

/// XIDs that tell of a program's mistake, not of the GPU: the list of NVIDIA's own device
/// plugin and DRA driver.
const HARMLESS: [u64; 6] = [13, 31, 43, 45, 68, 109];
/// How long an XID counts at least, if the driver says that nothing is needed.
const HELD: Duration = Duration::from_secs(60);
/// Most XIDs that are kept of a GPU.
const MAX_XIDS: usize = 8;
/// Most GPUs of which something is kept.
const MAX_KEPT: usize = 64;

#[derive(Clone, Debug)]
struct Xid {
    number: u64,
    instance: Option<u32>,
    at: Instant,
}

/// What is remembered of one GPU between readings.
#[derive(Default)]
struct Kept {
    xids: Vec<Xid>,
    xid_count: u64,
    band: Band,
    /// The most links that were ever up.
    links: u32,
}

/// What is remembered of all GPUs, by address.
#[derive(Default)]
pub(crate) struct Memory(BTreeMap<String, Kept>);

impl Memory {
    /// Takes what has happened.
    pub(crate) fn take(&mut self, outlook: &Outlook, now: Instant) {
        for Event { address, kind } in &outlook.events {
            let (EventKind::Xid { number, instance }, Some(address)) = (kind, address) else {
                continue;
            };
            if self.0.len() >= MAX_KEPT && !self.0.contains_key(address) {
                continue;
            }
            let kept = self.0.entry(address.clone()).or_default();
            kept.xid_count += 1;
            if HARMLESS.contains(number) {
                continue;
            }
            kept.xids.retain(|xid| (xid.number, xid.instance) != (*number, *instance));
            if kept.xids.len() == MAX_XIDS {
                kept.xids.remove(0);
            }
            kept.xids.push(Xid { number: *number, instance: *instance, at: now });
        }
    }

    pub(crate) fn xid_count(&self, address: &str) -> u64 {
        self.0.get(address).map_or(0, |kept| kept.xid_count)
    }

    /// The state of every GPU, in the order of the hardware's list.
    pub(crate) fn states(
        &mut self,
        hardware: &Hardware,
        snapshot: Option<&Snapshot>,
        now: Instant,
    ) -> Vec<GpuState> {
        self.0.retain(|address, _| hardware.gpus.iter().any(|gpu| gpu.pci == *address));
        let active = |gpu: &Gpu| gpu.nvlinks.map_or(0, |links| links.active);
        let switched = hardware.gpus.iter().any(|g| g.nvlinks.is_some_and(|l| l.to_switch > 0));
        // On switches all GPUs have as many links; elsewhere a GPU is measured by itself.
        let common = hardware.gpus.iter().map(active).max().filter(|_| switched).unwrap_or(0);
        let state = |gpu: &Gpu| {
            let nvml = snapshot.and_then(|s| {
                s.gpus.iter().find(|g| !g.lost && g.address.as_deref() == Some(gpu.pci.as_str()))
            });
            let kept = self.0.entry(gpu.pci.clone()).or_default();
            kept.links = kept.links.max(active(gpu));
            // A divided GPU talks to no other.
            let divided = gpu.mig.as_ref().is_some_and(|mig| mig.enabled);
            let expected = if divided { 0 } else { kept.links.max(common) };
            kept.state(gpu, nvml, snapshot.is_some(), expected, now)
        };
        hardware.gpus.iter().map(state).collect()
    }
}

impl Kept {
    fn state(
        &mut self,
        gpu: &Gpu,
        nvml: Option<&NvmlGpu>,
        asked: bool,
        links: u32,
        now: Instant,
    ) -> GpuState {
        let mut state = GpuState {
            uuid: gpu.uuid.clone(),
            pci: gpu.pci.clone(),
            activity: self.band.update(nvml.and_then(|n| n.utilisation_percent), now),
            processes: nvml.and_then(|n| n.processes),
            ..GpuState::default()
        };
        let Some(nvml) = nvml else {
            // Of other vendors' GPUs, and without NVML, nothing is known.
            if asked && (gpu.pci_id.starts_with("10de:") || gpu.uuid.is_some()) {
                state.health = GpuHealth::Lost;
                state.recovery = Recovery::RebootNode;
                state
                    .reasons
                    .push(if gpu.uuid.is_some() { "GpuLost" } else { "NotReported" }.to_owned());
            }
            return state;
        };
        state.health = GpuHealth::Healthy;
        state.recovery = recovery(nvml.health.recovery_action);
        if state.recovery != Recovery::None {
            let reason = format!("RecoveryAction:{}", state.recovery);
            spoil(&mut state, GpuHealth::Unhealthy, reason);
        }
        self.xids(&mut state, gpu, nvml, now);
        memory(&mut state, nvml);
        fabric(&mut state, gpu);
        let (active, total) = gpu.nvlinks.map_or((0, 0), |l| (l.active, l.total));
        if active < links {
            spoil(&mut state, GpuHealth::Degraded, format!("NvlinksDown:{active}/{total}"));
        }
        state
    }

    /// Drops XIDs that are over, and counts the others.
    fn xids(&mut self, state: &mut GpuState, gpu: &Gpu, nvml: &NvmlGpu, now: Instant) {
        let settled = nvml.health.recovery_action == Some(0);
        self.xids.retain(|xid| !(settled && now.duration_since(xid.at) >= HELD));
        for xid in &self.xids {
            let part = xid.instance.and_then(|instance| part(gpu, instance));
            match part {
                Some(part) => {
                    if !state.unhealthy_mig_devices.contains(&part.uuid) {
                        state.unhealthy_mig_devices.push(part.uuid.clone());
                    }
                    state.reasons.push(format!("XID{}:{}", xid.number, part.uuid));
                }
                None => spoil(state, GpuHealth::Unhealthy, format!("XID{}", xid.number)),
            }
        }
    }
}

fn part(gpu: &Gpu, instance: u32) -> Option<&MigDevice> {
    gpu.mig.as_ref()?.devices.iter().find(|device| device.gpu_instance == instance)
}

/// Adds a reason, and makes the health no better than `health`.
fn spoil(state: &mut GpuState, health: GpuHealth, reason: String) {
    state.health = state.health.max(health);
    state.reasons.push(reason);
}

fn recovery(action: Option<u64>) -> Recovery {
    match action {
        None | Some(0) => Recovery::None,
        Some(1) => Recovery::ResetGpu,
        Some(3) => Recovery::DrainPeerToPeer,
        Some(4) => Recovery::DrainAndReset,
        Some(5) => Recovery::RecoverImexDomain,
        // Of an action that is not known the strongest is assumed.
        Some(_) => Recovery::RebootNode,
    }
}

fn memory(state: &mut GpuState, nvml: &NvmlGpu) {
    let health = &nvml.health;
    let needs_reset = |state: &mut GpuState| {
        if state.recovery == Recovery::None {
            state.recovery = Recovery::ResetGpu;
        }
    };
    if health.remap_failed {
        spoil(state, GpuHealth::Unhealthy, "RowRemapFailed".to_owned());
    }
    if health.remap_pending {
        needs_reset(state);
        spoil(state, GpuHealth::Degraded, "RowRemapPending".to_owned());
    }
    if health.retirement_pending {
        needs_reset(state);
        spoil(state, GpuHealth::Degraded, "PageRetirementPending".to_owned());
    }
    if let Some(count @ 1..) = health.ecc_uncorrected {
        // Alone it makes nothing unfit: an XID or a row does.
        state.reasons.push(format!("EccUncorrected:{count}"));
    }
}

fn fabric(state: &mut GpuState, gpu: &Gpu) {
    let Some(fabric) = &gpu.fabric else { return };
    match fabric.state {
        FabricState::NotStarted | FabricState::InProgress => {
            spoil(state, GpuHealth::Degraded, format!("Fabric{}", fabric.state));
        }
        FabricState::Completed if fabric.error.is_some() => {
            spoil(state, GpuHealth::Degraded, "FabricError".to_owned());
        }
        _ => {}
    }
    match fabric.health {
        FabricHealth::Unhealthy => spoil(state, GpuHealth::Unhealthy, "FabricUnhealthy".to_owned()),
        FabricHealth::Limited => spoil(state, GpuHealth::Degraded, "FabricLimited".to_owned()),
        FabricHealth::Unknown | FabricHealth::Healthy => {}
    }
}
