//! Scores of NodeResourcesFit: the three strategies.

use super::rate;
use crate::plugins::ScoringStrategy::{LeastAllocated, MostAllocated, RequestedToCapacityRatio};
use crate::plugins::{FitArgs, NodeResourcesFit, ResourceSpec, ScoringStrategy, ShapePoint};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod};

fn plugin(strategy: ScoringStrategy, resources: &[(&str, i64)]) -> NodeResourcesFit {
    let spec = |&(name, weight): &(&str, i64)| ResourceSpec { name: name.into(), weight };
    let resources = resources.iter().map(spec).collect();
    NodeResourcesFit::new(&FitArgs { strategy, resources, ..FitArgs::default() }).unwrap()
}

fn curve(points: &[(i64, i64)]) -> ScoringStrategy {
    let point = |&(utilization, score)| ShapePoint { utilization, score };
    RequestedToCapacityRatio(points.iter().map(point).collect())
}

/// 4 cpu and 10000 bytes; 1 cpu and 5000 bytes are taken.
fn half_used(plugin: &NodeResourcesFit, asks: &muster_api::k8s::Pod) -> i64 {
    let mut nodes = cluster([node("n").memory("10000").alloc("example.com/gpu", "8")]);
    nodes.add_wire_pod(&pod("x").req(&[("cpu", "1"), ("memory", "5000")]).on("n"));
    rate(plugin, &mut nodes, asks).unwrap()[0]
}

#[test]
fn least_allocated_prefers_the_emptier_node() {
    let least = plugin(LeastAllocated, &[]);
    let table = [
        // cpu (4000-2000)*100/4000 = 50; memory (10000-7500)*100/10000 = 25; (50+25)/2 = 37.
        (
            "both count alike and the mean is cut",
            pod("p").req(&[("cpu", "1"), ("memory", "2500")]),
            37,
        ),
        // cpu (4000-1000)*100/4000 = 75, memory (10000-5000)*100/10000 = 50; 125/2 = 62.
        ("explicit zeros add nothing", pod("p").req(&[("cpu", "0"), ("memory", "0")]), 62),
        // No requests: 100m and 200Mi by default. cpu (4000-1100)*100/4000 = 72, memory over: 0.
        ("what is not asked has a default", pod("p").req(&[]), 36),
        // cpu 5000 > 4000: 0; memory 50: 25.
        ("over capacity is worth nothing", pod("p").req(&[("cpu", "4"), ("memory", "0")]), 25),
        // A pod without containers adds nothing: as explicit zeros.
        ("no containers, no defaults", pod("p"), 62),
        // Pod-level requests are left out of the scorer's pod side: the container's
        // defaults count instead, as in "what is not asked".
        ("pod-level requests do not enter", pod("p").req(&[]).pod_level(&[("cpu", "2")]), 36),
    ];
    for (row, asks, expected) in table {
        assert_eq!(half_used(&least, &asks), expected, "{row}");
    }
}

#[test]
fn the_node_side_counts_defaults_of_pods_that_ask_for_nothing() {
    let least = plugin(LeastAllocated, &[("cpu", 1)]);
    let mut nodes = cluster([node("n").cpu("1"), node("m").cpu("1")]);
    nodes.add_wire_pod(&pod("x").req(&[]).req(&[]).on("n"));
    // n: 2 containers at 100m; (1000-200)*100/1000 = 80. m: 100.
    let asks = pod("p").req(&[("cpu", "0"), ("memory", "0")]);
    assert_eq!(rate(&least, &mut nodes, &asks), Ok(vec![80, 100]));
}

#[test]
fn most_allocated_prefers_the_fuller_node() {
    let most = plugin(MostAllocated, &[]);
    let table = [
        // cpu 2000*100/4000 = 50; memory 7500*100/10000 = 75; 125/2 = 62.
        ("both count alike", pod("p").req(&[("cpu", "1"), ("memory", "2500")]), 62),
        // cpu over capacity is cut to it: 100; memory 50; 150/2 = 75.
        ("over capacity is full", pod("p").req(&[("cpu", "9"), ("memory", "0")]), 75),
        // cpu 1000*100/4000 = 25; memory 50; 75/2 = 37.
        ("nothing added", pod("p").req(&[("cpu", "0"), ("memory", "0")]), 37),
    ];
    for (row, asks, expected) in table {
        assert_eq!(half_used(&most, &asks), expected, "{row}");
    }
}

#[test]
fn a_curve_turns_utilisation_into_a_score() {
    let zero = || pod("p").req(&[("cpu", "0"), ("memory", "0")]);
    let up = [(0, 0), (100, 10)];
    let table = [
        // cpu 25 -> 25, memory 50 -> 50; 75/2 = 37.5, rounded half away from zero: 38.
        ("means are rounded, not cut", curve(&up), zero(), 38),
        // cpu 25 -> 100 + (0-100)*25/100 = 75, memory 50 -> 50; 125/2 = 62.5 -> 63.
        ("a falling curve", curve(&[(0, 10), (100, 0)]), zero(), 63),
        // Below the first point: its score. cpu 25 -> 20; memory 50 -> 20.
        ("before the first point", curve(&[(60, 2), (100, 10)]), zero(), 20),
        // Beyond the last point: its score.
        ("behind the last point", curve(&[(0, 0), (10, 7)]), zero(), 70),
        // cpu 25: 0 + 100*(25-20)/(50-20) = 16 (cut); memory 50: 100; 116/2 = 58.
        ("between points", curve(&[(20, 0), (50, 10)]), zero(), 58),
        // cpu 25 -> 0 is left out of both sums; memory 50 -> 100*(50-30)/70 = 28; 28/1.
        ("a score of 0 has no weight", curve(&[(30, 0), (100, 10)]), zero(), 28),
        // cpu 4000+1000 > 4000: 100 percent -> 100; memory 50 -> 50; 150/2 = 75.
        (
            "over capacity is 100 percent",
            curve(&up),
            pod("p").req(&[("cpu", "4"), ("memory", "0")]),
            75,
        ),
        ("all scores 0", curve(&[(0, 0)]), zero(), 0),
    ];
    for (row, strategy, asks, expected) in table {
        assert_eq!(half_used(&plugin(strategy, &[]), &asks), expected, "{row}");
    }
}

#[test]
fn resources_count_by_weight_and_only_where_they_matter() {
    let gpu = "example.com/gpu";
    let zero = [("cpu", "0"), ("memory", "0")];
    let table = [
        // (75*3 + 50*1)/4 = 68.75 -> 68.
        ("weights", &[("cpu", 3), ("memory", 1)][..], pod("p").req(&zero), 68),
        // Weight 0 counts as 1: as equal weights.
        ("weight 0 is 1", &[("cpu", 0), ("memory", 1)], pod("p").req(&zero), 62),
        // gpu: (8-2)*100/8 = 75; cpu default 100m: 72; (75+72)/2 = 73.
        ("a scalar that is asked for", &[("cpu", 1), (gpu, 1)], pod("p").req(&[(gpu, "2")]), 73),
        // cpu alone.
        ("a scalar that is not", &[("cpu", 1), (gpu, 9)], pod("p").req(&zero), 75),
        // The node has no ephemeral storage: cpu alone.
        ("what the node lacks", &[("cpu", 1), ("ephemeral-storage", 9)], pod("p").req(&zero), 75),
        ("nothing counts", &[("a.com/none", 1)], pod("p").req(&zero), 0),
    ];
    for (row, resources, asks, expected) in table {
        assert_eq!(half_used(&plugin(LeastAllocated, resources), &asks), expected, "{row}");
    }
}
