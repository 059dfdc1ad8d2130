//! Prepared situations: the cause is the true one, and every cure, when it is applied, lets it run.
//!
//! What is said is in `golden/`, word for word. That a cure works is looked at with a core of its
//! own, fed with the changed objects from the beginning: no fork, no finder.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]
#![allow(clippy::needless_pass_by_value, reason = "a situation is easier to read so")]

use std::collections::BTreeSet;
use std::path::Path;

use muster_core::io::{Change as Wire, Input, Tick};
use muster_core::{Config, Core, Outcome, Profile};
use serde_json::{Value, json};

use super::*;
use crate::explain::{Decoded, Document, decode};
use crate::whatif::World;

/// A situation: objects, the question, who keeps it, words of the cause, words of cures.
struct Situation {
    name: &'static str,
    objects: Vec<Value>,
    ask: &'static str,
    blocker: &'static str,
    cause: &'static str,
    cures: &'static [&'static str],
}

fn node(name: &str, gpus: u32, labels: Value) -> Value {
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "10",
            "nvidia.com/gpu": gpus.to_string()},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    for (key, value) in labels.as_object().unwrap() {
        node["metadata"]["labels"][key] = value.clone();
    }
    node
}

fn pod(name: &str, gpus: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "uid": name, "labels": {"app": name},
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "muster", "priority": 0, "containers": [{"name": "main", "image": "i",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": gpus.to_string()},
                "limits": {"nvidia.com/gpu": gpus.to_string()}}}]},
        "status": {"phase": "Pending"}})
}

fn on(mut pod: Value, node: &str) -> Value {
    pod["spec"]["nodeName"] = node.into();
    pod["status"] = json!({"phase": "Running", "startTime": "2026-01-01T00:05:00Z"});
    pod
}

/// Sets a field, by its pointer; parents that are missing are made.
fn set(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut object;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/");
        at = match step.parse::<usize>() {
            Ok(i) if at.is_array() => &mut at[i],
            _ => &mut at[step],
        };
    }
    *at = value;
    object
}

fn in_group(pod: Value, group: &str) -> Value {
    set(pod, "/metadata/labels/muster.dev~1pod-group", group.into())
}

fn group(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec})
}

fn members(group: &str, count: usize, gpus: u32) -> impl Iterator<Item = Value> {
    (0..count).map(move |i| in_group(pod(&format!("{group}-{i}"), gpus), group))
}

fn fabric() -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": "fabric"}, "spec": {"levels": [
            {"name": "block", "nodeLabel": "b"}, {"name": "rack", "nodeLabel": "r"}]}})
}

/// A block of two racks: three nodes and two, a GPU each.
fn two_racks() -> Vec<Value> {
    let rack = |i: usize| if i < 3 { "r1" } else { "r2" };
    (0..5).map(|i| node(&format!("n{i}"), 1, json!({"b": "b1", "r": rack(i)}))).collect()
}

fn cluster(parts: impl IntoIterator<Item = Vec<Value>>) -> Vec<Value> {
    parts.into_iter().flatten().collect()
}

fn rooms() -> Vec<Situation> {
    let small = |name: &str| node(name, 4, json!({}));
    vec![
        Situation {
            name: "too-few-gpus",
            objects: vec![
                small("n1"),
                small("n2"),
                on(pod("old", 2), "n1"),
                on(pod("other", 3), "n2"),
                pod("train", 4),
            ],
            ask: "train",
            blocker: "NodeResourcesFit",
            cause: "Insufficient nvidia.com/gpu",
            cures: &[
                "ask for 2 nvidia.com/gpu instead of 4",
                "stop 1 pod: team/old",
                "add one more node like n1",
            ],
        },
        Situation {
            name: "cordoned",
            objects: vec![
                set(small("n1"), "/spec/unschedulable", true.into()),
                small("n2"),
                on(pod("other", 4), "n2"),
                pod("train", 4),
            ],
            ask: "train",
            blocker: "NodeUnschedulable",
            cause: "node(s) were unschedulable",
            cures: &["uncordon node n1", "stop 1 pod: team/other"],
        },
        Situation {
            name: "not-ready",
            objects: vec![
                set(
                    small("n1"),
                    "/spec/taints",
                    json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]),
                ),
                pod("train", 1),
            ],
            ask: "pod/train",
            blocker: "TaintToleration",
            cause: "untolerated taint",
            cures: &["bring node n1 back"],
        },
        Situation {
            name: "kept-by-a-budget",
            objects: vec![
                small("n1"),
                on(pod("kept", 4), "n1"),
                json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                    "metadata": {"name": "keep", "namespace": "team"},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
                    "status": {"disruptionsAllowed": 0}}),
                set(pod("urgent", 4), "/spec/priority", 100.into()),
            ],
            ask: "urgent",
            blocker: "NodeResourcesFit",
            cause: "Insufficient nvidia.com/gpu",
            cures: &["stop 1 pod: team/kept"],
        },
    ]
}

fn constraints() -> Vec<Situation> {
    let plain = |name: &str| node(name, 4, json!({"gpu": "h100", "zone": name}));
    let term = json!([{"labelSelector": {"matchLabels": {"kind": "db"}},
        "topologyKey": "kubernetes.io/hostname"}]);
    let db = |name: &str| set(pod(name, 0), "/metadata/labels/kind", "db".into());
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"kind": "db"}}}]);
    let port = |pod: Value| {
        let ports = json!([{"containerPort": 80, "hostPort": 80}]);
        set(pod, "/spec/containers/0/ports", ports)
    };
    vec![
        Situation {
            name: "tainted",
            objects: vec![
                set(
                    plain("n1"),
                    "/spec/taints",
                    json!([{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]),
                ),
                pod("train", 1),
            ],
            ask: "train",
            blocker: "TaintToleration",
            cause: "untolerated taint",
            cures: &["tolerate the taint dedicated=ml:NoSchedule"],
        },
        Situation {
            name: "a-label-that-no-node-has",
            objects: vec![
                plain("n1"),
                plain("n2"),
                set(pod("train", 1), "/spec/nodeSelector", json!({"gpu": "h300"})),
            ],
            ask: "train",
            blocker: "NodeAffinity",
            cause: "node(s) didn't match Pod's node affinity/selector",
            cures: &[
                "ask for nodeSelector gpu=h100 (a label of 2 nodes) instead of gpu=h300",
                "without nodeSelector gpu=h300",
            ],
        },
        Situation {
            name: "spread",
            objects: vec![
                plain("n1"),
                node("n2", 0, json!({"zone": "n2"})),
                on(db("a"), "n1"),
                set(
                    set(pod("b", 1), "/metadata/labels/kind", "db".into()),
                    "/spec/topologySpreadConstraints",
                    spread,
                ),
            ],
            ask: "b",
            blocker: "PodTopologySpread",
            cause: "node(s) didn't match pod topology spread constraints",
            cures: &["spread over zone with whenUnsatisfiable: ScheduleAnyway"],
        },
        Situation {
            name: "anti-affinity",
            objects: vec![
                plain("n1"),
                on(db("a"), "n1"),
                set(
                    db("b"),
                    "/spec/affinity/podAntiAffinity",
                    json!({"requiredDuringSchedulingIgnoredDuringExecution": term}),
                ),
            ],
            ask: "b",
            blocker: "InterPodAffinity",
            cause: "node(s) didn't match pod anti-affinity rules",
            cures: &["without its required pod anti-affinity over kubernetes.io/hostname"],
        },
        Situation {
            name: "a-port-in-use",
            objects: vec![plain("n1"), on(port(pod("web", 0)), "n1"), port(pod("web-2", 0))],
            ask: "web-2",
            blocker: "NodePorts",
            cause: "node(s) didn't have free ports for the requested pod ports",
            cures: &["without hostPort", "stop 1 pod: team/web"],
        },
        Situation {
            name: "a-claim-that-is-not-there",
            objects: vec![
                plain("n1"),
                json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                    "metadata": {"name": "disks"}, "provisioner": "example.com/disks",
                    "volumeBindingMode": "WaitForFirstConsumer"}),
                set(
                    pod("train", 1),
                    "/spec/volumes",
                    json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]),
                ),
            ],
            ask: "train",
            blocker: "VolumeBinding",
            cause: "persistentvolumeclaim \"data\" not found",
            cures: &["create the PersistentVolumeClaim data"],
        },
        Situation {
            name: "gated",
            objects: vec![
                plain("n1"),
                set(
                    pod("train", 1),
                    "/spec/schedulingGates",
                    json!([{"name": "kueue.x-k8s.io/admission"}]),
                ),
            ],
            ask: "train",
            blocker: "SchedulingGates",
            cause: "held back by the scheduling gate kueue.x-k8s.io/admission",
            cures: &["remove its scheduling gates"],
        },
        Situation {
            name: "of-another-scheduler",
            objects: vec![
                plain("n1"),
                set(pod("train", 1), "/spec/schedulerName", "default-scheduler".into()),
            ],
            ask: "train",
            blocker: "SchedulerName",
            cause: "it asks for the scheduler default-scheduler, not for muster",
            cures: &["ask for schedulerName: muster"],
        },
    ]
}

fn gangs() -> Vec<Situation> {
    let rack = json!({"minMember": 4, "topology": {"required": "rack"}});
    vec![
        Situation {
            name: "one-short-in-the-rack",
            objects: cluster([
                two_racks(),
                vec![fabric(), group("train", rack)],
                members("train", 4, 1).collect(),
            ]),
            ask: "podgroup/train",
            blocker: "Topology",
            cause: "room for 3 of 4 members in the best rack (r1)",
            cures: &[
                "one member fewer: a minimum of 3 instead of 4",
                "be in one block instead of one rack",
            ],
        },
        Situation {
            name: "one-node-short",
            objects: cluster([
                (0..3).map(|i| node(&format!("n{i}"), 8, json!({}))).collect(),
                vec![group("train", json!({"minMember": 4}))],
                members("train", 4, 8).collect(),
            ]),
            ask: "train",
            blocker: "NodeResourcesFit",
            cause: "room for 3 of 4 members",
            cures: &[
                "one member fewer: a minimum of 3 instead of 4",
                "ask for 4 nvidia.com/gpu instead of 8 (each of 4 members)",
                "add one more node like n0 (8 nvidia.com/gpu)",
            ],
        },
        Situation {
            name: "incomplete",
            objects: cluster([
                vec![node("n1", 8, json!({})), group("train", json!({"minMember": 3}))],
                members("train", 2, 1).collect(),
            ]),
            ask: "podgroup/train",
            blocker: "Gang",
            cause: "2 of 3 members exist",
            cures: &[
                "create one more member like train-0",
                "one member fewer: a minimum of 2 instead of 3",
            ],
        },
        Situation {
            name: "without-its-group",
            objects: cluster([vec![node("n1", 8, json!({}))], members("train", 2, 1).collect()]),
            ask: "train-1",
            blocker: "Gang",
            cause: "waiting for pod group team/train to exist",
            cures: &["create the pod group team/train with a minimum of 2"],
        },
        Situation {
            name: "victims-of-a-gang",
            objects: cluster([
                (0..2).map(|i| node(&format!("n{i}"), 8, json!({}))).collect(),
                vec![on(pod("a", 8), "n0"), on(pod("b", 8), "n1")],
                vec![group("train", json!({"minMember": 2}))],
                members("train", 2, 8).collect(),
            ]),
            ask: "podgroup/train",
            blocker: "NodeResourcesFit",
            cause: "room for 0 of 2 members",
            cures: &["stop 2 pods: team/a, team/b", "add 2 more nodes like n0"],
        },
        // Nodes of the first rack would take more of them: it has no room of its own.
        Situation {
            name: "one-node-short-in-the-second-rack",
            objects: cluster([
                two_racks(),
                (0..3).map(|i| on(pod(&format!("old-{i}"), 1), &format!("n{i}"))).collect(),
                vec![
                    fabric(),
                    group("train", json!({"minMember": 3, "topology": {"required": "rack"}})),
                ],
                members("train", 3, 1).collect(),
            ]),
            ask: "podgroup/train",
            blocker: "NodeResourcesFit",
            cause: "room for 2 of 3 members in the best rack (r2)",
            cures: &["add one more node like n3 (1 nvidia.com/gpu)"],
        },
        // The largest node is kept for others; the second has the same size and no taint.
        Situation {
            name: "a-node-that-others-may-not-use",
            objects: vec![
                set(
                    node("n1", 8, json!({})),
                    "/spec/taints",
                    json!([{"key": "dedicated", "effect": "NoSchedule"}]),
                ),
                node("n2", 8, json!({})),
                on(pod("old", 8), "n1"),
                on(pod("other", 8), "n2"),
                pod("train", 8),
            ],
            ask: "train",
            blocker: "NodeResourcesFit",
            cause: "Insufficient nvidia.com/gpu",
            cures: &["stop 1 pod: team/other", "add one more node like n2 (8 nvidia.com/gpu)"],
        },
        // One of many would do, and two of them are needed.
        Situation {
            name: "two-of-many-cordoned",
            objects: cluster([
                (0..12)
                    .map(|i| {
                        let gpus = if i == 9 || i == 11 { 8 } else { 0 };
                        let closed = node(&format!("n{i:02}"), gpus, json!({}));
                        set(closed, "/spec/unschedulable", true.into())
                    })
                    .collect(),
                vec![group("train", json!({"minMember": 2}))],
                members("train", 2, 8).collect(),
            ]),
            ask: "podgroup/train",
            blocker: "NodeUnschedulable",
            cause: "room for 0 of 2 members",
            cures: &["uncordon nodes n09, n11"],
        },
        Situation {
            name: "a-rack-for-itself",
            objects: cluster([
                two_racks(),
                vec![fabric(), group("first", json!({"minMember": 1}))],
                vec![on(in_group(pod("first-0", 1), "first"), "n0")],
                vec![group(
                    "train",
                    json!({"minMember": 2, "topology": {"required": "block", "exclusive": true}}),
                )],
                members("train", 2, 1).collect(),
            ]),
            ask: "podgroup/train",
            blocker: "Topology",
            cause: "",
            cures: &["share its domain with other gangs: without exclusive"],
        },
    ]
}

fn situations() -> Vec<Situation> {
    rooms().into_iter().chain(constraints()).chain(gangs()).collect()
}

fn world(objects: &[Value]) -> World {
    let documents = objects.iter().cloned().enumerate().map(Document::of).collect();
    World::new(documents, None).unwrap()
}

fn ask(world: &World, name: &str) -> Why {
    let stage = Stage::new(world, vec![Profile::default_named("muster")]);
    why(&stage, &About::find(&stage, "team", name).unwrap())
}

/// Who finds a node, in a core that is told of these objects from the beginning.
fn runs(objects: &[Value]) -> BTreeSet<String> {
    let mut core = Core::new(Config::default());
    let now = Tick(1_000_000_000);
    for (i, object) in objects.iter().enumerate() {
        let input = match decode(&Document::of((i, object.clone()))).unwrap() {
            Decoded::Node(node) => Input::Node(Wire::Upsert(node)),
            Decoded::Pod(pod) => Input::Pod(Wire::Upsert(pod)),
            Decoded::Object(object) => Input::Object(object),
            Decoded::Unread(kind) => panic!("{kind}"),
        };
        core.apply(now, input);
    }
    let mut placed = BTreeSet::new();
    while let Some(decision) = core.schedule_one(now) {
        match decision.outcome {
            Outcome::Scheduled { .. } => drop(placed.insert(decision.pod.to_string())),
            Outcome::Gathered { members } => {
                placed.extend(members.iter().map(|(pod, _)| pod.to_string()));
            }
            _ => {}
        }
    }
    placed
}

/// The objects after changes.
fn changed(objects: &[Value], cure: &Cure) -> Vec<Value> {
    let mut after = objects.to_vec();
    for change in &cure.changes {
        let at = after.iter().position(|object| Key::of(object).as_ref() == Some(&change.of));
        let new = change.applied_to(at.map(|at| &after[at]));
        match (at, new) {
            (Some(at), Some(new)) => after[at] = new,
            (Some(at), None) => drop(after.remove(at)),
            (None, Some(new)) => after.push(new),
            (None, None) => panic!("{change:?} changes nothing"),
        }
    }
    after
}

/// With `UPDATE_GOLDEN=1` the file is written, otherwise compared.
fn golden(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/whatif/why/golden");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{name}.txt is not what is said; look at it after UPDATE_GOLDEN=1 cargo test -p muster \
         --lib whatif:\n{text}"
    );
}

#[test]
fn the_cause_is_the_true_one_and_every_cure_works() {
    for Situation { name, objects, ask: about, blocker, cause, cures } in situations() {
        assert_eq!(runs(&objects), BTreeSet::new(), "{name}: somebody runs as it is");
        let why = ask(&world(&objects), about);
        let said = text(&why, true, &str::to_owned);
        assert_eq!(why.state, "Waiting", "{name}:\n{said}");
        assert!(why.cause.contains(cause), "{name}: {cause:?} is not in:\n{said}");
        assert_eq!(why.blocker, blocker, "{name}:\n{said}");
        for expected in cures {
            let found = why.cures.iter().any(|cure| cure.what.starts_with(expected));
            assert!(found, "{name}: no {expected:?} in:\n{said}");
        }
        for cure in &why.cures {
            let placed = runs(&changed(&objects, cure));
            let all = cure.places.keys().cloned().collect();
            assert!(!cure.places.is_empty(), "{name}: {}", cure.what);
            assert!(placed.is_superset(&all), "{name}: {}: only {placed:?} run", cure.what);
        }
        golden(name, &said);
    }
}

#[test]
fn a_pod_that_has_a_node_is_told_which_container_keeps_it() {
    let waiting = json!({"phase": "Pending", "startTime": "2026-01-01T00:05:00Z", "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff",
            "message": "Back-off pulling image \"i\""}}}]});
    let init = json!({"phase": "Pending", "initContainerStatuses": [
        {"name": "fetch", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]});
    let failed = json!({"phase": "Failed", "reason": "TopologyAffinityError",
        "message": "Resources cannot be allocated with Topology locality"});
    let silent = json!({"phase": "Pending"});
    let n2 = set(
        node("n2", 1, json!({})),
        "/status/conditions",
        json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]),
    );
    for (status, place, state, blocker, cause) in [
        (
            waiting,
            "n1",
            "Starting",
            "Container",
            "container main on node n1 waits: ImagePullBackOff: Back-off pulling image \"i\"",
        ),
        (
            init,
            "n1",
            "Starting",
            "Container",
            "init container fetch on node n1 ended with code 3: Error",
        ),
        (
            failed,
            "n1",
            "Ended",
            "Kubelet",
            "it failed on n1: TopologyAffinityError: Resources cannot be allocated with Topology \
             locality",
        ),
        (
            silent.clone(),
            "n1",
            "Starting",
            "Kubelet",
            "the kubelet of node n1 has not taken it yet",
        ),
        (
            silent,
            "n2",
            "Starting",
            "Kubelet",
            "node n2 is silent (NodeStatusUnknown): its kubelet does not take it",
        ),
        (json!({"phase": "Running"}), "n1", "Running", "", "it runs on node n1"),
    ] {
        let mut pod = on(pod("train", 1), place);
        pod["status"] = status;
        let why = ask(&world(&[node("n1", 1, json!({})), n2.clone(), pod]), "train");
        assert_eq!((why.state, why.blocker.as_str(), why.cause.as_str()), (state, blocker, cause));
        assert_eq!(why.node, place);
    }
}

#[test]
fn what_nothing_keeps_is_told_so() {
    let why = ask(&world(&[node("n1", 1, json!({})), pod("train", 1)]), "train");
    assert!(why.cause.starts_with("nothing: there is room for it now, on node n1."), "{why:?}");
    assert_eq!((why.blocker.as_str(), why.cures.len()), ("", 0));
    let low = [
        node("n1", 1, json!({})),
        on(pod("low", 1), "n1"),
        set(pod("high", 1), "/spec/priority", 5.into()),
    ];
    let why = ask(&world(&low), "high");
    assert_eq!(why.cause, "room is made for it, once these have left: team/low");
}

#[test]
fn names_are_found_or_refused() {
    let world = world(&[
        node("n1", 1, json!({})),
        pod("train", 1),
        group("alone", json!({"minMember": 1})),
    ]);
    let stage = Stage::new(&world, vec![Profile::default_named("muster")]);
    let refused = |name: &str| About::find(&stage, "team", name).unwrap_err().to_string();
    let there =
        |what: &str| format!("there is no {what} \"x\" in namespace \"team\" (-n NAMESPACE)");
    assert_eq!(refused("x"), there("pod or pod group"));
    assert_eq!(refused("pod/x"), there("pod"));
    assert_eq!(refused("podgroups.muster.dev/x"), there("pod group"));
    assert_eq!(refused("job/x"), "job/x: write pod/NAME or podgroup/NAME");
    let alone = ask_stage(&stage, "alone");
    assert_eq!(
        alone.cause,
        "no pod is a member of it: members have the label muster.dev/pod-group: alone"
    );
}

fn ask_stage(stage: &Stage<'_>, name: &str) -> Why {
    why(stage, &About::find(stage, "team", name).unwrap())
}
