//! GpuLinks: which node, which GPUs, and who is told of them.

use muster_api::k8s;
use muster_api::muster::annotations::PREDICTED_DEVICES;
use serde_json::{Value, json};

use super::gang::group;
use super::harness::{Harness, check};
use crate::framework::{PluginArgs, Profile, Registry, RegistryError};
use crate::io::Object;
use crate::testing::{NodeExt as _, PodExt as _, SCHEDULER, node, pod, wire};

const GPU: &str = "nvidia.com/gpu";

fn profile(args: &Value) -> Result<Profile, RegistryError> {
    with(args, &[("PrioritySort", 0), ("GpuLinks", 1), ("DefaultBinder", 0)])
}

fn with(args: &Value, plugins: &[(&str, i64)]) -> Result<Profile, RegistryError> {
    let custom = [("GpuLinks".to_owned(), args.clone())].into();
    let args = PluginArgs { custom, ..PluginArgs::default() };
    Profile::build(SCHEDULER, plugins.iter().copied(), &args, &Registry::in_tree())
}

fn harness(nodes: &[&str]) -> Harness {
    let mut h = Harness::with(profile(&json!({})).expect("a profile"));
    nodes.iter().for_each(|name| h.node(node(name)));
    h
}

/// Eight GPUs behind switches, four beside each socket; which pods have which, by UID.
fn report(name: &str, version: u32, held: &[(&str, &[u32])]) -> Object {
    let device = |gpu: u32| {
        let mut device = json!({"resource": GPU, "id": format!("GPU-{gpu}"), "numa": [gpu / 4],
            "state": "Free"});
        if let Some((uid, _)) = held.iter().find(|(_, gpus)| gpus.contains(&gpu)) {
            device["state"] = "Allocated".into();
            device["pod"] = json!({"namespace": "default", "name": uid, "uid": uid});
        }
        device
    };
    let gpu = |gpu: u32| {
        json!({"uuid": format!("GPU-{gpu}"), "numa": gpu / 4,
        "nvlinks": {"total": 18, "active": 18}})
    };
    let path = |a: u32, b: u32| if a / 4 == b / 4 { "NODE" } else { "SYS" };
    let links = (0..8).flat_map(|b| (0..b).map(move |a| (a, b))).map(|(a, b)| {
        json!({"a": a, "b": b, "path": path(a, b), "nvlinks": 18, "megabytesPerSecond": 370_800})
    });
    Object::NodeTopology(wire(json!({
        "metadata": {"name": name, "resourceVersion": version.to_string()},
        "hardware": {
            "hash": "h",
            "numa": [
                {"id": 0, "socket": 0, "cpus": "0-15", "distances": [10, 21]},
                {"id": 1, "socket": 1, "cpus": "16-31", "distances": [21, 10]},
            ],
            "gpus": (0..8).map(gpu).collect::<Vec<_>>(),
            "links": links.collect::<Vec<_>>(),
        },
        "kubelet": {"version": "v1.37.1"},
        "status": {"sequence": version, "podSet": {"count": held.len()},
            "devices": (0..8).map(device).collect::<Vec<_>>()},
    })))
}

fn asks(name: &str, gpus: u32) -> k8s::Pod {
    pod(name).edit(|p| {
        let requests = json!({GPU: gpus.to_string()});
        p.spec.containers = vec![wire(json!({"name": "c", "resources": {"requests": requests}}))];
    })
}

/// A pod of another scheduler with a UID that reports name.
fn stranger(h: &mut Harness, name: &str, on: &str, gpus: u32) {
    h.pod(asks(name, gpus).on(on).edit(|p| {
        p.metadata.uid = name.to_owned();
        p.spec.scheduler_name = "other".to_owned();
    }));
}

/// `bind default/p -> n [GPU-0 GPU-1]`
fn bind(name: &str, node: &str, gpus: &[u32]) -> String {
    let ids: Vec<String> = gpus.iter().map(|gpu| format!("\"GPU-{gpu}\"")).collect();
    format!("bind default/{name} -> {node} {{\"{GPU}\":[{}]}}", ids.join(","))
}

#[test]
fn whole_sets_are_left_for_those_who_need_them() {
    let mut h = harness(&["empty", "half", "odd"]);
    for (name, on, gpus) in [("x", "half", 4), ("y", "odd", 3)] {
        stranger(&mut h, name, on, gpus);
    }
    h.object(report("empty", 1, &[]));
    h.object(report("half", 1, &[("x", &[4, 5, 6, 7])]));
    h.object(report("odd", 1, &[("y", &[0, 1, 2])]));
    // GPU 3 of `odd` is alone on its side.
    h.pod(asks("one", 1));
    check(h.run_binds(), &bind("one", "odd", &[3]));
    // A whole side without breaking up a machine; `odd` has one, too: which is a tie.
    h.pod(asks("four", 4));
    let four = h.run_binds();
    let (half, odd) = (bind("four", "half", &[0, 1, 2, 3]), bind("four", "odd", &[4, 5, 6, 7]));
    assert!(four == [half] || four == [odd], "{four:?}");
    h.pod(asks("eight", 8));
    check(h.run_binds(), &bind("eight", "empty", &[0, 1, 2, 3, 4, 5, 6, 7]));
}

#[test]
fn who_is_on_the_way_has_its_gpus_already() {
    let mut h = harness(&["n"]);
    h.object(report("n", 1, &[]));
    for name in ["a", "b", "c"] {
        h.pod(asks(name, 2));
    }
    let binds = [bind("a", "n", &[0, 1]), bind("b", "n", &[2, 3]), bind("c", "n", &[4, 5])];
    check(h.run_binds(), &binds.join("\n"));
    // The kubelet gave b other ones: what was predicted for it is free.
    let uid = |name: &str, h: &Harness| h.last(name).metadata.uid;
    let (a, b) = (uid("a", &h), uid("b", &h));
    h.object(report("n", 2, &[(&a, &[0, 1]), (&b, &[6, 7])]));
    h.pod(asks("d", 2));
    check(h.run_binds(), &bind("d", "n", &[2, 3]));
    h.gone("c");
    h.pod(asks("e", 2));
    check(h.run_binds(), &bind("e", "n", &[4, 5]));
}

#[test]
fn a_scheduler_that_starts_reads_what_was_predicted() {
    let mut h = harness(&["n"]);
    let note = json!({GPU: ["GPU-0", "GPU-2"]}).to_string();
    let bound = asks("old", 2).on("n").edit(|p| {
        p.metadata.annotations.insert(PREDICTED_DEVICES.to_owned(), note);
    });
    h.pod(bound);
    h.pod(asks("garbled", 1).on("n").edit(|p| {
        p.metadata.annotations.insert(PREDICTED_DEVICES.to_owned(), "[".to_owned());
    }));
    h.object(report("n", 1, &[]));
    h.pod(asks("new", 2));
    check(h.run_binds(), &bind("new", "n", &[1, 3]));
}

#[test]
fn a_node_of_which_nothing_is_known_is_the_last_choice_and_predicts_nothing() {
    let mut h = harness(&["known", "unknown"]);
    h.object(report("known", 1, &[]));
    h.pod(asks("a", 8));
    check(h.run_binds(), &bind("a", "known", &[0, 1, 2, 3, 4, 5, 6, 7]));
    let mut h = harness(&["unknown"]);
    h.pod(asks("a", 8));
    h.pod(pod("without"));
    check(h.run_binds(), "bind default/a -> unknown\nbind default/without -> unknown");
}

#[test]
fn what_was_asked_for_of_late_weighs() {
    let mut h = harness(&["side", "pair"]);
    stranger(&mut h, "x", "side", 4);
    stranger(&mut h, "y", "pair", 6);
    h.object(report("side", 1, &[("x", &[0, 1, 2, 3])]));
    h.object(report("pair", 1, &[("y", &[2, 3, 4, 5, 6, 7])]));
    let waits = |name: &str, gpus: u32| {
        asks(name, gpus).edit(|p| p.spec.scheduling_gates = vec![wire(json!({"name": "wait"}))])
    };
    h.pod(waits("one", 1));
    let scores = |h: &Harness| {
        let explanation = h.core.question("default", "one").expect("a question").explain();
        ["side", "pair"].map(|node| explanation.nodes[node].scores["GpuLinks"])
    };
    // Of 24 GPUs in whole sets (2 + 4) are lost on `side`, 2 on `pair`: 10 and 3 of 40 points.
    assert_eq!(scores(&h), [90, 97]);
    for i in 0..2000 {
        h.pod(waits(&format!("p{i}"), 2));
    }
    // Nobody but for pairs: 2 of 8 are lost on either.
    h.sleep(600);
    assert_eq!(scores(&h), [90, 90]);
    h.sleep(48 * 3600);
    assert_eq!(scores(&h), [90, 97], "that was long ago");
}

/// Four NVLink domains of two nodes each, in an order that says nothing of them.
fn rack(links: bool) -> Harness {
    let plugins = [("PrioritySort", 0), ("NodeResourcesFit", 1), ("DefaultBinder", 0)];
    let own = if links { &[("GpuLinks", 1)][..] } else { &[] };
    let plugins: Vec<(&str, i64)> = plugins.iter().chain(own).copied().collect();
    let mut h = Harness::with(with(&json!({}), &plugins).expect("a profile"));
    for tray in ["a0", "b0", "c0", "d0", "d1", "b1", "a1", "c1"] {
        h.node(node(tray).alloc(GPU, "8"));
        let mut object = report(tray, 1, &[]);
        if let Object::NodeTopology(report) = &mut object {
            let hardware = report.hardware.as_mut().expect("hardware");
            let clique = format!("{}.7", &tray[..1]);
            hardware.domain = Some(wire(json!({"clique": clique})));
        }
        h.object(object);
    }
    h
}

/// Domains of the nodes on which two members of each of four gangs are.
fn gangs_by_domain(h: &mut Harness, spec: &Value) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for gang in ["g0", "g1", "g2", "g3"] {
        h.object(group(gang, spec));
        for i in 0..2 {
            h.pod(asks(&format!("{gang}-{i}"), 8).pod_label("muster.dev/pod-group", gang));
        }
        let binds = h.run_binds();
        let domain = |bind: &String| bind.split(" -> ").nth(1).map(|node| node[..1].to_owned());
        let domains: Vec<String> = binds.iter().filter_map(domain).collect();
        assert_eq!(domains.len(), 2, "{binds:?}");
        pairs.push((domains[0].clone(), domains[1].clone()));
    }
    pairs
}

#[test]
fn members_of_a_gang_are_in_one_nvlink_domain() {
    let apart = |pairs: &[(String, String)]| pairs.iter().filter(|(a, b)| a != b).count();
    let plain = json!({"minMember": 2});
    assert_eq!(apart(&gangs_by_domain(&mut rack(true), &plain)), 0);
    // Without the plugin it is by chance, and a group may say it itself.
    assert!(apart(&gangs_by_domain(&mut rack(false), &plain)) > 0);
    let says = json!({"minMember": 2, "topology": {"required": "muster.dev/nvlink-domain"}});
    assert_eq!(apart(&gangs_by_domain(&mut rack(false), &says)), 0);
}

#[test]
fn what_a_gang_gave_back_nobody_expects() {
    let plugins =
        [("PrioritySort", 0), ("NodeResourcesFit", 1), ("GpuLinks", 1), ("DefaultBinder", 0)];
    let mut h = Harness::with(with(&json!({}), &plugins).expect("a profile"));
    h.node(node("n").alloc(GPU, "8"));
    h.object(report("n", 1, &[]));
    h.object(group("g", &json!({"minMember": 3})));
    for i in 0..3 {
        h.pod(asks(&format!("g-{i}"), 4).pod_label("muster.dev/pod-group", "g"));
    }
    check(h.run_binds(), "");
    h.pod(asks("four", 4));
    check(h.run_binds(), &bind("four", "n", &[0, 1, 2, 3]));
}

#[test]
fn explain_shows_the_set_that_would_be_given() {
    let mut h = harness(&["n"]);
    h.object(report("n", 1, &[]));
    h.pod(asks("a", 4));
    let explanation = h.core.question("default", "a").expect("a question").explain();
    let node = &explanation.nodes["n"];
    // 8 of 24 are lost: 40 * 333 / 1000 = 13 points.
    assert_eq!(node.scores["GpuLinks"], 87);
    assert_eq!(
        node.notes["GpuLinks"],
        "nvidia.com/gpu on GPU 0,1,2,3: links 100, as good as it gets, others lose 34 %"
    );
}

#[test]
fn parts_of_gpus_are_taken_where_the_largest_profile_stays() {
    let mut h = harness(&["n"]);
    let profiles = json!([
        {"name": "1g.5gb", "size": 1, "starts": [0, 1, 2, 3, 4, 5, 6]},
        {"name": "3g.20gb", "size": 4, "starts": [0, 4]},
        {"name": "4g.20gb", "size": 4, "starts": [0]},
        {"name": "7g.40gb", "size": 8, "starts": [0]},
    ]);
    let part = |id: &str, profile: &str, start: u32, size: u32| json!({"uuid": id, "profile": profile, "placement": {"start": start, "size": size}});
    let gpu = |uuid: &str, parts: Value| json!({"uuid": uuid, "mig": {"enabled": true, "devices": parts, "profiles": profiles}});
    let gpus = json!([
        gpu("GPU-0", json!([part("a0", "1g.5gb", 0, 1), part("a6", "1g.5gb", 6, 1)])),
        gpu("GPU-1", json!([part("b0", "4g.20gb", 0, 4), part("b5", "1g.5gb", 5, 1)])),
    ]);
    let device = |resource: &str, id: &str, state: &str| json!({"resource": format!("nvidia.com/mig-{resource}"), "id": id, "state": state});
    h.object(Object::NodeTopology(wire(json!({
        "metadata": {"name": "n", "resourceVersion": "1"},
        "hardware": {"gpus": gpus},
        "kubelet": {"version": "v1.37.1"},
        "status": {"podSet": {"count": 1}, "devices": [
            device("1g.5gb", "a0", "Free"), device("1g.5gb", "a6", "Free"),
            device("1g.5gb", "b5", "Free"), device("4g.20gb", "b0", "Allocated"),
        ]},
    }))));
    let slice = |name: &str| {
        pod(name).edit(|p| {
            let requests = json!({"nvidia.com/mig-1g.5gb": "1"});
            let container = json!({"name": "c", "resources": {"requests": requests}});
            p.spec.containers = vec![wire(container)];
        })
    };
    // GPU 1 is in use already; of GPU 0 the last slice, so that 4g stays possible.
    for (name, part) in [("first", "b5"), ("second", "a6"), ("third", "a0")] {
        h.pod(slice(name));
        let expected =
            format!("bind default/{name} -> n {{\"nvidia.com/mig-1g.5gb\":[\"{part}\"]}}");
        check(h.run_binds(), &expected);
    }
}

#[test]
fn wrong_arguments_are_named() {
    let table = [
        (
            json!({"damagePoints": 101}),
            "GpuLinks: args.damagePoints: Invalid value: 101: not in valid range [0, 100]",
        ),
        (
            json!({"damage": 1}),
            "GpuLinks: args.damage: unknown field `damage`, expected `damagePoints`",
        ),
    ];
    for (args, expected) in table {
        assert_eq!(profile(&args).err().map(|error| error.to_string()).as_deref(), Some(expected));
    }
    assert!(profile(&json!({"damagePoints": 0})).is_ok());
}
