//! DefaultPreemption: evicts pods of lower priority for a pod that fits nowhere.

use super::names;
use crate::framework::{
    Actions, Plugin, PostFilter, PostFilterResult, Registration, RegistryError, Resource, Room,
};

/// Arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultPreemptionArgs {
    /// Which part of the nodes is tried at least, in percent.
    pub min_candidate_nodes_percentage: i32,
    /// How many nodes are tried at least.
    pub min_candidate_nodes_absolute: i32,
    /// Whether a plan may be carried out although a budget forbids it, if there is
    /// none that keeps all budgets and ranks before it. Its victims are deleted.
    pub allow_budget_violations: bool,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self {
            min_candidate_nodes_percentage: 10,
            min_candidate_nodes_absolute: 100,
            allow_budget_violations: false,
        }
    }
}

impl DefaultPreemptionArgs {
    /// How many candidates are enough among so many nodes, where each has to be tried
    /// anew for every pod.
    pub(crate) fn wanted(&self, nodes: usize) -> usize {
        let percentage = usize::try_from(self.min_candidate_nodes_percentage).unwrap_or(0);
        let absolute = usize::try_from(self.min_candidate_nodes_absolute).unwrap_or(0);
        (nodes * percentage / 100).max(absolute).min(nodes)
    }
}

/// Evicts pods of lower priority.
pub struct DefaultPreemption {
    args: DefaultPreemptionArgs,
}

impl DefaultPreemption {
    /// Checks the arguments.
    pub fn new(args: &DefaultPreemptionArgs) -> Result<Self, RegistryError> {
        let (percentage, absolute) =
            (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
        let wrong = |field: &str, problem: String| {
            let plugin = names::DEFAULT_PREEMPTION;
            Err(RegistryError::Args { plugin, field: field.to_owned(), problem })
        };
        if !(0..=100).contains(&percentage) {
            let problem = format!("Invalid value: {percentage}: not in valid range [0, 100]");
            return wrong("minCandidateNodesPercentage", problem);
        }
        if absolute < 0 {
            let problem = format!("Invalid value: {absolute}: not in valid range [0, inf)");
            return wrong("minCandidateNodesAbsolute", problem);
        }
        if percentage == 0 && absolute == 0 {
            let problem = "Invalid value: 0: cannot be zero at the same time as \
                           minCandidateNodesAbsolute";
            return wrong("minCandidateNodesPercentage", problem.to_owned());
        }
        Ok(Self { args: args.clone() })
    }
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        names::DEFAULT_PREEMPTION
    }

    /// It rejects a pod only where a budget stands in the way: a budget that changed
    /// may let the pod in. What victims leave behind is other plugins' news.
    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::PodDisruptionBudget, actions: Actions::ALL }]
    }

    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        Some(self)
    }
}

impl PostFilter for DefaultPreemption {
    fn may_force(&self) -> bool {
        self.args.allow_budget_violations
    }

    fn post_filter(&self, room: &mut dyn Room) -> PostFilterResult {
        room.preempt(&self.args)
    }
}
