//! SchedulingGates: a pod with gates does not enter the queue.

use super::names;
use crate::framework::{Actions, Plugin, PreEnqueue, Registration, Resource, Status};
use crate::model::Pod;

/// Holds gated pods back.
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        names::SCHEDULING_GATES
    }

    fn events(&self) -> Vec<Registration> {
        vec![Registration {
            resource: Resource::TargetPod,
            actions: Actions::UPDATE_POD_GATES_ELIMINATED,
        }]
    }

    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        Some(self)
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status> {
        if pod.gates.is_empty() {
            return Ok(());
        }
        Err(Status::unresolvable(format!(
            "waiting for scheduling gates: [{}]",
            pod.gates.join(" ")
        )))
    }
}
