//! Where a pod goes of the nodes whose kubelets would admit it.

use muster_api::muster::NodeTopology;
use serde_json::json;

use super::{asks, check, harness, report};
use crate::io::Object;
use crate::testing::{PodExt as _, wire};

/// A report of `name` that was changed.
fn changed(
    name: &str,
    held: &[(&str, &str, &[u32])],
    hash: &str,
    change: impl FnOnce(&mut NodeTopology),
) -> Object {
    let Object::NodeTopology(mut object) = report(name, 1, "BestEffort", held) else {
        unreachable!("it is a NodeTopology");
    };
    object.hardware.as_mut().expect("hardware").hash = hash.to_owned();
    change(&mut object);
    Object::NodeTopology(object)
}

/// Two nodes, made by the case, and the pod that asks for so many CPUs and GPUs: it goes to the
/// better one, whichever that is called.
fn goes(case: &str, cpus: u32, gpus: u32, make: impl Fn(&str, bool) -> Object, held: [&str; 2]) {
    for (better, worse) in [("a", "b"), ("b", "a")] {
        let mut h = harness(&json!({}), &["a", "b"]);
        for (node, uid) in [(better, held[0]), (worse, held[1])] {
            if !uid.is_empty() {
                h.pod(asks(&format!("old-{node}"), 1, 4).on(node).edit(|p| {
                    p.metadata.uid = uid.to_owned();
                }));
            }
        }
        h.object(make(better, true));
        h.object(make(worse, false));
        h.pod(asks("p", cpus, gpus));
        let binds = h.run_binds();
        assert!(
            binds.iter().any(|b| *b == format!("bind default/p -> {better}")),
            "{case}: {binds:?}"
        );
    }
}

#[test]
fn fewer_numa_nodes_are_better() {
    let held: [(&str, &str, &[u32]); 1] = [("old", "15", &[0, 1, 4, 5])];
    let make = |name: &str, better: bool| match better {
        true => report(name, 1, "BestEffort", &[]),
        false => report(name, 1, "BestEffort", &held),
    };
    // Two GPUs are free on either side of the worse one.
    goes("four on one side", 4, 4, make, ["", "old"]);
}

#[test]
fn shorter_distances_are_better() {
    let make = |name: &str, better: bool| {
        let far = if better { 12 } else { 30 };
        changed(name, &[], &format!("far-{far}"), |object| {
            let numa = &mut object.hardware.as_mut().expect("hardware").numa;
            (numa[0].distances, numa[1].distances) = (vec![10, far], vec![far, 10]);
        })
    };
    goes("eight on both sides", 20, 8, make, ["", ""]);
}

#[test]
fn a_network_device_on_the_same_side_is_better() {
    let make = |name: &str, better: bool| {
        // The other side is taken.
        let (uid, gpus): (&str, &[u32]) =
            if better { ("there", &[4, 5, 6, 7]) } else { ("here", &[0, 1, 2, 3]) };
        let cpu = if better { "31" } else { "15" };
        changed(name, &[(uid, cpu, gpus)], "nic", |object| {
            let nic = json!({"name": "mlx5_0", "pci": "0000:0e:00.0", "numa": 0, "rdma": true,
                "state": "Active", "gigabitsPerSecond": 400});
            object.hardware.as_mut().expect("hardware").nics.push(wire(nic));
        })
    };
    goes("beside the network device", 4, 4, make, ["there", "here"]);
}

#[test]
fn whoever_knows_nothing_of_a_node_prefers_another() {
    let mut h = harness(&json!({}), &["known", "unknown"]);
    h.object(report("known", 1, "BestEffort", &[]));
    h.pod(asks("p", 4, 4));
    check(h.run_binds(), "bind default/p -> known");
}
