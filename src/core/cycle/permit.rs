//! Waiting at Permit: who waits for whom, until when.

use std::sync::Arc;

use super::binding::Stage;
use super::failure::Failure;
use super::{Core, plugin_name, running};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::{ExtensionPoint, PermitResult, Status};
use crate::io::{PodRef, Tick};
use crate::model::PodId;
use crate::report::Observation;

/// Upstream's cap on waits at Permit.
const MAX_PERMIT_SECONDS: i64 = 15 * 60;

impl Core {
    /// True if the pod waits.
    pub(super) fn permit(
        &mut self,
        now: Tick,
        pod: PodId,
        profile_id: usize,
        node: NodeId,
    ) -> Result<bool, Failure> {
        let Some(placed) = self.placed(pod, node) else {
            return Ok(false);
        };
        let profile = &self.profiles[profile_id];
        let mut waiting = Vec::new();
        for (i, p) in profile.called(ExtensionPoint::Permit) {
            match p.plugin.as_permit().map(|permit| permit.permit(&placed)) {
                None | Some(PermitResult::Allow) => {}
                Some(PermitResult::Wait { seconds }) => {
                    let seconds = seconds.clamp(0, MAX_PERMIT_SECONDS);
                    waiting.push((i, now.after_secs(seconds), seconds));
                }
                Some(PermitResult::Reject(status)) => {
                    let error = running("Permit", profile, i, &status);
                    return Err(Failure::of(i, &status, error));
                }
            }
        }
        let Some(deadline) = waiting.iter().map(|(_, due, _)| *due).min() else {
            return Ok(false);
        };
        self.set_stage(pod, Stage::Permit { waiting, since: now }, Some(deadline));
        Ok(true)
    }

    pub(super) fn at_permit(&self, pod: PodId) -> bool {
        self.bindings.get(&pod).is_some_and(|b| matches!(b.stage, Stage::Permit { .. }))
    }

    fn permit_ended(&mut self, now: Tick, since: Tick, status: &'static str) {
        self.observations.push(Observation::PermitWait { status, micros: now.0 - since.0 });
    }

    /// An outside decision on a pod that waits at Permit.
    pub(super) fn permit_verdict(
        &mut self,
        now: Tick,
        key: &PodRef,
        plugin: &str,
        verdict: Result<(), Arc<str>>,
    ) {
        let Some(pod) = self.find(key) else { return };
        let Some(binding) = self.bindings.get_mut(&pod) else {
            return;
        };
        let Some(position) = self.profiles[binding.profile].position(plugin) else {
            return;
        };
        let Stage::Permit { waiting, since } = &mut binding.stage else {
            return;
        };
        let since = *since;
        let Some(at) = waiting.iter().position(|(p, ..)| *p == position) else {
            return;
        };
        if let Err(message) = verdict {
            self.permit_ended(now, since, "Unschedulable");
            let status = Status::unschedulable(message);
            return self.fail_binding(now, pod, Failure::one_node(position, &status));
        }
        waiting.remove(at);
        let next = waiting.iter().map(|(_, due, _)| *due).min();
        self.arm(pod, next);
        if next.is_none() {
            self.permit_ended(now, since, "Success");
            self.queue.done(pod);
            if let Err(failure) = self.pre_bind_from(now, pod, 0) {
                self.fail_binding(now, pod, failure);
            }
        }
    }

    /// A node is gone: whoever still waits for it at Permit is planned again.
    pub(super) fn node_lost(&mut self, now: Tick, node: NodeId, name: &str) {
        let mut waiting: Vec<(PodId, Tick)> = self
            .bindings
            .iter()
            .filter(|(_, b)| b.node == node)
            .filter_map(|(pod, b)| match &b.stage {
                Stage::Permit { since, .. } => Some((*pod, *since)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        for (pod, since) in waiting {
            self.permit_ended(now, since, "Unschedulable");
            self.fail_binding(now, pod, Failure::node_gone(name));
        }
    }

    /// The first deadline of a pod's wait has passed, if it really has.
    pub(super) fn permit_timeout(&mut self, now: Tick, pod: PodId) {
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        let Stage::Permit { waiting, since } = &binding.stage else {
            return;
        };
        let first = waiting.iter().min_by_key(|(_, due, _)| *due).copied();
        let Some((plugin, _, seconds)) = first.filter(|(_, due, _)| *due <= now) else {
            return;
        };
        if bug!(self.bugs, PermitForever) {
            return;
        }
        let since = *since;
        let name = plugin_name(&self.profiles[binding.profile], plugin);
        let waited = duration(seconds);
        let reason = format!("rejected due to timeout after waiting {waited} at plugin {name}");
        self.permit_ended(now, since, "Unschedulable");
        let status = Status::unschedulable(reason);
        self.fail_binding(now, pod, Failure::one_node(plugin, &status));
    }
}

/// Whole seconds as Go prints a duration.
fn duration(seconds: i64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}
