//! Makes a failing world small: what can be left out is.
//!
//! Delta debugging over the parts of a scenario. What is kept still breaks the same
//! invariant after it was written as a file and read again, so that the file itself
//! is the case.

use std::sync::Arc;

use crate::scenario::{Action, FaultPlan, GroupSpec, Scenario, Shape};
use crate::time::SECOND;

use super::{Tweak, run_scenario};

/// Most runs for one case.
const MAX_RUNS: u32 = 600;

struct Shrinker<'a> {
    best: Scenario,
    invariant: &'static str,
    tweak: &'a Tweak,
    runs: u32,
}

/// A smaller world that breaks the same invariant, and how many runs it took. The
/// scenario itself, if it does not break it once written and read.
#[must_use]
pub fn shrink(scenario: &Scenario, invariant: &'static str, tweak: &Tweak) -> (Scenario, u32) {
    let mut shrinker = Shrinker { best: scenario.clone(), invariant, tweak, runs: 0 };
    while shrinker.pass() {}
    (shrinker.best, shrinker.runs)
}

impl Shrinker<'_> {
    /// Keeps a candidate if it still fails.
    fn keep(&mut self, candidate: &Scenario) -> bool {
        if self.runs >= MAX_RUNS || candidate.workloads.is_empty() || candidate.nodes.is_empty() {
            return false;
        }
        let Ok(read) = Scenario::parse(&candidate.to_yaml(), "shrunk") else {
            return false;
        };
        self.runs += 1;
        let fails = run_scenario(&read, self.tweak).broken.contains(&self.invariant);
        if fails {
            self.best = read;
        }
        fails
    }

    fn attempt(&mut self, change: impl FnOnce(&mut Scenario)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate);
        self.keep(&candidate)
    }

    /// Leaves out items of a list, large pieces first.
    fn thin<T>(&mut self, list: impl Fn(&mut Scenario) -> &mut Vec<T>) -> bool {
        let mut shorter = false;
        let mut piece = list(&mut self.best.clone()).len();
        while piece > 0 {
            let mut from = 0;
            while from < list(&mut self.best.clone()).len() {
                let removed = self.attempt(|scenario| {
                    let items = list(scenario);
                    let to = (from + piece).min(items.len());
                    items.drain(from..to);
                });
                shorter |= removed;
                if !removed {
                    from += piece;
                }
            }
            piece /= 2;
        }
        shorter
    }

    /// One round of everything that could make it smaller.
    fn pass(&mut self) -> bool {
        let mut smaller = false;
        if !self.best.faults.is_empty() {
            smaller |= self.attempt(|s| s.faults = FaultPlan::default());
        }
        for index in 0..self.best.faults.per_mille.len() {
            if self.best.faults.per_mille[index] > 0 {
                smaller |= self.attempt(|s| s.faults.per_mille[index] = 0);
            }
        }
        smaller |= self.thin(|s| &mut s.faults.blows);
        smaller |= self.thin(|s| &mut s.events);
        smaller |= self.thin(|s| &mut s.budgets);
        smaller |= self.thin(|s| &mut s.workloads);
        smaller |= self.plainer_gangs();
        smaller |= self.fewer_pods();
        smaller |= self.fewer_nodes();
        smaller |= self.plainer_pods();
        smaller |= self.plainer_setup();
        smaller && self.runs < MAX_RUNS
    }

    fn fewer_pods(&mut self) -> bool {
        let mut smaller = false;
        for index in 0..self.best.workloads.len() {
            let half = |n: u32| (n / 2).max(1);
            let shape = self.best.workloads[index].shape;
            let less = match shape {
                Shape::Pods { replicas } => Shape::Pods { replicas: half(replicas) },
                Shape::Job { parallelism, completions } => {
                    Shape::Job { parallelism: half(parallelism), completions: half(completions) }
                }
                Shape::Set { replicas, stable_names } => {
                    Shape::Set { replicas: half(replicas), stable_names }
                }
            };
            if less != shape {
                smaller |= self.attempt(|s| {
                    s.workloads[index].shape = less;
                    if let Some(group) = &mut s.workloads[index].pod_group {
                        group.spec.min_member = group.spec.min_member.map(|n| (n / 2).max(1));
                    }
                }) || self.attempt(|s| s.workloads[index].shape = less);
            }
        }
        smaller
    }

    fn plainer_gangs(&mut self) -> bool {
        let mut smaller = false;
        for index in 0..self.best.workloads.len() {
            let Some(group) = self.best.workloads[index].pod_group.clone() else { continue };
            if self.attempt(|s| s.workloads[index].pod_group = None) {
                smaller = true;
                continue;
            }
            let mut plain = |change: fn(&mut GroupSpec)| {
                let mut changed = group.clone();
                change(&mut changed);
                changed != group && self.attempt(|s| s.workloads[index].pod_group = Some(changed))
            };
            smaller |= plain(|group| group.after = 0)
                || plain(|group| group.spec.roles.clear())
                || plain(|group| group.spec.when_half_bound = None)
                || plain(|group| group.spec.schedule_timeout_seconds = None);
        }
        smaller
    }

    fn fewer_nodes(&mut self) -> bool {
        let mut smaller = false;
        for index in (0..self.best.nodes.len()).rev() {
            let names: Vec<String> = self.best.nodes[index].names().collect();
            smaller |= self.attempt(|s| {
                s.nodes.remove(index);
                s.events.retain(|event| !touches(&event.action, &names));
            });
        }
        for index in 0..self.best.nodes.len() {
            let count = self.best.nodes[index].count;
            let names: Vec<String> = self.best.nodes[index].names().collect();
            if count > 1 {
                smaller |= self.attempt(|s| {
                    s.nodes[index].count = count - 1;
                    let last = &names[names.len() - 1..];
                    s.events.retain(|event| !touches(&event.action, last));
                });
            }
            if !self.best.nodes[index].taints.is_empty() {
                smaller |= self.attempt(|s| s.nodes[index].taints.clear());
            }
        }
        smaller
    }

    fn plainer_pods(&mut self) -> bool {
        let mut smaller = false;
        for index in 0..self.best.workloads.len() {
            let plain = |change: fn(&mut muster_api::k8s::PodSpec)| {
                move |s: &mut Scenario| {
                    change(&mut Arc::make_mut(&mut s.workloads[index].template).spec);
                }
            };
            let spec = self.best.workloads[index].template.spec.clone();
            if !spec.node_selector.is_empty() {
                smaller |= self.attempt(plain(|spec| spec.node_selector.clear()));
            }
            if !spec.tolerations.is_empty() {
                smaller |= self.attempt(plain(|spec| spec.tolerations.clear()));
            }
            if !spec.scheduling_gates.is_empty() {
                smaller |= self.attempt(plain(|spec| spec.scheduling_gates.clear()));
            }
            if spec.preemption_policy.is_some() {
                smaller |= self.attempt(plain(|spec| spec.preemption_policy = None));
            }
            if spec.containers.iter().any(|c| !c.ports.is_empty()) {
                smaller |= self.attempt(plain(|spec| {
                    spec.containers.iter_mut().for_each(|c| c.ports.clear());
                }));
            }
            if self.best.workloads[index].at > 0 {
                smaller |= self.attempt(|s| s.workloads[index].at = 0);
            }
        }
        smaller
    }

    fn plainer_setup(&mut self) -> bool {
        let mut smaller = false;
        if self.best.scheduler.replicas > 1 {
            smaller |= self.attempt(|s| s.scheduler.replicas = 1);
        }
        if !self.best.scheduler.without.is_empty() {
            smaller |= self.attempt(|s| s.scheduler.without.clear());
        }
        let until = self.best.faults.until;
        if until > 10 * SECOND {
            smaller |= self.attempt(|s| s.faults.until = until / 2 / SECOND * SECOND);
        }
        smaller
    }
}

/// Whether an event names one of these nodes.
fn touches(action: &Action, nodes: &[String]) -> bool {
    match action {
        Action::Cordon(names)
        | Action::Uncordon(names)
        | Action::Remove(names)
        | Action::Restore(names)
        | Action::NotReady(names)
        | Action::Ready(names) => names.iter().any(|name| nodes.contains(name)),
        Action::Change(change) => nodes.contains(&change.node),
        Action::Bind { node, .. } => nodes.contains(node),
        Action::Add(_)
        | Action::Delete(_)
        | Action::Evict(_)
        | Action::DeleteGroup(_)
        | Action::Ungate(_)
        | Action::Reload(_)
        | Action::Policy(_)
        | Action::DeletePolicy(_)
        | Action::Topology(_)
        | Action::DeleteTopology(_) => false,
    }
}
