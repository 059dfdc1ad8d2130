//! `ScheduleAnyway`: nodes whose domains have few pods are better.

use super::domains::Spread;
use super::{PodTopologySpread, spread, spread_mut};
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::framework::{
    ClassKey, ClassScore, MAX_SCORE, Normalize, PreScoreResult, Score, State, Survey, UNRANKED,
};
use crate::model::PodShape;

impl Score for PodTopologySpread {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        if let Some(error) = Self::error(shape, false, "calculating preScoreState") {
            return PreScoreResult::Fail(error);
        }
        let constraints = self.constraints(shape, false);
        if constraints.is_empty() {
            return PreScoreResult::Skip;
        }
        // Nodes without a zone still take part in spreading over hosts, if these
        // are the system's defaults.
        let strict = shape.related.has_spread || !self.system;
        let spread = Spread::new(constraints, strict, true, shape, cluster);
        PreScoreResult::Go(Some(Box::new(spread)))
    }

    fn normalize(&self) -> Normalize {
        Normalize::ByExtremes(|raw, min, max| match (raw, max) {
            (UNRANKED, _) => 0,
            (_, ..=0) => MAX_SCORE,
            _ => MAX_SCORE * (max + min - raw) / max,
        })
    }

    fn by_class(&self) -> Option<&dyn ClassScore> {
        Some(self)
    }
}

impl ClassScore for PodTopologySpread {
    fn tell(&self, state: &State, node: NodeView<'_>, key: &mut ClassKey) {
        if let Some(spread) = spread(state) {
            spread.tell(node, key);
        }
    }

    /// The weight of each constraint: the logarithm of its number of domains among
    /// the feasible nodes, so that a few zones are not drowned by many hosts.
    fn survey(&self, state: &State, feasible: &mut dyn Iterator<Item = (&[i64], u32)>) -> Survey {
        let Some(spread) = spread(state) else {
            return Survey::new();
        };
        let sizes = spread.tracked.iter().map(|t| vec![false; t.domain_count()]);
        let mut seen: Vec<Vec<bool>> = sizes.collect();
        let mut ranked = 0_u32;
        for (key, nodes) in feasible.filter(|(key, _)| !ignored(key)) {
            ranked += nodes;
            for (seen, &number) in seen.iter_mut().zip(key) {
                let domain = if number < 0 { -2 - number } else { number };
                if let Some(domain) = usize::try_from(domain).ok().and_then(|d| seen.get_mut(d)) {
                    *domain = true;
                }
            }
        }
        let sizes = spread.tracked.iter().zip(&seen).map(|(tracked, seen)| {
            if tracked.is_by_count() {
                ranked as usize
            } else {
                seen.iter().filter(|s| **s).count()
            }
        });
        sizes.map(|size| ((size + 2) as f64).ln()).collect()
    }

    fn rate(&self, state: &State, survey: &Survey, key: &[i64]) -> i64 {
        let Some(spread) = spread(state).filter(|_| !ignored(key)) else {
            return UNRANKED;
        };
        let mut score = 0.0;
        for ((tracked, &number), weight) in spread.tracked.iter().zip(key).zip(survey) {
            if number >= 0 {
                let skew = f64::from(tracked.constraint.max_skew - 1);
                score += tracked.pods(number) as f64 * weight + skew;
            }
        }
        f64::round(score) as i64
    }

    fn follow(
        &self,
        state: &mut State,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        spread_mut(state).is_none_or(|s| s.follow(shape, cluster, node, also))
    }
}

/// Whether a node is left out for want of a key.
fn ignored(key: &[i64]) -> bool {
    key.contains(&-1)
}
