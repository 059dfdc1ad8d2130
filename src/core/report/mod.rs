//! Why: what every decision says about itself.
//!
//! Owns the words people read: fit messages, explanations, views of queue and
//! cache. Must never influence a decision.

mod explain;
mod fit_error;
mod observe;
mod preemption;
mod views;

pub use explain::{
    DomainView, Explanation, GangVictimsView, GangView, MAX_DOMAINS_SHOWN, MAX_PROTECTED_SHOWN,
    MAX_VICTIMS_SHOWN, NodeVerdict, PolicyInForce, PreemptionView, TieSeed, VictimsView,
};
pub use fit_error::fit_message;
pub use observe::{AttemptResult, Observation};
pub use views::{
    CacheNode, CacheView, GangCounts, PendingCounts, PolicyReport, PolicyView, QueueView, QueuedPod,
};

pub(crate) use explain::{Asked, explain};
pub(crate) use fit_error::truncate_note;
