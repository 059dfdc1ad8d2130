//! Nodes: labels, taints, what they have to give and the images they hold.

use serde_json::{Value, json};

use super::{Mood, object, resources};
use crate::rng::Rng;

/// Labels that selectors ask for, with the values that occur.
pub(super) const LABELS: &[(&str, &[&str])] = &[
    ("topology.kubernetes.io/zone", &["zone-a", "zone-b", "zone-c"]),
    ("topology.kubernetes.io/region", &["north", "south"]),
    ("kubernetes.io/arch", &["amd64", "arm64"]),
    ("example.com/gpu-type", &["a100", "h100", "l4"]),
    ("rank", &["0", "1", "5", "10", "3", "007", "x1", "9223372036854775807", ""]),
    ("disk", &["ssd", "hdd", ""]),
];

pub(super) const TAINT_KEYS: &[&str] =
    &["dedicated", "gpu", "node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"];
pub(super) const TAINT_VALUES: &[&str] = &["", "a", "b", "5"];
pub(super) const EFFECTS: &[&str] =
    &["NoSchedule", "PreferNoSchedule", "NoExecute", "PreferNoSchedule"];

/// Image names as nodes list them, with a typical size in MiB.
const IMAGES: &[(&str, i64)] = &[
    ("registry.io/team/app:v1", 300),
    ("registry.io/team/app@sha256:0123", 300),
    ("registry.io/team/app:latest", 900),
    ("app:latest", 23),
    ("app:v2", 24),
    ("localhost:5000/app:latest", 2_500),
    ("localhost:5000/app:v2", 1_000),
    ("big:latest", 40_000),
    ("tiny:latest", 1),
];

pub(super) fn node(rng: &mut Rng, mood: &Mood, name: &str) -> Value {
    let mut labels = Vec::new();
    if !rng.chance(5) {
        labels.push(("kubernetes.io/hostname".to_owned(), json!(name)));
    }
    for (key, values) in LABELS {
        if rng.chance(75) {
            labels.push(((*key).to_owned(), json!(rng.pick(values))));
        }
    }
    let mut spec = json!({});
    if rng.chance(mood.taints) {
        spec["taints"] = (0..rng.between(1, 4)).map(|_| taint(rng)).collect();
    }
    if rng.chance(mood.taints / 3) {
        spec["unschedulable"] = json!(true);
        if rng.chance(70) {
            let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
            match spec["taints"].as_array_mut() {
                Some(taints) => taints.push(taint),
                None => spec["taints"] = json!([taint]),
            }
        }
    }
    let mut status = json!({"allocatable": resources::allocatable(rng, mood)});
    if rng.chance(20) {
        // What a node has in all must not matter, only what it can give.
        status["capacity"] = json!({"cpu": "128", "memory": "1Ti", "pods": "500"});
    }
    if rng.chance(mood.images * 2) {
        status["images"] = (0..rng.between(1, 6)).map(|_| image(rng, mood)).collect();
    }
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": object(labels)},
        "spec": spec, "status": status,
    });
    if rng.chance(mood.nasty)
        && rng.chance(20)
        && let Some(map) = node.as_object_mut()
    {
        map.remove(rng.pick(&["status", "spec"]));
    }
    node
}

fn taint(rng: &mut Rng) -> Value {
    let mut taint = json!({"key": rng.pick(TAINT_KEYS), "effect": rng.pick(EFFECTS)});
    if rng.chance(70) {
        taint["value"] = json!(rng.pick(TAINT_VALUES));
    }
    taint
}

/// One entry of a node's image list: several names for the same layers. The
/// size of a name mostly is the same on all nodes, as it is in life, but not
/// always.
fn image(rng: &mut Rng, mood: &Mood) -> Value {
    let (first, mebibytes) = IMAGES[rng.below(IMAGES.len())];
    let mut names = vec![json!(first)];
    if rng.chance(30) {
        names.push(json!(IMAGES[rng.below(IMAGES.len())].0));
    }
    let mut bytes = mebibytes * 1_048_576;
    if rng.chance(25) {
        bytes += i64::try_from(rng.below(50_000_000)).unwrap_or(0);
    }
    if rng.chance(mood.nasty) {
        return json!({"names": names});
    }
    json!({"names": names, "sizeBytes": bytes})
}
