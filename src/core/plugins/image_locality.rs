//! ImageLocality: prefers nodes that already have the pod's images.

use std::hash::Hasher;

use super::names;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{MAX_SCORE, Plugin, PreScoreResult, Registration, Score, State};
use crate::model::PodShape;

const MIB: i64 = 1024 * 1024;
const MIN: i64 = 23 * MIB;
const MAX_PER_IMAGE: i64 = 1000 * MIB;

/// Rates nodes by image bytes they need not pull.
pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        names::IMAGE_LOCALITY
    }

    fn events(&self) -> Vec<Registration> {
        Vec::new()
    }

    /// Scores depend on how many nodes have each image, and of how many.
    fn stamp(&self, shape: &PodShape, cluster: &Cluster) -> u64 {
        let mut hash = rustc_hash::FxHasher::default();
        let mut any = false;
        for image in &shape.images {
            let nodes = cluster.syms.get(image).map_or(0, |i| cluster.index.image_nodes(i));
            any |= nodes > 0;
            hash.write_u32(nodes);
        }
        if !any {
            return 0;
        }
        hash.write_usize(cluster.node_count());
        hash.finish() | 1
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl Score for ImageLocality {
    fn pre_score(&self, _: &PodShape, _: &Cluster) -> PreScoreResult {
        PreScoreResult::Go(None)
    }

    fn score(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> i64 {
        let cluster = node.cluster();
        let images = &node.info().images;
        let mut sum = 0;
        if !images.is_empty() {
            for image in &shape.images {
                let Some(image) = cluster.syms.get(image) else {
                    continue;
                };
                let Some(size) = node.info().image(image) else {
                    continue;
                };
                let nodes = f64::from(cluster.index.image_nodes(image));
                let spread = (size as f64 * (nodes / cluster.node_count() as f64)) as i64;
                sum = i64::saturating_add(sum, spread);
            }
        }
        rate(sum, shape.images.len() as i64)
    }
}

fn rate(sum: i64, images: i64) -> i64 {
    let max = MAX_PER_IMAGE * images;
    // Not `clamp`: a pod without images has max < min, and upstream's order of
    // tests then yields the minimum.
    let sum = if sum < MIN {
        MIN
    } else if sum > max {
        max
    } else {
        sum
    };
    MAX_SCORE * (sum - MIN) / (max - MIN)
}
