//! NodePorts: no two pods on one host port.

use super::names;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult, Registration, Resource,
    State, Status, Subject,
};
use crate::model::PodShape;

const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

/// Honours host ports.
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        names::NODE_PORTS
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration { resource: Resource::AssignedPod, actions: Actions::DELETE },
            Registration { resource: Resource::Node, actions: Actions::ADD },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let Subject::Pod { shape: gone, .. } = &cx.event.subject else {
            return Hint::Queue;
        };
        let freed = gone.ports.iter().any(|p| cx.shape.ports.iter().any(|q| p.conflicts(q)));
        if freed { Hint::Queue } else { Hint::Skip }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodePorts {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        if shape.ports.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Go { state: None, nodes: None }
        }
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let used = &node.info().ports;
        if shape.ports.iter().any(|wanted| used.iter().any(|u| u.conflicts(wanted))) {
            return Err(Status::unschedulable(REASON));
        }
        Ok(())
    }
}
