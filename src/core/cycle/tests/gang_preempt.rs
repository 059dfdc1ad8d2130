//! Preemption for gangs: who goes, that room is held, and that no gang is cut.

use serde_json::{Value, json};

use super::gang::group;
use super::harness::{Harness, check};
use crate::io::{Eviction, Object};
use crate::testing::{NodeExt, PodExt, node, pod, wire};

/// A pod on a node, of a gang perhaps, that started so many seconds ago.
fn runs(h: &mut Harness, name: &str, on: &str, gang: &str, priority: i32, seconds: i64) {
    let mut there = pod(name).req(&[("cpu", "2")]).priority(priority).on(on);
    if !gang.is_empty() {
        there = there.pod_label("muster.dev/pod-group", gang);
    }
    there.status.start_time = Some(muster_api::k8s::Time(h.now.0 - seconds * 1_000_000));
    h.pod(there);
}

/// A member of `high` that asks for 2 of a node's 4 CPUs, at priority 10.
fn wants(h: &mut Harness, names: &[&str]) {
    for name in names {
        let own = pod(name).req(&[("cpu", "2")]).priority(10);
        h.pod(own.pod_label("muster.dev/pod-group", "high"));
    }
}

/// Nodes with room for two members each, and the gang `high`.
fn nodes(names: &[&str], spec: &Value) -> Harness {
    let mut h = Harness::new();
    names.iter().for_each(|name| h.node(node(name)));
    h.object(group("high", spec));
    h
}

fn asked(effects: &[String]) -> Vec<&str> {
    let mut asked: Vec<&str> = effects.iter().filter_map(|e| e.strip_prefix("ask ")).collect();
    asked.sort_unstable();
    asked
}

fn evicted(effects: &[String]) -> Vec<&str> {
    let mut asked: Vec<&str> = effects.iter().filter_map(|e| e.strip_prefix("evict ")).collect();
    asked.sort_unstable();
    asked
}

fn budget(name: &str, app: &str, allowed: i32) -> Object {
    Object::PodDisruptionBudget(wire(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    })))
}

#[test]
fn a_gang_pushes_out_who_has_worked_least_and_is_bound_when_they_are_gone() {
    let mut h = nodes(&["n1", "n2"], &json!({"minMember": 2}));
    for (name, on, seconds) in [("a", "n1", 500), ("b", "n1", 20), ("c", "n2", 30), ("d", "n2", 90)]
    {
        runs(&mut h, name, on, "", 0, seconds);
    }
    wants(&mut h, &["x", "y"]);
    let effects = h.run();
    assert_eq!(asked(&effects), ["default/b", "default/c"]);
    assert!(effects[0].ends_with("preempting 2 pods: default/b, default/c"), "{}", effects[0]);
    let mut held: Vec<&str> = ["x", "y"].iter().filter_map(|m| h.nominated(m)).collect();
    held.sort_unstable();
    assert_eq!(held, ["n1", "n2"]);
    h.evicted("b", Eviction::Accepted);
    assert!(evicted(&h.effects()).is_empty(), "nobody goes before all were asked");
    h.evicted("c", Eviction::Accepted);
    assert_eq!(evicted(&h.effects()), ["default/b", "default/c"]);
    h.evicted("b", Eviction::Accepted);
    h.evicted("c", Eviction::Accepted);
    h.sleep(20);
    assert!(asked(&h.run()).is_empty(), "no second plan while victims leave");
    // Somebody else leaves the room alone.
    h.pod(pod("late").req(&[("cpu", "2")]).priority(5));
    h.gone("b");
    h.sleep(20);
    assert!(h.run_binds().is_empty());
    h.gone("c");
    let mut binds = h.run_binds();
    binds.sort_unstable();
    assert_eq!(binds.len(), 2, "{binds:?}");
    assert!(binds.iter().all(|b| !b.contains("late")), "{binds:?}");
}

#[test]
fn a_gang_loses_what_it_has_to_spare_before_it_is_taken_whole() {
    let mut h = nodes(&["n1", "n2"], &json!({"minMember": 1}));
    h.object(group("low", &json!({"minMember": 3})));
    for (name, on) in [("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")] {
        runs(&mut h, name, on, "low", 0, 60);
    }
    wants(&mut h, &["x"]);
    assert_eq!(asked(&h.run()).len(), 1);

    let mut h = nodes(&["n1", "n2"], &json!({"minMember": 2}));
    h.object(group("low", &json!({"minMember": 3})));
    for (name, on) in [("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")] {
        runs(&mut h, name, on, "low", 0, 60);
    }
    wants(&mut h, &["x", "y"]);
    let effects = h.run();
    assert_eq!(asked(&effects).len(), 4, "{effects:?}");
    assert!(effects[0].ends_with("preempting 4 pods: pod group default/low (4)"), "{}", effects[0]);
}

#[test]
fn a_gang_that_cannot_go_whole_stays_whole() {
    let mut h = nodes(&["n1"], &json!({"minMember": 1}));
    h.node(node("n2"));
    h.object(group("low", &json!({"minMember": 2})));
    runs(&mut h, "a", "n1", "low", 0, 1);
    runs(&mut h, "b", "n2", "low", 50, 1);
    runs(&mut h, "c", "n1", "", 0, 9_000);
    runs(&mut h, "e", "n2", "", 50, 1);
    wants(&mut h, &["x"]);
    assert_eq!(asked(&h.run()), ["default/c"]);
}

#[test]
fn a_pod_takes_the_gang_of_its_victim_whole_or_goes_elsewhere() {
    // (priority of the gang's other member, who goes)
    for (other, expect) in [(0, &["default/a", "default/b"][..]), (10, &[])] {
        let mut h = Harness::new();
        h.node(node("n1").cpu("2").label("here", "1"));
        h.node(node("n2").cpu("2"));
        h.object(group("low", &json!({"minMember": 2})));
        runs(&mut h, "a", "n1", "low", 0, 60);
        runs(&mut h, "b", "n2", "low", other, 60);
        h.pod(pod("x").req(&[("cpu", "2")]).priority(10).node_selector("here", "1"));
        let effects = h.run();
        assert_eq!(asked(&effects), expect, "{effects:?}");
        // A pod that is in no gang is taken first.
        let mut h = Harness::new();
        h.node(node("n1").cpu("2"));
        h.node(node("n2").cpu("2"));
        h.node(node("n3").cpu("2"));
        h.object(group("low", &json!({"minMember": 2})));
        runs(&mut h, "a", "n1", "low", 0, 60);
        runs(&mut h, "b", "n2", "low", other, 60);
        runs(&mut h, "c", "n3", "", 0, 60);
        h.pod(pod("x").req(&[("cpu", "2")]).priority(10));
        assert_eq!(asked(&h.run()), ["default/c"]);
    }
}

#[test]
fn a_member_that_its_gang_can_spare_stays_if_another_gang_goes_whole() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("6").label("here", "1"));
    h.node(node("n2").cpu("2"));
    h.object(group("whole", &json!({"minMember": 2})));
    h.object(group("spare", &json!({"minMember": 1})));
    // Of three there is room for one beside x: b is the most important, so a and s would go;
    // with a its gang does, and then s is in nobody's way.
    runs(&mut h, "a", "n1", "whole", 0, 60);
    runs(&mut h, "b", "n1", "whole", 5, 60);
    runs(&mut h, "s", "n1", "spare", 0, 60);
    runs(&mut h, "t", "n2", "spare", 0, 60);
    h.pod(pod("x").req(&[("cpu", "4")]).priority(10).node_selector("here", "1"));
    let effects = h.run();
    let mut asked = asked(&effects);
    asked.sort_unstable();
    assert_eq!(asked, ["default/a", "default/b"]);
}

#[test]
fn a_gang_keeps_budgets_and_says_so() {
    let mut h = nodes(&["n1", "n2"], &json!({"minMember": 2}));
    h.object(budget("web", "web", 1));
    for (name, on) in [("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n2")] {
        let there = pod(name).req(&[("cpu", "2")]).priority(0).on(on).pod_label("app", "web");
        h.pod(there);
    }
    wants(&mut h, &["x", "y"]);
    let effects = h.run();
    assert!(asked(&effects).is_empty(), "{effects:?}");
    assert!(effects[0].contains("preemption: not enough room even without"), "{}", effects[0]);
    h.object(budget("web", "web", 2));
    h.sleep(3);
    let effects = h.run();
    assert_eq!(asked(&effects).len(), 2, "{effects:?}");
    // The server knows better: nobody goes, and others are looked for.
    let (one, two) = (asked(&effects)[0].to_owned(), asked(&effects)[1].to_owned());
    h.evicted(one.trim_start_matches("default/"), Eviction::Accepted);
    h.evicted(two.trim_start_matches("default/"), Eviction::Refused("no".into()));
    let effects = h.run();
    assert!(evicted(&effects).is_empty(), "{effects:?}");
    let next: Vec<String> = asked(&effects).into_iter().map(str::to_owned).collect();
    assert_eq!(next.len(), 2, "{effects:?}");
    assert!(!next.contains(&two), "{next:?}");
}

#[test]
fn after_a_refusal_only_the_rest_is_planned_again() {
    let mut h = nodes(&["n1", "n2", "n3"], &json!({"minMember": 2}));
    for (name, on, seconds) in [("a", "n1", 1), ("b", "n2", 2), ("c", "n3", 3)] {
        let mut there = pod(name).req(&[("cpu", "4")]).priority(0).on(on);
        there.status.start_time = Some(muster_api::k8s::Time(h.now.0 - seconds * 1_000_000));
        h.pod(there);
    }
    for name in ["x", "y"] {
        let own = pod(name).req(&[("cpu", "4")]).priority(10);
        h.pod(own.pod_label("muster.dev/pod-group", "high"));
    }
    assert_eq!(asked(&h.run()), ["default/a", "default/b"]);
    h.evicted("a", Eviction::Accepted);
    h.evicted("b", Eviction::Accepted);
    assert_eq!(evicted(&h.effects()), ["default/a", "default/b"]);
    h.evicted("a", Eviction::Accepted);
    h.evicted("b", Eviction::Refused("no".into()));
    let effects = h.run();
    assert!(asked(&effects).is_empty(), "one leaves: {effects:?}");
    h.gone("a");
    assert_eq!(asked(&h.run()), ["default/c"]);
}

#[test]
fn a_gang_plans_anew_only_when_its_last_plan_is_answered() {
    let mut h = nodes(&["n1"], &json!({"minMember": 2}));
    for name in ["a", "b"] {
        runs(&mut h, name, "n1", "", 0, 60);
    }
    wants(&mut h, &["x", "y"]);
    assert_eq!(asked(&h.run()), ["default/a", "default/b"]);
    // A member less, and the plan is given up; the gang is whole again before the answers.
    let lost = if h.nominated("x").is_some() { "y" } else { "x" };
    h.gone(lost);
    h.run();
    wants(&mut h, &["z"]);
    let effects = h.run();
    assert!(asked(&effects).is_empty(), "{effects:?}");
    h.evicted("a", Eviction::Unavailable("lost".into()));
    assert!(asked(&h.run()).is_empty(), "one answer is missing");
    h.evicted("b", Eviction::Accepted);
    let effects = h.run();
    assert!(evicted(&effects).is_empty(), "that was said of another plan: {effects:?}");
    assert_eq!(asked(&effects), ["default/a", "default/b"]);
}

#[test]
fn what_the_gang_requires_holds_in_the_plan() {
    let mut h = Harness::new();
    for (name, rack) in [("n1", "r1"), ("n2", "r2"), ("n3", "r2")] {
        h.node(node(name).label("rack", rack).cpu("2"));
    }
    let spec = json!({"minMember": 2, "topology": {"required": "rack"}});
    h.object(Object::ClusterTopology(wire(json!({
        "metadata": {"name": "t"}, "spec": {"levels": [{"name": "rack", "nodeLabel": "rack"}]},
    }))));
    h.object(group("high", &spec));
    // Cheap pods in different racks, dear ones in one.
    runs(&mut h, "a", "n1", "", 0, 1);
    runs(&mut h, "b", "n2", "", 0, 1);
    runs(&mut h, "c", "n3", "", 0, 900);
    wants(&mut h, &["x", "y"]);
    assert_eq!(asked(&h.run()), ["default/b", "default/c"]);
    for victim in ["b", "c"] {
        h.evicted(victim, Eviction::Accepted);
    }
    h.effects();
    for victim in ["b", "c"] {
        h.evicted(victim, Eviction::Accepted);
        h.gone(victim);
    }
    assert_eq!(h.run_binds().len(), 2);
}

#[test]
fn nobody_goes_for_a_gang_that_never_preempts_or_is_no_more_important() {
    let mut h = nodes(&["n1"], &json!({"minMember": 1}));
    runs(&mut h, "a", "n1", "", 10, 1);
    runs(&mut h, "b", "n1", "", 0, 1);
    let mut own =
        pod("x").req(&[("cpu", "2")]).priority(10).pod_label("muster.dev/pod-group", "high");
    own.spec.preemption_policy = Some("Never".into());
    h.pod(own);
    let effects = h.run();
    assert!(asked(&effects).is_empty());
    assert!(effects[0].ends_with("preemption: not eligible due to preemptionPolicy=Never"));
    let mut h = nodes(&["n1"], &json!({"minMember": 1}));
    runs(&mut h, "a", "n1", "", 10, 1);
    runs(&mut h, "b", "n1", "", 20, 1);
    wants(&mut h, &["x"]);
    let effects = h.run();
    assert!(asked(&effects).is_empty());
    assert!(effects[0].ends_with("1 Insufficient cpu."), "{}", effects[0]);
}

#[test]
fn work_counts_from_the_last_checkpoint() {
    let mut h = nodes(&["n1"], &json!({"minMember": 1}));
    runs(&mut h, "a", "n1", "", 0, 9_000);
    h.edit("a", |p| {
        let saved = muster_api::k8s::Time(Harness::new().now.0 - 5_000_000).to_string();
        p.metadata.annotations.insert("muster.dev/last-checkpoint".into(), saved);
    });
    runs(&mut h, "b", "n1", "", 0, 60);
    wants(&mut h, &["x"]);
    assert_eq!(asked(&h.run()), ["default/a"]);
}

#[test]
fn victims_that_do_not_leave_are_not_waited_for_for_ever() {
    let mut h = nodes(&["n1"], &json!({"minMember": 1}));
    runs(&mut h, "a", "n1", "", 0, 1);
    runs(&mut h, "b", "n1", "", 0, 60);
    wants(&mut h, &["x"]);
    assert_eq!(asked(&h.run()), ["default/a"]);
    h.evicted("a", Eviction::Accepted);
    h.effects();
    h.evicted("a", Eviction::Accepted);
    h.edit("a", |p| p.metadata.deletion_timestamp = Some(muster_api::k8s::Time(1)));
    h.sleep(300);
    assert!(asked(&h.run()).is_empty());
    h.sleep(320);
    assert_eq!(asked(&h.run()), ["default/b"]);
    check(h.effects(), "");
}
