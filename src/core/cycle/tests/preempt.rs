//! Preemption of a pod: whom it pushes out, and how it is carried out.

use muster_api::k8s;
use serde_json::json;

use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::framework::{PluginArgs, Profile, Registry};
use crate::io::{Eviction, Object, WriteError};
use crate::testing::{NodeExt, PodExt, SCHEDULER, node, pod, wire};

/// A pod of 1 CPU of some priority on a node, started at a second.
fn runs(name: &str, node: &str, priority: i32, started: i64) -> k8s::Pod {
    pod(name).req(&[("cpu", "1")]).priority(priority).on(node).pod_label("app", name).edit(|p| {
        p.status.start_time = Some(k8s::Time(started * 1_000_000));
    })
}

fn wants(name: &str, cpu: &str, priority: i32) -> k8s::Pod {
    pod(name).req(&[("cpu", cpu)]).priority(priority)
}

fn budget(name: &str, app: &str, allowed: i32) -> Object {
    Object::PodDisruptionBudget(wire(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    })))
}

/// A node full of two pods of 1 CPU, of priorities 1 and 2.
fn full() -> Harness {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    h.pod(runs("low", "n1", 1, 10));
    h.pod(runs("mid", "n1", 2, 20));
    h
}

fn refused() -> Eviction {
    Eviction::Refused("Cannot evict pod as it would violate the pod's disruption budget.".into())
}

const FOUND: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential \
                     placement for pod on node n1, preempting 1 victims";

#[test]
fn the_least_important_pod_goes_and_the_preemptor_takes_its_place() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    check(
        h.run(),
        &format!(
            "Warning default/high FailedScheduling: {FOUND}
             status default/high false Unschedulable: {FOUND}
             ask default/low"
        ),
    );
    assert_eq!((h.queue_of("high"), h.nominated("high")), ("gated", Some("n1")));
    h.evicted("low", Eviction::Accepted);
    check(h.effects(), "evict default/low");
    h.evicted("low", Eviction::Accepted);
    check(h.effects(), "Normal default/low Preempted: Preempted by pod uid-high on node n1");
    assert_eq!(h.queue_of("high"), "unschedulable");
    h.edit("low", |p| p.metadata.deletion_timestamp = Some(k8s::Time(0)));
    h.gone("low");
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
    h.bound("high", "n1");
    h.assert_idle();
}

#[test]
fn a_deletion_seen_before_the_eviction_is_answered_is_not_missed() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.evicted("low", Eviction::Accepted);
    h.effects();
    h.gone("low");
    assert_eq!(h.queue_of("high"), "gated", "the answer is still out");
    h.evicted("low", Eviction::Accepted);
    h.sleep(2);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
}

#[test]
fn a_plan_that_a_budget_forbids_is_not_carried_out_and_the_budget_is_named() {
    let mut h = full();
    h.object(budget("keep-low", "low", 0));
    h.object(budget("keep-mid", "mid", 0));
    h.pod(wants("high", "2", 10));
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are \
                   available: 1 node(s) need evictions that PodDisruptionBudget default/keep-mid \
                   forbids.";
    check(
        h.run(),
        &format!(
            "Warning default/high FailedScheduling: {message}
             status default/high false Unschedulable: {message}"
        ),
    );
    assert_eq!(h.queue_of("high"), "unschedulable");
    h.object(budget("keep-mid", "mid", 1));
    h.sleep(2);
    let effects = h.run().join("\n");
    assert!(effects.contains("PodDisruptionBudget default/keep-low forbids"), "{effects}");
    h.object(budget("keep-low", "low", 1));
    h.sleep(5);
    let effects = h.run().join("\n");
    assert!(effects.contains("ask default/mid\nask default/low"), "{effects}");
}

#[test]
fn a_pod_that_a_budget_protects_is_spared_where_another_can_go() {
    let mut h = full();
    h.object(budget("keep-low", "low", 0));
    h.pod(wants("high", "1", 10));
    let effects = h.run();
    assert_eq!(effects.last().map(String::as_str), Some("ask default/mid"), "{effects:?}");
}

#[test]
fn a_pod_under_two_budgets_is_never_a_victim() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("1"));
    h.pod(runs("low", "n1", 1, 10));
    h.object(budget("one", "low", 5));
    h.object(budget("two", "low", 5));
    h.pod(wants("high", "1", 10));
    let effects = h.run().join("\n");
    assert!(effects.contains("pod default/low has more than one PodDisruptionBudget"), "{effects}");
    assert!(!effects.contains("ask"), "{effects}");
}

#[test]
fn a_refused_dry_run_evicts_nobody_and_another_victim_is_found() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.evicted("low", refused());
    check(h.effects(), "");
    assert_eq!(h.nominated("high"), Some(""), "it is expected nowhere again");
    let effects = h.run().join("\n");
    assert!(effects.contains("which was refused"), "the best plan still needs low: {effects}");
    assert_eq!(h.queue_of("high"), "unschedulable");
}

#[test]
fn a_refusal_after_the_first_eviction_keeps_what_was_freed() {
    let mut h = full();
    h.pod(wants("high", "2", 10));
    h.run();
    h.edit("high", |p| p.status.nominated_node_name = "n1".into());
    h.evicted("low", Eviction::Accepted);
    h.evicted("mid", Eviction::Accepted);
    check(h.effects(), "evict default/mid\nevict default/low");
    h.evicted("low", Eviction::Accepted);
    h.edit("low", |p| p.metadata.deletion_timestamp = Some(k8s::Time(0)));
    h.evicted("mid", refused());
    h.effects();
    let effects = h.run().join("\n");
    assert!(effects.contains("not eligible due to a terminating pod on the nominated node."));
    assert_eq!(h.nominated("high"), Some("n1"), "it is still expected there");
    assert!(!effects.contains("ask"), "{effects}");
}

#[test]
fn a_server_that_is_too_busy_is_asked_again() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.evicted("low", Eviction::Unavailable("too many requests".into()));
    check(h.effects(), "");
    h.sleep(1);
    check(h.effects(), "ask default/low");
    h.evicted("low", Eviction::Accepted);
    check(h.effects(), "evict default/low");
}

#[test]
fn nobody_is_asked_about_again_once_another_victim_was_refused() {
    let mut h = full();
    h.node(node("n1").cpu("3"));
    h.pod(runs("top", "n1", 3, 30));
    h.pod(wants("high", "3", 10));
    h.run();
    h.evicted("low", Eviction::Unavailable("too many requests".into()));
    h.evicted("mid", refused());
    // The answer about the third is still on its way.
    h.sleep(2);
    check(h.effects(), "");
    h.evicted("top", Eviction::Accepted);
    check(h.effects(), "");
    assert_eq!(h.nominated("high"), Some(""), "the plan is over");
}

#[test]
fn victims_that_are_gone_already_let_the_pod_be_tried_at_once() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.gone("low");
    h.evicted("low", Eviction::Gone);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
}

#[test]
fn a_victim_that_the_server_does_not_know_is_not_asked_for_again_before_it_is_seen_to_go() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.evicted("low", Eviction::Gone);
    check(h.run(), "");
    assert_eq!((h.queue_of("high"), h.nominated("high")), ("unschedulable", Some("n1")));
    // Tried again without an event, it waits on.
    h.sleep(400);
    let effects = h.run().join("\n");
    assert!(effects.contains("not eligible due to a terminating pod"), "{effects}");
    assert!(!effects.contains("ask"), "{effects}");
    h.gone("low");
    h.sleep(5);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
    assert!(h.core.victims.gone.is_empty());
}

#[test]
fn an_event_that_makes_a_preemption_possible_wakes_the_pod() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    let port = |p: k8s::Pod| p.host_port(80, "TCP", "");
    h.pod(port(runs("low", "n1", 1, 10)));
    // Its port is taken; without the pod that has it, there is no GPU for it either.
    h.pod(port(pod("high").req(&[("cpu", "1"), ("nvidia.com/gpu", "1")]).priority(10)));
    let effects = h.run().join("\n");
    assert!(effects.contains("didn't have free ports"), "{effects}");
    assert_eq!(h.queue_of("high"), "unschedulable");
    h.node(node("n1").cpu("2").alloc("nvidia.com/gpu", "1"));
    h.sleep(2);
    let effects = h.run();
    assert_eq!(effects.last().map(String::as_str), Some("ask default/low"), "{effects:?}");
}

/// Where budgets may be broken.
fn ruthless() -> Harness {
    let mut args = PluginArgs::default();
    args.default_preemption.allow_budget_violations = true;
    let plugins = Profile::defaults().iter().copied();
    let profile = Profile::build(SCHEDULER, plugins, &args, &Registry::in_tree());
    let mut h = Harness::with(profile.expect("the defaults are right"));
    h.node(node("n1").cpu("2"));
    h.pod(runs("low", "n1", 1, 10));
    h.pod(runs("mid", "n1", 2, 20));
    h
}

#[test]
fn where_it_is_allowed_victims_are_deleted_against_their_budgets() {
    let mut h = ruthless();
    h.object(budget("keep-low", "low", 0));
    h.object(budget("keep-mid", "mid", 0));
    h.pod(wants("high", "2", 10));
    let effects = h.run().join("\n");
    assert!(effects.ends_with("delete default/mid\ndelete default/low"), "{effects}");
    h.evicted("mid", Eviction::Accepted);
    h.evicted("low", Eviction::Accepted);
    assert_eq!(h.effects().len(), 2, "each is told why");
    h.gone("mid");
    h.gone("low");
    h.sleep(2);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
}

#[test]
fn where_it_is_allowed_budgets_are_kept_all_the_same_if_they_can_be() {
    let mut h = ruthless();
    h.object(budget("keep-low", "low", 0));
    h.pod(wants("high", "1", 10));
    let effects = h.run();
    assert_eq!(effects.last().map(String::as_str), Some("ask default/mid"), "{effects:?}");
    // The server knows of a budget that we do not: then by force.
    h.evicted("mid", refused());
    let effects = h.run().join("\n");
    assert!(effects.ends_with("delete default/mid"), "{effects}");
}

#[test]
fn whoever_may_not_even_be_deleted_is_left_alone_for_a_while() {
    let mut h = ruthless();
    h.object(budget("keep-low", "low", 0));
    h.pod(wants("high", "2", 10));
    let effects = h.run().join("\n");
    assert!(effects.ends_with("delete default/mid\ndelete default/low"), "{effects}");
    h.evicted("mid", Eviction::Failed("no right to delete".into()));
    h.evicted("low", Eviction::Failed("no right to delete".into()));
    h.sleep(2);
    let effects = h.run().join("\n");
    assert!(effects.contains("which was refused: no right to delete"), "{effects}");
    assert!(!effects.contains("\ndelete "), "{effects}");
    h.sleep(30);
    let effects = h.run().join("\n");
    assert!(effects.ends_with("delete default/mid\ndelete default/low"), "{effects}");
}

#[test]
fn a_preemptor_that_goes_away_leaves_nothing_behind() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.gone("high");
    h.evicted("low", Eviction::Accepted);
    check(h.effects(), "");
    h.assert_idle();
}

#[test]
fn nobody_goes_for_a_pod_that_is_being_deleted() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.edit("high", |p| p.metadata.deletion_timestamp = Some(k8s::Time(0)));
    h.evicted("low", Eviction::Accepted);
    check(h.run(), "");
}

#[test]
fn a_budget_that_was_spent_meanwhile_stops_the_plan_before_the_first_eviction() {
    let mut h = full();
    h.object(budget("keep-low", "low", 1));
    h.pod(wants("high", "1", 10));
    h.run();
    h.object(budget("keep-low", "low", 0));
    h.evicted("low", Eviction::Accepted);
    let effects = h.run();
    assert_eq!(effects.last().map(String::as_str), Some("ask default/mid"), "{effects:?}");
}

#[test]
fn a_budget_is_not_charged_for_a_victim_that_was_never_asked_to_go() {
    let mut h = under_one_budget();
    // Somebody else spends the budget before the turn of the second one.
    h.object(budget("both", "both", 0));
    h.evicted("mid", Eviction::Accepted);
    let effects = h.effects().join("\n");
    assert!(!effects.contains("evict default/low"), "{effects}");
    assert_eq!(h.core.victims.taken.len(), 1, "mid is going, low is not");
    h.gone("mid");
    assert!(h.core.victims.taken.is_empty());
}

/// Two pods of 1 CPU on a node, under one budget that lets both go, and a plan that has
/// come so far that `mid` is told to.
fn under_one_budget() -> Harness {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    h.pod(runs("low", "n1", 1, 10).pod_label("app", "both"));
    h.pod(runs("mid", "n1", 2, 20).pod_label("app", "both"));
    h.object(budget("both", "both", 2));
    h.pod(wants("high", "2", 10));
    h.run();
    h.evicted("low", Eviction::Accepted);
    h.evicted("mid", Eviction::Accepted);
    check(h.effects(), "evict default/mid");
    h
}

fn unanswered() -> Eviction {
    Eviction::Unavailable("no answer in time".into())
}

#[test]
fn an_eviction_without_an_answer_counts_against_its_budget_until_it_is_answered() {
    let mut h = under_one_budget();
    h.object(budget("both", "both", 1));
    // Was it this one that was counted? If so, the next one is one too many.
    h.evicted("mid", unanswered());
    check(h.effects(), "");
    h.sleep(1);
    check(h.effects(), "evict default/mid");
    h.evicted("mid", Eviction::Accepted);
    let effects = h.effects().join("\n");
    assert!(!effects.contains("evict default/low"), "{effects}");
    assert!(h.core.plans.is_empty(), "it is planned anew");
}

#[test]
fn an_eviction_that_nobody_asks_after_any_more_counts_until_it_would_have_been_seen() {
    let mut h = under_one_budget();
    h.evicted("mid", unanswered());
    check(h.effects(), "evict default/low");
    h.evicted("low", unanswered());
    h.gone("high");
    h.object(budget("both", "both", 1));
    h.pod(wants("next", "1", 10));
    let effects = h.run().join("\n");
    assert!(!effects.contains("ask"), "{effects}");
    assert!(effects.contains("PodDisruptionBudget default/both forbids"), "{effects}");
    h.sleep(31);
    assert!(h.core.victims.taken.is_empty() && h.core.victims.doubtful.is_empty());
    h.sleep(10);
    let effects = h.run();
    assert_eq!(effects.last().map(String::as_str), Some("ask default/mid"), "{effects:?}");
}

#[test]
fn a_preemptor_waits_for_those_it_made_go_though_they_are_not_seen_to_yet() {
    let mut h = full();
    h.pod(wants("high", "2", 10));
    h.run();
    for _ in 0..2 {
        h.evicted("low", Eviction::Accepted);
        h.evicted("mid", Eviction::Accepted);
        h.effects();
    }
    // One has gone, and it is tried again before the other is seen to go.
    h.gone("low");
    h.sleep(400);
    let effects = h.run().join("\n");
    assert!(effects.contains("not eligible due to a terminating pod"), "{effects}");
    assert!(!effects.contains("ask"), "{effects}");
    h.gone("mid");
    h.sleep(5);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
}

#[test]
fn a_victim_that_has_left_lets_the_preemptor_go_on_though_another_plugin_rejected_it() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    let port = |p: k8s::Pod| p.host_port(80, "TCP", "");
    h.pod(port(runs("low", "n1", 1, 10)));
    h.pod(runs("mid", "n1", 2, 20));
    h.pod(port(wants("high", "2", 10)));
    h.run();
    h.evicted("low", Eviction::Accepted);
    h.evicted("mid", Eviction::Accepted);
    check(h.effects(), "evict default/mid\nevict default/low");
    h.evicted("low", refused());
    h.evicted("mid", Eviction::Accepted);
    let effects = h.run().join("\n");
    assert!(effects.contains("not eligible due to a terminating pod"), "{effects}");
    // It had no port that anybody wants.
    h.gone("mid");
    h.sleep(5);
    let effects = h.run().join("\n");
    assert!(effects.contains("eviction of default/low, which was refused"), "{effects}");
    h.sleep(35);
    assert_eq!(h.run().last().map(String::as_str), Some("ask default/low"));
}

#[test]
fn a_policy_of_never_evicts_nobody() {
    let mut h = full();
    h.pod(wants("high", "1", 10).edit(|p| p.spec.preemption_policy = Some("Never".into())));
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to \
                   preemptionPolicy=Never.";
    check(
        h.run(),
        &format!(
            "Warning default/high FailedScheduling: {message}
             status default/high false Unschedulable: {message}"
        ),
    );
}

#[test]
fn nobody_of_equal_priority_goes() {
    let mut h = full();
    h.pod(wants("peer", "1", 1));
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are \
                   available: 1 No preemption victims found for incoming pod.";
    check(
        h.run(),
        &format!(
            "Warning default/peer FailedScheduling: {message}
             status default/peer false Unschedulable: {message}"
        ),
    );
}

#[test]
fn nodes_that_evictions_cannot_help_are_counted_as_such() {
    let mut h = full();
    h.node(node("n2").taint("gpu", "", "NoSchedule"));
    h.node(node("n3").cpu("500m"));
    h.pod(wants("peer", "1", 1));
    let effects = h.run().join("\n");
    let end = "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming \
               pod, 2 Preemption is not helpful for scheduling.";
    assert!(effects.contains(end), "{effects}");
}

#[test]
fn room_that_a_more_important_pod_waits_for_is_left_to_it() {
    let mut h = full();
    h.pod(wants("high", "1", 10));
    h.run();
    h.evicted("low", Eviction::Accepted);
    h.effects();
    h.evicted("low", Eviction::Accepted);
    h.gone("low");
    h.pod(wants("late", "1", 5));
    // The room is free, but expected to be taken by a pod of higher priority.
    let effects = h.run().join("\n");
    assert!(!effects.contains("bind default/late"), "{effects}");
    assert!(effects.contains("ask default/mid"), "it makes its own room: {effects}");
    assert!(effects.contains("bind default/high -> n1"), "{effects}");
}

#[test]
fn room_that_a_less_important_pod_waits_for_is_taken_from_it() {
    let mut h = full();
    h.pod(wants("high", "1", 5));
    h.run();
    h.evicted("low", Eviction::Accepted);
    h.effects();
    h.evicted("low", Eviction::Accepted);
    h.gone("low");
    h.pod(wants("higher", "1", 50));
    assert_eq!(h.run_binds(), ["bind default/higher -> n1"]);
}

#[test]
fn a_nomination_written_by_others_is_honoured() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.node(node("n2"));
    for (name, node) in [("a", "n2"), ("b", "n1"), ("c", "n2")] {
        let mut pod = wants(name, "100m", 0);
        pod.status.nominated_node_name = node.into();
        h.pod(pod);
        assert_eq!(h.run_binds(), [format!("bind default/{name} -> {node}")]);
    }
    let mut lost = wants("d", "100m", 0);
    lost.status.nominated_node_name = "nowhere".into();
    h.pod(lost);
    assert_eq!(h.run_binds().len(), 1, "a node that does not exist is no obstacle");
}

#[test]
fn a_pod_that_waits_at_permit_is_announced_and_gives_way_without_an_eviction() {
    let slow = Probe::new("Slow", Script { wait: Some(600), ..Script::default() });
    let mut h = Harness::with(profile(&[&slow]));
    h.node(node("n1").cpu("1"));
    h.pod(wants("low", "1", 1));
    check(h.run(), "");
    assert_eq!(h.nominated("low"), Some("n1"));
    h.pod(wants("high", "1", 10));
    let effects = h.run().join("\n");
    assert!(effects.contains("Preempted by pod uid-high on node n1 (in kube-scheduler memory)."));
    assert!(!effects.contains("ask "), "{effects}");
    assert_eq!(h.cache(), ["n1: default/high"], "it waits there now: {effects}");
    assert_eq!(h.queue_of("low"), "backoff");
}

#[test]
fn a_victim_whose_bind_fails_meanwhile_is_not_evicted() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    h.pod(wants("low", "2", 1));
    check(h.run_binds(), "bind default/low -> n1");
    h.pod(wants("high", "2", 10));
    assert_eq!(h.run().last().map(String::as_str), Some("ask default/low"));
    h.answer("low", Err(WriteError::Rejected("denied".into())));
    h.effects();
    // The dry run is answered; by now the pod has left of itself.
    h.evicted("low", Eviction::Accepted);
    assert!(!h.effects().iter().any(|e| e.starts_with("evict")));
    assert_eq!((h.queue_of("low"), h.queue_of("high")), ("backoff", "active"));
    check(h.run_binds(), "bind default/high -> n1");
}

#[test]
fn a_victim_whose_bind_fails_before_an_eviction_is_tried_again_ends_the_plan() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    h.pod(wants("low", "2", 1));
    h.run();
    h.pod(wants("high", "2", 10));
    h.run();
    h.evicted("low", Eviction::Unavailable("busy".into()));
    h.answer("low", Err(WriteError::Rejected("denied".into())));
    assert_eq!(h.queue_of("high"), "gated");
    h.sleep(5);
    assert!(h.run_binds().contains(&"bind default/high -> n1".to_owned()));
    assert!(h.core.plans.is_empty());
}
