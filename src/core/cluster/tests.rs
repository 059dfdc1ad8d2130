//! Sets, columns, forks and transactions.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;
use proptest::collection::vec;
use proptest::prelude::*;

use super::chunked::{CHUNK, Chunked};
use super::node_set::Posting;
use super::{Cluster, NodeId, NodeSet, Txn};
use crate::framework::Actions;
use crate::model::{PodId, PodStage, ResId};
use crate::testing::random::{NODES, any_load, any_node};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod};

fn members(set: &NodeSet) -> BTreeSet<u32> {
    set.iter().map(|n| n.0).collect()
}

proptest! {
    #[test]
    fn a_node_set_is_a_set(
        a in vec(0..300u32, 0..40),
        b in vec(0..300u32, 0..40),
        out in vec(0..300u32, 0..40),
    ) {
        let build = |ids: &[u32]| {
            let mut set = NodeSet::default();
            ids.iter().for_each(|&n| set.insert(NodeId(n)));
            (set, ids.iter().copied().collect::<BTreeSet<u32>>())
        };
        let ((mut set, mut model), (other, other_model)) = (build(&a), build(&b));
        for &n in &out {
            set.remove(NodeId(n));
            model.remove(&n);
        }
        prop_assert_eq!(members(&set), model.clone());
        prop_assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
        prop_assert!((0..320).all(|n| set.contains(NodeId(n)) == model.contains(&n)));
        prop_assert_eq!(set == other, model == other_model, "equal sets are equal");
        let again = build(&model.iter().copied().collect::<Vec<_>>()).0;
        prop_assert_eq!(&set, &again, "whatever was in them before");
        let (mut both, mut either, mut less) = (set.clone(), set.clone(), set.clone());
        both.intersect(&other);
        either.unite(&other);
        less.subtract(&other);
        prop_assert_eq!(members(&both), &model & &other_model);
        prop_assert_eq!(members(&either), &model | &other_model);
        prop_assert_eq!(members(&less), &model - &other_model);
        set.retain(|n| n.0 % 3 == 0);
        model.retain(|n| n % 3 == 0);
        prop_assert_eq!(members(&set), model);
    }

    #[test]
    fn a_posting_is_a_set_short_or_long(changes in vec((prop::bool::weighted(0.7), 0..120u32), 0..400)) {
        let (mut posting, mut model) = (Posting::default(), BTreeSet::new());
        for (add, n) in changes {
            if add {
                posting.insert(NodeId(n));
                model.insert(n);
            } else {
                posting.remove(NodeId(n));
                model.remove(&n);
            }
            prop_assert_eq!(posting.len(), model.len());
        }
        // Down to nothing and back again, over both thresholds.
        let mut set = NodeSet::default();
        posting.add_to(&mut set);
        prop_assert_eq!(members(&set), model.clone());
        let mut rest = NodeSet::default();
        (0..130).for_each(|n| rest.insert(NodeId(n)));
        posting.take_from(&mut rest);
        prop_assert_eq!(members(&rest), (0..130).filter(|n| !model.contains(n)).collect());
        for n in &model {
            posting.remove(NodeId(*n));
        }
        prop_assert_eq!(posting.len(), 0);
    }
}

#[test]
fn chunks_that_nobody_wrote_to_are_shared() {
    let mut column: Chunked<i64> = Chunked::default();
    column.grow(3);
    column.grow(CHUNK * 4);
    *column.get_mut(CHUNK + 1) = 7;
    let mut copy = column.clone();
    *copy.get_mut(CHUNK + 1) = 8;
    *copy.get_mut(0) = 9;
    assert_eq!((*column.get(CHUNK + 1), *column.get(0)), (7, 0));
    assert_eq!((*copy.get(CHUNK + 1), *copy.get(0), copy.len()), (8, 9, CHUNK * 4));
    copy.grow(CHUNK * 4 + 1);
    assert_eq!(copy.iter().count(), CHUNK * 4 + 1, "iteration ends at the length");
    assert_eq!(column.iter().sum::<i64>(), 7);
}

#[test]
fn an_update_says_which_aspects_changed() {
    let first = || node("n").label("zone", "a").taint("k", "", "NoSchedule").image("a:1", 1);
    let table = [
        ("nothing", first().version("2"), Actions::NONE),
        ("a label", first().label("zone", "b"), Actions::UPDATE_NODE_LABEL),
        ("a taint", first().taint("l", "", "NoExecute"), Actions::UPDATE_NODE_TAINT),
        ("the cordon", first().unschedulable(), Actions::UPDATE_NODE_TAINT),
        ("allocatable", first().cpu("5"), Actions::UPDATE_NODE_ALLOCATABLE),
        ("most pods", first().max_pods("5"), Actions::UPDATE_NODE_ALLOCATABLE),
        ("a resource goes", first().no_alloc(), Actions::UPDATE_NODE_ALLOCATABLE),
        ("an image", first().image("b:1", 1), Actions::UPDATE_NODE_IMAGES),
        ("the size of an image", first().image("a:1", 2), Actions::UPDATE_NODE_IMAGES),
    ];
    for (row, after, expected) in table {
        let mut nodes = cluster([first()]);
        let head = nodes.journal.head();
        assert_eq!(nodes.add(&after).actions, expected, "{row}");
        let noted = nodes.journal.head() - head;
        assert_eq!(noted, u64::from(expected != Actions::NONE), "{row}: in the journal");
    }
    assert_eq!(Cluster::default().add(&first()).actions, Actions::ADD);
}

#[test]
fn a_node_that_goes_leaves_a_ghost_until_its_last_pod_is_gone() {
    let mut nodes = cluster([node("a"), node("b")]);
    let a = nodes.id("a");
    let p = nodes.add_wire_pod(&pod("p").req(&[("cpu", "1")]).on("a"));
    nodes.remove_node("a");
    assert_eq!((nodes.node_count(), nodes.node_by_name("a")), (1, None));
    assert_eq!(nodes.pod(p).unwrap().stage, PodStage::Bound(a));
    let back = nodes.add(&node("a"));
    assert_eq!((back.node, back.actions), (a, Actions::ADD), "it comes back with its pod");
    assert_eq!(nodes.view(a).requested(ResId::CPU), 1000);
    nodes.remove_node("a");
    nodes.drop_pod(p);
    let reused = nodes.add(&node("c").label("zone", "c")).node;
    assert_eq!(reused, a, "the index is used again");
    let view = nodes.view(reused);
    assert_eq!((view.requested(ResId::CPU), view.pods(), &*view.info().name), (0, 0, "c"));
    assert_eq!(nodes.node_capacity(), 2);
}

#[test]
fn a_committed_displacement_leaves_no_ghost_behind() {
    let mut nodes = cluster([]);
    for round in 0..3 {
        nodes.add(&node("gone"));
        let p = nodes.add_wire_pod(&pod("p").on("gone"));
        nodes.remove_node("gone");
        let mut txn = Txn::begin(&mut nodes);
        txn.displace(p);
        txn.commit();
        assert!(nodes.ghosts.is_empty(), "round {round}");
        nodes.drop_pod(p);
    }
    assert_eq!(nodes.node_capacity(), 1);
}

#[test]
fn a_pod_on_an_unknown_node_takes_no_row_until_the_node_is_known() {
    let mut nodes = cluster([node("a")]);
    let on = |name: &str, node: &str| pod(name).req(&[("cpu", "1")]).on(node);
    let (p, q) = (nodes.add_wire_pod(&on("p", "b")), nodes.add_wire_pod(&on("q", "b")));
    let r = nodes.add_wire_pod(&on("r", "c"));
    assert_eq!((nodes.node_capacity(), nodes.node_count(), nodes.away.nodes()), (1, 1, 2));
    let fork = nodes.fork();
    nodes.drop_pod(q);
    let came = nodes.add(&node("b")).came;
    let b = nodes.id("b");
    assert_eq!((came, nodes.pod(p).unwrap().stage), (vec![p], PodStage::Bound(b)));
    assert_eq!((nodes.view(b).requested(ResId::CPU), nodes.view(b).pods()), (1000, 1));
    nodes.drop_pod(r);
    assert_eq!((nodes.away.nodes(), nodes.node_capacity()), (0, 2));
    assert_eq!((fork.away.nodes(), fork.pod_count()), (2, 3), "a copy is a copy");
    // Names and slots are used again.
    let r = nodes.add_wire_pod(&on("r", "d"));
    assert_eq!((nodes.away.nodes(), nodes.add(&node("d")).came), (1, vec![r]));
}

#[test]
fn a_shape_without_a_pod_is_kept_for_the_next_one() {
    let mut nodes = cluster([node("n1")]);
    let shape = nodes.shape_of(&pod("a").req(&[("cpu", "1")]));
    let first = nodes.intern_shape(shape.clone());
    nodes.release_shape(first);
    assert!(nodes.take_freed_shapes().is_empty());
    assert_eq!(nodes.intern_shape(shape), first);
}

#[test]
fn shapes_that_come_and_go_do_not_pile_up() {
    let mut nodes = cluster([]);
    for round in 0..20_000 {
        let asks = pod("p").req(&[("cpu", &format!("{}m", round % 1000 + 1))]);
        let p = nodes.add_wire_pod(&asks);
        nodes.drop_pod(p);
    }
    let freed = nodes.take_freed_shapes();
    assert!(freed.len() < 1000, "{} freed shapes are kept for a standby", freed.len());
    assert!(nodes.take_freed_shapes().is_empty());
}

/// Everything of a node that a decision could depend on: columns, pods, ports.
type NodeState = (Vec<i64>, Vec<PodId>, Vec<String>);

fn state(cluster: &Cluster) -> BTreeMap<String, NodeState> {
    let one = |id: NodeId| {
        let (view, info) = (cluster.view(id), cluster.node(id));
        let resources = (0..cluster.resources.len() as u16).map(ResId);
        let mut numbers: Vec<i64> =
            resources.flat_map(|r| [view.allocatable(r), view.requested(r)]).collect();
        numbers.extend([view.nonzero_cpu(), view.nonzero_memory(), view.pods(), view.max_pods()]);
        let mut ports: Vec<String> = info.ports.iter().map(|p| format!("{p:?}")).collect();
        let mut pods = info.pods.clone();
        ports.sort_unstable();
        pods.sort_unstable();
        (info.name.to_string(), (numbers, pods, ports))
    };
    cluster.nodes().iter().map(one).collect()
}

fn stages(cluster: &Cluster) -> Vec<(PodId, PodStage)> {
    cluster.pods().map(|(id, p)| (id, p.stage)).collect()
}

/// Nodes, and pods with the position of the node they are on.
type Busy = (Vec<k8s::Node>, Vec<(k8s::Pod, Option<usize>)>);

fn busy() -> impl Strategy<Value = Busy> {
    let nodes = NODES.map(any_node).into_iter().collect::<Vec<_>>();
    (nodes, vec((any_load(), prop::option::of(0..NODES.len())), 1..12))
}

fn build((nodes, pods): Busy) -> Cluster {
    let mut cluster = cluster(nodes);
    for (load, at) in pods {
        cluster.add_wire_pod(&load.on(at.map_or("", |i| NODES[i])));
    }
    cluster
}

/// Places pending pods and displaces others, as the numbers say.
fn shuffle(txn: &mut Txn<'_>, steps: &[(u32, u32)]) {
    for &(pod, node) in steps {
        let pod = PodId(pod % txn.cluster().pod_count() as u32);
        match txn.cluster().pod(pod).map(|p| p.stage) {
            Some(PodStage::Pending) => txn.place(pod, NodeId(node % NODES.len() as u32)),
            _ => txn.displace(pod),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_dropped_transaction_leaves_no_trace(busy in busy(), steps in vec((0..99u32, 0..99u32), 0..30)) {
        let mut cluster = build(busy);
        let before = (state(&cluster), stages(&cluster));
        let mut txn = Txn::begin(&mut cluster);
        shuffle(&mut txn, &steps);
        drop(txn);
        prop_assert_eq!((state(&cluster), stages(&cluster)), before);
    }

    #[test]
    fn a_committed_transaction_stays(busy in busy(), steps in vec((0..99u32, 0..99u32), 0..30)) {
        let mut cluster = build(busy);
        let mut txn = Txn::begin(&mut cluster);
        shuffle(&mut txn, &steps);
        let seen = (state(txn.cluster()), stages(txn.cluster()));
        txn.commit();
        prop_assert_eq!((state(&cluster), stages(&cluster)), seen);
    }

    #[test]
    fn a_fork_and_its_original_do_not_see_each_other(busy in busy(), steps in vec((0..99u32, 0..99u32), 1..30)) {
        let mut cluster = build(busy);
        let before = (state(&cluster), stages(&cluster));
        let mut fork = cluster.fork();
        prop_assert_eq!((state(&fork), stages(&fork)), before.clone());
        let mut txn = Txn::begin(&mut cluster);
        shuffle(&mut txn, &steps);
        txn.commit();
        cluster.remove_node("n0");
        cluster.add(&node("n1").label("new", "label").taint("new", "", "NoSchedule"));
        cluster.add(&node("n9").alloc("new.example.com/gpu", "1"));
        prop_assert_eq!((state(&fork), stages(&fork)), before, "the fork is as it was");
        prop_assert!(fork.node_by_name("n0").is_some() && fork.node_by_name("n9").is_none());
        let original = (state(&cluster), stages(&cluster));
        fork.remove_node("n2");
        fork.add(&node("n8"));
        let pods: Vec<PodId> = fork.pods().map(|(id, _)| id).collect();
        pods.into_iter().for_each(|p| fork.drop_pod(p));
        prop_assert_eq!((state(&cluster), stages(&cluster)), original, "so is the original");
    }
}
