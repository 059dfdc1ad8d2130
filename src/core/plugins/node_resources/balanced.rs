//! NodeResourcesBalancedAllocation: prefers nodes whose resources the pod brings
//! into balance.

use smallvec::SmallVec;

use super::{ResourceSpec, amount, load};
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    MAX_SCORE, Plugin, PreScoreResult, Registration, RegistryError, Score, State,
};
use crate::model::{PodShape, ResId};
use crate::plugins::names;

/// Arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancedAllocationArgs {
    /// Resources to balance; empty is cpu and memory. Weights must be 1.
    pub resources: Vec<ResourceSpec>,
}

/// Scores the change in balance.
pub struct BalancedAllocation {
    resources: Vec<String>,
}

impl BalancedAllocation {
    /// Checks the arguments.
    pub fn new(args: &BalancedAllocationArgs) -> Result<Self, RegistryError> {
        let fail = |i: usize, field: &str, problem: String| {
            Err(RegistryError::Args {
                plugin: names::NODE_RESOURCES_BALANCED_ALLOCATION,
                field: format!("resources[{i}].{field}"),
                problem,
            })
        };
        let mut resources: Vec<String> = Vec::new();
        for (i, spec) in args.resources.iter().enumerate() {
            if spec.weight != 1 {
                let problem = format!(
                    "Invalid value: {}: resource weight of {} not in valid range, should be 1",
                    spec.weight, spec.name
                );
                return fail(i, "weight", problem);
            }
            if resources.contains(&spec.name) {
                return fail(i, "name", format!("Duplicate value: {:?}", spec.name));
            }
            resources.push(spec.name.clone());
        }
        if resources.is_empty() {
            resources = vec!["cpu".into(), "memory".into()];
        }
        Ok(Self { resources })
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        names::NODE_RESOURCES_BALANCED_ALLOCATION
    }

    fn events(&self) -> Vec<Registration> {
        Vec::new()
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

struct Asked(Vec<(ResId, i64)>);

impl Score for BalancedAllocation {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        let ids = self.resources.iter().filter_map(|name| cluster.resources.get(name));
        let list: Vec<_> = ids.map(|id| (id, amount(&shape.requests.charged, id))).collect();
        if list.iter().all(|(_, asked)| *asked == 0) {
            return PreScoreResult::Skip;
        }
        PreScoreResult::Go(Some(Box::new(Asked(list))))
    }

    fn score(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> i64 {
        let Some(Asked(list)) = state.as_ref().and_then(|s| s.downcast_ref()) else {
            return 0;
        };
        let loads: SmallVec<[(i64, i64, i64); 4]> =
            list.iter().filter_map(|&(id, asked)| load(node, id, asked, false)).collect();
        let with = balance(loads.iter().map(|&(with, _, all)| (with, all)));
        let without = balance(loads.iter().map(|&(_, without, all)| (without, all)));
        MAX_SCORE / 2 + (MAX_SCORE / 2 + with - without) / 2
    }
}

/// 100 minus a hundredfold of the standard deviation of utilisations.
fn balance(loads: impl Iterator<Item = (i64, i64)>) -> i64 {
    let fractions: SmallVec<[f64; 4]> =
        loads.map(|(used, all)| (used as f64 / all as f64).clamp(0.0, 1.0)).collect();
    let deviation = match fractions.as_slice() {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        many => {
            let count = many.len() as f64;
            let mean = many.iter().sum::<f64>() / count;
            (many.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / count).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_SCORE as f64) as i64
}
