//! Which events may help a pod that could not be spread.

use crate::cluster::NodeInfo;
use crate::framework::{Actions, Hint, HintCx, Resource, Subject};
use crate::model::{Interner, LabelSet, SpreadConstraint, Sym};

fn queue_if(helps: bool) -> Hint {
    if helps { Hint::Queue } else { Hint::Skip }
}

/// The hint for a pod with these hard constraints.
pub(super) fn hint(constraints: &[SpreadConstraint], cx: &HintCx<'_>) -> Hint {
    match &cx.event.subject {
        Subject::Node { node, before } => {
            let now = cx.cluster.node(*node);
            let gone = cx.event.actions.intersects(Actions::DELETE);
            let before = before.as_ref().map(|b| &b.info);
            node_change(constraints, &cx.cluster.syms, before, (!gone).then_some(now))
        }
        Subject::Pod { group, before, .. } => {
            if cx.shape.related.namespace.as_ref() != Some(&group.namespace) {
                return Hint::Skip;
            }
            let counts = |labels: &LabelSet| {
                constraints.iter().map(|c| c.selector.matches(labels)).collect::<Vec<_>>()
            };
            match before {
                Some(before) => queue_if(counts(&before.labels) != counts(&group.labels)),
                None => queue_if(counts(&group.labels).contains(&true)),
            }
        }
        // The shape has changed already: which constraints the pod matched before its
        // labels changed is no longer known, so any change of labels may help.
        Subject::Target if cx.event.resource == Resource::TargetPod => queue_if(
            cx.event.actions.intersects(Actions::UPDATE_POD_LABEL)
                || constraints.iter().any(|c| c.honor_taints),
        ),
        Subject::Resized { .. }
        | Subject::Target
        | Subject::Object { .. }
        | Subject::Data { .. }
        | Subject::None => Hint::Queue,
    }
}

fn node_change(
    constraints: &[SpreadConstraint],
    syms: &Interner,
    before: Option<&NodeInfo>,
    after: Option<&NodeInfo>,
) -> Hint {
    let value = |info: &NodeInfo, c: &SpreadConstraint| -> Option<Sym> {
        syms.get(&c.topology_key).and_then(|key| info.label(key))
    };
    let complete = |info: &NodeInfo| constraints.iter().all(|c| value(info, c).is_some());
    match (before, after) {
        (Some(before), Some(after)) if complete(before) == complete(after) => {
            let moved = constraints.iter().any(|c| value(before, c) != value(after, c));
            queue_if(complete(after) && (moved || before.taints != after.taints))
        }
        (None, Some(only)) | (Some(only), None) => queue_if(complete(only)),
        (Some(_), Some(_)) | (None, None) => Hint::Queue,
    }
}
