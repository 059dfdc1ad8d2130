//! The thread that waits for NVML's events.
//!
//! Owns which events are asked for, and to which GPU one belongs. Must never spin: after
//! a second error in a short time it pauses before it asks again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use super::client::Shared;
use super::raw::{self, EventSet};
use super::{Snapshot, bus_id};

const DOUBLE_BIT_ECC: u64 = 0x2;
const XID: u64 = 0x8;
const MIG_CHANGED: u64 = 0x100;
const DRAM_RETIREMENT_FAILURE: u64 = 0x800;
const FATAL_POISON: u64 = 0x2000;
const UNAVAILABLE: u64 = 0x4000;
const RECOVERY_ACTION: u64 = 0x8000;
const WANTED: u64 = DOUBLE_BIT_ECC
    | XID
    | MIG_CHANGED
    | DRAM_RETIREMENT_FAILURE
    | FATAL_POISON
    | UNAVAILABLE
    | RECOVERY_ACTION;
/// How long one wait for an event is.
const WAIT_MILLISECONDS: u32 = 1000;
/// How long to pause after an error, if the one before was no longer ago.
const PAUSE: Duration = Duration::from_secs(5);

/// Something that happened to a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The address of the GPU in the form of sysfs; `None` if it is not one that was asked about.
    pub address: Option<String>,
    pub kind: EventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    Xid {
        number: u64,
        /// The GPU instance that it is about, of a divided GPU.
        instance: Option<u32>,
    },
    /// Something that the next reading shows.
    Changed,
}

/// The waiting thread, as the thread that reads sees it.
pub(super) struct Listening {
    shared: Option<Arc<Flags>>,
}

struct Flags {
    stop: AtomicBool,
    /// Events have come since the last reading.
    happened: AtomicBool,
    /// Other GPUs answer than before: they have to be registered.
    changed: AtomicBool,
    /// Addresses of GPUs that answered at the last reading.
    gpus: Mutex<Option<Vec<String>>>,
}

impl Listening {
    pub(super) fn new(nvml: &Arc<Nvml>, shared: &Arc<Shared>, wanted: bool) -> Self {
        // Without these there is nothing to wait for.
        let lib = nvml.lib();
        let can = lib.nvmlEventSetCreate.is_ok()
            && lib.nvmlEventSetWait_v2.is_ok()
            && lib.nvmlDeviceRegisterEvents.is_ok();
        if !(wanted && can) {
            return Self { shared: None };
        }
        let flags = Arc::new(Flags {
            stop: AtomicBool::new(false),
            happened: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            gpus: Mutex::default(),
        });
        let (nvml, shared, own) = (Arc::clone(nvml), Arc::clone(shared), Arc::clone(&flags));
        let work = move || {
            let mut before: Option<Instant> = None;
            while !own.ends(&shared) {
                // An error is seen by the reading thread too, which reports it. After a first one the GPUs that answer
                // are registered again at once, so that no event of theirs is missed.
                if listen(&nvml, &shared, &own).is_err() {
                    if before.is_some_and(|before| before.elapsed() < PAUSE) {
                        shared.pause(PAUSE);
                    }
                    before = Some(Instant::now());
                }
            }
            if nvml.lib().nvmlShutdown.is_err() {
                std::mem::forget(nvml);
            }
        };
        let started = thread::Builder::new().name("nvml-events".to_owned()).spawn(work).is_ok();
        Self { shared: started.then_some(flags) }
    }

    /// Whether something has happened since the last time.
    pub(super) fn happened(&self) -> bool {
        self.shared.as_ref().is_some_and(|flags| flags.happened.swap(false, Ordering::Relaxed))
    }

    /// Listens to the GPUs that answer now.
    pub(super) fn follow(&self, snapshot: &Snapshot) {
        let Some(flags) = &self.shared else { return };
        let answering = snapshot.gpus.iter().filter(|gpu| !gpu.lost);
        let gpus: Vec<String> = answering.filter_map(|gpu| gpu.address.clone()).collect();
        let mut known = flags.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        // GPUs that are gone need no new registration, nor do those of the first reading.
        if known.as_ref().is_some_and(|known| gpus.iter().any(|gpu| !known.contains(gpu))) {
            flags.changed.store(true, Ordering::Relaxed);
        }
        *known = Some(gpus);
    }

    pub(super) fn end(&self) {
        if let Some(flags) = &self.shared {
            flags.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Flags {
    fn ends(&self, shared: &Shared) -> bool {
        self.stop.load(Ordering::Relaxed) || shared.stop.load(Ordering::Relaxed)
    }
}

/// Registers all GPUs and waits for their events, until others answer.
fn listen(nvml: &Nvml, shared: &Shared, flags: &Flags) -> Result<(), NvmlError> {
    flags.changed.store(false, Ordering::Relaxed);
    let set = EventSet::new(nvml)?;
    let mut known = Vec::new();
    for index in 0..nvml.device_count()? {
        // A GPU that does not answer has no events.
        let Ok(device) = nvml.device_by_index(index) else { continue };
        if set.register(&device, WANTED).is_ok() {
            known.push((raw::number(&device), device.pci_info().ok().map(|pci| bus_id(&pci))));
        }
    }
    while !flags.ends(shared) && !flags.changed.load(Ordering::Relaxed) {
        let event = match set.wait(WAIT_MILLISECONDS) {
            Err(NvmlError::Timeout) => continue,
            Err(NvmlError::GpuLost) => {
                // It does not say which; a reading will.
                flags.happened.store(true, Ordering::Relaxed);
                shared.push(Event { address: None, kind: EventKind::Changed });
                return Err(NvmlError::GpuLost);
            }
            event => event?,
        };
        let device = known.iter().find(|(number, _)| *number == event.device);
        let kind = match event.kind {
            XID => EventKind::Xid { number: event.data, instance: event.instance },
            _ => EventKind::Changed,
        };
        flags.happened.store(true, Ordering::Relaxed);
        shared.push(Event { address: device.and_then(|(_, address)| address.clone()), kind });
    }
    Ok(())
}
