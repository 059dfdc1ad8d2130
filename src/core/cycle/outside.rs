//! What extenders have said in one attempt of a pod.
//!
//! Owns the answers, checked one by one, and which extender is asked next. Answers
//! are about nodes by name: the cycle holds them against the cluster as it is when it
//! goes on. Must never ask, or choose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::framework::{ExtenderSpec, Status};
use crate::io::{ExtenderCall, ExtenderReply, NodeReason, NodeVictims, Scores};
use crate::model::{Pod, PodShape};

/// What an extender call is about; extenders by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Filter(usize),
    Prioritize(Vec<usize>),
    Preempt(usize),
}

/// Whether the node a pod is expected on is tried before all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum First {
    /// It was not tried yet.
    #[default]
    Open,
    /// Extenders are asked about it.
    Asked,
    /// It is one among the others.
    Done,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub(super) struct Outside {
    pub(super) first: First,
    /// Filters before this position have answered.
    filters: usize,
    /// Nodes that all of those let pass; `None` if none was asked.
    passed: Option<BTreeSet<Arc<str>>>,
    /// What they said of the others.
    pub(super) statuses: BTreeMap<Arc<str>, Status>,
    /// Whether they took any node away.
    pub(super) took: bool,
    /// Sums of scores.
    scores: Option<BTreeMap<Arc<str>, i64>>,
    /// Those before this position have answered about preemption.
    preempts: usize,
    /// Who has to go, as the last of them said.
    pub(super) victims: Option<Vec<NodeVictims>>,
    /// Why preemption ended.
    pub(super) no_preemption: Option<Arc<str>>,
}

/// The extenders, from a position on, that pods of a shape concern.
fn interested<'a>(
    extenders: &'a [ExtenderSpec],
    shape: &'a PodShape,
    from: usize,
    has: fn(&ExtenderSpec) -> bool,
) -> impl Iterator<Item = usize> + 'a {
    let all = extenders.iter().enumerate().skip(from);
    all.filter(move |(_, e)| has(e) && e.is_interested(shape)).map(|(i, _)| i)
}

/// The first binder from a position on.
pub(super) fn binder(extenders: &[ExtenderSpec], shape: &PodShape, from: usize) -> Option<usize> {
    interested(extenders, shape, from, |e| e.binds).next()
}

/// Whether a cycle for the shape may have to ask.
pub(super) fn may_ask(extenders: &[ExtenderSpec], shape: &PodShape) -> bool {
    interested(extenders, shape, 0, ExtenderSpec::is_asked).next().is_some()
}

impl Outside {
    /// Begins anew with all nodes.
    pub(super) fn with_all_nodes(&mut self) {
        let statuses = std::mem::take(&mut self.statuses);
        *self = Self { first: First::Done, statuses, ..Self::default() };
    }

    /// Whether all filters asked so far let a node pass.
    pub(super) fn lets_pass(&self, node: &Arc<str>) -> bool {
        self.passed.as_ref().is_none_or(|passed| passed.contains(node))
    }

    /// The next extender that filters.
    pub(super) fn next_filter(
        &self,
        extenders: &[ExtenderSpec],
        shape: &PodShape,
    ) -> Option<usize> {
        interested(extenders, shape, self.filters, |e| e.filters).next()
    }

    /// Those that score, unless they have.
    pub(super) fn next_scores(&self, extenders: &[ExtenderSpec], shape: &PodShape) -> Vec<usize> {
        if self.scores.is_some() {
            return Vec::new();
        }
        interested(extenders, shape, 0, |e| e.prioritizes).collect()
    }

    /// The next extender with a say in preemption.
    pub(super) fn next_preempt(
        &self,
        extenders: &[ExtenderSpec],
        shape: &PodShape,
    ) -> Option<usize> {
        interested(extenders, shape, self.preempts, |e| e.preempts).next()
    }

    /// What extenders add to a node's score.
    pub(super) fn score(&self, node: &Arc<str>) -> i64 {
        self.scores.as_ref().and_then(|s| s.get(node)).copied().unwrap_or(0)
    }

    /// Takes in an answer on behalf of a pod. `Err` is what the attempt fails with.
    pub(super) fn answer(
        &mut self,
        (pod, cluster): (&Pod, &Cluster),
        extenders: &[ExtenderSpec],
        question: &Question,
        call: &ExtenderCall,
        reply: ExtenderReply,
    ) -> Result<(), Arc<str>> {
        match question {
            Question::Filter(position) => {
                let Some(extender) = extenders.get(*position) else {
                    return Ok(());
                };
                self.filters = position + 1;
                match self.filtered(extender, call, reply) {
                    Err(_) if extender.ignorable => Ok(()),
                    // As upstream: the other nodes are tried.
                    Err(_) if self.first == First::Asked => {
                        self.with_all_nodes();
                        Ok(())
                    }
                    other => other,
                }
            }
            Question::Prioritize(positions) => {
                let mut sums = BTreeMap::new();
                if let ExtenderReply::Prioritized(lists) = reply {
                    let asked = positions.iter().filter_map(|p| extenders.get(*p));
                    asked.zip(lists).for_each(|(e, list)| add_scores(&mut sums, e, list));
                }
                self.scores = Some(sums);
                Ok(())
            }
            Question::Preempt(position) => {
                let Some(extender) = extenders.get(*position) else {
                    return Ok(());
                };
                self.preempts = position + 1;
                if let Err(error) = self.preempted((pod, cluster), extender, call, reply)
                    && !extender.ignorable
                {
                    self.no_preemption = Some(error);
                }
                Ok(())
            }
        }
    }

    fn filtered(
        &mut self,
        extender: &ExtenderSpec,
        call: &ExtenderCall,
        reply: ExtenderReply,
    ) -> Result<(), Arc<str>> {
        let ExtenderReply::Filtered { nodes, failed, unresolvable } = reply else {
            return Err(failure(extender, reply));
        };
        let ExtenderCall::Filter { nodes: asked, .. } = call else {
            return Ok(());
        };
        let asked: BTreeSet<&Arc<str>> = asked.iter().collect();
        if let Some(stranger) = nodes.iter().find(|node| !asked.contains(node)) {
            let name = &extender.name;
            return Err(format!(
                "extender {name:?} claims a filtered node {stranger:?} which is not found in the \
                 input node list"
            )
            .into());
        }
        // What is said of nodes that nobody asked about counts nowhere.
        let known = |(node, why): NodeReason| asked.get(&node).map(|n| (Arc::clone(n), why));
        for (node, why) in failed.into_iter().filter_map(known) {
            self.statuses.insert(node, Status::unschedulable(why));
        }
        for (node, why) in unresolvable.into_iter().filter_map(known) {
            self.statuses.insert(node, Status::unresolvable(why));
        }
        let passed: BTreeSet<Arc<str>> = nodes.into_iter().collect();
        self.took |= passed.len() < asked.len();
        self.passed = Some(passed);
        Ok(())
    }

    fn preempted(
        &mut self,
        (pod, cluster): (&Pod, &Cluster),
        extender: &ExtenderSpec,
        call: &ExtenderCall,
        reply: ExtenderReply,
    ) -> Result<(), Arc<str>> {
        let ExtenderReply::Preempted(answer) = reply else {
            return Err(failure(extender, reply));
        };
        let ExtenderCall::Preempt { candidates, .. } = call else {
            return Ok(());
        };
        let mut kept = Vec::new();
        for (node, uids, violations) in answer {
            if uids.is_empty() {
                if extender.ignorable {
                    continue;
                }
                return Err(format!("expected at least one victim pod on node {node:?}").into());
            }
            let asked = candidates.iter().find(|c| c.node == node);
            let claims = |uid: &str, but: &str| -> Arc<str> {
                let name = &extender.name;
                let what = format!("claims to preempt pod (UID: {uid}) on node: {node}");
                format!("extender: {name} {what}, but {but}").into()
            };
            let Some(asked) = asked else {
                return Err(claims(&uids[0], "the node is no candidate for preemption"));
            };
            let mut pods = Vec::with_capacity(uids.len());
            for uid in uids {
                // A victim that has left meanwhile is no lie.
                if let Some(known) = asked.pods.iter().find(|p| p.uid == uid) {
                    pods.push(known.clone());
                    continue;
                }
                match pod_on(cluster, &node, &uid) {
                    None => return Err(claims(&uid, "the pod is not found on that node")),
                    Some(other) if other.priority >= pod.priority => {
                        return Err(claims(&uid, "the pod is not of lower priority"));
                    }
                    Some(other) => pods.push(other.key.clone()),
                }
            }
            kept.push(NodeVictims { node, pods, violations });
        }
        self.victims = Some(kept);
        Ok(())
    }
}

fn pod_on<'a>(cluster: &'a Cluster, node: &str, uid: &str) -> Option<&'a Pod> {
    let pods = &cluster.node(cluster.node_by_name(node)?).pods;
    pods.iter().filter_map(|p| cluster.pod(*p)).find(|p| *p.key.uid == *uid)
}

/// Why an extender gave no answer.
fn failure(extender: &ExtenderSpec, reply: ExtenderReply) -> Arc<str> {
    match reply {
        ExtenderReply::Failed { error, .. } => error,
        _ => format!("extender {:?} answered another question", extender.name).into(),
    }
}

/// One that fails gives no score; nodes that nobody asked about count nowhere.
fn add_scores(sums: &mut BTreeMap<Arc<str>, i64>, extender: &ExtenderSpec, list: Scores) {
    for (node, score) in list.into_iter().flatten() {
        let sum = sums.entry(node).or_default();
        *sum = sum.saturating_add(extender.weighted(score));
    }
}
