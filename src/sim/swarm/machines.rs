//! GPUs that have ids, and kubelets that refuse pods for where free ones are.
//!
//! Owns which nodes are such machines in the worlds that a seed draws, who asks for their GPUs, and
//! how the schedulers go by them. Draws by chances of its own. Where kubelets have a policy the
//! schedulers go by it: pods that are refused and made again would never come to rest.

use std::sync::Arc;

use muster_api::k8s::Quantity;

use super::draw::Draw;
use crate::scenario::{Fault, FaultPlan, GPU, Machine, NodeGroup, SchedulerSpec, Workload};

/// Worlds with such machines, in a hundred.
pub(super) const WORLDS: i64 = 12;

pub(super) fn draw(
    draw: &mut Draw,
    nodes: &mut [NodeGroup],
    workloads: &mut [Workload],
    scheduler: &mut SchedulerSpec,
    faults: &mut FaultPlan,
) {
    let strict = draw.chance(60);
    for (at, group) in nodes.iter_mut().enumerate() {
        if at > 0 && draw.chance(30) {
            continue;
        }
        let machine = if strict { draw.one(&Machine::ALL) } else { Machine::Hgx };
        group.machine = Some(machine);
        let gpus = i64::try_from(machine.gpus()).unwrap_or(8);
        group.allocatable.insert(GPU.to_owned(), Quantity::from_units(gpus));
        let cpu = Quantity::from_units(draw.pick(4, 16));
        group.allocatable.insert("cpu".to_owned(), cpu);
    }
    for workload in workloads.iter_mut() {
        if draw.chance(80) {
            let spec = &mut Arc::make_mut(&mut workload.template).spec;
            let gpus = Quantity::from_units(draw.one(&[1, 1, 2, 2, 4, 8]));
            if let Some(container) = spec.containers.first_mut() {
                container.resources.requests.insert(GPU.to_owned(), gpus);
            }
        }
    }
    if draw.chance(85) {
        scheduler.with.push(("GpuLinks".to_owned(), draw.pick(1, 10)));
    }
    if strict || draw.chance(50) {
        scheduler.with.push(("NodeNumaFit".to_owned(), draw.pick(1, 3)));
    }
    // A device plugin that fails for a while.
    if faults.until > 0 && draw.chance(50) {
        let rate = u16::try_from(draw.pick(200, 700)).unwrap_or(200);
        faults.per_mille[Fault::KubeletRefuses as usize] = rate;
    }
}
