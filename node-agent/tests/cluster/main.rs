//! The program as a whole: machine files, their NVML and sysfs, a kubelet, and a real API server with the agent's
//! own role, token and policy.

mod faults;
mod golden;
mod idle;
#[path = "../support/kubelet.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod kubelet;
mod policy;
mod recovery;
mod rights;
mod support;
