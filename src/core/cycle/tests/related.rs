//! Pods that are placed by other pods: from arrival to bind, and waking up.

use serde_json::json;

use super::harness::Harness;
use crate::io::{Input, Kind, Object, ObjectKey};
use crate::testing::{NodeExt as _, PodExt as _, node, pod, wire};
use muster_api::k8s;

const HOST: &str = "kubernetes.io/hostname";

fn host(name: &str) -> k8s::Node {
    node(name).label(HOST, name)
}

/// A pod of a set of which no two go to one host. The index must not matter.
fn apart(name: &str) -> k8s::Pod {
    let term = json!({"topologyKey": HOST, "labelSelector": {"matchLabels": {"set": "s"}}});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
    pod(name).pod_label("set", "s").pod_label("index", name).edit(|p| {
        p.spec.affinity.get_or_insert_default().pod_anti_affinity = Some(wire(required));
    })
}

fn nodes_of(binds: &[String]) -> Vec<String> {
    let mut nodes: Vec<String> =
        binds.iter().filter_map(|b| b.split_whitespace().last().map(str::to_owned)).collect();
    nodes.sort_unstable();
    nodes
}

#[test]
fn a_set_takes_a_host_each_and_the_rest_waits_until_one_leaves() {
    let mut h = Harness::new();
    ["n1", "n2", "n3"].into_iter().for_each(|n| h.node(host(n)));
    for name in ["a", "b", "c", "d"] {
        h.pod(apart(name));
    }
    let binds = h.run_binds();
    assert_eq!(nodes_of(&binds), ["n1", "n2", "n3"], "{binds:?}");
    assert_eq!(h.queue_of("d"), "unschedulable");
    let a = binds.iter().find(|b| b.contains("/a ")).or(binds.first()).cloned().unwrap_or_default();
    let node = nodes_of(&[a])[0].clone();
    h.bound("a", &node);
    h.pod(pod("stranger").on("n1"));
    assert_eq!(h.queue_of("d"), "unschedulable", "a stranger does not help");
    h.gone("a");
    h.sleep(30);
    let binds = h.run_binds();
    assert_eq!(nodes_of(&binds), [node]);
}

#[test]
fn a_pod_that_waits_hears_of_terms_that_come_later() {
    let mut h = Harness::new();
    h.node(host("n1"));
    // Gated, so that it is compiled before anybody keeps away from it.
    h.pod(pod("late").pod_label("set", "s").gate("wait"));
    h.pod(apart("first").on("n1"));
    h.edit("late", |p| p.spec.scheduling_gates.clear());
    assert!(h.run_binds().is_empty(), "n1 is taken");
    h.edit("first", |p| p.metadata.deletion_timestamp = Some(k8s::Time(0)));
    assert!(h.run_binds().is_empty(), "affinity counts terminating pods");
    h.gone("first");
    h.sleep(30);
    assert_eq!(h.run_binds().len(), 1);
}

#[test]
fn a_service_spreads_its_pods_from_when_it_exists() {
    let mut h = Harness::new();
    h.node(host("n1").cpu("64"));
    h.node(host("n2").cpu("2"));
    h.pod(pod("x").pod_label("app", "x").req(&[("cpu", "100m")]).on("n1"));
    h.pod(pod("y").pod_label("app", "x").req(&[("cpu", "100m")]).on("n1"));
    let service = json!({
        "metadata": {"namespace": "default", "name": "s"},
        "spec": {"selector": {"app": "x"}},
    });
    h.apply(Input::Object(Box::new(Object::Service(wire(service)))));
    h.pod(pod("z").pod_label("app", "x").req(&[("cpu", "100m")]));
    assert_eq!(nodes_of(&h.run_binds()), ["n2"], "although n1 is emptier");
    let key = ObjectKey { namespace: "default".into(), name: "s".into(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::Service, key));
    h.pod(pod("w").pod_label("app", "x").req(&[("cpu", "100m")]));
    assert_eq!(nodes_of(&h.run_binds()), ["n1"]);
}

#[test]
fn a_relist_forgets_objects_it_did_not_show() {
    let mut h = Harness::new();
    let namespace = |name: &str| {
        Input::Object(Box::new(Object::Namespace(wire(json!({"metadata": {"name": name}})))))
    };
    h.relist(Kind::Namespace, |h| ["a", "b"].into_iter().for_each(|n| h.apply(namespace(n))));
    h.relist(Kind::Namespace, |h| h.apply(namespace("b")));
    let stale = h.core.cluster.stale_related(Kind::Namespace, u64::MAX);
    assert_eq!(stale, [(String::new(), "b".to_owned())]);
}
