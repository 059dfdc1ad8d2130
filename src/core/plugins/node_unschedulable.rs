//! NodeUnschedulable: cordoned nodes take only pods that tolerate it.

use super::names;
use crate::cluster::{Cluster, NodeSet, NodeView};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Plugin, Registration, Resource, State, Status, Subject,
};
use crate::model::{PodShape, tolerates};

const REASON: &str = "node(s) were unschedulable";
const TAINT: &str = "node.kubernetes.io/unschedulable";

/// Honours `spec.unschedulable`.
pub struct NodeUnschedulable;

fn tolerated(shape: &PodShape) -> bool {
    shape.tolerations.iter().any(|t| tolerates(t, TAINT, "", "NoSchedule"))
}

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        names::NODE_UNSCHEDULABLE
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration {
                resource: Resource::Node,
                actions: Actions::ADD | Actions::UPDATE_NODE_TAINT,
            },
            Registration { resource: Resource::TargetPod, actions: Actions::UPDATE_POD_TOLERATION },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let Subject::Node { node, before } = &cx.event.subject else {
            // Of its own tolerations only the one for cordoned nodes matters.
            return if tolerated(cx.shape) { Hint::Queue } else { Hint::Skip };
        };
        let now_schedulable = !cx.cluster.node(*node).unschedulable;
        let was_schedulable = before.as_ref().is_some_and(|b| !b.info.unschedulable);
        if now_schedulable && !was_schedulable { Hint::Queue } else { Hint::Skip }
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        if node.info().unschedulable && !tolerated(shape) {
            return Err(Status::unresolvable(REASON));
        }
        Ok(())
    }

    fn narrow(&self, _: &State, shape: &PodShape, cluster: &Cluster, set: &mut NodeSet) {
        if !tolerated(shape) {
            set.subtract(&cluster.index.unschedulable);
        }
    }
}
