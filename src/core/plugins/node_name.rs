//! NodeName: a pod that names its node goes there only.

use super::names;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, Filter, Plugin, PreFilter, PreFilterResult, Registration, Resource, State, Status,
};
use crate::model::PodShape;

const REASON: &str = "node(s) didn't match the requested node name";

/// Honours `spec.nodeName`.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        names::NODE_NAME
    }

    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::Node, actions: Actions::ADD }]
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for NodeName {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        let Some(name) = &shape.node_name else {
            return PreFilterResult::Skip;
        };
        PreFilterResult::Go { state: None, nodes: Some(vec![name.clone()]) }
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        match &shape.node_name {
            Some(name) if **name != *node.info().name => Err(Status::unresolvable(REASON)),
            _ => Ok(()),
        }
    }
}
