//! NodeNumaFit: no pod goes where the kubelet would refuse it.

mod foreign;
mod ledger;
mod model;
mod quarantine;
mod score;
mod stream;
mod waits;

use muster_api::k8s;
use serde_json::{Value, json};

use super::harness::{Harness, check};
use crate::Config;
use crate::framework::{PluginArgs, Profile, Registry};
use crate::io::Object;
use crate::testing::{PodExt as _, SCHEDULER, node, pod, wire};

pub(super) const GPU: &str = "nvidia.com/gpu";

pub(super) fn harness(args: &Value, nodes: &[&str]) -> Harness {
    harness_with(args, nodes, |_| {})
}

pub(super) fn harness_with(
    args: &Value,
    nodes: &[&str],
    change: impl FnOnce(&mut Config),
) -> Harness {
    let custom = [("NodeNumaFit".to_owned(), args.clone())].into();
    let args = PluginArgs { custom, ..PluginArgs::default() };
    let plugins =
        [("PrioritySort", 0), ("NodeNumaFit", 1), ("DefaultPreemption", 0), ("DefaultBinder", 0)];
    let profile = Profile::build(SCHEDULER, plugins, &args, &Registry::in_tree());
    let profiles = vec![profile.expect("a profile")];
    let mut config = Config { profiles, ..Config::default() };
    change(&mut config);
    let mut h = Harness::of(config);
    for name in nodes {
        h.node(node(name));
    }
    h
}

/// Two NUMA nodes with 16 CPUs and 4 GPUs each; what pods have, by UID: CPUs and GPUs.
pub(super) fn report(
    name: &str,
    version: u32,
    policy: &str,
    held: &[(&str, &str, &[u32])],
) -> Object {
    report_with(name, version, policy, held, &[])
}

/// As [`report`]; some GPUs are broken.
pub(super) fn report_with(
    name: &str,
    version: u32,
    policy: &str,
    held: &[(&str, &str, &[u32])],
    broken: &[u32],
) -> Object {
    let owner = |gpu: u32| held.iter().find(|(_, _, gpus)| gpus.contains(&gpu));
    let devices: Vec<Value> = (0..8)
        .map(|gpu| {
            let mut device = json!({"resource": GPU, "id": format!("GPU-{gpu}"), "numa": [gpu / 4],
                "state": if broken.contains(&gpu) { "Unhealthy" } else { "Free" }});
            if let Some((uid, _, _)) = owner(gpu) {
                device["state"] = "Allocated".into();
                device["pod"] = json!({"namespace": "default", "name": uid, "uid": uid});
            }
            device
        })
        .collect();
    let pods: Vec<Value> = held
        .iter()
        .map(
            |(uid, cpus, _)| json!({"namespace": "default", "name": uid, "uid": uid, "cpus": cpus}),
        )
        .collect();
    let object = json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "hardware": {"hash": "h", "numa": [
            {"id": 0, "socket": 0, "cpus": "0-15", "distances": [10, 21]},
            {"id": 1, "socket": 1, "cpus": "16-31", "distances": [21, 10]},
        ]},
        "kubelet": {"version": "v1.37.1", "topologyManager": {"policy": policy},
            "cpuManager": {"static": true}},
        "status": {"sequence": version, "podSet": {"count": pods.len()}, "devices": devices,
            "pods": pods,
            "numa": [{"id": 0, "cpusFree": "0-15"}, {"id": 1, "cpusFree": "16-31"}]},
    });
    Object::NodeTopology(wire(object))
}

pub(super) fn asks(name: &str, cpus: u32, gpus: u32) -> k8s::Pod {
    let requests = json!({"cpu": cpus.to_string(), "memory": "1Gi", GPU: gpus.to_string()});
    pod(name).edit(|p| {
        p.status.qos_class = "Guaranteed".to_owned();
        p.spec.containers = vec![wire(json!({"name": "c", "resources": {"requests": requests}}))];
    })
}

pub(super) fn message(h: &Harness, name: &str) -> String {
    let view = h.core.queue_view();
    let found = view.pods.iter().find(|p| p.pod == format!("default/{name}"));
    found.map(|p| p.message.clone()).unwrap_or_default()
}

#[test]
fn a_pod_goes_where_the_kubelet_admits_it() {
    let mut h = harness(&json!({}), &["strict", "lenient"]);
    h.object(report("strict", 1, "Restricted", &[]));
    h.object(report("lenient", 1, "SingleNumaNode", &[]));
    // Eight GPUs are on two NUMA nodes, and 20 CPUs are, too.
    h.pod(asks("wide", 20, 8));
    check(h.run_binds(), "bind default/wide -> strict");
    h.pod(asks("narrow", 8, 8));
    h.run();
    let message = message(&h, "narrow");
    for words in
        ["8 nvidia.com/gpu need 2 NUMA nodes, this kubelet allows 1", "(TopologyAffinityError)"]
    {
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn the_message_says_what_would_fit() {
    let mut h = harness(&json!({}), &["n"]);
    h.object(report("n", 1, "Restricted", &[]));
    h.pod(asks("a", 8, 8));
    h.run();
    let message = message(&h, "a");
    let words = "node(s) whose kubelet would refuse the pod (TopologyAffinityError): cpu prefers \
                 1 NUMA node, 8 nvidia.com/gpu need 2: ask for at least 17 CPUs";
    assert!(message.contains(words), "{message}");
}

#[test]
fn pods_go_beside_unseen_ones_if_every_order_is_admitted() {
    let mut h = harness(&json!({}), &["n"]);
    h.object(report("n", 1, "Restricted", &[]));
    for name in ["a", "b"] {
        h.pod(asks(name, 8, 4));
    }
    check(h.run_binds(), "bind default/a -> n\nbind default/b -> n");
    // Now all GPUs are spoken for.
    h.pod(asks("c", 8, 1));
    check(h.run_binds(), "");
}

#[test]
fn a_node_waits_for_its_agent_if_the_order_of_arrival_matters() {
    let mut h = harness(&json!({}), &["n"]);
    h.pod(asks("old", 1, 2).on("n"));
    let old = ("old", "16", &[4, 5][..]);
    h.edit("old", |p| p.metadata.uid = "old".to_owned());
    h.object(report("n", 1, "Restricted", &[old]));
    h.pod(asks("four", 4, 4));
    check(h.run_binds(), "bind default/four -> n");
    // If `two` comes first it takes half of node 0, and four GPUs are on no node then.
    h.pod(asks("two", 4, 2));
    check(h.run_binds(), "");
    let message = message(&h, "two");
    assert!(message.contains("the agent has not seen 1 pod(s) yet"), "{message}");
    let uid = h.last("four").metadata.uid;
    h.object(report("n", 2, "Restricted", &[old, (&uid, "0-3", &[0, 1, 2, 3])]));
    h.sleep(20);
    check(h.run_binds(), "bind default/two -> n");
}

#[test]
fn who_would_be_refused_after_those_that_are_on_the_way_is_told_so() {
    let mut h = harness(&json!({}), &["n"]);
    h.pod(asks("old", 1, 2).on("n"));
    h.object(report("n", 1, "Restricted", &[("uid-old", "16", &[4, 5])]));
    h.pod(asks("two", 4, 2));
    check(h.run_binds(), "bind default/two -> n");
    // `two` takes half of node 0 for certain: nothing that the agent may say will help.
    h.pod(asks("four", 4, 4));
    check(h.run_binds(), "");
    assert!(
        message(&h, "four").contains("but no NUMA node has them free"),
        "{}",
        message(&h, "four")
    );
}

#[test]
fn what_pods_had_that_are_gone_is_free() {
    let mut h = harness(&json!({}), &["n"]);
    h.object(report("n", 1, "Restricted", &[("gone", "0-15", &[0, 1, 2, 3, 4, 5, 6, 7])]));
    h.pod(asks("a", 16, 4));
    check(h.run_binds(), "bind default/a -> n");
}

#[test]
fn nodes_of_which_nothing_is_known_follow_the_arguments() {
    let mut h = harness(&json!({}), &["n"]);
    h.pod(asks("a", 8, 8));
    check(h.run_binds(), "bind default/a -> n");
    let mut h = harness(&json!({"unknownNodes": "Wait"}), &["n"]);
    h.pod(asks("a", 20, 8));
    // Whoever asks for nothing that is aligned goes there.
    h.pod(pod("plain"));
    check(h.run_binds(), "bind default/plain -> n");
    assert!(message(&h, "a").contains("is muster-node-agent running?"), "{}", message(&h, "a"));
    h.object(report("n", 1, "Restricted", &[]));
    h.sleep(20);
    check(h.run_binds(), "bind default/a -> n");
}
