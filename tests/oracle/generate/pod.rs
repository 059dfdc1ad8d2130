//! Pods, those that run and those that wait: containers of all kinds, host
//! ports, resources at every level, resizes in flight.

use serde_json::{Value, json};

use super::constraints::{node_affinity, node_selector, toleration};
use super::resources::{pod_level, requests};
use super::{Mood, affinity, metadata, spread};
use crate::rng::Rng;

/// Image names as pods write them: with and without tag, digest, registry.
const IMAGES: &[&str] = &[
    "registry.io/team/app:v1",
    "registry.io/team/app@sha256:0123",
    "registry.io/team/app",
    "app",
    "app:v2",
    "localhost:5000/app",
    "localhost:5000/app:v2",
    "big",
    "tiny:latest",
    "unknown",
];

/// A pod that occupies a node.
pub(super) fn existing(rng: &mut Rng, mood: &Mood, name: &str, node: &str) -> Value {
    let mut pod = pod(rng, mood, name);
    pod["spec"]["nodeName"] = json!(node);
    pod["status"]["phase"] = json!("Running");
    if rng.chance(mood.affinity / 2) {
        affinity::add(rng, mood, &mut pod);
    }
    if rng.chance(25) {
        add_resize(rng, mood, &mut pod);
    }
    if rng.chance(8) {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if rng.chance(4) {
        // Finished pods hold nothing.
        pod["status"]["phase"] = json!(rng.pick(&["Succeeded", "Failed"]));
    }
    pod
}

/// A pod that waits for a node.
pub(super) fn pending(rng: &mut Rng, mood: &Mood, name: &str, nodes: &[String]) -> Value {
    let mut pod = pod(rng, mood, name);
    if rng.chance(mood.tolerations) {
        pod["spec"]["tolerations"] =
            (0..rng.between(1, 4)).map(|_| toleration(rng, mood)).collect();
    }
    if rng.chance(mood.required / 2) {
        pod["spec"]["nodeSelector"] = node_selector(rng);
    }
    let required = rng.chance(mood.required);
    let preferred = rng.chance(mood.preferred);
    if required || preferred || rng.chance(5) {
        let affinity = node_affinity(rng, mood.nasty + 1, required, preferred, nodes);
        pod["spec"]["affinity"] = json!({"nodeAffinity": affinity});
    }
    if rng.chance(mood.affinity) {
        affinity::add(rng, mood, &mut pod);
    }
    if rng.chance(mood.spread) {
        pod["spec"]["topologySpreadConstraints"] = spread::constraints(rng, mood);
    }
    if rng.chance(mood.images / 3) {
        let reference = rng.pick(IMAGES);
        pod["spec"]["volumes"] = json!([
            {"name": "model", "image": {"reference": reference}},
            {"name": "scratch", "emptyDir": {}},
        ]);
    }
    if rng.chance(4) && !nodes.is_empty() {
        let wanted = if rng.chance(20) { "node-unknown" } else { &nodes[rng.below(nodes.len())] };
        pod["spec"]["nodeName"] = json!(wanted);
        if rng.chance(40) {
            // Two plugins that narrow the set of nodes at once.
            let other = &nodes[rng.below(nodes.len())];
            let fields = |name: &str| {
                json!({"matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [name]},
                ]})
            };
            let terms = if rng.chance(70) {
                json!([fields(wanted), fields(other)])
            } else {
                json!([fields(other)])
            };
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": terms});
        }
    }
    if rng.chance(4) {
        // A waiting pod has no such status in life; filters must not read it.
        add_resize(rng, mood, &mut pod);
    }
    pod
}

fn pod(rng: &mut Rng, mood: &Mood, name: &str) -> Value {
    let count = [1, 1, 1, 2, 3][rng.below(5)];
    let containers: Vec<Value> =
        (0..count).map(|i| container(rng, mood, &format!("app-{i}"))).collect();
    let mut spec = json!({"containers": containers});
    if rng.chance(25) {
        spec["initContainers"] = (0..rng.between(1, 3))
            .map(|i| {
                let mut init = container(rng, mood, &format!("init-{i}"));
                if rng.chance(50) {
                    init["restartPolicy"] = json!("Always");
                }
                init
            })
            .collect();
    }
    if rng.chance(12) {
        spec["overhead"] = requests(rng, mood);
    }
    if rng.chance(15) {
        spec["resources"] = pod_level(rng, mood);
    }
    if rng.chance(30) {
        spec["priority"] = json!([0, 10, 1000, -5][rng.below(4)]);
    }
    if rng.chance(4) {
        spec["hostNetwork"] = json!(true);
    }
    let mut metadata = metadata(name);
    let least = usize::from(!rng.chance(10));
    metadata["labels"] = affinity::pod_labels(rng, least);
    if rng.chance(mood.owners) {
        metadata["ownerReferences"] = spread::owner(rng);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
}

fn container(rng: &mut Rng, mood: &Mood, name: &str) -> Value {
    let mut container = json!({"name": name, "image": rng.pick(IMAGES)});
    match rng.below(20) {
        // No resources at all; limits alone, which only the API server turns
        // into requests; an empty map.
        0..=3 => {}
        4 => container["resources"] = json!({"limits": requests(rng, mood)}),
        5 => container["resources"] = json!({"requests": {}}),
        _ => container["resources"] = json!({"requests": requests(rng, mood)}),
    }
    if rng.chance(mood.ports / 2) {
        container["ports"] = (0..rng.between(1, 2)).map(|_| port(rng)).collect();
    }
    container
}

fn port(rng: &mut Rng) -> Value {
    let number = [80, 443, 8080][rng.below(3)];
    let mut port = json!({"containerPort": number});
    match rng.below(8) {
        0 => {}
        1 => port["hostPort"] = json!(0),
        _ => port["hostPort"] = json!(number),
    }
    if rng.chance(60) {
        port["protocol"] = json!(rng.pick(&["TCP", "UDP", "SCTP", "TCP"]));
    }
    if rng.chance(50) {
        port["hostIP"] = json!(rng.pick(&["0.0.0.0", "127.0.0.1", "10.0.0.1", "::", ""]));
    }
    port
}

/// A resize in place: what the kubelet has granted and set differs from what
/// the specification asks for.
fn add_resize(rng: &mut Rng, mood: &Mood, pod: &mut Value) {
    let statuses = |rng: &mut Rng, list: &Value| -> Value {
        let mut statuses = Vec::new();
        for container in list.as_array().into_iter().flatten() {
            if rng.chance(20) {
                continue;
            }
            let mut status = json!({"name": container["name"]});
            if rng.chance(70) {
                status["allocatedResources"] = requests(rng, mood);
            }
            match rng.below(6) {
                0 => status["resources"] = json!({}),
                1 => status["resources"] = json!({"limits": requests(rng, mood)}),
                2 | 3 => status["resources"] = json!({"requests": requests(rng, mood)}),
                _ => {}
            }
            statuses.push(status);
        }
        Value::Array(statuses)
    };
    pod["status"]["containerStatuses"] = statuses(rng, &pod["spec"]["containers"].clone());
    if rng.chance(70) {
        let init = pod["spec"]["initContainers"].clone();
        pod["status"]["initContainerStatuses"] = statuses(rng, &init);
    }
    if rng.chance(30) {
        pod["status"]["allocatedResources"] = requests(rng, mood);
    }
    match rng.below(6) {
        0 => pod["status"]["resources"] = json!({"requests": requests(rng, mood)}),
        1 => pod["status"]["resources"] = json!({"limits": requests(rng, mood)}),
        _ => {}
    }
    if rng.chance(40) {
        let reason = rng.pick(&["Infeasible", "Infeasible", "Deferred"]);
        let pending = json!({"type": "PodResizePending", "status": "True", "reason": reason});
        let ready = json!({"type": "Ready", "status": "True"});
        let progress = json!({"type": "PodResizeInProgress", "status": "True"});
        pod["status"]["conditions"] = json!([ready, pending, progress]);
    }
}
