//! What goes in and comes out: inputs taken in, effects judged.

use super::Audit;
use super::attempts::Failure;
use super::pods::{MOST_UNKNOWNS, Place, Pod, Stage};
use super::world::key_of;
use crate::RELEASE;
use crate::gang::Api;
use crate::io::{
    Change, Effect, EventRecord, ExtenderCall, Input, Kind, Object, PodRef, Removal, Reply,
    Request, StatusPatch, Tick, WriteError,
};

/// Notes of events are cut somewhere beyond this.
const WHOLE_NOTE: usize = 1000;

/// The reason of the event about a pod that had to make room.
const PREEMPTED: &str = "Preempted";
const ASKED_TO_SAVE: &str = "CheckpointRequested";

pub(super) fn key(pod: &PodRef) -> String {
    key_of(&pod.namespace, &pod.name)
}

impl Audit {
    pub(super) fn see_input(&mut self, now: Tick, input: &Input) {
        self.owing();
        match input {
            Input::Node(Change::Upsert(node)) => {
                if !self.world.nodes.contains_key(&node.metadata.name) {
                    self.devices.node_changed(&node.metadata.name);
                }
                self.world.upsert_node(node);
            }
            Input::Node(Change::Delete(key)) => {
                self.world.nodes.remove(&key.name);
                self.devices.node_changed(&key.name);
            }
            // Old news of a member that has ended.
            Input::Pod(Change::Upsert(pod)) if self.groups.has_succeeded(&pod.metadata.uid) => {
                let meta = &pod.metadata;
                let live = key_of(&meta.namespace, &meta.name);
                self.world.forget(&live);
            }
            Input::Pod(Change::Upsert(pod)) => {
                let profile = self.profile(&pod.spec.scheduler_name);
                self.pod_failed(now, pod);
                self.devices.shown(pod);
                self.world.upsert_pod(now, pod, profile);
                // A plugin may wait for just that.
                let mut others = pod.status.conditions.iter().filter(|c| c.kind != "PodScheduled");
                if others.any(|c| c.status == "True") {
                    self.may_go_on(&key_of(&pod.metadata.namespace, &pod.metadata.name));
                }
            }
            Input::Pod(Change::Delete(key)) => self.world.delete_pod(key),
            Input::RelistStarted(kind) => self.world.relist_started(*kind),
            Input::RelistDone(kind) => {
                self.groups.relist_done(*kind, self.world.relists[*kind as usize]);
                self.levels.relist_done(*kind, self.world.relists[*kind as usize]);
                self.policies.relist_done(*kind, self.world.relists[*kind as usize]);
                self.buckets.keep(|policy| self.policies.knows(policy));
                self.devices.relist_done(*kind, self.world.relists[*kind as usize]);
                let nodes: Vec<String> = self.world.nodes.keys().cloned().collect();
                self.world.relist_done(*kind);
                for node in nodes.iter().filter(|node| !self.world.nodes.contains_key(*node)) {
                    self.devices.node_changed(node);
                }
            }
            Input::BindDone { pod, attempt, result } => {
                self.answered(now, pod, *attempt, result.as_ref().err());
            }
            Input::Permit { pod, verdict: Ok(()), .. } if self.world.find(pod).is_some() => {
                self.may_go_on(&key(pod));
            }
            Input::Ended(kind, Change::Upsert(pod)) => {
                let meta = &pod.metadata;
                let live = key_of(&meta.namespace, &meta.name);
                if self.world.pods.get(&live).is_some_and(|p| p.uid == meta.uid) {
                    self.world.forget(&live);
                }
                let ours = self.profile(&pod.spec.scheduler_name).is_some();
                self.groups.ended(pod, ours, self.world.relists[*kind as usize]);
            }
            Input::Ended(_, Change::Delete(key)) => self.groups.ended_gone(&key.uid),
            Input::Reply { token, reply: Reply::Evicted(eviction) } => {
                self.plans.answer(now, *token, eviction);
                self.call_answered();
            }
            Input::Reply { token, .. } => {
                self.pre_bind_answered(*token);
                if let Some(pod) = self.asked.remove(token) {
                    self.may_go_on(&pod);
                }
            }
            Input::Object(object) => {
                if let Object::PodDisruptionBudget(budget) = &**object {
                    self.world.upsert_budget(budget);
                }
                self.groups.upsert(object, self.world.relists[object.kind() as usize]);
                self.levels.upsert(object, self.world.relists[object.kind() as usize]);
                self.policies.upsert(object, self.world.relists[object.kind() as usize]);
                self.devices.upsert(object, self.world.relists[object.kind() as usize]);
            }
            Input::ObjectGone(Kind::PodDisruptionBudget, key) => {
                self.world.budgets.remove(&key_of(&key.namespace, &key.name));
            }
            Input::ObjectGone(kind, key) if kind.is_pod_group() => self.groups.remove(*kind, key),
            Input::ObjectGone(kind @ Kind::ClusterTopology, key) => self.levels.remove(*kind, key),
            Input::ObjectGone(kind @ (Kind::SchedulingPolicy | Kind::Namespace), key) => {
                self.policies.remove(*kind, key);
                self.buckets.keep(|policy| self.policies.knows(policy));
            }
            Input::ObjectGone(Kind::NodeTopology, key) => self.devices.remove(key),
            Input::Refused(pod) => self.pod_failed(now, pod),
            // Of other kinds the checker knows nothing: it judges no plugin that reads them.
            Input::ObjectGone(..) | Input::Permit { .. } | Input::Data(_) => {}
        }
        for preemptor in std::mem::take(&mut self.world.lost) {
            self.plans.forget(&preemptor);
            self.unbook(&preemptor);
        }
    }

    /// Perhaps its kubelet refused a pod.
    fn pod_failed(&mut self, now: Tick, pod: &muster_api::k8s::Pod) {
        let profile = self.profile(&pod.spec.scheduler_name);
        let care = profile.and_then(|profile| self.profiles[profile].care);
        let known = self.world.nodes.contains_key(&pod.spec.node_name);
        self.devices.failed(now, pod, care, known);
    }

    /// Whoever holds the pod at Permit may have heard what it waits for.
    fn may_go_on(&mut self, pod: &str) {
        self.world.edit(pod, |p| {
            p.held = false;
            if let Some(Stage::Permit { .. }) = p.stage() {
                p.set_stage(Stage::Permit { allowed: true });
            }
        });
    }

    fn answered(&mut self, now: Tick, pod: &PodRef, attempt: u64, error: Option<&WriteError>) {
        if self.world.find(pod).is_none() {
            return;
        }
        self.world.edit(&key(pod), |p| {
            // Answers to older attempts change nothing.
            if p.stage() != Some(Stage::Sent { attempt }) {
                return;
            }
            let unknowns = p.perhaps.take().map_or(0, |(_, n)| n);
            match error {
                None => p.set_stage(Stage::Agreed),
                Some(WriteError::Unknown(_)) => {
                    p.perhaps = p.node().map(|node| (node.to_owned(), unknowns + 1));
                    p.set_stage(Stage::Unknown { since: now });
                }
                // An attempt before may have been carried out.
                Some(WriteError::Rejected(_)) if unknowns > 0 && unknowns <= MOST_UNKNOWNS => {
                    p.perhaps = p.node().map(|node| (node.to_owned(), unknowns + 1));
                    p.set_stage(Stage::Unknown { since: now });
                }
                Some(WriteError::Conflict(_)) => {
                    p.perhaps = p.node().map(|node| (node.to_owned(), unknowns + 1));
                    p.set_stage(Stage::Conflict { since: now });
                }
                Some(WriteError::NotFound(_) | WriteError::Rejected(_)) => {
                    p.set_stage(Stage::Refused);
                }
            }
        });
    }

    /// A failure that was announced has to be in the pod's condition by the next step.
    pub(super) fn owing(&mut self) {
        self.planned();
        for pod in std::mem::take(&mut self.owing) {
            let owed = self.world.edit(&pod, |p| p.owes.take()).flatten();
            if let Some(message) = owed {
                self.violation("O1", format!("the condition of {pod} does not say: {message}"));
            }
        }
    }

    // ---- effects -----------------------------------------------------------

    pub(super) fn see_effect(&mut self, now: Tick, effect: &Effect) {
        let about = match effect {
            Effect::Group(says) => {
                if says.gave_up {
                    let api = match says.gang.api {
                        Api::Muster => "muster",
                        Api::Native => "native",
                        Api::Coscheduling => "coscheduling",
                    };
                    self.gang_gave_up(&format!("{api}:{}", says.gang));
                }
                return;
            }
            Effect::Bind { pod, .. } | Effect::Call { pod, .. } => pod,
            Effect::PatchStatus(patch) => &patch.pod,
            Effect::Event(event) => &event.pod,
        };
        let name = key(about);
        if let Effect::Event(event) = effect
            && event.reason == PREEMPTED
        {
            // Whoever scheduled it, and even if it is gone by now: it is told why. Who
            // pushed it out of a wait may be tried again at once.
            if let Some(preemptor) = &event.related {
                self.world.edit(&key(preemptor), |p| p.called = true);
            }
            return;
        }
        if let Effect::Event(event) = effect
            && event.reason == ASKED_TO_SAVE
        {
            // About a victim, whoever scheduled it.
            return;
        }
        match self.world.find(about) {
            None => return self.violation("S6", format!("{name} is gone: {}", short(effect))),
            Some(pod) if pod.profile.is_none() => {
                return self.violation("S6", format!("{name} is not ours: {}", short(effect)));
            }
            Some(_) => {}
        }
        match effect {
            Effect::Bind { node, attempt, devices, .. } => {
                self.devices_bound(&name, devices.as_deref());
                if self.world.pods.get(&name).and_then(Pod::stage) == Some(Stage::Gathered) {
                    self.bound_with_gang(&name);
                }
                self.bind(&name, node, *attempt);
            }
            // The bound part of a gang that could not be bound whole: its own budgets hold.
            Effect::Call { plugin, request: Request::Evict { .. }, .. } if **plugin == *RELEASE => {
            }
            Effect::Call {
                request: Request::Evict { victim, how: Removal::Checkpoint { asked } },
                ..
            } => self.asks_to_save(&name, victim, *asked),
            Effect::Call { token, pod, request: Request::Evict { victim, how }, .. } => {
                self.evicts(now, *token, pod, victim, *how);
            }
            Effect::Call { request: Request::Extender { call, .. }, .. } => {
                self.extender(&name, call);
            }
            Effect::Call { token, request: Request::Post(_), .. } => {
                let stage = self.world.pods.get(&name).and_then(Pod::stage);
                match stage {
                    Some(Stage::Permit { .. }) => drop(self.asked.insert(*token, name)),
                    // A member of a gang may be asked for at Permit and at PreBind.
                    Some(Stage::Going | Stage::Gathered) => {}
                    other => {
                        self.violation("binding", format!("{name} asks a server while {other:?}"));
                    }
                }
            }
            Effect::Call { token, .. } => {
                let stage = self.world.pods.get(&name).and_then(Pod::stage);
                match stage {
                    Some(Stage::Gathered) => self.pre_bind_asked(*token, &name),
                    Some(Stage::Going | Stage::Permit { allowed: true }) => {
                        self.world.edit(&name, |p| p.set_stage(Stage::Going));
                    }
                    other => {
                        let what = format!("{name} asks for outside work while {other:?}");
                        self.violation("binding", what);
                    }
                }
            }
            Effect::Group(_) => {}
            Effect::Event(event) => self.event(now, &name, event),
            Effect::PatchStatus(patch) => self.patch(&name, patch),
        }
    }

    /// An extender is asked: in a cycle, or to bind a pod that has room.
    fn extender(&mut self, name: &str, call: &ExtenderCall) {
        let stage = self.world.pods.get(name).and_then(Pod::stage);
        if stage == Some(Stage::Gathered) && matches!(call, ExtenderCall::Bind { .. }) {
            self.bound_with_gang(name);
            self.world.edit(name, |p| p.set_stage(Stage::Lent));
            return;
        }
        let wrong = match (call, stage) {
            (
                ExtenderCall::Bind { .. },
                Some(Stage::Going | Stage::Permit { allowed: true } | Stage::Lent),
            ) => {
                self.world.edit(name, |p| p.set_stage(Stage::Lent));
                return;
            }
            (ExtenderCall::Bind { .. }, _) => "bind it",
            (_, None) => return,
            (_, Some(_)) => "help to find a node for it",
        };
        let what = format!("an extender shall {wrong}, but {name} is {stage:?}");
        self.violation("binding", what);
    }

    fn bind(&mut self, name: &str, node: &str, attempt: u64) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let (reserved, stage) = (pod.node().map(str::to_owned), pod.stage());
        let wrong = if matches!(pod.place, Place::Bound { .. }) {
            Some("S3: it is bound".to_owned())
        } else if pod.perhaps_elsewhere(node) {
            Some(format!("S3: it may be on {:?} already", pod.perhaps))
        } else if reserved.as_deref() != Some(node) {
            Some(format!("S1: its room is on {reserved:?}"))
        } else if attempt <= self.last_attempt {
            Some("S3: the attempt is not new".to_owned())
        } else {
            match stage {
                Some(
                    Stage::Going
                    | Stage::Gathered
                    | Stage::Permit { allowed: true }
                    | Stage::Unknown { .. }
                    | Stage::Conflict { .. }
                    | Stage::Lent,
                ) => None,
                other => Some(format!("S3: it is {other:?}")),
            }
        };
        self.last_attempt = self.last_attempt.max(attempt);
        // What was sent before may have been carried out: it stays where it is.
        if !matches!(stage, Some(Stage::Unknown { .. } | Stage::Conflict { .. } | Stage::Lent)) {
            self.together(name, node, "is bound to");
        }
        if let Some((invariant, why)) = wrong.as_deref().and_then(|w| w.split_once(": ")) {
            let invariant = if invariant == "S1" { "S1" } else { "S3" };
            self.violation(invariant, format!("{name} is bound to {node}, but {why}"));
        }
        self.world.edit(name, |p| p.set_stage(Stage::Sent { attempt }));
    }

    fn event(&mut self, now: Tick, name: &str, event: &EventRecord) {
        let Some(pod) = self.world.pods.get(name) else { return };
        if event.note.is_empty() {
            self.violation("O1", format!("an event about {name} says nothing"));
        } else if event.reason == "FailedScheduling" && !pod.dropped {
            self.failed(now, name, &event.note);
        }
    }

    /// An attempt failed: in its cycle, of which we know, or on the way to a bind.
    fn failed(&mut self, now: Tick, name: &str, note: &str) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let says_so = pod.condition.as_ref().is_some_and(|(on, _, text)| !on && text == note);
        let held = pod.stage();
        if pod.unsettled() {
            let what = format!("{name} gave up its room while its bind was {held:?}");
            self.violation("S3", what);
        }
        if held.is_some() {
            let failure = match held {
                Some(Stage::Permit { .. }) => Failure::Rejected,
                _ => Failure::Error,
            };
            self.world.take_off(name);
            let backoff = self.backoff;
            self.world.edit(name, |p| {
                p.attempts.failed(now, failure, backoff);
                p.message = Some(note.to_owned());
            });
        }
        if !says_so && note.len() < WHOLE_NOTE {
            self.world.edit(name, |p| p.owes = Some(note.to_owned()));
            self.owing.push(name.to_owned());
        }
    }

    fn patch(&mut self, name: &str, patch: &StatusPatch) {
        if let Some(node) = &patch.nominated_node {
            self.world.edit(name, |p| {
                p.expect(node);
                // Pushed off the node it was expected on: it looks elsewhere at once.
                p.called |= node.is_empty();
            });
        }
        let Some(condition) = &patch.condition else { return };
        self.world.edit(name, |p| {
            if p.owes.as_deref() == Some(&*condition.message) {
                p.owes = None;
            }
            p.condition = Some((
                condition.status,
                condition.reason.to_owned(),
                condition.message.to_string(),
            ));
        });
    }
}

fn short(effect: &Effect) -> &'static str {
    match effect {
        Effect::Bind { .. } => "bind",
        Effect::PatchStatus(_) => "status",
        Effect::Event(_) => "event",
        Effect::Call { .. } => "call",
        Effect::Group(_) => "group",
    }
}
