//! Which events wake which pods, and what is remembered for pods in flight.

use super::harness::{Harness, check};
use super::probe::{Probe, Script, node_events, profile};
use crate::framework::{Actions, Registration, Resource, Status};
use crate::testing::{NodeExt as _, PodExt as _, node, pod, wire};
use muster_api::k8s;
use serde_json::json;

/// A node and a pod it rejects, an event that cannot help and one that does.
struct Case {
    plugin: &'static str,
    nodes: Vec<k8s::Node>,
    pod: k8s::Pod,
    idle: fn(&mut Harness),
    help: fn(&mut Harness),
}

fn full() -> k8s::Pod {
    pod("full").req(&[("cpu", "4")]).on("n1")
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            plugin: "NodeResourcesFit: a node grows",
            nodes: vec![node("n1")],
            pod: pod("a").req(&[("cpu", "6")]),
            idle: |h| {
                h.node(node("n1").cpu("5"));
                h.node(node("n1").cpu("5").label("a", "b"));
                h.node(node("n2").cpu("5"));
                h.node(node("n1").cpu("5").memory("16Gi"));
            },
            help: |h| h.node(node("n1").cpu("10")),
        },
        Case {
            plugin: "NodeResourcesFit: a pod leaves",
            nodes: vec![node("n1")],
            pod: pod("a").req(&[("cpu", "1")]),
            idle: |h| h.node(node("n1").taint("x", "", "PreferNoSchedule")),
            help: |h| h.gone("full"),
        },
        Case {
            plugin: "NodeResourcesFit: a pod shrinks",
            nodes: vec![node("n1")],
            pod: pod("a").req(&[("cpu", "1")]),
            idle: |h| h.edit("full", |p| drop(p.metadata.labels.insert("a".into(), "b".into()))),
            help: |h| h.pod(pod("full").req(&[("cpu", "1")]).on("n1")),
        },
        Case {
            plugin: "NodeResourcesFit: the pod itself shrinks",
            nodes: vec![node("n1").cpu("6")],
            pod: pod("a").req(&[("cpu", "4")]),
            idle: |h| h.edit("a", |p| drop(p.metadata.labels.insert("a".into(), "b".into()))),
            help: |h| h.pod(pod("a").req(&[("cpu", "2")])),
        },
        Case {
            plugin: "TaintToleration",
            nodes: vec![node("n1").taint("gpu", "", "NoSchedule")],
            pod: pod("a"),
            idle: |h| {
                h.node(node("n1").taint("gpu", "", "NoSchedule").cpu("64"));
                h.node(node("n1").taint("cpu", "", "NoSchedule"));
                h.node(node("n2").taint("cpu", "", "NoSchedule"));
            },
            help: |h| h.node(node("n1")),
        },
        Case {
            plugin: "TaintToleration: the pod tolerates more",
            nodes: vec![node("n1").taint("gpu", "", "NoSchedule")],
            pod: pod("a"),
            idle: |h| h.edit("a", |p| drop(p.metadata.labels.insert("a".into(), "b".into()))),
            help: |h| h.pod(pod("a").tolerate("gpu", "Exists", "", "")),
        },
        Case {
            plugin: "NodeUnschedulable",
            nodes: vec![node("n1").unschedulable()],
            pod: pod("a"),
            idle: |h| h.node(node("n1").unschedulable().label("a", "b")),
            help: |h| h.node(node("n1")),
        },
        Case {
            plugin: "NodeAffinity",
            nodes: vec![node("n1")],
            pod: pod("a").node_selector("zone", "a"),
            idle: |h| {
                h.node(node("n1").label("zone", "b"));
                h.node(node("n1").label("zone", "b").cpu("64"));
                h.gone("full");
            },
            help: |h| h.node(node("n1").label("zone", "a")),
        },
        Case {
            plugin: "NodePorts",
            nodes: vec![node("n1").cpu("64")],
            pod: pod("a").host_port(80, "TCP", ""),
            idle: |h| {
                h.node(node("n1").cpu("65"));
                h.gone("full");
            },
            help: |h| h.gone("web"),
        },
        Case {
            plugin: "NodeUnschedulable: the pod tolerates cordons",
            nodes: vec![node("n1").unschedulable()],
            pod: pod("a"),
            idle: |h| h.pod(pod("a").tolerate("gpu", "Exists", "", "")),
            help: |h| h.pod(pod("a").tolerate("", "Exists", "", "")),
        },
        Case {
            plugin: "InterPodAffinity: a friend comes",
            nodes: vec![node("n1").label("host", "n1").cpu("64")],
            pod: near("a", "podAffinity", "db"),
            idle: |h| {
                h.gone("full");
                h.gone("web");
                h.pod(pod("stranger").on("n1"));
                h.node(node("n1").label("host", "n1").cpu("65"));
            },
            help: |h| h.pod(pod("db").pod_label("app", "db").on("n1")),
        },
        Case {
            plugin: "InterPodAffinity: a foe goes",
            nodes: vec![node("n1").label("host", "n1").cpu("64")],
            pod: near("a", "podAntiAffinity", "web"),
            idle: |h| {
                h.gone("full");
                h.pod(pod("stranger").on("n1"));
                h.node(node("n1").label("host", "n1").label("x", "y").cpu("65"));
            },
            help: |h| h.gone("web"),
        },
        Case {
            plugin: "PodTopologySpread: a pod that counts goes",
            nodes: vec![
                node("n1").label("zone", "a").cpu("64"),
                node("n2").label("zone", "b").unschedulable(),
            ],
            pod: spread("a", "web"),
            idle: |h| {
                h.gone("full");
                h.node(node("n1").label("zone", "a").label("x", "y").cpu("65"));
            },
            help: |h| h.gone("web"),
        },
    ]
}

/// A pod that must be near pods of an app, or must not.
fn near(name: &str, kind: &str, app: &str) -> k8s::Pod {
    let selector = json!({"matchLabels": {"app": app}});
    let terms = json!([{"topologyKey": "host", "labelSelector": selector}]);
    let affinity = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    pod(name).edit(|p| p.spec.affinity = Some(wire(affinity)))
}

/// A pod of an app that is spread over zones.
fn spread(name: &str, app: &str) -> k8s::Pod {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    });
    let list = wire(json!([constraint]));
    pod(name).pod_label("app", app).edit(|p| p.spec.topology_spread_constraints = list)
}

#[test]
fn an_event_that_helps_wakes_at_once_and_one_that_does_not_never() {
    for case in cases() {
        let mut h = Harness::new();
        case.nodes.into_iter().for_each(|n| h.node(n));
        h.pod(full());
        h.pod(pod("web").pod_label("app", "web").host_port(80, "TCP", "").on("n1"));
        h.pod(case.pod);
        assert_eq!(h.run_binds(), [""; 0], "{}", case.plugin);
        assert_eq!(h.queue_of("a"), "unschedulable", "{}", case.plugin);
        (case.idle)(&mut h);
        assert_eq!(h.queue_of("a"), "unschedulable", "{}", case.plugin);
        h.sleep(15);
        (case.help)(&mut h);
        assert_eq!(h.queue_of("a"), "active", "{}", case.plugin);
        assert_eq!(h.run_binds().len(), 1, "{}", case.plugin);
    }
}

#[test]
fn a_new_image_does_not_wake_a_pod_that_lacks_room() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").container("one").req(&[("cpu", "64")]));
    h.run();
    h.edit("a", |p| p.spec.containers[0].image = "two".into());
    assert_eq!(h.queue_of("a"), "unschedulable");
    // Its group is now that of its new shape: the event still finds it.
    h.node(node("n2").cpu("64"));
    check(h.run_binds(), "bind default/a -> n2");
}

#[test]
fn an_event_is_weighed_once_for_all_pods_of_a_shape() {
    let script = Script {
        filter: Some(Status::unschedulable("no")),
        events: node_events(),
        ..Script::default()
    };
    let probe = Probe::new("Probe", script);
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    for i in 0..10 {
        h.pod(pod(&format!("a{i}")).req(&[("cpu", "1")]));
        h.pod(pod(&format!("b{i}")).req(&[("cpu", "2")]));
    }
    h.run();
    assert_eq!(h.core.pending_counts().unschedulable, 20);
    probe.calls();
    h.node(node("n2"));
    check(probe.calls(), "hint Probe\nhint Probe");
    assert_eq!(h.core.pending_counts().backoff, 20);
}

#[test]
fn only_plugins_that_rejected_the_pod_are_asked() {
    let deaf = Probe::new("Deaf", Script { events: node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&deaf]));
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "64")]));
    h.run();
    deaf.calls();
    h.node(node("n2"));
    check(deaf.calls(), "");
    assert_eq!(h.queue_of("a"), "unschedulable");
}

fn at_permit(events: Vec<Registration>) -> (Harness, Probe) {
    let probe = Probe::new("Probe", Script { wait: Some(30), events, ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "1")]));
    check(h.run(), "");
    assert_eq!(h.queue_of("a"), "permit");
    (h, probe)
}

#[test]
fn an_event_that_helps_while_a_pod_is_in_flight_is_not_lost() {
    let (mut h, _) = at_permit(node_events());
    h.node(node("n2").unschedulable());
    h.permit("a", "Probe", Err("no"));
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn an_event_that_does_not_help_a_pod_in_flight_is_not_replayed() {
    let (mut h, _) = at_permit(node_events());
    h.node(node("n1").label("a", "b")); // An update: the plugin asked for new nodes.
    h.permit("a", "Probe", Err("no"));
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn an_event_before_the_pod_was_popped_is_not_replayed() {
    let probe =
        Probe::new("Probe", Script { wait: Some(30), events: node_events(), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("first"));
    h.run(); // In flight: events are kept.
    h.node(node("n2").unschedulable());
    h.pod(pod("a"));
    h.run();
    h.permit("a", "Probe", Err("no"));
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.permit("first", "Probe", Err("no"));
    assert_eq!(h.queue_of("first"), "backoff");
}

#[test]
fn a_rejected_pod_is_not_woken_by_its_own_release() {
    let all = vec![Registration { resource: Resource::Any, actions: Actions::ALL }];
    let (mut h, _) = at_permit(all);
    // Waits for room, which the release below makes.
    h.pod(pod("b").req(&[("cpu", "4")]));
    assert_eq!(h.run().len(), 2);
    h.permit("a", "Probe", Err("no"));
    assert_eq!((h.queue_of("a"), h.queue_of("b")), ("unschedulable", "backoff"));
}

#[test]
fn a_pod_that_reserve_refuses_neither_wakes_itself_nor_others() {
    let script = Script {
        reserve: Some(Status::unschedulable("busy")),
        events: vec![Registration { resource: Resource::Any, actions: Actions::ALL }],
        ..Script::default()
    };
    let probe = Probe::new("Probe", script);
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("huge").req(&[("cpu", "64")]));
    h.run();
    h.pod(pod("a"));
    check(
        h.run(),
        "Warning default/a FailedScheduling: 0/1 nodes are available: 1 busy.
         status default/a false Unschedulable: 0/1 nodes are available: 1 busy.",
    );
    assert_eq!((h.queue_of("a"), h.queue_of("huge")), ("unschedulable", "unschedulable"));
}

#[test]
fn an_update_of_one_pod_in_flight_does_not_wake_another() {
    let target = vec![Registration {
        resource: Resource::TargetPod,
        actions: Actions::UPDATE_POD_TOLERATION,
    }];
    let (mut h, _) = at_permit(target);
    h.pod(pod("b").req(&[("cpu", "1")]));
    h.run();
    h.pod(pod("b").req(&[("cpu", "1")]).tolerate("gpu", "Exists", "", ""));
    h.permit("a", "Probe", Err("no"));
    h.permit("b", "Probe", Err("no"));
    assert_eq!((h.queue_of("a"), h.queue_of("b")), ("unschedulable", "backoff"));
}

#[test]
fn what_a_pod_became_while_it_waited_at_permit_counts_when_it_is_tried_again() {
    let (mut h, probe) = at_permit(node_events());
    h.pod(pod("a").req(&[("cpu", "3")]));
    h.permit("a", "Probe", Err("no"));
    probe.tell(|s| s.wait = None);
    h.node(node("n0").cpu("2"));
    h.sleep(5);
    check(h.run_binds(), "bind default/a -> n1");
    assert_eq!(h.core.cache_view().nodes[1].requested["cpu"], 3_000);
}

#[test]
fn more_events_than_are_kept_count_as_one_that_helps() {
    let (mut h, _) = at_permit(Vec::new());
    for i in 0..5_000 {
        h.node(node("n1").label("i", &i.to_string()));
    }
    h.permit("a", "Probe", Err("no"));
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn a_waiting_pod_is_weighed_as_what_it_has_become() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "5")]));
    h.run();
    // It asks for more now; a node that would have done does no longer.
    h.pod(pod("a").req(&[("cpu", "9")]));
    h.node(node("n1").cpu("6"));
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.node(node("n1").cpu("9"));
    assert_eq!(h.queue_of("a"), "backoff");
}
