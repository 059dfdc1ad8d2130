//! InterPodAffinity: required and preferred terms, of the pod and of others.
#![allow(clippy::needless_pass_by_value, reason = "`json!` literals go in as they are")]

use std::sync::Arc;

use muster_api::k8s;
use serde_json::{Value, json};

use super::{hint, judge, on_add, on_own_update, on_update, rate};
use crate::cluster::Cluster;
use crate::framework::{Actions, Hint, Resource, Subject};
use crate::io::Object;
use crate::plugins::{InterPodAffinity, InterPodAffinityArgs};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod, wire};

const NEAR: &str = "UU: node(s) didn't match pod affinity rules";
const APART: &str = "U: node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "U: node(s) didn't satisfy existing pods anti-affinity rules";

fn plugin() -> InterPodAffinity {
    InterPodAffinity::new(&InterPodAffinityArgs::default()).unwrap()
}

fn term(key: &str, app: &str) -> Value {
    json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}})
}

fn with(mut term: Value, field: &str, value: Value) -> Value {
    term[field] = value;
    term
}

fn required(terms: Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": terms})
}

fn preferred(weight: i32, term: Value) -> Value {
    let wish = json!({"weight": weight, "podAffinityTerm": term});
    json!({"preferredDuringSchedulingIgnoredDuringExecution": [wish]})
}

fn app(name: &str) -> k8s::Pod {
    pod("p").pod_label("app", name)
}

fn near(pod: k8s::Pod, terms: Value) -> k8s::Pod {
    pod.edit(|p| p.spec.affinity.get_or_insert_default().pod_affinity = Some(wire(terms)))
}

fn apart(pod: k8s::Pod, terms: Value) -> k8s::Pod {
    pod.edit(|p| p.spec.affinity.get_or_insert_default().pod_anti_affinity = Some(wire(terms)))
}

fn in_namespace(pod: k8s::Pod, namespace: &str) -> k8s::Pod {
    pod.edit(|p| p.metadata.namespace = namespace.to_owned())
}

/// a1 and a2 in zone a, b1 in zone b, c without a zone; app x runs on a1.
fn zones() -> Cluster {
    let mut nodes = cluster([
        node("a1").label("zone", "a").label("host", "a1"),
        node("a2").label("zone", "a").label("host", "a2"),
        node("b1").label("zone", "b").label("host", "b1"),
        node("c").label("host", "c"),
    ]);
    nodes.add_wire_pod(&app("x").on("a1"));
    nodes
}

#[test]
fn required_terms_of_the_pod() {
    let both = json!([term("zone", "x"), term("host", "x")]);
    let table = [
        (
            "near, zone",
            near(app("y"), required(json!([term("zone", "x")]))),
            ["ok", "ok", NEAR, NEAR],
        ),
        (
            "near, host",
            near(app("y"), required(json!([term("host", "x")]))),
            ["ok", NEAR, NEAR, NEAR],
        ),
        ("near, both", near(app("y"), required(both)), ["ok", NEAR, NEAR, NEAR]),
        ("near, nobody", near(app("y"), required(json!([term("zone", "z")]))), [NEAR; 4]),
        // The first of a series: only the label is asked for.
        (
            "near itself",
            near(app("z"), required(json!([term("zone", "z")]))),
            ["ok", "ok", "ok", NEAR],
        ),
        (
            "one pod must match all terms",
            near(app("z"), required(json!([term("zone", "z"), term("zone", "x")]))),
            [NEAR; 4],
        ),
        (
            "apart, zone",
            apart(app("y"), required(json!([term("zone", "x")]))),
            [APART, APART, "ok", "ok"],
        ),
        (
            "apart, host",
            apart(app("y"), required(json!([term("host", "x")]))),
            [APART, "ok", "ok", "ok"],
        ),
        (
            "no selector matches nothing",
            apart(app("y"), required(json!([{"topologyKey": "zone"}]))),
            ["ok", "ok", "ok", "ok"],
        ),
    ];
    for (row, pod, expected) in table {
        assert_eq!(judge(&plugin(), &mut zones(), &pod), expected, "{row}");
    }
    assert_eq!(judge(&plugin(), &mut zones(), &app("y")), ["skip"]);
}

#[test]
fn namespaces_are_the_pods_own_unless_named() {
    let namespace = |name: &str, env: &str| {
        let meta = json!({"name": name, "labels": {"env": env}});
        Object::Namespace(wire(json!({"metadata": meta})))
    };
    let prod = json!({"matchLabels": {"env": "prod"}});
    let table = [
        ("own", term("zone", "x"), "ok"),
        ("by name", with(term("zone", "x"), "namespaces", json!(["other"])), APART),
        ("by label", with(term("zone", "x"), "namespaceSelector", prod), APART),
        ("all", with(term("zone", "x"), "namespaceSelector", json!({})), APART),
    ];
    for (row, term, expected) in table {
        let mut nodes = cluster([node("a").label("zone", "a")]);
        nodes.set_related(&namespace("other", "prod"), 0);
        nodes.add_wire_pod(&in_namespace(app("x"), "other").on("a"));
        let pod = apart(app("y"), required(json!([term])));
        assert_eq!(judge(&plugin(), &mut nodes, &pod), [expected], "{row}");
    }
}

#[test]
fn anti_affinity_of_existing_pods_holds_for_the_pod() {
    let mut nodes = zones();
    nodes.add_wire_pod(&apart(app("q"), required(json!([term("zone", "y")]))).on("b1"));
    assert_eq!(judge(&plugin(), &mut nodes, &app("y")), ["ok", "ok", EXISTING, "ok"]);
    assert_eq!(judge(&plugin(), &mut nodes, &app("z")), ["skip"]);
    let elsewhere = in_namespace(app("y"), "other");
    assert_eq!(judge(&plugin(), &mut nodes, &elsewhere), ["skip"], "another namespace");
}

#[test]
fn terms_that_cannot_be_parsed_reject_the_pod() {
    let odd = json!([{"topologyKey": "zone", "labelSelector":
        {"matchExpressions": [{"key": "app", "operator": "Near"}]}}]);
    assert_eq!(
        judge(&plugin(), &mut zones(), &apart(app("y"), required(odd))),
        ["rejected UU: parsing pod: requiredAntiAffinityTerms: \"Near\" is not a valid label \
          selector operator"]
    );
}

#[test]
fn wishes_add_up_per_topology_value() {
    let table = [
        // x is in zone a: a1 and a2 have 5, the others 0.
        ("likes x", near(app("y"), preferred(5, term("zone", "x"))), [100, 100, 0, 0]),
        ("dislikes x", apart(app("y"), preferred(5, term("zone", "x"))), [0, 0, 100, 100]),
        // zone 4 + host 1: a1 5, a2 4 → 100 · 4 / 5 = 80.
        (
            "zone and host",
            near(
                app("y"),
                json!({"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 4, "podAffinityTerm": term("zone", "x")},
                    {"weight": 1, "podAffinityTerm": term("host", "x")},
                ]}),
            ),
            [100, 80, 0, 0],
        ),
    ];
    for (row, pod, expected) in table {
        assert_eq!(rate(&plugin(), &mut zones(), &pod), Ok(expected.into()), "{row}");
    }
    assert_eq!(rate(&plugin(), &mut zones(), &app("y")), Err("skip".into()));
}

#[test]
fn wishes_of_existing_pods_count_too() {
    let mut nodes = zones();
    // On b1: needs y nearby (hard weight 1), likes y with 3; on c: dislikes y on its host.
    let hard = near(app("q"), required(json!([term("zone", "y")])));
    nodes.add_wire_pod(&hard.on("b1"));
    nodes.add_wire_pod(&near(app("q"), preferred(3, term("zone", "y"))).on("b1"));
    nodes.add_wire_pod(&apart(app("q"), preferred(4, term("host", "y"))).on("c"));
    // a 0, b 1 + 3 = 4, c -4: 100 · (0 + 4) / 8 = 50.
    assert_eq!(rate(&plugin(), &mut nodes, &app("y")), Ok(vec![50, 50, 100, 0]));
    let args = InterPodAffinityArgs { hard_pod_affinity_weight: 0, ..Default::default() };
    let soft = InterPodAffinity::new(&args).unwrap();
    // a 0, b 3, c -4: a 100 · 4 / 7 = 57.
    assert_eq!(rate(&soft, &mut nodes, &app("y")), Ok(vec![57, 57, 100, 0]));
    let ignore =
        InterPodAffinityArgs { ignore_preferred_terms_of_existing_pods: true, ..args.clone() };
    let ignore = InterPodAffinity::new(&ignore).unwrap();
    assert_eq!(rate(&ignore, &mut nodes, &app("y")), Err("skip".into()));
    let args = InterPodAffinityArgs { hard_pod_affinity_weight: 101, ..args };
    let error = InterPodAffinity::new(&args).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("hardPodAffinityWeight"), "{error}");
}

#[test]
fn dry_runs_move_counts() {
    use crate::framework::{Filter, PreFilter, PreFilterResult};
    let mut nodes = zones();
    let asks = apart(app("y"), required(json!([term("zone", "x")])));
    let shape = nodes.shape_of(&asks);
    let gone = nodes.node(nodes.id("a1")).pods[0];
    let PreFilterResult::Go { mut state, .. } = plugin().pre_filter(&shape, &nodes) else {
        panic!("it has terms");
    };
    let (at, next) = (nodes.view(nodes.id("a1")), nodes.view(nodes.id("a2")));
    let fits = |state: &_| plugin().filter(state, &shape, next).is_ok();
    assert!(!fits(&state));
    let pod = nodes.pod(gone).unwrap();
    plugin().remove_pod(&mut state, &shape, pod, at);
    assert!(fits(&state));
    plugin().add_pod(&mut state, &shape, pod, at);
    assert!(!fits(&state));
}

#[test]
fn events_that_bring_friends_or_take_foes_away_help() {
    let friend = near(app("y"), required(json!([term("zone", "x")])));
    let foe = apart(app("y"), required(json!([term("zone", "x")])));
    let on_pod = |asks: &k8s::Pod, other: &k8s::Pod, actions, before: Option<k8s::Pod>| {
        let mut nodes = cluster([]);
        let group = Arc::new(nodes.group_key(other));
        let before = before.map(|b| Arc::new(nodes.group_key(&b)));
        nodes.add_wire_pod(other);
        let shape = Arc::new(nodes.shape_of(other));
        let subject = Subject::Pod { shape, group, before };
        hint(&plugin(), &mut nodes, asks, (Resource::AssignedPod, actions), subject)
    };
    let (add, delete, label) = (Actions::ADD, Actions::DELETE, Actions::UPDATE_POD_LABEL);
    let hostile = apart(app("q"), required(json!([term("zone", "y")])));
    let table = [
        ("a friend comes", &friend, app("x"), add, None, Hint::Queue),
        ("a stranger comes", &friend, app("q"), add, None, Hint::Skip),
        ("a foe comes", &foe, app("x"), add, None, Hint::Skip),
        ("a foe goes", &foe, app("x"), delete, None, Hint::Queue),
        ("a friend goes", &friend, app("x"), delete, None, Hint::Skip),
        ("one that kept us away goes", &friend, hostile, delete, None, Hint::Queue),
        ("one becomes a friend", &friend, app("x"), label, Some(app("q")), Hint::Queue),
        ("one is no foe any more", &foe, app("q"), label, Some(app("x")), Hint::Queue),
        ("one becomes a foe", &foe, app("x"), label, Some(app("q")), Hint::Skip),
    ];
    for (row, asks, other, actions, before, expected) in table {
        assert_eq!(on_pod(asks, &other, actions, before), expected, "{row}");
    }
    let (zoned, bare) = (node("n").label("zone", "a"), node("n"));
    assert_eq!(on_add(&plugin(), &friend, &zoned), Hint::Queue);
    assert_eq!(on_add(&plugin(), &friend, &bare), Hint::Skip);
    assert_eq!(on_add(&plugin(), &foe, &bare), Hint::Queue);
    assert_eq!(on_update(&plugin(), &friend, &bare, &zoned), Hint::Queue);
    assert_eq!(on_update(&plugin(), &foe, &bare, &zoned), Hint::Skip);
    assert_eq!(on_update(&plugin(), &foe, &zoned, &bare), Hint::Queue);
    assert_eq!(on_own_update(&plugin(), &friend, Actions::UPDATE_POD_LABEL), Hint::Queue);
}
