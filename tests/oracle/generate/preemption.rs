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
use super::crowd::{Amount, GPU, fill, node, plain, room};
use super::rank::{other_priority, set_priority, terminate};
use super::volumes::Storage;
use super::{Mood, NAMESPACE, State, affinity, constraints, profile};
use crate::rng::Rng;

/// What the pods of one state have in common.
pub(super) struct Draw {
    pub(super) mood: Mood,
    /// The priority of the pod in question.
    pub(super) priority: i64,
    pub(super) gpus: bool,
    /// Some nodes are half empty.
    pub(super) airy: bool,
    /// Pods are as large, as old and as important on one node as on another.
    pub(super) alike: bool,
    /// Why it does not fit, besides resources.
    pub(super) conflict: Conflict,
}

/// A state with one pod that mostly fits nowhere unless others leave.
pub(crate) fn preemption(rng: &mut Rng, plugins: &[(&str, u32)]) -> State {
    let draw = draw(rng);
    let limit = [2, 5, 10][rng.below(3)];
    let names: Vec<String> = (0..rng.between(1, limit)).map(|i| format!("node-{i:02}")).collect();
    let first = room(rng, &draw);
    let rooms: Vec<Amount> =
        names.iter().map(|_| if draw.alike { first } else { room(rng, &draw) }).collect();
    let mut objects: Vec<Value> =
        names.iter().zip(&rooms).map(|(name, room)| node(rng, &draw, name, *room)).collect();
    let storage = Storage::draw(rng, &draw.mood, &mut objects);
    let mut pods = Vec::new();
    for (name, room) in names.iter().zip(&rooms) {
        fill(rng, &draw, name, *room, &mut pods);
    }
    pods.extend(nominated(rng, &draw, &names, &rooms));
    draw.conflict.settle(&mut pods);
    let mut preemptor = preemptor(rng, &draw, &names, &rooms);
    mark_earlier_victims(rng, &preemptor, &mut pods);
    for pod in pods.iter_mut().chain([&mut preemptor]) {
        if pod["metadata"]["namespace"] == NAMESPACE {
            storage.give(rng, pod, &mut objects);
        }
    }
    let budgets = if rng.chance(92) { budgets(rng, &pods) } else { Vec::new() };
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
    let (gpus, airy, alike) = (rng.chance(45), rng.chance(8), rng.chance(12));
    Draw { mood, priority, gpus, airy, alike, conflict: Conflict::draw(rng) }
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
        draw.conflict.occupant(rng, &mut pod, 50);
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
