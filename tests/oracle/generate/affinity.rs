//! Labels of pods, selectors over them, and affinity between pods.

use serde_json::{Value, json};

use super::{Mood, NAMESPACE, object};
use crate::rng::Rng;

/// Namespaces of pods.
pub(super) const NAMESPACES: &[&str] = &[NAMESPACE, "other", "third"];

const LABELS: &[(&str, &[&str])] =
    &[("app", &["web", "db", "train"]), ("tier", &["front", "back"]), ("index", &["0", "1", "2"])];

/// Labels of a pod, or a map that selects some; at least `least`.
pub(super) fn pod_labels(rng: &mut Rng, least: usize) -> Value {
    let labels = LABELS.iter().enumerate().filter_map(|(i, (key, values))| {
        let value = json!(rng.pick(values));
        (i < least || rng.chance(40)).then(|| ((*key).to_owned(), value))
    });
    object(labels.collect::<Vec<_>>())
}

/// A label selector over pods.
pub(super) fn label_selector(rng: &mut Rng, nasty: usize) -> Value {
    let mut selector = json!({});
    if rng.chance(65) {
        let (key, values) = LABELS[rng.below(2)];
        selector["matchLabels"] = json!({key: rng.pick(values)});
    }
    if rng.chance(35) {
        selector["matchExpressions"] =
            (0..rng.between(1, 2)).map(|_| expression(rng, nasty)).collect();
    }
    selector
}

fn expression(rng: &mut Rng, nasty: usize) -> Value {
    if rng.chance(nasty) {
        return match rng.below(4) {
            0 => json!({"key": "app", "operator": "Near", "values": ["web"]}),
            1 => json!({"key": "app", "operator": "In", "values": []}),
            2 => json!({"key": "app", "operator": "Exists", "values": ["web"]}),
            _ => json!({"key": "not a key!", "operator": "Exists"}),
        };
    }
    let (key, values) = LABELS[rng.below(LABELS.len())];
    let some = |rng: &mut Rng| -> Value {
        (0..rng.between(1, 2)).map(|_| json!(rng.pick(values))).collect()
    };
    match rng.below(8) {
        0..=3 => json!({"key": key, "operator": "In", "values": some(rng)}),
        4..=5 => json!({"key": key, "operator": "NotIn", "values": some(rng)}),
        6 => json!({"key": key, "operator": "Exists"}),
        _ => json!({"key": key, "operator": "DoesNotExist"}),
    }
}

/// Namespace objects, with labels; one may be missing.
pub(super) fn namespaces(rng: &mut Rng) -> Vec<Value> {
    let mut objects = Vec::new();
    for name in NAMESPACES {
        if rng.chance(85) {
            let labels = json!({"env": rng.pick(&["prod", "dev"])});
            let labels = if rng.chance(85) { labels } else { json!({}) };
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": labels},
            }));
        }
    }
    objects
}

/// Adds affinity or anti-affinity, or both, to a pod.
pub(super) fn add(rng: &mut Rng, mood: &Mood, pod: &mut Value) {
    for side in ["podAffinity", "podAntiAffinity"] {
        if !rng.chance(60) {
            continue;
        }
        let labels = pod["metadata"]["labels"].clone();
        let mut both = json!({});
        if rng.chance(50) {
            both["requiredDuringSchedulingIgnoredDuringExecution"] =
                (0..rng.between(1, 2)).map(|_| term(rng, mood, &labels)).collect();
        }
        if rng.chance(50) {
            both["preferredDuringSchedulingIgnoredDuringExecution"] = (0..rng.between(1, 3))
                .map(|_| {
                    let term = term(rng, mood, &labels);
                    json!({"weight": rng.between(1, 100), "podAffinityTerm": term})
                })
                .collect();
        }
        pod["spec"]["affinity"][side] = both;
    }
}

fn term(rng: &mut Rng, mood: &Mood, labels: &Value) -> Value {
    let key = rng.pick(&[
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "disk",
        "no-such-label",
    ]);
    let mut term = json!({"topologyKey": key});
    if !rng.chance(4) {
        term["labelSelector"] = label_selector(rng, mood.nasty);
        if rng.chance(20) {
            merge_keys(rng, &mut term, labels);
        }
    }
    if rng.chance(25) {
        term["namespaces"] = json!(rng.some(NAMESPACES, 50));
    }
    if rng.chance(25) {
        term["namespaceSelector"] = match rng.below(5) {
            0 => json!({}),
            1 => json!({"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}),
            2 => json!({"matchExpressions": [
                {"key": "env", "operator": "NotIn", "values": ["prod"]},
            ]}),
            _ => json!({"matchLabels": {"env": rng.pick(&["prod", "dev"])}}),
        };
    }
    term
}

/// `matchLabelKeys` and `mismatchLabelKeys`, which the API server merges into the
/// selector when it takes the pod: the scheduler reads the result.
fn merge_keys(rng: &mut Rng, term: &mut Value, labels: &Value) {
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let key = rng.pick(&["app", "tier", "index"]);
        if !rng.chance(50) {
            continue;
        }
        term[field] = json!([key]);
        if let Some(value) = labels[key].as_str() {
            let merged = json!({"key": key, "operator": operator, "values": [value]});
            match term["labelSelector"]["matchExpressions"].as_array_mut() {
                Some(list) => list.push(merged),
                None => term["labelSelector"]["matchExpressions"] = json!([merged]),
            }
        }
    }
}

/// Arguments of InterPodAffinity.
pub(super) fn args(rng: &mut Rng) -> Value {
    let mut args = json!({});
    if rng.chance(70) {
        args["hardPodAffinityWeight"] = json!([0, 1, 5, 100][rng.below(4)]);
    }
    if rng.chance(50) {
        args["ignorePreferredTermsOfExistingPods"] = json!(rng.chance(60));
    }
    args
}
