//! What happened, for the report.
//!
//! Owns the history of every pod and node as the API server saw it. Must never
//! influence the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::Pod;
use muster_core::io::{Condition, PodRef, Tick};

use crate::model::api::{Notice, PodId};
use crate::model::objects::is_terminal;
use crate::model::requests::{Amounts, amounts, cpu, gpus, pod_requests};
use crate::scenario::Scenario;

/// The history of a run.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Every pod, in order of creation.
    pub pods: Vec<PodRecord>,
    /// Every node, in order of creation.
    pub nodes: Vec<NodeRecord>,
    /// What one pod of each workload asks for.
    pub asks: Vec<Ask>,
    /// Who was made to go by a scheduler, in order of time.
    pub evictions: Vec<Evicted>,
    pub(crate) node_ids: BTreeMap<String, u32>,
}

/// A pod that was made to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// When.
    pub at: Tick,
    /// `namespace/name`.
    pub victim: String,
    /// The node it was on.
    pub node: String,
    /// For whom, by UID.
    pub preemptor: Arc<str>,
}

/// What one pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Thousandths of a CPU.
    pub cpu: i64,
    /// GPUs of any vendor.
    pub gpus: i64,
    /// Everything: thousandths for `cpu`, whole units for the rest.
    pub all: Amounts,
}

impl Ask {
    fn new(mut all: Amounts) -> Self {
        all.remove("pods");
        Self { cpu: cpu(&all), gpus: gpus(&all), all }
    }
}

/// The history of a pod.
#[derive(Clone, Debug)]
pub struct PodRecord {
    /// Index of its workload in the scenario.
    pub workload: u32,
    /// Which submission of the workload.
    pub round: u32,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// When it was created.
    pub created: Tick,
    /// When it was bound.
    pub bound: Option<Tick>,
    /// Where, as an index into [`Record::nodes`].
    pub node: Option<u32>,
    /// When its kubelet started it.
    pub started: Option<Tick>,
    /// When it succeeded, failed or was deleted.
    pub ended: Option<Tick>,
    /// How it stands.
    pub state: PodState,
    /// How often the scheduler tried.
    pub attempts: u32,
    /// Why it waits, or last waited.
    pub why: Option<Why>,
}

/// Why a pod waits, in the scheduler's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Why {
    /// Reason of its condition.
    pub reason: &'static str,
    /// Message of its condition.
    pub message: Arc<str>,
}

/// How a pod stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodState {
    /// Not bound.
    Waiting,
    /// Bound and not ended.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
    /// Deleted before it ended, with its node.
    Lost,
}

/// The history of a node.
#[derive(Clone, Debug)]
pub struct NodeRecord {
    /// Name.
    pub name: String,
    /// What it offers.
    pub offers: Ask,
    /// When it was there: from, and to if it was removed.
    pub present: Vec<(Tick, Option<Tick>)>,
    /// When it was cordoned: from, and to if it was uncordoned.
    pub cordoned: Vec<(Tick, Option<Tick>)>,
}

impl Record {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let asks = scenario.workloads.iter().map(|w| Ask::new(pod_requests(&w.template.spec)));
        Self { asks: asks.collect(), ..Self::default() }
    }

    /// What a pod asks for.
    #[must_use]
    pub fn ask(&self, pod: &PodRecord) -> &Ask {
        &self.asks[pod.workload as usize]
    }

    /// When a pod held what it asks for: from bind to end, while its node was there.
    pub fn held(&self, pod: &PodRecord) -> impl Iterator<Item = (Tick, Option<Tick>)> + '_ {
        let present = pod.node.map_or(&[][..], |node| &self.nodes[node as usize].present);
        let (bound, ended) = (pod.bound, pod.ended);
        present.iter().filter_map(move |(from, to)| {
            let from = bound?.max(*from);
            let to = match (ended, *to) {
                (Some(ended), Some(to)) => Some(ended.min(to)),
                (one, other) => one.or(other),
            };
            to.is_none_or(|to| from < to).then_some((from, to))
        })
    }

    pub(crate) fn attempted(&mut self, pod: PodId) {
        if let Some(pod) = self.pods.get_mut(pod.index()) {
            pod.attempts += 1;
        }
    }

    /// Of one that goes already nothing is noted.
    pub(crate) fn evicted(&mut self, at: Tick, victim: &Pod, preemptor: &PodRef) {
        if victim.metadata.deletion_timestamp.is_some() {
            return;
        }
        self.evictions.push(Evicted {
            at,
            victim: format!("{}/{}", victim.metadata.namespace, victim.metadata.name),
            node: victim.spec.node_name.clone(),
            preemptor: Arc::clone(&preemptor.uid),
        });
    }

    pub(crate) fn explained(&mut self, pod: PodId, condition: &Condition) {
        if let (false, Some(pod)) = (condition.status, self.pods.get_mut(pod.index())) {
            pod.why = Some(Why { reason: condition.reason, message: condition.message.clone() });
        }
    }

    /// One accepted write; whether it was more than a word about a pod.
    pub(crate) fn observe(&mut self, now: Tick, notice: &Notice) -> bool {
        match notice {
            Notice::Node { object, deleted, .. } => {
                let id = self.node_id(now, &object.metadata.name, || {
                    Ask::new(amounts(&object.status.allocatable))
                });
                let node = &mut self.nodes[id as usize];
                toggle(&mut node.present, now, !*deleted);
                toggle(&mut node.cordoned, now, !*deleted && object.spec.unschedulable);
                true
            }
            Notice::Pod { id, facts, object, deleted, .. } => {
                let node = (!object.spec.node_name.is_empty())
                    .then(|| self.node_id(now, &object.spec.node_name, Ask::default));
                let created = self.pods.len() <= id.index();
                if created {
                    self.pods.push(PodRecord {
                        workload: facts.workload,
                        round: facts.round,
                        namespace: object.metadata.namespace.clone(),
                        name: object.metadata.name.clone(),
                        created: now,
                        bound: None,
                        node: None,
                        started: None,
                        ended: None,
                        state: PodState::Waiting,
                        attempts: 0,
                        why: (!object.spec.scheduling_gates.is_empty()).then(|| Why {
                            reason: "SchedulingGated",
                            message: gates(object).into(),
                        }),
                    });
                }
                let pod = &mut self.pods[id.index()];
                let before = (pod.state, pod.started, created);
                if let (None, Some(node)) = (pod.bound, node) {
                    (pod.bound, pod.node, pod.state) = (Some(now), Some(node), PodState::Running);
                }
                if object.status.phase == "Running" {
                    pod.started.get_or_insert(now);
                }
                if pod.ended.is_none() && (*deleted || is_terminal(object)) {
                    pod.ended = Some(now);
                    pod.state = match object.status.phase.as_str() {
                        "Succeeded" => PodState::Succeeded,
                        "Failed" => PodState::Failed,
                        _ => PodState::Lost,
                    };
                }
                before != (pod.state, pod.started, false)
            }
            Notice::Object { .. } => false,
        }
    }

    fn node_id(&mut self, now: Tick, name: &str, offers: impl FnOnce() -> Ask) -> u32 {
        if let Some(id) = self.node_ids.get(name) {
            return *id;
        }
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.node_ids.insert(name.to_owned(), id);
        self.nodes.push(NodeRecord {
            name: name.to_owned(),
            offers: offers(),
            present: vec![(now, None)],
            cordoned: Vec::new(),
        });
        id
    }
}

fn gates(pod: &Pod) -> String {
    let names: Vec<&str> = pod.spec.scheduling_gates.iter().map(|g| g.name.as_str()).collect();
    format!("waits for its scheduling gates to be removed: {}", names.join(", "))
}

/// Opens or closes the last interval.
fn toggle(intervals: &mut Vec<(Tick, Option<Tick>)>, now: Tick, on: bool) {
    match intervals.last_mut() {
        Some((_, end @ None)) if !on => *end = Some(now),
        Some((_, None)) => {}
        _ if on => intervals.push((now, None)),
        _ => {}
    }
}
