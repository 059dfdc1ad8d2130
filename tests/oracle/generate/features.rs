//! Features of the kubelet: what nodes declare and pods need.

use serde_json::{Value, json};

use crate::rng::Rng;

const DECLARED: &[&str] = &[
    "RestartAllContainersOnContainerExits",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
    "InPlacePodVerticalScalingInitContainers",
    "FromTheFuture",
];

/// Lets a node declare some features.
pub(super) fn declare(rng: &mut Rng, node: &mut Value) {
    if node["status"].is_object() && rng.chance(80) {
        node["status"]["declaredFeatures"] = json!(rng.some(DECLARED, 65));
    }
}

/// Lets a pod need some.
pub(super) fn need(rng: &mut Rng, pod: &mut Value) {
    let spec = &mut pod["spec"];
    let list = if spec["initContainers"].is_array() && rng.chance(50) {
        "initContainers"
    } else {
        "containers"
    };
    if rng.chance(40) {
        let action = rng.pick(&["RestartAllContainers", "RestartAllContainers", "Restart"]);
        spec[list][0]["restartPolicyRules"] =
            json!([{"action": action, "exitCodes": {"operator": "In", "values": [1]}}]);
    }
    if rng.chance(40) {
        spec["hostNetwork"] = json!(rng.chance(80));
        spec["hostUsers"] = json!(rng.chance(30));
    }
    if rng.chance(40) {
        let options = if rng.chance(80) { json!(["noexec"]) } else { json!([]) };
        let mounts = json!([{"name": "a", "mountPath": "/a"},
            {"name": "b", "mountPath": "/b", "bindMountOptions": options}]);
        if rng.chance(20) {
            spec["ephemeralContainers"] = json!([{"name": "debug", "volumeMounts": mounts}]);
        } else {
            spec[list][0]["volumeMounts"] = mounts;
        }
    }
}
