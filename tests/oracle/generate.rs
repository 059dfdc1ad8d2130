//! Random cluster states: realistic ones, with the nasty details that decide
//! whether two implementations agree.
//!
//! Each state draws how much of each thing it has ([`Mood`]), so that some
//! states are about taints and others about full nodes: if everything were
//! likely everywhere, the first plugin would reject every node and the others
//! would never be asked.

mod affinity;
mod budgets;
mod conflict;
mod constraints;
mod crowd;
mod features;
mod node;
mod pod;
mod preemption;
mod profile;
mod rank;
mod resources;
mod spread;
mod storage;
mod volumes;

use std::rc::Rc;

use serde_json::{Value, json};

use crate::rng::Rng;
pub(crate) use preemption::preemption;
use volumes::Storage;

/// Namespace of pods that wait, and of most that run.
pub(crate) const NAMESPACE: &str = "team";

/// One question: a cluster, the profile, and the pods to place.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) objects: Vec<Value>,
    pub(crate) config: Value,
    /// `namespace/name` of each pending pod; one for a single question.
    pub(crate) pods: Vec<String>,
    storage: Rc<Storage>,
}

/// How likely this state has each kind of detail, in percent.
struct Mood {
    /// Taints on nodes.
    taints: usize,
    /// Tolerations on the pending pod.
    tolerations: usize,
    /// Node selectors and required node affinity.
    required: usize,
    /// Preferred node affinity.
    preferred: usize,
    /// Host ports, on both sides.
    ports: usize,
    /// Requests near or above what nodes have.
    pressure: usize,
    /// Extended resources and huge pages.
    scalars: usize,
    /// The few of them that this state is about, so that pods compete.
    scalar_names: Vec<&'static str>,
    /// Images on nodes that pods use.
    images: usize,
    /// Spread constraints.
    spread: usize,
    /// Affinity between pods.
    affinity: usize,
    /// Services and controllers.
    owners: usize,
    /// Volumes of pods.
    volumes: usize,
    /// Features of the kubelet.
    features: usize,
    /// Details that the API server would refuse or that hardly occur.
    nasty: usize,
}

impl Mood {
    fn draw(rng: &mut Rng) -> Self {
        let mut scalar_names = rng.some(resources::SCALARS, 35);
        scalar_names.truncate(3);
        let storage = rng.chance(35);
        let mut level = |often: usize| {
            if rng.chance(often) { [10, 30, 60][rng.below(3)] } else { 0 }
        };
        let mood = Self {
            scalar_names,
            taints: level(50),
            tolerations: level(60),
            required: level(45),
            preferred: level(60),
            ports: level(40),
            pressure: level(50),
            scalars: level(65),
            images: level(60),
            spread: level(45),
            affinity: level(45),
            owners: level(45),
            volumes: level(35),
            features: level(25),
            nasty: level(30) / 6,
        };
        if storage {
            // Nothing but volumes may stand between a pod and its node.
            let volumes = 95;
            return Self {
                taints: 0,
                required: 0,
                ports: 0,
                pressure: 0,
                scalars: 0,
                volumes,
                ..mood
            };
        }
        mood
    }
}

/// The state of one question about one pod.
pub(crate) fn single(rng: &mut Rng, plugins: &[(&str, u32)]) -> State {
    let mood = Mood::draw(rng);
    let mut state = cluster(rng, &mood, plugins);
    add_pending(rng, &mood, &mut state);
    state
}

/// A state with several pods to place one after the other.
pub(crate) fn sequence(rng: &mut Rng, plugins: &[(&str, u32)], length: usize) -> State {
    let mood = Mood { pressure: 10, required: 10, nasty: 0, ..Mood::draw(rng) };
    let mut state = cluster(rng, &mood, plugins);
    for _ in 0..length {
        add_pending(rng, &mood, &mut state);
        if let Some(spec) = state.objects.last_mut().and_then(|pod| pod["spec"].as_object_mut()) {
            // A pod that names its node would count as placed from the start.
            spec.remove("nodeName");
        }
    }
    state
}

fn cluster(rng: &mut Rng, mood: &Mood, plugins: &[(&str, u32)]) -> State {
    // Mostly small, because a small state can be understood; up to 24 nodes.
    let limit = [3, 8, 24][rng.below(3)];
    let names: Vec<String> = (0..rng.between(1, limit)).map(|i| format!("node-{i:02}")).collect();
    let mut objects = Vec::new();
    for name in &names {
        let mut node = node::node(rng, mood, name);
        if mood.features > 0 {
            features::declare(rng, &mut node);
        }
        objects.push(node);
    }
    let storage = Storage::draw(rng, mood, &mut objects);
    for name in &names {
        for _ in 0..rng.below(5) {
            let namespace = if rng.chance(80) { NAMESPACE } else { rng.pick(affinity::NAMESPACES) };
            let pod = format!("{namespace}/busy-{}", objects.len());
            let mut pod = pod::existing(rng, mood, &pod, name);
            if namespace == NAMESPACE {
                storage.give(rng, &mut pod, &mut objects);
            }
            objects.push(pod);
        }
    }
    if rng.chance(mood.nasty) {
        // A pod whose node is gone, and the empty cluster.
        objects.push(pod::existing(rng, mood, &format!("{NAMESPACE}/orphan"), "node-gone"));
        if rng.chance(10) {
            objects.retain(|o| o["kind"] != "Node");
        }
    }
    objects.extend(affinity::namespaces(rng));
    if mood.owners > 0 {
        objects.extend(spread::owners(rng, mood));
    }
    let config = profile::profile(rng, mood, plugins, &names);
    State { objects, config, pods: Vec::new(), storage: Rc::new(storage) }
}

fn add_pending(rng: &mut Rng, mood: &Mood, state: &mut State) {
    let names: Vec<String> = state
        .objects
        .iter()
        .filter(|o| o["kind"] == "Node")
        .filter_map(|o| o["metadata"]["name"].as_str().map(str::to_owned))
        .collect();
    let name = format!("{NAMESPACE}/pending-{}", state.pods.len());
    let mut pod = pod::pending(rng, mood, &name, &names);
    if rng.chance(mood.features) {
        features::need(rng, &mut pod);
    }
    let storage = Rc::clone(&state.storage);
    storage.give(rng, &mut pod, &mut state.objects);
    state.objects.push(pod);
    state.pods.push(name);
}

/// `{key: value}` of the given pairs.
fn object(pairs: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(pairs.into_iter().collect())
}

/// The two parts of `namespace/name`, as metadata.
fn metadata(name: &str) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or((NAMESPACE, name));
    json!({"namespace": namespace, "name": name, "uid": format!("uid-{name}")})
}
