//! PodTopologySpread: skew, domains, policies, scores, defaults, hints.
#![allow(clippy::needless_pass_by_value, reason = "`json!` literals go in as they are")]

use muster_api::k8s;
use serde_json::{Value, json};

use super::{hint, judge, on_add, on_own_update, on_update, rate};
use crate::cluster::Cluster;
use crate::framework::{Actions, Hint, Resource, Subject};
use crate::io::Object;
use crate::plugins::{PodTopologySpread, PodTopologySpreadArgs};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod, wire};

const UNEVEN: &str = "U: node(s) didn't match pod topology spread constraints";
const UNLABELED: &str =
    "UU: node(s) didn't match pod topology spread constraints (missing required label)";
const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

fn plugin() -> PodTopologySpread {
    PodTopologySpread::new(&PodTopologySpreadArgs::System).unwrap()
}

fn place(name: &str, zone: &str) -> k8s::Node {
    let node = node(name).label(HOST, name);
    if zone.is_empty() { node } else { node.label(ZONE, zone) }
}

/// A pod with constraints over pods of its own kind.
fn asks(constraints: Value) -> k8s::Pod {
    let mut pod = pod("p").pod_label("app", "x");
    pod.spec.topology_spread_constraints = wire(constraints);
    pod
}

fn constraint(key: &str, when: &str, skew: i32) -> Value {
    json!({
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": "x"}},
    })
}

fn hard(key: &str, skew: i32) -> Value {
    constraint(key, "DoNotSchedule", skew)
}

fn with(mut constraint: Value, field: &str, value: Value) -> Value {
    constraint[field] = value;
    constraint
}

fn run(cluster: &mut Cluster, nodes: &[&str]) {
    for node in nodes {
        cluster.add_wire_pod(&pod("e").pod_label("app", "x").on(node));
    }
}

/// Zone a holds two pods on a1, zone b one on b1, and c has no zone.
fn zones() -> Cluster {
    let mut nodes = cluster([place("a1", "a"), place("a2", "a"), place("b1", "b"), place("c", "")]);
    run(&mut nodes, &["a1", "a1", "b1"]);
    // None of these counts: another namespace, other labels, terminating.
    nodes.add_wire_pod(&pod("e").pod_label("app", "y").on("b1"));
    nodes.add_wire_pod(&pod("e").pod_label("app", "x").deleting().on("b1"));
    let elsewhere = pod("e").pod_label("app", "x").on("b1");
    nodes.add_wire_pod(&elsewhere.edit(|p| p.metadata.namespace = "other".into()));
    nodes
}

#[test]
fn skew_is_the_domain_with_the_pod_less_the_emptiest_domain() {
    let not_affine = |p: k8s::Pod| p.node_selector(ZONE, "a");
    let table = [
        // a: 2 + 1 - 1 = 2 > 1, b: 1 + 1 - 1 = 1.
        ("zones, skew 1", asks(json!([hard(ZONE, 1)])), [UNEVEN, UNEVEN, "ok", UNLABELED]),
        ("zones, skew 2", asks(json!([hard(ZONE, 2)])), ["ok", "ok", "ok", UNLABELED]),
        // Hosts: a1 2 + 1 - 0 = 3, a2 1, b1 2; c is alone with its name: 1.
        ("hosts, skew 1", asks(json!([hard(HOST, 1)])), [UNEVEN, "ok", UNEVEN, "ok"]),
        ("hosts, skew 2", asks(json!([hard(HOST, 2)])), [UNEVEN, "ok", "ok", "ok"]),
        // Fewer than three zones: the emptiest counts as 0, b: 1 + 1 - 0 = 2.
        (
            "minDomains",
            asks(json!([with(hard(ZONE, 1), "minDomains", json!(3))])),
            [UNEVEN, UNEVEN, UNEVEN, UNLABELED],
        ),
        // The pod does not count itself: a 2 - 1, b 1 - 1.
        (
            "the pod does not match",
            asks(json!([hard(ZONE, 1)])).pod_label("app", "z"),
            ["ok", "ok", "ok", UNLABELED],
        ),
        // Only zone a may be used, so it is the emptiest: 2 + 1 - 2 = 1; b counts
        // no eligible node: 0 + 1 - 2.
        (
            "nodes that node affinity excludes do not count",
            not_affine(asks(json!([hard(ZONE, 1)]))),
            ["ok", "ok", "ok", UNLABELED],
        ),
        (
            "unless told so",
            not_affine(asks(json!([with(hard(ZONE, 1), "nodeAffinityPolicy", json!("Ignore"))]))),
            [UNEVEN, UNEVEN, "ok", UNLABELED],
        ),
        (
            "no selector selects nothing",
            asks(json!([with(hard(ZONE, 1), "labelSelector", Value::Null)])),
            ["ok", "ok", "ok", UNLABELED],
        ),
        // A node without a zone is no host either for the second constraint.
        (
            "the first constraint that fails says why",
            asks(json!([hard(HOST, 1), hard(ZONE, 2)])),
            [UNEVEN, "ok", UNEVEN, UNLABELED],
        ),
    ];
    for (row, pod, expected) in table {
        assert_eq!(judge(&plugin(), &mut zones(), &pod), expected, "{row}");
    }
}

#[test]
fn own_labels_are_merged_into_the_selector() {
    let mut nodes = zones();
    let by_version = with(hard(ZONE, 1), "matchLabelKeys", json!(["version", "none"]));
    let new = asks(json!([by_version])).pod_label("version", "2");
    assert_eq!(judge(&plugin(), &mut nodes, &new), ["ok", "ok", "ok", UNLABELED]);
}

#[test]
fn tainted_nodes_count_unless_told_otherwise() {
    let tainted = place("b1", "b").taint("gpu", "", "NoSchedule");
    let table = [("Ignore", [UNEVEN, "ok"]), ("Honor", ["ok", "ok"])];
    for (policy, expected) in table {
        let mut nodes = cluster([place("a1", "a"), tainted.clone()]);
        run(&mut nodes, &["a1"]);
        let pod = asks(json!([with(hard(ZONE, 1), "nodeTaintsPolicy", json!(policy))]));
        assert_eq!(judge(&plugin(), &mut nodes, &pod), expected, "{policy}");
    }
}

#[test]
fn without_hard_constraints_it_skips() {
    let soft = asks(json!([constraint(ZONE, "ScheduleAnyway", 1)]));
    assert_eq!(judge(&plugin(), &mut zones(), &soft), ["skip"]);
    assert_eq!(rate(&plugin(), &mut zones(), &asks(json!([hard(ZONE, 1)]))), Err("skip".into()));
}

#[test]
fn a_selector_that_cannot_be_parsed_is_an_error() {
    let odd = json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": ["x"]}]});
    let pod = asks(json!([with(hard(ZONE, 1), "labelSelector", odd)]));
    assert_eq!(
        judge(&plugin(), &mut zones(), &pod),
        ["rejected Error: get constraints from pod: obtaining pod's hard topology spread \
          constraints: \"Near\" is not a valid label selector operator"]
    );
}

#[test]
fn scores_prefer_domains_with_few_pods() {
    let soft = |key, skew| constraint(key, "ScheduleAnyway", skew);
    let table = [
        // Two zones weigh ln 4 = 1.386: a 2 · 1.386 = 2.77 → 3, b 1.39 → 1. c is ignored.
        // max 3, min 1: a 100 · (3 + 1 - 3) / 3 = 33, b 100 · 3 / 3 = 100.
        ("zones", json!([soft(ZONE, 1)]), [33, 33, 100, 0]),
        // Four hosts weigh ln 6 = 1.792: a1 3.58 → 4, a2 0, b1 1.79 → 2, c 0.
        // a1 100 · (4 + 0 - 4) / 4 = 0, b1 100 · 2 / 4 = 50.
        ("hosts", json!([soft(HOST, 1)]), [0, 100, 50, 100]),
        // Skew 3 waters down: zones a 2.77 + 2 = 4.77 → 5, b 3.39 → 3; a 100 · 3 / 5 = 60.
        ("a wider skew", json!([soft(ZONE, 3)]), [60, 60, 100, 0]),
        // Both: three hosts have a zone, ln 5 = 1.609. a1 2.77 + 3.22 = 5.99 → 6,
        // a2 2.77 → 3, b1 1.39 + 1.61 = 3.0 → 3. a1 100 · 3 / 6 = 50, the others 100.
        ("zones and hosts", json!([soft(ZONE, 1), soft(HOST, 1)]), [50, 100, 100, 0]),
    ];
    for (row, constraints, expected) in table {
        assert_eq!(rate(&plugin(), &mut zones(), &asks(constraints)), Ok(expected.into()), "{row}");
    }
    let none = asks(json!([soft(ZONE, 1)])).edit(|p| p.metadata.namespace = "empty".into());
    assert_eq!(rate(&plugin(), &mut zones(), &none), Ok(vec![100, 100, 100, 0]), "no pods yet");
}

fn service(selector: Value) -> Object {
    let spec = json!({"selector": selector});
    Object::Service(wire(json!({"metadata": {"namespace": "default", "name": "s"}, "spec": spec})))
}

#[test]
fn pods_of_a_service_are_spread_by_default() {
    let mut nodes = zones();
    let plain = pod("p").pod_label("app", "x");
    assert_eq!(rate(&plugin(), &mut nodes, &plain), Err("skip".into()), "nothing to go by");
    nodes.set_related(&service(json!({"app": "x"})), 0);
    // Hosts: four, ln 6 = 1.792, skew 3. Zones: a, b and none make three, ln 5 = 1.609, skew 5.
    // a1 3.58 + 2 + 3.22 + 4 = 12.80 → 13, a2 0 + 2 + 3.22 + 4 = 9.22 → 9,
    // b1 1.79 + 2 + 1.61 + 4 = 9.40 → 9, c 0 + 2 → 2 (it has no zone, but a name).
    // max 13, min 2: a1 100 · 2 / 13 = 15, a2 and b1 100 · 6 / 13 = 46, c 100.
    assert_eq!(rate(&plugin(), &mut nodes, &plain), Ok(vec![15, 46, 46, 100]));
    assert_eq!(judge(&plugin(), &mut nodes, &plain), ["skip"], "defaults are soft");
    let other = pod("p").pod_label("app", "y");
    assert_eq!(rate(&plugin(), &mut nodes, &other), Err("skip".into()), "not of the service");
}

#[test]
fn the_selector_of_a_controller_counts_too() {
    let mut nodes = zones();
    let set = json!({
        "metadata": {"namespace": "default", "name": "r"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
    });
    nodes.set_related(&Object::ReplicaSet(wire(set)), 0);
    let owned = |version: &str| {
        let owner = json!([
            {"apiVersion": version, "kind": "ReplicaSet", "name": "r", "controller": true},
        ]);
        pod("p").pod_label("app", "x").edit(|p| p.metadata.owner_references = wire(owner))
    };
    assert_eq!(rate(&plugin(), &mut nodes, &owned("apps/v1")), Ok(vec![15, 46, 46, 100]));
    let old = owned("extensions/v1beta1");
    assert_eq!(rate(&plugin(), &mut nodes, &old), Err("skip".into()), "another kind");
}

#[test]
fn default_constraints_may_be_listed() {
    let list: Vec<k8s::TopologySpreadConstraint> = wire(json!([
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
    ]));
    let plugin = PodTopologySpread::new(&PodTopologySpreadArgs::List(list)).unwrap();
    let mut nodes = zones();
    nodes.set_related(&service(json!({"app": "x"})), 0);
    let plain = pod("p").pod_label("app", "x");
    assert_eq!(judge(&plugin, &mut nodes, &plain), [UNEVEN, UNEVEN, "ok", UNLABELED]);
    let bad = |constraint: Value| {
        let args = PodTopologySpreadArgs::List(vec![wire(constraint)]);
        PodTopologySpread::new(&args).err().map(|e| e.to_string()).unwrap_or_default()
    };
    let text =
        bad(json!({"maxSkew": 0, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}));
    assert!(text.contains("defaultConstraints[0].maxSkew"), "{text}");
    let text = bad(json!({"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": ""}));
    assert!(text.contains("whenUnsatisfiable"), "{text}");
}

#[test]
fn dry_runs_move_counts() {
    use crate::framework::{Filter, PreFilter, PreFilterResult};
    let mut nodes = zones();
    let asks = asks(json!([hard(ZONE, 1)]));
    let shape = nodes.shape_of(&asks);
    let gone = nodes.node(nodes.id("a1")).pods[0];
    let PreFilterResult::Go { mut state, .. } = plugin().pre_filter(&shape, &nodes) else {
        panic!("it has constraints");
    };
    let view = nodes.view(nodes.id("a1"));
    let fits = |state: &_| plugin().filter(state, &shape, view).is_ok();
    assert!(!fits(&state));
    let pod = nodes.pod(gone).unwrap();
    plugin().remove_pod(&mut state, &shape, pod, view);
    assert!(fits(&state), "1 + 1 - 1");
    plugin().add_pod(&mut state, &shape, pod, view);
    assert!(!fits(&state));
}

#[test]
fn events_that_change_a_count_or_a_domain_help() {
    let asks = asks(json!([hard(ZONE, 1)]));
    let zoned = || place("n", "a");
    assert_eq!(on_add(&plugin(), &asks, &zoned()), Hint::Queue);
    assert_eq!(on_add(&plugin(), &asks, &place("n", "")), Hint::Skip, "no domain");
    let moved = zoned().label(ZONE, "b");
    assert_eq!(on_update(&plugin(), &asks, &zoned(), &moved), Hint::Queue);
    assert_eq!(on_update(&plugin(), &asks, &zoned(), &zoned().label("x", "y")), Hint::Skip);
    let tainted = zoned().taint("t", "", "NoSchedule");
    assert_eq!(on_update(&plugin(), &asks, &zoned(), &tainted), Hint::Queue);
    let assigned = |other: k8s::Pod| {
        let mut nodes = cluster([]);
        let group = std::sync::Arc::new(nodes.group_key(&other));
        let shape = std::sync::Arc::new(nodes.shape_of(&other));
        let subject = Subject::Pod { shape, group, before: None };
        hint(&plugin(), &mut nodes, &asks, (Resource::AssignedPod, Actions::ADD), subject)
    };
    assert_eq!(assigned(pod("e").pod_label("app", "x")), Hint::Queue);
    assert_eq!(assigned(pod("e").pod_label("app", "y")), Hint::Skip);
    let elsewhere = pod("e").pod_label("app", "x").edit(|p| p.metadata.namespace = "o".into());
    assert_eq!(assigned(elsewhere), Hint::Skip);
    assert_eq!(on_own_update(&plugin(), &asks, Actions::UPDATE_POD_LABEL), Hint::Queue);
    assert_eq!(on_own_update(&plugin(), &asks, Actions::UPDATE_POD_TOLERATION), Hint::Skip);
}
