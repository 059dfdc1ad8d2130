//! Nodes of a state about preemption, and the pods that fill them.

use serde_json::{Value, json};

use super::preemption::Draw;
use super::rank::{StartTimes, other_priority, set_priority, terminate};
use super::{NAMESPACE, affinity, metadata, pod};
use crate::rng::Rng;

pub(super) const GPU: &str = "nvidia.com/gpu";

/// What a node has, or a pod wants: tenths of a CPU, units of 64 MiB, GPUs.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub(super) cpu: usize,
    pub(super) memory: usize,
    pub(super) gpus: usize,
}

impl Amount {
    fn requests(self) -> Value {
        let mut list = json!({
            "cpu": format!("{}m", self.cpu * 100),
            "memory": format!("{}Mi", self.memory * 64),
        });
        if self.gpus > 0 {
            list[GPU] = json!(self.gpus.to_string());
        }
        list
    }
}

pub(super) fn room(rng: &mut Rng, draw: &Draw) -> Amount {
    let gpus = if draw.gpus { [0, 2, 4, 4, 8, 8, 8][rng.below(7)] } else { 0 };
    Amount { cpu: [20, 40, 40, 80][rng.below(4)], memory: [32, 64, 128][rng.below(3)], gpus }
}

pub(super) fn node(rng: &mut Rng, draw: &Draw, name: &str, room: Amount) -> Value {
    let mut node = super::node::node(rng, &draw.mood, name);
    let mut allocatable = room.requests();
    allocatable["pods"] = json!(rng.pick(&["110", "110", "6", "4"]));
    node["status"]["allocatable"] = allocatable;
    node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
    node["metadata"]["labels"]["topology.kubernetes.io/zone"] =
        json!(rng.pick(&["zone-a", "zone-b", "zone-c"]));
    node
}

/// Pods on one node, until little is left of what it has; sometimes they have
/// more than that.
pub(super) fn fill(rng: &mut Rng, draw: &Draw, node: &str, room: Amount, pods: &mut Vec<Value>) {
    let levels = if draw.airy { [100, 90, 50, 50, 120] } else { [100, 100, 97, 92, 105] };
    let level = if draw.alike { 100 } else { levels[rng.below(5)] };
    let mut starts = StartTimes::new(rng);
    // The resource that the state is about is what runs out.
    let by_gpu = room.gpus > 0;
    let whole = if by_gpu { room.gpus * 10 } else { room.cpu };
    let mut left = whole * level / 100;
    let mut ports = Vec::new();
    let count = if draw.alike { 4 } else { rng.between(2, 9) };
    let involved = [15, 50, 85][rng.below(3)];
    for i in 0..count {
        if left == 0 {
            break;
        }
        let share = match count - i {
            1 => left,
            _ if draw.alike => whole / 4,
            _ => rng.between(1, left.min(whole.div_ceil(2))),
        };
        left -= share;
        let gpus = if by_gpu { share.div_ceil(10).min(left.div_ceil(10) + 1) } else { 0 };
        let cpu = if by_gpu { rng.below(4) } else { share };
        let memory = if draw.alike { 1 } else { rng.below(room.memory / 4) };
        let mut pod = occupant(rng, draw, pods.len(), node, Amount { cpu, memory, gpus });
        draw.conflict.occupant(rng, &mut pod, involved);
        let start = if draw.alike { Some(StartTimes::at(i)) } else { starts.next(rng) };
        if let Some(start) = start {
            pod["status"]["startTime"] = json!(start);
        }
        hold_ports(&mut pod, &mut ports);
        pods.push(pod);
    }
}

/// No two pods of a node hold the same port: kube-scheduler takes it as free once
/// either of them has left.
fn hold_ports(pod: &mut Value, held: &mut Vec<Value>) {
    let container = &mut pod["spec"]["containers"][0];
    let port = container["ports"][0]["hostPort"].clone();
    if port.is_null() {
        return;
    }
    if held.contains(&port)
        && let Some(map) = container.as_object_mut()
    {
        map.remove("ports");
    }
    held.push(port);
}

/// A pod that runs, mostly of a priority below that of the pod in question.
fn occupant(rng: &mut Rng, draw: &Draw, number: usize, node: &str, wants: Amount) -> Value {
    let namespace = if rng.chance(80) { NAMESPACE } else { "other" };
    let name = format!("{namespace}/busy-{number}");
    let mut pod = if !draw.alike && rng.chance(12) {
        // Everything that a pod can ask for.
        pod::existing(rng, &draw.mood, &name, node)
    } else {
        let mut pod = plain(rng, &name, wants);
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
        pod
    };
    let priority = other_priority(rng, draw.priority, 88);
    set_priority(&mut pod, if draw.alike { Some(draw.priority - 1) } else { priority });
    if rng.chance(10)
        && let Some(map) = pod["metadata"].as_object_mut()
    {
        map.remove("labels");
    }
    if rng.chance(10) {
        terminate(rng, &mut pod);
    }
    pod
}

/// A pod with labels and requests, spread over containers in one of the ways
/// that add up differently.
pub(super) fn plain(rng: &mut Rng, name: &str, wants: Amount) -> Value {
    let mut metadata = metadata(name);
    metadata["labels"] = affinity::pod_labels(rng, 1);
    let requests = wants.requests();
    let small = json!({"name": "app", "resources": {"requests": {"cpu": "10m"}}});
    let big = json!({"name": "app", "resources": {"requests": requests}});
    let spec = match rng.below(10) {
        0 => json!({
            "containers": [small],
            "initContainers": [{"name": "init", "resources": {"requests": requests}}],
        }),
        1 => json!({
            "containers": [small],
            "initContainers": [{
                "name": "sidecar",
                "restartPolicy": "Always",
                "resources": {"requests": requests},
            }],
        }),
        2 => json!({"containers": [big], "overhead": {"cpu": "50m", "memory": "1Mi"}}),
        _ => json!({"containers": [big]}),
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
}
