//! A stand-in for NVIDIA's management library: a shared object with the same functions,
//! which answer as a machine file says.
//!
//! Owns the part of NVML that the agent calls, with the memory layout of the real one.
//! The machine is read when the library is initialised, from the file that
//! `NVML_MOCK_MACHINE` names or from `machine.yaml` beside the library; faults are looked
//! for at every call (`NVML_MOCK_FAULTS`, or `faults.yaml`). Must never be asked for
//! anything but tests, and never crash the program that loads it.
#![allow(non_snake_case, reason = "the functions have NVIDIA's names")]

mod events;
mod health;
mod inventory;
mod links;
mod memory;
mod mig;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use std::{env, fs, panic, thread};

use muster_machines::{Faults, Gpu, Machine, mock};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const UNINITIALIZED: u32 = 1;
pub(crate) const INVALID_ARGUMENT: u32 = 2;
pub(crate) const NOT_SUPPORTED: u32 = 3;
pub(crate) const NOT_FOUND: u32 = 6;
pub(crate) const INSUFFICIENT_SIZE: u32 = 7;
pub(crate) const DRIVER_NOT_LOADED: u32 = 9;
pub(crate) const TIMEOUT: u32 = 10;
pub(crate) const GPU_IS_LOST: u32 = 15;
pub(crate) const VERSION_MISMATCH: u32 = 25;
pub(crate) const UNKNOWN: u32 = 999;

/// What a function answers: nothing, or NVML's error.
pub(crate) type Answer = Result<(), u32>;

/// The machine as it is during one call.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) machine: Arc<Machine>,
    pub(crate) faults: Arc<Faults>,
}

struct State {
    world: World,
    /// Which file the faults were read from: they are replaced, never written over.
    file: Option<(u64, SystemTime)>,
    path: PathBuf,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// The file that a variable names, or the one beside this library.
fn file(variable: &str, name: &str) -> PathBuf {
    match env::var_os(variable) {
        Some(path) => path.into(),
        None => memory::own_path().with_file_name(name),
    }
}

/// Reads the machine file, once.
pub(crate) fn start() -> Answer {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_none() {
        let path = file(mock::MACHINE, "machine.yaml");
        let text = fs::read_to_string(&path).map_err(|e| complain(&path.display().to_string(), &e));
        let machine =
            Machine::parse(&text?).map_err(|e| complain(&path.display().to_string(), &e))?;
        let world = World { machine: Arc::new(machine), faults: Arc::default() };
        let path = file(mock::FAULTS, "faults.yaml");
        *state = Some(State { world, file: None, path });
    }
    match &*state {
        Some(state) if state.world.machine.driver.is_some() => Ok(()),
        _ => Err(DRIVER_NOT_LOADED),
    }
}

fn complain(what: &str, error: &dyn std::fmt::Display) -> u32 {
    eprintln!("nvml-mock: {what}: {error}");
    UNKNOWN
}

/// The machine with the faults of this moment.
pub(crate) fn world() -> Result<World, u32> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let state = state.as_mut().ok_or(UNINITIALIZED)?;
    // Looked at before it is read: one that comes in between is read twice.
    let meta = fs::metadata(&state.path).ok();
    let file = meta.and_then(|meta| Some((meta.ino(), meta.modified().ok()?)));
    if file != state.file {
        let text = fs::read_to_string(&state.path).unwrap_or_default();
        let faults = Faults::parse(&text);
        let faults = faults.map_err(|e| complain(&state.path.display().to_string(), &e))?;
        state.world.faults = Arc::new(faults);
        state.file = file;
    }
    Ok(state.world.clone())
}

/// Where the faults are.
pub(crate) fn faults_file() -> Option<PathBuf> {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.as_ref().map(|state| state.path.clone())
}

/// Runs a function of NVML's: with the delay and the error that faults give it.
pub(crate) fn answer(function: &str, work: impl FnOnce(&World) -> Answer) -> nvmlReturn_t {
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let world = world()?;
        let delays = &world.faults.delays;
        if let Some(&delay) = delays.get(function).or_else(|| delays.get("*")) {
            thread::sleep(Duration::from_millis(delay));
        }
        match world.faults.errors.get(function) {
            Some(&error) => Err(error),
            None => work(&world),
        }
    }));
    match result {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) => error,
        Err(_) => UNKNOWN,
    }
}

/// A GPU, or a part of one.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    /// Among all that the driver has ever reported.
    pub(crate) gpu: u32,
    /// The GPU instance, of a part.
    pub(crate) instance: Option<u32>,
}

impl Handle {
    pub(crate) fn of(device: nvmlDevice_t) -> Option<Self> {
        let value = device as usize;
        let gpu = (value & 0xffff).checked_sub(1)? as u32;
        Some(Self { gpu, instance: (value >> 16).checked_sub(1).map(|i| i as u32) })
    }

    pub(crate) fn to_device(self) -> nvmlDevice_t {
        let instance = self.instance.map_or(0, |i| i as usize + 1);
        ((self.gpu as usize + 1) | (instance << 16)) as nvmlDevice_t
    }
}

impl World {
    /// The numbers of the GPUs that the driver counts now.
    pub(crate) fn present(&self) -> Vec<u32> {
        let all = 0..self.machine.reported().count() as u32;
        all.filter(|gpu| !self.faults.gone.contains(gpu)).collect()
    }

    pub(crate) fn at(&self, gpu: u32) -> Result<&Gpu, u32> {
        self.machine.reported().nth(gpu as usize).ok_or(INVALID_ARGUMENT)
    }

    /// The GPU behind a handle, if it answers.
    pub(crate) fn gpu(&self, device: nvmlDevice_t) -> Result<(Handle, &Gpu), u32> {
        let handle = Handle::of(device).ok_or(INVALID_ARGUMENT)?;
        let gpu = self.at(handle.gpu)?;
        if self.faults.lost.contains(&handle.gpu) || self.faults.gone.contains(&handle.gpu) {
            return Err(GPU_IS_LOST);
        }
        Ok((handle, gpu))
    }
}

/// Functions about a device: `fn name(handle, gpu, world; argument: type, ...) { ... }`.
macro_rules! device_functions {
    ($(fn $name:ident($handle:ident, $gpu:ident, $world:ident; $($arg:ident: $type:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(
                device: nvml_wrapper_sys::bindings::nvmlDevice_t,
                $($arg: $type),*
            ) -> nvml_wrapper_sys::bindings::nvmlReturn_t {
                $crate::answer(stringify!($name), |$world| {
                    let ($handle, $gpu) = $world.gpu(device)?;
                    let _ = (&$handle, &$gpu);
                    $body
                })
            }
        )*
    };
}
pub(crate) use device_functions;
