//! What stands between a pod and a node besides resources, such that only the
//! eviction of others removes it: host ports, anti-affinity of either side,
//! spread constraints, and affinity, which an eviction may also break.

use serde_json::{Value, json};

use super::NAMESPACE;
use super::budgets::APPS;
use crate::rng::Rng;

/// The conflict of one state.
pub(super) enum Conflict {
    None,
    Ports,
    /// The pod in question does not want the others beside it.
    AntiAffinity(&'static str),
    /// The others do not want it beside them.
    Unwanted(&'static str),
    /// It wants one of the others beside it.
    Affinity(&'static str),
    Spread(&'static str),
}

/// The app that the conflict is about.
const APP: &str = APPS[0];
const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

impl Conflict {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let key = rng.pick(&[HOST, HOST, ZONE]);
        match rng.below(20) {
            0 | 1 => Self::Ports,
            2 | 3 => Self::AntiAffinity(key),
            4 | 5 => Self::Unwanted(key),
            6 => Self::Affinity(key),
            7..=12 => Self::Spread(key),
            _ => Self::None,
        }
    }

    /// What a pod other than the one in question has to do with it, in `percent`
    /// of a hundred cases.
    pub(super) fn occupant(&self, rng: &mut Rng, pod: &mut Value, percent: usize) {
        if !rng.chance(percent) {
            return;
        }
        match self {
            Self::None => {}
            Self::Ports => add_port(rng, pod),
            Self::AntiAffinity(_) | Self::Affinity(_) | Self::Spread(_) => {
                pod["metadata"]["labels"]["app"] = json!(APP);
            }
            Self::Unwanted(key) => {
                pod["spec"]["affinity"]["podAntiAffinity"] = required(key, "preemptor");
            }
        }
    }

    /// Where no placed pod repels the pod in question, kube-scheduler leaves affinity
    /// out of the whole attempt, and so overlooks that a nominated pod does. Muster
    /// does not: nominated pods repel only where placed ones do.
    pub(super) fn settle(&self, pods: &mut [Value]) {
        let Self::Unwanted(key) = self else { return };
        let rule = required(key, "preemptor");
        let repels = |pod: &Value| {
            pod["spec"]["affinity"]["podAntiAffinity"] == rule
                && pod["metadata"]["namespace"] == NAMESPACE
        };
        if pods.iter().any(|pod| repels(pod) && pod["status"]["phase"] == "Running") {
            return;
        }
        for pod in pods.iter_mut().filter(|pod| repels(pod)) {
            if let Some(affinity) = pod["spec"]["affinity"].as_object_mut() {
                affinity.remove("podAntiAffinity");
            }
        }
    }

    /// What the pod in question has to do with it.
    pub(super) fn preemptor(&self, rng: &mut Rng, pod: &mut Value) {
        let labels = &mut pod["metadata"]["labels"];
        match self {
            Self::None => {}
            Self::Ports => add_port(rng, pod),
            Self::AntiAffinity(key) => {
                labels["app"] = json!("preemptor");
                pod["spec"]["affinity"]["podAntiAffinity"] = required(key, APP);
            }
            Self::Unwanted(_) => labels["app"] = json!("preemptor"),
            Self::Affinity(key) => {
                labels["app"] = json!(rng.pick(&["preemptor", APP]));
                pod["spec"]["affinity"]["podAffinity"] = required(key, APP);
            }
            Self::Spread(key) => {
                labels["app"] = json!(APP);
                let mut constraint = json!({
                    "maxSkew": rng.between(1, 2),
                    "topologyKey": key,
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"app": APP}},
                });
                if rng.chance(20) {
                    constraint["minDomains"] = json!(rng.between(1, 4));
                }
                pod["spec"]["topologySpreadConstraints"] = json!([constraint]);
            }
        }
    }
}

fn add_port(rng: &mut Rng, pod: &mut Value) {
    let port = [80, 80, 443][rng.below(3)];
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": port, "hostPort": port}]);
}

fn required(key: &str, app: &str) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}},
    ]})
}
