//! An independent look at what the scheduler did.
//!
//! Sees only what the API server accepted. Keeps its own ledger, with its own
//! arithmetic, and says what should never be: a node with more on it than it has,
//! a pod that moved, a pod that was not ours. The full audit of the invariants
//! comes with the simulator's faults; this is the part every run can afford.

use std::collections::BTreeMap;

use muster_core::io::Tick;

use crate::limits::MAX_VIOLATIONS;
use crate::model::api::{Notice, PodId};
use crate::model::objects::is_terminal;
use crate::model::requests::{Amounts, amounts, pod_requests};
use crate::scenario::SCHEDULER_NAME;
use crate::time::{show_duration, since_epoch};

/// What was checked, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Binds looked at.
    pub binds: u64,
    /// Binds to a node that was already gone; allowed, and the pod is collected.
    pub late_binds: u64,
    /// What should never be, the first few in full.
    pub violations: Vec<String>,
    /// Violations beyond those.
    pub more_violations: u64,
}

impl Verdict {
    /// Whether nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

#[derive(Debug)]
struct Placed {
    node: String,
    requests: Amounts,
    /// Still using what it asked for.
    running: bool,
}

/// The ledger.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    allocatable: BTreeMap<String, Amounts>,
    used: BTreeMap<String, Amounts>,
    placed: BTreeMap<PodId, Placed>,
    verdict: Verdict,
}

impl Checker {
    pub(crate) fn into_verdict(self) -> Verdict {
        self.verdict
    }

    fn violation(&mut self, now: Tick, what: &str) {
        if self.verdict.violations.len() < MAX_VIOLATIONS {
            let at = show_duration(since_epoch(now));
            self.verdict.violations.push(format!("at {at}: {what}"));
        } else {
            self.verdict.more_violations += 1;
        }
    }

    /// One accepted write.
    pub(crate) fn observe(&mut self, now: Tick, notice: &Notice) {
        match notice {
            Notice::Node { object, deleted: true } => {
                self.allocatable.remove(&object.metadata.name);
            }
            Notice::Node { object, deleted: false } => {
                let name = &object.metadata.name;
                self.allocatable.insert(name.clone(), amounts(&object.status.allocatable));
                self.check_node(now, name);
            }
            Notice::Pod { id, object, deleted, .. } => {
                let node = &object.spec.node_name;
                let running = !*deleted && !is_terminal(object);
                let full_name =
                    || format!("{}/{}", object.metadata.namespace, object.metadata.name);
                match self.placed.get(id) {
                    None if node.is_empty() => {}
                    None => {
                        self.verdict.binds += 1;
                        if object.spec.scheduler_name != SCHEDULER_NAME {
                            self.violation(
                                now,
                                &format!(
                                    "{} was bound, but asks for another scheduler",
                                    full_name()
                                ),
                            );
                        }
                        let requests = pod_requests(&object.spec);
                        let placed = Placed { node: node.clone(), requests, running: false };
                        self.placed.insert(*id, placed);
                        self.verdict.late_binds += u64::from(!self.allocatable.contains_key(node));
                    }
                    Some(placed) if placed.node != *node => {
                        let what =
                            format!("{} was moved from {} to {node}", full_name(), placed.node);
                        self.violation(now, &what);
                    }
                    Some(_) => {}
                }
                self.account(now, *id, running);
            }
        }
    }

    /// Brings the ledger up to date with one pod.
    fn account(&mut self, now: Tick, id: PodId, running: bool) {
        let Some(placed) = self.placed.get_mut(&id) else {
            return;
        };
        if placed.running == running {
            return;
        }
        placed.running = running;
        let sign = if running { 1 } else { -1 };
        let used = self.used.entry(placed.node.clone()).or_default();
        for (name, amount) in &placed.requests {
            *used.entry(name.clone()).or_default() += sign * amount;
        }
        let node = placed.node.clone();
        if running {
            self.check_node(now, &node);
        }
    }

    fn check_node(&mut self, now: Tick, node: &str) {
        let (Some(allocatable), Some(used)) = (self.allocatable.get(node), self.used.get(node))
        else {
            return;
        };
        let over: Vec<String> = used
            .iter()
            .filter_map(|(name, used)| {
                let most = allocatable.get(name).copied().unwrap_or(0);
                (*used > most)
                    .then(|| format!("node {node} has {most} of {name}, its pods ask for {used}"))
            })
            .collect();
        for what in over {
            self.violation(now, &what);
        }
    }
}
