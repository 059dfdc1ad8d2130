//! PodDisruptionBudgets and the controller that keeps their status.
//!
//! Owns the arithmetic of disruptions: how many healthy pods a budget wants, has,
//! and can spare. Must never delete a pod.

use std::collections::BTreeMap;

use muster_api::k8s::{self, LabelSelector, ObjectMeta, Pod};
use muster_core::io::Tick;

use super::objects::is_ready;
use crate::time::{MINUTE, Micros};

/// An eviction that did not lead to a deletion within this is forgotten.
const DELETION_TIMEOUT: Micros = 2 * MINUTE;

/// A number or a share of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Count(i64),
    /// So many in a hundred, rounded up.
    Percent(u8),
}

impl Amount {
    fn of(self, all: i64) -> i64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => (all * i64::from(percent) + 99) / 100,
        }
    }
}

/// A PodDisruptionBudget's spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `selector.matchLabels`; empty selects all pods of the namespace.
    pub match_labels: BTreeMap<String, String>,
    /// `minAvailable`.
    pub min_available: Option<Amount>,
    /// `maxUnavailable`.
    pub max_unavailable: Option<Amount>,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`; else `IfHealthyBudget`.
    pub always_allow_unhealthy: bool,
}

impl Budget {
    /// Whether the pod is under this budget.
    #[must_use]
    pub fn covers(&self, pod: &Pod) -> bool {
        let labels = &pod.metadata.labels;
        pod.metadata.namespace == self.namespace
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// A PodDisruptionBudget's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetStatus {
    /// Whether the controller has seen the budget.
    pub observed: bool,
    /// Evictions that may still happen.
    pub disruptions_allowed: i64,
    /// Healthy pods.
    pub current_healthy: i64,
    /// Healthy pods wanted.
    pub desired_healthy: i64,
    /// Pods under the budget, or that their controllers want.
    pub expected_pods: i64,
    /// Pods whose eviction was accepted and whose deletion was not seen, and when.
    pub disrupted_pods: BTreeMap<String, Tick>,
}

/// A budget in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBudget {
    /// What is wanted.
    pub spec: Budget,
    /// What is.
    pub status: BudgetStatus,
}

impl StoredBudget {
    /// As a watch shows it.
    pub(crate) fn object(&self, number: usize, version: String) -> k8s::PodDisruptionBudget {
        let Budget { namespace, name, match_labels, .. } = &self.spec;
        let status = &self.status;
        let selector =
            LabelSelector { match_labels: match_labels.clone(), ..LabelSelector::default() };
        let disrupted = status.disrupted_pods.iter();
        k8s::PodDisruptionBudget {
            metadata: ObjectMeta {
                namespace: namespace.clone(),
                name: name.clone(),
                uid: format!("00000000-0000-4000-a000-{number:012x}"),
                resource_version: version,
                ..ObjectMeta::default()
            },
            spec: k8s::PodDisruptionBudgetSpec { selector: Some(selector) },
            status: k8s::PodDisruptionBudgetStatus {
                disruptions_allowed: i32::try_from(status.disruptions_allowed).unwrap_or(i32::MAX),
                disrupted_pods: disrupted
                    .map(|(name, since)| (name.clone(), Some(k8s::Time(since.0))))
                    .collect(),
            },
        }
    }

    /// The controller looks at the pods of the namespace. `scale` says how many
    /// pods their controllers want, where that counts.
    pub(crate) fn reconcile<'a>(
        &mut self,
        now: Tick,
        pods: impl Iterator<Item = &'a Pod>,
        scale: Option<i64>,
    ) {
        let covered: Vec<&Pod> = pods.filter(|pod| self.spec.covers(pod)).collect();
        let status = &mut self.status;
        // An accepted eviction counts until its pod is seen to go, or its time is up.
        status.disrupted_pods.retain(|name, since| {
            let pod = covered.iter().find(|pod| pod.metadata.name == *name);
            pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none())
                && since.after_micros(DELETION_TIMEOUT) > now
        });
        let healthy = |pod: &&&Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && is_ready(pod)
                && !status.disrupted_pods.contains_key(&pod.metadata.name)
        };
        let current = i64::try_from(covered.iter().filter(healthy).count()).unwrap_or(i64::MAX);
        let seen = i64::try_from(covered.len()).unwrap_or(i64::MAX);
        let (expected, desired) = match (self.spec.max_unavailable, self.spec.min_available) {
            (Some(most), _) => {
                let expected = scale.unwrap_or(seen);
                (expected, (expected - most.of(expected)).max(0))
            }
            (None, Some(Amount::Count(least))) => (seen, least),
            (None, Some(least)) => {
                let expected = scale.unwrap_or(seen);
                (expected, least.of(expected))
            }
            (None, None) => (seen, 1),
        };
        let spare = current - desired;
        status.disruptions_allowed = if expected <= 0 { 0 } else { spare.max(0) };
        status.current_healthy = current;
        status.desired_healthy = desired;
        status.expected_pods = expected;
        status.observed = true;
    }
}
