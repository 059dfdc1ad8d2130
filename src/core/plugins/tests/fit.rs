//! NodeResourcesFit: Filter, hints and arguments. Scores are in `fit_score`.

use std::sync::Arc;

use super::{hint, judge, on_add, on_delete, on_own_update, on_update, registration};
use crate::cluster::Cluster;
use crate::framework::{Actions, Hint, Plugin, Resource, Subject};
use crate::plugins::{FitArgs, NodeResourcesFit, ResourceSpec, ScoringStrategy, ShapePoint};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod};

const GPU: &str = "example.com/gpu";

fn plugin() -> NodeResourcesFit {
    NodeResourcesFit::new(&FitArgs::default()).unwrap()
}

#[test]
fn a_node_must_have_room_for_everything_asked() {
    // The node offers 4 cpu, 8Gi, 2 pods; a pod with 1 cpu and 2Gi is there.
    let table = [
        ("nothing asked", pod("p").req(&[]), "ok"),
        ("exactly what is left", pod("p").req(&[("cpu", "3"), ("memory", "6Gi")]), "ok"),
        ("too much cpu for now", pod("p").req(&[("cpu", "3001m")]), "U: Insufficient cpu"),
        ("too much cpu for ever", pod("p").req(&[("cpu", "4001m")]), "UU: Insufficient cpu"),
        ("as much as the empty node has", pod("p").req(&[("cpu", "4")]), "U: Insufficient cpu"),
        (
            "every short resource is named, in order",
            pod("p").req(&[("memory", "7Gi"), ("cpu", "4")]),
            "U: Insufficient cpu, Insufficient memory",
        ),
        (
            "one that can never fit makes it unresolvable",
            pod("p").req(&[("memory", "9Gi"), ("cpu", "4")]),
            "UU: Insufficient cpu, Insufficient memory",
        ),
        (
            "ephemeral storage the node does not report",
            pod("p").req(&[("ephemeral-storage", "1")]),
            "UU: Insufficient ephemeral-storage",
        ),
        (
            "scalars come last, by name",
            pod("p").req(&[(GPU, "1"), ("cpu", "4"), ("a.com/b", "1"), ("hugepages-2Mi", "2Mi")]),
            "UU: Insufficient cpu, Insufficient a.com/b, Insufficient example.com/gpu, \
             Insufficient hugepages-2Mi",
        ),
        ("zero of what is not there", pod("p").req(&[(GPU, "0")]), "ok"),
        ("a native name nobody accounts for", pod("p").req(&[("bananas", "1")]), "ok"),
        (
            "half a byte is rounded up",
            pod("p").req(&[("memory", "6442450944500m")]),
            "U: Insufficient memory",
        ),
        (
            "an init container counts by its peak",
            pod("p").req(&[("cpu", "1")]).init(&[("cpu", "4")]),
            "U: Insufficient cpu",
        ),
        (
            "overhead is added",
            pod("p").req(&[("cpu", "3")]).overhead(&[("cpu", "1m")]),
            "U: Insufficient cpu",
        ),
    ];
    for (row, asks, expected) in table {
        let mut nodes = cluster([node("n").max_pods("2")]);
        nodes.add_wire_pod(&pod("x").req(&[("cpu", "1"), ("memory", "2Gi")]).on("n"));
        assert_eq!(judge(&plugin(), &mut nodes, &asks), [expected], "{row}");
    }
}

#[test]
fn a_full_node_is_full_whatever_is_asked() {
    let mut nodes = cluster([node("n").max_pods("1"), node("none").max_pods("0")]);
    nodes.add_wire_pod(&pod("x").on("n"));
    let small = judge(&plugin(), &mut nodes, &pod("p"));
    assert_eq!(small, ["U: Too many pods", "U: Too many pods"], "preemption may help");
    let big = judge(&plugin(), &mut nodes, &pod("p").req(&[("cpu", "5")]));
    assert_eq!(big[0], "UU: Too many pods, Insufficient cpu", "the resource decides the code");
}

#[test]
fn ignored_resources_are_extended_ones_only() {
    let args = FitArgs {
        ignored_resources: vec![GPU.into(), "cpu".into(), "hugepages-2Mi".into()],
        ignored_resource_groups: vec!["b.com".into()],
        ..FitArgs::default()
    };
    let plugin = NodeResourcesFit::new(&args).unwrap();
    let table = [
        ("an ignored resource", pod("p").req(&[(GPU, "9")]), "ok"),
        ("a resource of an ignored group", pod("p").req(&[("b.com/x", "9")]), "ok"),
        (
            "a resource of another group",
            pod("p").req(&[("c.com/x", "9")]),
            "UU: Insufficient c.com/x",
        ),
        ("cpu is never ignored", pod("p").req(&[("cpu", "9")]), "UU: Insufficient cpu"),
        (
            "nor are hugepages",
            pod("p").req(&[("hugepages-2Mi", "2Mi")]),
            "UU: Insufficient hugepages-2Mi",
        ),
    ];
    for (row, pod, expected) in table {
        assert_eq!(judge(&plugin, &mut cluster([node("n")]), &pod), [expected], "{row}");
    }
    assert_eq!(on_add(&plugin, &pod("p").req(&[(GPU, "9")]), &node("n")), Hint::Queue);
}

#[test]
fn room_that_appears_wakes_a_pod_and_other_changes_do_not() {
    let plugin = plugin();
    let shrunk = Actions::UPDATE_POD_SCALE_DOWN;
    let events = [
        registration(Resource::AssignedPod, Actions::DELETE | shrunk),
        registration(Resource::Node, Actions::ADD | Actions::UPDATE_NODE_ALLOCATABLE),
        registration(Resource::TargetPod, shrunk),
    ];
    assert_eq!(plugin.events(), events);
    let wants = pod("p").req(&[("cpu", "2")]);
    assert_eq!(on_add(&plugin, &wants, &node("n")), Hint::Queue, "a node with room joins");
    assert_eq!(on_add(&plugin, &wants, &node("n").cpu("1")), Hint::Skip, "a node too small joins");
    assert_eq!(on_add(&plugin, &wants, &node("n").max_pods("0")), Hint::Skip, "no pods allowed");
    let n = |cpu: &str| node("n").cpu(cpu);
    let table = [
        ("it grows until the pod fits", n("1"), n("2"), Hint::Queue),
        ("it grows and still is too small", n("1"), n("1500m"), Hint::Skip),
        ("it shrinks and the pod would fit it empty", n("4"), n("3"), Hint::Skip),
        ("what the pod does not ask for grows", n("4"), n("4").memory("9Gi"), Hint::Skip),
        ("it allows more pods", n("4"), n("4").max_pods("111"), Hint::Queue),
        ("it allows fewer pods", n("4"), n("4").max_pods("109"), Hint::Skip),
    ];
    for (row, before, after, expected) in table {
        assert_eq!(on_update(&plugin, &wants, &before, &after), expected, "{row}");
    }
    assert_eq!(on_delete(&plugin, &wants, &pod("x").req(&[("memory", "1")])), Hint::Queue);
    assert_eq!(on_own_update(&plugin, &wants, shrunk), Hint::Queue);
}

/// Upstream's cases of `isSchedulableAfterAssignedPodScaleDown` and
/// `haveAnyRequestedResourcesIncreased`.
#[test]
fn only_room_of_a_kind_the_pod_asks_for_wakes_it() {
    let plugin = plugin();
    let shrinks = |wants: &[(&str, &str)], from: &[(&str, &str)], to: &[(&str, &str)]| {
        let mut cluster = Cluster::default();
        let before = Arc::new(cluster.shape_of(&pod("x").req(from)));
        let after = Arc::new(cluster.shape_of(&pod("x").req(to)));
        let event = (Resource::AssignedPod, Actions::UPDATE_POD_SCALE_DOWN);
        let subject = Subject::Resized { before, after };
        hint(&plugin, &mut cluster, &pod("p").req(wants), event, subject)
    };
    let table = [
        ("cpu for a pod that asks for cpu", [("cpu", "1")], [("cpu", "2")], Hint::Queue),
        ("cpu for a pod that asks for memory", [("memory", "1Gi")], [("cpu", "2")], Hint::Skip),
        ("cpu for a pod that asks for none", [("cpu", "0")], [("cpu", "2")], Hint::Skip),
        ("a gpu for a pod that asks for one", [(GPU, "1")], [(GPU, "2")], Hint::Queue),
    ];
    for (row, wants, from, expected) in table {
        let to = from.map(|(name, _)| (name, "1"));
        assert_eq!(shrinks(&wants, &from, &to), expected, "{row}");
        assert_eq!(shrinks(&wants, &from, &from), Hint::Skip, "{row}, but it does not shrink");
    }
    assert_eq!(shrinks(&[(GPU, "1")], &[(GPU, "1")], &[]), Hint::Queue, "it is given up");
    let asks_nothing = pod("p").req(&[("cpu", "0")]);
    let grown = on_update(&plugin, &asks_nothing, &node("n").cpu("1"), &node("n").cpu("2"));
    assert_eq!(grown, Hint::Skip, "a node grows in what the pod asks nothing of");
}

#[test]
fn wrong_arguments_are_refused_with_field_and_remedy() {
    let curve = |points: &[(i64, i64)]| {
        let point = |&(utilization, score)| ShapePoint { utilization, score };
        let strategy =
            ScoringStrategy::RequestedToCapacityRatio(points.iter().map(point).collect());
        FitArgs { strategy, ..FitArgs::default() }
    };
    let weight = |weight| FitArgs {
        resources: vec![ResourceSpec { name: "cpu".into(), weight }],
        ..FitArgs::default()
    };
    let ignored =
        |name: &str| FitArgs { ignored_resources: vec![name.into()], ..FitArgs::default() };
    let group =
        |name: &str| FitArgs { ignored_resource_groups: vec![name.into()], ..FitArgs::default() };
    let ratio = "scoringStrategy.requestedToCapacityRatio.shape";
    let table = [
        ("no points", curve(&[]), Some(format!("{ratio}: Required value: at least one point"))),
        (
            "not increasing",
            curve(&[(5, 1), (5, 2)]),
            Some(format!("{ratio}[1].utilization: Invalid")),
        ),
        ("above 100 percent", curve(&[(101, 1)]), Some(format!("{ratio}[0].utilization: Invalid"))),
        ("below 0 percent", curve(&[(-1, 1)]), Some(format!("{ratio}[0].utilization: Invalid"))),
        ("score above 10", curve(&[(0, 11)]), Some(format!("{ratio}[0].score: Invalid value"))),
        ("one point is enough", curve(&[(0, 10)]), None),
        (
            "weight above 100",
            weight(101),
            Some(
                "scoringStrategy.resources[0].weight: Invalid value: \
            101: resource weight of cpu not in valid range (0, 100]"
                    .into(),
            ),
        ),
        ("negative weight", weight(-1), Some("scoringStrategy.resources[0].weight".into())),
        ("weight 0 counts as 1", weight(0), None),
        (
            "an ignored name no resource can have",
            ignored("a b"),
            Some(
                "ignoredResources[0]: Invalid \
            value: \"a b\": name part must consist of"
                    .into(),
            ),
        ),
        ("an ignored name with a prefix", ignored("a.com/b"), None),
        (
            "a group with a slash",
            group("a.com/b"),
            Some(
                "ignoredResourceGroups[0]: Invalid value: \
            \"a.com/b\": resource group name can't contain '/'"
                    .into(),
            ),
        ),
        ("a group", group("a.com"), None),
    ];
    for (row, args, expected) in table {
        let got = NodeResourcesFit::new(&args).err().map(|e| e.to_string());
        let same = match (&got, &expected) {
            (Some(got), Some(start)) => got.starts_with(&format!("NodeResourcesFit: {start}")),
            (None, None) => true,
            _ => false,
        };
        assert!(same, "{row}: {got:?} instead of {expected:?}");
    }
}
