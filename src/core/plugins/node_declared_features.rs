//! NodeDeclaredFeatures: what the pod needs of the kubelet, the node declares.

use super::names;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult, Registration, Resource,
    State, Status, Subject,
};
use crate::model::PodShape;

const REASON: &str = "node(s) didn't match Pod's required features";

/// Honours declared features.
pub struct NodeDeclaredFeatures;

impl Plugin for NodeDeclaredFeatures {
    fn name(&self) -> &'static str {
        names::NODE_DECLARED_FEATURES
    }

    /// Upstream also hears of updates of the pod itself; all fields from which
    /// features follow are immutable, so none can help.
    fn events(&self) -> Vec<Registration> {
        vec![Registration {
            resource: Resource::Node,
            actions: Actions::ADD | Actions::UPDATE_NODE_DECLARED_FEATURE,
        }]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        match &cx.event.subject {
            Subject::Node { node, before: Some(before) }
                if before.info.features == cx.cluster.node(*node).features =>
            {
                Hint::Skip
            }
            _ => Hint::Queue,
        }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodeDeclaredFeatures {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        if shape.features.is_empty() {
            PreFilterResult::Skip
        } else {
            PreFilterResult::Go { state: None, nodes: None }
        }
    }
}

impl Filter for NodeDeclaredFeatures {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        if shape.features.within(node.info().features) {
            Ok(())
        } else {
            Err(Status::unresolvable(REASON))
        }
    }
}
