//! Profiles: exactly the plugins that both sides have, with varied arguments.

use serde_json::{Value, json};

use super::constraints::node_affinity;
use super::{Mood, NAMESPACE, affinity, spread};
use crate::rng::Rng;

/// One item of `profiles` in a KubeSchedulerConfiguration.
pub(super) fn profile(
    rng: &mut Rng,
    mood: &Mood,
    plugins: &[(&str, u32)],
    nodes: &[String],
) -> Value {
    let vary_weights = rng.chance(10);
    let enabled: Value = plugins
        .iter()
        .map(|&(name, weight)| match weight {
            0 => json!({"name": name}),
            // Weight 0 means 1.
            _ if vary_weights => json!({"name": name, "weight": rng.below(8)}),
            _ => json!({"name": name, "weight": weight}),
        })
        .collect();
    let mut args = Vec::new();
    if rng.chance(60) {
        args.push(json!({"name": "NodeResourcesFit", "args": fit(rng, mood)}));
    }
    if rng.chance(25) {
        let resources: Value = resource_names(rng, mood)
            .iter()
            .map(|name| json!({"name": name, "weight": 1}))
            .collect();
        args.push(json!({
            "name": "NodeResourcesBalancedAllocation",
            "args": {"resources": resources},
        }));
    }
    if rng.chance(mood.volumes / 3) {
        let mut binding = json!({"bindTimeoutSeconds": rng.below(700)});
        if rng.chance(60) {
            binding["shape"] = shape(rng);
        }
        args.push(json!({"name": "VolumeBinding", "args": binding}));
    }
    if rng.chance(mood.required / 4) {
        let (required, preferred) = [(true, false), (false, true), (true, true)][rng.below(3)];
        // A profile is read strictly: nothing that does not parse.
        let added = node_affinity(rng, 0, required, preferred, nodes);
        args.push(json!({"name": "NodeAffinity", "args": {"addedAffinity": added}}));
    }
    if rng.chance(30) {
        args.push(json!({"name": "PodTopologySpread", "args": spread::args(rng)}));
    }
    if rng.chance(30) {
        args.push(json!({"name": "InterPodAffinity", "args": affinity::args(rng)}));
    }
    json!({
        "schedulerName": NAMESPACE,
        "plugins": {"multiPoint": {"disabled": [{"name": "*"}], "enabled": enabled}},
        "pluginConfig": args,
    })
}

fn fit(rng: &mut Rng, mood: &Mood) -> Value {
    let kind = rng.pick(&["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]);
    let mut strategy = json!({"type": kind});
    if rng.chance(70) {
        let resources: Value = resource_names(rng, mood)
            .iter()
            .map(|name| match rng.below(4) {
                0 => json!({"name": name}),
                1 => json!({"name": name, "weight": 1}),
                _ => json!({"name": name, "weight": rng.between(1, 100)}),
            })
            .collect();
        strategy["resources"] = resources;
    }
    if kind == "RequestedToCapacityRatio" {
        strategy["requestedToCapacityRatio"] = json!({"shape": shape(rng)});
    }
    let mut args = json!({"scoringStrategy": strategy});
    if rng.chance(mood.scalars / 2) {
        args["ignoredResources"] = json!(rng.some(&["nvidia.com/gpu", "example.com/foo"], 60));
    }
    if rng.chance(mood.scalars / 3) {
        args["ignoredResourceGroups"] =
            json!(rng.some(&["nvidia.com", "example.com", "sub.kubernetes.io"], 50));
    }
    args
}

/// One to four points of rising utilisation.
fn shape(rng: &mut Rng) -> Value {
    let mut points = Vec::new();
    let mut utilization = rng.below(30);
    for _ in 0..rng.between(1, 4) {
        if utilization > 100 {
            break;
        }
        points.push(json!({"utilization": utilization, "score": rng.below(11)}));
        utilization += rng.between(1, 60);
    }
    Value::Array(points)
}

/// At least one resource, each once.
fn resource_names(rng: &mut Rng, mood: &Mood) -> Vec<&'static str> {
    let mut names = rng.some(&["cpu", "memory"], 80);
    names.extend(rng.some(&["ephemeral-storage"], 30));
    names.extend(rng.some(&mood.scalar_names, 35));
    if names.is_empty() {
        names.push("cpu");
    }
    names
}
