//! Inputs: what the outside says, folded into the state.

use std::sync::Arc;

use muster_api::k8s;
use muster_api::muster::{MAX_CHECKPOINT_SECONDS, annotations};

use super::Core;
use super::restraint::Seeker;
use crate::bugs::bug;
use crate::cluster::{GroupKey, NodeBefore, NodeId, Owner, object_key};
use crate::framework::{Actions, ClusterEvent, ProfileId, Resource, Subject};
use crate::gang::Api;
use crate::io::{Change, Input, Kind, Object, ObjectKey, PodRef, Reply, Tick};
use crate::model::{LabelSet, Pod, PodId, PodShape, PodStage, Predicted, Taint, TaintEffect};
use crate::queue::{QueueCx, Reach};
use crate::report::Observation;

pub(super) fn key_text(namespace: &str, name: &str) -> String {
    let mut key = String::with_capacity(namespace.len() + name.len() + 1);
    key.push_str(namespace);
    key.push('/');
    key.push_str(name);
    key
}

impl Core {
    pub(super) fn ingest(&mut self, now: Tick, input: Input) {
        match input {
            Input::Node(Change::Upsert(node)) => self.upsert_node(now, &node),
            Input::Node(Change::Delete(key)) => self.delete_node(now, &key.name),
            Input::Pod(Change::Upsert(pod)) => self.upsert_pod(now, &pod),
            Input::Pod(Change::Delete(key)) => self.delete_pod_by_key(now, &key),
            Input::Object(object) => self.upsert_object(now, *object),
            Input::ObjectGone(kind, key) => self.delete_object(now, kind, &key),
            Input::Ended(kind, change) => self.member_ended(now, kind, change),
            Input::Refused(pod) => self.pod_failed(now, &pod),
            Input::RelistStarted(kind) => self.relists[kind as usize] += 1,
            Input::RelistDone(kind) => self.sweep(now, kind),
            Input::BindDone { pod, attempt, result } => self.bind_done(now, &pod, attempt, result),
            Input::Reply { token, reply: Reply::Evicted(eviction) } => {
                if !self.released(token, &eviction) {
                    self.evicted(now, token, &eviction);
                }
            }
            Input::Reply { token, reply: Reply::Extender(reply) } => {
                self.extender_replied(now, token, reply);
            }
            Input::Reply { token, reply } => self.reply(now, token, &reply),
            Input::Permit { pod, plugin, verdict } => {
                self.permit_verdict(now, &pod, &plugin, verdict);
            }
            Input::Data(datum) => self.take_data(now, &datum),
        }
    }

    /// The pod of that name and UID.
    pub(super) fn find(&self, key: &PodRef) -> Option<PodId> {
        let pod = *self.by_key.get(key_text(&key.namespace, &key.name).as_str())?;
        (self.cluster.pod(pod)?.key.uid == key.uid).then_some(pod)
    }

    pub(super) fn queue_event(&mut self, now: Tick, event: &ClusterEvent) {
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.on_event(&cx, event, Reach::default());
    }

    pub(super) fn malformed(&mut self, kind: &'static str, error: String) {
        self.observations.push(Observation::Malformed { kind, error });
    }

    // ---- nodes -------------------------------------------------------------

    fn upsert_node(&mut self, now: Tick, node: &k8s::Node) {
        if node.metadata.name.is_empty() {
            return self.malformed("Node", "a Node without metadata.name was skipped".into());
        }
        let seen = self.relists[Kind::Node as usize];
        let (_, had_domains) = self.domains();
        let mut change = self.cluster.upsert_node(node, seen);
        if self.domains().1 != had_domains {
            self.scheduling_policies_changed(now);
        }
        if let Some(before) = &change.before {
            let now = self.cluster.node(change.node);
            // A cordon helps nobody; its end is told as a change of taints.
            if now.taints == before.info.taints && now.unschedulable {
                change.actions = change.actions.without(Actions::UPDATE_NODE_TAINT);
            }
        }
        if change.before.is_none() {
            let made = node.metadata.creation_timestamp.unwrap_or_default();
            self.node_came(now, change.node, Tick(made.0));
        }
        for &pod in &change.came {
            self.expect_report(now, pod);
            self.assigned(now, pod, None);
            self.gang_stirred(pod, false);
        }
        if let Some(what) = change.before.as_ref().and_then(|before| self.shut(change.node, before))
        {
            self.node_shut(now, change.node, what);
        }
        if change.actions == Actions::NONE {
            return;
        }
        self.topology_news |= change.actions.intersects(Actions::UPDATE_NODE_LABEL);
        let label = change.actions.of_node();
        let before = change.before.map(Arc::new);
        let event = ClusterEvent {
            resource: Resource::Node,
            actions: change.actions,
            label,
            subject: Subject::Node { node: change.node, before },
        };
        self.queue_event(now, &event);
    }

    fn delete_node(&mut self, now: Tick, name: &str) {
        let before = self.cluster.node_before(name).map(Arc::new);
        if let Some(node) = self.cluster.remove_node(name) {
            // Gangs first: nobody refused them, so they do not back off.
            self.node_shut(now, node, "was deleted");
            self.node_went(node);
            self.forget_refusals(node);
            self.node_lost(now, node, name);
            // Whoever was there is in no domain any more.
            self.fence_news = true;
            let event = ClusterEvent {
                resource: Resource::Node,
                actions: Actions::DELETE,
                label: "NodeDelete",
                subject: Subject::Node { node, before },
            };
            self.queue_event(now, &event);
        }
    }

    /// How a node has come to take no pods, if it has.
    fn shut(&self, node: NodeId, before: &NodeBefore) -> Option<&'static str> {
        let now = self.cluster.node(node);
        if now.unschedulable && !before.info.unschedulable {
            return Some("was cordoned");
        }
        let repels = |t: &&Taint| t.effect != TaintEffect::PreferNoSchedule;
        let mut repelling = now.taints.iter().filter(repels);
        repelling.any(|t| !before.info.taints.contains(t)).then_some("was tainted")
    }

    /// A member of a gang has ended, or is tidied away.
    fn member_ended(&mut self, now: Tick, kind: Kind, change: Change<k8s::Pod>) {
        let seen = self.relists[kind as usize];
        let changed = match change {
            Change::Upsert(pod) => {
                let meta = &pod.metadata;
                let key = key_text(&meta.namespace, &meta.name);
                let known = self.by_key.get(key.as_str()).and_then(|id| self.cluster.pod(*id));
                if known.is_some_and(|p| *p.key.uid == *meta.uid) {
                    self.delete_pod(now, &meta.namespace, &meta.name);
                }
                let ours = self.by_scheduler.contains_key(pod.spec.scheduler_name.as_str());
                let succeeded = ours && pod.status.phase == "Succeeded";
                self.cluster.member_ended(&pod, succeeded, seen)
            }
            Change::Delete(key) => self.cluster.ended_gone(&key.uid),
        };
        changed.into_iter().for_each(|gang| self.queue.gang_changed(gang, true));
    }

    // ---- other kinds --------------------------------------------------------

    fn upsert_object(&mut self, now: Tick, object: Object) {
        let kind = object.kind();
        if object.metadata().name.is_empty() {
            let error = format!("a {kind:?} without metadata.name was skipped");
            return self.malformed("Object", error);
        }
        if kind.is_node_report() {
            return self.node_reported(now, &object);
        }
        let seen = self.relists[kind as usize];
        if kind.is_relation() {
            if self.cluster.set_related(&object, seen) && kind == Kind::Namespace {
                self.namespace_changed(now, &object.metadata().name);
            }
            return;
        }
        if let Object::SchedulingPolicy(policy) = &object {
            if self.cluster.set_scheduling_policy(policy, seen) {
                self.scheduling_policies_changed(now);
            }
            return;
        }
        if kind.is_policy() {
            if self.cluster.policies_mut().upsert(object, seen) {
                self.policy_changed(now, kind);
            }
            return;
        }
        if kind.is_pod_group() {
            let meta = object.metadata();
            let held = self.cluster.gang_of(kind, &meta.namespace, &meta.name);
            let held = held.is_some_and(|gang| self.has_topology(gang));
            if let Some(gang) = self.cluster.set_gang(&object, seen) {
                self.open_fences(now);
                self.queue.gang_changed(gang, true);
                if held {
                    self.call_members(now, gang);
                }
            }
            return;
        }
        if let Object::ClusterTopology(topology) = &object {
            self.topology_news |= self.cluster.topologies_mut().upsert(topology, seen);
            return;
        }
        let key = object_key(kind, &object.metadata().namespace, &object.metadata().name);
        if let Some(event) = self.cluster.volumes_mut().upsert(object, seen) {
            self.queue_event(now, &event);
            self.volumes_changed(now, &key);
        }
    }

    fn delete_object(&mut self, now: Tick, kind: Kind, key: &ObjectKey) {
        if kind == Kind::RefusedPod {
            return;
        }
        if kind.is_node_report() {
            return self.node_report_gone(now, kind, &key.name);
        }
        if kind.is_relation() {
            if self.cluster.remove_related(kind, &key.namespace, &key.name)
                && kind == Kind::Namespace
            {
                self.namespace_changed(now, &key.name);
            }
            return;
        }
        if kind == Kind::SchedulingPolicy {
            if self.cluster.remove_scheduling_policy(&key.name) {
                self.scheduling_policies_changed(now);
            }
            return;
        }
        if kind.is_policy() {
            if self.cluster.policies_mut().remove(kind, key) {
                self.policy_changed(now, kind);
            }
            return;
        }
        if let Some(api) = Api::of_kind(kind).filter(|_| kind.is_pod_group()) {
            let gone = self.cluster.unset_gang(api, &key.namespace, &key.name);
            self.open_fences(now);
            gone.into_iter().for_each(|gang| self.queue.gang_changed(gang, true));
            return;
        }
        if kind == Kind::ClusterTopology {
            self.topology_news |= self.cluster.topologies_mut().remove(&key.name);
            return;
        }
        if let Some(event) = self.cluster.volumes_mut().remove(kind, key) {
            self.queue_event(now, &event);
            self.volumes_changed(now, &object_key(kind, &key.namespace, &key.name));
        }
    }

    /// A budget changed: what it kept from being evicted may go now.
    fn policy_changed(&mut self, now: Tick, kind: Kind) {
        match kind {
            Kind::PodDisruptionBudget => self.budgets_changed(now),
            // What its pods tolerate may be something else.
            _ => self.protections_changed(now),
        }
    }

    /// Budgets may allow more than they did.
    pub(super) fn budgets_changed(&mut self, now: Tick) {
        let event = ClusterEvent {
            resource: Resource::PodDisruptionBudget,
            actions: Actions::UPDATE,
            label: "PodDisruptionBudgetChange",
            subject: Subject::None,
        };
        self.queue_event(now, &event);
    }

    /// A pod is on a node now, or its labels changed there.
    fn assigned(&mut self, now: Tick, id: PodId, before: Option<Arc<GroupKey>>) {
        let Some((shape, group)) = self.cluster.kind_of(id) else {
            return;
        };
        let (actions, label) = match before {
            None => (Actions::ADD, "AssignedPodAdd"),
            Some(_) => (Actions::UPDATE_POD_LABEL, "AssignedPodUpdatePodLabel"),
        };
        let subject = Subject::Pod { shape, group, before };
        let event = ClusterEvent { resource: Resource::AssignedPod, actions, label, subject };
        self.queue_event(now, &event);
    }

    /// A pod on a node changed in a way that has no event of its own.
    fn assigned_changed(&mut self, now: Tick, id: PodId) {
        let Some((shape, group)) = self.cluster.kind_of(id) else {
            return;
        };
        let event = ClusterEvent {
            resource: Resource::AssignedPod,
            actions: Actions::UPDATE,
            label: "AssignedPodUpdate",
            subject: Subject::Pod { shape, group, before: None },
        };
        self.queue_event(now, &event);
    }

    // ---- pods --------------------------------------------------------------

    fn upsert_pod(&mut self, now: Tick, wire: &k8s::Pod) {
        let meta = &wire.metadata;
        if meta.name.is_empty() {
            let error = format!(
                "a Pod without metadata.name in namespace {:?} was skipped",
                meta.namespace
            );
            return self.malformed("Pod", error);
        }
        if matches!(wire.status.phase.as_str(), "Succeeded" | "Failed") {
            self.pod_failed(now, wire);
            return self.delete_pod(now, &meta.namespace, &meta.name);
        }
        let key = key_text(&meta.namespace, &meta.name);
        let mut known = self.by_key.get(key.as_str()).copied();
        if let Some(pod) = known
            && self.cluster.pod(pod).is_none_or(|p| *p.key.uid != *meta.uid)
        {
            self.delete_pod(now, &meta.namespace, &meta.name);
            known = None;
        }
        match known {
            // The watch of ended members was faster: what this one still shows is old.
            None if self.cluster.has_succeeded(&meta.uid) => {}
            None => self.add_pod(now, key.into(), wire),
            Some(pod) => self.update_pod(now, pod, wire),
        }
    }

    fn add_pod(&mut self, now: Tick, key: Box<str>, wire: &k8s::Pod) {
        let ours = self.by_scheduler.get(wire.spec.scheduler_name.as_str()).copied();
        let ours = ours.or_else(|| bug!(self.bugs, ForeignScheduled).then_some(0));
        let assigned = !wire.spec.node_name.is_empty();
        let Some(profile) = ours.filter(|_| !assigned) else {
            if assigned {
                let shape = self.cluster.compile(wire, None);
                let pod = self.insert_pod(now, key, wire, shape);
                self.put(now, pod, wire);
            }
            return;
        };
        let shape = self.compile(wire, Some(ProfileId(profile as u16)));
        self.cluster.note_demand(now, &shape);
        let pod = self.insert_pod(now, key, wire, shape);
        self.nomination_shown(now, pod, &wire.status.nominated_node_name);
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.add(&cx, pod, profile);
    }

    pub(super) fn insert_pod(
        &mut self,
        now: Tick,
        key: Box<str>,
        wire: &k8s::Pod,
        shape: PodShape,
    ) -> PodId {
        let shape = self.cluster.intern_shape(shape);
        let meta = &wire.metadata;
        let ours = self.by_scheduler.contains_key(wire.spec.scheduler_name.as_str());
        let mut pod = Pod {
            key: PodRef {
                namespace: meta.namespace.as_str().into(),
                name: meta.name.as_str().into(),
                uid: meta.uid.as_str().into(),
            },
            shape,
            scheduler_name: wire.spec.scheduler_name.as_str().into(),
            ours,
            stage: PodStage::Pending,
            priority: 0,
            may_preempt: true,
            nominated: None,
            nominated_shown: "".into(),
            kept: false,
            nominated_told: None,
            started: None,
            running: false,
            starting: false,
            placed: Tick::default(),
            checkpoint: None,
            checkpoint_wait: None,
            checkpoint_asked: None,
            disrupted: false,
            resource_version: "".into(),
            generation: None,
            deleting: false,
            gates: Box::default(),
            condition: None,
            shown: None,
            conditions: Box::default(),
            created: Tick(meta.creation_timestamp.unwrap_or_default().0),
            seen: 0,
            group: self.cluster.join_group(wire, ours),
            gang: None,
            class: self.cluster.class_of(wire),
            owner: Owner::of(meta),
            crew: None,
            settled: u64::MAX,
            bound: None,
            predicted: None,
        };
        read(&mut pod, wire, self.relists[Kind::Pod as usize]);
        (pod.priority, pod.may_preempt) = self.rank_of(wire);
        let id = self.cluster.add_pod(pod);
        self.by_key.insert(key, id);
        self.cluster.set_crew(id, controller(wire));
        self.cluster.inherit_evictions(id);
        self.regang(now, id, wire);
        id
    }

    /// A pod is in the gang that it names, if it is ours.
    fn regang(&mut self, now: Tick, id: PodId, wire: &k8s::Pod) {
        let ours = self.by_scheduler.contains_key(wire.spec.scheduler_name.as_str());
        let (left, joined) = self.cluster.regang(id, Some(wire).filter(|_| ours));
        self.fence_news |= left.is_some();
        if left.is_some_and(|gang| self.has_topology(gang)) {
            // It need not be near anybody any more.
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.call(&cx, id, "TopologyChange");
        }
        for gang in left.into_iter().chain(joined) {
            self.queue.gang_changed(gang, true);
        }
    }

    /// Priority, and whether the pod may preempt.
    fn rank_of(&self, wire: &k8s::Pod) -> (i32, bool) {
        let policies = self.cluster.policies();
        (policies.priority_of(wire), policies.may_preempt(wire))
    }

    fn update_pod(&mut self, now: Tick, id: PodId, wire: &k8s::Pod) {
        let seen = self.relists[Kind::Pod as usize];
        let Some(pod) = self.cluster.pod_mut(id) else {
            return;
        };
        let same = *pod.resource_version == *wire.metadata.resource_version;
        pod.seen = seen;
        if same && !pod.resource_version.is_empty() {
            return;
        }
        let (stage, gated_before) = (pod.stage, !pod.gates.is_empty());
        let (started, leaving) = (pod.started, pod.deleting);
        let conditions = std::mem::take(&mut pod.conditions);
        read(pod, wire, seen);
        let reconditioned = pod.conditions != conditions;
        let leaves = pod.deleting != leaving;
        let rank = self.rank_of(wire);
        let Some(pod) = self.cluster.pod_mut(id) else {
            return;
        };
        (pod.priority, pod.may_preempt) = rank;
        let starts = !pod.running && !pod.deleting;
        pod.owner = Owner::of(&wire.metadata);
        let restarted = pod.started != started;
        self.nomination_shown(now, id, &wire.status.nominated_node_name);
        if let Some(node) = stage.node().filter(|_| restarted) {
            // Preemption ranks victims by it.
            self.cluster.journal.push(node);
        }
        if let Some(node) = stage.node().filter(|_| !starts)
            && self.cluster.end_start(id, node)
        {
            self.start_ended(now);
        }
        let assigned = !wire.spec.node_name.is_empty();
        self.cluster.set_crew(id, controller(wire));
        self.regang(now, id, wire);
        let relabeled = self.cluster.regroup(id, wire);
        let relabeled = relabeled.filter(|was| was.labels != LabelSet::of(&wire.metadata.labels));
        // Who goes does not count for its gang any more, and labels say in which role.
        if leaves || relabeled.is_some() {
            self.gang_stirred(id, true);
        }
        match stage {
            PodStage::Pending if !assigned => {
                let changed = (relabeled.is_some(), reconditioned);
                self.update_pending(now, id, wire, gated_before, changed);
            }
            PodStage::Pending => {
                self.queue.remove(id);
                self.stop_asking(id);
                self.drop_plan(now, id);
                let expected = self.cluster.pod(id).and_then(|p| p.nominated.as_deref());
                if expected.is_some_and(|node| *node != *wire.spec.node_name) {
                    self.expected_room_freed(now, id);
                }
                self.set_bound(now, id, wire);
            }
            PodStage::Assumed(_) if !assigned => {
                self.update_assumed(now, id, wire, reconditioned);
            }
            PodStage::Assumed(node) => {
                let here = *self.cluster.node(node).name == *wire.spec.node_name;
                if here && !self.unsent(id) {
                    self.confirm(now, id, wire);
                } else {
                    // Somebody else bound it: our room is free again.
                    self.queue.remove(id);
                    if here {
                        self.unreserve(id);
                    } else {
                        self.release(now, id);
                        self.vacate(now, id);
                    }
                    self.set_bound(now, id, wire);
                }
            }
            PodStage::Bound(_) if assigned => {
                let shrunk = self.recharge(now, id, wire);
                if relabeled.is_some() {
                    self.assigned(now, id, relabeled);
                } else if !shrunk {
                    self.assigned_changed(now, id);
                }
            }
            PodStage::Away(_) if assigned => drop(self.recharge(now, id, wire)),
            PodStage::Bound(_) | PodStage::Away(_) => {}
        }
        if matches!(stage, PodStage::Pending | PodStage::Assumed(_)) && assigned {
            // From now on it is seen to be bound: its gang may be whole.
            self.gang_stirred(id, false);
        }
        self.condition_seen(now, id);
        self.saving_news(now, id);
    }

    fn update_pending(
        &mut self,
        now: Tick,
        id: PodId,
        wire: &k8s::Pod,
        gated_before: bool,
        changed: (bool, bool),
    ) {
        let Some(pod) = self.cluster.pod(id) else {
            return;
        };
        let before = Arc::clone(self.cluster.shape(pod.shape));
        let compiled = self.compile(wire, before.profile);
        let ungated = gated_before && wire.spec.scheduling_gates.is_empty();
        let event = own_event(&before, &compiled, ungated, changed);
        if compiled != *before {
            let left = self.cluster.kind_of(id).filter(|_| shrank(&before, &compiled));
            self.swap_shape(id, compiled);
            self.asks_otherwise(now, id, left);
        }
        let leaves = self.cluster.pod(id).is_some_and(|p| p.deleting);
        // Nobody goes for a pod that goes itself.
        let plan = if leaves { self.drop_plan(now, id) } else { None };
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        if plan.is_some() {
            self.queue.unhold(&cx, id);
        }
        self.queue.updated(&cx, id, &event);
    }

    /// A pod on its way to a node changed. It keeps the room it has; what it has
    /// become counts if it is tried again.
    fn update_assumed(&mut self, now: Tick, id: PodId, wire: &k8s::Pod, reconditioned: bool) {
        let Some(pod) = self.cluster.pod(id) else {
            return;
        };
        if pod.deleting && (self.at_permit(id) || self.round_of(id).is_some()) {
            self.queue.remove(id);
            self.release(now, id);
            // Nothing is left for who goes.
            self.nominate(now, id, None);
            return;
        }
        let before = Arc::clone(self.cluster.shape(pod.shape));
        let compiled = self.compile(wire, before.profile);
        let Some(binding) = self.bindings.get_mut(&id) else {
            return;
        };
        let changed = (false, reconditioned);
        let event =
            own_event(binding.updated.as_deref().unwrap_or(&before), &compiled, false, changed);
        binding.updated = (compiled != *before).then(|| Box::new(compiled));
        // What ended its wait is no news to it.
        if self.permit_changed(now, id) {
            return;
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.updated(&cx, id, &event);
    }

    pub(super) fn swap_shape(&mut self, id: PodId, shape: PodShape) {
        let new = self.cluster.intern_shape(shape);
        if let Some(pod) = self.cluster.pod_mut(id) {
            let old = std::mem::replace(&mut pod.shape, new);
            self.cluster.release_shape(old);
        }
    }

    /// A pending pod turns out to be bound.
    fn set_bound(&mut self, now: Tick, id: PodId, wire: &k8s::Pod) {
        let compiled = self.cluster.compile(wire, None);
        self.swap_shape(id, compiled);
        self.put(now, id, wire);
    }

    /// Puts a bound pod on its node. On one that is not known it helps nobody, so
    /// nobody is told before that is.
    fn put(&mut self, now: Tick, id: PodId, wire: &k8s::Pod) {
        self.seeks_no_more(Seeker::Pod(id));
        let here = self.cluster.put(id, &wire.spec.node_name);
        // What was expected of the kubelet when it was bound, whoever bound it.
        let devices = wire.metadata.annotations.get(annotations::PREDICTED_DEVICES);
        self.cluster.predict(id, devices.and_then(|text| Predicted::parse(text)).map(Arc::new));
        if here {
            self.expect_report(now, id);
            self.assigned(now, id, None);
        }
    }

    /// The watch shows our bind.
    fn confirm(&mut self, now: Tick, id: PodId, wire: &k8s::Pod) {
        if let Some(pod) = self.cluster.pod_mut(id)
            && let PodStage::Assumed(node) = pod.stage
        {
            pod.stage = PodStage::Bound(node);
        }
        self.bound(now, id);
        self.seeks_no_more(Seeker::Pod(id));
        self.recharge(now, id, wire);
        self.expect_report(now, id);
        self.assigned(now, id, None);
    }

    /// What a placed pod occupies may have changed (in-place resize); true if it
    /// occupies less of anything.
    fn recharge(&mut self, now: Tick, id: PodId, wire: &k8s::Pod) -> bool {
        let compiled = self.cluster.compile(wire, None);
        let Some(pod) = self.cluster.pod(id) else {
            return false;
        };
        let away = matches!(pod.stage, PodStage::Away(_));
        let before = Arc::clone(self.cluster.shape(pod.shape));
        if compiled.requests == before.requests && compiled.ports == before.ports {
            return false;
        }
        if away {
            self.swap_shape(id, compiled);
            return false;
        }
        let Some(node) = self.cluster.displace(id) else {
            return false;
        };
        let less = shrank(&before, &compiled);
        self.swap_shape(id, compiled);
        self.cluster.place(id, node, false);
        if let Some((after, _)) = self.cluster.kind_of(id).filter(|_| less) {
            let event = ClusterEvent {
                resource: Resource::AssignedPod,
                actions: Actions::UPDATE_POD_SCALE_DOWN,
                label: "AssignedPodUpdatePodScaleDown",
                subject: Subject::Resized { before, after },
            };
            self.queue_event(now, &event);
        }
        less
    }

    fn delete_pod_by_key(&mut self, now: Tick, key: &ObjectKey) {
        let known = self.by_key.get(key_text(&key.namespace, &key.name).as_str()).copied();
        let uid = known.and_then(|p| self.cluster.pod(p)).map(|p| Arc::clone(&p.key.uid));
        if uid.is_some_and(|uid| key.uid.is_empty() || *uid == *key.uid) {
            self.delete_pod(now, &key.namespace, &key.name);
        }
    }

    pub(super) fn delete_pod(&mut self, now: Tick, namespace: &str, name: &str) {
        let Some(pod) = self.by_key.remove(key_text(namespace, name).as_str()) else {
            return;
        };
        self.queue.remove(pod);
        self.stop_asking(pod);
        self.unremind(pod);
        self.drop_plan(now, pod);
        self.seeks_no_more(Seeker::Pod(pod));
        let made_room = self.victim_on(pod);
        self.forget_victim(now, pod);
        let started = self.cluster.pod(pod).is_none_or(|p| !p.starting);
        self.release(now, pod);
        self.vacate(now, pod);
        if !started {
            self.start_ended(now);
        }
        if let Some((node, priority)) = made_room {
            self.victim_left(now, node, priority);
        }
        if !bug!(self.bugs, NominationLeaked) {
            self.nominate(now, pod, None);
        }
        let (left, _) = self.cluster.regang(pod, None);
        left.into_iter().for_each(|gang| self.queue.gang_changed(gang, true));
        self.cluster.drop_pod(pod);
    }

    /// A relist is complete: what it did not show is gone.
    fn sweep(&mut self, now: Tick, kind: Kind) {
        let seen = self.relists[kind as usize];
        if bug!(self.bugs, RelistKeeps) {
            return;
        }
        match kind {
            Kind::Node => {
                for name in self.cluster.stale_nodes(seen) {
                    self.delete_node(now, &name);
                }
            }
            Kind::Pod => {
                let stale = self.cluster.pods().filter(|(_, p)| p.seen < seen);
                let stale: Vec<PodRef> = stale.map(|(_, p)| p.key.clone()).collect();
                for key in stale {
                    self.delete_pod(now, &key.namespace, &key.name);
                }
            }
            relation if relation.is_relation() => {
                for (namespace, name) in self.cluster.stale_related(relation, seen) {
                    let key = ObjectKey { namespace, name, uid: String::new() };
                    self.delete_object(now, relation, &key);
                }
            }
            Kind::SchedulingPolicy => {
                if self.cluster.sweep_scheduling_policies(seen) {
                    self.scheduling_policies_changed(now);
                }
            }
            group if group.is_pod_group() => {
                let api = Api::of_kind(group).unwrap_or_default();
                for gang in self.cluster.stale_gangs(api, seen) {
                    let gone = self.cluster.unset_gang(api, &gang.namespace, &gang.name);
                    gone.into_iter().for_each(|gang| self.queue.gang_changed(gang, true));
                }
                self.open_fences(now);
            }
            ended if ended.is_ended() => {
                let api = Api::of_kind(ended).unwrap_or_default();
                for gang in self.cluster.sweep_ended(api, seen) {
                    self.queue.gang_changed(gang, true);
                }
            }
            Kind::ClusterTopology => {
                self.topology_news |= self.cluster.topologies_mut().sweep(seen);
            }
            report if report.is_node_report() => self.sweep_node_reports(now, report),
            Kind::RefusedPod => {}
            policy if policy.is_policy() => {
                if self.cluster.policies_mut().sweep(policy, seen) {
                    self.policy_changed(now, policy);
                }
            }
            _ => {
                for event in self.cluster.volumes_mut().sweep(kind, seen) {
                    self.queue_event(now, &event);
                }
            }
        }
    }
}

/// Takes over what may change in a pod without touching its shape.
fn read(pod: &mut Pod, wire: &k8s::Pod, seen: u64) {
    pod.resource_version = wire.metadata.resource_version.as_str().into();
    pod.generation = wire.metadata.generation;
    pod.deleting = wire.metadata.deletion_timestamp.is_some();
    pod.gates = wire.spec.scheduling_gates.iter().map(|g| g.name.as_str().into()).collect();
    let condition = wire.status.conditions.iter().find(|c| c.kind == "PodScheduled");
    pod.condition = condition
        .map(|c| (c.status == "True", c.reason.as_str().into(), c.message.as_str().into()));
    pod.shown = pod.condition.as_ref().map(|(status, ..)| *status);
    let others = wire.status.conditions.iter().filter(|c| c.kind != "PodScheduled");
    let others = others.filter(|_| wire.spec.node_name.is_empty());
    pod.conditions = others.cloned().collect();
    pod.started = wire.status.start_time.map(|t| Tick(t.0));
    pod.running = wire.status.phase == "Running";
    pod.checkpoint = time_on(wire, annotations::LAST_CHECKPOINT);
    pod.checkpoint_wait = checkpoint_wait(wire);
    pod.checkpoint_asked = time_on(wire, annotations::CHECKPOINT_REQUESTED);
    let target = wire.status.conditions.iter().find(|c| c.kind == "DisruptionTarget");
    pod.disrupted = target.is_some_and(|c| {
        c.status == "True"
            && matches!(c.reason.as_str(), "PreemptionByScheduler" | "EvictionByEvictionAPI")
    });
    pod.seen = seen;
}

/// A time that an annotation says: when the pod last saved its work, when it was asked to. What
/// cannot be read says nothing.
fn time_on(wire: &k8s::Pod, name: &str) -> Option<Tick> {
    let text = wire.metadata.annotations.get(name)?;
    k8s::Time::parse(text).ok().map(|time| Tick(time.0))
}

/// How long a pod wants to be waited for before it is pushed out, in seconds.
fn checkpoint_wait(wire: &k8s::Pod) -> Option<i64> {
    let text = wire.metadata.annotations.get(annotations::CHECKPOINT_BEFORE_EVICTION)?;
    let wait: i64 = text.parse().ok().filter(|wait| *wait > 0)?;
    Some(wait.min(MAX_CHECKPOINT_SECONDS))
}

/// The UID of a pod's managing controller, of whatever kind.
fn controller(wire: &k8s::Pod) -> Option<&str> {
    let owner = wire.metadata.owner_references.iter().find(|owner| owner.controller)?;
    Some(owner.uid.as_str()).filter(|uid| !uid.is_empty())
}

/// The event that a pod's own change is to itself.
/// `changed`: its labels, its conditions.
fn own_event(
    before: &PodShape,
    after: &PodShape,
    ungated: bool,
    (relabeled, reconditioned): (bool, bool),
) -> ClusterEvent {
    let mut actions = if relabeled { Actions::UPDATE_POD_LABEL } else { Actions::NONE };
    if ungated {
        actions = actions | Actions::UPDATE_POD_GATES_ELIMINATED;
    }
    if after.tolerations != before.tolerations {
        actions = actions | Actions::UPDATE_POD_TOLERATION;
    }
    if shrank(before, after) {
        actions = actions | Actions::UPDATE_POD_SCALE_DOWN;
    }
    // As upstream: what has no action of its own is a general update.
    if actions == Actions::NONE {
        actions = Actions::UPDATE;
    }
    let label = actions.of_target();
    if reconditioned {
        actions = actions | Actions::UPDATE_POD_CONDITION;
    }
    ClusterEvent { resource: Resource::TargetPod, actions, label, subject: Subject::Target }
}

/// Whether any request got smaller.
fn shrank(before: &PodShape, after: &PodShape) -> bool {
    let now = &after.requests.charged;
    before
        .requests
        .charged
        .iter()
        .any(|(id, amount)| now.iter().find(|(r, _)| r == id).map_or(0, |(_, a)| *a) < *amount)
}
