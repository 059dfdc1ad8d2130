//! The model cluster: what surrounds the scheduler in a simulation.
//!
//! Owns a model API server and the controllers and kubelets that speak to it.
//! Each is a plain state machine: it is told what happened and when, and answers
//! with what it will do and when. Must never look into the scheduler, and never
//! reach it but through `crate::link`.

mod allocator;
pub(crate) mod api;
pub mod budget;
pub(crate) mod cluster;
pub mod errors;
pub mod eviction;
pub(crate) mod groups;
pub(crate) mod jobs;
pub(crate) mod kubelet;
pub(crate) mod log;
pub(crate) mod machines;
pub(crate) mod objects;
mod policies;
pub(crate) mod requests;
pub mod server;

pub use machines::GpuCounts;
