//! Disruption budgets as the checker knows them.
//!
//! Owns its own reading of selectors. What upstream reads in two ways (an empty
//! selector) covers nobody here: in doubt the checker is silent.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;

use super::pods::Pod;

/// A budget as last seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    namespace: String,
    selector: k8s::LabelSelector,
    pub(super) allowed: i64,
    /// Names of pods whose eviction is counted already.
    pub(super) disrupted: BTreeSet<String>,
    /// The relist in which it was last seen.
    pub(super) seen: u64,
    /// Which change of budgets it was that it was last seen in.
    pub(super) changed: u64,
}

impl Budget {
    pub(super) fn of(wire: &k8s::PodDisruptionBudget, seen: u64) -> Self {
        Self {
            namespace: wire.metadata.namespace.clone(),
            selector: wire.spec.selector.clone().unwrap_or_default(),
            allowed: i64::from(wire.status.disruptions_allowed),
            disrupted: wire.status.disrupted_pods.keys().cloned().collect(),
            seen,
            changed: 0,
        }
    }

    /// Whether it guards the pod for certain.
    pub(super) fn guards(&self, pod: &Pod) -> bool {
        let k8s::LabelSelector { match_labels, match_expressions } = &self.selector;
        let empty = match_labels.is_empty() && match_expressions.is_empty();
        self.namespace == pod.namespace
            && !empty
            && !pod.labels.is_empty()
            && match_labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
            && match_expressions.iter().all(|r| holds(r, &pod.labels))
    }
}

fn holds(requirement: &k8s::LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let (label, values) = (labels.get(&requirement.key), &requirement.values);
    match requirement.operator.as_str() {
        "In" => label.is_some_and(|l| values.contains(l)),
        "NotIn" => !values.is_empty() && label.is_none_or(|l| !values.contains(l)),
        "Exists" => values.is_empty() && label.is_some(),
        "DoesNotExist" => values.is_empty() && label.is_none(),
        _ => false,
    }
}
