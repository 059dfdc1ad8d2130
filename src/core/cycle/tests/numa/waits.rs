//! Nodes whose agents are silent are waited for, and not for ever.

use muster_api::k8s;
use serde_json::json;

use super::super::harness::{Harness, check};
use super::{asks, harness, message, report};
use crate::io::{Input, Kind, ObjectKey};
use crate::testing::{NodeExt as _, PodExt as _, node};

/// A node that was made just now.
fn fresh(h: &mut Harness, name: &str) {
    let now = h.now;
    h.node(node(name).edit(|n| n.metadata.creation_timestamp = Some(k8s::Time(now.0))));
}

#[test]
fn a_node_that_was_just_added_is_waited_for_and_then_taken_for_unknown() {
    let mut h = harness(&json!({"waitSeconds": 30}), &[]);
    fresh(&mut h, "new");
    h.pod(asks("a", 8, 8));
    h.pod(asks("plain", 1, 0).edit(|p| p.status.qos_class = "Burstable".to_owned()));
    check(h.run_binds(), "bind default/plain -> new");
    assert!(message(&h, "a").contains("is muster-node-agent running?"), "{}", message(&h, "a"));
    h.sleep(29);
    check(h.run_binds(), "");
    // No event of the cluster calls it: time does.
    h.sleep(1);
    h.sleep(10);
    check(h.run_binds(), "bind default/a -> new");
    assert_eq!(h.core.vigil.next_deadline(), None, "nothing is waited for any more");
}

#[test]
fn a_report_in_time_is_what_counts() {
    let mut h = harness(&json!({"waitSeconds": 30}), &[]);
    fresh(&mut h, "new");
    h.pod(asks("a", 8, 8));
    h.pod(asks("b", 8, 4));
    check(h.run_binds(), "");
    h.sleep(20);
    h.object(report("new", 1, "Restricted", &[]));
    h.sleep(60);
    check(h.run_binds(), "bind default/b -> new");
    assert!(message(&h, "a").contains("8 nvidia.com/gpu"), "{}", message(&h, "a"));
}

#[test]
fn a_node_that_is_old_is_not_waited_for_and_one_that_loses_its_report_is() {
    let mut h = harness(&json!({"waitSeconds": 30}), &["old"]);
    h.pod(asks("a", 8, 8));
    check(h.run_binds(), "bind default/a -> old");
    let mut h = harness(&json!({"waitSeconds": 30}), &["old"]);
    h.object(report("old", 1, "Restricted", &[]));
    let key = ObjectKey { name: "old".to_owned(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::NodeTopology, key));
    h.pod(asks("a", 8, 8));
    check(h.run_binds(), "");
    h.sleep(50);
    check(h.run_binds(), "bind default/a -> old");
}

#[test]
fn who_waits_for_agents_waits_for_ever() {
    let mut h = harness(&json!({"waitSeconds": 30, "unknownNodes": "Wait"}), &["old"]);
    h.pod(asks("a", 20, 8));
    h.sleep(600);
    check(h.run_binds(), "");
    h.object(report("old", 1, "Restricted", &[]));
    h.sleep(20);
    check(h.run_binds(), "bind default/a -> old");
}

/// Two of four GPUs of a NUMA node are somebody's whom the agent saw; `four` was bound since, and
/// would be refused if `two` came first.
fn behind(args: &serde_json::Value) -> Harness {
    let mut h = harness(args, &["n"]);
    h.pod(asks("old", 1, 2).on("n"));
    h.object(report("n", 1, "Restricted", &[("uid-old", "16", &[4, 5])]));
    h.pod(asks("four", 4, 4));
    check(h.run_binds(), "bind default/four -> n");
    h.bound("four", "n");
    h.pod(asks("two", 4, 2));
    check(h.run_binds(), "");
    h
}

#[test]
fn an_agent_that_does_not_see_a_pod_is_taken_for_silent() {
    let mut h = behind(&json!({"waitSeconds": 30}));
    h.sleep(29);
    check(h.run_binds(), "");
    assert!(message(&h, "two").contains("has not seen 1 pod(s) yet"), "{}", message(&h, "two"));
    h.sleep(12);
    check(h.run_binds(), "bind default/two -> n");
    let mut h = behind(&json!({"waitSeconds": 30, "unknownNodes": "Wait"}));
    h.sleep(60);
    check(h.run_binds(), "");
    assert!(message(&h, "two").contains("whose agent is behind"), "{}", message(&h, "two"));
    // It has caught up: what it says counts again.
    let old = ("uid-old", "16", &[4, 5][..]);
    h.object(report("n", 2, "Restricted", &[old, ("uid-four", "0-3", &[0, 1, 2, 3])]));
    h.sleep(20);
    check(h.run_binds(), "bind default/two -> n");
}

#[test]
fn a_pod_that_is_gone_is_waited_for_no_more() {
    let mut h = behind(&json!({"waitSeconds": 30, "unknownNodes": "Wait"}));
    h.gone("four");
    h.sleep(60);
    check(h.run_binds(), "bind default/two -> n");
}

#[test]
fn a_name_that_is_used_again_is_another_node() {
    let mut h = harness(&json!({"waitSeconds": 30}), &[]);
    fresh(&mut h, "n");
    h.sleep(25);
    h.node_gone("n");
    fresh(&mut h, "n");
    h.pod(asks("a", 8, 8));
    h.sleep(10);
    check(h.run_binds(), "");
    h.sleep(40);
    check(h.run_binds(), "bind default/a -> n");
}

#[test]
fn a_pod_that_ends_is_not_missed_from_its_bind() {
    let mut h = harness(&json!({"waitSeconds": 30}), &["n"]);
    h.pod(asks("old", 1, 1).on("n"));
    h.pod(asks("rest", 1, 6).on("n"));
    let rest = ("uid-rest", "17", &[1, 2, 3, 4, 5, 6][..]);
    h.object(report("n", 1, "Restricted", &[("uid-old", "16", &[0]), rest]));
    h.sleep(60);
    h.pod(asks("two", 1, 2));
    check(h.run_binds(), "");
    // Its agent sees `old` end before the API server does: one GPU is free on either side.
    h.object(report("n", 2, "Restricted", &[rest]));
    h.sleep(20);
    check(h.run_binds(), "");
}
