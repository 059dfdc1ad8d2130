//! An independent look at what the scheduler did.
//!
//! Sees only what the API server accepted. Keeps its own ledger, with its own
//! arithmetic, and says what should never be: a node with more on it than it has
//! (S1), a gang of which a part is bound (S2), a pod that moved or a late write of a deposed leader (S3), a victim that a
//! budget guards or that is no less important (S4, S5), a pod that was not ours (S6); and, when everything has come to rest, what `rest` finds. Must
//! never share code with a plugin.

mod evictions;
mod fit;
mod gangs;
pub(crate) mod rest;

use std::collections::BTreeMap;

use muster_core::io::{Object, Tick};
use muster_core::outbox::PodCall;

use crate::limits::MAX_VIOLATIONS;
use crate::model::api::{Notice, PodId};
use crate::model::objects::is_terminal;
use crate::model::requests::{Amounts, amounts, pod_requests};
use crate::scenario::{Action, Blow, Fault, SCHEDULER_NAME, Scenario};
use crate::time::{MINUTE, Micros, SECOND, show_duration, since_epoch};

/// Something that should never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The invariant, e.g. `S1`.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

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
    /// Which invariants were violated, in order of the first time.
    pub broken: Vec<&'static str>,
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
    /// By namespace and name.
    gangs: BTreeMap<(String, String), gangs::Gang>,
    verdict: Verdict,
    terms: Terms,
}

/// Under which terms a run is judged: what cannot be known cannot be held against
/// a scheduler.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// Whoever binds has seen all that is on a node.
    sees_all: bool,
    /// How far behind its watches may be, at most.
    behind: Micros,
    /// Two processes never both believe that they may write.
    one_writer: bool,
    /// Nothing goes wrong: what was begun is carried out.
    calm: bool,
    /// Clocks of processes are not to be trusted.
    jumps: bool,
}

impl Terms {
    fn of(scenario: &Scenario) -> Self {
        let plan = &scenario.faults;
        let several = scenario.scheduler.replicas > 1;
        let jumps = plan.blows.iter().any(|(_, b)| matches!(b, Blow::ClockJump { .. }));
        let others = scenario.events.iter().any(|event| match &event.action {
            Action::Bind { .. } => true,
            Action::Change(change) => change.allocatable.is_some(),
            _ => false,
        });
        let drawn = |faults: &[Fault]| faults.iter().any(|f| plan.rate(*f) > 0);
        let blind = drawn(&[Fault::StaleList, Fault::Malformed]) || others;
        // A successor may not have heard of its predecessor's last binds.
        let late = drawn(&[Fault::SlowWatch, Fault::CutStream]) || !plan.blows.is_empty();
        let sees_all = !(blind || several || plan.kills() && late);
        let behind = if late { MINUTE } else { SECOND };
        let calm = plan.is_empty() && !several;
        let one_writer = !(jumps && (several || plan.kills()));
        Self { sees_all, behind, one_writer, calm, jumps }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self { sees_all: true, behind: SECOND, one_writer: true, calm: true, jumps: false }
    }
}

impl Checker {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self { terms: Terms::of(scenario), ..Self::default() }
    }

    pub(crate) fn into_verdict(self) -> Verdict {
        self.verdict
    }

    /// Something that should never be, whoever found it.
    pub(crate) fn found(&mut self, now: Tick, finding: &Finding) {
        self.violation(now, finding.invariant, &finding.what);
    }

    fn violation(&mut self, now: Tick, invariant: &'static str, what: &str) {
        if !self.verdict.broken.contains(&invariant) {
            self.verdict.broken.push(invariant);
        }
        if self.verdict.violations.len() < MAX_VIOLATIONS {
            let at = show_duration(since_epoch(now));
            self.verdict.violations.push(format!("{invariant} at {at}: {what}"));
        } else {
            self.verdict.more_violations += 1;
        }
    }

    /// A scheduler's write was carried out; `changed` if it was more than a
    /// repetition, `deposed` if another process holds the lease.
    pub(crate) fn wrote(
        &mut self,
        now: Tick,
        call: &PodCall,
        changed: bool,
        deposed: bool,
        scheduler: Option<&str>,
    ) {
        let pod = call.pod();
        if !changed {
            return;
        }
        // Whoever scheduled a pod, it may have to make room.
        let evicts = matches!(call, PodCall::Evict(_));
        if !evicts && scheduler.is_some_and(|name| name != SCHEDULER_NAME) {
            let verb = if matches!(call, PodCall::Bind(_)) { "bound" } else { "written to" };
            let what = format!("{pod} was {verb}, but asks for another scheduler");
            self.violation(now, "S6", &what);
        }
        if deposed && self.terms.one_writer {
            let what = format!("{pod} was changed by a process that leads no more");
            self.violation(now, "S3", &what);
        }
    }

    /// One accepted write.
    pub(crate) fn observe(&mut self, now: Tick, notice: &Notice) {
        self.observe_gangs(now, notice);
        match notice {
            Notice::Node { object, deleted: true, .. } => {
                self.allocatable.remove(&object.metadata.name);
            }
            Notice::Node { object, .. } => {
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
                        let requests = pod_requests(&object.spec);
                        let placed = Placed { node: node.clone(), requests, running: false };
                        self.placed.insert(*id, placed);
                        self.verdict.late_binds += u64::from(!self.allocatable.contains_key(node));
                    }
                    Some(placed) if placed.node != *node => {
                        let what =
                            format!("{} was moved from {} to {node}", full_name(), placed.node);
                        self.violation(now, "S3", &what);
                    }
                    Some(_) => {}
                }
                self.account(now, *id, running);
            }
            Notice::Object { object, .. } => {
                if let Object::PodDisruptionBudget(budget) = &**object
                    && budget.status.disruptions_allowed < 0
                {
                    let what = format!("budget {} is overdrawn", budget.metadata.name);
                    self.violation(now, "S4", &what);
                }
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
        if !self.terms.sees_all {
            return;
        }
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
            self.violation(now, "S1", &what);
        }
    }
}
