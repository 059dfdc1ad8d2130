//! States that are about preemption: nodes that are all but full, pods of many
//! priorities, budgets, and pods that have been promised a node.
//!
//! Owns what is drawn; must never make a state to which kube-scheduler has more
//! than one answer, but for ties between nodes: pods of one priority on one node
//! start at different times, and at most one of them has not started yet.

use std::rc::Rc;

use serde_json::{Value, json};

use super::budgets::budgets;
use super::conflict::Conflict;
use super::rank::{StartTimes, other_priority, set_priority, terminate};
use super::volumes::Storage;
use super::{Mood, NAMESPACE, State, affinity, constraints, metadata, pod, profile};
use crate::rng::Rng;

const GPU: &str = "nvidia.com/gpu";

/// What a node has, or a pod wants: tenths of a CPU, units of 64 MiB, GPUs.
#[derive(Clone, Copy)]
struct Amount {
    cpu: usize,
    memory: usize,
    gpus: usize,
}

impl Amount {
    fn requests(self) -> Value {
        let mut list = json!({
            "cpu": format!("{}m", self.cpu * 100),
            "memory": format!("{}Mi", self.memory * 64),
        });
        if self.gpus > 0 {
            list[GPU] = json!(self.gpus.to_string());
        }
        list
    }
}

/// What the pods of one state have in common.
struct Draw {
    mood: Mood,
    /// The priority of the pod in question.
    priority: i64,
    gpus: bool,
    /// Some nodes are half empty.
    airy: bool,
    /// Why it does not fit, besides resources.
    conflict: Conflict,
}

/// A state with one pod that mostly fits nowhere unless others leave.
pub(crate) fn preemption(rng: &mut Rng, plugins: &[(&str, u32)]) -> State {
    let draw = draw(rng);
    let limit = [2, 5, 10][rng.below(3)];
    let names: Vec<String> = (0..rng.between(1, limit)).map(|i| format!("node-{i:02}")).collect();
    let rooms: Vec<Amount> = names.iter().map(|_| room(rng, &draw)).collect();
    let mut objects: Vec<Value> =
        names.iter().zip(&rooms).map(|(name, room)| node(rng, &draw, name, *room)).collect();
    let storage = Storage::draw(rng, &draw.mood, &mut objects);
    let mut pods = Vec::new();
    for (name, room) in names.iter().zip(&rooms) {
        fill(rng, &draw, name, *room, &mut pods);
    }
    pods.extend(nominated(rng, &draw, &names, &rooms));
    let mut preemptor = preemptor(rng, &draw, &names, &rooms);
    mark_earlier_victims(rng, &preemptor, &mut pods);
    for pod in pods.iter_mut().chain([&mut preemptor]) {
        if pod["metadata"]["namespace"] == NAMESPACE {
            storage.give(rng, pod, &mut objects);
        }
    }
    let budgets = if rng.chance(85) { budgets(rng, &pods) } else { Vec::new() };
    let name = format!("{NAMESPACE}/preemptor");
    objects.extend(pods);
    objects.push(preemptor);
    objects.extend(budgets);
    objects.extend(affinity::namespaces(rng));
    let mut config = profile::profile(rng, &draw.mood, plugins, &names);
    if let Some(args) = config["pluginConfig"].as_array_mut() {
        args.push(json!({
            "name": "DefaultPreemption",
            "args": {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 100},
        }));
    }
    State { objects, config, pods: vec![name], storage: Rc::new(storage) }
}

fn draw(rng: &mut Rng) -> Draw {
    let rare = |rng: &mut Rng, percent: usize| if rng.chance(percent) { 30 } else { 0 };
    let mood = Mood {
        taints: rare(rng, 15),
        tolerations: rare(rng, 10),
        required: rare(rng, 15),
        preferred: 0,
        ports: 0,
        pressure: 0,
        scalars: 30,
        scalar_names: vec![GPU],
        images: 0,
        spread: 0,
        affinity: rare(rng, 15),
        owners: 0,
        volumes: rare(rng, 8),
        features: 0,
        nasty: 0,
    };
    let priority = [1000, 1000, 1000, 0, 10, -5, 2_000_000_000][rng.below(7)];
    let (gpus, airy) = (rng.chance(45), rng.chance(12));
    Draw { mood, priority, gpus, airy, conflict: Conflict::draw(rng) }
}

fn room(rng: &mut Rng, draw: &Draw) -> Amount {
    let gpus = if draw.gpus { [0, 2, 4, 4, 8, 8, 8][rng.below(7)] } else { 0 };
    Amount { cpu: [20, 40, 40, 80][rng.below(4)], memory: [32, 64, 128][rng.below(3)], gpus }
}

fn node(rng: &mut Rng, draw: &Draw, name: &str, room: Amount) -> Value {
    let mut node = super::node::node(rng, &draw.mood, name);
    let mut allocatable = room.requests();
    allocatable["pods"] = json!(rng.pick(&["110", "110", "6", "4"]));
    node["status"]["allocatable"] = allocatable;
    node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] =
        json!(rng.pick(&["zone-a", "zone-b", "zone-c"]));
    node
}

/// Pods on one node, until little is left of what it has; sometimes they have
/// more than that.
fn fill(rng: &mut Rng, draw: &Draw, node: &str, room: Amount, pods: &mut Vec<Value>) {
    let levels = if draw.airy { [100, 90, 50, 50, 120] } else { [100, 100, 97, 92, 105] };
    let level = levels[rng.below(5)];
    let mut starts = StartTimes::new(rng);
    // The resource that the state is about is what runs out.
    let by_gpu = room.gpus > 0;
    let whole = if by_gpu { room.gpus * 10 } else { room.cpu };
    let mut left = whole * level / 100;
    let mut ports = Vec::new();
    let count = rng.between(2, 9);
    for i in 0..count {
        let most = if i + 1 == count { left } else { left.min(whole.div_ceil(2)) };
        let least = if i + 1 == count { left } else { 1 };
        if left == 0 {
            break;
        }
        let share = rng.between(least, most);
        left -= share;
        let gpus = if by_gpu { share.div_ceil(10).min(left.div_ceil(10) + 1) } else { 0 };
        let cpu = if by_gpu { rng.below(4) } else { share };
        let wants = Amount { cpu, memory: rng.below(room.memory / 4), gpus };
        let mut pod = occupant(rng, draw, pods.len(), node, wants);
        if let Some(start) = starts.next(rng) {
            pod["status"]["startTime"] = json!(start);
        }
        hold_ports(&mut pod, &mut ports);
        pods.push(pod);
    }
}

/// No two pods of a node hold the same port: kube-scheduler takes it as free once
/// either of them has left.
fn hold_ports(pod: &mut Value, held: &mut Vec<Value>) {
    let container = &mut pod["spec"]["containers"][0];
    let port = container["ports"][0]["hostPort"].clone();
    if port.is_null() {
        return;
    }
    if held.contains(&port)
        && let Some(map) = container.as_object_mut()
    {
        map.remove("ports");
    }
    held.push(port);
}

/// A pod that runs, mostly of a priority below that of the pod in question.
fn occupant(rng: &mut Rng, draw: &Draw, number: usize, node: &str, wants: Amount) -> Value {
    let namespace = if rng.chance(80) { NAMESPACE } else { "other" };
    let name = format!("{namespace}/busy-{number}");
    let mut pod = if rng.chance(12) {
        // Everything that a pod can ask for.
        pod::existing(rng, &draw.mood, &name, node)
    } else {
        let mut pod = plain(rng, &name, wants);
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
        pod
    };
    set_priority(&mut pod, other_priority(rng, draw.priority, 88));
    if rng.chance(10)
        && let Some(map) = pod["metadata"].as_object_mut()
    {
        map.remove("labels");
    }
    draw.conflict.occupant(rng, &mut pod);
    if rng.chance(10) {
        terminate(rng, &mut pod);
    }
    pod
}

/// A pod with labels and requests, spread over containers in one of the ways
/// that add up differently.
fn plain(rng: &mut Rng, name: &str, wants: Amount) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = affinity::pod_labels(rng, 1);
    let requests = wants.requests();
    let small = json!({"name": "app", "resources": {"requests": {"cpu": "10m"}}});
    let big = json!({"name": "app", "resources": {"requests": requests}});
    let spec = match rng.below(10) {
        0 => json!({
            "containers": [small],
            "initContainers": [{"name": "init", "resources": {"requests": requests}}],
        }),
        1 => json!({
            "containers": [small],
            "initContainers": [{
                "name": "sidecar",
                "restartPolicy": "Always",
                "resources": {"requests": requests},
            }],
        }),
        2 => json!({"containers": [big], "overhead": {"cpu": "50m", "memory": "1Mi"}}),
        _ => json!({"containers": [big]}),
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
}

/// On the node that the pod in question is nominated for, mostly one pod is on
/// its way out because of it.
fn mark_earlier_victims(rng: &mut Rng, preemptor: &Value, pods: &mut [Value]) {
    let nominated = &preemptor["status"]["nominatedNodeName"];
    if nominated.is_string() && rng.chance(60) {
        let mut there = pods.iter_mut().filter(|pod| pod["spec"]["nodeName"] == *nominated);
        if let Some(pod) = there.next() {
            terminate(rng, pod);
        }
    }
}

/// Waiting pods that have been promised a node.
fn nominated(rng: &mut Rng, draw: &Draw, names: &[String], rooms: &[Amount]) -> Vec<Value> {
    let count = if rng.chance(50) { rng.between(1, 3) } else { 0 };
    let mut list = Vec::new();
    for i in 0..count {
        let at = rng.below(names.len());
        let small = rng.chance(50);
        let wants = part(rng, rooms[at], small);
        let mut pod = plain(rng, &format!("{NAMESPACE}/promised-{i}"), wants);
        set_priority(&mut pod, other_priority(rng, draw.priority, 25));
        draw.conflict.occupant(rng, &mut pod);
        let node = if rng.chance(95) { &names[at] } else { "node-gone" };
        pod["status"]["nominatedNodeName"] = json!(node);
        // What another scheduler has promised is not known to this one.
        pod["spec"]["schedulerName"] = json!(if rng.chance(92) { NAMESPACE } else { "other" });
        list.push(pod);
    }
    list
}

/// A part of what a node has, small or large; sometimes more than all of it.
fn part(rng: &mut Rng, room: Amount, small: bool) -> Amount {
    let percent = match rng.below(20) {
        0 => 150,
        _ if small => [5, 5, 10, 25][rng.below(4)],
        _ => [25, 40, 60, 80, 90, 100][rng.below(6)],
    };
    let of = |whole: usize| (whole * percent).div_ceil(100);
    let memory = if rng.chance(40) { of(room.memory) } else { rng.below(4) };
    let cpu = if room.gpus == 0 || rng.chance(25) { of(room.cpu) } else { 1 };
    Amount { cpu, memory, gpus: if rng.chance(90) { of(room.gpus) } else { 0 } }
}

/// The pod in question.
fn preemptor(rng: &mut Rng, draw: &Draw, names: &[String], rooms: &[Amount]) -> Value {
    let room = rooms[rng.below(rooms.len())];
    // A large pod would not fit for want of resources, whatever else is in its way.
    let small = !matches!(draw.conflict, Conflict::None) && rng.chance(80);
    let wants = part(rng, room, small);
    let mut pod = plain(rng, &format!("{NAMESPACE}/preemptor"), wants);
    let spoken = draw.priority != 0 || rng.chance(50);
    set_priority(&mut pod, spoken.then_some(draw.priority));
    match rng.below(20) {
        0 => pod["spec"]["preemptionPolicy"] = json!("Never"),
        1..=5 => pod["spec"]["preemptionPolicy"] = json!("PreemptLowerPriority"),
        _ => {}
    }
    if rng.chance(draw.mood.tolerations) {
        pod["spec"]["tolerations"] = json!([constraints::toleration(rng, &draw.mood)]);
    }
    if rng.chance(draw.mood.required) {
        let only = constraints::node_affinity(rng, 0, true, false, names);
        pod["spec"]["affinity"]["nodeAffinity"] = only;
    }
    draw.conflict.preemptor(rng, &mut pod);
    pod["spec"]["schedulerName"] = json!(NAMESPACE);
    if rng.chance(25) {
        let node = if rng.chance(80) { &names[rng.below(names.len())] } else { "node-gone" };
        pod["status"]["nominatedNodeName"] = json!(node);
    }
    pod
}
