//! Who is tried when: order, backoff, the leftover flush, gates.

use muster_api::k8s::PodCondition;

use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::Outcome;
use crate::framework::Status;
use crate::io::{Change, Effect, Input, Tick};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

/// A pod that fits no node of the harness.
fn huge(name: &str) -> muster_api::k8s::Pod {
    pod(name).req(&[("cpu", "64")])
}

const NO_CPU: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are \
                      available: 1 Preemption is not helpful for scheduling.";

#[test]
fn higher_priority_goes_first_then_the_longer_waiting() {
    let mut h = Harness::new();
    h.node(node("n1"));
    for (name, priority) in [("old", 0), ("new", 0), ("vip", 100), ("low", -5)] {
        h.pod(pod(name).priority(priority));
        h.sleep(1);
    }
    check(
        h.run(),
        "bind default/vip -> n1
         bind default/old -> n1
         bind default/new -> n1
         bind default/low -> n1",
    );
}

#[test]
fn pods_of_one_instant_keep_the_order_of_arrival() {
    let mut h = Harness::new();
    h.node(node("n1"));
    for name in ["b", "a", "c"] {
        h.pod(pod(name));
    }
    check(h.run(), "bind default/b -> n1\nbind default/a -> n1\nbind default/c -> n1");
}

#[test]
fn a_new_priority_sorts_a_waiting_pod_anew() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    h.pod(pod("b"));
    h.edit("b", |p| p.spec.priority = Some(7));
    h.edit("b", |p| p.spec.priority = Some(9));
    check(h.run(), "bind default/b -> n1\nbind default/a -> n1");
    h.bound("a", "n1");
    h.bound("b", "n1");
    h.assert_idle();
}

#[test]
fn a_traced_decision_names_the_node_that_was_chosen() {
    for seed in 0..20 {
        let config = crate::Config { seed, ..crate::Config::default() };
        let mut core = crate::Core::new(config);
        core.set_trace(true);
        for name in ["d", "a", "c", "b"] {
            core.apply(Tick(0), Input::Node(Change::Upsert(Box::new(node(name)))));
        }
        core.apply(Tick(0), Input::Pod(Change::Upsert(Box::new(pod("p")))));
        let asked = core.question("default", "p").expect("a known pod").explain();
        let decision = core.schedule_one(Tick(0)).expect("a pod waits");
        let traced = decision.explanation.expect("tracing is on");
        let chosen = Outcome::Scheduled { node: traced.suggested_host.as_str().into() };
        assert_eq!((decision.outcome, *traced), (chosen, asked), "seed {seed}");
    }
}

#[test]
fn a_condition_says_what_the_api_server_showed_before() {
    let shown = |status: Option<&str>| {
        let mut h = Harness::new();
        h.node(node("n1"));
        let mut pod = huge("a");
        pod.status.conditions.extend(status.map(|status| PodCondition {
            kind: "PodScheduled".to_owned(),
            status: status.to_owned(),
            reason: "Unschedulable".to_owned(),
            message: "of an earlier scheduler".to_owned(),
        }));
        h.pod(pod);
        let _ = h.core.schedule_one(h.now);
        h.core.take_effects().into_iter().find_map(|effect| match effect {
            Effect::PatchStatus(patch) => Some(patch.shown),
            _ => None,
        })
    };
    assert_eq!(shown(None), Some(None));
    assert_eq!(shown(Some("False")), Some(Some(false)));
    assert_eq!(shown(Some("True")), Some(Some(true)));
}

#[test]
fn a_pod_whose_gates_are_shown_again_leaves_the_active_queue() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    let gate = muster_api::k8s::PodSchedulingGate { name: "wait".to_owned() };
    h.edit("a", |p| p.spec.scheduling_gates = vec![gate]);
    check(h.run(), "");
    h.edit("a", |p| p.spec.scheduling_gates.clear());
    check(h.run(), "bind default/a -> n1");
}

#[test]
fn a_rejected_pod_says_so_once_in_its_condition_and_each_time_in_an_event() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(huge("a"));
    check(
        h.run(),
        &format!(
            "Warning default/a FailedScheduling: {NO_CPU}
             status default/a false Unschedulable: {NO_CPU}"
        ),
    );
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.seen("a");
    h.node(node("n1").cpu("5")); // Grew, but the pod would not fit it empty.
    check(h.run(), "");
    h.sleep(331);
    check(h.run(), &format!("Warning default/a FailedScheduling: {NO_CPU}"));
}

#[test]
fn a_message_too_long_is_cut_in_the_event_and_whole_in_the_condition() {
    let long = Status::unschedulable("x".repeat(2000));
    let probe = Probe::new("Long", Script { filter: Some(long), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("a"));
    let effects = h.run();
    let note = effects[0].strip_prefix("Warning default/a FailedScheduling: ").unwrap();
    assert!(note.len() == 1024 && note.ends_with("x ..."), "{note}");
    assert!(effects[1].len() > 2000, "{}", effects[1]);
}

#[test]
fn backoff_doubles_and_an_expiry_in_this_second_still_backs_off() {
    let broken = Script { reserve: Some(Status::error("broken")), ..Script::default() };
    let probe = Probe::new("Broken", broken);
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.sleep_millis(700);
    h.pod(pod("a"));
    let mut waits = Vec::new();
    for _ in 0..6 {
        assert!(!h.run().is_empty());
        assert_eq!(h.queue_of("a"), "backoff");
        let mut millis = 0;
        while h.queue_of("a") == "backoff" {
            h.sleep_millis(100);
            millis += 100;
        }
        waits.push(millis);
    }
    // Failed at …0.7: 1 s later is …1.7, cut to 1; still backing off in second 1,
    // ready at 2.0. From then on failures are at whole seconds: d + 1 s.
    assert_eq!(waits, [1_300, 3_000, 5_000, 9_000, 11_000, 11_000]);
}

#[test]
fn an_error_waits_its_backoff_out_and_a_rejection_is_popped_early() {
    let probe =
        Probe::new("Probe", Script { events: super::probe::node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    probe.tell(|s| s.reserve = Some(Status::error("broken")));
    h.pod(pod("error"));
    check(
        h.run(),
        "Warning default/error FailedScheduling: running Reserve plugin \"Probe\": broken
         status default/error false SchedulerError: running Reserve plugin \"Probe\": broken",
    );
    probe.tell(|s| s.reserve = Some(Status::unschedulable("busy")));
    h.pod(pod("rejected"));
    assert_eq!(h.run().len(), 2);
    assert_eq!((h.queue_of("error"), h.queue_of("rejected")), ("backoff", "unschedulable"));
    probe.tell(|s| s.reserve = None);
    h.node(node("n2").unschedulable()); // An event the plugin asked for.
    assert_eq!((h.queue_of("error"), h.queue_of("rejected")), ("backoff", "backoff"));
    check(h.run_binds(), "bind default/rejected -> n1");
    assert_eq!(h.queue_of("error"), "backoff");
    h.sleep(2);
    check(h.run_binds(), "bind default/error -> n1");
}

#[test]
fn with_no_nodes_a_pod_backs_off_as_after_an_error() {
    let mut h = Harness::new();
    h.pod(pod("a"));
    check(
        h.run(),
        "Warning default/a FailedScheduling: no nodes available to schedule pods
         status default/a false Unschedulable: no nodes available to schedule pods",
    );
    assert_eq!(h.queue_of("a"), "backoff");
    h.node(node("n1"));
    check(h.run(), ""); // Nobody rejected it: no event helps, and it is not popped early.
    h.sleep(2);
    check(h.run(), "bind default/a -> n1");
}

#[test]
fn an_error_is_counted_apart_from_rejections() {
    let probe =
        Probe::new("Probe", Script { events: super::probe::node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    probe.tell(|s| s.filter = Some(Status::unschedulable("no")));
    h.pod(pod("a"));
    h.run();
    h.seen("a");
    for i in 0..3 {
        h.sleep(60);
        h.node(node(&format!("m{i}")));
        assert_eq!(h.run().len(), 2);
        h.seen("a");
    }
    // Four rejections; the first error backs off for 1 s, not 16.
    probe.tell(|s| s.filter = None);
    probe.tell(|s| s.reserve = Some(Status::error("broken")));
    h.sleep(60);
    h.node(node("m9"));
    assert_eq!(h.run().len(), 2);
    h.sleep(1);
    assert_eq!(h.queue_of("a"), "backoff");
    h.sleep(1);
    assert_eq!(h.queue_of("a"), "active");
}

#[test]
fn what_waits_five_minutes_is_tried_again_at_the_next_half_minute() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.sleep(1);
    h.pod(huge("a"));
    assert_eq!(h.run().len(), 2);
    h.seen("a");
    let mut seconds = 0;
    while h.queue_of("a") == "unschedulable" {
        h.sleep(1);
        seconds += 1;
    }
    // Looked at every 30 s from the first second on: 300 s is not yet more than
    // 300 s, the next look is at 330.
    assert_eq!(seconds, 330);
    assert_eq!(h.run().len(), 1);
}

#[test]
fn a_gated_pod_waits_silently_and_goes_when_its_gate_does() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").gate("quota").gate("approval"));
    check(h.run(), "");
    h.node(node("n2"));
    h.edit("a", |p| drop(p.spec.scheduling_gates.pop()));
    check(h.run(), "");
    assert_eq!((h.queue_of("a"), h.attempts("a")), ("gated", 0));
    let view = h.core.queue_view();
    assert_eq!(view.pods[0].message, "waiting for scheduling gates: [quota]");
    h.edit("a", |p| p.spec.scheduling_gates.clear());
    assert_eq!(h.run_binds().len(), 1);
    assert_eq!(h.attempts("a"), 1);
}

#[test]
fn the_leftover_flush_looks_at_gated_pods_every_five_minutes_only() {
    let probe = Probe::new("Gate", Script { gate: true, ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.sleep(1);
    h.pod(pod("a"));
    h.core.take_observations();
    h.sleep(1_000);
    let gated = |o: &crate::report::Observation| {
        matches!(o, crate::report::Observation::Enqueued { event: "UnschedulableTimeout", .. })
    };
    assert_eq!(h.core.take_observations().iter().filter(|o| gated(o)).count(), 3);
    assert_eq!(h.queue_of("a"), "gated");
    probe.tell(|s| s.gate = false);
    h.sleep(330);
    check(h.run_binds(), "bind default/a -> n1");
}

#[test]
fn a_pod_gated_after_a_failure_keeps_its_backoff_when_the_gate_opens() {
    let probe =
        Probe::new("Gate", Script { events: super::probe::node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("a"));
    probe.tell(|s| {
        s.reserve = Some(Status::error("broken"));
        s.gate = true;
    });
    assert_eq!(h.run().len(), 2);
    assert_eq!(h.queue_of("a"), "gated");
    probe.tell(|s| s.gate = false);
    h.node(node("n2"));
    assert_eq!(h.queue_of("a"), "backoff");
}
