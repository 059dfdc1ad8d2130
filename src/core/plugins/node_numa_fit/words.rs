//! What people read of nodes that a pod cannot go to.

use std::sync::Arc;

use crate::numa::{Machine, Memo, Pod, Prediction, remedy};

/// Nothing is known of a node.
pub(super) const UNREPORTED: &str =
    "node(s) whose agent has not said yet what they are inside: is muster-node-agent running?";
/// Pods were bound to a node long ago, and its agent has not seen them.
pub(super) const BEHIND: &str =
    "node(s) whose agent is behind: is muster-node-agent running, and the kubelet?";

/// Pods are on their way to a node, and another one might not be admitted with them.
pub(super) fn waiting(pods: usize) -> String {
    format!("node(s) on which the agent has not seen {pods} pod(s) yet that are bound there")
}

/// What the kubelet would say, and why, in the words of people.
pub(super) fn refusal(
    memo: &Memo,
    machine: &Arc<Machine>,
    pod: &Arc<Pod>,
    prediction: &Prediction,
) -> Arc<str> {
    let Some(refusal) = prediction.refused.first() else {
        return "node(s) whose kubelet may decide in more ways than can be followed".into();
    };
    let reason = refusal.cause.reason().as_str();
    let may = if prediction.admitted.is_empty() { "would" } else { "might" };
    let mut text = format!("node(s) whose kubelet {may} refuse the pod ({reason}): ");
    text += &match &refusal.clash {
        Some(clash) => clash.to_string(),
        None => refusal.cause.to_string(),
    };
    if let Some(remedy) = remedy(memo, machine, pod, refusal) {
        text += &format!(": {remedy}");
    }
    text.into()
}
