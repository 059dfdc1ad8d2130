//! The eviction subresource and graceful deletion.
//!
//! As a real API server's: an eviction is a deletion that a disruption budget may
//! refuse. Pods that have not started, have ended or are going already are under
//! no budget.

use muster_api::k8s::{Pod, PodCondition, Time};
use muster_core::io::Tick;

use super::api::{Api, PodId, put_condition};
use super::budget::StoredBudget;
use super::errors::{ApiError, delete_uid, delete_version};
use super::objects::{is_ready, is_terminal};
use crate::time::SECOND;

/// Seconds between deletion and kill unless the pod says otherwise.
pub(crate) const DEFAULT_GRACE: i64 = 30;

/// What a deletion or an eviction asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Seconds until the kill; else what the pod says.
    pub grace_seconds: Option<i64>,
    /// Only this incarnation.
    pub uid: Option<String>,
    /// Only this version.
    pub resource_version: Option<String>,
    /// Say what would happen.
    pub dry_run: bool,
}

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

impl Api {
    fn preconditions(&self, id: PodId, options: &DeleteOptions) -> Result<(), ApiError> {
        let Some(stored) = self.pod(id) else {
            return Err(ApiError::not_found("pods", ""));
        };
        let meta = &stored.object.metadata;
        if let Some(uid) = options.uid.as_ref().filter(|uid| **uid != meta.uid) {
            return Err(delete_uid(&meta.name, uid, &meta.uid));
        }
        let version = options.resource_version.as_ref();
        if let Some(version) = version.filter(|v| **v != meta.resource_version) {
            return Err(delete_version(&meta.name, version, &meta.resource_version));
        }
        Ok(())
    }

    /// Deletes a pod: at once if nothing runs, else its kubelet ends it first.
    pub(crate) fn delete(
        &mut self,
        now: Tick,
        id: PodId,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        self.preconditions(id, options)?;
        let Some(object) = self.pod(id).map(|stored| stored.object.clone()) else {
            return Ok(());
        };
        if options.dry_run {
            return Ok(());
        }
        let asked = options.grace_seconds.or(object.spec.termination_grace_period_seconds);
        // A negative number counts as one second, as upstream.
        let grace = match asked.unwrap_or(DEFAULT_GRACE) {
            n if n < 0 => 1,
            n => n,
        };
        let idle = object.spec.node_name.is_empty() || is_terminal(&object);
        let grace = if idle { 0 } else { grace };
        let due = Time((now.secs() + grace) * SECOND);
        let sooner = object.metadata.deletion_timestamp.is_none_or(|already| due < already);
        if sooner {
            self.update_pod(id, |pod| pod.metadata.deletion_timestamp = Some(due));
        }
        // A watch sees both: the pod going, and the pod gone.
        if grace == 0 {
            self.delete_pod(id);
        }
        Ok(())
    }

    /// Takes one disruption from the budget of a pod, if it has one.
    fn charge(&mut self, now: Tick, pod: &Pod, dry_run: bool) -> Result<(), ApiError> {
        let mut budgets = self.budgets.iter_mut().enumerate().filter(|(_, b)| b.spec.covers(pod));
        match (budgets.next(), budgets.next()) {
            (_, Some(_)) => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                               subresource does not support.";
                Err(ApiError::new(500, "", message))
            }
            (Some((index, budget)), None) if !spared(pod, budget) => {
                decrement(budget, &pod.metadata.name, now, dry_run)?;
                if !dry_run {
                    self.tell_budget(index);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The eviction subresource.
    pub(crate) fn evict(
        &mut self,
        now: Tick,
        id: PodId,
        options: &DeleteOptions,
    ) -> Result<(), ApiError> {
        let Some(pod) = self.pod(id).map(|stored| stored.object.clone()) else {
            return Err(ApiError::not_found("pods", ""));
        };
        if !unguarded(&pod) {
            self.charge(now, &pod, options.dry_run)?;
        }
        self.preconditions(id, options)?;
        if !options.dry_run {
            self.update_pod(id, |pod| {
                put_condition(
                    pod,
                    PodCondition {
                        kind: "DisruptionTarget".to_owned(),
                        status: "True".to_owned(),
                        reason: "EvictionByEvictionAPI".to_owned(),
                        message: "Eviction API: evicting".to_owned(),
                    },
                );
            });
        }
        // The version has moved on by the condition, which is the server's own write.
        self.delete(now, id, &DeleteOptions { resource_version: None, ..options.clone() })
    }
}

/// What a server says whose budget somebody else has just used up.
pub(crate) fn budget_spent() -> ApiError {
    let cause = Some("DisruptionBudget");
    ApiError { cause, ..ApiError::new(429, "TooManyRequests", VIOLATES) }
}

/// Pods that no budget guards.
fn unguarded(pod: &Pod) -> bool {
    let phase = pod.status.phase.as_str();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || pod.metadata.deletion_timestamp.is_some()
}

/// An unhealthy pod may go without counting, if the policy or the budget allows.
fn spared(pod: &Pod, budget: &StoredBudget) -> bool {
    let status = &budget.status;
    let healthy_budget =
        status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
    !is_ready(pod) && (budget.spec.always_allow_unhealthy || healthy_budget)
}

fn decrement(
    budget: &mut StoredBudget,
    pod: &str,
    now: Tick,
    dry_run: bool,
) -> Result<(), ApiError> {
    let (name, status) = (&budget.spec.name, &mut budget.status);
    let refusal = |retry_after| ApiError {
        cause: Some("DisruptionBudget"),
        retry_after,
        ..ApiError::new(429, "TooManyRequests", VIOLATES)
    };
    if !status.observed {
        return Err(refusal(Some(10)));
    }
    if status.disruptions_allowed < 0 {
        let message = format!(
            "poddisruptionbudget.policy \"{name}\" is forbidden: pdb disruptions allowed is negative"
        );
        let cause = Some("DisruptionBudget");
        return Err(ApiError { cause, ..ApiError::new(403, "Forbidden", message) });
    }
    if status.disruptions_allowed == 0 {
        return Err(refusal(None));
    }
    if !dry_run {
        status.disruptions_allowed -= 1;
        status.disrupted_pods.insert(pod.to_owned(), now);
    }
    Ok(())
}
