//! Nodes of which only a NodeResourceTopology speaks.

use serde_json::{Value, json};

use super::super::harness::{Harness, check};
use super::{GPU, asks, harness, message};
use crate::io::Object;
use crate::testing::wire;

/// Two zones with 16 CPUs and 4 GPUs each, of which so many are free.
fn zones(version: u32, policy: &str, free: [(u32, u32); 2]) -> Object {
    let zone = |(id, (cpus, gpus)): (usize, &(u32, u32))| -> Value {
        let resource = |name: &str, all: u32, free: u32| {
            json!({"name": name, "capacity": all.to_string(), "allocatable": all.to_string(),
                "available": free.to_string()})
        };
        json!({"name": format!("node-{id}"), "type": "Node",
            "costs": [{"name": "node-0", "value": if id == 0 { 10 } else { 21 }},
                {"name": "node-1", "value": if id == 1 { 10 } else { 21 }}],
            "resources": [resource("cpu", 16, *cpus), resource(GPU, 4, *gpus)]})
    };
    let zones: Vec<Value> = free.iter().enumerate().map(zone).collect();
    Object::NodeResourceTopology(wire(json!({
        "metadata": {"name": "n", "resourceVersion": version.to_string()},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": "container"}],
        "zones": zones,
    })))
}

fn told(policy: &str, free: [(u32, u32); 2]) -> Harness {
    let mut h = harness(&json!({}), &["n"]);
    h.object(zones(1, policy, free));
    h
}

#[test]
fn pods_go_where_the_sums_let_them_go() {
    for (policy, free, cpus, gpus, fits) in [
        ("restricted", [(16, 4), (16, 4)], 8, 4, true),
        // Two here and two there are not four.
        ("restricted", [(16, 2), (16, 2)], 8, 4, false),
        ("best-effort", [(16, 2), (16, 2)], 8, 4, true),
        // GPUs here, CPUs there.
        ("single-numa-node", [(4, 4), (16, 0)], 8, 4, false),
        ("restricted", [(16, 4), (16, 4)], 8, 8, false),
        ("restricted", [(16, 4), (16, 4)], 20, 8, true),
        ("none", [(16, 2), (16, 2)], 8, 4, true),
    ] {
        let mut h = told(policy, free);
        h.pod(asks("a", cpus, gpus));
        assert_eq!(h.run_binds().len(), usize::from(fits), "{policy} {free:?} {cpus} {gpus}");
    }
}

#[test]
fn pods_are_counted_until_a_report_that_has_them_in_its_sums() {
    let mut h = told("restricted", [(16, 4), (16, 4)]);
    for name in ["a", "b"] {
        h.pod(asks(name, 8, 4));
    }
    check(h.run_binds(), "bind default/a -> n\nbind default/b -> n");
    h.bound("a", "n");
    h.bound("b", "n");
    h.pod(asks("c", 8, 1));
    check(h.run_binds(), "");
    // One that came at once may not have them yet.
    h.sleep(1);
    h.object(zones(2, "restricted", [(16, 4), (16, 4)]));
    h.sleep(20);
    check(h.run_binds(), "");
    h.object(zones(3, "restricted", [(8, 0), (8, 0)]));
    h.sleep(20);
    check(h.run_binds(), "");
    let why = message(&h, "c");
    assert!(why.contains("1 nvidia.com/gpu asked for, 0 free"), "{why}");
    // They are gone, and the next report says so.
    h.gone("a");
    h.object(zones(4, "restricted", [(16, 4), (8, 0)]));
    h.sleep(20);
    check(h.run_binds(), "bind default/c -> n");
}

#[test]
fn a_report_without_a_policy_is_no_knowledge() {
    let mut h = told("anything", [(0, 0), (0, 0)]);
    h.pod(asks("a", 8, 4));
    check(h.run_binds(), "bind default/a -> n");
}
