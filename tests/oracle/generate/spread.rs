//! Spread constraints, and the services and controllers that default ones use.

use serde_json::{Value, json};

use super::affinity::{NAMESPACES, label_selector, pod_labels};
use super::{Mood, NAMESPACE};
use crate::rng::Rng;

const CONTROLLERS: &[(&str, &str)] = &[
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("v1", "ReplicationController"),
    ("batch/v1", "Job"),
    ("extensions/v1beta1", "ReplicaSet"),
];

/// Labels by which pods are spread, the useful ones more often.
fn topology_key(rng: &mut Rng) -> &'static str {
    rng.pick(&[
        "kubernetes.io/hostname",
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "rank",
        "disk",
    ])
}

/// `topologySpreadConstraints` of a pod.
pub(super) fn constraints(rng: &mut Rng, mood: &Mood) -> Value {
    (0..rng.between(1, 3)).map(|_| constraint(rng, mood)).collect()
}

fn constraint(rng: &mut Rng, mood: &Mood) -> Value {
    let hard = rng.chance(50);
    let mut one = bare(rng, hard);
    match rng.below(20) {
        // None selects nothing, an empty one counts nothing.
        0 => {}
        1 => one["labelSelector"] = json!({}),
        _ => one["labelSelector"] = label_selector(rng, 2 * mood.nasty),
    }
    if hard && rng.chance(35) {
        one["minDomains"] = json!(rng.between(1, 5));
    }
    if rng.chance(25) {
        one["matchLabelKeys"] = json!(rng.some(&["app", "tier", "no-such-label"], 60));
    }
    one
}

/// A constraint without a selector.
fn bare(rng: &mut Rng, hard: bool) -> Value {
    let skew = [1, 1, 1, 2, 3, 5][rng.below(6)];
    let mut one = json!({
        "maxSkew": skew,
        "topologyKey": topology_key(rng),
        "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
    });
    if rng.chance(30) {
        one["nodeAffinityPolicy"] = json!(rng.pick(&["Honor", "Ignore"]));
    }
    if rng.chance(30) {
        one["nodeTaintsPolicy"] = json!(rng.pick(&["Honor", "Ignore"]));
    }
    one
}

/// Arguments of PodTopologySpread.
pub(super) fn args(rng: &mut Rng) -> Value {
    if rng.chance(20) {
        return json!({"defaultingType": "System"});
    }
    let mut list: Vec<Value> = Vec::new();
    for _ in 0..rng.below(4) {
        let hard = rng.chance(40);
        let one = bare(rng, hard);
        let same = |other: &Value| {
            ["topologyKey", "whenUnsatisfiable"].iter().all(|key| other[key] == one[key])
        };
        if !list.iter().any(same) {
            list.push(one);
        }
    }
    json!({"defaultingType": "List", "defaultConstraints": list})
}

/// The controller of a pod.
pub(super) fn owner(rng: &mut Rng) -> Value {
    let (version, kind) = CONTROLLERS[rng.below(CONTROLLERS.len())];
    let name = format!("owner-{}", rng.below(3));
    let mut owner = json!({"apiVersion": version, "kind": kind, "name": name, "uid": "uid-owner"});
    if !rng.chance(10) {
        owner["controller"] = json!(true);
    }
    json!([owner])
}

/// Services and controllers of all namespaces.
pub(super) fn owners(rng: &mut Rng, mood: &Mood) -> Vec<Value> {
    let mut objects = Vec::new();
    let mut add =
        |rng: &mut Rng, version: &str, kind: &str, name: String, selector: Option<Value>| {
            let namespace = if rng.chance(80) { NAMESPACE } else { rng.pick(NAMESPACES) };
            let mut object = json!({
                "apiVersion": version,
                "kind": kind,
                "metadata": {"namespace": namespace, "name": name},
                "spec": {},
            });
            if let Some(selector) = selector {
                object["spec"]["selector"] = selector;
            }
            objects.push(object);
        };
    for i in 0..rng.below(4) {
        // A service without a selector serves nobody; an empty one everybody.
        let selector = (!rng.chance(10)).then(|| pod_labels(rng, 1));
        add(rng, "v1", "Service", format!("service-{i}"), selector);
    }
    for &(version, kind) in &CONTROLLERS[..3] {
        for i in 0..3 {
            if rng.chance(45) {
                let selector = match kind {
                    "ReplicationController" => pod_labels(rng, 1),
                    _ => label_selector(rng, mood.nasty / 2),
                };
                let selector = (!rng.chance(5)).then_some(selector);
                add(rng, version, kind, format!("owner-{i}"), selector);
            }
        }
    }
    objects
}
