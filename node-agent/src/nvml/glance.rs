//! A quick look: whether something may have changed that no event tells of.
//!
//! Owns which few questions are worth asking every second: how many GPUs there are, whether they
//! answer, their links, their fabric, what they say of their health. Must never interpret an answer:
//! whatever is other than before calls for a real look.

use std::hash::{Hash, Hasher};
use std::mem::discriminant;
use std::time::{Duration, Instant};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_NVLINK_GET_STATE,
};
use nvml_wrapper::{Device, Nvml};

use super::client::Progress;
use super::{Snapshot, raw};
use muster_api::muster::node_topology::MAX_GPUS;

/// A quick look that takes longer than this is none.
const SLOW: Duration = Duration::from_millis(100);
/// How long there are no quick looks where they are slow.
const REST: Duration = Duration::from_secs(60);

/// What the last looks were like.
#[derive(Default)]
pub(super) struct Glances {
    /// Links of each GPU, by its number, as the last real look counted them.
    links: Vec<u32>,
    /// What was seen right before the last real look.
    before: Option<u64>,
    rest_until: Option<Instant>,
}

impl Glances {
    /// Notes how things are right before a real look: what changes after that is either seen by
    /// that look or by the next quick one. Says whether all is as it was before the last one.
    pub(super) fn begin(&mut self, nvml: &Nvml, progress: &Progress) -> bool {
        let before = self.before;
        self.before = self.look(nvml, progress);
        before.is_some() && self.before == before
    }

    /// Takes over what a real look has found. If it counts other links than before, the next quick
    /// look finds a difference, and is followed by another real one.
    pub(super) fn end(&mut self, snapshot: &Snapshot) {
        self.links = snapshot.gpus.iter().map(|gpu| gpu.links.total).collect();
    }

    /// Whether something is other than before the last real look.
    pub(super) fn differ(&mut self, nvml: &Nvml, progress: &Progress) -> bool {
        let now = self.look(nvml, progress);
        now.is_some() && now != self.before
    }

    fn look(&mut self, nvml: &Nvml, progress: &Progress) -> Option<u64> {
        let began = Instant::now();
        if self.rest_until.is_some_and(|until| began < until) {
            return None;
        }
        let mut seen = Seen { progress, sum: std::hash::DefaultHasher::new() };
        let count = seen.ask("nvmlDeviceGetCount_v2", || nvml.device_count()).unwrap_or(0);
        for index in 0..count.min(MAX_GPUS as u32) {
            let device = || nvml.device_by_index(index).map(Handle);
            if let Some(Handle(device)) = seen.ask("nvmlDeviceGetHandleByIndex_v2", device) {
                let links = self.links.get(index as usize).copied().unwrap_or(0);
                seen.gpu(nvml, &device, links);
            }
        }
        self.rest_until = (began.elapsed() > SLOW).then(|| Instant::now() + REST);
        Some(seen.sum.finish())
    }
}

/// A GPU behind its number: another one may come to have it.
struct Handle<'a>(Device<'a>);

impl Hash for Handle<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        raw::number(&self.0).hash(state);
    }
}

struct Seen<'a> {
    progress: &'a Progress,
    sum: std::hash::DefaultHasher,
}

impl Seen<'_> {
    /// The answer; that there is none is an answer, too.
    fn ask<T: Hash>(
        &mut self,
        function: &'static str,
        call: impl FnOnce() -> Result<T, NvmlError>,
    ) -> Option<T> {
        self.progress.begin(function);
        let answer = call();
        self.progress.end();
        match &answer {
            Ok(value) => value.hash(&mut self.sum),
            Err(error) => discriminant(error).hash(&mut self.sum),
        }
        answer.ok()
    }

    fn gpu(&mut self, nvml: &Nvml, device: &Device<'_>, links: u32) {
        let state = |link| (NVML_FI_DEV_NVLINK_GET_STATE, link);
        let fields: Vec<(u32, u32)> = [(NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)]
            .into_iter()
            .chain((0..links).map(state))
            .collect();
        // All of them in one call.
        let values = self.ask("nvmlDeviceGetFieldValues", || raw::fields(nvml, device, &fields));
        let told = values.is_some_and(|values| values.last().is_some_and(Result::is_ok));
        if links > 0 && !told {
            // Chips before Hopper tell it link by link.
            for link in 0..links {
                let wrapper = device.link_wrapper_for(link);
                self.ask("nvmlDeviceGetNvLinkState", || wrapper.is_active());
            }
        }
        self.ask("nvmlDeviceGetGpuFabricInfoV", || {
            raw::fabric(nvml, device).map(|f| (f.state, f.health, f.clique, f.error))
        });
        let rows = self.ask("nvmlDeviceGetRemappedRows", || raw::remapped_rows(nvml, device));
        if rows.is_none() {
            self.ask("nvmlDeviceGetRetiredPagesPendingStatus", || {
                device.are_pages_pending_retired()
            });
        }
    }
}
