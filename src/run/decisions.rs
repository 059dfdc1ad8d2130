//! Decisions in the log, in as much detail as `-v` asks for.

use muster_core::{Decision, Outcome};
use tracing::info;

use crate::logging::{SCORES, VERDICTS};

/// From here on every decision is logged.
const DECISIONS: u8 = 3;

/// Whether the core must explain its decisions.
pub(super) fn wants_trace(verbosity: u8) -> bool {
    verbosity >= VERDICTS
}

/// Logs a decision.
pub(super) fn log(decision: &Decision, verbosity: u8) {
    if verbosity < DECISIONS {
        return;
    }
    let pod = &decision.pod;
    let (evaluated, feasible) = (decision.evaluated, decision.feasible);
    let message = decision.message.as_deref().unwrap_or_default();
    match &decision.outcome {
        Outcome::Scheduled { node } => {
            info!(%pod, %node, evaluated, feasible, "node chosen");
        }
        Outcome::WaitingOnPermit { node } => {
            info!(%pod, %node, evaluated, feasible, "node chosen, waiting at Permit");
        }
        Outcome::Gathered { members } => {
            let gang = decision.gang.as_ref().map(ToString::to_string).unwrap_or_default();
            info!(gang, members = members.len(), evaluated, "a gang has room");
        }
        Outcome::Accumulating { members } => {
            let gang = decision.gang.as_ref().map(ToString::to_string).unwrap_or_default();
            info!(gang, members = members.len(), message, "a gang keeps what it has found");
        }
        Outcome::Unschedulable => info!(%pod, evaluated, message, "unschedulable"),
        Outcome::Error => info!(%pod, evaluated, message, "scheduling failed"),
        Outcome::Skipped => info!(%pod, message, "skipped"),
        Outcome::Asking => info!(%pod, evaluated, feasible, message, "asking an extender"),
    }
    if let Some(explanation) = &decision.explanation
        && let Ok(mut value) = serde_json::to_value(explanation)
    {
        if verbosity < SCORES {
            drop_scores(&mut value);
        }
        info!(%pod, "verdicts: {value}");
    }
}

/// Below [`SCORES`] a node's verdict is enough.
fn drop_scores(value: &mut serde_json::Value) {
    let nodes = value.get_mut("nodes").and_then(|nodes| nodes.as_object_mut());
    for (_, node) in nodes.into_iter().flatten() {
        if let Some(node) = node.as_object_mut() {
            node.remove("scores");
        }
    }
}
