//! Why: what every decision says about itself.
//!
//! Owns the words people read: fit messages, explanations, views of queue and
//! cache. Must never influence a decision.

mod explain;
mod fit_error;
mod observe;
mod views;

pub use explain::{Explanation, NodeVerdict, TieSeed, explain};
pub use fit_error::fit_message;
pub use observe::{AttemptResult, Observation};
pub use views::{CacheNode, CacheView, PendingCounts, QueueView, QueuedPod};

pub(crate) use fit_error::truncate_note;
