//! NodeResourcesBalancedAllocation.

use super::rate;
use crate::framework::Plugin;
use crate::plugins::{BalancedAllocation, BalancedAllocationArgs, ResourceSpec};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod};

fn plugin(resources: &[&str]) -> BalancedAllocation {
    let spec = |name: &&str| ResourceSpec { name: (*name).into(), weight: 1 };
    let resources = resources.iter().map(spec).collect();
    BalancedAllocation::new(&BalancedAllocationArgs { resources }).unwrap()
}

#[test]
fn a_pod_that_brings_balance_is_welcome() {
    // Score = 50 + (50 + with - without)/2, where each is trunc((1 - deviation)*100).
    let table = [
        // Empty node, cpu 1000/4000 = .25, memory 2500/10000 = .25: with 100, without
        // 100; 50 + 50/2 = 75.
        ("balanced on an empty node", None, [("cpu", "1"), ("memory", "2500")], 75),
        // cpu .5, memory 0: deviation |.5-0|/2 = .25: with 75; 50 + (50+75-100)/2 = 62.
        ("lopsided on an empty node", None, [("cpu", "2"), ("memory", "0")], 62),
        // Before cpu .5, memory 0: 75. After .5 and .5: 100; 50 + (50+100-75)/2 = 87.
        (
            "it evens out",
            Some([("cpu", "2"), ("memory", "0")]),
            [("cpu", "0"), ("memory", "5000")],
            87,
        ),
        // Before .5 and 0: 75. After 1 and 0: deviation .5: 50; 50 + (50+50-75)/2 = 62.
        (
            "it makes it worse",
            Some([("cpu", "2"), ("memory", "0")]),
            [("cpu", "2"), ("memory", "0")],
            62,
        ),
        // A fraction is at most 1: cpu 1.25 -> 1, memory 0: as the row above.
        (
            "beyond capacity is full",
            Some([("cpu", "2"), ("memory", "0")]),
            [("cpu", "3"), ("memory", "0")],
            62,
        ),
    ];
    for (row, there, asks, expected) in table {
        let mut nodes = cluster([node("n").memory("10000")]);
        if let Some(there) = there {
            nodes.add_wire_pod(&pod("x").req(&there).on("n"));
        }
        assert_eq!(
            rate(&plugin(&[]), &mut nodes, &pod("p").req(&asks)),
            Ok(vec![expected]),
            "{row}"
        );
    }
}

#[test]
fn three_resources_deviate_from_their_mean() {
    let three = plugin(&["cpu", "memory", "example.com/gpu"]);
    let mut nodes = cluster([node("n").memory("10000").alloc("example.com/gpu", "8"), node("m")]);
    // n: cpu .5, memory .5, gpu .5: with 100, without 100: 75.
    // m has no gpu and 8Gi: cpu .5, memory 5000/2^33, almost 0. The deviation is just
    // below .25: (1 - .2499997)*100 = 75.00003: with 75; 50 + (50+75-100)/2 = 62.
    let even = pod("p").req(&[("cpu", "2"), ("memory", "5000"), ("example.com/gpu", "4")]);
    assert_eq!(rate(&three, &mut nodes, &even), Ok(vec![75, 62]));
    // Nobody asks for gpus, so that scalar is left out: cpu 1, memory 0, deviation .5:
    // with 50; 50 + (50+50-100)/2 = 50.
    let cpu_only = pod("p").req(&[("cpu", "4"), ("memory", "0")]);
    assert_eq!(rate(&three, &mut nodes, &cpu_only).unwrap()[0], 50);
    // With 8 gpus asked: 1, 0, 1: mean 2/3, deviation sqrt((1/9+4/9+1/9)/3) = .4714:
    // with 52; 50 + (50+52-100)/2 = 51.
    let two = pod("p").req(&[("cpu", "4"), ("memory", "0"), ("example.com/gpu", "8")]);
    assert_eq!(rate(&three, &mut nodes, &two).unwrap()[0], 51);
}

#[test]
fn a_pod_that_asks_for_none_of_the_resources_is_not_scored() {
    let mut nodes = cluster([node("n")]);
    for pod in [pod("p"), pod("p").req(&[]), pod("p").req(&[("cpu", "0")])] {
        assert_eq!(rate(&plugin(&[]), &mut nodes, &pod), Err("skip".into()));
    }
    assert_eq!(plugin(&[]).events(), [], "it rejects nobody");
}

#[test]
fn wrong_arguments_are_refused() {
    let spec = |name: &str, weight| ResourceSpec { name: name.into(), weight };
    let table = [
        (
            "a weight other than 1",
            vec![spec("cpu", 1), spec("memory", 2)],
            Some(
                "NodeResourcesBalancedAllocation: resources[1].weight: Invalid value: 2: resource \
                 weight of memory not in valid range, should be 1",
            ),
        ),
        (
            "a name twice",
            vec![spec("cpu", 1), spec("cpu", 1)],
            Some("NodeResourcesBalancedAllocation: resources[1].name: Duplicate value: \"cpu\""),
        ),
        ("none is cpu and memory", vec![], None),
    ];
    for (row, resources, expected) in table {
        let got = BalancedAllocation::new(&BalancedAllocationArgs { resources }).err();
        assert_eq!(got.map(|e| e.to_string()).as_deref(), expected, "{row}");
    }
}
