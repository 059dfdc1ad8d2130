//! What a world is about.
//!
//! Some situations need several rare things at a time. More than half of the worlds are
//! about one of them, sometimes about two: what leads to it happens often there. Draws by
//! chances of its own; a world that is about nothing is drawn as if there were no focus.

use std::sync::Arc;

use muster_api::k8s::Quantity;

use super::draw::Draw;
use crate::scenario::{NodeGroup, Shape, Workload};

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

    /// The first workloads are small and stay, those after them are large.
    pub(super) fn crowd(self, draw: &mut Draw, workloads: &mut [Workload]) {
        if !self.room {
            return;
        }
        let small = workloads.len().div_ceil(2);
        for (index, workload) in workloads.iter_mut().enumerate() {
            let spec = &mut Arc::make_mut(&mut workload.template).spec;
            spec.node_selector.clear();
            let millis = if index < small { draw.pick(1, 3) * 250 } else { draw.pick(2, 6) * 500 };
            let requests = &mut spec.containers[0].resources.requests;
            requests.clear();
            requests.insert("cpu".to_owned(), Quantity::from_millis(millis));
            if index < small
                && let Shape::Pods { replicas } = &mut workload.shape
            {
                *replicas = draw.small(2, 8);
                (workload.at, workload.runtime) = (0, None);
            }
        }
    }
}
