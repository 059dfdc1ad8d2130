//! Gangs that push others out.
//!
//! Owns worlds in which lesser pods and gangs fill few nodes and more important gangs come
//! after them; some of the lesser ones have budgets, or more members than they need. Draws
//! by chances of its own: other worlds stay what they were.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{Quantity, ResourceList};
use muster_api::muster::PodGroupSpec;

use super::draw::Draw;
use super::pods::{checkpoint, template};
use crate::model::budget::{Amount, Budget};
use crate::scenario::{GroupSpec, NodeGroup, Runtime, Shape, Workload};
use crate::time::{MILLISECOND, Micros, SECOND};

/// Worlds in which gangs contend, in a hundred.
pub(super) const WORLDS: i64 = 20;

/// Has gangs contend for few nodes; their budgets.
pub(super) fn draw(
    draw: &mut Draw,
    nodes: &mut Vec<NodeGroup>,
    workloads: &mut Vec<Workload>,
) -> Vec<Budget> {
    nodes.truncate(1);
    for group in nodes {
        group.count = draw.small(2, 4);
        group.taints.clear();
        group.unschedulable = false;
        group.allocatable.insert("cpu".to_owned(), Quantity::from_millis(draw.pick(2, 4) * 1000));
        group.allocatable.insert("pods".to_owned(), Quantity::from_units(110));
    }
    workloads.clear();
    let mut budgets = Vec::new();
    for index in 0..draw.small(2, 4) {
        let gang = draw.chance(65);
        let name = format!("low{index}");
        let priority = draw.one(&[0, 0, 10]);
        let size = draw_size(draw);
        let mut low = workload(draw, &name, priority, 0, size, gang);
        // What a set has that ends is made again, for ever.
        if draw.chance(20) && matches!(low.shape, Shape::Pods { .. }) {
            let most = draw.time(20 * SECOND, 200 * SECOND);
            low.runtime = Some(Runtime { min: most, max: most });
        }
        if draw.chance(40) {
            budgets.push(budget(draw, &name));
        }
        workloads.push(low);
    }
    for index in 0..draw.small(1, 3) {
        let at = draw.time(10 * SECOND, 60 * SECOND);
        let priority = draw.one(&[50, 100]);
        let size = draw_size(draw);
        workloads.push(workload(draw, &format!("high{index}"), priority, at, size, true));
    }
    if draw.chance(30) {
        let at = draw.time(10 * SECOND, 60 * SECOND);
        workloads.push(workload(draw, "single", 70, at, 1, false));
    }
    budgets
}

fn draw_size(draw: &mut Draw) -> u32 {
    draw.small(1, 5)
}

fn workload(
    draw: &mut Draw,
    name: &str,
    priority: i32,
    at: Micros,
    size: u32,
    gang: bool,
) -> Workload {
    let mut pod = template(draw, name, false);
    pod.spec.priority = Some(priority);
    pod.spec.node_selector.clear();
    pod.spec.containers[0].ports.clear();
    let cpu = Quantity::from_millis(draw.pick(1, 4) * 500);
    pod.spec.containers[0].resources.requests = ResourceList::from([("cpu".to_owned(), cpu)]);
    if draw.chance(5) {
        pod.spec.preemption_policy = Some("Never".to_owned());
    }
    let least = if draw.chance(60) { size } else { draw.small(1, size) };
    let spec = PodGroupSpec { min_member: i32::try_from(least).ok(), ..PodGroupSpec::default() };
    let shape = match draw.chance(75) {
        true => Shape::Pods { replicas: size },
        false => Shape::Set { replicas: size, stable_names: true },
    };
    Workload {
        name: name.to_owned(),
        namespace: "default".to_owned(),
        shape,
        at,
        every: 0,
        repeat: 1,
        runtime: None,
        startup: None,
        checkpoint: checkpoint(&pod, Micros::from(size) * 4 * MILLISECOND),
        pod_group: gang.then_some(GroupSpec { spec, after: 0 }),
        template: Arc::new(pod),
    }
}

fn budget(draw: &mut Draw, app: &str) -> Budget {
    let amount = if draw.chance(70) { Amount::Count(draw.pick(0, 4)) } else { Amount::Percent(50) };
    let least = draw.chance(40);
    Budget {
        namespace: "default".to_owned(),
        name: format!("budget-{app}"),
        match_labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        min_available: least.then_some(amount),
        max_unavailable: (!least).then_some(amount),
        always_allow_unhealthy: false,
    }
}
