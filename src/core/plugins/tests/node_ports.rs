//! NodePorts.

use serde_json::json;

use super::{judge, on_add, on_delete, registration};
use crate::framework::{Actions, Hint, Plugin, Resource};
use crate::plugins::NodePorts;
use crate::testing::{ClusterExt, PodExt, cluster, node, pod};

#[test]
fn one_host_port_has_one_pod() {
    const NO: &str = "U: node(s) didn't have free ports for the requested pod ports";
    let port = |port, protocol, ip| pod("p").host_port(port, protocol, ip);
    let table = [
        ("a pod without host ports is not looked at", pod("p"), port(80, "", ""), "skip"),
        ("host port 0 is none", port(0, "", ""), port(80, "", ""), "skip"),
        ("another port is free", port(81, "", ""), port(80, "", ""), "ok"),
        ("the same port is taken", port(80, "", ""), port(80, "", ""), NO),
        ("no protocol is TCP", port(80, "TCP", ""), port(80, "", ""), NO),
        ("another protocol is free", port(80, "UDP", ""), port(80, "TCP", ""), "ok"),
        ("no address is all addresses", port(80, "", "10.0.0.1"), port(80, "", ""), NO),
        ("all addresses clash with any", port(80, "", "0.0.0.0"), port(80, "", "10.0.0.1"), NO),
        ("another address is free", port(80, "", "10.0.0.2"), port(80, "", "10.0.0.1"), "ok"),
        ("the same address is taken", port(80, "", "10.0.0.1"), port(80, "", "10.0.0.1"), NO),
        (
            "any one of several clashes",
            port(81, "", "").host_port(80, "", ""),
            port(80, "", ""),
            NO,
        ),
    ];
    for (row, asks, has, expected) in table {
        let mut nodes = cluster([node("n")]);
        nodes.add_wire_pod(&has.on("n"));
        assert_eq!(judge(&NodePorts, &mut nodes, &asks), [expected], "{row}");
    }
}

#[test]
fn ports_of_sidecars_count_and_those_of_init_containers_do_not() {
    let init = |policy: Option<&str>| {
        let container = json!({"ports": [{"hostPort": 80}], "restartPolicy": policy});
        pod("p").edit(|p| p.spec.init_containers.push(crate::testing::wire(container)))
    };
    let mut nodes = cluster([node("n")]);
    nodes.add_wire_pod(&pod("x").host_port(80, "", "").on("n"));
    assert_eq!(judge(&NodePorts, &mut nodes, &init(None)), ["skip"]);
    let taken = judge(&NodePorts, &mut nodes, &init(Some("Always")));
    assert!(taken[0].starts_with("U: "), "{taken:?}");
}

#[test]
fn a_port_is_free_again_when_its_pod_leaves() {
    let mut nodes = cluster([node("n")]);
    let asks = pod("p").host_port(80, "", "");
    let twice = pod("x").host_port(80, "", "").host_port(80, "", "").on("n");
    let gone = nodes.add_wire_pod(&twice);
    assert_ne!(judge(&NodePorts, &mut nodes, &asks), ["ok"]);
    nodes.drop_pod(gone);
    assert_eq!(judge(&NodePorts, &mut nodes, &asks), ["ok"]);
}

#[test]
fn a_pod_waits_for_a_port_it_shares_with_one_that_leaves() {
    let plugin = NodePorts;
    let events = [
        registration(Resource::AssignedPod, Actions::DELETE),
        registration(Resource::Node, Actions::ADD),
    ];
    assert_eq!(plugin.events(), events);
    let wants = pod("p").host_port(80, "", "10.0.0.1");
    let table = [
        ("the pod on the same port leaves", pod("x").host_port(80, "", ""), Hint::Queue),
        ("a pod on another port leaves", pod("x").host_port(81, "", ""), Hint::Skip),
        ("a pod on another address leaves", pod("x").host_port(80, "", "10.0.0.2"), Hint::Skip),
        ("a pod without host ports leaves", pod("x").req(&[]), Hint::Skip),
    ];
    for (row, gone, expected) in table {
        assert_eq!(on_delete(&plugin, &wants, &gone), expected, "{row}");
    }
    assert_eq!(on_add(&plugin, &wants, &node("n")), Hint::Queue, "a node joins");
}
