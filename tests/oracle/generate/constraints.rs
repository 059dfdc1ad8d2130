//! What a pod wants of its node: selectors, affinity, tolerations.

use serde_json::{Value, json};

use super::node::{EFFECTS, LABELS, TAINT_KEYS, TAINT_VALUES};
use super::{Mood, object};
use crate::rng::Rng;

/// A map for `nodeSelector`; sometimes empty, which is not the same as none.
pub(super) fn node_selector(rng: &mut Rng) -> Value {
    let count = rng.below(3);
    object((0..count).map(|_| {
        let (key, values) = LABELS[rng.below(LABELS.len())];
        (key.to_owned(), json!(rng.pick(values)))
    }))
}

/// `nodeAffinity` of a pod, or what a profile adds to every pod.
pub(super) fn node_affinity(
    rng: &mut Rng,
    nasty: usize,
    required: bool,
    preferred: bool,
    nodes: &[String],
) -> Value {
    let mut affinity = json!({});
    if required {
        let by_name = rng.chance(25);
        let terms: Value = (0..rng.between(1, 3))
            .map(|_| {
                let fields = by_name && !rng.chance(10) || rng.chance(3);
                term(rng, nasty, fields, nodes)
            })
            .collect();
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    if preferred {
        // A bad term here fails the whole attempt, so it must be rare.
        let nasty = if rng.chance(nasty * 6) { 45 } else { 0 };
        let terms: Value = (0..rng.between(1, 4))
            .map(|_| {
                let fields = rng.chance(10);
                let weight = if rng.chance(nasty) { 0 } else { rng.between(1, 100) };
                let preference = if rng.chance(nasty) {
                    json!({"matchExpressions": [
                        {"key": "rank", "operator": rng.pick(&["Gt", "Lt"]), "values": ["many"]},
                    ]})
                } else {
                    term(rng, 0, fields, nodes)
                };
                json!({"weight": weight, "preference": preference})
            })
            .collect();
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = terms;
    }
    affinity
}

fn term(rng: &mut Rng, nasty: usize, fields: bool, nodes: &[String]) -> Value {
    let mut term = json!({});
    // Without either list a term matches nothing.
    let least = usize::from(!rng.chance(5));
    let count = if fields { rng.below(2) } else { rng.between(least, 2) };
    if count > 0 || rng.chance(20) {
        let expressions: Value = (0..count)
            .map(|_| if rng.chance(nasty) { bad_expression(rng) } else { expression(rng) })
            .collect();
        term["matchExpressions"] = expressions;
    }
    if fields {
        let count = if rng.chance(45) { 2 } else { 1 };
        term["matchFields"] = (0..count).map(|_| name_field(rng, nasty, nodes)).collect();
    }
    term
}

fn name_field(rng: &mut Rng, nasty: usize, nodes: &[String]) -> Value {
    let mut name = || {
        if nodes.is_empty() || rng.chance(8) {
            "node-unknown".to_owned()
        } else {
            nodes[rng.below(nodes.len())].clone()
        }
    };
    let (first, second) = (name(), name());
    let operator = if rng.chance(85) { "In" } else { "NotIn" };
    // Two values narrow the set in PreFilter but are an error in Filter.
    let values = if rng.chance(nasty) { json!([first, second]) } else { json!([first]) };
    let key = if rng.chance(nasty / 2) { "metadata.namespace" } else { "metadata.name" };
    json!({"key": key, "operator": operator, "values": values})
}

fn expression(rng: &mut Rng) -> Value {
    let (key, values) = if rng.chance(8) {
        ("no-such-label", &["x"] as &[&str])
    } else {
        LABELS[rng.below(LABELS.len())]
    };
    match rng.below(10) {
        0..=3 => json!({"key": key, "operator": "In", "values": one_or_two(rng, values)}),
        4..=5 => json!({"key": key, "operator": "NotIn", "values": one_or_two(rng, values)}),
        6 => json!({"key": key, "operator": "Exists"}),
        7 => json!({"key": key, "operator": "DoesNotExist"}),
        _ => {
            let operator = rng.pick(&["Gt", "Lt"]);
            let value = rng.pick(&["0", "4", "7", "10", "9223372036854775806"]);
            json!({"key": "rank", "operator": operator, "values": [value]})
        }
    }
}

/// Requirements that do not parse: in a required term they match nothing.
fn bad_expression(rng: &mut Rng) -> Value {
    match rng.below(7) {
        0 => json!({"key": "rank", "operator": "Gt", "values": [rng.pick(&["many", "-5"])]}),
        1 => json!({"key": "rank", "operator": "Lt", "values": ["1", "2"]}),
        2 => json!({"key": "disk", "operator": "In", "values": []}),
        3 => json!({"key": "disk", "operator": "Exists", "values": ["ssd"]}),
        4 => json!({"key": "disk", "operator": "NotIn", "values": ["not a label value!"]}),
        5 => json!({"key": "not a key!", "operator": "DoesNotExist"}),
        _ => json!({"key": "disk", "operator": "Near", "values": ["ssd"]}),
    }
}

fn one_or_two(rng: &mut Rng, values: &[&str]) -> Value {
    (0..rng.between(1, 2)).map(|_| json!(rng.pick(values))).collect()
}

pub(super) fn toleration(rng: &mut Rng, mood: &Mood) -> Value {
    if rng.chance(8) {
        return json!({"operator": "Exists"});
    }
    let mut toleration = json!({"key": rng.pick(TAINT_KEYS)});
    match rng.below(10) {
        0..=3 => toleration["operator"] = json!("Exists"),
        4..=6 => {
            toleration["operator"] = json!("Equal");
            toleration["value"] = json!(rng.pick(TAINT_VALUES));
        }
        // No operator is Equal; Gt and Lt are behind a gate that is off.
        7..=8 => toleration["value"] = json!(rng.pick(TAINT_VALUES)),
        _ => {
            toleration["operator"] = json!(rng.pick(&["Gt", "Lt"]));
            toleration["value"] = json!(rng.pick(&["3", "9"]));
        }
    }
    if rng.chance(60) {
        toleration["effect"] = json!(rng.pick(EFFECTS));
    }
    if rng.chance(20) {
        toleration["tolerationSeconds"] = json!(30);
    }
    if rng.chance(mood.nasty) {
        match rng.below(3) {
            0 => toleration["operator"] = json!("Matches"),
            1 => toleration["key"] = json!(""),
            _ => toleration["effect"] = json!("NoSuchEffect"),
        }
    }
    toleration
}
