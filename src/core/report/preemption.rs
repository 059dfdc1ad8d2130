//! What evictions could do for a pod that fits nowhere.

use std::collections::{BTreeMap, BTreeSet};

use super::explain::{
    Asked, Explanation, MAX_PROTECTED_SHOWN, PreemptionView, TieSeed, VictimsView, first_of,
};
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
            view.protected = protected(cluster, &resolvable, shape.priority);
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
        ..PreemptionView::default()
    }
}

/// Lesser pods of these nodes that may not go now, the first few by name.
fn protected(
    cluster: &Cluster,
    nodes: &BTreeSet<NodeId>,
    priority: i32,
) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if !cluster.may_shield() {
        return found;
    }
    for id in nodes.iter().flat_map(|node| &cluster.node(*node).pods) {
        let Some(pod) = cluster.pod(*id).filter(|p| p.priority < priority) else { continue };
        if let Some(shield) = cluster.shield(*id, pod, priority) {
            let mut why = shield.by.words().to_owned();
            if let Some(until) = shield.until {
                let seconds = until.secs() - cluster.now().secs();
                why += &format!(", for {} more seconds", seconds.max(0));
            }
            found.insert(pod.key.to_string(), why);
        }
        if found.len() >= MAX_PROTECTED_SHOWN {
            break;
        }
    }
    found
}

/// The message: a cycle would carry out the best plan that breaks no budget.
fn said(candidates: &Candidates, cluster: &Cluster, priority: i32) -> String {
    let (taken, gone) = Default::default();
    let nobody = Leaving { taken: &taken, gone: &gone };
    let mut in_the_way = Vec::new();
    for candidate in candidates.ranked() {
        let whole = match with_gangs(cluster, candidate, priority, nobody) {
            Ok(whole) => whole,
            Err(stays) => {
                in_the_way.push(stays.why.into());
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
