//! What moves a waiting pod, and what does not.

use super::super::choosy::{Choosy, Mind, minded};
use super::super::harness::{Harness, check};
use super::super::probe::{Probe, Script, node_events, profile};
use super::{no, said};
use crate::framework::{Actions, Code, Hint, Registration, Resource, Status};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

fn on(resource: Resource, actions: Actions) -> Vec<Registration> {
    vec![Registration { resource, actions }]
}

/// A pod that a plugin with these events keeps off the only node.
fn rejected(events: Vec<Registration>) -> Harness {
    let plugin = Choosy::new("A", Mind { events, ..Mind::default() });
    plugin.tell(|m| m.verdicts = vec![("n1", no("no"))]);
    let mut h = Harness::with(minded(&[&plugin]));
    h.node(node("n1"));
    h.pod(pod("other").on("n1"));
    h.pod(pod("a"));
    h.run();
    assert_eq!(h.queue_of("a"), "unschedulable");
    h
}

#[test]
fn a_general_update_wakes_only_who_asked_for_any() {
    let table = [
        ("a", Resource::TargetPod, Actions::UPDATE_POD_LABEL, "unschedulable"),
        ("a", Resource::TargetPod, Actions::ANY_UPDATE, "backoff"),
        ("a", Resource::TargetPod, Actions::ALL, "backoff"),
        ("a", Resource::TargetPod, Actions::ADD | Actions::DELETE, "unschedulable"),
        ("other", Resource::AssignedPod, Actions::UPDATE_POD_LABEL, "unschedulable"),
        ("other", Resource::AssignedPod, Actions::UPDATE_POD_SCALE_DOWN, "unschedulable"),
        ("other", Resource::AssignedPod, Actions::ANY_UPDATE, "backoff"),
        ("other", Resource::Any, Actions::ALL, "backoff"),
        ("other", Resource::TargetPod, Actions::ALL, "unschedulable"),
    ];
    for (name, resource, actions, expected) in table {
        let mut h = rejected(on(resource, actions));
        h.edit(name, |p| p.status.phase = "Pending".into());
        assert_eq!(h.queue_of("a"), expected, "{name} {resource:?} {actions:?}");
    }
    // A particular one wakes both.
    for actions in [Actions::UPDATE_POD_LABEL, Actions::ANY_UPDATE] {
        let mut h = rejected(on(Resource::AssignedPod, actions));
        h.edit("other", |p| drop(p.metadata.labels.insert("x".into(), "y".into())));
        assert_eq!(h.queue_of("a"), "backoff", "{actions:?}");
    }
}

#[test]
fn one_update_of_a_node_is_an_event_of_each_kind() {
    let table = [
        (Actions::UPDATE_NODE_LABEL, "backoff"),
        (Actions::UPDATE_NODE_ALLOCATABLE, "backoff"),
        (Actions::UPDATE_NODE_TAINT, "unschedulable"),
        (Actions::ADD, "unschedulable"),
    ];
    for (actions, expected) in table {
        let mut h = rejected(on(Resource::Node, actions));
        h.node(node("n1").label("x", "y").cpu("9"));
        assert_eq!(h.queue_of("a"), expected, "{actions:?}");
    }
}

#[test]
fn the_end_of_a_cordon_is_a_change_of_taints_and_its_beginning_nothing() {
    let mut h = rejected(on(Resource::Node, Actions::ANY_UPDATE));
    h.node(node("n1").unschedulable());
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.node(node("n1"));
    assert_eq!(h.queue_of("a"), "backoff");
    // The node is known to be cordoned nevertheless.
    let mut h = Harness::new();
    h.node(node("n1"));
    h.node(node("n1").unschedulable());
    h.pod(pod("a"));
    check(h.run_binds(), "");
    h.node(node("n1"));
    check(h.run_binds(), "bind default/a -> n1");
}

#[test]
fn an_event_nobody_asked_for_is_not_kept() {
    let probe = Probe::new("Probe", Script { wait: Some(60), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    // Nobody asked for images: more of them than are kept push nothing out.
    for i in 0..5_000 {
        h.node(node("n1").image(&format!("i:{i}"), 1));
    }
    h.permit("a", "Probe", Err("no"));
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn after_an_error_no_event_is_waited_for() {
    let probe = Probe::new("Probe", Script { events: node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    probe.tell(|s| s.reserve = Some(no("busy")));
    h.pod(pod("a"));
    h.run();
    h.sleep(5);
    probe.tell(|s| s.reserve = Some(Status::error("broken")));
    h.node(node("n2"));
    h.run();
    // The plugin that rejected it before is no longer asked.
    probe.calls();
    h.node(node("n3"));
    assert_eq!((h.queue_of("a"), probe.calls()), ("backoff", Vec::new()));
}

#[test]
fn what_a_pending_plugin_waited_for_ends_backoff() {
    let soon = Status::new(Code::Pending, "soon");
    let node_added = on(Resource::Node, Actions::ADD);
    let left = on(Resource::AssignedPod, Actions::DELETE);
    let pending = Choosy::new("A", Mind { events: node_added, ..Mind::default() });
    pending.tell(|m| m.verdicts = vec![("n1", soon)]);
    let other = Choosy::new("B", Mind { events: left.clone(), ..Mind::default() });
    other.tell(|m| m.verdicts = vec![("n2", no("no"))]);
    for (helps, expected) in [("the pending one", "active"), ("the other", "backoff")] {
        let mut h = Harness::with(minded(&[&pending, &other]));
        h.node(node("n1"));
        h.node(node("n2"));
        h.pod(pod("other").on("n1"));
        h.pod(pod("a"));
        assert_eq!(
            said(&mut h),
            "status default/a false Unschedulable: 0/2 nodes are available: 1 no, 1 soon."
        );
        match helps {
            "the other" => h.gone("other"),
            _ => h.node(node("n3").unschedulable()),
        }
        assert_eq!(h.queue_of("a"), expected, "{helps}");
    }
}

#[test]
fn a_gated_pod_hears_only_what_its_gating_plugin_asked_for() {
    let gate = Choosy::new("A", Mind { gate: true, events: node_events(), ..Mind::default() });
    let mut h = Harness::with(minded(&[&gate]));
    h.node(node("n1"));
    h.pod(pod("other").on("n1"));
    h.pod(pod("a"));
    assert_eq!(h.queue_of("a"), "gated");
    gate.calls();
    h.gone("other");
    h.node(node("n1").label("x", "y"));
    h.edit("a", |p| drop(p.metadata.labels.insert("x".into(), "y".into())));
    assert_eq!(gate.calls().iter().filter(|c| *c == "hint").count(), 0);
    gate.tell(|m| (m.gate, m.hint) = (false, Hint::Skip));
    h.node(node("n2").unschedulable());
    assert_eq!((h.queue_of("a"), gate.calls()), ("gated", vec!["hint".to_owned()]));
    gate.tell(|m| m.hint = Hint::Queue);
    h.node(node("n3").unschedulable());
    check(h.run_binds(), "bind default/a -> n1");
}

#[test]
fn the_plugin_that_gated_a_pod_is_asked_first() {
    let gate =
        |name, gate| Choosy::new(name, Mind { gate, events: node_events(), ..Mind::default() });
    let (a, b) = (gate("A", true), gate("B", true));
    let mut h = Harness::with(minded(&[&a, &b]));
    let says = |h: &Harness| h.core.queue_view().pods[0].message.clone();
    h.pod(pod("p"));
    assert_eq!(says(&h), "gated by A");
    a.tell(|m| m.gate = false);
    h.node(node("n1"));
    assert_eq!(says(&h), "gated by B");
    a.tell(|m| m.gate = true);
    a.calls();
    h.node(node("n2"));
    assert_eq!(says(&h), "gated by B");
    assert!(!a.calls().contains(&"preenqueue".to_owned()));
}

#[test]
fn of_pods_that_back_off_equally_long_the_more_important_goes_first() {
    let probe = Probe::new("Probe", Script { events: node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    probe.tell(|s| s.reserve = Some(no("busy")));
    h.pod(pod("first").priority(0));
    h.run();
    h.sleep(1);
    h.pod(pod("low").priority(1));
    h.run();
    h.sleep_millis(300);
    h.pod(pod("high").priority(2));
    h.run();
    probe.tell(|s| s.reserve = None);
    h.node(node("n2").unschedulable());
    for name in ["first", "low", "high"] {
        assert_eq!(h.queue_of(name), "backoff");
    }
    // Failed in seconds 0, 1 and 1: the second counts, then the priority.
    check(
        h.run_binds(),
        "bind default/first -> n1
         bind default/high -> n1
         bind default/low -> n1",
    );
}

#[test]
fn a_change_does_not_end_backoff() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "9")]));
    h.run();
    h.node(node("n2").cpu("9").taint("x", "", "NoSchedule"));
    assert_eq!(h.queue_of("a"), "backoff");
    h.pod(pod("a").req(&[("cpu", "1")]));
    assert_eq!(h.queue_of("a"), "backoff");
    check(h.run_binds(), "bind default/a -> n1");
}

#[test]
fn a_version_already_seen_is_no_update() {
    let mut h = rejected(on(Resource::TargetPod, Actions::ALL));
    let known = h.last("a");
    let mut again = known.clone();
    again.metadata.labels.insert("x".into(), "y".into());
    h.apply(crate::io::Input::Pod(crate::io::Change::Upsert(Box::new(again))));
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.pod(known);
    assert_eq!(h.queue_of("a"), "backoff");
}
