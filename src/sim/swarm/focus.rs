//! What a world is about.
//!
//! Some situations need several rare things at a time. More than half of the worlds are
//! about one of them, sometimes about two: what leads to it happens often there. Draws by
//! chances of its own; a world that is about nothing is drawn as if there were no focus.

use std::sync::Arc;

use muster_api::k8s::Quantity;

use super::draw::Draw;
use crate::scenario::{Fault, FaultPlan, NodeGroup, Shape, Workload};
use crate::time::SECOND;

/// Worlds that are about nothing in particular, in a hundred.
const NOTHING: i64 = 40;

/// What happens more often than elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Focus {
    /// Small pods fill few nodes, larger and more important ones follow; budgets.
    pub(super) room: bool,
    /// Gangs, whose members go at bad times.
    pub(super) gangs: bool,
    /// The configuration changes again and again.
    pub(super) reloads: bool,
}

impl Focus {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let mut focus = Self::default();
        if draw.chance(NOTHING) {
            return focus;
        }
        let more = if draw.chance(25) { 2 } else { 1 };
        for _ in 0..more {
            match draw.pick(0, 9) {
                0..=3 => focus.gangs = true,
                4..=6 => focus.room = true,
                _ => focus.reloads = true,
            }
        }
        focus
    }

    /// A cluster that is soon full.
    pub(super) fn tighten(self, draw: &mut Draw, nodes: &mut Vec<NodeGroup>) {
        if !self.room {
            return;
        }
        nodes.truncate(1);
        for group in nodes {
            group.count = group.count.min(2);
            group.taints.clear();
            group.unschedulable = false;
            let offers = [("cpu", draw.pick(4, 8) * 500), ("memory", 16_000 << 30)];
            for (name, millis) in offers {
                group.allocatable.insert(name.to_owned(), Quantity::from_millis(millis));
            }
        }
    }

    /// The first workloads are small, stay and come first; those after them are large.
    pub(super) fn crowd(self, draw: &mut Draw, workloads: &mut [Workload]) {
        if !self.room {
            return;
        }
        let small = workloads.len().div_ceil(2);
        for (index, workload) in workloads.iter_mut().enumerate() {
            let first = index < small;
            let spec = &mut Arc::make_mut(&mut workload.template).spec;
            spec.node_selector.clear();
            let millis = if first { draw.pick(1, 3) * 250 } else { draw.pick(3, 7) * 500 };
            let requests = &mut spec.containers[0].resources.requests;
            requests.clear();
            requests.insert("cpu".to_owned(), Quantity::from_millis(millis));
            if !first {
                workload.at = workload.at.max(draw.time(10 * SECOND, 40 * SECOND));
            } else if draw.chance(70) {
                workload.shape = Shape::Pods { replicas: draw.small(3, 8) };
                (workload.at, workload.runtime) = (0, None);
            }
        }
    }

    /// Some pods fit only while a profile does without its plugin for affinity.
    pub(super) fn strand(self, draw: &mut Draw, workloads: &mut [Workload]) {
        for workload in workloads.iter_mut().filter(|_| self.reloads && draw.chance(40)) {
            let spec = &mut Arc::make_mut(&mut workload.template).spec;
            spec.node_selector.insert("half".to_owned(), "nowhere".to_owned());
        }
    }

    /// Budgets are spent by others now and then, just when somebody asks.
    pub(super) fn spend(self, draw: &mut Draw, plan: &mut FaultPlan) {
        if self.room && plan.until > 0 && draw.chance(60) {
            let rate = u16::try_from(draw.pick(100, 400)).unwrap_or(100);
            plan.per_mille[Fault::BudgetSpent as usize] = rate;
        }
    }
}
