//! NodeResourcesFit: enough of everything, and how full the node gets.

use std::sync::Arc;

use super::{ResourceSpec, ScoringStrategy, amount, load};
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, Code, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult, PreScoreResult,
    Registration, RegistryError, Resource, Score, State, Status, Subject,
};
use crate::model::{PodShape, ResId, is_extended_resource, label_key_errors};
use crate::plugins::names;
use crate::policy::Preference;

/// Arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitArgs {
    /// Extended resources not to check.
    pub ignored_resources: Vec<String>,
    /// Prefixes of extended resources not to check.
    pub ignored_resource_groups: Vec<String>,
    /// Strategy.
    pub strategy: ScoringStrategy,
    /// Resources the score looks at; empty is cpu and memory.
    pub resources: Vec<ResourceSpec>,
}

/// Checks and scores resources.
pub struct NodeResourcesFit {
    args: FitArgs,
    resources: Vec<(String, i64)>,
}

impl NodeResourcesFit {
    /// Checks the arguments.
    pub fn new(args: &FitArgs) -> Result<Self, RegistryError> {
        check_names("ignoredResources", &args.ignored_resources, true)?;
        check_names("ignoredResourceGroups", &args.ignored_resource_groups, false)?;
        args.strategy.validate()?;
        for (i, spec) in args.resources.iter().enumerate() {
            if !(0..=100).contains(&spec.weight) {
                return Err(RegistryError::Args {
                    plugin: names::NODE_RESOURCES_FIT,
                    field: format!("scoringStrategy.resources[{i}].weight"),
                    problem: format!(
                        "Invalid value: {}: resource weight of {} not in valid range (0, 100]",
                        spec.weight, spec.name
                    ),
                });
            }
        }
        let resources = if args.resources.is_empty() {
            vec![("cpu".to_owned(), 1), ("memory".to_owned(), 1)]
        } else {
            args.resources.iter().map(|r| (r.name.clone(), r.weight.max(1))).collect()
        };
        Ok(Self { args: args.clone(), resources })
    }

    fn ignored(&self, name: &str) -> bool {
        let group = name.split('/').next().unwrap_or(name);
        is_extended_resource(name)
            && (self.args.ignored_resources.iter().any(|r| r == name)
                || self.args.ignored_resource_groups.iter().any(|g| g == group))
    }
}

fn check_names(field: &str, list: &[String], prefixed: bool) -> Result<(), RegistryError> {
    for (i, name) in list.iter().enumerate() {
        let mut problems = label_key_errors(name);
        if !prefixed && name.contains('/') {
            problems.insert(0, "resource group name can't contain '/'".to_owned());
        }
        if let Some(problem) = problems.first() {
            return Err(RegistryError::Args {
                plugin: names::NODE_RESOURCES_FIT,
                field: format!("{field}[{i}]"),
                problem: format!("Invalid value: {name:?}: {problem}"),
            });
        }
    }
    Ok(())
}

/// What Filter checks, in upstream's order.
struct Wanted(Vec<(ResId, i64, Arc<str>)>);

fn wanted(state: &State) -> &[(ResId, i64, Arc<str>)] {
    match state.as_ref().and_then(|s| s.downcast_ref()) {
        Some(Wanted(list)) => list,
        None => &[],
    }
}

const TOO_MANY_PODS: &str = "Too many pods";

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        names::NODE_RESOURCES_FIT
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration {
                resource: Resource::AssignedPod,
                actions: Actions::DELETE | Actions::UPDATE_POD_SCALE_DOWN,
            },
            Registration {
                resource: Resource::Node,
                actions: Actions::ADD | Actions::UPDATE_NODE_ALLOCATABLE,
            },
            Registration { resource: Resource::TargetPod, actions: Actions::UPDATE_POD_SCALE_DOWN },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let asks = &cx.shape.requests;
        let (node, before) = match &cx.event.subject {
            Subject::Node { node, before } => (node, before),
            // Less of what the pod does not ask for is no room for it.
            Subject::Resized { before, after } => {
                let (was, is) = (&before.requests.charged, &after.requests.charged);
                let freed =
                    |&(id, asked): &(ResId, i64)| asked > 0 && amount(was, id) > amount(is, id);
                return if asks.charged.iter().any(freed) { Hint::Queue } else { Hint::Skip };
            }
            _ => return Hint::Queue,
        };
        let view = cx.cluster.view(*node);
        let fits_empty = view.max_pods() >= 1
            && asks.fit.iter().all(|&(id, asked)| {
                asked <= view.allocatable(id) || self.ignored(cx.cluster.resources.name(id))
            });
        if !fits_empty {
            return Hint::Skip;
        }
        let Some(before) = before else {
            return Hint::Queue;
        };
        let was = |id| before.allocatable.iter().find(|(r, _)| *r == id).map_or(0, |(_, a)| *a);
        let grew = view.max_pods() > before.max_pods
            || asks.fit.iter().any(|&(id, asked)| asked > 0 && view.allocatable(id) > was(id));
        if grew { Hint::Queue } else { Hint::Skip }
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreFilter for NodeResourcesFit {
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult {
        let mut list: Vec<(ResId, i64, Arc<str>)> = shape
            .requests
            .fit
            .iter()
            .filter(|(_, asked)| *asked > 0)
            .map(|&(id, asked)| (id, asked, cluster.resources.name(id)))
            .filter(|(_, _, name)| !self.ignored(name))
            .map(|(id, asked, name)| (id, asked, format!("Insufficient {name}").into()))
            .collect();
        // Upstream walks scalars in map order; by name it is the same every time.
        list.sort_by(|a, b| (a.0.is_scalar(), &a.2).cmp(&(b.0.is_scalar(), &b.2)));
        list.sort_by_key(|(id, ..)| if id.is_scalar() { u16::MAX } else { id.0 });
        PreFilterResult::Go { state: Some(Box::new(Wanted(list))), nodes: None }
    }
}

impl Filter for NodeResourcesFit {
    fn filter(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let list = wanted(state);
        let room = node.pods() < node.max_pods();
        let fits = |&(id, asked, _): &(ResId, i64, Arc<str>)| {
            asked <= node.allocatable(id).saturating_sub(node.requested(id))
        };
        if room && list.iter().all(fits) {
            return Ok(());
        }
        let mut status = Status { code: Code::Unschedulable, reasons: Vec::new() };
        if !room {
            status.reasons.push(TOO_MANY_PODS.into());
        }
        for short in list.iter().filter(|w| !fits(w)) {
            if short.1 > node.allocatable(short.0) {
                status.code = Code::UnschedulableAndUnresolvable;
            }
            status.reasons.push(Arc::clone(&short.2));
        }
        Err(status)
    }
}

/// Resources the score looks at: id, weight, what the pod adds. And a policy's strategy.
struct Scored(Vec<(ResId, i64, i64)>, Option<ScoringStrategy>);

impl NodeResourcesFit {
    /// Where no resources are named, policies look at what the pod asks for beside CPU and
    /// memory too: what packs GPUs must count them.
    fn extended(&self, shape: &PodShape, cluster: &Cluster) -> Vec<(ResId, i64, i64)> {
        let asked = shape.requests.score.iter().filter(|_| self.args.resources.is_empty());
        let extended = asked.filter(|(id, amount)| {
            *amount > 0 && id.is_scalar() && is_extended_resource(cluster.resources.name(*id))
        });
        extended.map(|&(id, amount)| (id, 1, amount)).collect()
    }
}

impl Score for NodeResourcesFit {
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult {
        // A resource no node and no pod ever named has no column: it counts nowhere.
        let list = self.resources.iter().filter_map(|(name, weight)| {
            let id = cluster.resources.get(name)?;
            Some((id, *weight, amount(&shape.requests.score, id)))
        });
        let mut list: Vec<_> = list.collect();
        let strategy = match shape.scoring.as_ref().and_then(|s| s.prefers) {
            None => return PreScoreResult::Go(Some(Box::new(Scored(list, None)))),
            Some(Preference::Neither) => return PreScoreResult::Skip,
            Some(Preference::Full) => ScoringStrategy::MostAllocated,
            Some(Preference::Empty) => ScoringStrategy::LeastAllocated,
        };
        list.extend(self.extended(shape, cluster));
        PreScoreResult::Go(Some(Box::new(Scored(list, Some(strategy)))))
    }

    fn score(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> i64 {
        let Some(Scored(list, strategy)) = state.as_ref().and_then(|s| s.downcast_ref()) else {
            return 0;
        };
        strategy.as_ref().unwrap_or(&self.args.strategy).score(list.iter().filter_map(
            |&(id, weight, asked)| {
                load(node, id, asked, true)
                    .map(|(with, _, allocatable)| (with, allocatable, weight))
            },
        ))
    }
}
