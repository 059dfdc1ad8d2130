//! Who would have to leave one node.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Candidate, start};
use crate::bugs::bug;
use crate::cluster::{Budget, Cluster, NodeId, Protection, Shield};
use crate::cycle::Trial;
use crate::framework::Status;
use crate::hash::TextMap;
use crate::io::Tick;
use crate::model::PodId;

/// What a dry run of one node says.
pub(super) struct Verdict {
    pub(super) result: Result<Candidate, Status>,
    /// The plugin that rejects the node even without its lesser pods.
    pub(super) rejector: Option<usize>,
    /// Whether budgets had a say.
    pub(super) budgeted: bool,
    /// When another of its pods may go, if nothing else changes.
    pub(super) until: Option<Tick>,
    /// Whether any of its lesser pods may not go now.
    pub(super) protects: bool,
}

/// Lesser pods of a node that may not go now.
#[derive(Default)]
struct Protected {
    until: Option<Tick>,
    by: BTreeSet<Protection>,
}

impl Protected {
    fn add(&mut self, Shield { by, until }: Shield) {
        self.by.insert(by);
        self.until = self.until.into_iter().chain(until).min();
    }

    /// What is said of a node that cannot be made to fit: that more could go later.
    fn instead_of(&self, status: Status) -> Status {
        if self.by.is_empty() {
            return status;
        }
        let by: Vec<&str> = self.by.iter().map(|by| by.words()).collect();
        Status::unschedulable(format!("node(s) with protected victims ({})", by.join(", ")))
    }
}

/// Takes every pod of lower priority off the node, then lets back as many as can
/// stay: those that a budget protects first, each time the most important first.
pub(super) fn dry_run(trial: &mut Trial<'_>, node: NodeId, own: Option<PodId>) -> Verdict {
    let (mut victims, protected_now) = lower_priority(trial, node);
    let (until, protects) = (protected_now.until, !protected_now.by.is_empty());
    if victims.is_empty() {
        let status = Status::unresolvable("No preemption victims found for incoming pod");
        let result = Err(protected_now.instead_of(status));
        return Verdict { result, rejector: None, budgeted: false, until, protects };
    }
    let mark = trial.mark();
    for &victim in &victims {
        trial.remove(victim, node);
    }
    if let Err((plugin, status)) = trial.fits(node, own) {
        trial.undo_to(mark);
        let result = Err(protected_now.instead_of(status));
        return Verdict { result, rejector: Some(plugin), budgeted: false, until, protects };
    }
    sort_by_importance(trial.cluster(), &mut victims);
    let (protected, others, budgeted) = split(trial.cluster(), &victims);
    let mut taken = Vec::new();
    let mut reprieve = |trial: &mut Trial<'_>, victim: PodId| {
        let before = trial.mark();
        trial.add(victim, node);
        let stays = trial.fits(node, own).is_ok() && !bug!(trial.cluster().bugs, SuperfluousVictim);
        if !stays {
            trial.undo_to(before);
            taken.push(victim);
        }
        stays
    };
    let violations = protected.iter().filter(|v| !reprieve(trial, **v)).count();
    others.iter().for_each(|v| {
        reprieve(trial, *v);
    });
    sort_by_importance(trial.cluster(), &mut taken);
    trial.undo_to(mark);
    let result = if taken.is_empty() {
        let name = &trial.cluster().node(node).name;
        Err(Status::error(format!("expected at least one victim pod on node {name:?}")))
    } else {
        let violations = u32::try_from(violations).unwrap_or(u32::MAX);
        Ok(Candidate::new(trial.cluster(), node, taken, violations))
    };
    Verdict { result, rejector: None, budgeted, until, protects }
}

/// Those that may go, and what is to be said of those that may not.
fn lower_priority(trial: &Trial<'_>, node: NodeId) -> (Vec<PodId>, Protected) {
    let (cluster, priority) = (trial.cluster(), trial.shape().priority);
    let equals = bug!(cluster.bugs, VictimOfEqualPriority);
    let below = |p: i32| p < priority || equals && p == priority;
    let (mut victims, mut stay) = (Vec::new(), Protected::default());
    for &id in &cluster.node(node).pods {
        let Some(pod) = cluster.pod(id).filter(|p| below(p.priority)) else { continue };
        match cluster.shield(id, pod, priority) {
            Some(shield) => stay.add(shield),
            None => victims.push(id),
        }
    }
    (victims, stay)
}

/// The most important first: by priority, then by how long a pod has run. What
/// upstream leaves to chance goes by name.
pub(crate) fn sort_by_importance(cluster: &Cluster, pods: &mut [PodId]) {
    pods.sort_by_cached_key(|id| {
        let pod = cluster.pod(*id);
        let key = pod.map(|p| p.key.clone());
        (Reverse(pod.map(|p| p.priority)), pod.map(|p| start(p.started)), key)
    });
}

/// Those whose eviction a budget forbids, the others, and whether there was any
/// budget to ask. Budgets are used up in order of importance, as upstream.
fn split(cluster: &Cluster, pods: &[PodId]) -> (Vec<PodId>, Vec<PodId>, bool) {
    if !cluster.policies().has_budgets() {
        return (Vec::new(), pods.to_vec(), false);
    }
    let mut left: TextMap<(Box<str>, Box<str>), i32> = TextMap::default();
    let mut budgeted = false;
    let (protected, others) = pods.iter().partition(|pod| {
        let Some(name) = cluster.pod(**pod).map(|p| &p.key.name) else {
            return false;
        };
        for budget in budgets_of(cluster, **pod) {
            budgeted = true;
            if budget.disrupted.contains(&**name) {
                continue;
            }
            let key = (budget.namespace.clone(), budget.name.clone());
            let left = left.entry(key).or_insert(budget.allowed);
            *left = left.saturating_sub(1);
            if *left < 0 {
                return true;
            }
        }
        false
    });
    (protected, others, budgeted)
}

/// How many of these pods, the most important first, a budget protects.
pub(crate) fn protected(cluster: &Cluster, pods: &[PodId]) -> u32 {
    u32::try_from(split(cluster, pods).0.len()).unwrap_or(u32::MAX)
}

/// The budgets that cover a pod.
pub(crate) fn budgets_of(cluster: &Cluster, pod: PodId) -> impl Iterator<Item = &Arc<Budget>> {
    let group = cluster.pod(pod).map(|p| cluster.kin.group(p.group));
    group.into_iter().flat_map(|group| {
        let own = cluster.policies().budgets(&group.namespace);
        own.filter(|budget| budget.covers(&group.labels))
    })
}
