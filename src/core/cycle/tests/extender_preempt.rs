//! Extenders with a say in who is preempted.

use muster_api::k8s;

use super::extender::{broken, extender, harness, left};
use super::harness::{Harness, check};
use crate::framework::ExtenderSpec;
use crate::io::{Eviction, ExtenderReply};
use crate::testing::{NodeExt, PodExt, node, pod};

fn runs(name: &str, node: &str, priority: i32) -> k8s::Pod {
    pod(name).req(&[("cpu", "1")]).priority(priority).on(node)
}

/// Two full nodes, on each two pods of 1 CPU, and a pod that wants one of their places.
fn full(extenders: impl IntoIterator<Item = ExtenderSpec>) -> Harness {
    let mut h = harness(extenders);
    h.node(node("n1").cpu("2"));
    h.node(node("n2").cpu("2"));
    for (name, node, priority) in
        [("low1", "n1", 1), ("mid1", "n1", 3), ("low2", "n2", 2), ("vip2", "n2", 20)]
    {
        h.pod(runs(name, node, priority));
    }
    h.pod(pod("high").req(&[("cpu", "1")]).priority(10));
    h
}

fn answer(list: &[(&str, &[&str], i64)]) -> ExtenderReply {
    let uid = |name: &&str| format!("uid-{name}").into();
    let list = list.iter().map(|(node, pods, violations)| {
        ((*node).into(), pods.iter().map(uid).collect(), *violations)
    });
    ExtenderReply::Preempted(list.collect())
}

const ASKED: &str = "e preempts n1=low1/0 n2=low2/0 for high";

fn said(what: &str) -> String {
    let fit = format!("0/2 nodes are available: 2 Insufficient cpu. preemption: {what}");
    format!(
        "Warning default/high FailedScheduling: {fit}
         status default/high false Unschedulable: {fit}"
    )
}

fn found(node: &str, victims: usize) -> String {
    said(&format!(
        "found a potential placement for pod on node {node}, preempting {victims} victims"
    ))
}

#[test]
fn an_extender_takes_nodes_away_and_adds_victims() {
    // Alone: the node whose victim is less important.
    let cases: [(&str, ExtenderReply, &str, usize, &[&str]); 4] = [
        ("as asked", answer(&[("n1", &["low1"], 0), ("n2", &["low2"], 0)]), "n1", 1, &["low1"]),
        ("a node less", answer(&[("n2", &["low2"], 0)]), "n2", 1, &["low2"]),
        ("a victim more", answer(&[("n1", &["mid1", "low1"], 0)]), "n1", 2, &["mid1", "low1"]),
        (
            "violations count",
            answer(&[("n1", &["low1"], 1), ("n2", &["low2"], 0)]),
            "n2",
            1,
            &["low2"],
        ),
    ];
    for (case, reply, node, count, victims) in cases {
        let mut h = full([extender("e", "preempt")]);
        check(h.run(), ASKED);
        assert_eq!(h.queue_of("high"), "asking", "{case}");
        let asks: Vec<String> = victims.iter().map(|v| format!("ask default/{v}")).collect();
        check(h.extender("high", reply), &format!("{}\n{}", found(node, count), asks.join("\n")));
        assert_eq!(h.nominated("high"), Some(node), "{case}");
    }
}

#[test]
fn extenders_are_asked_one_after_another_about_what_the_one_before_said() {
    let mut h = full([extender("e", "preempt"), extender("f", "filter"), extender("g", "preempt")]);
    check(h.run(), ASKED);
    let next = h.extender("high", answer(&[("n1", &["low1", "mid1"], 0)]));
    check(next, "g preempts n1=mid1+low1/0 for high");
    let last = h.extender("high", answer(&[("n1", &["mid1"], 0)]));
    check(last, &format!("{}\nask default/mid1", found("n1", 1)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let claims = |uid: &str, node: &str, but: &str| {
        format!("extender: e claims to preempt pod (UID: uid-{uid}) on node: {node}, but {but}")
    };
    let cases = [
        (broken("Post \"e\": down"), "Post \"e\": down".to_owned()),
        (left("n1"), "extender \"e\" answered another question".to_owned()),
        (answer(&[("n1", &[], 0)]), "expected at least one victim pod on node \"n1\"".to_owned()),
        (
            answer(&[("n1", &["ghost"], 0)]),
            claims("ghost", "n1", "the pod is not found on that node"),
        ),
        (
            answer(&[("n1", &["low2"], 0)]),
            claims("low2", "n1", "the pod is not found on that node"),
        ),
        (answer(&[("n2", &["vip2"], 0)]), claims("vip2", "n2", "the pod is not of lower priority")),
        (
            answer(&[("n9", &["low1"], 0)]),
            claims("low1", "n9", "the node is no candidate for preemption"),
        ),
        (answer(&[]), "no candidate node for preemption".to_owned()),
    ];
    for (reply, error) in cases {
        let mut h = full([extender("e", "preempt")]);
        h.run();
        check(h.extender("high", reply), &said(&error));
    }
}

#[test]
fn an_ignorable_extender_that_fails_is_passed_over() {
    for reply in [broken("down"), answer(&[("n9", &["low1"], 0)])] {
        let mut h = full([ExtenderSpec { ignorable: true, ..extender("e", "preempt") }]);
        h.run();
        check(h.extender("high", reply), &format!("{}\nask default/low1", found("n1", 1)));
    }
    // A node without victims is left out.
    let mut h = full([ExtenderSpec { ignorable: true, ..extender("e", "preempt") }]);
    h.run();
    let reply = answer(&[("n1", &[], 0), ("n2", &["low2"], 0)]);
    check(h.extender("high", reply), &format!("{}\nask default/low2", found("n2", 1)));
}

#[test]
fn the_answer_is_held_against_the_world_as_it_is() {
    // The victim left meanwhile: there is room without preemption.
    let mut h = full([extender("e", "preempt")]);
    h.run();
    h.gone("low1");
    check(h.extender("high", answer(&[("n1", &["low1"], 0)])), "bind default/high -> n1");
    // Another took the place: what the extender wants would not do.
    let mut h = full([extender("e", "preempt")]);
    h.run();
    h.gone("low1");
    h.pod(runs("vip1", "n1", 20));
    check(
        h.extender("high", answer(&[("n1", &["low1"], 0)])),
        // What came meanwhile may help: it is asked again, about nodes as they are.
        &format!(
            "{}\ne preempts n2=low2/0 n1=mid1/0 for high",
            said("no candidate node for preemption")
        ),
    );
}

#[test]
fn what_an_extender_refused_for_now_may_be_preempted_what_it_refused_for_good_not() {
    let refused = |failed: &[&str], never: &[&str]| {
        let say = |names: &[&str]| names.iter().map(|n| ((*n).into(), "no".into())).collect();
        ExtenderReply::Filtered { nodes: vec![], failed: say(failed), unresolvable: say(never) }
    };
    // One pod of 1 CPU on each node of 2: the pod fits both, if the extender agrees.
    let half = || {
        let mut h = harness([extender("e", "filter")]);
        for (name, pod) in [("n1", "low1"), ("n2", "low2")] {
            h.node(node(name).cpu("2"));
            h.pod(runs(pod, name, 1));
        }
        h.pod(pod("high").req(&[("cpu", "1")]).priority(10));
        check(h.run(), "e filters n1 n2 for high");
        h
    };
    let text = h_text(half().extender("high", refused(&["n1"], &["n2"])));
    // Nobody has to go for plugins' sake, and preemption knows no other reason: an error, and
    // where nobody could go upstream says nothing but errors.
    let only = "preemption: expected at least one victim pod on node \"n1\"";
    assert!(text.ends_with(only), "{text}");
    let text = h_text(half().extender("high", refused(&[], &["n1", "n2"])));
    assert!(text.contains("2 Preemption is not helpful for scheduling"), "{text}");
}

fn h_text(effects: Vec<String>) -> String {
    effects.into_iter().next().unwrap_or_default()
}

#[test]
fn a_preemption_that_an_extender_agreed_to_is_carried_out_as_ever() {
    let mut h = full([extender("e", "preempt")]);
    h.run();
    h.extender("high", answer(&[("n2", &["low2"], 0)]));
    h.evicted("low2", Eviction::Accepted);
    check(h.effects(), "evict default/low2");
    h.evicted("low2", Eviction::Accepted);
    h.effects();
    h.gone("low2");
    assert_eq!(h.run_binds(), ["bind default/high -> n2"]);
}
