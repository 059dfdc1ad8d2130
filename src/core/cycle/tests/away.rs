//! Pods on nodes that are not known: of another shard, or not seen yet.

use super::harness::{Harness, check};
use crate::io::Kind;
use crate::testing::{NodeExt as _, PodExt as _, node, pod};
use muster_api::k8s;

fn small(name: &str) -> k8s::Pod {
    pod(name).req(&[("cpu", "3")])
}

/// A core with a full node, a pod that waits, and pods on a node of another shard.
fn sharded() -> Harness {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(small("here").on("n1"));
    h.pod(small("there").on("far"));
    h.pod(pod("tiny").req(&[("cpu", "500m")]).on("far"));
    h.pod(small("a"));
    let said = h.run().join("; ");
    assert!(said.contains("0/1 nodes are available: 1 Insufficient cpu."), "{said}");
    h
}

#[test]
fn what_happens_on_unknown_nodes_wakes_nobody() {
    let mut h = sharded();
    h.pod(small("more").on("far"));
    h.edit("more", |p| drop(p.metadata.labels.insert("app".to_owned(), "x".to_owned())));
    h.edit("more", |p| {
        let cpu = k8s::Quantity::from_units(1);
        p.spec.containers[0].resources.requests.insert("cpu".to_owned(), cpu);
    });
    h.gone("there");
    h.gone("more");
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.gone("here");
    check(h.run_binds(), "bind default/a -> n1");
}

#[test]
fn a_node_that_joins_comes_with_its_pods_as_they_are_by_then() {
    let mut h = sharded();
    h.edit("tiny", |p| {
        let cpu = k8s::Quantity::from_units(4);
        p.spec.containers[0].resources.requests.insert("cpu".to_owned(), cpu);
    });
    h.gone("there");
    h.node(node("far"));
    h.sleep(2);
    check(h.run_binds(), "");
    assert_eq!(h.cache(), ["far: default/tiny", "n1: default/here"]);
    assert_eq!(h.core.cache_view().nodes[0].requested["cpu"], 4_000);
    h.gone("tiny");
    h.sleep(4);
    check(h.run_binds(), "bind default/a -> far");
}

#[test]
fn a_node_that_leaves_and_comes_back_keeps_what_we_put_on_it() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(small("a"));
    check(h.run_binds(), "bind default/a -> n1");
    // The bind is on its way when the node moves to another shard, whose
    // scheduler puts a pod of its own there.
    h.node_gone("n1");
    h.pod(pod("theirs").req(&[("cpu", "500m")]).on("n1"));
    h.pod(small("b"));
    check(h.run_binds(), "");
    h.bound("a", "n1");
    h.node(node("n1"));
    assert_eq!(h.cache(), ["n1: default/a, default/theirs"]);
    h.sleep(2);
    check(h.run_binds(), "");
    h.gone("a");
    h.sleep(4);
    check(h.run_binds(), "bind default/b -> n1");
}

#[test]
fn a_pod_that_another_scheduler_binds_outside_the_shard_does_not_wait_any_more() {
    let mut h = sharded();
    h.edit("a", |p| "far".clone_into(&mut p.spec.node_name));
    assert_eq!(h.queue_of("a"), "none");
    h.assert_idle();
    h.node(node("far"));
    assert_eq!(h.cache(), ["far: default/a, default/there, default/tiny", "n1: default/here"]);
    h.relist(Kind::Pod, |_| {});
    assert_eq!(h.cache(), ["far: ", "n1: "]);
}

#[test]
fn affinity_counts_pods_of_known_nodes_only() {
    let mut h = Harness::new();
    h.node(node("n1").label("zone", "z"));
    h.pod(pod("x").edit(|p| drop(p.metadata.labels.insert("app".into(), "x".into()))).on("far"));
    let wants = k8s::Affinity {
        pod_affinity: serde_json::from_value(serde_json::json!({
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
            ]
        }))
        .unwrap(),
        ..k8s::Affinity::default()
    };
    let mut a = pod("a");
    a.spec.affinity = Some(wants);
    h.pod(a);
    check(h.run_binds(), "");
    h.node(node("far").label("zone", "z"));
    h.sleep(2);
    assert_eq!(h.run_binds().len(), 1);
}
