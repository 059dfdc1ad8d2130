//! TaintToleration: keeps pods off tainted nodes, and away from softly tainted ones.

use muster_api::k8s::Toleration;

use super::names;
use crate::cluster::{Cluster, NodeSet, NodeView};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Normalize, Plugin, PreScoreResult, Registration, Resource,
    Score, State, Status, Subject,
};
use crate::model::{Interner, PodShape, Taint, TaintEffect};

const REASON: &str = "node(s) had untolerated taint(s)";

/// Honours taints.
pub struct TaintToleration;

fn repels(taint: &Taint, shape: &PodShape, syms: &Interner) -> bool {
    matches!(taint.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
        && !taint.tolerated_by(&shape.tolerations, syms)
}

/// Whether no taint of the node repels the pod.
pub(super) fn admits(shape: &PodShape, node: NodeView<'_>) -> bool {
    let syms = &node.cluster().syms;
    !node.info().taints.iter().any(|t| repels(t, shape, syms))
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        names::TAINT_TOLERATION
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
            return Hint::Queue;
        };
        let free = |taints: &[Taint]| !taints.iter().any(|t| repels(t, cx.shape, &cx.cluster.syms));
        let was_free = before.as_ref().is_some_and(|b| free(&b.info.taints));
        if free(&cx.cluster.node(*node).taints) && !was_free { Hint::Queue } else { Hint::Skip }
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl Filter for TaintToleration {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let syms = &node.cluster().syms;
        if node.info().taints.iter().any(|t| repels(t, shape, syms)) {
            return Err(Status::unresolvable(REASON));
        }
        Ok(())
    }

    fn narrow(&self, _: &State, shape: &PodShape, cluster: &Cluster, set: &mut NodeSet) {
        cluster.index.subtract_tainted(set, |t| repels(t, shape, &cluster.syms));
    }
}

/// Tolerations that apply to soft taints.
struct Soft(Vec<Toleration>);

fn soft_tolerations(shape: &PodShape) -> Vec<Toleration> {
    let soft = |t: &&Toleration| t.effect.is_empty() || t.effect == "PreferNoSchedule";
    shape.tolerations.iter().filter(soft).cloned().collect()
}

impl Score for TaintToleration {
    fn pre_score(&self, shape: &PodShape, _: &Cluster) -> PreScoreResult {
        PreScoreResult::Go(Some(Box::new(Soft(soft_tolerations(shape)))))
    }

    fn score(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> i64 {
        let taints = &node.info().taints;
        if taints.is_empty() {
            return 0;
        }
        let Some(Soft(tolerations)) = state.as_ref().and_then(|s| s.downcast_ref()) else {
            return 0;
        };
        let untolerated = taints.iter().filter(|t| {
            t.effect == TaintEffect::PreferNoSchedule
                && !t.tolerated_by(tolerations, &node.cluster().syms)
        });
        untolerated.count() as i64
    }

    fn normalize(&self) -> Normalize {
        Normalize::ByMax { reverse: true }
    }
}
