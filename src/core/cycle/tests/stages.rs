//! Updates, deletions and strangers, at every stage of a pod.

use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::framework::Status;
use crate::io::{Kind, WriteError};
use crate::testing::{PodExt as _, node, pod};
use muster_api::k8s;

fn small(name: &str) -> k8s::Pod {
    pod(name).req(&[("cpu", "3")])
}

/// Every stage a pod of ours can be in, and how it gets there.
fn stages() -> Vec<(&'static str, Harness)> {
    let harness = |script: Script| {
        let probe = Probe::new("Probe", script);
        let mut h = Harness::with(profile(&[&probe]));
        h.node(node("n1"));
        h
    };
    let script = Script::default;
    let mut all = Vec::new();
    let mut add = |stage, mut h: Harness, pod: k8s::Pod| {
        h.pod(pod);
        all.push((stage, h));
    };
    add("active", harness(script()), small("a"));
    add("gated", harness(script()), small("a").gate("g"));
    add("backoff", harness(Script { reserve: Some(Status::error("x")), ..script() }), small("a"));
    add("unschedulable", harness(script()), small("a").req(&[("cpu", "64")]));
    add("held", harness(script()), small("a").req(&[("cpu", "64")]));
    add("permit", harness(Script { wait: Some(30), ..script() }), small("a"));
    add("prebind", harness(Script { park: Some("wait"), ..script() }), small("a"));
    add("binding", harness(script()), small("a"));
    add("rebind", harness(script()), small("a"));
    add("settle", harness(script()), small("a"));
    add("answered", harness(script()), small("a"));
    add("bound", harness(script()), small("a"));
    for (stage, h) in &mut all {
        if *stage == "active" {
            continue;
        }
        h.run();
        match *stage {
            "held" => h.hold("a"),
            "rebind" => h.answer("a", Err(WriteError::Unknown("timeout".into()))),
            "settle" => h.answer("a", Err(WriteError::Conflict("conflict".into()))),
            "answered" => h.answer("a", Ok(())),
            "bound" => h.bound("a", "n1"),
            _ => assert_eq!(h.queue_of("a"), *stage),
        }
        h.effects();
    }
    all
}

#[test]
fn a_deleted_pod_leaves_nothing_behind_at_any_stage() {
    for (stage, mut h) in stages() {
        h.gone("a");
        assert_eq!(h.cache(), ["n1: "], "{stage}");
        assert_eq!(h.queue_of("a"), "none", "{stage}");
        h.assert_idle();
        h.sleep(60);
        assert_eq!(h.run(), [""; 0], "{stage}");
        // Its room is free again, its ids are not in the way.
        h.pod(pod("b").req(&[("cpu", "4")]));
        h.pod(small("c"));
        h.run();
        assert_ne!(h.queue_of("b"), "none", "{stage}");
        assert_ne!(h.queue_of("c"), "none", "{stage}");
    }
}

#[test]
fn a_pod_that_ended_leaves_nothing_behind_at_any_stage() {
    for phase in ["Succeeded", "Failed"] {
        for (stage, mut h) in stages() {
            h.edit("a", |p| p.status.phase = phase.into());
            assert_eq!(h.cache(), ["n1: "], "{stage}");
            h.assert_idle();
        }
    }
}

#[test]
fn a_pod_recreated_under_its_name_starts_afresh_at_any_stage() {
    for (stage, mut h) in stages() {
        h.pod(pod("a").uid("other").req(&[("cpu", "4")]));
        assert_eq!((h.queue_of("a"), h.attempts("a")), ("active", 0), "{stage}");
        assert_eq!(h.cache(), ["n1: "], "{stage}");
    }
}

#[test]
fn an_answer_for_an_older_incarnation_is_ignored() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(small("a"));
    check(h.run(), "bind default/a -> n1");
    let (old, attempt) = h.last_bind("a");
    h.pod(small("a").uid("other"));
    check(h.run(), "bind default/a -> n1");
    h.apply(crate::io::Input::BindDone { pod: old, attempt, result: Ok(()) });
    assert_eq!((h.effects().len(), h.queue_of("a")), (0, "binding"));
    // A late deletion of the old one does not touch the new one either.
    let key =
        crate::io::ObjectKey { namespace: "default".into(), name: "a".into(), uid: "uid-a".into() };
    h.apply(crate::io::Input::Pod(crate::io::Change::Delete(key)));
    assert_eq!(h.queue_of("a"), "binding");
}

#[test]
fn a_pod_bound_elsewhere_by_others_gives_our_room_back_at_any_stage() {
    for (stage, mut h) in stages() {
        if stage == "bound" || stage == "answered" {
            continue;
        }
        h.node(node("n2"));
        h.edit("a", |p| "n2".clone_into(&mut p.spec.node_name));
        assert_eq!(h.cache(), ["n1: ", "n2: default/a"], "{stage}");
        h.assert_idle();
        h.sleep(60);
        assert_eq!(h.run(), [""; 0], "{stage}");
    }
}

#[test]
fn only_a_bind_of_ours_is_announced() {
    let announced = "Normal default/a Scheduled: Successfully assigned default/a to n1";
    for (stage, mut h) in stages() {
        if stage == "bound" || stage == "answered" {
            continue;
        }
        h.edit("a", |p| "n1".clone_into(&mut p.spec.node_name));
        let ours = ["binding", "rebind", "settle"].contains(&stage);
        assert_eq!(h.effects(), if ours { vec![announced] } else { vec![] }, "{stage}");
        assert_eq!(h.cache(), ["n1: default/a"], "{stage}");
        h.assert_idle();
    }
}

#[test]
fn an_update_is_never_the_end_of_a_pod() {
    for (stage, mut h) in stages() {
        let before = h.queue_of("a");
        h.edit("a", |p| drop(p.metadata.labels.insert("a".into(), "b".into())));
        assert_eq!(h.queue_of("a"), before, "{stage}");
        h.edit("a", |p| p.spec.priority = Some(5));
        assert_eq!(h.queue_of("a"), before, "{stage}");
        h.edit("a", |p| {
            p.spec.containers.truncate(1);
            p.spec.containers[0].resources.requests = crate::testing::resources(&[("cpu", "1")]);
            p.spec.scheduling_gates.clear();
        });
        let after = h.queue_of("a");
        match stage {
            "gated" => assert_eq!(after, "active"),
            "unschedulable" => assert_eq!(after, "backoff"),
            _ => assert_eq!(after, before, "{stage}"),
        }
        let placed = matches!(
            stage,
            "permit" | "prebind" | "binding" | "rebind" | "settle" | "answered" | "bound"
        );
        assert_eq!(h.cache()[0] == "n1: default/a", placed, "{stage}");
    }
}

#[test]
fn a_pod_that_is_being_deleted_is_skipped() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").deleting());
    check(h.run(), "Warning default/a FailedScheduling: skip schedule deleting pod: default/a");
    h.assert_idle();
    h.gone("a");
    assert_eq!(h.core.pending_counts().pods, 0);
}

#[test]
fn a_pod_deleted_while_it_waits_at_permit_gives_its_room_back_at_once() {
    for (stage, mut h) in stages() {
        h.edit("a", |p| p.metadata.deletion_timestamp = Some(k8s::Time(0)));
        if stage == "permit" {
            assert_eq!(h.cache(), ["n1: "]);
            h.assert_idle();
        }
        h.sleep(20);
        h.run();
        h.gone("a");
        assert_eq!(h.cache(), ["n1: "], "{stage}");
        h.assert_idle();
    }
}

#[test]
fn pods_of_other_schedulers_are_left_alone_but_take_room() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(small("foreign").scheduler("default-scheduler"));
    check(h.run(), "");
    assert_eq!((h.queue_of("foreign"), h.core.pending_counts().pods), ("none", 0));
    h.edit("foreign", |p| "n1".clone_into(&mut p.spec.node_name));
    assert_eq!(h.cache(), ["n1: default/foreign"]);
    h.pod(small("ours"));
    assert_eq!(h.run_binds(), [""; 0]);
    h.gone("foreign");
    h.sleep(1);
    check(h.run_binds(), "bind default/ours -> n1");
}

#[test]
fn a_node_that_goes_takes_no_reservation_with_it() {
    let all = Vec::new(); // A Permit plugin that asked for no events.
    let probe = Probe::new("Probe", Script { wait: Some(60), events: all, ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(small("a"));
    check(h.run(), "");
    h.node(node("n2"));
    h.node_gone("n1");
    check(
        h.effects(),
        "Warning default/a FailedScheduling: 0/1 nodes are available: 1 node n1 was deleted.
         status default/a false Unschedulable: 0/1 nodes are available: 1 node n1 was deleted.",
    );
    probe.tell(|s| s.wait = None);
    h.sleep(2);
    check(h.run(), "bind default/a -> n2");
    h.bound("a", "n2");
    h.assert_idle();
}

#[test]
fn a_node_deleted_under_a_bind_does_not_lose_the_pod() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(small("a"));
    check(h.run(), "bind default/a -> n1");
    h.node_gone("n1");
    h.node(node("n2"));
    h.answer("a", Err(WriteError::Rejected("no such node".into())));
    h.sleep(2);
    check(h.run_binds(), "bind default/a -> n2");
}

#[test]
fn pods_of_a_node_that_went_and_came_back_still_take_its_room() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(small("old").on("n1"));
    h.node_gone("n1");
    h.pod(small("ghost").on("n3"));
    h.pod(small("a"));
    assert_eq!(h.run_binds(), [""; 0]);
    h.node(node("n1"));
    h.node(node("n3"));
    h.sleep(3);
    assert_eq!(h.run_binds(), [""; 0]);
    assert_eq!(h.cache(), ["n1: default/old", "n3: default/ghost"]);
    h.gone("old");
    check(h.run_binds(), "bind default/a -> n1");
}

#[test]
fn a_relist_removes_what_it_does_not_show() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.node(node("n2"));
    h.pod(small("bound").on("n1"));
    h.pod(small("queued"));
    h.pod(small("kept").on("n2"));
    h.relist(Kind::Pod, |h| {
        // Same resourceVersion as before: seen all the same.
        let kept = small("kept").on("n2").pod_version("3");
        let change = crate::io::Change::Upsert(Box::new(kept));
        h.apply(crate::io::Input::Pod(change));
    });
    assert_eq!(h.cache(), ["n1: ", "n2: default/kept"]);
    check(h.run(), "");
    h.relist(Kind::Node, |h| h.node(node("n1")));
    assert_eq!(h.cache(), ["n1: "]);
    h.pod(small("new"));
    check(h.run(), "bind default/new -> n1");
}

#[test]
fn a_relist_that_misses_a_reserved_node_plans_its_pods_again() {
    let probe = Probe::new("Probe", Script { wait: Some(60), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(small("a"));
    h.run();
    h.relist(Kind::Node, |h| h.node(node("n2")));
    assert_eq!(h.queue_of("a"), "backoff");
    assert_eq!(h.cache(), ["n2: "]);
}

#[test]
fn malformed_objects_are_skipped_and_counted() {
    let mut h = Harness::new();
    h.node(node(""));
    h.apply(crate::io::Input::Pod(crate::io::Change::Upsert(Box::new(pod("")))));
    let malformed =
        |o: &crate::report::Observation| matches!(o, crate::report::Observation::Malformed { .. });
    assert_eq!(h.core.take_observations().iter().filter(|o| malformed(o)).count(), 2);
    let counts = h.core.pending_counts();
    assert_eq!((counts.nodes, counts.pods), (0, 0));
}
