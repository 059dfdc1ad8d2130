//! Cycles that ask extenders: order, interest, words, weights, and what changes while
//! they wait.

use std::sync::Arc;

use muster_api::k8s;

use super::harness::{Harness, check};
use crate::framework::{ExtenderId, ExtenderSpec, Profile};
use crate::io::{ExtenderReply, Reply};
use crate::testing::{NodeExt, PodExt, SCHEDULER, node, pod};

/// An extender with these verbs.
pub(super) fn extender(name: &str, verbs: &str) -> ExtenderSpec {
    ExtenderSpec {
        id: ExtenderId(name.bytes().map(u32::from).sum()),
        name: name.into(),
        filters: verbs.contains("filter"),
        prioritizes: verbs.contains("prioritize"),
        preempts: verbs.contains("preempt"),
        binds: verbs.contains("bind"),
        weight: 1,
        ..ExtenderSpec::default()
    }
}

pub(super) fn harness(extenders: impl IntoIterator<Item = ExtenderSpec>) -> Harness {
    Harness::with(Profile::default_named(SCHEDULER).with_extenders(extenders))
}

/// Something done to a pod.
type Edit = dyn Fn(k8s::Pod) -> k8s::Pod;

/// Three empty nodes.
fn three(extenders: impl IntoIterator<Item = ExtenderSpec>) -> Harness {
    let mut h = harness(extenders);
    ["n1", "n2", "n3"].iter().for_each(|name| h.node(node(name)));
    h
}

pub(super) fn plain(name: &str) -> k8s::Pod {
    pod(name).req(&[("cpu", "1")])
}

fn reasons(list: &[(&str, &str)]) -> Vec<(Arc<str>, Arc<str>)> {
    list.iter().map(|(node, why)| ((*node).into(), (*why).into())).collect()
}

pub(super) fn left(nodes: &str) -> ExtenderReply {
    let nodes = nodes.split_whitespace().map(Into::into).collect();
    ExtenderReply::Filtered { nodes, failed: Vec::new(), unresolvable: Vec::new() }
}

fn refused(failed: &[(&str, &str)], unresolvable: &[(&str, &str)]) -> ExtenderReply {
    let (failed, unresolvable) = (reasons(failed), reasons(unresolvable));
    ExtenderReply::Filtered { nodes: Vec::new(), failed, unresolvable }
}

fn scores(lists: &[Result<&[(&str, i64)], &str>]) -> ExtenderReply {
    let list = |list: &[(&str, i64)]| list.iter().map(|(n, s)| ((*n).into(), *s)).collect();
    let lists = lists.iter().map(|l| l.map(list).map_err(Into::into));
    ExtenderReply::Prioritized(lists.collect())
}

pub(super) fn broken(error: &str) -> ExtenderReply {
    ExtenderReply::Failed { error: error.into(), in_doubt: false }
}

fn failed(name: &str, reason: &str, message: &str) -> String {
    format!(
        "Warning default/{name} FailedScheduling: {message}
         status default/{name} false {reason}: {message}"
    )
}

#[test]
fn filters_are_asked_one_after_another_and_each_sees_what_is_left() {
    let last = ExtenderSpec { ignorable: true, ..extender("a", "filter") };
    let mut h = three([last, extender("b", "filter"), extender("c", "prioritize filter")]);
    h.pod(plain("p"));
    check(h.run(), "b filters n1 n2 n3 for p");
    assert_eq!(h.queue_of("p"), "asking");
    check(h.extender("p", left("n1 n3")), "c filters n1 n3 for p");
    // Ignorable ones come last, wherever the configuration has them.
    check(h.extender("p", left("n3 n1")), "a filters n1 n3 for p");
    check(h.extender("p", left("n3")), "bind default/p -> n3");
    h.bound("p", "n3");
    h.assert_idle();
}

#[test]
fn a_pod_concerns_an_extender_if_a_container_names_one_of_its_resources() {
    let managed = ["example.com/gpu".into()].into();
    let spec = ExtenderSpec { managed, ..extender("e", "filter") };
    let asks = |with: &Edit| {
        let mut h = harness([spec.clone()]);
        h.node(node("n1").alloc("example.com/gpu", "4").alloc("example.com/gpus", "4"));
        h.pod(with(plain("p")));
        h.run().iter().any(|effect| effect.starts_with("e filters"))
    };
    let init = |p: k8s::Pod| {
        p.edit(|p| {
            let mut container = p.spec.containers[0].clone();
            container.resources.requests = crate::testing::resources(&[("example.com/gpu", "1")]);
            p.spec.init_containers.push(container);
        })
    };
    let cases: [(&str, bool, &Edit); 5] = [
        ("nothing", false, &|p| p),
        ("another resource", false, &|p| p.req(&[("example.com/gpus", "1")])),
        ("a container", true, &|p| p.req(&[("example.com/gpu", "1")])),
        ("none of it, by name", true, &|p| p.req(&[("example.com/gpu", "0")])),
        ("an init container", true, &init),
    ];
    for (case, expected, with) in cases {
        assert_eq!(asks(with), expected, "{case}");
    }
}

#[test]
fn what_extenders_say_of_nodes_is_said_of_the_pod_and_any_event_wakes_it() {
    let mut h = three([extender("e", "filter")]);
    h.node(node("n4").taint("gpu", "", "NoSchedule"));
    h.pod(plain("p"));
    h.run();
    // What is said of a node that nobody asked about counts nowhere.
    let answer = refused(&[("n1", "no licence"), ("n9", "ghost")], &[("n2", "wrong rack")]);
    check(
        h.extender("p", answer),
        &failed(
            "p",
            "Unschedulable",
            "0/4 nodes are available: 1 no licence, 1 node(s) didn't pass the filters of \
             extenders, 1 node(s) had untolerated taint(s), 1 wrong rack. preemption: 0/4 nodes are available: 1 No preemption victims found for \
             incoming pod, 3 Preemption is not helpful for scheduling.",
        ),
    );
    assert_eq!(h.queue_of("p"), "unschedulable");
    h.seen("p");
    assert_eq!(h.queue_of("p"), "unschedulable", "its own condition is no news");
    h.sleep(11);
    h.node(node("n1").label("any", "change"));
    check(h.run(), "e filters n1 n2 n3 for p");
}

#[test]
fn scores_are_weighted_and_added_and_one_that_fails_gives_none() {
    // Two nodes that plugins rate alike, but for the first score they would tie.
    let pick = |weights: [i64; 2], lists: &[Result<&[(&str, i64)], &str>]| {
        let [a, b] = weights;
        let mut h = three([
            ExtenderSpec { weight: a, ..extender("a", "prioritize") },
            ExtenderSpec { weight: b, ..extender("b", "prioritize") },
        ]);
        h.pod(plain("p"));
        check(h.run(), "a prioritizes n1 n2 n3 for p (2 asked)");
        h.extender("p", scores(lists)).join("")
    };
    let bind = |node: &str| format!("bind default/p -> {node}");
    // 10 × 1 × (100 / 10) = 100 against 3 × 2 × 10 = 60.
    assert_eq!(pick([1, 2], &[Ok(&[("n1", 10)]), Ok(&[("n2", 3)])]), bind("n1"));
    // 5 × 1 × 10 = 50 against 60.
    assert_eq!(pick([1, 2], &[Ok(&[("n1", 5)]), Ok(&[("n2", 3)])]), bind("n2"));
    // One that fails gives no score.
    assert_eq!(pick([9, 1], &[Err("down"), Ok(&[("n3", 1)])]), bind("n3"));
    // Out of range: used as they are, as upstream, but never wrapped around.
    assert_eq!(pick([1, 1], &[Ok(&[("n1", 1_000)]), Ok(&[("n2", 10)])]), bind("n1"));
    assert_eq!(pick([4, 1], &[Ok(&[("n1", i64::MAX)]), Ok(&[("n2", 10)])]), bind("n1"));
    assert_eq!(pick([4, 1], &[Ok(&[("n1", i64::MIN), ("n3", -1)]), Ok(&[])]), bind("n2"));
    // Nodes that nobody asked about count nowhere.
    assert_eq!(pick([9, 1], &[Ok(&[("ghost", 10)]), Ok(&[("n2", 1)])]), bind("n2"));
}

#[test]
fn a_score_is_asked_for_only_if_there_is_a_choice() {
    let mut h = three([extender("e", "filter prioritize")]);
    h.pod(plain("p"));
    h.run();
    check(h.extender("p", left("n2")), "bind default/p -> n2");
}

#[test]
fn an_extender_that_fails_is_an_error_unless_it_is_ignorable() {
    let post = "Post \"http://e/filter\": connection refused";
    let lies = "extender \"e\" claims a filtered node \"n9\" which is not found in the input \
                node list";
    for (answer, error) in [(broken(post), post), (left("n1 n9"), lies), (scores(&[]), "")] {
        for ignorable in [false, true] {
            let mut h = three([ExtenderSpec { ignorable, ..extender("e", "filter") }]);
            h.pod(plain("p"));
            h.run();
            let effects = h.extender("p", answer.clone());
            if ignorable {
                assert!(effects[0].starts_with("bind default/p"), "{effects:?}");
                continue;
            }
            if !error.is_empty() {
                check(&effects, &failed("p", "SchedulerError", error));
            }
            // As after every error it comes back by itself, after backing off.
            assert_eq!(h.queue_of("p"), "backoff");
            check(h.run(), "");
            h.sleep(3);
            check(h.run(), "e filters n1 n2 n3 for p");
        }
    }
}

#[test]
fn while_one_waits_the_world_goes_on_and_the_answer_is_held_against_it() {
    let managed = ["example.com/gpu".into()].into();
    let mut h = three([ExtenderSpec { managed, ..extender("e", "filter prioritize") }]);
    for name in ["n1", "n2", "n3"] {
        h.node(node(name).alloc("example.com/gpu", "1"));
    }
    let wants = |name: &str| plain(name).req(&[("example.com/gpu", "1")]);
    h.pod(wants("p"));
    check(h.run(), "e filters n1 n2 n3 for p");
    // Others pass by; nodes come, go and fill up.
    h.pod(pod("other").req(&[("cpu", "1")]));
    assert_eq!(h.run_binds().len(), 1);
    h.node_gone("n1");
    h.pod(wants("foreign").on("n2"));
    h.node(node("n0").alloc("example.com/gpu", "1"));
    check(h.extender("p", left("n1 n2 n3")), "bind default/p -> n3");
}

#[test]
fn if_nothing_is_left_of_the_answer_the_pod_waits_for_what_came_meanwhile() {
    let mut h = harness([extender("e", "filter")]);
    h.node(node("n1"));
    h.pod(plain("p"));
    h.run();
    h.node_gone("n1");
    h.node(node("n2"));
    check(
        h.extender("p", left("n1")),
        &(failed(
            "p",
            "Unschedulable",
            "0/1 nodes are available: 1 node(s) didn't pass the filters of extenders. preemption: \
             0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
            // The node that came was an event: no other is needed.
        ) + "\ne filters n2 for p"),
    );
}

#[test]
fn a_chosen_node_that_fills_up_while_scores_are_asked_for_is_not_taken() {
    let mut h = harness([extender("e", "prioritize")]);
    h.node(node("n1").cpu("1"));
    h.node(node("n2").cpu("1"));
    h.pod(plain("p"));
    check(h.run(), "e prioritizes n1 n2 for p (1 asked)");
    h.pod(plain("foreign").on("n1"));
    check(h.extender("p", scores(&[Ok(&[("n1", 10)])])), "bind default/p -> n2");
}

#[test]
fn only_so_many_cycles_are_parked_and_the_first_in_order_go_on() {
    let managed = ["example.com/gpu".into()].into();
    let mut h = harness([ExtenderSpec { managed, ..extender("e", "filter") }]);
    h.node(node("n1").cpu("100").alloc("example.com/gpu", "100"));
    let wants = |name: &str| plain(name).req(&[("example.com/gpu", "1")]);
    for i in 0..20 {
        h.pod(wants(&format!("p{i:02}")));
    }
    assert_eq!(h.run().len(), 16);
    assert_eq!((h.queue_of("p16"), h.attempts("p16")), ("active", 0));
    // Whoever needs no extender passes by, and the most important is next.
    h.pod(plain("other"));
    h.pod(wants("first").priority(9));
    assert_eq!(h.run_binds(), ["bind default/other -> n1"]);
    let next = h.extender("p03", left("n1"));
    assert_eq!(next, ["bind default/p03 -> n1", "e filters n1 for first"]);
    let next = h.extender("p04", left("n1"));
    assert_eq!(next, ["bind default/p04 -> n1", "e filters n1 for p16"]);
    // One that waits for its turn can go, and be changed.
    h.gone("p17");
    h.edit("p18", |p| p.spec.priority = Some(5));
    let next = h.extender("p05", left("n1"));
    assert_eq!(next, ["bind default/p05 -> n1", "e filters n1 for p18"]);
    assert_eq!((h.queue_of("p18"), h.attempts("p18")), ("asking", 1));
}

#[test]
fn where_a_pod_is_expected_it_goes_if_extenders_agree() {
    for (answer, then) in [
        (left("n2"), "bind default/p -> n2"),
        (refused(&[("n2", "no")], &[]), "e filters n1 n2 n3 for p"),
        (broken("down"), "e filters n1 n2 n3 for p"),
    ] {
        let mut h = three([extender("e", "filter prioritize")]);
        h.pod(plain("p").edit(|p| p.status.nominated_node_name = "n2".into()));
        check(h.run(), "e filters n2 for p");
        check(h.extender("p", answer), then);
    }
}

#[test]
fn a_pod_that_is_expected_on_a_node_does_not_stand_in_its_own_way_there() {
    let mut h = harness([extender("e", "filter")]);
    h.node(node("n1").cpu("1"));
    h.pod(plain("p").edit(|p| p.status.nominated_node_name = "n1".into()));
    check(h.run(), "e filters n1 for p");
    check(h.extender("p", broken("down")), "e filters n1 for p");
    check(h.extender("p", left("n1")), "bind default/p -> n1");
}

#[test]
fn a_pod_that_goes_or_is_bound_elsewhere_while_it_waits_leaves_nothing_behind() {
    let mut h = three([extender("e", "filter")]);
    h.pod(plain("gone"));
    h.run();
    h.gone("gone");
    check(h.extender("gone", left("n1")), "");
    h.assert_idle();
    h.pod(plain("taken"));
    h.run();
    h.edit("taken", |p| p.spec.node_name = "n2".into());
    check(h.extender("taken", left("n1")), "");
    h.assert_idle();
    h.pod(plain("leaving"));
    h.run();
    h.edit("leaving", |p| p.metadata.deletion_timestamp = Some(k8s::Time(0)));
    let said = h.extender("leaving", left("n1"));
    check(
        said,
        "Warning default/leaving FailedScheduling: skip schedule deleting pod: default/leaving",
    );
    h.gone("leaving");
    h.assert_idle();
}

#[test]
fn an_answer_that_comes_twice_counts_once() {
    let mut h = three([extender("e", "filter")]);
    h.pod(plain("p"));
    h.run();
    h.reply("p", Reply::Extender(left("n1")));
    h.reply("p", Reply::Extender(left("n2")));
    check(h.run(), "bind default/p -> n1");
    check(h.extender("p", left("n2")), "");
}
