//! Nodes whose kubelets refuse pods are left alone for a while.

use muster_api::k8s;
use serde_json::{Value, json};

use super::super::harness::{Harness, check};
use super::{asks, harness, message, report};
use crate::io::Input;
use crate::report::Observation;

const REASON: &str = "TopologyAffinityError";

fn strict(quarantine: &Value) -> Harness {
    let mut h = harness(&json!({"quarantine": quarantine}), &["n"]);
    h.object(report("n", 1, "Restricted", &[]));
    h
}

/// The kubelet refuses a pod that was bound, as the watch of failed pods shows it.
fn refuse(h: &mut Harness, name: &str, node: &str, reason: &str) {
    let mut pod = h.last(name);
    pod.spec.node_name = node.to_owned();
    pod.status.phase = "Failed".to_owned();
    pod.status.reason = reason.to_owned();
    pod.status.start_time = Some(k8s::Time(h.now.0));
    h.gone(name);
    h.apply(Input::Refused(Box::new(pod)));
}

/// A pod is bound, and refused.
fn try_one(h: &mut Harness, name: &str) {
    h.pod(asks(name, 8, 4));
    check(h.run_binds(), &format!("bind default/{name} -> n"));
    h.bound(name, "n");
    refuse(h, name, "n", REASON);
}

fn is_avoided(h: &mut Harness) -> bool {
    h.core.pending_counts().avoided > 0
}

#[test]
fn a_node_that_refuses_pods_is_avoided_for_such_pods_and_no_others() {
    let mut h = strict(&json!({"refusals": 2, "windowSeconds": 100, "seconds": 60}));
    try_one(&mut h, "a");
    assert!(!is_avoided(&mut h));
    h.core.take_observations();
    try_one(&mut h, "b");
    let effects = h.effects();
    assert!(
        effects.iter().any(|e| e
            == "Warning default/b NodeAvoided: The kubelet of node n refused pods like this one \
                (TopologyAffinityError): the node is avoided for such pods for 60 s, or until its \
                agent reports another machine"),
        "{effects:?}"
    );
    let told = h.core.take_observations();
    assert!(told.contains(&Observation::NodeAvoided { reason: REASON }), "{told:?}");
    h.pod(asks("c", 8, 4));
    check(h.run_binds(), "");
    assert!(
        message(&h, "c").contains("their kubelet refused pods like this"),
        "{}",
        message(&h, "c")
    );
    let explained = h.core.question("default", "c").expect("a known pod").explain();
    let reasons = explained.nodes["n"].reasons.join("\n");
    assert!(reasons.contains("avoided for a while"), "{reasons}");
    // Another shape goes there.
    h.pod(asks("other", 4, 2));
    check(h.run_binds(), "bind default/other -> n");
    h.bound("other", "n");
    h.object(report("n", 2, "Restricted", &[("uid-other", "0-3", &[0, 1])]));
    // When the time is over the node is tried again.
    h.sleep(59);
    check(h.run_binds(), "");
    h.sleep(12);
    check(h.run_binds(), "bind default/c -> n");
}

#[test]
fn refusals_that_are_far_apart_mean_nothing() {
    let mut h = strict(&json!({"refusals": 2, "windowSeconds": 100}));
    try_one(&mut h, "a");
    h.sleep(101);
    try_one(&mut h, "b");
    assert!(!is_avoided(&mut h));
    // Nor does one that is shown twice, or one that no kubelet refused.
    let mut h = strict(&json!({"refusals": 2, "windowSeconds": 100}));
    h.pod(asks("a", 8, 4));
    for _ in 0..2 {
        h.pod(asks("a", 8, 4));
        refuse(&mut h, "a", "n", REASON);
    }
    h.pod(asks("b", 8, 4));
    refuse(&mut h, "b", "n", "Evicted");
    assert!(!is_avoided(&mut h));
}

#[test]
fn the_pause_doubles_up_to_a_limit_and_begins_anew_after_a_quiet_time() {
    let quarantine = json!({"refusals": 2, "windowSeconds": 30, "seconds": 60, "maxSeconds": 150});
    let mut h = strict(&quarantine);
    try_one(&mut h, "a");
    try_one(&mut h, "b");
    for (name, seconds) in [("c", 60), ("d", 120), ("e", 150), ("f", 150)] {
        h.sleep(seconds - 1);
        assert!(is_avoided(&mut h), "{name}");
        h.sleep(1);
        assert!(!is_avoided(&mut h), "{name}");
        // From now on one refusal is enough.
        try_one(&mut h, name);
        assert!(is_avoided(&mut h), "{name}");
    }
    h.sleep(150 + 150);
    try_one(&mut h, "g");
    assert!(!is_avoided(&mut h), "it begins anew");
}

#[test]
fn another_machine_ends_the_pause_and_a_node_that_goes_is_forgotten() {
    let mut h = strict(&json!({"refusals": 1, "seconds": 600}));
    try_one(&mut h, "a");
    assert!(is_avoided(&mut h));
    h.object(report("n", 2, "Restricted", &[]));
    assert!(is_avoided(&mut h), "it says what it said before");
    h.pod(asks("b", 8, 4));
    check(h.run_binds(), "");
    h.object(report("n", 3, "BestEffort", &[]));
    h.sleep(20);
    check(h.run_binds(), "bind default/b -> n");
    h.bound("b", "n");
    refuse(&mut h, "b", "n", REASON);
    assert!(is_avoided(&mut h));
    h.node_gone("n");
    assert!(!is_avoided(&mut h));
    h.sleep(4000);
    assert_eq!(h.core.next_deadline(), None);
}

#[test]
fn it_can_be_turned_off_and_what_is_kept_is_bounded() {
    let mut h = strict(&json!({"refusals": 0}));
    try_one(&mut h, "a");
    assert!(!is_avoided(&mut h));
    let mut h = strict(&json!({"refusals": 1}));
    for cpus in 1..200 {
        let name = format!("p{cpus}");
        h.pod(asks(&name, cpus, 1));
        refuse(&mut h, &name, "n", REASON);
    }
    assert!(h.core.pending_counts().avoided <= 16);
}
