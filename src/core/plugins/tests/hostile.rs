//! Quantities no honest object has: nothing may panic, and a full node stays full.

use proptest::prelude::*;
use proptest::sample::select;

use super::{judge, rate};
use crate::framework::{Plugin, Profile};
use crate::plugins::{
    BalancedAllocation, BalancedAllocationArgs, FitArgs, ImageLocality, NodeResourcesFit,
    ScoringStrategy, ShapePoint,
};
use crate::report::{Asked, explain};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod};

fn strategies() -> [ScoringStrategy; 3] {
    let line = [(0, 0), (100, 10)].map(|(utilization, score)| ShapePoint { utilization, score });
    [
        ScoringStrategy::LeastAllocated,
        ScoringStrategy::MostAllocated,
        ScoringStrategy::RequestedToCapacityRatio(line.to_vec()),
    ]
}

fn huge() -> impl Strategy<Value = &'static str> {
    select(vec!["0", "1", "9223372036854775807", "8Ei", "4Ei", "1E", "-1", "-8Ei", "-1E", "100P"])
}

#[test]
fn huge_capacity_is_scored_exactly() {
    // 4Ei = 2^62; a quarter asked: 75 left, 25 used.
    let mut nodes = cluster([node("n").memory("4Ei")]);
    let asks = pod("p").req(&[("cpu", "1"), ("memory", "1Ei")]);
    let expected = [75, 25, 25];
    for (strategy, expected) in strategies().into_iter().zip(expected) {
        let fit = NodeResourcesFit::new(&FitArgs { strategy, ..FitArgs::default() }).unwrap();
        assert_eq!(rate(&fit, &mut nodes, &asks), Ok(vec![expected]));
    }
}

#[test]
fn two_pods_that_ask_for_everything_do_not_wrap_around_to_room() {
    let fit = NodeResourcesFit::new(&FitArgs::default()).unwrap();
    let mut nodes = cluster([node("n").memory("8Ei")]);
    let all = pod("x").req(&[("memory", "8Ei")]).on("n");
    let first = nodes.add_wire_pod(&all);
    let second = nodes.add_wire_pod(&all);
    let asks = pod("p").req(&[("memory", "1")]);
    assert_eq!(judge(&fit, &mut nodes, &asks), ["U: Insufficient memory"]);
    nodes.drop_pod(first);
    assert_eq!(judge(&fit, &mut nodes, &asks), ["U: Insufficient memory"]);
    nodes.drop_pod(second);
    assert_eq!(judge(&fit, &mut nodes, &asks), ["ok"]);
    let n = nodes.view(nodes.id("n"));
    assert_eq!((n.requested(crate::model::ResId::MEMORY), n.nonzero_memory()), (0, 0));
}

#[test]
fn images_of_any_size_add_up() {
    let big = node("n").image("a:1", i64::MAX).image("b:1", i64::MAX).image("c:1", i64::MIN);
    let all = pod("p").container("a:1").container("b:1");
    assert_eq!(rate(&ImageLocality, &mut cluster([big.clone()]), &all), Ok(vec![100]));
    let less = pod("p").container("c:1").container("c:1");
    assert_eq!(rate(&ImageLocality, &mut cluster([big]), &less), Ok(vec![0]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_quantity_panics_and_scores_stay_in_range(
        offers in (huge(), huge(), huge()),
        there in prop::collection::vec((huge(), huge(), huge()), 0..4),
        asks in (huge(), huge(), huge()),
    ) {
        let load = |(cpu, memory, gpu): (&str, &str, &str)| {
            pod("p").req(&[("cpu", cpu), ("memory", memory), ("example.com/gpu", gpu)])
        };
        let n = node("n").cpu(offers.0).memory(offers.1).alloc("example.com/gpu", offers.2);
        let mut nodes = cluster([n]);
        let placed: Vec<_> =
            there.into_iter().map(|l| nodes.add_wire_pod(&load(l).on("n"))).collect();
        let asks = load(asks).overhead(&[("cpu", "8Ei")]).init(&[("memory", "8Ei")]);
        let balanced = BalancedAllocation::new(&BalancedAllocationArgs::default()).unwrap();
        let mut scorers: Vec<Box<dyn Plugin>> = vec![Box::new(balanced)];
        for strategy in strategies() {
            let args = FitArgs { strategy, ..FitArgs::default() };
            scorers.push(Box::new(NodeResourcesFit::new(&args).unwrap()));
        }
        for plugin in &scorers {
            for score in rate(&**plugin, &mut nodes, &asks).into_iter().flatten() {
                prop_assert!((0..=100).contains(&score), "{} gives {score}", plugin.name());
            }
        }
        let shape = nodes.shape_of(&asks);
        let _ = explain(&Asked::named("p"), &Profile::default_named("muster"), &shape, &mut nodes, None);
        placed.into_iter().for_each(|p| nodes.drop_pod(p));
        let n = nodes.view(nodes.id("n"));
        let left = (0..4).map(|r| n.requested(crate::model::ResId(r)));
        prop_assert!(left.chain([n.nonzero_cpu(), n.nonzero_memory(), n.pods()]).all(|x| x == 0));
    }
}
