//! Gangs in the queue and in the cycle: complete or not, whole or not at all.

use serde_json::{Value, json};

use super::harness::{Harness, check};
use crate::io::{Change, Input, Kind, Object, ObjectKey, WriteError};
use crate::testing::{NodeExt, PodExt, node, pod, wire};

/// A PodGroup `name` with this spec.
pub(super) fn group(name: &str, spec: &Value) -> Object {
    Object::PodGroup(wire(json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": spec,
    })))
}

/// A member that asks for 2 of a node's 4 CPUs.
pub(super) fn member(name: &str, gang: &str) -> muster_api::k8s::Pod {
    pod(name).req(&[("cpu", "2")]).pod_label("muster.dev/pod-group", gang)
}

/// Two nodes with room for two members each, and a gang `g`.
pub(super) fn two_nodes(spec: &Value) -> Harness {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.node(node("n2"));
    h.object(group("g", spec));
    h
}

fn binds(effects: &[String]) -> Vec<&str> {
    effects.iter().filter(|e| e.starts_with("bind")).map(String::as_str).collect()
}

#[test]
fn a_gang_waits_until_its_minimum_exists_and_is_then_bound_whole() {
    let mut h = two_nodes(&json!({"minMember": 3}));
    h.pod(member("a", "g"));
    check(
        h.run(),
        "group default/g GangIncomplete: 1 of 3 members exist
         Normal default/a GangIncomplete: 1 of 3 members exist
         status default/a false GangIncomplete: 1 of 3 members exist",
    );
    assert_eq!(h.queue_of("a"), "gated");
    h.pod(member("b", "g"));
    // Counts of the same class are said again after a pause only.
    check(h.run(), "");
    h.sleep(5);
    check(
        h.effects(),
        "group default/g GangIncomplete: 2 of 3 members exist
         Normal default/a GangIncomplete: 2 of 3 members exist
         status default/a false GangIncomplete: 2 of 3 members exist
         status default/b false GangIncomplete: 2 of 3 members exist",
    );
    h.pod(member("c", "g"));
    assert_eq!(h.run_binds().len(), 3);
    for (name, node) in where_are(&h) {
        h.bound(&name, &node);
    }
    h.run();
    h.assert_idle();
}

/// Pods with their nodes.
fn where_are(h: &Harness) -> Vec<(String, String)> {
    let view = h.core.cache_view();
    let pods = view.nodes.iter().flat_map(|n| n.pods.iter().map(|p| (p.clone(), n.name.clone())));
    pods.map(|(p, n)| (p.trim_start_matches("default/").to_owned(), n)).collect()
}

#[test]
fn a_gang_without_room_for_all_takes_none_and_says_who_blocks() {
    let mut h = two_nodes(&json!({"minMember": 5}));
    for name in ["a", "b", "c", "d", "e"] {
        h.pod(member(name, "g"));
    }
    let effects = h.run();
    let why = "room for 4 of 5 members; member e: 0/2 nodes are available: 2 Insufficient cpu.";
    assert_eq!(effects[0], format!("group default/g Unschedulable: {why}"));
    assert_eq!(effects[1], format!("Warning default/a FailedScheduling: {why}"));
    assert_eq!(effects.len(), 2 + 5, "a condition each: {effects:?}");
    assert!(effects[2..].iter().all(|e| e.contains("false Unschedulable")), "{effects:?}");
    assert_eq!(h.cache(), ["n1: ", "n2: "]);
    assert_eq!(h.queue_of("c"), "unschedulable");
    // A node that helps wakes it, after its backoff.
    h.node(node("n3"));
    h.sleep(3);
    assert_eq!(h.run_binds().len(), 5);
}

#[test]
fn what_does_not_help_any_member_does_not_wake_the_gang() {
    let mut h = two_nodes(&json!({"minMember": 5}));
    for name in ["a", "b", "c", "d", "e"] {
        h.pod(member(name, "g"));
    }
    h.run();
    h.node(node("small").cpu("1"));
    h.sleep(20);
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn the_group_may_come_after_its_pods() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(member("a", "late"));
    check(
        h.run(),
        "group default/late GangIncomplete: waiting for pod group default/late to exist
         Normal default/a GangIncomplete: waiting for pod group default/late to exist
         status default/a false GangIncomplete: waiting for pod group default/late to exist",
    );
    h.object(group("late", &json!({"minMember": 1})));
    assert_eq!(binds(&h.run()), ["bind default/a -> n1"]);
}

#[test]
fn two_gangs_that_fit_alone_but_not_together_go_one_after_the_other() {
    let mut h = two_nodes(&json!({"minMember": 3}));
    h.object(group("k", &json!({"minMember": 3})));
    for (a, b) in [("a1", "b1"), ("a2", "b2"), ("a3", "b3")] {
        h.pod(member(a, "g"));
        h.pod(member(b, "k"));
        h.run();
    }
    let placed = where_are(&h);
    assert_eq!(placed.len(), 3, "{placed:?}");
    assert!(placed.iter().all(|(name, _)| name.starts_with('a')), "{placed:?}");
    for (name, node) in placed {
        h.bound(&name, &node);
        h.gone(&name);
    }
    h.sleep(3);
    assert_eq!(h.run_binds().len(), 3);
}

#[test]
fn a_gang_that_cannot_run_does_not_block_one_that_can() {
    let mut h = two_nodes(&json!({"minMember": 9}));
    h.object(group("k", &json!({"minMember": 2})));
    for i in 0..9 {
        h.pod(member(&format!("a{i}"), "g"));
    }
    h.pod(member("b1", "k"));
    h.pod(member("b2", "k"));
    assert_eq!(h.run_binds().len(), 2);
}

#[test]
fn priority_then_age_of_the_gang_orders_gangs_and_pods() {
    let mut h = Harness::new();
    let mut old = group("old", &json!({"minMember": 1}));
    let mut young = group("young", &json!({"minMember": 1}));
    for (group, at) in [(&mut old, 1), (&mut young, 2)] {
        if let Object::PodGroup(group) = group {
            group.metadata.creation_timestamp = Some(muster_api::k8s::Time(at));
        }
    }
    h.object(young);
    h.object(old);
    h.node(node("n1").cpu("8"));
    h.pod(member("y", "young"));
    h.pod(member("o", "old"));
    h.pod(member("first", "none").priority(10).edit(|p| p.metadata.labels.clear()));
    check(h.run_binds(), "bind default/first -> n1\nbind default/o -> n1\nbind default/y -> n1");
}

#[test]
fn every_role_has_its_minimum() {
    let roles = json!({"minMember": 3, "roles": [
        {"name": "launcher", "minMember": 1, "selector": {"matchLabels": {"r": "l"}}},
        {"name": "worker", "minMember": 1, "selector": {"matchLabels": {"r": "w"}}},
    ]});
    let mut h = two_nodes(&roles);
    for name in ["w1", "w2", "w3"] {
        h.pod(member(name, "g").pod_label("r", "w"));
    }
    let effects = h.run();
    assert!(effects[0].contains("3 of 3 members exist (role launcher: 0 of 1)"), "{effects:?}");
    h.pod(member("l", "g").pod_label("r", "l"));
    // The launcher and two workers; then the third, alone.
    assert_eq!(h.run_binds().len(), 4);
}

#[test]
fn members_beyond_the_minimum_join_one_by_one_when_the_gang_is_formed() {
    let mut h = two_nodes(&json!({"minMember": 2}));
    for name in ["a", "b", "c", "d", "e"] {
        h.pod(member(name, "g"));
    }
    let effects = h.run();
    assert_eq!(binds(&effects).len(), 4);
    assert_eq!(h.queue_of("e"), "unschedulable");
    let last = effects.last().unwrap();
    assert_eq!(
        last,
        "status default/e false Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. \
         preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    );
}

#[test]
fn completed_members_count_and_lost_ones_are_replaced_at_once() {
    let mut h = two_nodes(&json!({"minMember": 2}));
    h.pod(member("a", "g"));
    h.pod(member("b", "g"));
    h.run();
    for (name, node) in where_are(&h) {
        h.bound(&name, &node);
    }
    // One has succeeded: the watch of live pods no longer shows it, another does.
    let ended = h.last("a").phase("Succeeded");
    h.apply(Input::Ended(Kind::EndedMember, Change::Upsert(Box::new(ended.clone()))));
    h.gone("b");
    h.pod(member("c", "g"));
    assert_eq!(h.run_binds().len(), 1);
    // Tidied away it counts no more.
    let uid = ended.metadata.uid;
    h.gone("c");
    let key = ObjectKey { namespace: "default".into(), name: "a".into(), uid };
    h.apply(Input::Ended(Kind::EndedMember, Change::Delete(key)));
    h.pod(member("d", "g"));
    assert!(h.run_binds().is_empty());
    assert_eq!(h.queue_of("d"), "gated");
}

#[test]
fn a_gated_member_is_left_alone_and_does_not_count() {
    let mut h = two_nodes(&json!({"minMember": 2}));
    h.pod(member("a", "g"));
    h.pod(member("b", "g").gate("wait"));
    let effects = h.run();
    assert!(
        effects[0].contains("1 of 2 members exist; 1 more are held back themselves"),
        "{effects:?}"
    );
    assert!(!effects.iter().any(|e| e.contains("default/b")), "{effects:?}");
    h.edit("b", |p| p.spec.scheduling_gates.clear());
    assert_eq!(h.run_binds().len(), 2);
}

#[test]
fn a_changed_minimum_acts_at_once() {
    let mut h = two_nodes(&json!({"minMember": 5}));
    for name in ["a", "b", "c"] {
        h.pod(member(name, "g"));
    }
    assert!(h.run_binds().is_empty());
    h.object(group("g", &json!({"minMember": 3})));
    assert_eq!(h.run_binds().len(), 3);
}

#[test]
fn members_of_different_schedulers_are_told_so() {
    let profiles = ["muster", "other"].map(crate::Profile::default_named).to_vec();
    let core = crate::Core::new(crate::Config { profiles, ..crate::Config::default() });
    let mut h = two_nodes(&json!({"minMember": 2}));
    h.core = core;
    h.node(node("n1"));
    h.object(group("g", &json!({"minMember": 2})));
    h.pod(member("a", "g"));
    h.pod(member("b", "g").scheduler("other"));
    let effects = h.run();
    let why = "members name different schedulers: default/b asks for other, others for muster";
    assert!(effects.iter().any(|e| e.contains(why)), "{effects:?}");
}

#[test]
fn a_half_bound_gang_comes_first_with_its_bound_members_fixed() {
    // As after a restart: one member is bound, others wait.
    let mut h = two_nodes(&json!({"minMember": 3}));
    h.pod(member("first", "none").priority(100).edit(|p| p.metadata.labels.clear()));
    h.pod(member("a", "g").on("n1"));
    h.pod(member("b", "g"));
    h.pod(member("c", "g"));
    let binds = h.run_binds();
    assert_eq!(binds.len(), 3);
    assert!(binds[2].starts_with("bind default/first"), "{binds:?}");
}

#[test]
fn a_half_bound_gang_is_released_at_its_deadline_unless_it_shall_wait() {
    for (spec, released) in [
        (json!({"minMember": 3, "scheduleTimeoutSeconds": 60}), true),
        (json!({"minMember": 3, "scheduleTimeoutSeconds": 60, "whenHalfBound": "Wait"}), false),
    ] {
        let mut h = two_nodes(&spec);
        h.pod(member("a", "g").on("n1"));
        h.pod(member("b", "g"));
        h.run();
        h.sleep(59);
        assert!(!h.effects().iter().any(|e| e.starts_with("evict")));
        h.sleep(2);
        let evicted = h.effects().iter().any(|e| e == "evict default/a");
        assert_eq!(evicted, released);
    }
}

#[test]
fn a_gang_that_was_whole_is_not_released_when_it_loses_members() {
    let mut h = two_nodes(&json!({"minMember": 2, "scheduleTimeoutSeconds": 60}));
    h.pod(member("a", "g").on("n1"));
    h.pod(member("b", "g").on("n2"));
    h.run();
    h.gone("b");
    h.run();
    h.sleep(100);
    assert!(!h.effects().iter().any(|e| e.starts_with("evict")));
}

#[test]
fn a_bind_that_is_refused_has_its_gang_solved_again_after_a_pause() {
    let mut h = two_nodes(&json!({"minMember": 2}));
    h.pod(member("a", "g"));
    h.pod(member("b", "g"));
    assert_eq!(h.run_binds().len(), 2);
    h.bound("a", &where_are(&h)[0].1.clone());
    h.answer("b", Err(WriteError::Rejected("no".into())));
    assert!(h.run_binds().is_empty(), "it backs off");
    h.sleep(3);
    assert_eq!(h.run_binds().len(), 1);
}
