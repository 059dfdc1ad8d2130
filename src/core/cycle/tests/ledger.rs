//! A ledger kept change by change equals a fresh one and a full explanation.

use std::collections::BTreeMap;

use muster_api::k8s;
use muster_api::muster::SchedulingPolicy;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::ledger::Ledger;
use crate::cluster::{Cluster, NodeId};
use crate::framework::Profile;
use crate::io::{Change, Input, Kind, Object, ObjectKey, Tick};
use crate::model::{PodId, PodShape};
use crate::report::{Asked, explain};
use crate::testing::random::{
    NODES, POLICIES, any_load, any_node, any_object, any_pod, any_policy,
};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod};
use crate::{Config, Core};

const SEED: u32 = 7;

fn profile() -> Profile {
    Profile::default_named("muster")
}

/// What a ledger says: nodes that fit with totals, and how often each verdict holds.
#[derive(Debug, PartialEq, Eq)]
struct Says {
    totals: BTreeMap<String, i64>,
    verdicts: BTreeMap<(String, String), u32>,
    best: Option<(NodeId, i64)>,
}

fn says(ledger: &mut Ledger, profile: &Profile, cluster: &Cluster) -> Says {
    let mut verdicts = BTreeMap::new();
    for verdict in ledger.verdicts(profile) {
        let plugin = verdict.plugin.map_or("", |i| profile.plugins()[i].plugin.name());
        let key = (plugin.to_owned(), format!("{:?}", verdict.status.reasons));
        *verdicts.entry(key).or_default() += verdict.nodes;
    }
    let nodes = cluster.nodes().iter();
    let totals: BTreeMap<String, i64> = nodes
        .filter_map(|n| Some((cluster.node(n).name.to_string(), ledger.total(profile, n)?)))
        .collect();
    assert_eq!(ledger.feasible() as usize, totals.len());
    Says { totals, verdicts, best: ledger.best(profile) }
}

/// Checks a ledger against a fresh one and against `explain`.
fn check(ledger: &mut Ledger, profile: &Profile, shape: &PodShape, cluster: &Cluster) {
    let kept = says(ledger, profile, cluster);
    let fresh = says(&mut Ledger::build(profile, shape, cluster, SEED), profile, cluster);
    assert_eq!(kept, fresh, "kept and fresh");
    let most = kept.totals.values().max().copied();
    assert_eq!(kept.best.map(|(_, total)| total), most, "the best has the most");
    if let Some((node, total)) = kept.best {
        let name = cluster.node(node).name.to_string();
        assert_eq!(kept.totals.get(&name), Some(&total), "the total is the node's own");
    }
    let explained = explain(&Asked::named("p"), profile, shape, &mut cluster.fork(), None);
    assert_eq!(kept.totals.len(), explained.feasible_nodes, "as many nodes fit");
    let mut verdicts: BTreeMap<(String, String), u32> = BTreeMap::new();
    for verdict in explained.nodes.values().filter(|v| v.status.starts_with('U')) {
        let key = (verdict.plugin.clone(), format!("{:?}", verdict.reasons));
        *verdicts.entry(key).or_default() += 1;
    }
    if ledger.prepared.rejected.is_none() {
        assert_eq!(kept.verdicts, verdicts, "kept and explained verdicts");
    }
    if ledger.prepared.score_error.is_none() {
        let nodes = explained.nodes.iter();
        let totals: BTreeMap<String, i64> =
            nodes.filter_map(|(name, v)| Some((name.clone(), v.total?))).collect();
        assert_eq!(kept.totals, totals, "kept and explained totals");
    }
}

#[derive(Clone, Debug)]
enum Op {
    Node(Box<k8s::Node>),
    RemoveNode(usize),
    Place(Box<k8s::Pod>, usize, bool),
    RemovePod(usize),
    Object(Box<Object>),
    Policy(Box<SchedulingPolicy>),
    RemovePolicy(usize),
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    let node = (0..NODES.len()).prop_flat_map(|i| any_node(NODES[i]));
    prop_oneof![
        3 => node.prop_map(|n| Op::Node(Box::new(n))),
        1 => (0..NODES.len()).prop_map(Op::RemoveNode),
        4 => (any_load(), 0..NODES.len(), any::<bool>())
            .prop_map(|(load, at, assumed)| Op::Place(Box::new(load), at, assumed)),
        2 => (0..99usize).prop_map(Op::RemovePod),
        3 => any_object().prop_map(|o| Op::Object(Box::new(o))),
        2 => any_policy().prop_map(|p| Op::Policy(Box::new(p))),
        1 => (0..POLICIES.len()).prop_map(Op::RemovePolicy),
        3 => Just(Op::Sync),
    ]
}

fn apply(cluster: &mut Cluster, placed: &mut Vec<PodId>, op: Op) {
    match op {
        Op::Node(node) => {
            cluster.add(&node);
        }
        Op::RemoveNode(i) => {
            cluster.remove_node(NODES[i]);
        }
        Op::Place(load, at, assumed) => {
            let pod = cluster.add_wire_pod(&load);
            match cluster.node_by_name(NODES[at]) {
                Some(node) => cluster.place(pod, node, assumed),
                None => drop(cluster.put(pod, NODES[at])),
            }
            placed.push(pod);
        }
        Op::RemovePod(i) if !placed.is_empty() => {
            let pod = placed.swap_remove(i % placed.len());
            cluster.drop_pod(pod);
        }
        Op::Object(object) => {
            cluster.volumes_mut().upsert(*object, 0);
        }
        Op::Policy(policy) => {
            cluster.set_scheduling_policy(&policy, 0);
        }
        Op::RemovePolicy(i) => {
            cluster.remove_scheduling_policy(POLICIES[i]);
        }
        Op::RemovePod(_) | Op::Sync => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_kept_ledger_equals_a_fresh_one_and_a_full_explanation(
        nodes in vec((0..NODES.len()).prop_flat_map(|i| any_node(NODES[i])), 0..6),
        pods in vec(any_pod(), 1..3),
        objects in vec(any_object(), 0..12),
        ops in vec(op(), 0..25),
    ) {
        let profile = profile();
        let mut cluster = cluster(nodes);
        objects.into_iter().for_each(|o| {
            cluster.volumes_mut().upsert(o, 0);
        });
        let mut shapes: Vec<PodShape> = pods.iter().map(|p| cluster.shape_of(p)).collect();
        // Counters are kept for shapes that are in use.
        shapes.iter().for_each(|s| {
            cluster.intern_shape(s.clone());
        });
        let build = |s: &PodShape, c: &Cluster| Ledger::build(&profile, s, c, SEED);
        let mut ledgers: Vec<Ledger> = shapes.iter().map(|s| build(s, &cluster)).collect();
        let mut placed = Vec::new();
        for op in ops.into_iter().chain([Op::Sync]) {
            let sync = matches!(op, Op::Sync);
            apply(&mut cluster, &mut placed, op);
            assert!(cluster.load_is_right(), "sums over all nodes");
            cluster.weigh_load();
            let all = ledgers.iter_mut().zip(&mut shapes).zip(&pods).filter(|_| sync);
            for ((ledger, shape), pod) in all {
                // Other policies are another shape.
                let scoring = cluster.shape_of(pod).scoring;
                if scoring != shape.scoring {
                    shape.scoring = scoring;
                    cluster.intern_shape(shape.clone());
                    *ledger = build(shape, &cluster);
                }
                if !ledger.sync(&profile, shape, &cluster) {
                    *ledger = build(shape, &cluster);
                }
                check(ledger, &profile, shape, &cluster);
            }
        }
    }
}

#[test]
fn a_placement_is_synced_without_a_rebuild() {
    let profile = profile();
    let mut nodes = cluster((0..100).map(|i| node(&format!("n{i}")).cpu("16")));
    let asks = pod("p").req(&[("cpu", "1")]);
    let shape = nodes.shape_of(&asks);
    let mut ledger = Ledger::build(&profile, &shape, &nodes, SEED);
    for i in 0..400 {
        let (best, _) = ledger.best(&profile).expect("there is room");
        let name = nodes.node(best).name.to_string();
        nodes.add_wire_pod(&asks.clone().on(&name));
        assert!(ledger.sync(&profile, &shape, &nodes), "placement {i} needs a rebuild");
    }
    check(&mut ledger, &profile, &shape, &nodes);
    // LeastAllocated spreads 400 pods evenly over 100 equal nodes.
    let pods: Vec<i64> = nodes.nodes().iter().map(|n| nodes.view(n).pods()).collect();
    assert!(pods.iter().all(|p| *p == 4), "{pods:?}");
}

#[test]
fn a_ledger_follows_an_index_to_another_node() {
    let profile = profile();
    let mut nodes = cluster([node("a").cpu("1"), node("b").cpu("1")]);
    let shape = nodes.shape_of(&pod("p").req(&[("cpu", "2")]));
    let mut ledger = Ledger::build(&profile, &shape, &nodes, SEED);
    assert_eq!(ledger.best(&profile), None);
    let a = nodes.id("a");
    nodes.remove_node("a");
    assert_eq!(nodes.add(&node("c").cpu("4")).node, a, "the index is used again");
    assert!(ledger.sync(&profile, &shape, &nodes));
    check(&mut ledger, &profile, &shape, &nodes);
    assert_eq!(ledger.best(&profile).map(|(n, _)| n), Some(a));
    nodes.remove_node("c");
    assert!(ledger.sync(&profile, &shape, &nodes));
    assert_eq!((ledger.best(&profile), ledger.feasible()), (None, 0));
}

#[test]
fn a_ledger_of_the_original_is_not_mistaken_for_one_of_its_fork() {
    let profile = profile();
    let mut nodes = cluster([node("a"), node("b")]);
    let shape = nodes.shape_of(&pod("p").req(&[("cpu", "1")]));
    let mut ledger = Ledger::build(&profile, &shape, &nodes, SEED);
    let mut fork = nodes.fork();
    // As many changes as the original's journal had, and one more.
    fork.remove_node("a");
    for cpu in ["1", "2", "3"] {
        fork.add(&node("b").cpu(cpu));
    }
    if !ledger.sync(&profile, &shape, &fork) {
        ledger = Ledger::build(&profile, &shape, &fork, SEED);
    }
    check(&mut ledger, &profile, &shape, &fork);
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let profile = profile();
    let many = (0..9000_u32).map(|i| {
        let n = node(&format!("n{i}")).cpu(&(2 + i % 7).to_string()).label("zone", "a");
        let n = if i % 3 == 0 { n.taint("soft", "", "PreferNoSchedule") } else { n };
        if i % 5 == 0 { n.image("app:1", 1 << 29) } else { n }
    });
    let mut nodes = cluster(many);
    let asks = pod("p").req(&[("cpu", "1"), ("memory", "1Gi")]).container("app:1");
    let shape = nodes.shape_of(&asks);
    let run = |threads: usize| {
        #[allow(clippy::disallowed_types, reason = "the test chooses the pool")]
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| says(&mut Ledger::build(&profile, &shape, &nodes, SEED), &profile, &nodes))
    };
    let serial = run(1);
    assert_eq!(serial.totals.len(), 9000);
    assert_eq!(serial, run(2));
}

/// Feeds a core with inputs and returns all effects as text.
fn effects(inputs: &[Op], pods: &[k8s::Pod]) -> String {
    let mut core = Core::new(Config { seed: 42, ..Config::default() });
    let (mut out, mut now) = (Vec::new(), Tick(0));
    for (i, op) in inputs.iter().enumerate() {
        now = now.after_secs(1);
        let input = match op {
            Op::Object(object) => Input::Object(object.clone()),
            Op::Policy(policy) => {
                Input::Object(Box::new(Object::SchedulingPolicy((**policy).clone())))
            }
            Op::RemovePolicy(i) => {
                let name = POLICIES[*i].to_owned();
                Input::ObjectGone(Kind::SchedulingPolicy, ObjectKey { name, ..<_>::default() })
            }
            Op::Node(node) => Input::Node(Change::Upsert(node.clone())),
            Op::RemoveNode(i) => {
                let name = NODES[*i].to_owned();
                Input::Node(Change::Delete(ObjectKey { name, ..ObjectKey::default() }))
            }
            Op::Place(load, at, _) => {
                let bound = (**load).clone().on(NODES[*at]).uid(&format!("x{i}"));
                let bound = PodExt::edit(bound, |p| p.metadata.name = format!("x{i}"));
                Input::Pod(Change::Upsert(Box::new(bound)))
            }
            Op::RemovePod(i) => {
                let key = ObjectKey {
                    namespace: "default".into(),
                    name: format!("x{i}"),
                    uid: String::new(),
                };
                Input::Pod(Change::Delete(key))
            }
            Op::Sync => {
                let pod = pods[i % pods.len()].clone().on("").uid(&format!("p{i}"));
                let pod = PodExt::edit(pod, |p| p.metadata.name = format!("p{i}"));
                Input::Pod(Change::Upsert(Box::new(pod)))
            }
        };
        core.apply(now, input);
        core.advance(now);
        while core.schedule_one(now).is_some() {}
        out.extend(core.take_effects().iter().map(|e| format!("{e:?}")));
    }
    out.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_same_inputs_give_the_same_effects(ops in vec(op(), 1..40), pods in vec(any_pod(), 1..4)) {
        prop_assert_eq!(effects(&ops, &pods), effects(&ops, &pods));
    }
}
