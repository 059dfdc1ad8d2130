//! NodeResourcesFit and NodeResourcesBalancedAllocation.

mod balanced;
mod fit;
mod strategy;

pub use balanced::{BalancedAllocation, BalancedAllocationArgs};
pub use fit::{FitArgs, NodeResourcesFit};
pub(super) use strategy::interpolate;
pub use strategy::{ResourceSpec, ScoringStrategy, ShapePoint};

use crate::cluster::NodeView;
use crate::model::{ResId, Resources};

/// What is asked of one resource.
fn amount(resources: &Resources, id: ResId) -> i64 {
    resources.iter().find(|(r, _)| *r == id).map_or(0, |(_, amount)| *amount)
}

/// One configured resource on one node: (requested with the pod, requested
/// without it, allocatable), or `None` if it does not count.
fn load(node: NodeView<'_>, id: ResId, asked: i64, nonzero: bool) -> Option<(i64, i64, i64)> {
    if asked == 0 && id.is_scalar() {
        return None;
    }
    let allocatable = node.allocatable(id);
    if allocatable == 0 {
        return None;
    }
    let used = match id {
        ResId::CPU if nonzero => node.nonzero_cpu(),
        ResId::MEMORY if nonzero => node.nonzero_memory(),
        other => node.requested(other),
    };
    // Requests of hostile pods may come near 2^63.
    Some((used.saturating_add(asked), used, allocatable))
}
