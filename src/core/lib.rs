//! Muster's scheduling core: a state machine without I/O.
//!
//! [`Input`](io::Input) in, [`Effect`](io::Effect) out. There is no clock, no
//! randomness, no client and no thread here beyond rayon over indexed columns:
//! the live scheduler, the simulator, `explain` and every test drive this same
//! code, and the same inputs and seed give the same bytes out.
//!
//! See `ARCHITECTURE.md` for what each module owns and must never do.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod audit;
mod bugs;
pub mod cluster;
mod cycle;
pub mod framework;
pub mod gang;
pub mod gpu_links;
mod hash;
pub mod io;
pub mod model;
pub mod numa;
pub mod outbox;
pub mod plugins;
pub mod policy;
mod preemption;
mod queue;
pub mod report;
#[cfg(test)]
#[allow(dead_code, reason = "builders for whoever needs them")]
mod testing;
pub mod topology;

#[cfg(any(test, feature = "seeded-bugs"))]
pub use bugs::Bug;
pub(crate) use cycle::RELEASE;
pub use cycle::{
    Config, Core, Decision, MAX_VERSIONS, Outcome, Question, Reload, ReloadError, Stopwatch,
};
pub use framework::Profile;
pub use queue::Backoff;
pub use report::{
    CacheNode, CacheView, Explanation, GangCounts, PendingCounts, QueueView, QueuedPod,
};
