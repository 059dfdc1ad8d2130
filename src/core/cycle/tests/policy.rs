//! Scheduling policies in the cycle: what they change, when, and for whom.

use serde_json::{Value, json};

use super::gang::{group, member};
use super::harness::Harness;
use super::probe::{Probe, Script, profile};
use crate::io::{Input, Kind, Object, ObjectKey};
use crate::testing::{NodeExt, PodExt, node, pod, wire};

/// A policy `name` with this spec; the later the name in the alphabet, the younger.
pub(super) fn policy(name: &str, spec: &Value) -> Object {
    let age = name.bytes().next().map_or(0, i64::from);
    let mut object: muster_api::muster::SchedulingPolicy =
        wire(json!({"metadata": {"name": name, "uid": format!("uid-{name}")}, "spec": spec}));
    object.metadata.creation_timestamp = Some(muster_api::k8s::Time(age));
    Object::SchedulingPolicy(object)
}

fn namespace(name: &str, labels: &Value) -> Object {
    Object::Namespace(wire(json!({"metadata": {"name": name, "labels": labels}})))
}

fn small(name: &str) -> muster_api::k8s::Pod {
    pod(name).req(&[("cpu", "1"), ("memory", "1Gi")])
}

/// Two nodes, of which `full` has a pod of somebody else.
fn full_and_empty() -> Harness {
    let mut h = Harness::new();
    h.node(node("empty").cpu("8"));
    h.node(node("full").cpu("8"));
    h.pod(small("other").scheduler("x").on("full"));
    h
}

/// Where the next pod goes.
fn goes(h: &mut Harness, pod: muster_api::k8s::Pod) -> String {
    let name = pod.metadata.name.clone();
    h.pod(pod);
    let binds = h.run_binds();
    let node = binds.first().and_then(|b| b.rsplit(' ').next()).unwrap_or_default().to_owned();
    if !node.is_empty() {
        h.bound(&name, &node);
        h.gone(&name);
    }
    node
}

fn pack(priority: i32) -> Value {
    json!({"priority": priority, "placement": {"strategy": "Pack"}})
}

#[test]
fn a_strategy_acts_on_the_next_pod_and_ends_with_its_policy() {
    let mut h = full_and_empty();
    assert_eq!(goes(&mut h, small("a")), "empty", "LeastAllocated by default");
    h.object(policy("p", &pack(1)));
    assert_eq!(goes(&mut h, small("b")), "full");
    h.object(policy("p", &json!({"priority": 1, "placement": {"strategy": "Spread"}})));
    assert_eq!(goes(&mut h, small("c")), "empty");
    h.object(policy("p", &pack(1)));
    assert_eq!(goes(&mut h, small("d")), "full");
    let key = ObjectKey { name: "p".into(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::SchedulingPolicy, key));
    assert_eq!(goes(&mut h, small("e")), "empty");
    h.object(policy("p", &pack(1)));
    h.relist(Kind::SchedulingPolicy, |_| {});
    assert_eq!(goes(&mut h, small("f")), "empty", "a list that does not show it ends it too");
}

#[test]
fn a_pod_that_waits_is_placed_by_the_policies_of_the_moment_it_is_tried() {
    let mut h = full_and_empty();
    h.pod(small("a"));
    h.object(policy("p", &pack(1)));
    assert_eq!(h.run_binds(), ["bind default/a -> full"]);
}

#[test]
fn weights_take_the_place_of_the_profiles() {
    // The image is on the full node: 23 MB to 1 GB give 0 to 100; 512 MiB on one of two
    // nodes counts half: (256 - 23) of (1000 - 23) MiB, 23 * weight. By the rest `empty` is
    // better by (12 + 12) / 2 = 12.
    let mut h = Harness::new();
    h.node(node("empty").cpu("8"));
    h.node(node("full").cpu("8").image("app:1", 512 << 20));
    h.pod(pod("other").req(&[("cpu", "2"), ("memory", "2Gi")]).scheduler("x").on("full"));
    let asks = |name: &str| small(name).edit(|p| p.spec.containers[0].image = "app:1".into());
    let weigh = |weight: i32| json!({"priority": 1, "scoreWeights": [{"plugin": "ImageLocality", "weight": weight}]});
    for (name, weight, node) in [("a", 0, "empty"), ("b", 100, "full"), ("c", 0, "empty")] {
        h.object(policy("p", &weigh(weight)));
        assert_eq!(goes(&mut h, asks(name)), node, "weight {weight}");
    }
    // With no weight its score is not even listed.
    h.pod(asks("d"));
    let answer = h.core.question("default", "d").unwrap().explain();
    assert!(!answer.nodes["full"].scores.contains_key("ImageLocality"), "{answer:?}");
    assert_eq!(answer.policies[0].decides, ["scoreWeights[ImageLocality]=0"]);
}

#[test]
fn whom_a_policy_governs_follows_labels_of_pods_and_namespaces() {
    let mut h = full_and_empty();
    let spec = json!({
        "priority": 1, "placement": {"strategy": "Pack"},
        "namespaceSelector": {"matchLabels": {"team": "ml"}},
        "podSelector": {"matchExpressions": [{"key": "serve", "operator": "DoesNotExist"}]},
    });
    h.object(policy("p", &spec));
    assert_eq!(goes(&mut h, small("a")), "empty", "the namespace is not known");
    h.object(namespace("default", &json!({"team": "ml"})));
    assert_eq!(goes(&mut h, small("b")), "full");
    assert_eq!(goes(&mut h, small("c").pod_label("serve", "yes")), "empty");
    // A pod that waits follows too.
    h.pod(small("d").gate("wait"));
    h.object(namespace("default", &json!({"team": "web"})));
    h.edit("d", |p| p.spec.scheduling_gates.clear());
    assert_eq!(h.run_binds(), ["bind default/d -> empty"]);
    h.bound("d", "empty");
    h.gone("d");
    h.object(namespace("default", &json!({"team": "ml"})));
    h.pod(small("e").pod_label("serve", "yes"));
    h.edit("e", |p| p.metadata.labels.clear());
    assert_eq!(h.run_binds(), ["bind default/e -> full"]);
}

#[test]
fn of_several_the_highest_priority_wins_field_by_field_and_ties_and_nonsense_change_nothing() {
    let mut h = full_and_empty();
    h.object(policy("b", &pack(5)));
    h.object(policy("c", &json!({"priority": 5, "placement": {"strategy": "Spread"}})));
    h.object(policy(
        "d",
        &json!({"priority": 9, "placement": {"strategy": "Spread"},
            "scoreWeights": [{"plugin": "Nobody", "weight": 1}]}),
    ));
    assert_eq!(goes(&mut h, small("x")), "full");
    let said = |h: &Harness| -> Vec<String> {
        let views = h.core.policy_report().policies;
        views.iter().map(|v| format!("{} {} {}", v.name, v.reason, v.governed)).collect()
    };
    h.pod(small("y"));
    assert_eq!(said(&h), ["b Accepted 1", "c PriorityTaken 0", "d Invalid 0"]);
    // The older one goes: the younger is in force.
    let key = ObjectKey { name: "b".into(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::SchedulingPolicy, key));
    assert_eq!(said(&h), ["c Accepted 1", "d Invalid 0"]);
    assert_eq!(h.run_binds(), ["bind default/y -> empty"]);
}

#[test]
fn pods_of_other_schedulers_are_not_governed_and_bound_ones_of_ours_are() {
    let mut h = full_and_empty();
    h.object(policy("p", &pack(1)));
    let governed = |h: &Harness| h.core.policy_report().policies[0].governed;
    assert_eq!(governed(&h), 0);
    h.pod(small("a"));
    assert_eq!(governed(&h), 1);
    assert_eq!(h.run_binds(), ["bind default/a -> full"]);
    h.bound("a", "full");
    assert_eq!(governed(&h), 1);
    h.edit("a", |p| {
        p.metadata.labels.insert("k".into(), "v".into());
    });
    assert_eq!(governed(&h), 1);
    h.gone("a");
    assert_eq!(governed(&h), 0);
}

#[test]
fn packing_at_low_load_turns_at_the_thresholds_and_not_between_them() {
    // 16 CPUs; the load is set by one pod of somebody else on a third node.
    let mut h = full_and_empty();
    h.node(node("load").cpu("16").unschedulable());
    h.object(policy(
        "p",
        &json!({"priority": 1, "placement": {"strategy": "PackAtLowLoad",
            "packBelowPercent": 25, "spreadAbovePercent": 50, "loadResource": "cpu"}}),
    ));
    // Of 32 CPUs, `other` has one.
    for (i, (taken, node)) in [
        (9, "full"),
        (14, "full"),
        (15, "full"),
        (16, "empty"),
        (9, "empty"),
        (7, "empty"),
        (6, "full"),
        (14, "full"),
    ]
    .into_iter()
    .enumerate()
    {
        let load = pod("taken").req(&[("cpu", &taken.to_string())]).scheduler("x").on("load");
        h.pod(load);
        assert_eq!(goes(&mut h, small(&format!("p{i}"))), node, "step {i}: {} of 32", taken + 1);
        h.gone("taken");
    }
    assert!(h.core.cluster.load_is_right());
}

#[test]
fn without_a_named_resource_the_one_most_used_is_the_load() {
    let mut h = full_and_empty();
    h.node(node("gpus").alloc("example.com/gpu", "4").unschedulable());
    h.object(policy(
        "p",
        &json!({"priority": 1, "placement": {"strategy": "PackAtLowLoad",
            "packBelowPercent": 50, "spreadAbovePercent": 60}}),
    ));
    assert_eq!(goes(&mut h, small("a")), "full");
    h.pod(pod("g").req(&[("example.com/gpu", "3")]).scheduler("x").on("gpus"));
    assert_eq!(goes(&mut h, small("b")), "empty", "three of four GPUs are taken");
}

#[test]
fn packing_counts_the_gpus_that_a_pod_asks_for() {
    let mut h = Harness::new();
    // `wide` is fuller by CPU, `deep` by GPU.
    h.node(node("deep").cpu("64").memory("64Gi").alloc("example.com/gpu", "4"));
    h.node(node("wide").cpu("64").memory("64Gi").alloc("example.com/gpu", "4"));
    h.pod(pod("x").req(&[("example.com/gpu", "2")]).scheduler("x").on("deep"));
    h.pod(pod("y").req(&[("cpu", "6"), ("memory", "6Gi")]).scheduler("x").on("wide"));
    h.object(policy("p", &pack(1)));
    let gpu = |name: &str| pod(name).req(&[("cpu", "1"), ("example.com/gpu", "1")]);
    assert_eq!(goes(&mut h, gpu("a")), "deep");
    assert_eq!(goes(&mut h, small("b")), "wide", "one that asks for none goes by CPU and memory");
}

#[test]
fn balanced_leaves_it_to_the_balance_of_resources() {
    let mut h = Harness::new();
    // `bare` has more room: (87 + 62) / 2 of 100 against (37 + 62) / 2. On `skewed` the pod
    // brings CPU (4 of 8) and memory (none) nearer to each other: 81 against 68.
    h.node(node("bare").cpu("8").memory("8Gi"));
    h.node(node("skewed").cpu("8").memory("8Gi"));
    h.pod(pod("x").req(&[("cpu", "4"), ("memory", "0")]).scheduler("x").on("skewed"));
    let asks = |name: &str| pod(name).req(&[("cpu", "1"), ("memory", "3Gi")]);
    assert_eq!(goes(&mut h, asks("a")), "bare");
    h.object(policy("b", &json!({"priority": 2, "placement": {"strategy": "Balanced"}})));
    assert_eq!(goes(&mut h, asks("b")), "skewed");
}

fn waiting_gang(spec: &Value) -> Harness {
    let probe = Probe::new("One", Script { wait: Some(900), ..Script::default() });
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.object(group("g", spec));
    h.pod(member("a", "g").pod_label("team", "ml"));
    h.pod(member("b", "g"));
    h
}

/// After how many seconds the gang gives up waiting at Permit.
fn gives_up(h: &mut Harness) -> i64 {
    h.run();
    for second in 1..=400 {
        h.sleep(1);
        if h.effects().iter().any(|e| e.contains("ScheduleTimeout")) {
            return second;
        }
    }
    panic!("it waits for ever")
}

#[test]
fn a_gang_has_the_deadline_of_its_policy_where_its_group_leaves_it_out() {
    let terms = |seconds: i32| json!({"priority": 1, "gang": {"scheduleTimeoutSeconds": seconds}});
    let ml = |mut spec: Value| {
        spec["podSelector"] = json!({"matchLabels": {"team": "ml"}});
        spec
    };
    let open = json!({"minMember": 2});
    let own = json!({"minMember": 2, "scheduleTimeoutSeconds": 20});
    let cases = [
        ("no policy", open.clone(), None, 300),
        ("a policy for all", open.clone(), Some(terms(50)), 50),
        ("the group's own word counts", own, Some(terms(50)), 20),
        ("a policy that governs one member only", open, Some(ml(terms(50))), 300),
    ];
    for (case, spec, policies, seconds) in cases {
        let mut h = waiting_gang(&spec);
        policies.iter().for_each(|spec| h.object(policy("p", spec)));
        assert_eq!(gives_up(&mut h), seconds, "{case}");
    }
    // The group is known before its policy, and its status is written meanwhile.
    let mut h = waiting_gang(&json!({"minMember": 2}));
    h.core.settle(h.now);
    h.object(policy("p", &terms(50)));
    h.core.settle(h.now);
    h.object(group("g", &json!({"minMember": 2})));
    assert_eq!(gives_up(&mut h), 50);
}

#[test]
fn what_a_policy_says_of_gangs_is_reported_and_ends_with_it() {
    let mut h = waiting_gang(&json!({"minMember": 2}));
    h.object(policy(
        "p",
        &json!({"priority": 1, "gang": {"startTimeoutSeconds": 7},
            "topology": {"required": "rack"}}),
    ));
    h.run();
    let starts = h.core.policy_report().starts;
    assert_eq!(
        starts.iter().map(|(g, s)| (g.to_string(), *s)).collect::<Vec<_>>(),
        [("default/g".to_owned(), 7)]
    );
    let (_, gang) = h.core.cluster.gangs().next().unwrap();
    let wish = gang.spec.as_ref().and_then(|spec| spec.topology.clone());
    assert_eq!(wish.and_then(|wish| wish.required).map(|level| level.name), Some("rack".into()));
    let key = ObjectKey { name: "p".into(), ..ObjectKey::default() };
    h.apply(Input::ObjectGone(Kind::SchedulingPolicy, key));
    h.run();
    assert_eq!(h.core.policy_report().starts, []);
}

#[test]
fn a_half_bound_gang_obeys_a_policy_that_comes_late() {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    h.object(group("g", &json!({"minMember": 2})));
    h.pod(member("a", "g").on("n1"));
    h.pod(member("b", "g"));
    h.run();
    h.object(policy("p", &json!({"priority": 1, "gang": {"whenHalfBound": "Wait"}})));
    h.run();
    h.sleep(400);
    assert!(!h.effects().iter().any(|e| e.starts_with("evict")));
    // By a new one the time has long been over.
    h.object(policy("p", &json!({"priority": 1, "gang": {"whenHalfBound": "Release"}})));
    h.run();
    h.sleep(1);
    assert!(h.effects().iter().any(|e| e == "evict default/a"));
}
