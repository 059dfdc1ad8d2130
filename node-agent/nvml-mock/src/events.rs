//! Events: XIDs and divisions, told once each.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_uint, c_ulonglong};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use muster_machines::Mig;
use nvml_wrapper_sys::bindings::{nvmlEventData_t, nvmlEventSet_t, nvmlReturn_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::memory::put;
use crate::{
    GPU_IS_LOST, Handle, SUCCESS, TIMEOUT, World, answer, device_functions, faults_file, world,
};

const XID: c_ulonglong = 8;
const MIG_CHANGED: c_ulonglong = 0x100;
/// How often the faults are looked at where changes of their file are not told.
const PAUSE: Duration = Duration::from_millis(50);

struct Told {
    lost: BTreeSet<u32>,
    xids: usize,
    mig: BTreeMap<u32, Mig>,
}

static TOLD: Mutex<Told> =
    Mutex::new(Told { lost: BTreeSet::new(), xids: 0, mig: BTreeMap::new() });

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    answer("nvmlEventSetCreate", |_| put(set, 1 as nvmlEventSet_t))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: nvmlEventSet_t) -> nvmlReturn_t {
    SUCCESS
}

device_functions! {
    fn nvmlDeviceGetSupportedEventTypes(handle, gpu, world; types: *mut c_ulonglong) {
        put(types, 0x1 | 0x2 | XID | 0x10 | MIG_CHANGED)
    }

    fn nvmlDeviceRegisterEvents(handle, gpu, world; _types: c_ulonglong, _set: nvmlEventSet_t) {
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(
    _set: nvmlEventSet_t,
    data: *mut nvmlEventData_t,
    milliseconds: c_uint,
) -> nvmlReturn_t {
    let until = Instant::now() + Duration::from_millis(u64::from(milliseconds));
    answer("nvmlEventSetWait_v2", |_| {
        // Before the first look, so that nothing comes in between.
        let watch = watch();
        loop {
            let world = world()?;
            if newly_lost(&world) {
                return Err(GPU_IS_LOST);
            }
            if let Some(event) = next(&world) {
                return put(data, event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(TIMEOUT);
            }
            wait(watch.as_ref(), left);
        }
    })
}

/// Tells when the file of the faults is replaced. The real library sleeps until the kernel wakes it, too: whoever
/// measures what waiting costs shall not measure this mock.
fn watch() -> Option<OwnedFd> {
    let path = faults_file()?;
    let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
    inotify::add_watch(&fd, path.parent()?, WatchFlags::MOVED_TO).ok()?;
    Some(fd)
}

fn wait(watch: Option<&OwnedFd>, left: Duration) {
    let Some(fd) = watch else { return thread::sleep(left.min(PAUSE)) };
    let Ok(left) = Timespec::try_from(left) else { return };
    if poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)).is_ok_and(|ready| ready > 0) {
        let mut buffer = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(fd, &mut buffer);
        while events.next().is_ok() {}
    }
}

/// Whether a GPU was lost since the last time: the real library then says so, and not which.
fn newly_lost(world: &World) -> bool {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    let lost: BTreeSet<u32> = world.faults.lost.iter().chain(&world.faults.gone).copied().collect();
    let newly = !lost.is_subset(&told.lost);
    told.lost = lost;
    newly
}

fn next(world: &World) -> Option<nvmlEventData_t> {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(xid) = world.faults.xids.get(told.xids) {
        told.xids += 1;
        return Some(event(xid.gpu, XID, xid.xid, xid.instance));
    }
    let changed = |(gpu, mig): &(&u32, &Mig)| told.mig.get(gpu) != Some(mig);
    let (&gpu, mig) = world.faults.mig.iter().find(changed)?;
    told.mig.insert(gpu, mig.clone());
    Some(event(gpu, MIG_CHANGED, 0, None))
}

fn event(gpu: u32, kind: c_ulonglong, data: u64, instance: Option<u32>) -> nvmlEventData_t {
    nvmlEventData_t {
        device: Handle { gpu, instance: None }.to_device(),
        eventType: kind,
        eventData: data,
        gpuInstanceId: instance.unwrap_or(u32::MAX),
        computeInstanceId: instance.map_or(u32::MAX, |_| 0),
    }
}
