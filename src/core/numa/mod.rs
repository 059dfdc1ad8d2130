//! What a kubelet does with a pod: the admission of its Topology Manager with CPU,
//! Memory and Device Manager, predicted from a machine, its settings and what is in
//! use, exactly as kubelet v1.37.1 decides.
//!
//! [`predict`] follows the kubelet's own steps: hints per resource, one choice for all
//! of them, allocation, container by container. Where the kubelet leaves something to
//! chance (which device of several), every course is followed.
//!
//! Owns the rules of the kubelet. Must never know of clusters, schedulers or time:
//! `tests/kubelet-oracle` holds it against the kubelet's own code.

mod admit;
mod clash;
mod cpu_manager;
mod cpus;
mod device_manager;
mod distribute;
mod hints;
mod machine;
mod mask;
mod memo;
mod memory_manager;
mod orders;
mod pod;
mod refusal;
mod remedy;
mod take;
#[cfg(test)]
mod tests;

pub use admit::{Course, Given, MAX_COURSES, MAX_NODES, Near, Prediction, Refusal, predict};
pub use clash::Clash;
pub use cpus::{Cpu, CpuLayout, CpuSet};
pub use hints::spread;
pub use machine::{
    CpuOptions, DEFAULT_MAX_NODES, Device, DeviceResource, Machine, NodeMemory, NumaNode, Policy,
    Scope, Settings, Usage,
};
pub use mask::Mask;
pub use memo::Memo;
pub use orders::{Events, Holding, after, reached};
pub use pod::{Container, Pod, WholePod};
pub use refusal::{Cause, Reason};
pub use remedy::{Remedy, remedy};
pub use take::reserve;
