//! Room that gangs keep: by accumulation, and after being passed over for too long.

use serde_json::json;

use super::gang::{group, member, two_nodes};
use super::harness::Harness;
use crate::testing::{NodeExt, PodExt, node, pod};

fn accumulating(min: i32) -> serde_json::Value {
    json!({"minMember": min, "reservation": "Accumulate", "scheduleTimeoutSeconds": 60})
}

/// Pods on nodes.
fn placed(h: &Harness) -> usize {
    h.core.cache_view().nodes.iter().map(|n| n.pods.len()).sum()
}

fn said(effects: &[String], what: &str) -> bool {
    effects.iter().any(|e| e.contains(what))
}

#[test]
fn an_accumulating_gang_keeps_what_it_found_and_is_bound_when_the_rest_is_there() {
    let mut h = two_nodes(&accumulating(5));
    for name in ["a", "b", "c", "d", "e"] {
        h.pod(member(name, "g"));
    }
    let effects = h.run();
    assert!(said(&effects, "group default/g Accumulating: room for 4 of 5 members; member e"));
    assert!(!said(&effects, "bind"));
    assert_eq!(placed(&h), 4);
    // Others find no room while it is kept.
    h.pod(pod("small").req(&[("cpu", "1")]));
    h.run();
    assert_eq!(h.queue_of("small"), "unschedulable");
    h.node(node("n3").cpu("2"));
    h.sleep(3);
    let effects = h.run();
    assert_eq!(effects.iter().filter(|e| e.starts_with("bind")).count(), 5, "{effects:?}");
}

#[test]
fn what_was_accumulated_is_given_back_at_the_deadline() {
    let mut h = two_nodes(&accumulating(5));
    for name in ["a", "b", "c", "d", "e"] {
        h.pod(member(name, "g"));
    }
    h.run();
    h.sleep(59);
    assert_eq!(placed(&h), 4);
    h.sleep(1);
    assert_eq!(placed(&h), 0);
    let effects = h.effects();
    let says = "group default/g ScheduleTimeout: rejected due to timeout after waiting 60s";
    assert!(said(&effects, says), "{effects:?}");
}

#[test]
fn only_the_first_gang_in_order_accumulates() {
    let mut h = two_nodes(&accumulating(5));
    h.object(group("k", &accumulating(6)));
    for i in 0..6 {
        if i < 5 {
            h.pod(member(&format!("a{i}"), "g"));
        }
        h.pod(member(&format!("b{i}"), "k").priority(10));
    }
    h.run();
    let on = h.cache().join(" ");
    assert!(on.contains("default/b") && !on.contains("default/a"), "{on}");
    assert_eq!(placed(&h), 4);
}

#[test]
fn an_accumulating_gang_makes_way_for_one_that_comes_before_it() {
    let mut h = two_nodes(&accumulating(5));
    for i in 0..5 {
        h.pod(member(&format!("a{i}"), "g"));
    }
    h.run();
    assert!(h.cache().join(" ").contains("default/a"));
    // Room for one more is there, so that the second has something to keep.
    h.node(node("n3").cpu("2").label("only", "k"));
    h.object(group("k", &accumulating(6)));
    for i in 0..6 {
        h.pod(member(&format!("b{i}"), "k").priority(10).node_selector("only", "k"));
    }
    h.run();
    let on = h.cache().join(" ");
    assert!(on.contains("default/b") && !on.contains("default/a"), "{on}");
}

#[test]
fn an_accumulating_gang_that_loses_a_member_gives_back_what_it_had() {
    let mut h = two_nodes(&accumulating(5));
    for name in ["a", "b", "c", "d", "e"] {
        h.pod(member(name, "g"));
    }
    h.run();
    h.gone("e");
    h.run();
    assert_eq!((placed(&h), h.queue_of("a")), (0, "gated"));
}

/// A gang of two whole nodes on a cluster of two, with small pods everywhere.
fn starving() -> Harness {
    let mut h = two_nodes(&json!({"minMember": 2, "starvationSeconds": 30}));
    for i in 0..8 {
        h.pod(pod(&format!("small{i}")).req(&[("cpu", "1")]).on(if i < 4 { "n1" } else { "n2" }));
    }
    for name in ["a", "b"] {
        h.pod(member(name, "g").req(&[("cpu", "2")]));
    }
    h.run();
    h
}

#[test]
fn a_gang_that_was_passed_over_for_too_long_has_room_kept_for_it() {
    let mut h = starving();
    h.gone("small0");
    h.pod(pod("next").req(&[("cpu", "1")]));
    assert_eq!(h.run_binds(), ["bind default/next -> n1"]);
    h.bound("next", "n1");
    h.sleep(31);
    let effects = h.run();
    assert!(said(&effects, "(room is kept for it on 2 nodes)"), "{effects:?}");
    assert_eq!((h.nominated("a"), h.nominated("b")), (Some("n1"), Some("n2")));
    // Small pods of the same priority leave it alone from now on ...
    h.gone("small1");
    h.pod(pod("late").req(&[("cpu", "1")]));
    assert!(h.run_binds().is_empty());
    // ... more important ones do not, nor do those that will have ended.
    h.pod(pod("vip").req(&[("cpu", "1")]).priority(10));
    assert_eq!(h.run_binds(), ["bind default/vip -> n1"]);
    h.bound("vip", "n1");
    h.gone("vip");
    let short = pod("short").req(&[("cpu", "1")]);
    h.pod(short.edit(|p| p.spec.active_deadline_seconds = Some(300)));
    assert_eq!(h.run_binds(), ["bind default/short -> n1"]);
    h.bound("short", "n1");
    // When all have ended the gang goes first.
    for name in ["short", "next", "small2", "small3", "small4", "small5", "small6", "small7"] {
        h.gone(name);
    }
    h.sleep(11);
    let binds = h.run_binds();
    assert_eq!(binds[..2], ["bind default/a -> n1", "bind default/b -> n2"]);
}

#[test]
fn room_is_kept_for_a_while_only() {
    let mut h = starving();
    h.sleep(31);
    h.run();
    assert_eq!(h.nominated("a"), Some("n1"));
    h.gone("small1");
    h.pod(pod("late").req(&[("cpu", "1")]));
    assert!(h.run_binds().is_empty());
    h.sleep(601);
    assert_eq!(h.run_binds(), ["bind default/late -> n1"]);
    assert_eq!(h.nominated("a"), Some(""));
}
