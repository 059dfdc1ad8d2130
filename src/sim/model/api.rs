//! A model API server: objects, versions, and the writes a scheduler may ask for.
//!
//! Owns the truth of a simulation. Objects are kept as the pruned types that the
//! scheduler reads; every accepted write raises the revision and leaves one
//! [`Notice`], in order, from which every watch is fed. Answers are those of a real
//! server: a bind has the pod's UID as precondition and conflicts if it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s::{Node, Pod, PodCondition, Time};
use muster_api::muster::annotations::PREDICTED_DEVICES;
use muster_api::muster::{ClusterTopology, SchedulingPolicy};
use muster_core::io::{Condition, Kind, Object, PodRef, StatusPatch, Tick};
use muster_core::model::Predicted;

use super::budget::StoredBudget;
use super::errors::{ApiError, bind_uid, patch_uid};
use super::groups::Groups;
use super::log::Log;
use super::objects::{is_ended_member, is_terminal, node_uid, pod_of_uid, pod_uid};
use crate::time::{Micros, SECOND};

/// A pod by order of creation; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodId(pub(crate) u32);

impl PodId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What the simulation knows of a pod and a real API server would not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Index of the workload in the scenario.
    pub(crate) workload: u32,
    /// Which submission of the workload.
    pub(crate) round: u32,
    /// How long it runs; `None` is for ever.
    pub(crate) runtime: Option<Micros>,
    /// Between which times lies how long it takes to start; `None`: a moment.
    pub(crate) startup: Option<(Micros, Micros)>,
    /// How long it takes to save its work when it is asked to; `None` never says so.
    pub(crate) saves: Option<Micros>,
}

/// A pod in the store.
#[derive(Clone, Debug)]
pub(crate) struct StoredPod {
    pub(crate) object: Arc<Pod>,
    pub(crate) facts: Facts,
}

/// One accepted write, as a watch tells it.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Node {
        object: Arc<Node>,
        deleted: bool,
        broken: bool,
    },
    Pod {
        id: PodId,
        facts: Facts,
        object: Arc<Pod>,
        deleted: bool,
        broken: bool,
    },
    /// An object of another kind; only pod groups are ever deleted.
    Object {
        object: Arc<Object>,
        deleted: bool,
        broken: bool,
    },
}

impl Notice {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Node { .. } => Kind::Node,
            Self::Pod { .. } => Kind::Pod,
            Self::Object { object, .. } => object.kind(),
        }
    }

    /// Whether a watch of this kind shows it.
    pub(crate) fn is_shown_by(&self, kind: Kind) -> bool {
        match self {
            Self::Pod { object, .. } if kind == Kind::EndedMember => is_ended_member(object),
            _ => self.kind() == kind,
        }
    }

    /// The revision of this write.
    pub(crate) fn revision(&self) -> u64 {
        let meta = match self {
            Self::Node { object, .. } => &object.metadata,
            Self::Pod { object, .. } => &object.metadata,
            Self::Object { object, .. } => object.metadata(),
        };
        meta.resource_version.parse().unwrap_or(0)
    }

    pub(crate) fn set_broken(&mut self) {
        let (Self::Node { broken, .. } | Self::Pod { broken, .. } | Self::Object { broken, .. }) =
            self;
        *broken = true;
    }
}

/// The store.
#[derive(Debug, Default)]
pub(crate) struct Api {
    revision: u64,
    nodes_made: u64,
    nodes: BTreeMap<String, Arc<Node>>,
    pods: Vec<Option<StoredPod>>,
    pod_ids: BTreeMap<String, PodId>,
    pods_on: BTreeMap<String, BTreeSet<PodId>>,
    notices: Vec<Notice>,
    pub(super) budgets: Vec<StoredBudget>,
    pub(super) classes: Vec<Arc<Object>>,
    pub(super) policies: BTreeMap<String, SchedulingPolicy>,
    pub(super) topologies: BTreeMap<String, ClusterTopology>,
    pub(super) reports: BTreeMap<String, Arc<Object>>,
    pub(super) groups: Groups,
    log: Option<Log>,
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// As the API writes times: whole seconds.
pub(super) fn timestamp(now: Tick) -> Time {
    Time(now.secs() * SECOND)
}

impl Api {
    /// A server that remembers every version, for lists and watches that are late.
    pub(crate) fn with_history() -> Self {
        Self { log: Some(Log::default()), ..Self::default() }
    }

    /// The revision of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn log(&self) -> Option<&Log> {
        self.log.as_ref()
    }

    pub(crate) fn log_mut(&mut self) -> Option<&mut Log> {
        self.log.as_mut()
    }

    pub(super) fn tell(&mut self, notice: Notice) {
        if let Some(log) = &mut self.log {
            log.push(self.revision, &notice);
        }
        self.notices.push(notice);
    }

    /// The pod of that name.
    pub(crate) fn pod_named(&self, namespace: &str, name: &str) -> Option<PodId> {
        self.pod_ids.get(&key(namespace, name)).copied()
    }

    /// Accepted writes since the last call, in order.
    pub(crate) fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    pub(crate) fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.get(name)
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = (PodId, &StoredPod)> {
        (0u32..).zip(&self.pods).filter_map(|(id, pod)| Some((PodId(id), pod.as_ref()?)))
    }

    pub(crate) fn pod(&self, id: PodId) -> Option<&StoredPod> {
        self.pods.get(id.index())?.as_ref()
    }

    /// Pods that are bound to a node and have not ended, whether or not the node exists.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<PodId> {
        self.pods_on.get(node).map(|set| set.iter().copied().collect()).unwrap_or_default()
    }

    /// The pod that a scheduler means, if it is still that incarnation.
    pub(crate) fn find(&self, pod: &PodRef) -> Option<PodId> {
        let id = pod_of_uid(&pod.uid)?;
        let meta = &self.pod(id)?.object.metadata;
        let same = meta.uid == *pod.uid && meta.name == *pod.name;
        (same && meta.namespace == *pod.namespace).then_some(id)
    }

    pub(super) fn next_revision(&mut self) -> String {
        self.revision += 1;
        self.revision.to_string()
    }

    /// Creates a node, or replaces it, as a kubelet that registers does.
    pub(crate) fn put_node(&mut self, now: Tick, mut node: Node) {
        node.metadata.resource_version = self.next_revision();
        match self.nodes.get(&node.metadata.name) {
            Some(old) => {
                node.metadata.uid.clone_from(&old.metadata.uid);
                node.metadata.creation_timestamp = old.metadata.creation_timestamp;
            }
            None => {
                self.nodes_made += 1;
                node.metadata.uid = node_uid(self.nodes_made);
                node.metadata.creation_timestamp = Some(timestamp(now));
            }
        }
        let object = Arc::new(node);
        self.nodes.insert(object.metadata.name.clone(), object.clone());
        self.tell(Notice::Node { object, deleted: false, broken: false });
    }

    /// Writes an object anew, as it is: a new version.
    pub(crate) fn touch(&mut self, notice: &Notice) {
        match notice {
            Notice::Node { object, .. } => {
                let name = &object.metadata.name;
                if let Some(node) = self.nodes.get(name).map(|n| Node::clone(n)) {
                    self.put_node(Tick(0), node);
                }
            }
            Notice::Pod { id, .. } => {
                self.revision += 1;
                let version = self.revision.to_string();
                let Some(Some(stored)) = self.pods.get_mut(id.index()) else {
                    return;
                };
                Arc::make_mut(&mut stored.object).metadata.resource_version = version;
                let StoredPod { object, facts } = stored.clone();
                let id = *id;
                self.tell(Notice::Pod { id, facts, object, deleted: false, broken: false });
            }
            Notice::Object { object, .. } => self.touch_object(object),
        }
    }

    /// Deletes a node; its pods stay until someone collects them.
    pub(crate) fn delete_node(&mut self, name: &str) {
        if let Some(mut object) = self.nodes.remove(name) {
            Arc::make_mut(&mut object).metadata.resource_version = self.next_revision();
            self.tell(Notice::Node { object, deleted: true, broken: false });
        }
    }

    /// Creates a pod.
    pub(crate) fn create_pod(&mut self, now: Tick, mut pod: Pod, facts: Facts) -> PodId {
        let id = PodId(u32::try_from(self.pods.len()).unwrap_or(u32::MAX));
        let meta = &mut pod.metadata;
        meta.resource_version = self.next_revision();
        meta.uid = pod_uid(id);
        meta.creation_timestamp = Some(timestamp(now));
        meta.generation = Some(1);
        self.admit(&mut pod);
        if !pod.spec.scheduling_gates.is_empty() {
            let message = "Scheduling is blocked due to non-empty scheduling gates";
            set_condition(&mut pod, false, "SchedulingGated", message);
        }
        self.pod_ids.insert(key(&pod.metadata.namespace, &pod.metadata.name), id);
        let object = Arc::new(pod);
        self.groups.joined(&object, id);
        self.pods.push(Some(StoredPod { object: object.clone(), facts }));
        self.tell(Notice::Pod { id, facts, object, deleted: false, broken: false });
        id
    }

    /// Deletes a pod at once.
    pub(crate) fn delete_pod(&mut self, id: PodId) {
        let Some(pod) = self.pods.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        let StoredPod { mut object, facts } = pod;
        let meta = &object.metadata;
        self.pod_ids.remove(&key(&meta.namespace, &meta.name));
        self.forget_place(&object, id);
        self.groups.left(&object, id);
        Arc::make_mut(&mut object).metadata.resource_version = self.next_revision();
        self.tell(Notice::Pod { id, facts, object, deleted: true, broken: false });
    }

    fn forget_place(&mut self, pod: &Pod, id: PodId) {
        if let Some(set) = self.pods_on.get_mut(&pod.spec.node_name) {
            set.remove(&id);
        }
    }

    /// Changes a pod and tells so, unless nothing changed.
    pub(crate) fn update_pod(&mut self, id: PodId, change: impl FnOnce(&mut Pod)) {
        let Some(Some(stored)) = self.pods.get_mut(id.index()) else {
            return;
        };
        let mut changed = Pod::clone(&stored.object);
        change(&mut changed);
        if changed == *stored.object {
            return; // as a no-op patch: no new version, no watch event
        }
        self.revision += 1;
        changed.metadata.resource_version = self.revision.to_string();
        stored.object = Arc::new(changed);
        let StoredPod { object, facts } = stored.clone();
        self.tell(Notice::Pod { id, facts, object, deleted: false, broken: false });
    }

    /// The binding subresource; its annotations are added to the pod's.
    pub(crate) fn bind(
        &mut self,
        pod: &PodRef,
        node: &str,
        devices: Option<&Predicted>,
    ) -> Result<PodId, ApiError> {
        let name = &pod.name;
        let conflict = |why: &str| Err(ApiError::conflict("pods/binding", name, why));
        let found = self.pod_ids.get(&key(&pod.namespace, name)).copied();
        let Some((id, stored)) = found.and_then(|id| Some((id, self.pod(id)?))) else {
            return Err(ApiError::not_found("pods", name));
        };
        let object = &stored.object;
        if object.metadata.uid != *pod.uid {
            return Err(bind_uid(pod, &object.metadata.uid));
        }
        if object.metadata.deletion_timestamp.is_some() {
            return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        if !object.spec.node_name.is_empty() {
            let other = &object.spec.node_name;
            return conflict(&format!("pod {name} is already assigned to node \"{other}\""));
        }
        if !object.spec.scheduling_gates.is_empty() {
            return conflict(&format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        self.pods_on.entry(node.to_owned()).or_default().insert(id);
        self.update_pod(id, |pod| {
            node.clone_into(&mut pod.spec.node_name);
            pod.status.nominated_node_name.clear();
            set_condition(pod, true, "", "");
            if let Some(devices) = devices {
                let key = PREDICTED_DEVICES.to_owned();
                pod.metadata.annotations.insert(key, devices.text());
            }
        });
        Ok(id)
    }

    /// The status subresource, as the scheduler patches it.
    pub(crate) fn patch_status(&mut self, patch: &StatusPatch) -> Result<PodId, ApiError> {
        let Some(id) = self.find(&patch.pod) else {
            let meta = &patch.pod;
            return Err(match self.pod_named(&meta.namespace, &meta.name) {
                Some(_) => patch_uid(meta),
                None => ApiError::not_found("pods", &meta.name),
            });
        };
        if self.pod(id).is_some_and(|stored| says_already(&stored.object, patch)) {
            return Ok(id); // most retries say the same again
        }
        self.update_pod(id, |pod| {
            if let Some(Condition { status, reason, message, .. }) = &patch.condition {
                set_condition(pod, *status, reason, message);
            }
            if let Some(node) = &patch.nominated_node {
                (**node).clone_into(&mut pod.status.nominated_node_name);
            }
        });
        Ok(id)
    }

    /// A note on a pod, as the scheduler patches it.
    pub(crate) fn annotate(
        &mut self,
        pod: &PodRef,
        key: &str,
        value: String,
    ) -> Result<(), ApiError> {
        let Some(id) = self.find(pod) else {
            return Err(match self.pod_named(&pod.namespace, &pod.name) {
                Some(_) => patch_uid(pod),
                None => ApiError::not_found("pods", &pod.name),
            });
        };
        self.note(id, key, value);
        Ok(())
    }

    /// A note on a pod, whoever writes it.
    pub(crate) fn note(&mut self, id: PodId, key: &str, value: String) {
        self.update_pod(id, |pod| drop(pod.metadata.annotations.insert(key.to_owned(), value)));
    }

    /// The status subresource, as the kubelet writes it.
    pub(crate) fn set_phase(&mut self, now: Tick, id: PodId, phase: &str) {
        self.set_status(now, id, phase, "");
    }

    /// A kubelet refuses a pod.
    pub(crate) fn refuse(&mut self, now: Tick, id: PodId, reason: &str) {
        self.set_status(now, id, "Failed", reason);
    }

    fn set_status(&mut self, now: Tick, id: PodId, phase: &str, reason: &str) {
        self.update_pod(id, |pod| {
            phase.clone_into(&mut pod.status.phase);
            reason.clone_into(&mut pod.status.reason);
            pod.status.start_time.get_or_insert(timestamp(now));
            let ready = if phase == "Running" { "True" } else { "False" };
            put_condition(
                pod,
                PodCondition {
                    kind: "Ready".to_owned(),
                    status: ready.to_owned(),
                    ..PodCondition::default()
                },
            );
        });
        let Some(object) = self.pod(id).map(|stored| stored.object.clone()) else {
            return;
        };
        if is_terminal(&object) {
            self.forget_place(&object, id);
        }
    }
}

/// Whether a patch would change nothing.
fn says_already(pod: &Pod, patch: &StatusPatch) -> bool {
    let same_condition = patch.condition.as_ref().is_none_or(|wanted| {
        pod.status.conditions.iter().any(|c| {
            c.kind == "PodScheduled"
                && (c.status == "True") == wanted.status
                && c.reason == wanted.reason
                && c.message == *wanted.message
        })
    });
    let nominated = &pod.status.nominated_node_name;
    same_condition && patch.nominated_node.as_ref().is_none_or(|node| **node == **nominated)
}

fn set_condition(pod: &mut Pod, status: bool, reason: &str, message: &str) {
    let condition = PodCondition {
        kind: "PodScheduled".to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    put_condition(pod, condition);
}

/// Sets a condition of its type.
pub(crate) fn put_condition(pod: &mut Pod, condition: PodCondition) {
    match pod.status.conditions.iter_mut().find(|c| c.kind == condition.kind) {
        Some(old) => *old = condition,
        None => pod.status.conditions.push(condition),
    }
}
