//! What happens when an attempt does not end in a bind.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::extend::Attempt;
use super::ledger::Ledger;
use super::outside::Outside;
use super::preempt::PostFiltered;
use super::{Core, Decision, Outcome, running};
use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{Code, EXTENDER_NAME, ExtensionPoint, Profile, Status};
use crate::io::{Condition, Effect, EventRecord, Tick};
use crate::model::PodId;
use crate::plugins::names;
use crate::queue::{EXTENDER, PluginMask, QueueCx};
use crate::report::{AttemptResult, Observation, fit_message, truncate_note};

/// What is said of a node that extenders left out and said nothing of.
const LEFT_OUT: &str = "node(s) didn't pass the filters of extenders";

/// What becomes of the node a pod is expected on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Nominate {
    /// It stays as it is.
    Keep,
    /// The pod is expected nowhere.
    Clear,
    /// The pod is expected there.
    Set(Arc<str>),
}

/// Why an attempt failed.
pub(super) struct Failure {
    /// Rejected by plugins, or broken.
    rejected: bool,
    message: String,
    pub(super) rejectors: PluginMask,
    /// Those of them that wait for something that will surely come.
    pending: PluginMask,
    pub(super) nominate: Nominate,
    /// Filters left no node: somebody might make room.
    pub(super) fits_nowhere: bool,
    timed_out: bool,
}

impl Failure {
    fn rejected(message: String, rejectors: PluginMask) -> Self {
        let nominate = Nominate::Clear;
        let (pending, fits_nowhere, timed_out) = (0, false, false);
        Self { rejected: true, message, rejectors, pending, nominate, fits_nowhere, timed_out }
    }

    pub(super) fn no_nodes() -> Self {
        Self::rejected(super::no_nodes().to_string(), 0)
    }

    /// Appends what PostFilter said.
    pub(super) fn add(&mut self, message: &str) {
        if !message.is_empty() {
            self.message.push(' ');
            self.message.push_str(message);
        }
    }

    /// What it says.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Whether plugins said no; else something is broken.
    pub(super) fn is_rejected(&self) -> bool {
        self.rejected
    }

    /// Whether time ran out.
    pub(super) fn timed_out(&self) -> bool {
        self.timed_out
    }

    /// Who said no, and who of them waits for something that will surely come.
    pub(super) fn plugins(&self) -> (PluginMask, PluginMask) {
        (self.rejectors, self.pending)
    }

    /// The gang that it is a member of had to be bound by then.
    pub(super) fn round_timeout(seconds: i64) -> Self {
        let message = format!("rejected due to timeout after waiting {seconds}s for the gang");
        Self { timed_out: true, ..Self::rejected(message, 0) }
    }

    /// Another gang comes before its own, and keeps room itself.
    pub(super) fn round_preempted() -> Self {
        Self::rejected("a gang that comes first keeps room for itself".to_owned(), 0)
    }

    /// Its node takes no pods any more.
    pub(super) fn node_shut(name: &str, what: &str) -> Self {
        Self::rejected(format!("node {name} {what}"), 0)
    }

    /// The same, because time ran out.
    pub(super) fn by_timeout(self) -> Self {
        Self { timed_out: true, ..self }
    }

    /// What it says.
    pub(super) fn into_message(self) -> String {
        self.message
    }

    /// How metrics count it.
    pub(super) fn result(&self) -> AttemptResult {
        if self.rejected { AttemptResult::Unschedulable } else { AttemptResult::Error }
    }

    pub(super) fn error(message: String) -> Self {
        Self { rejected: false, ..Self::rejected(message, 0) }
    }

    /// No node fits: the histogram of what the ledger holds.
    pub(super) fn fit(profile: &Profile, ledger: &Ledger, nodes: usize) -> Self {
        let prepared = &ledger.prepared;
        let mut rejectors = prepared.narrowing.iter().fold(0, |mask, p| mask | 1 << p);
        if let Some((plugin, status)) = &prepared.rejected {
            if status.code == Code::Error {
                return Self::error(status.message());
            }
            rejectors |= plugin.map_or(0, |p| 1 << p);
            let message = format!("0/{nodes} nodes are available: {}.", status.message());
            return Self { fits_nowhere: true, ..Self::rejected(message, rejectors) };
        }
        let mut pending = 0;
        let verdicts = ledger.verdicts(profile);
        for verdict in &verdicts {
            if verdict.status.code == Code::Error {
                return Self::error(verdict.status.message());
            }
            let plugin = verdict.plugin.map_or(0, |p| 1 << p);
            rejectors |= plugin;
            if verdict.status.code == Code::Pending {
                pending |= plugin;
            }
        }
        let reasons = verdicts.iter().map(|v| (v.nodes, v.status.reasons.as_slice()));
        let failure = Self::rejected(fit_message(nodes, reasons), rejectors);
        Self { fits_nowhere: true, pending, ..failure }
    }

    /// No node of a place fits. It waits for whatever could make any node fit.
    pub(super) fn fit_within(profile: &Profile, ledger: &Ledger, nodes: &[NodeId]) -> Self {
        let anywhere = Self::fit(profile, ledger, nodes.len());
        let fits_nowhere = false;
        if !anywhere.rejected || ledger.prepared.rejected.is_some() {
            return Self { fits_nowhere, ..anywhere };
        }
        let verdicts = ledger.verdicts_within(profile, nodes);
        let reasons = verdicts.iter().map(|v| (v.nodes, v.status.reasons.as_slice()));
        let message = fit_message(nodes.len(), reasons);
        let own = verdicts.iter().filter_map(|v| v.plugin).fold(0, |mask, p| mask | 1 << p);
        let rejectors = anywhere.rejectors | own | makes_room(profile);
        Self { message, rejectors, fits_nowhere, ..anywhere }
    }

    /// Where its gang must be there is no place for it.
    pub(super) fn topology(profile: &Profile, message: String) -> Self {
        Self::rejected(message, makes_room(profile))
    }

    /// It has room where it must not be any more: labels or levels have changed.
    pub(super) fn strayed(message: String) -> Self {
        Self::rejected(message, 0)
    }

    /// As `fit`, with what extenders said of the nodes that plugins let pass.
    pub(super) fn fit_outside(
        profile: &Profile,
        ledger: &Ledger,
        cluster: &Cluster,
        outside: &Outside,
    ) -> Self {
        let mut failure = Self::fit(profile, ledger, cluster.node_count());
        if !failure.rejected {
            return failure;
        }
        // A node that came while extenders were asked about others has nobody else to
        // speak for it: whatever brought it must count as news.
        let fitting = ledger.fitting();
        if outside.took || !fitting.is_empty() {
            failure.rejectors |= 1 << EXTENDER;
        }
        if ledger.prepared.rejected.is_some() {
            return failure;
        }
        let silent = [LEFT_OUT.into()];
        let verdicts = ledger.verdicts(profile);
        let mut reasons: Vec<(u32, &[Arc<str>])> =
            verdicts.iter().map(|v| (v.nodes, v.status.reasons.as_slice())).collect();
        for node in fitting {
            // Upstream is silent about nodes that an extender leaves out without a word.
            let status = outside.statuses.get(&cluster.node(node).name);
            reasons.push((1, status.map_or(&silent[..], |status| &status.reasons)));
        }
        failure.message = fit_message(cluster.node_count(), reasons);
        failure
    }

    /// Reserve or Permit said no: upstream words it as one node that is not available.
    pub(super) fn one_node(plugin: usize, status: &Status) -> Self {
        let pending = if status.code == Code::Pending { 1 << plugin } else { 0 };
        let message = fit_message(1, [(1, status.reasons.as_slice())]);
        Self { pending, ..Self::rejected(message, 1 << plugin) }
    }

    /// The node went away while plugins still held the pod back: no event is
    /// waited for, it is planned again after backing off.
    pub(super) fn node_gone(name: &str) -> Self {
        let reason = [format!("node {name} was deleted").into()];
        Self::rejected(fit_message(1, [(1, &reason[..])]), 0)
    }

    /// A more important pod took its place before it was bound: no event is waited
    /// for, it is planned again after backing off.
    pub(super) fn preempted(status: &Status) -> Self {
        Self::rejected(fit_message(1, [(1, status.reasons.as_slice())]), 0)
    }

    /// PreBind said no. Events are no longer kept for the pod, so it names no
    /// plugin and comes back by itself.
    pub(super) fn pre_bind(profile: &Profile, plugin: usize, status: &Status) -> Self {
        if status.code.is_rejected() {
            return Self::rejected(status.message(), 0);
        }
        Self::error(running("PreBind", profile, plugin, status))
    }

    /// A plugin's status on the way to binding.
    pub(super) fn of(plugin: usize, status: &Status, error: String) -> Self {
        if status.code.is_rejected() { Self::one_node(plugin, status) } else { Self::error(error) }
    }
}

/// Whoever knows when there is more room on a node; all filters if that one is off.
fn makes_room(profile: &Profile) -> PluginMask {
    let filters = || profile.called(ExtensionPoint::Filter);
    let fit = filters().find(|(_, p)| p.plugin.name() == names::NODE_RESOURCES_FIT);
    fit.map_or_else(|| filters().fold(0, |mask, (i, _)| mask | 1 << i), |(i, _)| 1 << i)
}

impl Core {
    pub(super) fn fail_attempt(
        &mut self,
        now: Tick,
        pod: PodId,
        profile: &Profile,
        failure: Failure,
        decision: &mut Decision,
    ) {
        decision.outcome = if failure.rejected { Outcome::Unschedulable } else { Outcome::Error };
        decision.message = Some(self.fail(now, pod, profile, failure));
    }

    /// No node was found: somebody may make room.
    pub(super) fn fail_choice(
        &mut self,
        now: Tick,
        pod: PodId,
        profile: Arc<Profile>,
        mut failure: Failure,
        attempt: Attempt,
        decision: &mut Decision,
    ) {
        let mut plan = None;
        if failure.rejected && failure.fits_nowhere {
            match self.post_filter(now, pod, &profile, &attempt.outside, &mut failure) {
                PostFiltered::Nothing => {}
                PostFiltered::Room(room) => plan = Some(room),
                PostFiltered::Ask(question, call) => {
                    return self.park(pod, profile, (question, call), attempt, decision);
                }
            }
        }
        self.fail_attempt(now, pod, &profile, failure, decision);
        if let Some(room) = plan {
            self.start_plan(now, pod, profile.scheduler_name(), room);
        }
    }

    /// Tells the world and puts the pod back into the queue.
    pub(super) fn fail(
        &mut self,
        now: Tick,
        pod: PodId,
        profile: &Profile,
        failure: Failure,
    ) -> Arc<str> {
        let message: Arc<str> = failure.message.into();
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        if failure.rejected {
            let plugins = profile.plugins().iter().enumerate();
            let names = plugins.filter(|(i, _)| failure.rejectors >> i & 1 == 1);
            let names = names.map(|(_, p)| p.plugin.name());
            let outside = (failure.rejectors >> EXTENDER & 1 == 1).then_some(EXTENDER_NAME);
            self.observations.push(Observation::Rejected {
                profile: Arc::clone(profile.scheduler_name()),
                plugins: names.chain(outside).collect(),
            });
            let by = (failure.rejectors, failure.pending);
            if by.0 != 0 && profile.version() != self.version {
                self.queue.rejected_before(&cx, pod, Arc::clone(&message));
            } else {
                self.queue.rejected(&cx, pod, by, Arc::clone(&message));
            }
        } else {
            self.queue.failed(&cx, pod, Arc::clone(&message));
        }
        match failure.nominate {
            Nominate::Keep => {}
            Nominate::Clear => drop(self.nominate(now, pod, None)),
            Nominate::Set(node) => drop(self.nominate(now, pod, Some(node))),
        }
        let reason = if failure.rejected { "Unschedulable" } else { "SchedulerError" };
        self.report_failure(now, pod, profile.scheduler_name(), reason, &message);
        message
    }

    fn report_failure(
        &mut self,
        now: Tick,
        pod: PodId,
        controller: &Arc<str>,
        reason: &'static str,
        message: &Arc<str>,
    ) {
        let Some(record) = self.cluster.pod(pod) else {
            return;
        };
        self.effects.push(Effect::Event(EventRecord {
            pod: record.key.clone(),
            related: None,
            warning: true,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: truncate_note(message),
            reporting_controller: Arc::clone(controller),
        }));
        let condition = Condition {
            status: false,
            reason,
            message: Arc::clone(message),
            observed_generation: record.generation,
        };
        if self.says_already(pod, &condition) || bug!(self.bugs, ConditionForgotten) {
            self.keep_condition(pod, condition);
            return self.patch_nomination(pod);
        }
        self.write_condition(now, pod, condition);
    }

    /// The pod's cycle panicked: what it took is given back, what was derived
    /// during it is dropped, and the pod is left alone until it changes.
    pub(super) fn quarantine(
        &mut self,
        now: Tick,
        pod: PodId,
        panic: &(dyn Any + Send),
    ) -> Option<Decision> {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let what = text.unwrap_or("no message");
        let message: Arc<str> = format!("the scheduling cycle panicked: {what}").into();
        self.ledgers.clear();
        // A plugin that cannot even give back must not keep the room.
        if catch_unwind(AssertUnwindSafe(|| self.unreserve(pod))).is_err() {
            self.displace(pod);
        }
        self.queue.quarantine(pod, Arc::clone(&message));
        let (profile, mut decision) = self.undecided(pod)?;
        self.report_failure(now, pod, profile.scheduler_name(), "SchedulerError", &message);
        self.observations.push(Observation::Quarantined {
            error: format!("{}: {message}; it is not tried again until it changes", decision.pod),
        });
        (decision.outcome, decision.message) = (Outcome::Error, Some(message));
        Some(decision)
    }

    pub(super) fn skip_deleting(&mut self, pod: PodId, decision: &mut Decision) {
        self.queue.remove(pod);
        let note = format!("skip schedule deleting pod: {}", decision.pod);
        decision.message = Some(note.as_str().into());
        self.effects.push(Effect::Event(EventRecord {
            pod: decision.pod.clone(),
            related: None,
            warning: true,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: truncate_note(&note),
            reporting_controller: Arc::clone(&decision.profile),
        }));
    }
}
