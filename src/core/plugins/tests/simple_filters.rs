//! NodeName and NodeUnschedulable.

use super::{judge, on_add, on_own_update, on_update, registration};
use crate::framework::{Actions, Hint, Plugin, Resource};
use crate::plugins::{NodeName, NodeUnschedulable};
use crate::testing::{NodeExt, PodExt, cluster, node, pod};

const CORDON: &str = "node.kubernetes.io/unschedulable";

#[test]
fn a_pod_that_names_a_node_is_kept_to_it() {
    let table = [
        ("a pod that names no node may go anywhere", pod("p"), vec!["skip"]),
        ("a named node is the only one looked at", pod("p").on("b"), vec!["outside", "ok"]),
        ("a name nobody has leaves no node", pod("p").on("c"), vec!["outside", "outside"]),
    ];
    for (row, pod, expected) in table {
        let mut nodes = cluster([node("a"), node("b")]);
        assert_eq!(judge(&NodeName, &mut nodes, &pod), expected, "{row}");
    }
}

#[test]
fn node_name_rejects_another_node_when_asked_of_it_alone() {
    let mut nodes = cluster([node("a")]);
    let shape = crate::testing::ClusterExt::shape_of(&mut nodes, &pod("p").on("b"));
    let id = nodes.node_by_name("a").unwrap();
    let status = NodeName.as_filter().unwrap().filter(&None, &shape, nodes.view(id)).unwrap_err();
    assert_eq!(super::words(&status), "UU: node(s) didn't match the requested node name");
}

#[test]
fn a_new_node_wakes_pods_that_wait_for_a_name() {
    assert_eq!(NodeName.events(), [registration(Resource::Node, Actions::ADD)]);
    assert_eq!(on_add(&NodeName, &pod("p").on("a"), &node("a")), Hint::Queue);
}

#[test]
fn a_cordoned_node_takes_only_pods_that_tolerate_it() {
    const NO: &str = "UU: node(s) were unschedulable";
    let table = [
        ("a pod without tolerations is kept off", pod("p"), NO),
        ("Exists tolerates", pod("p").tolerate(CORDON, "Exists", "", "NoSchedule"), "ok"),
        ("an empty effect covers NoSchedule", pod("p").tolerate(CORDON, "Exists", "", ""), "ok"),
        ("Equal compares with the empty value", pod("p").tolerate(CORDON, "", "", ""), "ok"),
        ("Equal with a value does not", pod("p").tolerate(CORDON, "Equal", "x", ""), NO),
        ("another effect does not", pod("p").tolerate(CORDON, "Exists", "", "NoExecute"), NO),
        ("another key does not", pod("p").tolerate("gpu", "Exists", "", ""), NO),
        ("an empty key with Exists tolerates all", pod("p").tolerate("", "Exists", "", ""), "ok"),
        ("an unknown operator tolerates nothing", pod("p").tolerate(CORDON, "Gt", "1", ""), NO),
    ];
    for (row, pod, expected) in table {
        let mut nodes = cluster([node("up"), node("down").unschedulable()]);
        assert_eq!(judge(&NodeUnschedulable, &mut nodes, &pod), ["ok", expected], "{row}");
    }
}

#[test]
fn uncordoning_wakes_pods_and_cordoning_does_not() {
    let plugin = NodeUnschedulable;
    let events = [
        registration(Resource::Node, Actions::ADD | Actions::UPDATE_NODE_TAINT),
        registration(Resource::TargetPod, Actions::UPDATE_POD_TOLERATION),
    ];
    assert_eq!(plugin.events(), events);
    let (up, down, p) = (node("n"), node("n").unschedulable(), pod("p"));
    assert_eq!(on_add(&plugin, &p, &up), Hint::Queue, "a schedulable node joins");
    assert_eq!(on_add(&plugin, &p, &down), Hint::Skip, "a cordoned node joins");
    assert_eq!(on_update(&plugin, &p, &down, &up), Hint::Queue, "uncordoned");
    assert_eq!(on_update(&plugin, &p, &up, &down), Hint::Skip, "cordoned");
    let tainted = up.clone().taint("k", "", "NoSchedule");
    assert_eq!(on_update(&plugin, &p, &up, &tainted), Hint::Skip, "schedulable all along");
    let own = |pod| on_own_update(&plugin, &pod, Actions::UPDATE_POD_TOLERATION);
    assert_eq!(own(p.tolerate(CORDON, "Exists", "", "")), Hint::Queue, "it tolerates cordons");
    assert_eq!(own(pod("p").tolerate("gpu", "Exists", "", "")), Hint::Skip, "not this one");
}
