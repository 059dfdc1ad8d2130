//! From a chosen node to a bound pod: Reserve, Permit, PreBind, Bind, PostBind.

use std::sync::Arc;

use smallvec::SmallVec;

use super::failure::Failure;
use super::permit::Wait;
use super::round::After;
use super::{Core, Decision, Outcome, plugin_name, running};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::{
    Actions, ClusterEvent, ExtensionPoint, Placed, Profile, Resource, Status, Step, Subject,
};
use crate::gang::GangId;
use crate::io::{Effect, EventRecord, PodRef, Tick, Token, WriteError};
use crate::model::{PodId, PodShape};
use crate::queue::{QueueCx, Reach};
use crate::report::{AttemptResult, Observation, QueuedPod};

/// How long after a bind without an answer it is tried again.
const REBIND_SECONDS: i64 = 1;
/// Tries of a bind whose outcome is not known, before the room is given up.
const MAX_REBINDS: u32 = 60;
/// How long after a conflict the watch has to show what happened.
const SETTLE_SECONDS: i64 = 5;

/// A pod that has a node and is not yet bound.
pub(super) struct Binding {
    /// The version of the profile that it began with.
    pub(super) profile: Arc<Profile>,
    pub(super) node: NodeId,
    pub(super) stage: Stage,
    /// When the attempt began.
    pub(super) begun: Tick,
    pub(super) timer: Option<Tick>,
    rebinds: u32,
    /// The Bind plugin that took it.
    binder: usize,
    /// What the pod has become since its room was taken.
    pub(super) updated: Option<Box<PodShape>>,
    /// The gang with which it waits at barriers.
    pub(super) round: Option<GangId>,
}

impl Binding {
    pub(super) fn new(
        begun: Tick,
        profile: &Arc<Profile>,
        node: NodeId,
        stage: Stage,
        round: Option<GangId>,
    ) -> Self {
        let profile = Arc::clone(profile);
        let (timer, rebinds, binder, updated) = (None, 0, 0, None);
        Self { profile, node, stage, begun, timer, rebinds, binder, updated, round }
    }
}

pub(super) enum Stage {
    /// Waiting for plugins to allow it.
    Permit { waiting: Vec<Wait>, since: Tick },
    /// Allowed, and waiting for the rest of its gang.
    Gathered,
    /// A PreBind plugin asked the outside.
    PreBind { plugin: usize, token: Token },
    /// The outside answered; the PreBind plugin waits to see it come about.
    Settling { plugin: usize, until: Tick },
    /// Ready to be bound, and waiting for the rest of its gang.
    PreBound,
    /// The bind is under way.
    Bind { attempt: u64 },
    /// The bind's answer never came; it is issued again.
    Rebind,
    /// The server said conflict: the watch will tell.
    Settle,
    /// An extender, by position, was asked to bind it.
    Lent { extender: usize, token: Token },
    /// An extender bound it, it says, or may have: the watch will tell.
    Shown { error: Arc<str> },
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Self::Permit { .. } | Self::Gathered => "permit",
            Self::PreBind { .. } | Self::Settling { .. } | Self::PreBound => "prebind",
            Self::Bind { .. }
            | Self::Rebind
            | Self::Settle
            | Self::Lent { .. }
            | Self::Shown { .. } => "binding",
        }
    }

    /// Outside calls whose answers it waits for.
    pub(super) fn tokens(&self) -> SmallVec<[Token; 2]> {
        match self {
            Self::Permit { waiting, .. } => waiting.iter().filter_map(|w| w.token).collect(),
            Self::PreBind { token, .. } | Self::Lent { token, .. } => {
                [*token].into_iter().collect()
            }
            _ => SmallVec::new(),
        }
    }
}

/// What left a node: shape and group of a pod.
pub(super) type Left = (Arc<PodShape>, Arc<crate::cluster::GroupKey>);

impl Core {
    /// Takes the room on the node and runs Reserve and Permit.
    pub(super) fn assume(
        &mut self,
        now: Tick,
        pod: PodId,
        profile: &Arc<Profile>,
        node: NodeId,
        decision: &mut Decision,
    ) {
        let name = Arc::clone(&self.cluster.node(node).name);
        // It found room while those who were to make room still saved their work.
        self.drop_plan(now, pod);
        let expected = self.cluster.pod(pod).and_then(|p| p.nominated.clone());
        self.cluster.place(pod, node, true);
        if expected.is_some_and(|expected| expected != name) {
            self.expected_room_freed(now, pod);
        }
        let binding = Binding::new(now, profile, node, Stage::Rebind, None);
        self.bindings.insert(pod, binding);
        if bug!(self.bugs, BindBeforeReserve) {
            self.issue_bind(now, pod);
        }
        let verdict =
            self.reserve(pod, profile, node).and_then(|()| self.permit(now, pod, profile, node));
        match verdict {
            // Nobody else has seen the room taken: giving it back is no event.
            Err(failure) => {
                self.unreserve(pod);
                self.fail_attempt(now, pod, profile, failure, decision);
            }
            Ok(true) => {
                self.announce_wait(now, pod, node);
                decision.outcome = Outcome::WaitingOnPermit { node: name };
            }
            Ok(false) => {
                self.queue.done(pod);
                match self.pre_bind_from(now, pod, 0) {
                    Ok(()) => decision.outcome = Outcome::Scheduled { node: name },
                    Err(failure) => {
                        self.unreserve(pod);
                        self.fail_attempt(now, pod, profile, failure, decision);
                    }
                }
            }
        }
    }

    pub(super) fn placed(&self, pod: PodId, node: NodeId) -> Option<Placed<'_>> {
        let record = self.cluster.pod(pod)?;
        let shape = self.cluster.shape(record.shape);
        Some(Placed { id: pod, pod: record, shape, node: self.cluster.view(node) })
    }

    pub(super) fn reserve(
        &mut self,
        pod: PodId,
        profile: &Profile,
        node: NodeId,
    ) -> Result<(), Failure> {
        for (i, weighted) in profile.called(ExtensionPoint::Reserve) {
            let Some(placed) = self.placed(pod, node) else {
                return Ok(());
            };
            let Some(reserve) = weighted.plugin.as_reserve() else {
                continue;
            };
            let reserved = reserve.reserve(&placed).and_then(|()| reserve.volumes(&placed));
            let devices = reserved.is_ok().then(|| reserve.devices(&placed)).flatten();
            if devices.is_some() {
                self.cluster.predict(pod, devices);
            }
            let taken = match reserved {
                Ok(Some(plan)) => {
                    self.cluster.volumes_mut().assume(pod, plan).map_err(Status::error)
                }
                other => other.map(drop),
            };
            if let Err(status) = taken {
                let error = running("Reserve", profile, i, &status);
                return Err(Failure::of(i, &status, error));
            }
        }
        Ok(())
    }

    pub(super) fn set_stage(&mut self, pod: PodId, stage: Stage, timer: Option<Tick>) {
        let Some(binding) = self.bindings.get_mut(&pod) else {
            return;
        };
        let (new, old) = (stage.tokens(), std::mem::replace(&mut binding.stage, stage));
        for token in old.tokens() {
            self.calls.remove(&token);
        }
        self.calls.extend(new.into_iter().map(|token| (token, pod)));
        self.arm(pod, timer);
    }

    pub(super) fn arm(&mut self, pod: PodId, timer: Option<Tick>) {
        let Some(binding) = self.bindings.get_mut(&pod) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut binding.timer, timer) {
            self.timers.remove(&(old, pod));
        }
        self.timers.extend(timer.map(|due| (due, pod)));
    }

    /// Whether the pod has a node but no bind was sent yet.
    pub(super) fn unsent(&self, pod: PodId) -> bool {
        let stage = self.bindings.get(&pod).map(|b| &b.stage);
        matches!(
            stage,
            Some(
                Stage::Permit { .. }
                    | Stage::Gathered
                    | Stage::PreBind { .. }
                    | Stage::Settling { .. }
                    | Stage::PreBound
            )
        )
    }

    /// Runs PreBind plugins from the `from`th on, then binds.
    pub(super) fn pre_bind_from(
        &mut self,
        now: Tick,
        pod: PodId,
        from: usize,
    ) -> Result<(), Failure> {
        let Some(binding) = self.bindings.get(&pod) else {
            return Ok(());
        };
        let (profile, node) = (Arc::clone(&binding.profile), binding.node);
        let Some(placed) = self.placed(pod, node) else {
            return Ok(());
        };
        let key = placed.pod.key.clone();
        for &i in profile.at(ExtensionPoint::PreBind).iter().skip(from) {
            let plugin = &profile.plugins()[i].plugin;
            match plugin.as_pre_bind().map(|pre_bind| pre_bind.pre_bind(&placed)) {
                None | Some(Step::Done | Step::Skip) => {}
                Some(Step::Park { request }) => {
                    self.next_attempt += 1;
                    let token = Token(self.next_attempt);
                    let plugin = plugin_name(&profile, i).into();
                    self.announce(pod, node);
                    self.effects.push(Effect::Call { token, pod: key, plugin, request });
                    self.set_stage(pod, Stage::PreBind { plugin: i, token }, None);
                    return Ok(());
                }
                Some(Step::Fail(status)) => {
                    return Err(Failure::pre_bind(&profile, i, &status));
                }
            }
        }
        if let Some(gang) = self.round_of(pod) {
            self.pre_bound(now, gang, pod);
            return Ok(());
        }
        if let Some(failure) = self.strayed(pod) {
            return Err(failure);
        }
        if self.ask_binder(pod, 0) {
            return Ok(());
        }
        self.bind_by_plugin(now, pod)
    }

    /// Binds by the first Bind plugin that takes the pod.
    pub(super) fn bind_by_plugin(&mut self, now: Tick, pod: PodId) -> Result<(), Failure> {
        let Some(binding) = self.bindings.get(&pod) else {
            return Ok(());
        };
        let Some(placed) = self.placed(pod, binding.node) else {
            return Ok(());
        };
        let profile = &binding.profile;
        let binds = |at: &&usize| {
            let bind = profile.plugins()[**at].plugin.as_bind();
            bind.is_some_and(|bind| bind.handles(&placed))
        };
        let Some(&binder) = profile.at(ExtensionPoint::Bind).iter().find(binds) else {
            return Err(Failure::error("no Bind plugin handles the pod".into()));
        };
        if let Some(binding) = self.bindings.get_mut(&pod) {
            binding.binder = binder;
        }
        self.issue_bind(now, pod);
        Ok(())
    }

    fn issue_bind(&mut self, _now: Tick, pod: PodId) {
        let (Some(binding), Some(record)) = (self.bindings.get(&pod), self.cluster.pod(pod)) else {
            return;
        };
        self.next_attempt += 1;
        let attempt = self.next_attempt;
        let node = Arc::clone(&self.cluster.node(binding.node).name);
        let devices = record.predicted.clone();
        self.effects.push(Effect::Bind { pod: record.key.clone(), node, attempt, devices });
        if bug!(self.bugs, DoubleBind)
            && let Some(Effect::Bind { pod, node, attempt, devices }) = self.effects.last().cloned()
        {
            self.next_attempt += 1;
            self.effects.push(Effect::Bind { pod, node, attempt: attempt + 1, devices });
        }
        self.set_stage(pod, Stage::Bind { attempt }, None);
        // From now on nobody but the server can keep it from being bound.
        self.gang_stirred(pod, false);
    }

    /// Gives back what Reserve took, in reverse order, and the room; nobody is
    /// told. Returns the shape that left.
    pub(super) fn unreserve(&mut self, pod: PodId) -> Option<Left> {
        let binding = self.take_binding(pod)?;
        if let Some(placed) = self.placed(pod, binding.node) {
            let current = self.queue.entry(pod).and_then(|e| self.profiles.get(e.profile));
            let another = current.filter(|_| bug!(self.bugs, EndsUnderAnother));
            let plugins = another.unwrap_or(&binding.profile).called(ExtensionPoint::Reserve);
            let holders = plugins.filter_map(|(_, p)| p.plugin.as_reserve());
            if bug!(self.bugs, UnreserveOrder) {
                holders.for_each(|r| r.unreserve(&placed));
            } else if !bug!(self.bugs, UnreserveForgotten) {
                holders.rev().for_each(|r| r.unreserve(&placed));
            }
        }
        let left = self.displace(pod);
        if let Some(shape) = binding.updated {
            self.swap_shape(pod, *shape);
        }
        left
    }

    /// As `unreserve`, and lets others know that room is free.
    pub(super) fn release(&mut self, now: Tick, pod: PodId) {
        if let Some(left) = self.unreserve(pod) {
            self.room_freed(now, left, Reach::default());
        }
    }

    /// Takes a pod off its node and lets others know that room is free.
    pub(super) fn vacate(&mut self, now: Tick, pod: PodId) {
        if let Some(left) = self.displace(pod) {
            self.room_freed(now, left, Reach::default());
        }
    }

    pub(super) fn displace(&mut self, pod: PodId) -> Option<Left> {
        let left = self.cluster.kind_of(pod)?;
        self.cluster.volumes_mut().revert(pod);
        let node = self.cluster.displace(pod)?;
        self.cluster.forget_devices(pod, node);
        self.cluster.reap(node);
        Some(left)
    }

    pub(super) fn room_freed(&mut self, now: Tick, left: Left, reach: Reach) {
        let (shape, group) = left;
        self.fence_news |= !self.fenced.is_empty();
        let event = ClusterEvent {
            resource: Resource::AssignedPod,
            actions: Actions::DELETE,
            label: "AssignedPodDelete",
            subject: Subject::Pod { shape, group, before: None },
        };
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.on_event(&cx, &event, reach);
    }

    pub(super) fn fail_binding(&mut self, now: Tick, pod: PodId, failure: Failure) {
        if let Some(gang) = self.round_of(pod) {
            return self.abort_round(now, gang, Some(pod), &failure, After::Backoff);
        }
        if let Some(gang) = self.cluster.pod(pod).and_then(|p| p.gang) {
            self.queue.gang_lost(now, gang);
            self.queue.gang_changed(gang, true);
        }
        let Some((profile, begun)) =
            self.bindings.get(&pod).map(|b| (Arc::clone(&b.profile), b.begun))
        else {
            return;
        };
        self.attempt_ended(now, begun, &profile, failure.result());
        let left = if bug!(self.bugs, LeakAssumed) {
            self.take_binding(pod);
            None
        } else {
            self.unreserve(pod)
        };
        self.fail(now, pod, &profile, failure);
        // Only now, and not to the pod itself: its own room is no news to it.
        if let Some(left) = left {
            self.room_freed(now, left, Reach { cause: Some(pod), priority: None });
        }
    }

    pub(super) fn attempt_ended(
        &mut self,
        now: Tick,
        begun: Tick,
        profile: &Profile,
        result: AttemptResult,
    ) {
        let nanos = u64::try_from(now.0.saturating_sub(begun.0)).unwrap_or(0).saturating_mul(1000);
        let profile = Arc::clone(profile.scheduler_name());
        self.observations.push(Observation::Attempt { profile, result, nanos });
    }

    /// Takes the record of a binding with all that points to it.
    fn take_binding(&mut self, pod: PodId) -> Option<Binding> {
        let binding = self.bindings.remove(&pod)?;
        if let Some(due) = binding.timer {
            self.timers.remove(&(due, pod));
        }
        for token in binding.stage.tokens() {
            self.calls.remove(&token);
        }
        if let Some(gang) = binding.round {
            self.round_lost(gang);
        }
        Some(binding)
    }

    pub(super) fn bind_done(
        &mut self,
        now: Tick,
        key: &PodRef,
        attempt: u64,
        result: Result<(), WriteError>,
    ) {
        let Some(pod) = self.find(key) else { return };
        let Some(binding) = self.bindings.get_mut(&pod) else {
            return;
        };
        if !matches!(binding.stage, Stage::Bind { attempt: current } if current == attempt) {
            return;
        }
        match result {
            Ok(()) => self.bound(now, pod),
            Err(WriteError::Unknown(_))
                if binding.rebinds < MAX_REBINDS && !bug!(self.bugs, RebindElsewhere) =>
            {
                binding.rebinds += 1;
                self.set_stage(pod, Stage::Rebind, Some(now.after_secs(REBIND_SECONDS)));
            }
            // What was refused now may have been written by an attempt before.
            Err(WriteError::Rejected(_))
                if binding.rebinds > 0 && binding.rebinds < MAX_REBINDS =>
            {
                binding.rebinds += 1;
                self.set_stage(pod, Stage::Rebind, Some(now.after_secs(REBIND_SECONDS)));
            }
            Err(WriteError::Conflict(_)) => {
                self.set_stage(pod, Stage::Settle, Some(now.after_secs(SETTLE_SECONDS)));
            }
            Err(error) => {
                let message = error.to_string();
                self.fail_bind(now, pod, message);
            }
        }
    }

    fn rebound(&mut self, pod: PodId) {
        if let Some(binding) = self.bindings.get_mut(&pod) {
            binding.rebinds += 1;
        }
    }

    fn fail_bind(&mut self, now: Tick, pod: PodId, message: String) {
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        let (profile, status) = (&binding.profile, Status::error(message));
        let message = running("Bind", profile, binding.binder, &status);
        self.fail_binding(now, pod, Failure::error(message));
    }

    /// The pod is bound to the node we chose.
    pub(super) fn bound(&mut self, now: Tick, pod: PodId) {
        let Some(binding) = self.take_binding(pod) else {
            return;
        };
        let (profile, node) = (binding.profile, binding.node);
        self.cluster.volumes_mut().settle(pod);
        self.gang_stirred(pod, false);
        self.attempt_ended(now, binding.begun, &profile, AttemptResult::Scheduled);
        let entry = self.queue.remove(pod);
        let Some(placed) = self.placed(pod, node) else {
            return;
        };
        let told = profile.called(ExtensionPoint::PostBind);
        told.filter_map(|(_, p)| p.plugin.as_post_bind()).for_each(|p| p.post_bind(&placed));
        let key = placed.pod.key.clone();
        let name = Arc::clone(&placed.node.info().name);
        let note = format!("Successfully assigned {key} to {name}").into();
        self.effects.push(Effect::Event(EventRecord {
            pod: key,
            related: None,
            warning: false,
            reason: "Scheduled",
            action: "Binding",
            note,
            reporting_controller: Arc::clone(profile.scheduler_name()),
        }));
        if let Some(entry) = entry {
            self.observations.push(Observation::Bound {
                attempts: entry.attempts,
                since_queued_micros: now.0 - entry.first.0,
            });
        }
    }

    pub(super) fn binding_timer(&mut self, now: Tick, pod: PodId) {
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        match &binding.stage {
            Stage::Permit { .. } => self.permit_timer(now, pod),
            Stage::Rebind => self.issue_bind(now, pod),
            // The watch is late: the pod may be where we wanted it, and then its room
            // is taken. Asking again tells, or binds it.
            Stage::Settle if binding.rebinds < MAX_REBINDS => {
                self.rebound(pod);
                self.issue_bind(now, pod);
            }
            Stage::Settle => {
                self.fail_bind(now, pod, "the pod could not be bound: conflict".into());
            }
            Stage::Settling { .. } => self.settle_binding(now, pod),
            Stage::Shown { .. } => self.never_shown(now, pod),
            Stage::Gathered
            | Stage::PreBind { .. }
            | Stage::PreBound
            | Stage::Bind { .. }
            | Stage::Lent { .. } => {}
        }
    }

    pub(super) fn binding_views(&self) -> Vec<QueuedPod> {
        let mut views: Vec<QueuedPod> = self
            .bindings
            .iter()
            .filter_map(|(pod, binding)| {
                let record = self.cluster.pod(*pod)?;
                let entry = self.queue.entry(*pod);
                Some(QueuedPod {
                    pod: record.key.to_string(),
                    queue: binding.stage.name(),
                    priority: record.priority,
                    attempts: entry.map_or(0, |e| e.attempts),
                    first_queued_micros: entry.map_or(0, |e| e.first.0),
                    node: self.cluster.node(binding.node).name.to_string(),
                    message: self.permit_message(binding),
                })
            })
            .collect();
        views.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        views
    }
}
