//! GPUs that are divided: the parts, and what else they could be divided into.

use muster_api::muster::node_topology::{MAX_MIG_DEVICES, Mig, MigDevice, MigProfile};
use nvml_wrapper::Device;

use super::query::Asked;
use super::{NvmlGpu, raw};

/// Numbers of profiles that the driver may know.
const PROFILES: u32 = 17;

/// How a GPU is divided; `None` if it cannot be. What else it could be divided into is asked only if it was not
/// divided when it was last `known`.
pub(super) fn read(asked: &mut Asked<'_, '_>, gpu: &Device<'_>, known: &NvmlGpu) -> Option<Mig> {
    let mode = asked.ask("nvmlDeviceGetMigMode", |_| gpu.mig_mode())?;
    let enabled = mode.current != 0;
    let pending = (mode.pending != mode.current).then_some(mode.pending != 0);
    if !enabled {
        return Some(Mig { enabled, pending, ..Mig::default() });
    }
    let memory = known.memory_bytes.unwrap_or(0);
    let profiles = match &known.mig {
        Some(mig) if mig.enabled => mig.profiles.clone(),
        _ => (0..PROFILES).filter_map(|index| profile(asked, gpu, index, memory)).collect(),
    };
    let most = asked.ask("nvmlDeviceGetMaxMigDeviceCount", |_| gpu.mig_device_count());
    let most = most.unwrap_or(0).min(MAX_MIG_DEVICES as u32);
    let devices = (0..most).filter_map(|index| part(asked, gpu, index, &profiles)).collect();
    Some(Mig { enabled, pending, devices, profiles })
}

fn profile(
    asked: &mut Asked<'_, '_>,
    gpu: &Device<'_>,
    index: u32,
    memory: u64,
) -> Option<MigProfile> {
    let (id, slices, mib) =
        asked.ask("nvmlDeviceGetGpuInstanceProfileInfo", |n| raw::profile(n, gpu, index))?;
    let places = asked
        .ask("nvmlDeviceGetGpuInstancePossiblePlacements_v2", |n| raw::placements(n, gpu, id))
        .unwrap_or_default();
    Some(MigProfile {
        name: name(slices, mib, memory, suffix(index)),
        id,
        size: places.first().map_or(0, |place| place.size),
        starts: places.iter().map(|place| place.start).collect(),
    })
}

/// The part at one of the driver's numbers, which have holes.
fn part(
    asked: &mut Asked<'_, '_>,
    gpu: &Device<'_>,
    index: u32,
    profiles: &[MigProfile],
) -> Option<MigDevice> {
    let part =
        asked.ask("nvmlDeviceGetMigDeviceHandleByIndex", |_| gpu.mig_device_by_index(index))?;
    let uuid = asked.ask("nvmlDeviceGetUUID", |_| part.uuid())?;
    let (gpu_instance, compute_instance) =
        asked.ask("nvmlDeviceGetGpuInstanceId", |n| raw::instance_ids(n, &part))?;
    let info = asked.ask("nvmlGpuInstanceGetInfo", |n| raw::instance(n, gpu, gpu_instance));
    let attributes = asked.ask("nvmlDeviceGetAttributes_v2", |_| part.attributes());
    let profile = info.and_then(|(id, _)| profiles.iter().find(|p| p.id == id));
    let name = profile.map_or_else(String::new, |profile| match &attributes {
        Some(a) if a.compute_instance_slice_count < a.gpu_instance_slice_count => {
            format!("{}c.{}", a.compute_instance_slice_count, profile.name)
        }
        _ => profile.name.clone(),
    });
    Some(MigDevice {
        uuid,
        profile: name,
        gpu_instance,
        compute_instance,
        memory_bytes: attributes.map_or(0, |a| a.memory_size_mb << 20),
        placement: info.map(|(_, placement)| placement),
    })
}

/// The name as NVIDIA's tools make it: memory in eighths of the GPU's, rounded.
fn name(slices: u32, mib: u64, memory: u64, suffix: &str) -> String {
    let total = memory.max(1);
    let eighths = ((mib << 20).saturating_mul(8)).div_ceil(total);
    let gib = total.div_ceil(1 << 30);
    let gb = (eighths * gib + 4) / 8;
    format!("{slices}g.{gb}gb{suffix}")
}

/// Profiles that differ in engines only.
fn suffix(index: u32) -> &'static str {
    match index {
        7 | 8 => "+me",
        10..=12 => "+gfx",
        13 | 14 => "-me",
        15 | 16 => "+me.all",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_nvidia() {
        // Memory as `nvidia-smi mig -lgip` prints it.
        let cases = [
            (1, 4864, 40_960, 0, "1g.5gb"),
            (1, 4864, 40_960, 7, "1g.5gb+me"),
            (1, 9856, 40_960, 9, "1g.10gb"),
            (3, 19_968, 40_960, 2, "3g.20gb"),
            (7, 40_192, 40_960, 4, "7g.40gb"),
            (1, 9728, 81_920, 0, "1g.10gb"),
            (7, 80_896, 81_920, 4, "7g.80gb"),
        ];
        for (slices, mib, total, index, expected) in cases {
            assert_eq!(name(slices, mib, total << 20, suffix(index)), expected);
        }
        assert_eq!(name(1, 0, 0, ""), "1g.0gb");
    }
}
