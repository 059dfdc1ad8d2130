//! NodeAffinity: `nodeSelector`, required and preferred node affinity.

use muster_api::k8s;

use super::names;
use crate::cluster::{Cluster, NodeSet, NodeView};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Normalize, Plugin, PreFilter, PreFilterResult, PreScoreResult,
    Registration, RegistryError, Resource, Score, State, Status, Subject,
};
use crate::model::{NodeMatcher, NodeTerm, NodeTerms, PodShape, aggregate, is_empty_term};

const REASON: &str = "node(s) didn't match Pod's node affinity/selector";
const ENFORCED: &str = "node(s) didn't match scheduler-enforced node affinity";
const CONFLICT: &str = "pod affinity terms conflict";

/// Arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAffinityArgs {
    /// Affinity every pod of the profile has in addition to its own.
    pub added_affinity: Option<k8s::NodeAffinity>,
}

/// Honours node affinity.
pub struct NodeAffinity {
    added_required: Option<NodeTerms>,
    added_preferred: Vec<(i32, NodeTerm)>,
    /// Whether there are added preferred terms, weightless ones too.
    has_added_preferred: bool,
}

impl NodeAffinity {
    /// Checks the arguments.
    pub fn new(args: &NodeAffinityArgs) -> Result<Self, RegistryError> {
        let added = args.added_affinity.as_ref();
        let required = added
            .and_then(|a| a.required.as_ref())
            .map(|r| NodeTerms::compile(&r.node_selector_terms));
        let preferred: Vec<_> = added
            .and_then(|a| a.preferred.as_deref())
            .unwrap_or_default()
            .iter()
            .enumerate()
            .filter(|(_, p)| p.weight != 0 && !is_empty_term(&p.preference))
            .map(|(i, p)| (p.weight, NodeTerm::compile(&p.preference, &format!("[{i}]"))))
            .collect();
        for (field, errors) in [
            (
                "requiredDuringSchedulingIgnoredDuringExecution",
                required.iter().flat_map(NodeTerms::errors).collect::<Vec<_>>(),
            ),
            (
                "preferredDuringSchedulingIgnoredDuringExecution",
                preferred.iter().flat_map(|(_, t)| t.errors()).collect(),
            ),
        ] {
            if !errors.is_empty() {
                return Err(RegistryError::Args {
                    plugin: names::NODE_AFFINITY,
                    field: format!("addedAffinity.{field}"),
                    problem: aggregate(errors),
                });
            }
        }
        let has_added_preferred =
            added.and_then(|a| a.preferred.as_deref()).is_some_and(|p| !p.is_empty());
        Ok(Self { added_required: required, added_preferred: preferred, has_added_preferred })
    }
}

pub(super) fn matches(shape: &PodShape, node: &impl NodeMatcher) -> bool {
    shape.node_selector.iter().all(|(k, v)| node.label(k) == Some(v.as_str()))
        && shape.required_affinity.as_ref().is_none_or(|terms| terms.matches(node))
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        names::NODE_AFFINITY
    }

    fn events(&self) -> Vec<Registration> {
        vec![Registration {
            resource: Resource::Node,
            actions: Actions::ADD | Actions::UPDATE_NODE_LABEL,
        }]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let Subject::Node { node, before } = &cx.event.subject else {
            return Hint::Queue;
        };
        let now = cx.cluster.view(*node).labels();
        if self.added_required.as_ref().is_some_and(|t| !t.matches(&now))
            || !matches(cx.shape, &now)
        {
            return Hint::Skip;
        }
        let Some(before) = before else {
            return Hint::Queue;
        };
        let was = crate::cluster::Labels { info: &before.info, syms: &cx.cluster.syms };
        // Upstream forgets the added affinity here: a node that comes to match it wakes
        // nobody there.
        let suited = self.added_required.as_ref().is_none_or(|t| t.matches(&was));
        if suited && matches(cx.shape, &was) { Hint::Skip } else { Hint::Queue }
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

impl PreFilter for NodeAffinity {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        if shape.required_affinity.is_none()
            && shape.node_selector.is_empty()
            && self.added_required.is_none()
        {
            return PreFilterResult::Skip;
        }
        let Some(names) = &shape.pinned_names else {
            return PreFilterResult::Go { state: None, nodes: None };
        };
        if names.is_empty() {
            return PreFilterResult::Reject(Status::unresolvable(CONFLICT));
        }
        PreFilterResult::Go { state: None, nodes: Some(names.clone()) }
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let labels = node.labels();
        if self.added_required.as_ref().is_some_and(|terms| !terms.matches(&labels)) {
            return Err(Status::unresolvable(ENFORCED));
        }
        if !matches(shape, &labels) {
            return Err(Status::unresolvable(REASON));
        }
        Ok(())
    }

    fn narrow(&self, _: &State, shape: &PodShape, cluster: &Cluster, set: &mut NodeSet) {
        for (key, value) in &shape.node_selector {
            let value: Box<str> = value.as_str().into();
            set.intersect(&cluster.index.with_values(&cluster.syms, key, &[value]));
        }
        for terms in [&self.added_required, &shape.required_affinity].into_iter().flatten() {
            set.intersect(&terms.select(cluster, set));
        }
    }
}

impl Score for NodeAffinity {
    fn pre_score(&self, shape: &PodShape, _: &Cluster) -> PreScoreResult {
        let mut errors = shape.preferred_affinity.iter().flat_map(|(_, t)| t.errors()).peekable();
        if errors.peek().is_some() {
            return PreScoreResult::Fail(Status::error(aggregate(errors)));
        }
        if !shape.has_preferred_affinity && !self.has_added_preferred {
            return PreScoreResult::Skip;
        }
        PreScoreResult::Go(None)
    }

    fn score(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> i64 {
        let labels = node.labels();
        let all = self.added_preferred.iter().chain(&shape.preferred_affinity);
        all.filter(|(_, term)| term.matches(&labels)).map(|(weight, _)| i64::from(*weight)).sum()
    }

    fn normalize(&self) -> Normalize {
        Normalize::ByMax { reverse: false }
    }
}
