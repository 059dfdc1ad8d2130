//! The workloads that a seed draws.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{
    Container, ContainerPort, Pod, PodSchedulingGate, Quantity, ResourceList, ResourceRequirements,
    Toleration,
};

use super::draw::{Draw, TAINT};
use crate::scenario::{Checkpoint, Runtime, SCHEDULER_NAME, Shape, Workload};
use crate::time::{MILLISECOND, Micros, SECOND};

/// Most pods of a world, before replacements.
const MOST: u32 = 40;

/// `ranked`: each workload is more important than the one before, and asks for more
/// than is easily found.
pub(super) fn draw(draw: &mut Draw, span: Micros, ranked: bool) -> Vec<Workload> {
    let count = draw.small(1, 6);
    let crowd = draw.chance(25);
    let mut left = if crowd { MOST } else { 14 };
    let gated = draw.chance(20);
    let foreign = draw.chance(15);
    let mut all = Vec::new();
    for index in 0..count {
        let most = draw.small(1, if crowd { 12 } else { 4 }).min(left);
        if most == 0 {
            break;
        }
        left -= most;
        let name = format!("w{index}");
        let mut template = template(draw, &name, ranked);
        if ranked {
            template.spec.priority = Some(i32::try_from(index).unwrap_or(0) * 10);
        }
        if draw.chance(8) {
            template.spec.preemption_policy = Some("Never".to_owned());
        }
        if gated && draw.chance(40) {
            let gate = PodSchedulingGate { name: "swarm.dev/gate".to_owned() };
            template.spec.scheduling_gates = vec![gate];
        }
        if foreign && draw.chance(40) {
            "somebody-else".clone_into(&mut template.spec.scheduler_name);
        }
        let runtime = draw.time(SECOND, 60 * SECOND);
        let shape = match draw.pick(0, 9) {
            0..=4 => Shape::Pods { replicas: most },
            5..=6 => Shape::Job { parallelism: draw.small(1, most), completions: most },
            7 => Shape::Set { replicas: most, stable_names: false },
            _ => Shape::Set { replicas: most, stable_names: true },
        };
        let forever = match shape {
            Shape::Pods { .. } => draw.chance(if ranked { 80 } else { 50 }),
            Shape::Job { .. } => false,
            Shape::Set { .. } => true,
        };
        all.push(Workload {
            name,
            namespace: "default".to_owned(),
            shape,
            at: if draw.chance(40) {
                0
            } else if ranked {
                span / MILLISECOND * i64::from(index) / i64::from(count) * MILLISECOND
            } else {
                draw.time(0, span)
            },
            every: 0,
            repeat: 1,
            runtime: (!forever).then_some(Runtime { min: runtime, max: runtime }),
            startup: None,
            checkpoint: checkpoint(&template, runtime),
            pod_group: None,
            template: Arc::new(template),
        });
    }
    all
}

/// Some want to be asked before they are pushed out; some of those answer. Drawn from what is
/// drawn anyway, so that worlds stay what they were.
pub(super) fn checkpoint(template: &Pod, runtime: Micros) -> Option<Checkpoint> {
    let wants = template.spec.priority.is_some_and(|p| p <= 0) && runtime / MILLISECOND % 8 == 0;
    let takes = runtime / MILLISECOND % 16 == 0;
    let (wait, takes) = (20 * SECOND, takes.then_some(runtime / 4));
    wants.then_some(Checkpoint { wait, takes })
}

pub(super) fn requests(draw: &mut Draw, large: bool) -> ResourceList {
    let mut list = ResourceList::new();
    if draw.chance(90) {
        let least = if large { 4 } else { 0 };
        list.insert("cpu".to_owned(), Quantity::from_millis(draw.pick(least, 8 + least) * 250));
    }
    if draw.chance(60) {
        list.insert("memory".to_owned(), Quantity::from_units(draw.pick(0, 8) << 29));
    }
    if draw.chance(20) {
        list.insert("nvidia.com/gpu".to_owned(), Quantity::from_units(draw.pick(1, 4)));
    }
    list
}

pub(super) fn template(draw: &mut Draw, name: &str, large: bool) -> Pod {
    let mut pod = Pod::default();
    "default".clone_into(&mut pod.metadata.namespace);
    pod.metadata.labels = BTreeMap::from([("app".to_owned(), name.to_owned())]);
    if draw.chance(1) {
        // Huge, as far as a scheduler reads it.
        for i in 0..90 {
            pod.metadata.labels.insert(format!("label-{i}"), "x".repeat(60));
        }
    }
    let spec = &mut pod.spec;
    SCHEDULER_NAME.clone_into(&mut spec.scheduler_name);
    spec.priority = Some(draw.one(&[0, 0, 0, -10, 100, 1000]));
    let mut main = Container {
        name: "main".to_owned(),
        resources: ResourceRequirements { requests: requests(draw, large) },
        ..Container::default()
    };
    if draw.chance(15) {
        main.ports = vec![ContainerPort {
            host_port: draw.one(&[8080, 9090]),
            host_ip: draw.one(&["", "127.0.0.1"]).to_owned(),
            protocol: draw.one(&["TCP", "UDP"]).to_owned(),
        }];
    }
    spec.containers = vec![main];
    if draw.chance(25) {
        let half = draw.one(&["h0", "h1"]).to_owned();
        spec.node_selector = BTreeMap::from([("half".to_owned(), half)]);
    }
    if draw.chance(35) {
        let exists = draw.chance(60);
        spec.tolerations = vec![Toleration {
            key: if exists && draw.chance(20) { String::new() } else { TAINT.to_owned() },
            operator: if exists { "Exists" } else { "Equal" }.to_owned(),
            value: if exists { "" } else { "a" }.to_owned(),
            effect: draw.one(&["", "NoSchedule"]).to_owned(),
        }];
    }
    spec.termination_grace_period_seconds = draw.one(&[None, Some(1), Some(5), Some(30)]);
    "Pending".clone_into(&mut pod.status.phase);
    pod
}
