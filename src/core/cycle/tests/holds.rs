//! Pods that the core holds back (a preemption under way) or calls (Activate).

use super::harness::Harness;
use super::probe::{Probe, Script, node_events, profile};
use crate::framework::{Actions, Registration, Resource};
use crate::model::PodId;
use crate::queue::{Queue, QueueCx};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

const WAITING: &str = "waiting for the preemption for this pod to be finished";

impl Harness {
    fn with_queue(&mut self, name: &str, act: impl FnOnce(&mut Queue, &QueueCx<'_>, PodId)) {
        let id = *self.core.by_key.get(format!("default/{name}").as_str()).expect("a known pod");
        let core = &mut self.core;
        let cx = QueueCx { profiles: &core.profiles, cluster: &core.cluster, now: self.now };
        act(&mut core.queue, &cx, id);
    }

    pub(super) fn hold(&mut self, name: &str) {
        self.with_queue(name, |queue, _, pod| queue.hold(pod, WAITING.into()));
    }

    pub(super) fn unhold(&mut self, name: &str) {
        self.with_queue(name, Queue::unhold);
    }

    pub(super) fn activate(&mut self, name: &str) {
        self.with_queue(name, Queue::activate_now);
    }

    fn message(&self, name: &str) -> String {
        let view = self.core.queue_view();
        let key = format!("default/{name}");
        view.pods.iter().find(|p| p.pod == key).map(|p| p.message.clone()).unwrap_or_default()
    }
}

/// A pod of 3 CPUs that waits because the only node has 2.
fn waiting() -> Harness {
    let mut h = Harness::new();
    h.node(node("small").cpu("2"));
    h.pod(pod("a").req(&[("cpu", "3")]));
    h.run();
    assert_eq!(h.queue_of("a"), "unschedulable");
    h
}

#[test]
fn a_held_pod_is_gated_and_says_why() {
    let mut h = waiting();
    let before = h.message("a");
    h.hold("a");
    assert_eq!((h.queue_of("a"), h.message("a").as_str()), ("gated", WAITING));
    assert_eq!(h.core.pending_counts().gated, 1);
    h.unhold("a");
    assert_eq!((h.queue_of("a"), h.message("a")), ("unschedulable", before));
}

#[test]
fn an_event_that_helps_moves_a_held_pod_only_when_the_hold_ends() {
    let mut h = waiting();
    h.hold("a");
    h.sleep(20);
    h.node(node("big").cpu("8"));
    assert_eq!(h.queue_of("a"), "gated");
    assert!(h.run_binds().is_empty());
    h.unhold("a");
    assert_eq!(h.queue_of("a"), "active");
    assert_eq!(h.run_binds(), ["bind default/a -> big"]);
}

#[test]
fn an_event_that_does_not_help_leaves_a_held_pod_waiting_when_the_hold_ends() {
    let mut h = waiting();
    h.hold("a");
    h.sleep(20);
    h.node(node("small").cpu("2").label("x", "y"));
    h.unhold("a");
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn a_held_pods_backoff_counts_when_the_hold_ends() {
    let mut h = waiting();
    h.hold("a");
    h.node(node("big").cpu("8"));
    h.unhold("a");
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn the_pods_own_change_counts_when_the_hold_ends() {
    let mut h = waiting();
    h.hold("a");
    h.sleep(20);
    h.edit("a", |p| {
        p.spec.containers.clear();
        *p = p.clone().req(&[("cpu", "1")]);
    });
    assert_eq!(h.queue_of("a"), "gated");
    h.unhold("a");
    assert_eq!(h.run_binds(), ["bind default/a -> small"]);
}

#[test]
fn a_pod_held_in_flight_comes_back_held_with_what_it_missed() {
    for helped in [false, true] {
        let wait = Script { wait: Some(60), events: node_events(), ..Script::default() };
        let probe = Probe::new("Slow", wait);
        let mut h = Harness::with(profile(&[&probe]));
        h.node(node("n"));
        h.pod(pod("a"));
        h.run();
        assert_eq!(h.queue_of("a"), "permit");
        h.hold("a");
        if helped {
            h.node(node("m"));
        }
        h.permit("a", "Slow", Err("no"));
        assert_eq!(h.queue_of("a"), "gated");
        h.sleep(20);
        assert_eq!(h.queue_of("a"), "gated");
        h.unhold("a");
        assert_eq!(h.queue_of("a"), if helped { "active" } else { "unschedulable" });
    }
}

#[test]
fn a_pod_about_to_be_tried_still_is_after_a_hold() {
    let mut h = Harness::new();
    h.node(node("n"));
    h.pod(pod("a"));
    h.hold("a");
    assert!(h.run_binds().is_empty());
    h.unhold("a");
    assert_eq!(h.run_binds(), ["bind default/a -> n"]);
}

#[test]
fn a_held_pod_is_not_woken_by_its_own_release() {
    let any = Registration { resource: Resource::Any, actions: Actions::ALL };
    let wait = Script { wait: Some(60), events: vec![any], ..Script::default() };
    let mut h = Harness::with(profile(&[&Probe::new("Slow", wait)]));
    h.node(node("n"));
    h.pod(pod("a"));
    h.run();
    h.hold("a");
    h.permit("a", "Slow", Err("no"));
    h.unhold("a");
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn a_gate_outlasts_a_hold() {
    let mut h = Harness::new();
    h.node(node("n"));
    h.pod(pod("a").gate("x"));
    h.hold("a");
    h.unhold("a");
    assert_eq!(h.message("a"), "waiting for scheduling gates: [x]");
    h.edit("a", |p| p.spec.scheduling_gates.clear());
    assert_eq!(h.run_binds(), ["bind default/a -> n"]);
}

#[test]
fn a_plugin_is_counted_for_every_pod_that_waits_because_of_it() {
    let mut h = waiting();
    h.pod(pod("b").gate("x"));
    let counted = |h: &Harness| {
        let counts = h.core.unschedulable_by_plugin().into_iter();
        counts.map(|(_, plugin, pods)| format!("{plugin} {pods}")).collect::<Vec<_>>()
    };
    let both = ["SchedulingGates 1", "NodeResourcesFit 1"];
    assert_eq!(counted(&h), both);
    // As upstream, also while it is held or backs off.
    h.hold("a");
    assert_eq!(counted(&h), both);
    h.unhold("a");
    h.node(node("big").cpu("8"));
    assert_eq!((h.queue_of("a"), counted(&h)), ("backoff", both.map(String::from).to_vec()));
    h.run();
    assert_eq!(counted(&h), both[..1]);
}

#[test]
fn a_held_pod_that_is_deleted_leaves_nothing() {
    let mut h = waiting();
    h.hold("a");
    h.gone("a");
    h.node_gone("small");
    h.assert_idle();
}

#[test]
fn a_held_pod_that_waited_too_long_is_tried_when_the_hold_ends() {
    let mut h = waiting();
    h.hold("a");
    h.sleep(400);
    assert_eq!(h.queue_of("a"), "gated");
    h.unhold("a");
    assert_eq!(h.queue_of("a"), "active");
}

#[test]
fn activate_skips_backoff_and_events() {
    let mut h = waiting();
    h.activate("a");
    assert_eq!(h.queue_of("a"), "active");
    h.run();
    assert_eq!((h.queue_of("a"), h.attempts("a")), ("unschedulable", 2));
    h.node(node("big").cpu("8"));
    assert_eq!(h.queue_of("a"), "backoff");
    h.activate("a");
    assert_eq!(h.queue_of("a"), "active");
}

#[test]
fn activate_does_not_open_gates() {
    let mut h = Harness::new();
    h.node(node("n"));
    h.pod(pod("a").gate("x"));
    h.activate("a");
    assert_eq!((h.queue_of("a"), h.attempts("a")), ("gated", 0));
    let mut h = waiting();
    h.hold("a");
    h.activate("a");
    assert_eq!(h.queue_of("a"), "gated");
    h.unhold("a");
    assert_eq!(h.queue_of("a"), "active");
}

#[test]
fn activate_of_a_pod_in_flight_lets_it_come_back_without_an_event() {
    for active in [false, true] {
        let wait = Script { wait: Some(60), ..Script::default() };
        let probe = Probe::new("Slow", wait);
        let mut h = Harness::with(profile(&[&probe]));
        h.node(node("n"));
        for name in ["a", "b"] {
            h.pod(pod(name));
        }
        h.run();
        if active {
            h.activate("a");
        }
        for name in ["a", "b"] {
            h.permit(name, "Slow", Err("no"));
        }
        assert_eq!(h.queue_of("a"), if active { "backoff" } else { "unschedulable" });
        assert_eq!(h.queue_of("b"), "unschedulable");
    }
}

#[test]
fn activate_of_a_pod_that_is_being_bound_or_unknown_is_nothing() {
    let mut h = Harness::new();
    h.node(node("n"));
    h.pod(pod("a"));
    h.run();
    h.activate("a");
    assert_eq!(h.queue_of("a"), "binding");
    assert_eq!(h.core.queue.tracked(), (1, 0));
}
