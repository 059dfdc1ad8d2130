//! Wishes: the incoming pod's about existing pods, and theirs about it.

use super::sides::{Side, Source};
use super::{InterPodAffinity, counted};
use crate::cluster::{Cluster, NodeId, NodeView};
use crate::framework::{
    ClassKey, ClassScore, MAX_SCORE, Normalize, PreScoreResult, Score, State, Survey,
};
use crate::model::{PodShape, Sym, TermKind};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// Weighted sums per topology value.
struct Wishes(Side);

fn wishes(state: &State) -> Option<&Side> {
    state.as_ref()?.downcast_ref::<Wishes>().map(|w| &w.0)
}

/// Whether nodes are told apart by the sum instead of the value: there is a value
/// per node.
fn by_sum(key: &str) -> bool {
    key == HOSTNAME
}

impl Score for InterPodAffinity {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        let terms = &shape.related.terms;
        let has_wishes = terms.wishes().next().is_some();
        if self.args.ignore_preferred_terms_of_existing_pods && !has_wishes {
            return PreScoreResult::Skip;
        }
        let mut side = Side::default();
        for (weight, term) in terms.wishes() {
            side.add(&term.topology_key, weight, Source::Matching(counted(cluster, term)));
        }
        let hard = self.args.hard_pod_affinity_weight;
        for &id in &shape.related.matched {
            let Some(term) = cluster.kin.term(id) else {
                continue;
            };
            let weight = match term.kind {
                TermKind::Needs if hard > 0 => hard,
                TermKind::Likes(weight) => weight,
                TermKind::Dislikes(weight) => -weight,
                TermKind::Needs | TermKind::Repels => continue,
            };
            side.add(&term.topology_key, weight.into(), Source::Having(id));
        }
        if side.keys.is_empty() {
            return PreScoreResult::Skip;
        }
        PreScoreResult::Go(Some(Box::new(Wishes(side.fill(cluster)))))
    }

    fn normalize(&self) -> Normalize {
        Normalize::ByExtremes(|raw, min, max| {
            let range = max.saturating_sub(min);
            if range <= 0 {
                return 0;
            }
            (MAX_SCORE as f64 * ((raw - min) as f64 / range as f64)) as i64
        })
    }

    fn by_class(&self) -> Option<&dyn ClassScore> {
        Some(self)
    }
}

impl ClassScore for InterPodAffinity {
    fn tell(&self, state: &State, node: NodeView<'_>, numbers: &mut ClassKey) {
        let Some(side) = wishes(state) else {
            return;
        };
        for key in &side.keys {
            let value = key.value(node);
            numbers.push(match value {
                Some(value) if by_sum(&key.key) => key.weight(value),
                Some(value) => value.number().into(),
                None if by_sum(&key.key) => 0,
                None => -1,
            });
        }
    }

    fn rate(&self, state: &State, _: &Survey, numbers: &[i64]) -> i64 {
        let Some(side) = wishes(state) else {
            return 0;
        };
        let weights = side.keys.iter().zip(numbers).map(|(key, &number)| {
            if by_sum(&key.key) {
                return number;
            }
            u32::try_from(number).map_or(0, |value| key.weight(Sym::of_number(value)))
        });
        weights.sum()
    }

    fn is_silent(&self, state: &State) -> bool {
        wishes(state).is_none_or(Side::is_empty)
    }

    fn follow(
        &self,
        state: &mut State,
        _: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        let Some(Wishes(side)) = state.as_mut().and_then(|s| s.downcast_mut()) else {
            return true;
        };
        let differs = |key: &super::sides::TopologyKey, (_, a), (_, b)| by_sum(&key.key) && a != b;
        side.follow(cluster, node, differs, also);
        side.is_kept()
    }
}
