//! What is known of a node's devices, and how it follows the pods on it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Holder;
use crate::cluster::{Cluster, NodeId, Txn};
use crate::io::{Object, Tick};
use crate::model::{PodId, Predicted};
use crate::testing::{ClusterExt as _, PodExt as _, node, pod, wire};

const GPU: &str = "example.com/gpu";

/// Four GPUs; which pods have which, by UID.
fn cluster(held: &[(&str, &[u32])]) -> (Cluster, NodeId) {
    let mut cluster = Cluster::default();
    let id = cluster.upsert_node(&node("n"), 0).node;
    let owner = |gpu: u32| held.iter().find(|(_, gpus)| gpus.contains(&gpu));
    let device = |gpu: u32| {
        let mut device = json!({"resource": GPU, "id": format!("gpu-{gpu}"), "numa": [gpu / 2],
            "state": if gpu == 3 { "Unhealthy" } else { "Free" }});
        if let Some((uid, _)) = owner(gpu) {
            device["state"] = "Allocated".into();
            device["pod"] = json!({"namespace": "default", "name": uid, "uid": uid});
        }
        device
    };
    let devices: Vec<Value> = (0..4).map(device).collect();
    let report = json!({"metadata": {"name": "n"},
        "hardware": {"numa": [{"id": 0, "cpus": "0-3"}, {"id": 1, "cpus": "4-7"}]},
        "kubelet": {"topologyManager": {"policy": "Restricted"}},
        "status": {"podSet": {"count": 0}, "devices": devices}});
    let report = Object::NodeTopology(wire(report));
    cluster.set_node_topology(Tick::default(), &report, 0).expect("a good report");
    (cluster, id)
}

fn asks(cluster: &mut Cluster, name: &str, gpus: &str) -> PodId {
    cluster.add_wire_pod(&pod(name).req(&[(GPU, gpus)]))
}

/// One letter for each device: free, broken, taken, or the first of the name of the pod that
/// it is predicted for; then how many are open.
fn shown(cluster: &Cluster, node: NodeId) -> String {
    let devices = cluster.view(node).devices().expect("a report");
    let letter = |holder: &Holder| match holder {
        Holder::Free => '.',
        Holder::Broken => '!',
        Holder::Taken => '#',
        Holder::Predicted(pod) => {
            let pod = cluster.pod(*pod).expect("a pod");
            pod.key.name.chars().next().expect("a name")
        }
    };
    let letters: String = devices.holders.iter().map(letter).collect();
    format!("{letters} {}", devices.open(GPU))
}

fn predicted(ids: &[&str]) -> Option<Arc<Predicted>> {
    let ids = ids.iter().map(|id| Arc::from(*id)).collect();
    Some(Arc::new(Predicted { devices: Box::new([(GPU.into(), ids)]) }))
}

#[test]
fn a_device_has_one_holder() {
    let (mut cluster, n) = cluster(&[("uid-seen", &[0])]);
    assert_eq!(shown(&cluster, n), "...! 0", "who is not on the node has nothing");
    let seen = asks(&mut cluster, "seen", "1");
    cluster.place(seen, n, false);
    assert_eq!(shown(&cluster, n), "#..! 0");
    let a = asks(&mut cluster, "a", "1");
    cluster.place(a, n, true);
    assert_eq!(shown(&cluster, n), "#..! 1");
    // What somebody has, and what cannot be given, is not predicted for another.
    for (ids, expect) in
        [(["gpu-0"], "#..! 1"), (["gpu-3"], "#..! 1"), (["none"], "#..! 1"), (["gpu-2"], "#.a! 0")]
    {
        cluster.predict(a, predicted(&ids));
        assert_eq!(shown(&cluster, n), expect, "{ids:?}");
    }
    let b = asks(&mut cluster, "b", "2");
    cluster.place(b, n, true);
    cluster.predict(b, predicted(&["gpu-1", "gpu-2"]));
    assert_eq!(shown(&cluster, n), "#ba! 1", "gpu-2 is spoken for");
    let free: Vec<String> = {
        let devices = cluster.view(n).devices().expect("a report");
        devices.free(GPU).map(|device| device.id.to_string()).collect()
    };
    assert!(free.is_empty(), "{free:?}");
}

#[test]
fn a_transaction_leaves_no_trace_and_a_dry_run_frees_what_it_frees() {
    let (mut cluster, n) = cluster(&[("uid-seen", &[0, 1])]);
    let seen = asks(&mut cluster, "seen", "2");
    cluster.place(seen, n, false);
    let (a, b) = (asks(&mut cluster, "a", "1"), asks(&mut cluster, "b", "2"));
    cluster.place(a, n, true);
    cluster.predict(a, predicted(&["gpu-2"]));
    let before = shown(&cluster, n);
    assert_eq!(before, "##a! 0");
    {
        let mut txn = Txn::begin(&mut cluster);
        txn.displace(seen);
        assert_eq!(shown(txn.cluster(), n), "..a! 0");
        txn.place(b, n);
        txn.predict(b, predicted(&["gpu-0", "gpu-1"]));
        assert_eq!(shown(txn.cluster(), n), "bba! 0");
        txn.displace(a);
        assert_eq!(shown(txn.cluster(), n), "bb.! 0");
    }
    assert_eq!(shown(&cluster, n), before);
    assert_eq!(cluster.pod(b).expect("a pod").predicted, None);
    // As preemption tries it: nothing but the room on the node changes.
    cluster.clear(seen, n);
    assert_eq!(shown(&cluster, n), "..a! 0");
    cluster.occupy(seen, n);
    assert_eq!(shown(&cluster, n), before);
}

#[test]
fn nodes_that_are_alike_have_one_machine() {
    let (mut first, n) = cluster(&[]);
    let other = first.upsert_node(&node("m"), 0).node;
    let report = |gpu: &str| {
        Object::NodeTopology(wire(json!({"metadata": {"name": "m"},
            "hardware": {"numa": [{"id": 0, "cpus": "0-3"}, {"id": 1, "cpus": "4-7"}]},
            "kubelet": {"topologyManager": {"policy": "Restricted"}},
            "status": {"podSet": {"count": 0}, "devices": [
                {"resource": GPU, "id": gpu, "numa": [1], "state": "Free"},
                {"resource": GPU, "id": "y", "numa": [0], "state": "Free"},
                {"resource": GPU, "id": "x", "numa": [1], "state": "Unhealthy"},
                {"resource": GPU, "id": "z", "numa": [0], "state": "Free"}]}})))
    };
    first.set_node_topology(Tick::default(), &report("w"), 0).expect("a good report");
    let machine =
        |cluster: &Cluster, node| Arc::clone(cluster.view(node).machine().expect("known"));
    assert!(Arc::ptr_eq(&machine(&first, n), &machine(&first, other)), "ids do not tell apart");
    first.set_node_topology(Tick::default(), &report("v"), 0).expect("a good report");
    assert!(Arc::ptr_eq(&machine(&first, n), &machine(&first, other)), "nor do reports");
}
