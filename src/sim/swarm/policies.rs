//! The scheduling policies that a seed draws.
//!
//! Owns when they come, change and go. Draws by chances of its own, after all else: worlds
//! without policies stay what they were. Policies weigh nodes that fit: whatever they say,
//! everything that must hold still does.

use muster_api::muster::{
    PlacementPolicy, PlacementStrategy, SchedulingPolicy, SchedulingPolicySpec, ScoreWeight,
};

use super::draw::Draw;
use crate::scenario::{Action, ClusterEvent};
use crate::time::{Micros, SECOND};

/// Worlds with policies, in a hundred.
pub(super) const WORLDS: i64 = 25;

const NAMES: [&str; 3] = ["one", "two", "three"];
/// One of them scores in no profile.
const PLUGINS: [&str; 4] = ["NodeResourcesFit", "TaintToleration", "ImageLocality", "Nobody"];

pub(super) fn draw(draw: &mut Draw, span: Micros, events: &mut Vec<ClusterEvent>) {
    for _ in 0..draw.pick(1, 8) {
        let name = draw.one(&NAMES);
        let action = if draw.chance(20) {
            Action::DeletePolicy(name.to_owned())
        } else {
            let mut policy = SchedulingPolicy { spec: spec(draw), ..<_>::default() };
            name.clone_into(&mut policy.metadata.name);
            Action::Policy(Box::new(policy))
        };
        events.push(ClusterEvent { at: draw.time(0, span + SECOND), action });
    }
}

fn spec(draw: &mut Draw) -> SchedulingPolicySpec {
    let mut spec = SchedulingPolicySpec {
        priority: i32::try_from(draw.pick(0, 2)).unwrap_or(0),
        ..SchedulingPolicySpec::default()
    };
    if draw.chance(60) {
        let plugin = draw.one(&PLUGINS).to_owned();
        spec.score_weights = vec![ScoreWeight { plugin, weight: draw.one(&[0, 1, 100]) }];
    }
    if draw.chance(70) {
        let strategy = draw.one(PlacementStrategy::ALL);
        let by_load = strategy == PlacementStrategy::PackAtLowLoad;
        spec.placement = Some(PlacementPolicy {
            strategy,
            pack_below_percent: by_load.then_some(40),
            spread_above_percent: by_load.then_some(60),
            load_resource: (by_load && draw.chance(50)).then(|| "cpu".to_owned()),
        });
    }
    spec
}
