//! Preemption of pods: on which node, and of whom.
//!
//! Owns the choice, upstream's DefaultPreemption to the letter: who may be a victim,
//! who is reprieved, which node is taken; and who has to go with a member of a gang
//! (`whole`), of which upstream knows nothing. Preemption for a gang is `gang`'s. Works on
//! trials and changes nothing. Must never evict: the cycle carries a plan out, and keeps
//! the budgets.

mod candidates;
mod dry_run;
pub(crate) mod gang;
mod rule;
mod whole;

pub(crate) use candidates::Candidates;

pub(crate) use dry_run::{budgets_of, protected, sort_by_importance};
pub(crate) use rule::refusal;
pub(crate) use whole::{Leaving, Stays, bound_by, held, members, units, with_gangs};

use std::cmp::Reverse;
use std::sync::Arc;

use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId};
use crate::framework::Code;
use crate::io::Tick;
use crate::model::{Pod, PodId};
use crate::report::fit_message;

/// A node that a pod would fit if some pods left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The node.
    pub(crate) node: NodeId,
    /// Who would have to go, the most important first.
    pub(crate) victims: Vec<PodId>,
    /// How many of them a disruption budget protects.
    pub(crate) violations: u32,
    rank: Rank,
}

/// Upstream's five criteria; the smaller the better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    violations: u32,
    highest_priority: i32,
    priority_sum: i64,
    victims: usize,
    /// When the first of the most important victims started.
    earliest_start: Reverse<i64>,
}

impl Candidate {
    /// How it compares: the smaller the better.
    pub(crate) fn rank(&self) -> &Rank {
        &self.rank
    }

    pub(crate) fn new(
        cluster: &Cluster,
        node: NodeId,
        victims: Vec<PodId>,
        violations: u32,
    ) -> Self {
        let records = || victims.iter().filter_map(|v| cluster.pod(*v));
        let highest_priority = records().map(|p| p.priority).max().unwrap_or(i32::MIN);
        let highest = records().filter(|p| p.priority == highest_priority);
        let rank = Rank {
            violations,
            highest_priority,
            priority_sum: records().map(|p| i64::from(p.priority) + (1 << 31)).sum(),
            victims: victims.len(),
            earliest_start: Reverse(highest.map(|p| start(p.started)).min().unwrap_or(i64::MAX)),
        };
        Self { node, victims, violations, rank }
    }
}

/// Who would preempt, as far as it matters whether it may.
pub(crate) struct Preemptor<'a> {
    pub(crate) id: Option<PodId>,
    pub(crate) priority: i32,
    pub(crate) may_preempt: bool,
    pub(crate) nominated: Option<&'a str>,
}

impl<'a> Preemptor<'a> {
    /// A pod that is known.
    pub(crate) fn of(id: PodId, pod: &'a Pod) -> Self {
        Self {
            id: Some(id),
            priority: pod.priority,
            may_preempt: pod.may_preempt,
            nominated: pod.nominated.as_deref(),
        }
    }

    /// Whether the pod may preempt now; `Err` says why not. `status` is what was said
    /// of the node it is expected on; `leaves` knows pods that make room.
    pub(crate) fn eligible(
        &self,
        cluster: &Cluster,
        status: Option<Code>,
        leaves: impl Fn(PodId, &Pod) -> bool,
    ) -> Result<(), &'static str> {
        if !self.may_preempt && !bug!(cluster.bugs, NeverIgnored) {
            return Err("not eligible due to preemptionPolicy=Never.");
        }
        let node = self.nominated.and_then(|name| cluster.node_by_name(name));
        let Some(node) = node.filter(|_| status != Some(Code::UnschedulableAndUnresolvable)) else {
            return Ok(());
        };
        let going = |pod: &PodId| {
            cluster.pod(*pod).is_some_and(|p| p.priority < self.priority && leaves(*pod, p))
        };
        if cluster.node(node).pods.iter().any(going) {
            return Err("not eligible due to a terminating pod on the nominated node.");
        }
        Ok(())
    }
}

/// What is said when no node can be made to fit, or none may: what stands in the way
/// of each candidate.
pub(crate) fn nothing_found(
    candidates: &Candidates,
    nodes: usize,
    in_the_way: &[Arc<str>],
) -> String {
    // Without any candidate an error is all that is said.
    if let Some(errors) = candidates.errors().filter(|_| in_the_way.is_empty()) {
        return format!("preemption: {errors}");
    }
    let one = |reason| (1, std::slice::from_ref(reason));
    let mut reasons: Vec<(u32, &[Arc<str>])> = in_the_way.iter().map(one).collect();
    reasons.extend(candidates.failures().map(|(status, nodes)| (nodes, &*status.reasons)));
    let said: u32 = reasons.iter().map(|(nodes, _)| nodes).sum();
    let hopeless = ["Preemption is not helpful for scheduling".into()];
    let rest = u32::try_from(nodes).unwrap_or(u32::MAX).saturating_sub(said);
    if rest > 0 {
        reasons.push((rest, &hopeless));
    }
    format!("preemption: {}", fit_message(nodes, reasons))
}

/// A pod that has not started counts as started now, after all that have.
fn start(started: Option<Tick>) -> i64 {
    started.map_or(i64::MAX, |t| t.0)
}
