//! Pace: binds in a second, and pods that start on a node.

use serde_json::{Value, json};

use super::gang::group;
use super::harness::Harness;
use super::policy::policy;
use crate::testing::{NodeExt, PodExt, node, pod};

fn says(pacing: &Value) -> crate::io::Object {
    policy("p", &json!({"priority": 1, "pacing": pacing}))
}

fn small(name: &str) -> muster_api::k8s::Pod {
    pod(name).req(&[("cpu", "100m")])
}

fn bound(effects: &[String]) -> Vec<(String, String)> {
    let binds = effects.iter().filter_map(|e| e.strip_prefix("bind default/"));
    binds.filter_map(|b| b.split_once(" -> ")).map(|(p, n)| (p.into(), n.into())).collect()
}

/// The binds succeed, and the pods start.
fn starts(h: &mut Harness, effects: &[String]) {
    for (pod, node) in bound(effects) {
        h.bound(&pod, &node);
    }
}

#[test]
fn so_many_are_bound_in_a_second_the_more_important_first_and_gangs_whole() {
    let mut h = Harness::new();
    h.node(node("n").cpu("64"));
    h.object(says(&json!({"bindsPerSecond": 2})));
    h.object(group("g", &json!({"minMember": 3})));
    for i in 0..4 {
        h.pod(small(&format!("p{i}")));
    }
    h.pod(small("top").priority(100));
    for i in 0..3 {
        h.pod(small(&format!("g{i}")).priority(50).pod_label("muster.dev/pod-group", "g"));
    }
    let first = bound(&h.run());
    assert_eq!(first.len(), 1, "the gang waits for a second's worth, and nobody passes it");
    assert_eq!(first[0].0, "top");
    let mut all = Vec::new();
    for second in 1..=6 {
        h.sleep(1);
        let now = bound(&h.run());
        all.push((second, now.len()));
    }
    let gang = all.iter().find(|(_, count)| *count == 3).expect("the gang comes whole").0;
    let sum: usize = all.iter().map(|(_, count)| count).sum();
    assert_eq!(sum, 7, "{all:?}");
    assert!(gang <= 2, "{all:?}");
    let after: usize = all.iter().filter(|(s, _)| *s == gang + 1).map(|(_, count)| *count).sum();
    assert!(after <= 1, "its third bind is paid for first: {all:?}");
}

#[test]
fn nodes_on_which_pods_start_are_left_alone_until_they_run() {
    let mut h = Harness::new();
    h.node(node("n").cpu("8"));
    h.node(node("m").cpu("8"));
    h.object(says(&json!({"startingPodsPerNode": 2})));
    for i in 0..6 {
        h.pod(small(&format!("p{i}")));
    }
    let effects = h.run();
    assert_eq!(bound(&effects).len(), 4);
    starts(&mut h, &effects);
    h.sleep(5);
    assert!(bound(&h.run()).is_empty());
    let (pod, on) = bound(&effects)[0].clone();
    h.edit(&pod, |p| p.status.phase = "Running".into());
    let next = bound(&h.run());
    assert_eq!(next.len(), 1);
    assert_eq!(next[0].1, on, "only there is anybody let in");
    // An image that never comes is not waited for.
    h.sleep(320);
    assert_eq!(bound(&h.run()).len(), 1);
}

#[test]
fn a_pod_that_waits_for_its_pace_pushes_out_nobody() {
    let mut h = Harness::new();
    h.node(node("n").cpu("8"));
    h.node(node("full").cpu("1"));
    h.pod(pod("low").req(&[("cpu", "1")]).priority(0).on("full").edit(|p| {
        p.status.phase = "Running".into();
    }));
    h.pod(small("starting").on("n"));
    h.object(says(&json!({"startingPodsPerNode": 1})));
    h.pod(small("high").priority(100));
    let effects = h.run();
    assert!(effects.iter().all(|e| !e.starts_with("ask")), "{effects:?}");
    let said = effects.iter().any(|e| e.contains("(1 more nodes: too many pods start there)"));
    assert!(said, "{effects:?}");
    h.edit("starting", |p| p.status.phase = "Running".into());
    h.sleep(3);
    assert_eq!(bound(&h.run()), [("high".to_owned(), "n".to_owned())]);
}

#[test]
fn a_gang_waits_whole_and_is_not_split() {
    let mut h = Harness::new();
    h.node(node("n").cpu("8"));
    h.pod(small("starting").on("n"));
    h.object(says(&json!({"startingPodsPerNode": 1})));
    h.object(group("g", &json!({"minMember": 3})));
    for i in 0..3 {
        h.pod(small(&format!("g{i}")).pod_label("muster.dev/pod-group", "g"));
    }
    assert!(bound(&h.run()).is_empty());
    h.edit("starting", |p| p.status.phase = "Running".into());
    h.sleep(3);
    assert_eq!(bound(&h.run()).len(), 3, "on one node, though each is one of those that start");
}
