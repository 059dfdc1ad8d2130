//! Views of queue and cache for people and for comparison with the API server.

use std::sync::Arc;

use serde::Serialize;

use crate::gang::GangKey;

/// What waits, by queue, in the order it would be tried.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// Waiting pods.
    pub pods: Vec<QueuedPod>,
}

/// A waiting pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedPod {
    /// `namespace/name`.
    pub pod: String,
    /// `active`, `backoff`, `unschedulable`, `gated`, `asking` (an extender), `permit`, `prebind`
    /// or `binding`.
    pub queue: &'static str,
    /// Priority.
    pub priority: i32,
    /// Attempts so far.
    pub attempts: u32,
    /// Microseconds since the epoch at which it was first seen.
    pub first_queued_micros: i64,
    /// Node it is reserved on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Why it waits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What the core believes of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheView {
    /// Nodes by name.
    pub nodes: Vec<CacheNode>,
    /// Pods reserved and not yet seen bound.
    pub assumed: Vec<String>,
}

/// A node in the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheNode {
    /// Name.
    pub name: String,
    /// Pods on it, `namespace/name`, sorted.
    pub pods: Vec<String>,
    /// Requested by resource name, non-zero ones.
    pub requested: std::collections::BTreeMap<String, i64>,
    /// Allocatable by resource name, non-zero ones.
    pub allocatable: std::collections::BTreeMap<String, i64>,
}

/// Gangs with members that wait, by queue, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GangCounts {
    /// Ready to be tried, or on their way to be bound.
    pub active: usize,
    /// Backing off.
    pub backoff: usize,
    /// Waiting for an event.
    pub unschedulable: usize,
    /// Without enough members.
    pub incomplete: usize,
    /// Room is being freed for them.
    pub holds: usize,
}

/// Sizes, for gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// Ready to be tried.
    pub active: usize,
    /// Backing off.
    pub backoff: usize,
    /// Waiting for an event.
    pub unschedulable: usize,
    /// Held by PreEnqueue.
    pub gated: usize,
    /// Reserved, not yet seen bound.
    pub assumed: usize,
    /// Waiting for an extender's answer.
    pub asking: usize,
    /// Pods known.
    pub pods: usize,
    /// Nodes known.
    pub nodes: usize,
    /// Nodes that are avoided because their kubelets refuse pods, counted once for each
    /// thing that was asked of them.
    pub avoided: usize,
}

/// What is said of scheduling policies, and what they say of gangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyReport {
    /// By name.
    pub policies: Vec<PolicyView>,
    /// How many seconds members of a gang may take to start, if its group does not say.
    pub starts: Vec<(GangKey, i32)>,
}

/// What is said of a scheduling policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyView {
    /// Name.
    pub name: Box<str>,
    /// Incarnation.
    pub uid: Box<str>,
    /// The generation of the spec that this is said of.
    pub generation: Option<i64>,
    /// It is in force.
    pub accepted: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: Arc<str>,
    /// Pods of ours that it governs.
    pub governed: u64,
}
