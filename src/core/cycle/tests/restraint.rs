//! Against storms: what policies and priority classes keep from being pushed out, and when.

use muster_api::k8s;
use serde_json::{Value, json};

use super::gang::group;
use super::harness::Harness;
use super::policy::policy;
use crate::io::{Eviction, Input, Kind, Object, ObjectKey};
use crate::testing::{NodeExt, PodExt, node, pod, wire};

/// A pod of 2 CPUs on a node that started so many seconds ago.
fn runs(h: &mut Harness, name: &str, on: &str, priority: i32, seconds: i64) {
    let mut there = pod(name).req(&[("cpu", "2")]).priority(priority).on(on);
    there.status.start_time = Some(k8s::Time(h.now.0 - seconds * 1_000_000));
    h.pod(there);
}

fn wants(name: &str, priority: i32) -> k8s::Pod {
    pod(name).req(&[("cpu", "2")]).priority(priority)
}

/// Nodes for one pod of 2 CPUs each, and one such pod on each, that has run for an hour.
fn full(nodes: u32) -> Harness {
    let mut h = Harness::new();
    for i in 0..nodes {
        h.node(node(&format!("n{i}")).cpu("2"));
        runs(&mut h, &format!("v{i}"), &format!("n{i}"), 0, 3600);
    }
    h
}

fn says(preemption: &Value) -> Object {
    policy("p", &json!({"priority": 1, "preemption": preemption}))
}

fn asked(effects: &[String]) -> Vec<&str> {
    effects.iter().filter_map(|e| e.strip_prefix("ask default/")).collect()
}

/// The last condition among the effects.
fn condition(effects: &[String]) -> &str {
    effects.iter().rfind(|e| e.starts_with("status")).map_or("", String::as_str)
}

/// Those asked about go, one after the other, and their nodes are free.
fn go(h: &mut Harness, effects: &[String]) {
    for victim in asked(effects) {
        h.evicted(victim, Eviction::Accepted);
    }
    h.effects();
    for victim in asked(effects) {
        h.evicted(victim, Eviction::Accepted);
        h.gone(victim);
    }
}

/// Attempts while so many seconds pass: all effects.
fn over(h: &mut Harness, seconds: i64) -> Vec<String> {
    let mut all = h.run();
    for _ in 0..seconds {
        h.sleep(1);
        all.extend(h.run());
    }
    all
}

#[test]
fn no_more_go_in_a_minute_than_the_preemptors_policy_allows_and_the_first_in_order_goes_first() {
    let mut h = full(6);
    h.object(says(&json!({"victimsPerMinute": 2})));
    for (name, priority) in [("a", 10), ("b", 10), ("c", 30), ("d", 20)] {
        h.pod(wants(name, priority));
    }
    let effects = h.run();
    assert_eq!(asked(&effects).len(), 2, "a minute's worth at once: {effects:?}");
    let nominated = |h: &Harness| {
        let all = ["a", "b", "c", "d"].into_iter();
        all.filter(|name| h.nominated(name).is_some_and(|n| !n.is_empty())).collect::<String>()
    };
    assert_eq!(nominated(&h), "cd");
    let text = condition(&effects);
    assert!(
        text.contains("waits its turn: SchedulingPolicy p allows 2 evictions a minute"),
        "{text}"
    );
    go(&mut h, &effects);
    let effects = over(&mut h, 28);
    assert!(asked(&effects).is_empty(), "{effects:?}");
    let effects = over(&mut h, 4);
    assert_eq!(asked(&effects).len(), 1, "one in thirty seconds");
    assert_eq!(nominated(&h), "acd", "the older first");
    // Another rate holds at once.
    h.object(says(&json!({"victimsPerMinute": 600})));
    let effects = over(&mut h, 12);
    assert_eq!(asked(&effects).len(), 1);
    assert_eq!(nominated(&h), "abcd");
}

#[test]
fn evictions_that_do_not_come_about_are_not_counted() {
    let mut h = full(1);
    h.object(says(&json!({"victimsPerMinute": 1})));
    h.pod(wants("a", 10));
    let effects = h.run();
    assert_eq!(asked(&effects), ["v0"]);
    h.evicted("v0", Eviction::Refused("budget".into()));
    // It is left alone for half a minute, and then asked about although a minute allows one.
    let effects = over(&mut h, 40);
    assert_eq!(asked(&effects), ["v0"]);
}

#[test]
fn a_gang_is_charged_whole_and_the_next_waits_the_longer() {
    let mut h = full(5);
    h.object(says(&json!({"victimsPerMinute": 2})));
    h.object(group("high", &json!({"minMember": 4})));
    for name in ["a", "b", "c", "d"] {
        h.pod(wants(name, 10).pod_label("muster.dev/pod-group", "high"));
    }
    let effects = h.run();
    assert_eq!(asked(&effects).len(), 4, "{effects:?}");
    go(&mut h, &effects);
    h.pod(wants("late", 10));
    let effects = over(&mut h, 88);
    assert!(asked(&effects).is_empty(), "two too many, and one for itself: {effects:?}");
    let effects = over(&mut h, 4);
    assert_eq!(asked(&effects).len(), 1);
}

#[test]
fn nobody_goes_before_an_autoscaler_had_its_time() {
    let mut h = full(1);
    h.object(says(&json!({"delaySeconds": 60})));
    h.pod(wants("a", 10));
    let effects = over(&mut h, 58);
    assert!(asked(&effects).is_empty());
    let text = condition(&effects);
    assert!(text.ends_with("preemption: nobody goes in its first 60s (delaySeconds)"), "{text}");
    let effects = over(&mut h, 4);
    assert_eq!(asked(&effects), ["v0"]);
    // The same for a gang; and room that comes meanwhile is taken.
    let mut h = full(1);
    h.object(says(&json!({"delaySeconds": 60})));
    h.object(group("high", &json!({"minMember": 1})));
    h.pod(wants("a", 10).pod_label("muster.dev/pod-group", "high"));
    assert!(asked(&over(&mut h, 30)).is_empty());
    h.node(node("new").cpu("2"));
    let effects = over(&mut h, 12);
    assert_eq!(effects.iter().filter(|e| e.starts_with("bind")).count(), 1, "{effects:?}");
}

#[test]
fn who_is_protected_by_its_own_policy_stays_until_that_ends() {
    // (what the policy says, how old the victim is, when it may go, what is said meanwhile)
    for (spec, age, until, words) in [
        (json!({"minRuntimeSeconds": 100}), 50, Some(50), "minRuntimeSeconds"),
        (json!({"minRuntimeSeconds": 100}), 100, Some(0), ""),
        (json!({"minPriorityGap": 10}), 50, Some(0), ""),
        (json!({"minPriorityGap": 11}), 50, None, "minPriorityGap"),
    ] {
        for of_gang in [false, true] {
            let mut h = Harness::new();
            h.node(node("n").cpu("2"));
            runs(&mut h, "v", "n", 0, age);
            h.object(says(&spec));
            h.object(group("high", &json!({"minMember": 1})));
            let label = if of_gang { "muster.dev/pod-group" } else { "app" };
            h.pod(wants("a", 10).pod_label(label, "high"));
            let effects = over(&mut h, until.unwrap_or(400) - 2);
            let early = until != Some(0);
            assert!(asked(&effects).is_empty() || !early, "{spec} {of_gang}: {effects:?}");
            let said = effects.iter().any(|e| e.contains(words));
            assert!(said, "{spec} {of_gang}: {effects:?}");
            let later = over(&mut h, 36);
            let all = [effects, later].concat();
            assert_eq!(asked(&all).len(), usize::from(until.is_some()), "{spec} {of_gang}");
        }
    }
}

#[test]
fn a_gang_of_which_one_is_protected_stays_whole() {
    for of_gang in [false, true] {
        let mut h = Harness::new();
        h.node(node("n").cpu("2"));
        h.node(node("m").cpu("2"));
        h.object(group("low", &json!({"minMember": 2})));
        for (name, on, seconds) in [("v", "n", 3600), ("w", "m", 10)] {
            runs(&mut h, name, on, 0, seconds);
            h.edit(name, |p| {
                p.metadata.labels.insert("muster.dev/pod-group".into(), "low".into());
            });
        }
        h.object(says(&json!({"minRuntimeSeconds": 100})));
        h.object(group("high", &json!({"minMember": 1})));
        let label = if of_gang { "muster.dev/pod-group" } else { "app" };
        h.pod(wants("a", 10).pod_label(label, "high"));
        let effects = over(&mut h, 80);
        assert!(asked(&effects).is_empty(), "{of_gang}: {effects:?}");
        let mut later = over(&mut h, 45);
        later.retain(|e| e.starts_with("ask"));
        assert_eq!(later.len(), 2, "{of_gang}: {later:?}");
    }
}

#[test]
fn a_policy_that_protects_ends_with_its_deletion_and_is_the_victims_own() {
    let mut h = full(1);
    let spec = json!({
        "priority": 1, "podSelector": {"matchLabels": {"app": "safe"}},
        "preemption": {"minPriorityGap": 100},
    });
    h.object(policy("p", &spec));
    h.edit("v0", |p| drop(p.metadata.labels.insert("app".into(), "safe".into())));
    h.pod(wants("a", 10));
    assert!(asked(&over(&mut h, 30)).is_empty());
    let key = ObjectKey { name: "p".into(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::SchedulingPolicy, key));
    assert_eq!(asked(&over(&mut h, 12)), ["v0"]);
}

#[test]
fn what_priority_classes_tolerate_is_honoured() {
    let class = |minimum: &str, seconds: &str| {
        let prefix = "preemption-toleration.scheduling.x-k8s.io";
        Object::PriorityClass(wire(json!({
            "metadata": {"name": "calm", "annotations": {
                format!("{prefix}/minimum-preemptable-priority"): minimum,
                format!("{prefix}/toleration-seconds"): seconds,
            }},
            "value": 0,
        })))
    };
    // (minimum priority, seconds, when one of priority 10 pushes out one that has run for 50)
    for (minimum, seconds, until) in [
        ("11", "100", Some(50)),
        ("11", "40", Some(0)),
        ("10", "100", Some(0)),
        ("11", "-1", None),
        ("11", "soon", Some(0)),
        ("eleven", "-1", Some(0)),
    ] {
        let mut h = Harness::new();
        h.object(class(minimum, seconds));
        h.node(node("n").cpu("2"));
        let mut there = pod("v").req(&[("cpu", "2")]).priority(0).on("n");
        there.spec.priority_class_name = "calm".into();
        there.status.start_time = Some(k8s::Time(h.now.0 - 50_000_000));
        h.pod(there);
        h.pod(wants("a", 10));
        let before = over(&mut h, until.unwrap_or(400) - 2);
        assert!(asked(&before).is_empty() || until == Some(0), "{minimum} {seconds}");
        let all = [before, over(&mut h, 36)].concat();
        assert_eq!(asked(&all).len(), usize::from(until.is_some()), "{minimum} {seconds}");
    }
}

#[test]
fn who_was_evicted_twice_within_the_window_stays_whatever_its_name() {
    let mut h = Harness::new();
    h.object(says(&json!({"repeatWindowSeconds": 300})));
    h.node(node("n").cpu("2"));
    let of_set = |h: &Harness, name: &str| {
        let mut there = pod(name).req(&[("cpu", "2")]).priority(0).on("n");
        there.metadata.owner_references = vec![k8s::OwnerReference {
            uid: "set".into(),
            controller: true,
            ..k8s::OwnerReference::default()
        }];
        there.status.start_time = Some(k8s::Time(h.now.0));
        there
    };
    for (round, name) in ["v0", "v1"].into_iter().enumerate() {
        let there = of_set(&h, name);
        h.pod(there);
        h.pod(wants(&format!("a{round}"), 10));
        let effects = over(&mut h, 2);
        assert_eq!(asked(&effects), [name]);
        go(&mut h, &effects);
        h.gone(&format!("a{round}"));
        h.sleep(20);
    }
    let there = of_set(&h, "v2");
    h.pod(there);
    h.pod(wants("a2", 10));
    let effects = over(&mut h, 200);
    assert!(asked(&effects).is_empty(), "{effects:?}");
    assert!(condition(&effects).contains("(repeatWindowSeconds)"), "{}", condition(&effects));
    assert_eq!(asked(&over(&mut h, 120)), ["v2"], "for as long again, and no longer");
}

#[test]
fn a_plan_that_failed_is_followed_by_a_growing_pause() {
    let mut h = full(1);
    h.object(says(&json!({"maxPauseSeconds": 100})));
    h.node(node("n1").cpu("2"));
    runs(&mut h, "w", "n1", 0, 3600);
    h.pod(wants("a", 10));
    let effects = h.run();
    let first = asked(&effects)[0].to_owned();
    h.evicted(&first, Eviction::Failed("no".into()));
    let effects = h.run();
    assert!(asked(&effects).is_empty(), "{effects:?}");
    assert!(condition(&effects).contains("maxPauseSeconds"), "{}", condition(&effects));
    let effects = over(&mut h, 12);
    assert_eq!(asked(&effects).len(), 1, "a second, and what the queue adds: {effects:?}");
}

#[test]
fn what_is_simulated_is_said_and_nobody_goes() {
    for of_gang in [false, true] {
        let mut h = full(2);
        h.object(says(&json!({"mode": "Simulate"})));
        h.object(group("high", &json!({"minMember": 2})));
        let label = if of_gang { "muster.dev/pod-group" } else { "app" };
        for name in ["a", "b"] {
            h.pod(wants(name, 10).pod_label(label, "high"));
        }
        let effects = over(&mut h, 30);
        assert!(effects.iter().all(|e| !e.starts_with("ask") && !e.starts_with("evict")));
        let said = effects.iter().any(|e| e.contains("(Simulate): default/v"));
        assert!(said, "{effects:?}");
        assert!(h.nominated("a").is_none_or(str::is_empty));
        h.object(says(&json!({"mode": "Never"})));
        assert!(asked(&over(&mut h, 30)).is_empty());
        h.object(says(&json!({"mode": "Enabled"})));
        assert_eq!(asked(&over(&mut h, 30)).len(), 2);
    }
}

#[test]
fn a_priority_that_its_policy_names_may_break_budgets() {
    for (above, how) in [(9, "delete default/v0"), (10, "")] {
        let mut h = full(1);
        h.edit("v0", |p| drop(p.metadata.labels.insert("app".into(), "web".into())));
        h.object(Object::PodDisruptionBudget(wire(json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0},
        }))));
        h.object(says(&json!({"forceAbovePriority": above})));
        h.pod(wants("a", 10));
        let effects = over(&mut h, 5);
        let gone: Vec<&String> = effects.iter().filter(|e| e.starts_with("delete")).collect();
        assert_eq!(gone.first().map_or("", |e| e.as_str()), how, "{effects:?}");
    }
}

#[test]
fn a_zone_that_fares_badly_loses_nobody_to_us_or_one_after_the_other() {
    let zone = |i: u32| node(&format!("n{i}")).cpu("2").label("topology.kubernetes.io/zone", "z");
    let down = |i: u32| {
        let mut node = zone(i);
        node.spec.taints = vec![k8s::Taint {
            key: "node.kubernetes.io/unreachable".into(),
            effect: "NoSchedule".into(),
            ..k8s::Taint::default()
        }];
        node
    };
    // (nodes, of which so many are down, evictions within 90 seconds and within 250)
    for (nodes, lost, soon, late) in [(6, 3, 2, 2), (6, 4, 0, 0), (60, 40, 1, 2)] {
        let mut h = Harness::new();
        for i in 0..nodes {
            h.node(if i < lost { down(i) } else { zone(i) });
            runs(&mut h, &format!("v{i}"), &format!("n{i}"), 0, 3600);
        }
        h.object(says(&json!({"unhealthyZonePercent": 55})));
        h.pod(wants("a", 10));
        h.pod(wants("b", 10));
        let mut count = 0;
        for (seconds, expect) in [(90, soon), (160, late)] {
            for _ in 0..seconds {
                let effects = over(&mut h, 1);
                count += asked(&effects).len();
                go(&mut h, &effects);
            }
            assert_eq!(count, expect, "{nodes} nodes, {lost} down");
        }
        // Nodes come back, and so do evictions.
        (0..lost).for_each(|i| h.node(zone(i)));
        for _ in 0..60 {
            let effects = over(&mut h, 1);
            count += asked(&effects).len();
            go(&mut h, &effects);
        }
        assert_eq!(count, 2, "{nodes} nodes, {lost} down before");
    }
}
