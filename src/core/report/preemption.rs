//! What evictions could do for a pod that fits nowhere.

use std::collections::BTreeSet;

use super::explain::{Asked, Explanation, PreemptionView, TieSeed, VictimsView, first_of};
use crate::cluster::{Cluster, NodeId};
use crate::cycle::{Prepared, Trial};
use crate::framework::{Code, ExtensionPoint, Profile};
use crate::model::PodShape;
use crate::preemption::{Candidates, Leaving, nothing_found, refusal, with_gangs};

/// Tries every node, keeps nothing.
pub(super) fn explain(
    out: &mut Explanation,
    asked: &Asked<'_>,
    profile: &Profile,
    shape: &PodShape,
    cluster: &mut Cluster,
    prepared: &mut Prepared,
    ties: Option<TieSeed>,
) {
    if profile.at(ExtensionPoint::PostFilter).is_empty() {
        return;
    }
    let mut view = PreemptionView::default();
    let me = &asked.preemptor;
    let status = me.nominated.and_then(|name| {
        Some(match out.nodes.get(name)?.status {
            "UU" => Code::UnschedulableAndUnresolvable,
            _ => Code::Unschedulable,
        })
    });
    let message = match me.eligible(cluster, status, |_, p| p.deleting && p.disrupted) {
        Err(why) => format!("preemption: {why}"),
        Ok(()) => {
            let resolvable: BTreeSet<NodeId> = out
                .nodes
                .iter()
                .filter(|(_, verdict)| verdict.status == "U")
                .filter_map(|(name, _)| cluster.node_by_name(name))
                .collect();
            let mut candidates = Candidates::new(0);
            let mut trial = Trial::begin(profile, shape, cluster, prepared);
            for &node in &resolvable {
                candidates.try_node(&mut trial, node, me.id, true);
            }
            drop(trial);
            view = draw(&candidates, cluster, shape.priority, ties);
            said(&candidates, cluster, shape.priority)
        }
    };
    out.message.push(' ');
    out.message.push_str(&message);
    out.preemption = Some(view);
}

fn draw(
    candidates: &Candidates,
    cluster: &Cluster,
    priority: i32,
    ties: Option<TieSeed>,
) -> PreemptionView {
    let best: Vec<NodeId> = candidates.best().map(|c| c.node).collect();
    let name = |node: NodeId| cluster.node(node).name.to_string();
    let (taken, gone) = Default::default();
    let nobody = Leaving { taken: &taken, gone: &gone };
    let victims = candidates.ranked().map(|candidate| {
        let whole = with_gangs(cluster, candidate, priority, nobody).ok().flatten();
        let candidate = whole.as_ref().unwrap_or(&**candidate);
        let keys = candidate.victims.iter().filter_map(|v| cluster.pod(*v));
        let mut pods: Vec<String> = keys.map(|p| p.key.to_string()).collect();
        pods.sort_unstable();
        (name(candidate.node), VictimsView { pods, pdb_violations: candidate.violations })
    });
    PreemptionView {
        node: first_of(&best, cluster, ties).map_or_else(String::new, name),
        candidates: victims.collect(),
    }
}

/// The message: a cycle would carry out the best plan that breaks no budget.
fn said(candidates: &Candidates, cluster: &Cluster, priority: i32) -> String {
    let (taken, gone) = Default::default();
    let nobody = Leaving { taken: &taken, gone: &gone };
    let mut in_the_way = Vec::new();
    for candidate in candidates.ranked() {
        let whole = match with_gangs(cluster, candidate, priority, nobody) {
            Ok(whole) => whole,
            Err(why) => {
                in_the_way.push(why.into());
                continue;
            }
        };
        let candidate = whole.as_ref().unwrap_or(&**candidate);
        match refusal(cluster, &candidate.victims, |_| 0) {
            Some(why) => in_the_way.push(why.into()),
            None => {
                return format!(
                    "preemption: found a potential placement for pod on node {}, preempting {} \
                     victims",
                    cluster.node(candidate.node).name,
                    candidate.victims.len()
                );
            }
        }
    }
    nothing_found(candidates, cluster.node_count(), &in_the_way)
}
