//! GpuLinks: pods go where they get GPUs that talk fast, and leave whole sets for others.
//!
//! A plugin of Muster's own, off by default. What a node is inside comes from its
//! [`NodeTopology`](crate::model::NodeTopology), which device is whose from
//! [`NodeView::devices`], how good a set is from [`gpu_links`](crate::gpu_links). The set that a pod would get is kept on the pod
//! from Reserve on, so that the next one sees those GPUs as taken, and goes to the API server with
//! the bind.
//!
//! Must never say that a device is bound: a kubelet gives what it chooses.

mod offer;

use std::sync::Arc;

use serde::Deserialize;

use super::names;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Args, MAX_SCORE, Placed, Plugin, PreScoreResult, Registration, RegistryError, Reserve, Score,
    State, Status,
};
use crate::model::{PodShape, Predicted};
use offer::{Asked, asked};

/// What breaking up a whole machine for one GPU costs, if the arguments do not say.
const DAMAGE_POINTS: i64 = 40;

/// Arguments, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Written {
    damage_points: i64,
}

impl Default for Written {
    fn default() -> Self {
        Self { damage_points: DAMAGE_POINTS }
    }
}

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLinks {
    damage_points: i64,
}

impl GpuLinks {
    /// Reads and checks the arguments.
    ///
    /// # Errors
    ///
    /// If they are wrong: the error names the field.
    pub fn new(args: &Args<'_>) -> Result<Self, RegistryError> {
        let Written { damage_points } = args.parse()?;
        if !(0..=MAX_SCORE).contains(&damage_points) {
            let rule = format!("not in valid range [0, {MAX_SCORE}]");
            return Err(args.invalid("args.damagePoints", damage_points, rule));
        }
        Ok(Self { damage_points })
    }

    /// The points of a node: those of the set that it would give, less what others lose by it.
    fn points(&self, offer: &offer::Offer) -> i64 {
        let damage = self.damage_points * i64::from(offer.damage);
        (i64::from(offer.points) - (damage + 500) / 1000).clamp(0, MAX_SCORE)
    }
}

impl Plugin for GpuLinks {
    fn name(&self) -> &'static str {
        names::GPU_LINKS
    }

    fn events(&self) -> Vec<Registration> {
        Vec::new() // it rejects nobody
    }

    fn stamp(&self, shape: &PodShape, cluster: &Cluster) -> u64 {
        let shares = shape.named.iter().map(|name| cluster.demand(name));
        shares.flatten().fold(0, |all: u64, share| all.rotate_left(5) ^ u64::from(share))
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }

    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }
}

impl Score for GpuLinks {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        match asked(shape, cluster) {
            Some(asked) => PreScoreResult::Go(Some(Box::new(asked))),
            None => PreScoreResult::Skip,
        }
    }

    /// At most 100, for the best set that the machine could ever give without breaking up another. 0
    /// where nothing is known.
    fn score(&self, state: &State, shape: &PodShape, node: NodeView<'_>) -> i64 {
        let asked: Option<&Asked> = state.as_ref().and_then(|state| state.downcast_ref());
        let offer = asked.and_then(|asked| offer::offer(asked, shape, node, None));
        offer.map_or(0, |offer| self.points(&offer))
    }

    fn note(&self, state: &State, shape: &PodShape, node: NodeView<'_>) -> Option<String> {
        let asked: &Asked = state.as_ref()?.downcast_ref()?;
        offer::offer(asked, shape, node, None).map(|offer| offer.words())
    }
}

impl Reserve for GpuLinks {
    fn reserve(&self, _: &Placed<'_>) -> Result<(), Status> {
        Ok(())
    }

    fn unreserve(&self, _: &Placed<'_>) {}

    fn devices(&self, placed: &Placed<'_>) -> Option<Arc<Predicted>> {
        let asked = asked(placed.shape, placed.node.cluster())?;
        let offer = offer::offer(&asked, placed.shape, placed.node, Some(placed.id))?;
        Some(Arc::new(offer.predicted()))
    }
}
