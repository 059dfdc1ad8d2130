//! How full storage gets: a point function over what is asked for and there.

use std::collections::BTreeMap;

use super::find::{Found, capacity, find, requested};
use super::{Claims, VolumeBinding, check_claims, sort_claims};
use crate::cluster::{Cluster, NodeView};
use crate::framework::{PreScoreResult, Score, State};
use crate::model::PodShape;
use crate::plugins::ShapePoint;
use crate::plugins::node_resources::interpolate;

/// What is wrong with a shape: field and problem.
pub(super) fn check_shape(shape: &[ShapePoint]) -> Result<(), (String, String)> {
    for (i, point) in shape.iter().enumerate() {
        let field = |name: &str| format!("shape[{i}].{name}");
        if !(0..=100).contains(&point.utilization) {
            let problem =
                format!("Invalid value: {}: not in valid range [0-100]", point.utilization);
            return Err((field("utilization"), problem));
        }
        if i > 0 && shape[i - 1].utilization >= point.utilization {
            let problem = format!(
                "Invalid value: {}: utilization values must be sorted in increasing order",
                point.utilization
            );
            return Err((field("utilization"), problem));
        }
        if !(0..=10).contains(&point.score) {
            let problem = format!("Invalid value: {}: not in valid range [0-10]", point.score);
            return Err((field("score"), problem));
        }
    }
    Ok(())
}

/// Asked for and there, per class.
fn by_class(found: &Found) -> BTreeMap<&str, (i64, i64)> {
    let mut classes: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for binding in &found.bindings {
        let volume = &binding.volume.object;
        let sums = classes.entry(&volume.spec.storage_class_name).or_default();
        sums.0 = sums.0.saturating_add(requested(&binding.claim).value());
        sums.1 = sums.1.saturating_add(capacity(volume).value());
    }
    if !found.bindings.is_empty() {
        return classes;
    }
    for (claim, room) in &found.provisions {
        let Some(room) = room.as_ref().and_then(|r| r.capacity) else {
            continue;
        };
        let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
        let sums = classes.entry(class).or_default();
        sums.0 = sums.0.saturating_add(requested(claim).value());
        // One pool serves all claims of a class: its room does not add up.
        sums.1 = room.value();
    }
    classes
}

impl VolumeBinding {
    fn rate(&self, found: &Found) -> i64 {
        let classes = by_class(found);
        let count = classes.len() as i64;
        if count == 0 {
            return 0;
        }
        let rate = |(asked, there): &(i64, i64)| {
            let full = *there == 0 || asked > there;
            let percent = if full { 100 } else { asked.wrapping_mul(100) / there };
            interpolate(&self.shape, percent)
        };
        let sum: i64 = classes.values().map(rate).sum();
        // Rounded to the nearest, half away from zero; scores are never negative.
        (2 * sum + count) / (2 * count)
    }
}

impl Score for VolumeBinding {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        let claims = shape.volumes.as_ref().and_then(|pod| {
            let usable = check_claims(pod, cluster).is_ok_and(|any| any);
            usable.then(|| sort_claims(pod, cluster).ok().flatten())?
        });
        // Pods without claims are rated too, as upstream: everywhere with 0.
        PreScoreResult::Go(claims.map(|claims| Box::new(claims) as _))
    }

    fn score(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> i64 {
        let claims = state.as_ref().and_then(|s| s.downcast_ref::<Claims>());
        let found = claims.filter(|c| !c.delayed.is_empty()).and_then(|c| find(c, node).ok());
        found.map_or(0, |found| self.rate(&found))
    }
}
