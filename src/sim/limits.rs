//! Every limit of the simulator, with its name.
//!
//! A scenario beyond one of these is refused with a message that names the limit;
//! nothing is cut silently.

use crate::time::{DAY, Micros};

/// Bytes of a scenario file.
pub const MAX_SCENARIO_BYTES: usize = 4 << 20;
/// Entries of `nodes`.
pub const MAX_NODE_GROUPS: usize = 1_000;
/// Nodes, those that events add included.
pub const MAX_NODES: u64 = 100_000;
/// Entries of `workloads`.
pub const MAX_WORKLOADS: usize = 10_000;
/// Pods over the whole run, before replacements.
pub const MAX_PODS: u64 = 200_000;
/// Entries of `events`.
pub const MAX_EVENTS: usize = 10_000;
/// Node names in one event.
pub const MAX_EVENT_TARGETS: usize = 10_000;
/// Labels of a node or a pod.
pub const MAX_LABELS: usize = 100;
/// Taints of a node, tolerations of a pod.
pub const MAX_TAINTS: usize = 100;
/// Resources in one list.
pub const MAX_RESOURCES: usize = 64;
/// Length of a name.
pub const MAX_NAME: usize = 200;
/// Any duration, and the length of a run.
pub const MAX_DURATION: Micros = 365 * DAY;
/// Pods that replace lost ones, per run.
pub const MAX_REPLACEMENTS: u64 = 200_000;
/// Events the engine handles before it says that the scenario does not settle.
pub const MAX_STEPS: u64 = 200_000_000;
/// As [`MAX_STEPS`], for the small worlds of the swarm: most need a few hundred.
pub const MAX_SWARM_STEPS: u64 = 200_000;
/// Violations kept in full; the rest is counted.
pub const MAX_VIOLATIONS: usize = 100;
/// Malformed objects and unanswered calls kept in full; the rest is counted.
pub const MAX_WARNINGS: usize = 100;
/// Scheduler processes.
pub const MAX_REPLICAS: i64 = 3;
/// Entries of `budgets`.
pub const MAX_BUDGETS: usize = 1_000;
/// Entries of `priorityClasses`.
pub const MAX_CLASSES: usize = 100;
/// As [`MAX_STEPS`], when faults are injected.
pub const MAX_FAULTY_STEPS: u64 = 2_000_000;
