//! The core alone: how long one decision takes.
//!
//! `cargo bench --bench core` prints, per cluster size, the mean and the 99th
//! percentile of a decision for pods of one shape and for a mix of 500 shapes, at
//! 5,000 nodes also for pods spread over zones and hosts, for pods kept apart, for
//! gangs of 1,000 as a whole and for gangs of whole nodes within one block or rack, one
//! that fits none among them, for gangs of whole nodes that have to push others out of a
//! full cluster, for pods with GPUs that are linked and that kubelets align, and the time to
//! load a full cluster. No API server takes part.
//! `cargo bench --bench core -- topology` runs only the part of that name: `shapes`,
//! `relations`, `gangs`, `topology`, `preemption`, `numa` or `load`.

use std::time::{Duration, Instant};

use muster_api::k8s;
use muster_core::framework::{PluginArgs, Registry};
use muster_core::io::{Change, Input, Kind, Object, Tick};
use muster_core::{Config, Core, Outcome, Profile};
use serde_json::json;

const PODS: usize = 10_000;
const SHAPES: usize = 500;

fn main() {
    // Cargo adds flags of its own.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let runs = |part: &str| chosen.is_empty() || chosen.iter().any(|name| name == part);
    println!("{:<34} {:>10} {:>10} {:>10} {:>10}", "decision", "mean", "p50", "p99", "max");
    if runs("shapes") {
        for nodes in [5_000, 100_000] {
            one_shape(nodes);
            mixed_shapes(nodes);
        }
    }
    if runs("relations") {
        spread(5_000);
        anti_affinity(5_000);
    }
    if runs("gangs") {
        gangs(5_000, 1_000, 10);
    }
    if runs("topology") {
        near(5_000, 512, "block", 6, None);
        near(5_000, 512, "block", 6, Some(16));
        near(5_000, 16, "rack", 60, None);
        near(5_000, 512, "rack", 1, None);
    }
    if runs("preemption") {
        preempting(5_000, 512, None);
        preempting(5_000, 512, Some("block"));
    }
    if runs("numa") {
        aligned(5_000, &[]);
        aligned(5_000, &["NodeNumaFit"]);
        aligned(5_000, &["GpuLinks"]);
        aligned(5_000, &["NodeNumaFit", "GpuLinks"]);
    }
    if runs("load") {
        load(5_000, 150_000);
    }
}

fn one_shape(nodes: usize) {
    let mut core = cluster(nodes);
    for i in 0..PODS {
        add_pod(&mut core, i, 100, "");
    }
    report(&format!("{nodes} nodes, one shape"), &decide_all(&mut core));
}

fn mixed_shapes(nodes: usize) {
    let mut core = cluster(nodes);
    for i in 0..PODS {
        add_pod(&mut core, i, 100 + (i % SHAPES) as i64, "");
    }
    report(&format!("{nodes} nodes, {SHAPES} shapes"), &decide_all(&mut core));
}

/// Pods with 1, 2, 4 and 8 GPUs and CPUs of their own on nodes of two NUMA nodes whose kubelets
/// are restricted, half of them with pods already. No agent sees a pod during the run.
fn aligned(nodes: usize, plugins: &[&str]) {
    let registry = Registry::in_tree();
    let mut profile = Profile::default_named("muster");
    for name in plugins {
        let plugin = registry.make(name, &PluginArgs::default()).expect("a plugin");
        profile = profile.with_plugin(plugin, 2);
    }
    let mut core = Core::new(Config { profiles: vec![profile], ..Config::default() });
    fill(&mut core, nodes);
    for node in 0..nodes {
        let report = inside(node, node % 2 * (node / 2 % 4));
        core.apply(Tick(0), Input::Object(Box::new(Object::NodeTopology(report))));
    }
    for i in 0..PODS {
        let gpus = [1, 2, 4, 1, 2, 8, 1, 4][i % 8];
        let mut pod = pod(i, 0, "");
        pod.status.qos_class = "Guaranteed".into();
        let requests = &mut pod.spec.containers[0].resources.requests;
        requests.insert(
            "cpu".into(),
            k8s::Quantity::from_millis(if gpus == 8 { 20_000 } else { 3_000 * gpus }),
        );
        requests.insert("nvidia.com/gpu".into(), quantity(&gpus.to_string()));
        core.apply(Tick(i as i64), Input::Pod(Change::Upsert(Box::new(pod))));
    }
    let (mut times, mut placed) = (Vec::with_capacity(PODS), 0);
    let now = Tick(1_000_000_000);
    loop {
        let started = Instant::now();
        let Some(decision) = core.schedule_one(now) else { break };
        times.push(started.elapsed());
        placed += usize::from(matches!(decision.outcome, Outcome::Scheduled { .. }));
        core.take_effects();
        core.take_observations();
    }
    let with = if plugins.is_empty() { "neither".to_owned() } else { plugins.join("+") };
    report(&format!("GPUs, {with}"), &times);
    println!("  {placed} of {} decided pods were placed", times.len());
}

/// What an agent says of a node with two NUMA nodes of 16 CPUs and 4 GPUs each, of which the
/// first few are taken by a pod of nobody's.
fn inside(node: usize, taken: usize) -> muster_api::muster::NodeTopology {
    let device = |gpu: usize| {
        let state = if gpu < taken { "Allocated" } else { "Free" };
        json!({"resource": "nvidia.com/gpu", "id": format!("GPU-{node}-{gpu}"), "numa": [gpu / 4],
            "state": state})
    };
    let devices: Vec<_> = (0..8).map(device).collect();
    let numa = |id: usize, cpus: &str, distances: [u32; 2]| json!({"id": id, "socket": id, "cpus": cpus, "distances": distances});
    let gpu = |gpu: usize| {
        let uuid = format!("GPU-{node}-{gpu}");
        json!({"uuid": uuid, "numa": gpu / 4, "nvlinks": {"total": 18, "active": 18}})
    };
    let pairs = (0..8).flat_map(|b| (0..b).map(move |a| (a, b)));
    let link = |(a, b): (usize, usize)| {
        let path = if a / 4 == b / 4 { "NODE" } else { "SYS" };
        json!({"a": a, "b": b, "path": path, "nvlinks": 18, "megabytesPerSecond": 370_800})
    };
    let object = json!({
        "metadata": {"name": format!("node-{node}"), "resourceVersion": "1"},
        "hardware": {
            "hash": "h", "numa": [numa(0, "0-15", [10, 21]), numa(1, "16-31", [21, 10])],
            "gpus": (0..8).map(gpu).collect::<Vec<_>>(), "links": pairs.map(link).collect::<Vec<_>>(),
        },
        "kubelet": {"version": "v1.37.1", "topologyManager": {"policy": "Restricted"},
            "cpuManager": {"static": true}},
        "status": {"sequence": 1, "podSet": {"count": 0}, "devices": devices,
            "numa": [{"id": 0, "cpusFree": "0-15"}, {"id": 1, "cpusFree": "16-31"}]},
    });
    serde_json::from_value(object).expect("a report")
}

/// Even over zones and hosts, both required.
fn spread(nodes: usize) {
    let mut core = cluster(nodes);
    let even = |key: &str| k8s::TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "DoNotSchedule".to_owned(),
        label_selector: Some(selector("app", "bench")),
        ..Default::default()
    };
    let keys = ["topology.kubernetes.io/zone", "kubernetes.io/hostname"];
    for i in 0..PODS {
        let mut pod = pod(i, 100, "");
        pod.metadata.labels.insert("app".to_owned(), "bench".to_owned());
        // An index must not make every pod a shape of its own.
        pod.metadata.labels.insert("index".to_owned(), i.to_string());
        pod.spec.topology_spread_constraints = keys.map(even).to_vec();
        core.apply(Tick(i as i64), Input::Pod(Change::Upsert(Box::new(pod))));
    }
    report(&format!("{nodes} nodes, zone and host spread"), &decide_all(&mut core));
}

/// Twenty sets; no two pods of a set on one host.
fn anti_affinity(nodes: usize) {
    let mut core = cluster(nodes);
    for i in 0..PODS {
        let mut pod = pod(i, 100, "");
        let set = format!("set-{}", i % 20);
        let term = k8s::PodAffinityTerm {
            topology_key: "kubernetes.io/hostname".to_owned(),
            label_selector: Some(selector("set", &set)),
            ..Default::default()
        };
        pod.metadata.labels.insert("set".to_owned(), set);
        let apart = k8s::PodAffinity { required: vec![term], ..Default::default() };
        let affinity = k8s::Affinity { pod_anti_affinity: Some(apart), ..Default::default() };
        pod.spec.affinity = Some(affinity);
        core.apply(Tick(i as i64), Input::Pod(Change::Upsert(Box::new(pod))));
    }
    report(&format!("{nodes} nodes, anti-affinity, 20 sets"), &decide_all(&mut core));
}

/// Gangs of one shape, each decided as a whole; the first makes the ledger.
fn gangs(nodes: usize, members: usize, count: usize) {
    let mut core = cluster(nodes);
    let now = Tick(1_000_000_000);
    for gang in 0..count {
        let name = format!("gang-{gang}");
        let mut group = muster_api::muster::PodGroup::default();
        (group.metadata.namespace, group.metadata.name) = ("default".into(), name.clone());
        group.metadata.uid.clone_from(&name);
        group.spec.min_member = i32::try_from(members).ok();
        core.apply(now, Input::Object(Box::new(Object::PodGroup(group))));
        for i in 0..members {
            let mut pod = pod(gang * members + i, 100, "");
            pod.metadata.labels.insert("muster.dev/pod-group".to_owned(), name.clone());
            core.apply(now, Input::Pod(Change::Upsert(Box::new(pod))));
        }
    }
    core.advance(now);
    core.take_effects();
    let mut times = Vec::with_capacity(count);
    loop {
        let started = Instant::now();
        let Some(decision) = core.schedule_one(now) else { break };
        times.push(started.elapsed());
        let Outcome::Gathered { members: placed } = &decision.outcome else {
            panic!("{decision:?}");
        };
        assert_eq!(placed.len(), members, "all of it has room");
        assert!(core.take_effects().len() >= members, "all of it is bound");
        core.take_observations();
    }
    assert_eq!(times.len(), count, "every gang was decided at once");
    report(&format!("{nodes} nodes, a gang of {members}"), &times);
}

/// Gangs whose members take a node each, within one domain of three levels: 8 blocks of 39
/// racks of 16 nodes. `segment`: so many consecutive ranks in one rack.
fn near(nodes: usize, members: usize, level: &str, count: usize, segment: Option<i32>) {
    let mut core = cluster(nodes);
    let now = Tick(1_000_000_000);
    levels(&mut core, now);
    for gang in 0..count {
        let name = format!("gang-{gang}");
        let mut group = muster_api::muster::PodGroup::default();
        (group.metadata.namespace, group.metadata.name) = ("default".into(), name.clone());
        group.metadata.uid.clone_from(&name);
        group.spec.min_member = i32::try_from(members).ok();
        let required = Some(level.to_owned());
        let in_rack = |size: i32| {
            let required = Some("rack".to_owned());
            muster_api::muster::Segment { size, required, preferred: None }
        };
        let segments = segment.into_iter().map(in_rack).collect();
        group.spec.topology =
            Some(muster_api::muster::TopologyRequest { required, segments, ..Default::default() });
        core.apply(now, Input::Object(Box::new(Object::PodGroup(group))));
        for i in 0..members {
            let mut pod = pod(gang * members + i, 100, "");
            let requests = &mut pod.spec.containers[0].resources.requests;
            requests.insert("nvidia.com/gpu".to_owned(), quantity("8"));
            pod.metadata.labels.insert("muster.dev/pod-group".to_owned(), name.clone());
            if segment.is_some() {
                let label = muster_api::muster::labels::DEFAULT_RANK.to_owned();
                pod.metadata.labels.insert(label, i.to_string());
            }
            core.apply(now, Input::Pod(Change::Upsert(Box::new(pod))));
        }
    }
    core.advance(now);
    core.take_effects();
    let (mut times, mut placed) = (Vec::with_capacity(count), true);
    loop {
        let started = Instant::now();
        let Some(decision) = core.schedule_one(now) else { break };
        times.push(started.elapsed());
        placed = matches!(&decision.outcome, Outcome::Gathered { .. });
        core.take_effects();
        core.take_observations();
    }
    assert_eq!(times.len(), count, "every gang was decided at once");
    let what = if placed { "in one" } else { "cannot be in one" };
    let ranks = segment.map(|size| format!(", {size} a rack")).unwrap_or_default();
    report(&format!("{nodes} nodes, {members} {what} {level}{ranks}"), &times);
}

/// Three levels of the network.
fn levels(core: &mut Core, now: Tick) {
    let mut topology = muster_api::muster::ClusterTopology::default();
    topology.metadata.name = "network".into();
    for name in ["block", "rack", "host"] {
        let node_label = if name == "host" { "kubernetes.io/hostname" } else { name }.to_owned();
        let level = muster_api::muster::TopologyLevel { name: name.to_owned(), node_label };
        topology.spec.levels.push(level);
    }
    core.apply(now, Input::Object(Box::new(Object::ClusterTopology(topology))));
}

/// A gang whose members take a node each, on a cluster full of pods with a GPU each: every
/// second is in a gang of 40, of three priorities and with work of their own.
fn preempting(nodes: usize, members: usize, level: Option<&str>) {
    let mut core = cluster(nodes);
    let now = Tick(100_000_000_000);
    levels(&mut core, now);
    let group = |name: &str, min: usize, level: Option<&str>| {
        let mut group = muster_api::muster::PodGroup::default();
        (group.metadata.namespace, group.metadata.name) = ("default".into(), name.to_owned());
        name.clone_into(&mut group.metadata.uid);
        group.spec.min_member = i32::try_from(min).ok();
        let required = level.map(str::to_owned);
        group.spec.topology =
            level.map(|_| muster_api::muster::TopologyRequest { required, ..Default::default() });
        Input::Object(Box::new(Object::PodGroup(group)))
    };
    let add = |core: &mut Core, i: usize, gpus: &str, gang: &str, priority: i32, on: &str| {
        let mut pod = pod(i, 100, on);
        let requests = &mut pod.spec.containers[0].resources.requests;
        requests.insert("nvidia.com/gpu".to_owned(), quantity(gpus));
        pod.spec.priority = Some(priority);
        if !gang.is_empty() {
            pod.metadata.labels.insert("muster.dev/pod-group".to_owned(), gang.to_owned());
        }
        pod.status.start_time = Some(k8s::Time(i64::try_from(i % 977).unwrap_or(0) * 60_000_000));
        core.apply(now, Input::Pod(Change::Upsert(Box::new(pod))));
    };
    for gang in 0..nodes * 4 / 40 {
        core.apply(now, group(&format!("low-{gang}"), 36, None));
    }
    for i in 0..nodes * 8 {
        let gang = if i % 2 == 0 { format!("low-{}", i / 2 / 40) } else { String::new() };
        let priority = i32::try_from(i / 8 % 3).unwrap_or(0);
        add(&mut core, i, "1", &gang, priority, &format!("node-{}", i / 8));
    }
    core.apply(now, group("high", members, level));
    for i in 0..members {
        add(&mut core, nodes * 8 + i, "8", "high", 1_000, "");
    }
    core.advance(now);
    core.settle(now);
    core.take_effects();
    let started = Instant::now();
    let decision = core.schedule_one(now).expect("the gang is tried");
    let took = started.elapsed();
    let message = decision.message.unwrap_or_default();
    assert!(message.contains("preempting"), "{message}");
    let place = level.map(|level| format!(" in one {level}")).unwrap_or_default();
    report(&format!("{nodes} nodes, {members} preempt{place}"), &[took]);
}

fn selector(key: &str, value: &str) -> k8s::LabelSelector {
    let match_labels = [(key.to_owned(), value.to_owned())].into();
    k8s::LabelSelector { match_labels, ..Default::default() }
}

fn load(nodes: usize, pods: usize) {
    let started = Instant::now();
    let mut core = cluster(nodes);
    for i in 0..pods {
        add_pod(&mut core, i, 100, &format!("node-{}", i % nodes));
    }
    add_pod(&mut core, pods, 100, "");
    assert_eq!(decide_all(&mut core).len(), 1, "the pod must fit");
    println!("{nodes} nodes and {pods} pods ready in {:.2} s", started.elapsed().as_secs_f64());
}

fn cluster(nodes: usize) -> Core {
    cluster_of(Config::default(), nodes)
}

fn cluster_of(config: Config, nodes: usize) -> Core {
    let mut core = Core::new(config);
    fill(&mut core, nodes);
    core
}

fn fill(core: &mut Core, nodes: usize) {
    core.apply(Tick(0), Input::RelistStarted(Kind::Node));
    for i in 0..nodes {
        let mut node = k8s::Node::default();
        node.metadata.name = format!("node-{i}");
        node.metadata.resource_version = "1".into();
        let labels = [
            ("kubernetes.io/hostname", format!("node-{i}")),
            ("topology.kubernetes.io/zone", format!("zone-{}", i % 10)),
            ("block", format!("block-{}", i / (39 * 16))),
            ("rack", format!("rack-{}", i / 16)),
        ];
        node.metadata.labels = labels.map(|(k, v)| (k.to_owned(), v)).into();
        let amounts =
            [("cpu", "32"), ("memory", "256Gi"), ("pods", "110"), ("nvidia.com/gpu", "8")];
        node.status.allocatable = amounts.map(|(k, v)| (k.to_owned(), quantity(v))).into();
        core.apply(Tick(0), Input::Node(Change::Upsert(Box::new(node))));
    }
    core.apply(Tick(0), Input::RelistDone(Kind::Node));
}

fn quantity(text: &str) -> k8s::Quantity {
    k8s::Quantity::parse(text).expect("a quantity")
}

fn add_pod(core: &mut Core, i: usize, milli_cpu: i64, node: &str) {
    let pod = pod(i, milli_cpu, node);
    core.apply(Tick(i as i64), Input::Pod(Change::Upsert(Box::new(pod))));
}

fn pod(i: usize, milli_cpu: i64, node: &str) -> k8s::Pod {
    let mut pod = k8s::Pod::default();
    pod.metadata.namespace = "default".into();
    pod.metadata.name = format!("pod-{i}");
    pod.metadata.uid = format!("uid-{i}");
    pod.metadata.resource_version = "1".into();
    pod.spec.scheduler_name = "muster".into();
    pod.spec.node_name = node.to_owned();
    let mut container = k8s::Container { image: "registry/app:v1".into(), ..Default::default() };
    container.resources.requests = [
        ("cpu".to_owned(), k8s::Quantity::from_millis(milli_cpu)),
        ("memory".to_owned(), quantity("500Mi")),
    ]
    .into();
    pod.spec.containers = vec![container];
    pod
}

/// Decides every pending pod; the time of each.
fn decide_all(core: &mut Core) -> Vec<Duration> {
    let mut times = Vec::with_capacity(PODS);
    let now = Tick(1_000_000_000);
    loop {
        let started = Instant::now();
        let Some(decision) = core.schedule_one(now) else { break };
        times.push(started.elapsed());
        assert!(matches!(decision.outcome, Outcome::Scheduled { .. }), "{decision:?}");
        core.take_effects();
        core.take_observations();
    }
    times
}

fn report(name: &str, times: &[Duration]) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let mean = times.iter().sum::<Duration>() / times.len() as u32;
    let micros = |d: Duration| format!("{:.2} µs", d.as_secs_f64() * 1e6);
    println!(
        "{name:<34} {:>10} {:>10} {:>10} {:>10}",
        micros(mean),
        micros(at(0.5)),
        micros(at(0.99)),
        micros(at(1.0))
    );
}
