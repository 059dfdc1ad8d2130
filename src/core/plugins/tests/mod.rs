//! Tables per plugin, in words: what it says of each node, what score it gives,
//! which events wake the pods it rejected.

mod balanced;
mod fit;
mod fit_score;
mod gates_and_sort;
mod hints;
mod hostile;
mod image_locality;
mod inter_pod_affinity;
mod narrow;
mod node_affinity;
mod node_affinity_args;
mod node_ports;
mod pod_topology_spread;
mod simple_filters;
mod taint_toleration;
mod volume_binding;
mod volumes;

use std::sync::Arc;

use muster_api::k8s;

use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, ClassKey, ClusterEvent, Code, Hint, HintCx, Plugin, PreFilterResult, PreScoreResult,
    Registration, Resource, Status, Subject, UNRANKED,
};
use crate::testing::ClusterExt;

fn words(status: &Status) -> String {
    let code = match status.code {
        Code::Unschedulable => "U",
        Code::UnschedulableAndUnresolvable => "UU",
        other => other.as_str(),
    };
    format!("{code}: {}", status.message())
}

/// What Filter says of every node, in the order they were added; one element if
/// PreFilter skips (`skip`) or rejects (`rejected …`). Nodes PreFilter leaves out
/// are `outside`.
fn judge(plugin: &dyn Plugin, cluster: &mut Cluster, pod: &k8s::Pod) -> Vec<String> {
    let shape = cluster.shape_of(pod);
    let (state, names) = match plugin.as_pre_filter().map(|p| p.pre_filter(&shape, cluster)) {
        Some(PreFilterResult::Skip) => return vec!["skip".into()],
        Some(PreFilterResult::Reject(status)) => {
            return vec![format!("rejected {}", words(&status))];
        }
        Some(PreFilterResult::Go { state, nodes }) => (state, nodes),
        None => (None, None),
    };
    let filter = plugin.as_filter().expect("a Filter plugin");
    let judge_one = |node| {
        let name = &cluster.node(node).name;
        if names.as_ref().is_some_and(|names| names.iter().all(|n| **n != **name)) {
            return "outside".to_owned();
        }
        match filter.filter(&state, &shape, cluster.view(node)) {
            Ok(()) => "ok".to_owned(),
            Err(status) => words(&status),
        }
    };
    cluster.nodes().iter().map(judge_one).collect()
}

/// Normalised scores of all nodes, in the order they were added.
fn rate(plugin: &dyn Plugin, cluster: &mut Cluster, pod: &k8s::Pod) -> Result<Vec<i64>, String> {
    let shape = cluster.shape_of(pod);
    let score = plugin.as_score().expect("a Score plugin");
    let state = match score.pre_score(&shape, cluster) {
        PreScoreResult::Skip => return Err("skip".into()),
        PreScoreResult::Fail(status) => return Err(words(&status)),
        PreScoreResult::Go(state) => state,
    };
    let nodes: Vec<_> = cluster.nodes().iter().map(|n| cluster.view(n)).collect();
    let raw: Vec<i64> = match score.by_class() {
        None => nodes.iter().map(|n| score.score(&state, &shape, *n)).collect(),
        Some(by_class) => {
            let tell = |node: &NodeView<'_>| {
                let mut key = ClassKey::new();
                by_class.tell(&state, *node, &mut key);
                key
            };
            let keys: Vec<ClassKey> = nodes.iter().map(tell).collect();
            let survey = by_class.survey(&state, &mut keys.iter().map(|k| (k.as_slice(), 1)));
            keys.iter().map(|key| by_class.rate(&state, &survey, key)).collect()
        }
    };
    let ranked: Vec<i64> = raw.iter().copied().filter(|r| *r != UNRANKED).collect();
    let (min, max) =
        (ranked.iter().min().copied().unwrap_or(0), ranked.iter().max().copied().unwrap_or(0));
    Ok(raw.iter().map(|r| score.normalize().apply(*r, min, max)).collect())
}

fn hint(
    plugin: &dyn Plugin,
    cluster: &mut Cluster,
    pod: &k8s::Pod,
    (resource, actions): (Resource, Actions),
    subject: Subject,
) -> Hint {
    let registered =
        plugin.events().iter().any(|r| r.resource == resource && r.actions.intersects(actions));
    assert!(registered, "{} does not hear of this event", plugin.name());
    let shape = cluster.shape_of(pod);
    let event = ClusterEvent { resource, actions, label: "test", subject };
    plugin.hint(&HintCx { shape: &shape, event: &event, cluster })
}

/// The hint for a pod when a node joins.
fn on_add(plugin: &dyn Plugin, pod: &k8s::Pod, node: &k8s::Node) -> Hint {
    let mut cluster = Cluster::default();
    let node = cluster.add(node).node;
    let subject = Subject::Node { node, before: None };
    hint(plugin, &mut cluster, pod, (Resource::Node, Actions::ADD), subject)
}

/// The hint for a pod when a node changes; the change must be one the plugin
/// registered for.
fn on_update(plugin: &dyn Plugin, pod: &k8s::Pod, before: &k8s::Node, after: &k8s::Node) -> Hint {
    let mut cluster = Cluster::default();
    cluster.add(before);
    let change = cluster.add(after);
    let subject = Subject::Node { node: change.node, before: change.before.map(Arc::new) };
    hint(plugin, &mut cluster, pod, (Resource::Node, change.actions), subject)
}

/// The hint for a pod when another one leaves a node.
fn on_delete(plugin: &dyn Plugin, pod: &k8s::Pod, gone: &k8s::Pod) -> Hint {
    let mut cluster = Cluster::default();
    let group = Arc::new(cluster.group_key(gone));
    let shape = Arc::new(cluster.shape_of(gone));
    let subject = Subject::Pod { shape, group, before: None };
    hint(plugin, &mut cluster, pod, (Resource::AssignedPod, Actions::DELETE), subject)
}

/// The hint for a pod when it changes itself.
fn on_own_update(plugin: &dyn Plugin, pod: &k8s::Pod, actions: Actions) -> Hint {
    let cluster = &mut Cluster::default();
    hint(plugin, cluster, pod, (Resource::TargetPod, actions), Subject::Target)
}

fn registration(resource: Resource, actions: Actions) -> Registration {
    Registration { resource, actions }
}
