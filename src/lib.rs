//! Muster: a GPU- and topology-aware batch scheduler for Kubernetes.
//!
//! The library behind the program `muster`. The scheduling itself is in the
//! crate `muster-core`, which does no I/O; here is the live shell around it:
//! [`watch`] turns the API server's objects into inputs, [`mod@run`] drives the
//! core, [`mod@write`] turns its effects into API calls, [`controller`] writes the status of
//! pod groups and topologies, [`topology`] shows the network between nodes, [`ask`] asks servers of the
//! user's own, [`whatif`] answers questions about what keeps pods and what would let them run. A program with plugins of its own calls [`run()`]; [`plugin`] has what
//! their authors need.
#![forbid(unsafe_code)]

pub mod ask;
pub mod capture;
pub mod cli;
pub mod client;
pub mod config;
pub mod controller;
pub mod elect;
pub mod explain;
pub mod extend;
pub mod lint;
pub mod logging;
pub mod metrics;
pub mod plugin;
pub mod profile;
pub mod run;
pub mod serve;
pub mod shard;
pub mod topology;
pub mod watch;
pub mod whatif;
pub mod write;

pub use plugin::Registry;

/// The program `muster`, with these plugins: reads the command line, does what it says,
/// and returns what to end the process with.
#[must_use]
#[expect(clippy::needless_pass_by_value, reason = "a program hands its registry over")]
pub fn run(registry: Registry) -> std::process::ExitCode {
    cli::main(&registry)
}
