//! Muster: a GPU- and topology-aware batch scheduler for Kubernetes.
//!
//! The library behind the program `muster`. The scheduling itself is in the
//! crate `muster-core`, which does no I/O; here is the live shell around it:
//! [`watch`] turns the API server's objects into inputs, [`run`] drives the
//! core, [`write`] turns its effects into API calls.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod config;
pub mod elect;
pub mod explain;
pub mod extend;
pub mod logging;
pub mod metrics;
pub mod profile;
pub mod run;
pub mod serve;
pub mod watch;
pub mod write;
