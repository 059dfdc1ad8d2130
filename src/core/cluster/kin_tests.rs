//! Kept counters equal a recount, whatever happened.

use muster_api::k8s;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::kin::{MatchKey, MatcherId};
use super::{Cluster, Txn};
use crate::io::{Kind, Object};
use crate::model::{PodId, TermId};
use crate::testing::random::{NODES, any_load, any_node, any_pod};
use crate::testing::{ClusterExt, PodExt, cluster, pod};

#[derive(Clone, Debug)]
enum Op {
    Node(Box<k8s::Node>),
    RemoveNode(usize),
    /// A pod on a node.
    Place(Box<k8s::Pod>, usize),
    /// A pod that waits: its shape keeps counters.
    Wait(Box<k8s::Pod>),
    Remove(usize),
    Relabel(usize, Option<&'static str>, bool),
    Namespace(&'static str, Option<&'static str>),
    /// Moves a pod in a transaction that is dropped.
    Try(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let node = (0..NODES.len()).prop_flat_map(|i| any_node(NODES[i]));
    let label = || option::of(select(vec!["x", "y"]));
    prop_oneof![
        2 => node.prop_map(|n| Op::Node(Box::new(n))),
        1 => (0..NODES.len()).prop_map(Op::RemoveNode),
        6 => (any_load(), 0..NODES.len()).prop_map(|(p, at)| Op::Place(Box::new(p), at)),
        3 => any_pod().prop_map(|p| Op::Wait(Box::new(p.on("")))),
        2 => (0..99usize).prop_map(Op::Remove),
        2 => (0..99usize, label(), any::<bool>()).prop_map(|(i, l, d)| Op::Relabel(i, l, d)),
        2 => (select(vec!["default", "other"]), label()).prop_map(|(n, l)| Op::Namespace(n, l)),
        2 => (0..99usize, 0..NODES.len()).prop_map(|(i, at)| Op::Try(i, at)),
    ]
}

fn apply(cluster: &mut Cluster, pods: &mut Vec<(PodId, k8s::Pod)>, op: Op) {
    match op {
        Op::Node(node) => {
            cluster.add(&node);
        }
        Op::RemoveNode(i) => {
            cluster.remove_node(NODES[i]);
        }
        Op::Place(wire, at) => {
            let wire = wire.on(NODES[at]);
            pods.push((cluster.add_wire_pod(&wire), wire));
        }
        Op::Wait(wire) => pods.push((cluster.add_wire_pod(&wire), *wire)),
        Op::Remove(i) if !pods.is_empty() => {
            let (pod, _) = pods.swap_remove(i % pods.len());
            cluster.drop_pod(pod);
        }
        Op::Relabel(i, label, deleting) if !pods.is_empty() => {
            let at = i % pods.len();
            let (pod, wire) = &mut pods[at];
            wire.metadata.labels.remove("app");
            if let Some(label) = label {
                wire.metadata.labels.insert("app".to_owned(), label.to_owned());
            }
            wire.metadata.deletion_timestamp = deleting.then_some(k8s::Time(0));
            cluster.regroup(*pod, wire);
        }
        Op::Namespace(name, None) => {
            cluster.remove_related(Kind::Namespace, "", name);
        }
        Op::Namespace(name, Some(label)) => {
            let mut object = k8s::Namespace::default();
            object.metadata.name = name.to_owned();
            object.metadata.labels.insert("app".to_owned(), label.to_owned());
            cluster.set_related(&Object::Namespace(object), 0);
        }
        Op::Try(i, at) if !pods.is_empty() => {
            let (pod, _) = pods[i % pods.len()];
            let node = cluster.nodes().iter().nth(at);
            if matches!(cluster.pod(pod).map(|p| p.stage), Some(crate::model::PodStage::Away(_))) {
                return;
            }
            let mut txn = Txn::begin(cluster);
            txn.displace(pod);
            if let Some(node) = node {
                txn.place(pod, node);
            }
        }
        Op::Remove(_) | Op::Relabel(..) | Op::Try(..) => {}
    }
}

/// Compares every counter with a walk over all pods.
fn check(cluster: &Cluster) {
    let matchers: Vec<(MatcherId, MatchKey)> =
        cluster.kin.live_matchers().map(|(id, key)| (id, key.clone())).collect();
    let terms: Vec<TermId> = cluster.kin.live_terms().collect();
    for node in (0..cluster.node_capacity() as u32).map(super::NodeId) {
        let here = || cluster.pods().filter(|(_, p)| p.stage.node() == Some(node));
        for (id, key) in &matchers {
            let matching =
                here().filter(|(_, p)| cluster.kin.matches(key, cluster.kin.group(p.group)));
            let kept = cluster.tally.matched(*id).on(node);
            assert_eq!(kept as usize, matching.count(), "{key:?} on {node:?}");
        }
        for term in &terms {
            let having = here().filter(|(_, p)| cluster.shapes.links(p.shape).terms.contains(term));
            let times: usize = having
                .map(|(_, p)| {
                    let terms = &cluster.shapes.links(p.shape).terms;
                    terms.iter().filter(|t| *t == term).count()
                })
                .sum();
            assert_eq!(
                cluster.tally.having(*term).on(node) as usize,
                times,
                "{term:?} on {node:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn kept_counters_equal_a_recount(ops in vec(op(), 1..40)) {
        let mut cluster = cluster([]);
        let mut pods = Vec::new();
        for op in ops {
            apply(&mut cluster, &mut pods, op);
            check(&cluster);
        }
        let fork = cluster.fork();
        for (pod, _) in pods.drain(..) {
            cluster.drop_pod(pod);
        }
        check(&cluster);
        check(&fork);
    }
}

fn waiting(labels: &[(&str, &str)]) -> k8s::Pod {
    labels.iter().fold(pod("p").req(&[]), |pod, (k, v)| pod.pod_label(k, v))
}

fn apart(pod: k8s::Pod, app: &str) -> k8s::Pod {
    let term = serde_json::json!({
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": app}},
    });
    let required = serde_json::json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    pod.edit(|p| {
        let affinity = p.spec.affinity.get_or_insert_default();
        affinity.pod_anti_affinity = Some(crate::testing::wire(required));
    })
}

#[test]
fn labels_that_no_selector_tells_apart_are_not_in_a_shape() {
    let mut cluster = cluster([]);
    let shape = |cluster: &mut Cluster, app, index| {
        cluster.shape_of(&waiting(&[("app", app), ("index", index)]))
    };
    assert_eq!(shape(&mut cluster, "x", "0"), shape(&mut cluster, "y", "1"));
    // Somebody keeps away from app=x: now that tells pods apart, the index still not.
    cluster.add_wire_pod(&apart(waiting(&[]), "x").on("n0"));
    assert_eq!(shape(&mut cluster, "x", "0"), shape(&mut cluster, "x", "1"));
    assert_ne!(shape(&mut cluster, "x", "0"), shape(&mut cluster, "y", "0"));
    assert_eq!(shape(&mut cluster, "y", "0"), shape(&mut cluster, "z", "0"));
}

#[test]
fn a_waiting_pod_is_looked_at_anew_when_a_term_comes_or_goes() {
    let mut cluster = cluster([]);
    let pod = cluster.add_wire_pod(&waiting(&[("app", "x")]));
    assert_eq!(cluster.settle(pod), None);
    let other = cluster.add_wire_pod(&apart(waiting(&[]), "x").on("n0"));
    let settled = cluster.settle(pod).expect("another shape");
    assert_eq!(settled.related.matched.len(), 1);
    assert_eq!(cluster.settle(pod), None, "once is enough");
    cluster.drop_pod(other);
}

#[test]
fn counters_go_with_the_last_shape_that_reads_them() {
    let mut cluster = cluster([]);
    for i in 0..2000 {
        let app = format!("app-{i}");
        let pod = cluster.add_wire_pod(&apart(waiting(&[("app", &app)]), &app).on("n0"));
        cluster.drop_pod(pod);
    }
    // Shapes without a pod are kept for a while, and what they read with them.
    assert!(cluster.kin.live_matchers().count() <= 2 * 2 * 256 + 4);
    assert!(cluster.kin.live_terms().count() <= 2 * 256 + 4);
}
