//! One look at all GPUs.
//!
//! Owns which questions are asked, and in which order: everything now and then and after news, in between
//! only what changes without a word (work, power, errors of memory, parts). Must never ask a lost GPU twice:
//! each question to one may take seconds.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nvml_wrapper::enum_wrappers::device::{
    EccCounter, MemoryError, TemperatureSensor, TopologyLevel,
};
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};
use nvml_wrapper::enums::device::{DeviceArchitecture, SampleValue};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION;
use nvml_wrapper::{Device, Nvml};

use muster_api::muster::node_topology::{MAX_GPUS, PciPath};

use super::client::Progress;
use super::links::LinkCache;
use super::{
    Health, NvmlGpu, Pair, Snapshot, bus_id, explain, is_absent, is_missing, links, mig, raw,
};
use crate::cpulist::CpuList;

/// Words of a set of CPUs: enough for as many as any kernel is built for.
const CPU_WORDS: usize = 8192 / 64;
/// The scope in which NVML names CPUs: a NUMA node.
const SCOPE_NODE: u32 = 0;
/// Most problems that are kept.
const MAX_PROBLEMS: usize = 64;
/// How long it is believed that what does not change without a word has not changed.
const KEPT: Duration = Duration::from_secs(60);

/// A look under way.
pub(super) struct Query<'a> {
    pub(super) nvml: &'a Nvml,
    progress: &'a Progress,
    problems: Vec<String>,
    missing: BTreeSet<&'static str>,
}

/// A question to one GPU.
pub(super) struct Asked<'q, 'a> {
    pub(super) query: &'q mut Query<'a>,
    index: u32,
    pub(super) lost: bool,
}

impl Asked<'_, '_> {
    /// The answer; nothing if there is none, or the GPU is lost.
    pub(super) fn ask<T>(
        &mut self,
        function: &'static str,
        call: impl FnOnce(&Nvml) -> Result<T, NvmlError>,
    ) -> Option<T> {
        if self.lost {
            return None;
        }
        self.query.progress.begin(function);
        let answer = call(self.query.nvml);
        self.query.progress.end();
        match answer {
            Ok(value) => Some(value),
            Err(error) => {
                self.lost |= matches!(error, NvmlError::GpuLost);
                self.query.note(self.index, function, &error);
                None
            }
        }
    }
}

impl<'a> Query<'a> {
    fn note(&mut self, index: u32, function: &'static str, error: &NvmlError) {
        if is_missing(error) {
            self.missing.insert(function);
        } else if !is_absent(error) && self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("GPU {index}: {function}: {}", explain(error)));
        }
    }

    fn gpu<'q>(&'q mut self, index: u32) -> Asked<'q, 'a> {
        Asked { query: self, index, lost: false }
    }
}

/// What is kept from one look to the next.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) links: LinkCache,
    /// The GPUs of the last whole look, in the driver's order. Emptied by whoever knows that something
    /// is other than it was then.
    pub(super) gpus: Vec<NvmlGpu>,
    pairs: Vec<Pair>,
    missing: BTreeSet<&'static str>,
    until: Option<Instant>,
}

impl Cache {
    /// Whether it will do to ask what changes all the time: a whole look was not long ago and found nothing
    /// wrong, and there are as many GPUs as then.
    fn holds(&self, count: u32, now: Instant) -> bool {
        count > 0
            && self.gpus.len() == count as usize
            && self.until.is_some_and(|until| now < until)
    }

    fn put(&mut self, snapshot: &Snapshot, missing: &BTreeSet<&'static str>) {
        let well = snapshot.problems.is_empty() && !snapshot.gpus.iter().any(|gpu| gpu.lost);
        self.gpus = if well { snapshot.gpus.clone() } else { Vec::new() };
        self.pairs.clone_from(&snapshot.pairs);
        self.missing.clone_from(missing);
        self.until = Some(Instant::now() + KEPT);
    }
}

/// Asks what may be other than last time. Fails if the library does not even count GPUs.
pub(super) fn snapshot(
    nvml: &Nvml,
    progress: &Progress,
    cache: &mut Cache,
) -> Result<Snapshot, NvmlError> {
    let mut query = Query { nvml, progress, problems: Vec::new(), missing: BTreeSet::new() };
    progress.begin("nvmlDeviceGetCount_v2");
    let count = nvml.device_count()?.min(MAX_GPUS as u32);
    progress.end();
    let now = Instant::now();
    if cache.holds(count, now) {
        query.missing.clone_from(&cache.missing);
        let gpus = cache.gpus.iter().map(|known| query.refresh(known)).collect();
        let snapshot = query.end(gpus, cache.pairs.clone());
        if snapshot.gpus.iter().any(|gpu| gpu.lost) {
            cache.gpus.clear();
        }
        return Ok(snapshot);
    }
    let devices: Vec<_> = (0..count).map(|index| query.whole(index)).collect();
    let (gpus, pairs) = with_links(&mut query, devices, &mut cache.links, now);
    let missing = query.missing.clone();
    let snapshot = query.end(gpus, pairs);
    cache.put(&snapshot, &missing);
    Ok(snapshot)
}

impl<'a> Query<'a> {
    /// All of a GPU but its links.
    fn whole(&mut self, index: u32) -> (Option<Device<'a>>, NvmlGpu) {
        let nvml = self.nvml;
        let mut asked = self.gpu(index);
        let device = asked.ask("nvmlDeviceGetHandleByIndex_v2", |_| nvml.device_by_index(index));
        let mut gpu = match &device {
            Some(device) => read_gpu(&mut asked, device),
            None => NvmlGpu { lost: true, ..NvmlGpu::default() },
        };
        gpu.index = index;
        (device, gpu)
    }

    /// A GPU as it was, but for what changes without a word.
    fn refresh(&mut self, known: &NvmlGpu) -> NvmlGpu {
        let nvml = self.nvml;
        let mut asked = self.gpu(known.index);
        let mut gpu = known.clone();
        let device =
            asked.ask("nvmlDeviceGetHandleByIndex_v2", |_| nvml.device_by_index(known.index));
        if let Some(device) = device {
            read_work(&mut asked, &device, &mut gpu);
            gpu.mig = mig::read(&mut asked, &device, known);
        }
        gpu.lost = asked.lost;
        gpu
    }

    fn end(self, gpus: Vec<NvmlGpu>, pairs: Vec<Pair>) -> Snapshot {
        Snapshot {
            driver: self.nvml.sys_driver_version().ok(),
            version: self.nvml.sys_nvml_version().ok(),
            gpus,
            pairs,
            problems: self.problems,
            missing: self.missing.into_iter().collect(),
        }
    }
}

/// The links of all GPUs, and what pairs of them are to each other.
fn with_links(
    query: &mut Query<'_>,
    mut devices: Vec<(Option<Device<'_>>, NvmlGpu)>,
    cache: &mut LinkCache,
    now: Instant,
) -> (Vec<NvmlGpu>, Vec<Pair>) {
    let keep = cache.is_fresh(now);
    let began = Instant::now();
    for (device, gpu) in &mut devices {
        let kept = gpu.uuid.as_ref().and_then(|uuid| cache.get(uuid)).filter(|_| keep);
        match (kept, device) {
            (Some(links), _) => gpu.links = links.clone(),
            (None, Some(device)) if !gpu.lost => {
                let mut asked = query.gpu(gpu.index);
                let before = cache.known(gpu.uuid.as_ref(), now);
                gpu.links = links::read(&mut asked, device, before);
                gpu.lost = asked.lost;
            }
            _ => {}
        }
    }
    let pairs = if keep && cache.fits(&devices) {
        cache.pairs.clone()
    } else {
        read_pairs(query, &devices)
    };
    if !keep {
        cache.put(&devices, &pairs, began);
    }
    (devices.into_iter().map(|(_, gpu)| gpu).collect(), pairs)
}

fn read_gpu(asked: &mut Asked<'_, '_>, device: &Device<'_>) -> NvmlGpu {
    let pci = asked.ask("nvmlDeviceGetPciInfo_v3", |_| device.pci_info());
    let architecture = asked.ask("nvmlDeviceGetArchitecture", |_| device.architecture());
    let compute =
        asked.ask("nvmlDeviceGetCudaComputeCapability", |_| device.cuda_compute_capability());
    let mut gpu = NvmlGpu {
        address: pci.as_ref().map(bus_id),
        uuid: asked.ask("nvmlDeviceGetUUID", |_| device.uuid()),
        minor: asked.ask("nvmlDeviceGetMinorNumber", |_| device.minor_number()),
        model: asked.ask("nvmlDeviceGetName", |_| device.name()),
        architecture: architecture
            .filter(|a| *a != DeviceArchitecture::Unknown)
            .map(|a| a.to_string()),
        compute: compute
            .and_then(|c| Some((u32::try_from(c.major).ok()?, u32::try_from(c.minor).ok()?))),
        module: asked.ask("nvmlDeviceGetModuleId", |n| raw::module(n, device)),
        // Not the NUMA node beside the GPU, whatever the wrapper's documentation says.
        memory_numa: asked.ask("nvmlDeviceGetNumaNodeId", |_| device.numa_node_id()),
        affinity: asked
            .ask("nvmlDeviceGetCpuAffinityWithinScope", |_| {
                device.cpu_affinity_within_scope(CPU_WORDS, SCOPE_NODE)
            })
            .map(|words| cpus(&words)),
        fabric: asked.ask("nvmlDeviceGetGpuFabricInfoV", |n| raw::fabric(n, device)),
        platform: asked.ask("nvmlDeviceGetPlatformInfo", |n| raw::platform(n, device)),
        health: read_health(asked, device),
        ..NvmlGpu::default()
    };
    read_work(asked, device, &mut gpu);
    gpu.mig = mig::read(asked, device, &gpu);
    gpu.lost = asked.lost;
    gpu
}

/// What changes all the time.
fn read_work(asked: &mut Asked<'_, '_>, device: &Device<'_>, gpu: &mut NvmlGpu) {
    let memory = asked
        .ask("nvmlDeviceGetMemoryInfo_v2", |_| device.memory_info().map(|m| (m.total, m.used)))
        .or_else(|| asked.ask("nvmlDeviceGetMemoryInfo", |n| raw::memory_v1(n, device)));
    gpu.memory_bytes = memory.map(|m| m.0);
    gpu.memory_used_bytes = memory.map(|m| m.1);
    gpu.utilisation_percent = asked
        .ask("nvmlDeviceGetUtilizationRates", |_| device.utilization_rates())
        .map(|rates| rates.gpu);
    gpu.power_milliwatts = asked.ask("nvmlDeviceGetPowerUsage", |_| device.power_usage());
    gpu.temperature_celsius =
        asked.ask("nvmlDeviceGetTemperature", |_| device.temperature(TemperatureSensor::Gpu));
    gpu.processes = asked.ask("nvmlDeviceGetComputeRunningProcesses_v3", |_| {
        device.running_compute_processes_count()
    });
    gpu.health.ecc_uncorrected = asked.ask("nvmlDeviceGetTotalEccErrors", |_| {
        device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
    });
}

fn read_health(asked: &mut Asked<'_, '_>, device: &Device<'_>) -> Health {
    let fields = [FieldId(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)];
    let action = asked
        .ask("nvmlDeviceGetFieldValues", |_| device.field_values_for(&fields))
        .and_then(|values| values.into_iter().next()?.ok()?.value.ok());
    let rows = asked.ask("nvmlDeviceGetRemappedRows", |n| raw::remapped_rows(n, device));
    Health {
        recovery_action: action.as_ref().and_then(number),
        remap_pending: rows.is_some_and(|(pending, _)| pending),
        remap_failed: rows.is_some_and(|(_, failed)| failed),
        retirement_pending: asked
            .ask("nvmlDeviceGetRetiredPagesPendingStatus", |_| device.are_pages_pending_retired())
            .unwrap_or(false),
        ecc_uncorrected: None,
    }
}

/// A field as a number, whatever type the driver gave it.
pub(super) fn number(value: &SampleValue) -> Option<u64> {
    match *value {
        SampleValue::U32(n) => Some(n.into()),
        SampleValue::U64(n) => Some(n),
        SampleValue::I64(n) => u64::try_from(n).ok(),
        _ => None,
    }
}

fn cpus(words: &[std::ffi::c_ulong]) -> CpuList {
    let bits = std::ffi::c_ulong::BITS;
    let of_word = |(i, &word): (usize, &std::ffi::c_ulong)| {
        (0..bits).filter(move |bit| word >> bit & 1 == 1).map(move |bit| i as u32 * bits + bit)
    };
    words.iter().enumerate().flat_map(of_word).collect()
}

fn read_pairs(query: &mut Query<'_>, devices: &[(Option<Device<'_>>, NvmlGpu)]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (a, (one, first)) in devices.iter().enumerate() {
        for (b, (two, second)) in devices.iter().enumerate().skip(a + 1) {
            let (Some(one), Some(two)) = (one, two) else { continue };
            if first.lost || second.lost {
                continue;
            }
            let mut asked = query.gpu(first.index);
            let level = asked.ask("nvmlDeviceGetTopologyCommonAncestor", |n| {
                n.topology_common_ancestor(one, two)
            });
            let direct = second.address.as_ref().map_or(0, |address| first.links.to(address));
            let switched = first.links.to_switch() > 0 && second.links.to_switch() > 0;
            let nvlink = if direct == 0 && switched {
                let status = asked.ask("nvmlDeviceGetP2PStatus", |_| {
                    one.p2p_status(two, P2pCapabilitiesIndex::NvLink)
                });
                status.map(|status| status == P2pStatus::Ok)
            } else {
                None
            };
            pairs.push(Pair { a, b, path: level.map(path), nvlink });
        }
    }
    pairs
}

fn path(level: TopologyLevel) -> PciPath {
    match level {
        TopologyLevel::Internal => PciPath::BOARD,
        TopologyLevel::Single => PciPath::PIX,
        TopologyLevel::Multiple => PciPath::PXB,
        TopologyLevel::HostBridge => PciPath::PHB,
        TopologyLevel::Node => PciPath::NODE,
        TopologyLevel::System => PciPath::SYS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_words() {
        assert_eq!(cpus(&[0b1011, 0, 1 << 63]).to_string(), "0-1,3,191");
        assert_eq!(cpus(&[]).to_string(), "");
    }
}
