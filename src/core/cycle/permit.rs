//! Waiting at Permit: who waits for whom, until when, and what was asked meanwhile.
//!
//! Owns the wait of one attempt: every plugin that holds the pod has a deadline, and
//! perhaps a question on its way or one to ask later. The pod keeps its room until
//! all of them allow it, one of them objects, or the first deadline passes. Must never
//! repeat a question by itself: a plugin says whether and when.

use std::sync::Arc;

use super::binding::{Binding, Stage};
use super::failure::Failure;
use super::{Core, plugin_name, running};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::{ExtensionPoint, Held, PermitResult, Profile, Status};
use crate::io::{Condition, Effect, EventRecord, PodRef, Reply, Request, Tick, Token};
use crate::model::PodId;
use crate::report::{Observation, truncate_note};

/// Upstream's cap on waits at Permit.
const MAX_PERMIT_SECONDS: i64 = 15 * 60;
/// Reason of the condition and the event of a pod whose wait has an explanation.
const WAITING: &str = "WaitingOnPermit";

/// A plugin that holds a pod.
pub(super) struct Wait {
    /// Its position.
    plugin: usize,
    deadline: Tick,
    seconds: i64,
    /// The call whose answer it waits for.
    pub(super) token: Option<Token>,
    /// What it will ask, and when.
    later: Option<(Tick, Request)>,
    /// Why it is not decided yet.
    why: Option<Arc<str>>,
}

impl Wait {
    fn next(&self) -> Tick {
        self.later.as_ref().map_or(self.deadline, |(at, _)| self.deadline.min(*at))
    }
}

impl Core {
    /// True if the pod waits.
    pub(super) fn permit(
        &mut self,
        now: Tick,
        pod: PodId,
        profile: &Profile,
        node: NodeId,
    ) -> Result<bool, Failure> {
        let Some(placed) = self.placed(pod, node) else {
            return Ok(false);
        };
        let mut waiting = Vec::new();
        for (i, p) in profile.called(ExtensionPoint::Permit) {
            let (seconds, later) = match p.plugin.as_permit().map(|permit| permit.permit(&placed)) {
                None | Some(PermitResult::Allow) => continue,
                Some(PermitResult::Wait { seconds }) => (seconds, None),
                Some(PermitResult::Ask { seconds, request }) => (seconds, Some((now, request))),
                Some(PermitResult::Reject(status)) => {
                    let error = running("Permit", profile, i, &status);
                    return Err(Failure::of(i, &status, error));
                }
            };
            let seconds = seconds.clamp(0, MAX_PERMIT_SECONDS);
            let deadline = now.after_secs(seconds);
            waiting.push(Wait { plugin: i, deadline, seconds, token: None, later, why: None });
        }
        if waiting.is_empty() {
            return Ok(false);
        }
        self.set_stage(pod, Stage::Permit { waiting, since: now }, None);
        self.ask_permits(now, pod);
        Ok(true)
    }

    /// Asks what is due, and sets the timer.
    fn ask_permits(&mut self, now: Tick, pod: PodId) {
        let (Some(binding), Some(record)) = (self.bindings.get_mut(&pod), self.cluster.pod(pod))
        else {
            return;
        };
        let profile = Arc::clone(&binding.profile);
        let Stage::Permit { waiting, .. } = &mut binding.stage else {
            return;
        };
        for wait in &mut *waiting {
            let Some((_, request)) = wait.later.take_if(|(at, _)| *at <= now) else {
                continue;
            };
            self.next_attempt += 1;
            let token = Token(self.next_attempt);
            wait.token = Some(token);
            self.calls.insert(token, pod);
            let (pod, plugin) = (record.key.clone(), plugin_name(&profile, wait.plugin).into());
            self.effects.push(Effect::Call { token, pod, plugin, request });
        }
        let next = waiting.iter().map(Wait::next).min();
        self.arm(pod, next);
    }

    /// Says where a pod waits, and for what if a plugin has words for it.
    pub(super) fn announce_wait(&mut self, now: Tick, pod: PodId, node: NodeId) {
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        let (message, profile) = (self.permit_message(binding), &binding.profile);
        if message.is_empty() {
            return self.announce(pod, node);
        }
        let controller = Arc::clone(profile.scheduler_name());
        let name = Arc::clone(&self.cluster.node(node).name);
        let message: Arc<str> = format!("{message} (node {name})").into();
        self.cluster.nominate(pod, Some(name));
        let Some(record) = self.cluster.pod(pod) else {
            return;
        };
        self.effects.push(Effect::Event(EventRecord {
            pod: record.key.clone(),
            related: None,
            warning: false,
            reason: WAITING,
            action: "Permit",
            note: truncate_note(&message),
            reporting_controller: controller,
        }));
        let observed_generation = record.generation;
        let condition = Condition { status: false, reason: WAITING, message, observed_generation };
        if self.says_already(pod, &condition) {
            self.keep_condition(pod, condition);
            return self.patch_nomination(pod);
        }
        self.write_condition(now, pod, condition);
    }

    /// What a pod waits for at Permit, as far as plugins have words for it.
    pub(super) fn permit_message(&self, binding: &Binding) -> String {
        let Stage::Permit { waiting, .. } = &binding.stage else {
            return String::new();
        };
        let profile = &binding.profile;
        let says = |wait: &Wait| {
            let permit = profile.plugins().get(wait.plugin)?.plugin.as_permit()?;
            let (name, limit) = (plugin_name(profile, wait.plugin), duration(wait.seconds));
            let why = wait.why.as_ref().map(|why| format!("; so far: {why}")).unwrap_or_default();
            Some(format!("waiting at most {limit} for {name}: {}{why}", permit.waits_for()?))
        };
        waiting.iter().filter_map(says).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn at_permit(&self, pod: PodId) -> bool {
        self.bindings.get(&pod).is_some_and(|b| matches!(b.stage, Stage::Permit { .. }))
    }

    pub(super) fn permit_ended(&mut self, now: Tick, since: Tick, status: &'static str) {
        self.observations.push(Observation::PermitWait { status, micros: now.0 - since.0 });
    }

    /// A wait ended badly; a gang counts the waits of all members when it gives up.
    fn permit_failed(&mut self, now: Tick, pod: PodId, since: Tick) {
        if self.round_of(pod).is_none() {
            self.permit_ended(now, since, "Unschedulable");
        }
    }

    /// An outside decision on a pod that waits at Permit.
    pub(super) fn permit_verdict(
        &mut self,
        now: Tick,
        key: &PodRef,
        plugin: &str,
        verdict: Result<(), Arc<str>>,
    ) {
        let Some(pod) = self.find(key) else { return };
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        let Some(position) = binding.profile.position(plugin) else {
            return;
        };
        let held = match verdict {
            Ok(()) => Held::Allow,
            Err(message) => Held::Reject(Status::unschedulable(message)),
        };
        self.permit_news(now, pod, position, held);
    }

    /// The outside answered a plugin that holds a pod.
    pub(super) fn permit_answered(&mut self, now: Tick, pod: PodId, token: Token, reply: &Reply) {
        let Some(binding) = self.bindings.get_mut(&pod) else {
            return;
        };
        let (profile, node) = (Arc::clone(&binding.profile), binding.node);
        let Stage::Permit { waiting, .. } = &mut binding.stage else {
            return;
        };
        let Some(wait) = waiting.iter_mut().find(|w| w.token == Some(token)) else {
            return;
        };
        wait.token = None;
        let position = wait.plugin;
        let answer = match reply {
            Reply::Done(text) => Ok(&**text),
            other => Err(other.error().unwrap_or("the answer is none")),
        };
        let permit = profile.plugins()[position].plugin.as_permit();
        let (Some(permit), Some(placed)) = (permit, self.placed(pod, node)) else {
            return;
        };
        let held = permit.answered(&placed, answer);
        self.permit_news(now, pod, position, held);
    }

    /// A pod changed: whoever holds it at Permit looks again. True if that ended its
    /// wait, well or badly.
    pub(super) fn permit_changed(&mut self, now: Tick, pod: PodId) -> bool {
        let Some(binding) = self.bindings.get(&pod) else {
            return false;
        };
        let (profile, node) = (Arc::clone(&binding.profile), binding.node);
        let Stage::Permit { waiting, .. } = &binding.stage else {
            return false;
        };
        let holders: Vec<usize> = waiting.iter().map(|w| w.plugin).collect();
        for position in holders {
            let permit = profile.plugins()[position].plugin.as_permit();
            let (Some(permit), Some(placed)) = (permit, self.placed(pod, node)) else {
                return false;
            };
            let held = permit.changed(&placed);
            self.permit_news(now, pod, position, held);
            if !self.at_permit(pod) {
                return true;
            }
        }
        false
    }

    /// A plugin that holds a pod has made up its mind, or not.
    fn permit_news(&mut self, now: Tick, pod: PodId, position: usize, held: Held) {
        let Some(binding) = self.bindings.get_mut(&pod) else {
            return;
        };
        let Stage::Permit { waiting, since } = &mut binding.stage else {
            return;
        };
        let since = *since;
        let Some(at) = waiting.iter().position(|w| w.plugin == position) else {
            return;
        };
        match held {
            Held::Wait => {}
            Held::Ask { after_seconds, request, why } => {
                let wait = &mut waiting[at];
                // One question at a time.
                if wait.token.is_none() {
                    wait.later = Some((now.after_secs(after_seconds.max(1)), request));
                }
                wait.why = Some(why);
                self.ask_permits(now, pod);
            }
            Held::Reject(status) => {
                let error = running("Permit", &binding.profile, position, &status);
                self.permit_failed(now, pod, since);
                self.fail_binding(now, pod, Failure::of(position, &status, error));
            }
            Held::Allow => {
                let wait = waiting.remove(at);
                let all = waiting.is_empty();
                wait.token.map(|token| self.calls.remove(&token));
                self.ask_permits(now, pod);
                if all {
                    self.permit_ended(now, since, "Success");
                    if let Some(gang) = self.round_of(pod) {
                        self.set_stage(pod, Stage::Gathered, None);
                        return self.pass_permit(now, gang);
                    }
                    self.queue.done(pod);
                    if let Err(failure) = self.pre_bind_from(now, pod, 0) {
                        self.fail_binding(now, pod, failure);
                    }
                }
            }
        }
    }

    /// A node is gone: whoever still waits for it at Permit is planned again.
    pub(super) fn node_lost(&mut self, now: Tick, node: NodeId, name: &str) {
        let mut waiting: Vec<(PodId, Tick)> = self
            .bindings
            .iter()
            .filter(|(_, b)| b.node == node)
            .filter_map(|(pod, b)| match &b.stage {
                Stage::Permit { since, .. } => Some((*pod, *since)),
                _ => None,
            })
            .collect();
        waiting.sort_unstable();
        for (pod, since) in waiting {
            self.permit_failed(now, pod, since);
            self.fail_binding(now, pod, Failure::node_gone(name));
        }
    }

    /// The first deadline of a pod's wait has passed, or something is to be asked.
    pub(super) fn permit_timer(&mut self, now: Tick, pod: PodId) {
        let Some(binding) = self.bindings.get(&pod) else {
            return;
        };
        let Stage::Permit { waiting, since } = &binding.stage else {
            return;
        };
        let missed = waiting.iter().filter(|w| w.deadline <= now).min_by_key(|w| w.deadline);
        let Some(wait) = missed else {
            return self.ask_permits(now, pod);
        };
        if bug!(self.bugs, PermitForever) {
            return;
        }
        let (since, plugin) = (*since, wait.plugin);
        let name = plugin_name(&binding.profile, plugin);
        let waited = duration(wait.seconds);
        let mut reason = format!("rejected due to timeout after waiting {waited} at plugin {name}");
        if let Some(why) = &wait.why {
            reason = format!("{reason}: {why}");
        }
        self.permit_failed(now, pod, since);
        let status = Status::unschedulable(reason);
        self.fail_binding(now, pod, Failure::one_node(plugin, &status).by_timeout());
    }
}

/// Whole seconds as Go prints a duration.
fn duration(seconds: i64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}
