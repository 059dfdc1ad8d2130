//! Which events may help a pod that affinity kept off every node.

use super::sides::satisfies;
use crate::cluster::{GroupKey, NodeInfo};
use crate::framework::{Actions, Hint, HintCx, Subject};
use crate::model::{AffinityTerm, TermKind};

fn queue_if(helps: bool) -> Hint {
    if helps { Hint::Queue } else { Hint::Skip }
}

/// The hint for pods of a shape.
pub(super) fn hint(cx: &HintCx<'_>) -> Hint {
    match &cx.event.subject {
        Subject::Node { node, before } => {
            let before = before.as_ref().map(|b| &b.info);
            node_change(cx, before, cx.cluster.node(*node))
        }
        Subject::Pod { shape, group, before } => {
            let terms = &cx.shape.related.terms;
            let needed = |group: &GroupKey| {
                terms.needs().next().is_some() && satisfies(cx.cluster, group, terms.needs())
            };
            let repelled = |group: &GroupKey| {
                terms.repels().any(|t| satisfies(cx.cluster, group, [t].into_iter()))
            };
            if let Some(before) = before {
                return queue_if(
                    !needed(before) && needed(group) || repelled(before) && !repelled(group),
                );
            }
            if cx.event.actions.intersects(Actions::ADD) {
                return queue_if(needed(group));
            }
            // It left: was it unwanted, or did it not want us?
            let matched = |t: &AffinityTerm| {
                let id = cx.cluster.kin.find_term(&(TermKind::Repels, t.clone()));
                id.is_none_or(|id| cx.shape.related.matched.contains(&id))
            };
            queue_if(repelled(group) || shape.related.terms.repels().any(matched))
        }
        Subject::Resized { .. }
        | Subject::Target
        | Subject::Object { .. }
        | Subject::Data { .. }
        | Subject::None => Hint::Queue,
    }
}

fn node_change(cx: &HintCx<'_>, before: Option<&NodeInfo>, after: &NodeInfo) -> Hint {
    let terms = &cx.shape.related.terms;
    let value = |info: &NodeInfo, term: &AffinityTerm| {
        cx.cluster.syms.get(&term.topology_key).and_then(|key| info.label(key))
    };
    let Some(before) = before else {
        let labeled = terms.needs().any(|t| value(after, t).is_some());
        return queue_if(labeled || terms.repels().next().is_some());
    };
    let joined =
        |t: &AffinityTerm| value(after, t).is_some() && value(before, t) != value(after, t);
    let left = |t: &AffinityTerm| value(before, t).is_some() && value(before, t) != value(after, t);
    queue_if(terms.needs().any(joined) || terms.repels().any(left))
}
