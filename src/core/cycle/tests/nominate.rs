//! Pods that are expected on a node: who leaves them room, and when that ends.

use muster_api::k8s;
use serde_json::json;

use super::harness::Harness;
use super::probe::{Probe, Script, profile};
use crate::framework::Status;
use crate::testing::{NodeExt, PodExt, node, pod, resources, wire};

fn wants(name: &str, priority: i32) -> k8s::Pod {
    pod(name).req(&[("cpu", "1")]).priority(priority)
}

fn expected(name: &str, priority: i32, node: &str) -> k8s::Pod {
    wants(name, priority).edit(|p| p.status.nominated_node_name = node.into())
}

/// A node for one pod, and a gated pod of priority 5 that is expected there.
fn reserved() -> Harness {
    let mut h = Harness::new();
    h.node(node("n1").cpu("1"));
    h.pod(expected("first", 5, "n1").gate("later"));
    h
}

#[test]
fn equal_priority_leaves_the_room_and_higher_does_not() {
    let mut h = reserved();
    h.pod(wants("equal", 5));
    assert!(h.run_binds().is_empty());
    assert_eq!(h.queue_of("equal"), "unschedulable");
    h.pod(wants("higher", 6));
    assert_eq!(h.run_binds(), ["bind default/higher -> n1"]);
}

#[test]
fn nobody_relies_on_a_pod_that_is_only_expected() {
    let mut h = Harness::new();
    h.node(node("n1").label("kubernetes.io/hostname", "n1"));
    h.pod(expected("first", 5, "n1").gate("later").pod_label("app", "first"));
    let affinity: k8s::Affinity = wire(json!({"podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "first"}},
        }],
    }}));
    h.pod(wants("friend", 1).edit(|p| p.spec.affinity = Some(affinity)));
    assert!(h.run_binds().is_empty(), "without the expected pod it does not fit");
}

#[test]
fn the_room_of_an_expected_pod_that_goes_is_told_to_those_who_left_it_to_it() {
    let mut h = reserved();
    h.pod(wants("low", 1));
    // Higher, but it needs more than there is.
    h.pod(pod("high").req(&[("cpu", "2")]).priority(9));
    h.run();
    let tried = |h: &Harness| (h.attempts("low"), h.attempts("high"));
    assert_eq!(tried(&h), (1, 1));
    h.gone("first");
    h.sleep(2);
    assert_eq!(h.run_binds(), ["bind default/low -> n1"]);
    assert_eq!(h.attempts("high"), 1, "nothing changed for it");
}

#[test]
fn the_room_of_an_expected_pod_that_others_bind_elsewhere_is_told() {
    let mut h = reserved();
    h.node(node("n2").cpu("1").unschedulable());
    h.pod(wants("low", 1));
    h.run();
    assert_eq!(h.queue_of("low"), "unschedulable");
    // Whoever binds it leaves the nomination as it is.
    h.edit("first", |p| p.spec.node_name = "n2".into());
    h.sleep(2);
    assert_eq!(h.run_binds(), ["bind default/low -> n1"]);
}

#[test]
fn an_expected_pod_that_others_bind_where_it_is_expected_helps_nobody() {
    let mut h = reserved();
    h.pod(wants("low", 1));
    h.run();
    h.edit("first", |p| p.spec.node_name = "n1".into());
    h.sleep(2);
    h.run();
    assert_eq!((h.queue_of("low"), h.attempts("low")), ("unschedulable", 1));
}

#[test]
fn an_expected_pod_that_asks_for_less_leaves_room() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    let first = pod("first").req(&[("cpu", "2")]).priority(5).gate("later");
    h.pod(first.edit(|p| p.status.nominated_node_name = "n1".into()));
    h.pod(wants("low", 1));
    h.run();
    let asks = |h: &mut Harness, cpu: &str| {
        let requests = resources(&[("cpu", cpu)]);
        h.edit("first", |p| p.spec.containers[0].resources.requests = requests);
        h.sleep(20);
    };
    asks(&mut h, "3");
    h.run();
    assert_eq!((h.queue_of("low"), h.attempts("low")), ("unschedulable", 1), "more is no help");
    asks(&mut h, "1");
    assert_eq!(h.run_binds(), ["bind default/low -> n1"]);
}

#[test]
fn an_expected_pod_takes_its_node_without_a_look_at_the_others() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("8"));
    h.node(node("n2").cpu("2"));
    h.pod(expected("first", 0, "n2"));
    assert_eq!(h.run_binds(), ["bind default/first -> n2"], "n1 has more room");
    // If it does not fit there, it goes where it fits.
    h.pod(expected("second", 0, "n2").req(&[("cpu", "3")]));
    assert_eq!(h.run_binds(), ["bind default/second -> n1"]);
}

#[test]
fn a_failure_on_the_way_to_binding_ends_the_expectation() {
    let no = || Some(Status::unschedulable("no"));
    let scripts = [
        Script { reserve: no(), ..Script::default() },
        Script { permit: no(), ..Script::default() },
        Script { pre_bind: no(), ..Script::default() },
    ];
    for script in scripts {
        let probe = Probe::new("Probe", script);
        let mut h = Harness::with(profile(&[&probe]));
        h.node(node("n1"));
        h.pod(expected("p", 0, "n1"));
        h.run();
        assert_eq!(h.nominated("p"), Some(""), "cleared");
    }
}

#[test]
fn a_pod_that_may_not_preempt_keeps_its_expectation() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("1"));
    h.pod(wants("runs", 0).on("n1"));
    h.pod(expected("never", 5, "n1").edit(|p| p.spec.preemption_policy = Some("Never".into())));
    h.run();
    assert_eq!(h.nominated("never"), None, "nothing is written of it");
}
