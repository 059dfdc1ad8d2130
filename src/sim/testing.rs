//! A tiny scheduler for tests of the simulator itself: first fit, and wrong on demand.
//!
//! Every [`Bug`] is one that a checker must find.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{Node, Pod};
use muster_core::io::{Change, Condition, Effect, Input, PodRef, StatusPatch, Tick};

use crate::model::objects::is_terminal;
use crate::model::requests::{Amounts, amounts, pod_requests};
use crate::scenario::{SCHEDULER_NAME, Scenario};
use crate::scheduler::{Attempt, Brain, Complaint};
use crate::{Options, Outcome};

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    None,
    /// Does not look whether a pod fits.
    Overcommits,
    /// Forgets what it has just placed until the watch tells.
    ForgetsAssumed,
    /// Schedules pods of other schedulers.
    Steals,
    /// Binds each pod a second time, elsewhere.
    BindsTwice,
}

struct Known {
    pod: PodRef,
    priority: i32,
    order: u64,
    spec: muster_api::k8s::PodSpec,
    requests: Amounts,
    node: Option<String>,
    tried: bool,
}

/// First fit by node name.
pub(crate) struct FirstFit {
    bug: Bug,
    nodes: BTreeMap<String, Node>,
    pods: BTreeMap<String, Known>,
    order: u64,
    effects: Vec<Effect>,
}

/// Runs a scenario on it.
pub(crate) fn run(yaml: &str, bug: Bug) -> Outcome {
    let scenario = Scenario::parse(yaml, "test.yaml").unwrap();
    let brain = FirstFit {
        bug,
        nodes: BTreeMap::new(),
        pods: BTreeMap::new(),
        order: 0,
        effects: Vec::new(),
    };
    crate::run_with(&scenario, Options::default(), Box::new(brain), &mut |_| {}).unwrap()
}

impl FirstFit {
    fn wake(&mut self) {
        for known in self.pods.values_mut() {
            known.tried = false;
        }
    }

    fn upsert(&mut self, pod: &Pod) {
        if is_terminal(pod) {
            self.pods.remove(&pod.metadata.uid);
            return self.wake();
        }
        let node = (!pod.spec.node_name.is_empty()).then(|| pod.spec.node_name.clone());
        if let Some(known) = self.pods.get_mut(&pod.metadata.uid) {
            known.node = node.or(known.node.take());
            return;
        }
        let ours = pod.spec.scheduler_name == SCHEDULER_NAME || self.bug == Bug::Steals;
        self.order += 1;
        let known = Known {
            pod: PodRef {
                namespace: pod.metadata.namespace.as_str().into(),
                name: pod.metadata.name.as_str().into(),
                uid: pod.metadata.uid.as_str().into(),
            },
            priority: pod.spec.priority.unwrap_or(0),
            order: self.order,
            requests: pod_requests(&pod.spec),
            spec: pod.spec.clone(),
            node,
            tried: !ours || !pod.spec.scheduling_gates.is_empty(),
        };
        if ours || known.node.is_some() {
            self.pods.insert(pod.metadata.uid.clone(), known);
        }
    }

    fn fits(&self, known: &Known, node: &Node) -> bool {
        let labels = &node.metadata.labels;
        let selected =
            known.spec.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let tolerated = node.spec.taints.iter().all(|taint| {
            let mut tolerations = known.spec.tolerations.iter();
            tolerations.any(|t| t.key == taint.key || t.key.is_empty())
        });
        if node.spec.unschedulable || !selected || !tolerated {
            return false;
        }
        let mut free = amounts(&node.status.allocatable);
        let here = |pod: &&Known| pod.node.as_ref() == Some(&node.metadata.name);
        for pod in self.pods.values().filter(here) {
            for (name, amount) in &pod.requests {
                *free.entry(name.clone()).or_default() -= amount;
            }
        }
        let enough = |(name, amount): (&String, &i64)| {
            *amount == 0 || free.get(name).is_some_and(|free| free >= amount)
        };
        self.bug == Bug::Overcommits || known.requests.iter().all(enough)
    }
}

impl Brain for FirstFit {
    fn apply(&mut self, _: Tick, input: Input) {
        match input {
            Input::Node(Change::Upsert(node)) => {
                self.nodes.insert(node.metadata.name.clone(), *node);
                self.wake();
            }
            Input::Node(Change::Delete(key)) => {
                self.nodes.remove(&key.name);
            }
            Input::Pod(Change::Upsert(pod)) => self.upsert(&pod),
            Input::Pod(Change::Delete(key)) => {
                self.pods.remove(&key.uid);
                self.wake();
            }
            Input::BindDone { pod, result: Err(_), .. } if self.bug != Bug::BindsTwice => {
                if let Some(known) = self.pods.get_mut(&*pod.uid) {
                    known.node = None;
                }
            }
            _ => {}
        }
    }

    fn advance(&mut self, _: Tick) {}

    fn schedule_one(&mut self, _: Tick) -> Option<Attempt> {
        let ready = self.pods.values().filter(|known| known.node.is_none() && !known.tried);
        let known = ready.min_by_key(|known| (-i64::from(known.priority), known.order))?;
        let pod = known.pod.clone();
        let fitting: Vec<Arc<str>> = self
            .nodes
            .values()
            .filter(|node| self.fits(known, node))
            .map(|node| node.metadata.name.as_str().into())
            .collect();
        let message: Arc<str> = format!("0/{} nodes fit.", self.nodes.len()).into();
        let known = self.pods.get_mut(&*pod.uid)?;
        known.tried = true;
        let binds = if self.bug == Bug::BindsTwice { 2 } else { 1 };
        for node in fitting.iter().take(binds) {
            let (pod, node) = (pod.clone(), node.clone());
            self.effects.push(Effect::Bind { pod, node, attempt: 1, devices: None });
        }
        match fitting.first() {
            Some(_) if self.bug == Bug::ForgetsAssumed => {}
            Some(node) => known.node = Some(node.to_string()),
            None => self.effects.push(Effect::PatchStatus(StatusPatch {
                pod: pod.clone(),
                condition: Some(Condition {
                    status: false,
                    reason: "Unschedulable",
                    message: message.clone(),
                    observed_generation: None,
                }),
                shown: None,
                nominated_node: None,
            })),
        }
        let placed = !fitting.is_empty();
        Some(Attempt { pod, gang: None, placed, message: (!placed).then_some(message) })
    }

    fn next_deadline(&self) -> Option<Tick> {
        None
    }

    fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn take_complaints(&mut self) -> Vec<Complaint> {
        Vec::new()
    }
}
