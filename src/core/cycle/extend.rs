//! Cycles that ask extenders.
//!
//! Upstream blocks while it waits for an extender; here the cycle is parked and other
//! pods have their turn. When the answer is there the cycle is run again with all
//! that extenders have said in this attempt, on the cluster as it is then: a node
//! that is gone or full by now is no longer among those that are left. Owns which
//! cycles are parked, and how many. Must never judge what a plugin judges.

use std::sync::Arc;

use super::failure::Failure;
use super::outside::{First, Outside, Question, may_ask};
use super::scope::Place;
use super::{Choice, Core, Decision, Outcome, running};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::io::{Effect, ExtenderCall, ExtenderReply, NodeNames, Request, Tick, Token};
use crate::model::{PodId, ShapeId};
use crate::queue::QueueCx;
use crate::report::QueuedPod;

/// Cycles parked at a time; beyond it pods that need an extender wait for their turn.
const MAX_ASKING: usize = 16;

/// A cycle parked on an extender.
pub(super) struct Asking {
    /// The version it began with.
    pub(super) profile: Arc<Profile>,
    outside: Outside,
    question: Question,
    call: ExtenderCall,
    reply: Option<ExtenderReply>,
    token: Token,
    /// Numbers the attempt.
    attempt: u64,
    /// When it began, for observations.
    begun: u64,
    /// What the pod waits for, for people.
    pub(super) message: Arc<str>,
}

/// An attempt: a new one, or one that goes on.
#[derive(Default)]
pub(super) struct Attempt {
    pub(super) outside: Outside,
    /// The version of its profile, if it goes on.
    pub(super) profile: Option<Arc<Profile>>,
    /// Its number and when it began, if it goes on.
    since: Option<(u64, u64)>,
    /// What an extender's answer makes of it.
    pub(super) failed: Option<Arc<str>>,
}

impl Attempt {
    /// Whether it is at its beginning.
    pub(super) fn is_new(&self) -> bool {
        self.since.is_none()
    }

    /// When it began.
    pub(super) fn begun(&self) -> Option<u64> {
        self.since.map(|(_, begun)| begun)
    }
}

impl Core {
    /// Whether one more cycle may be parked.
    pub(super) fn may_ask(&self) -> bool {
        self.asking.len() < MAX_ASKING
    }

    /// Puts a pod back whose cycle would have to ask, if there is no turn for it.
    pub(super) fn postponed(&mut self, now: Tick, pod: PodId, profile_id: usize) -> bool {
        let extenders = self.profiles[profile_id].extenders();
        if extenders.is_empty() || self.may_ask() {
            return false;
        }
        let shape = self.cluster.pod(pod).map(|p| self.cluster.shape(p.shape));
        if !shape.is_some_and(|shape| may_ask(extenders, shape)) {
            return false;
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.postpone(&cx, pod);
        true
    }

    /// Parks the cycle of a pod.
    pub(super) fn park(
        &mut self,
        pod: PodId,
        profile: Arc<Profile>,
        (question, call): (Question, ExtenderCall),
        attempt: Attempt,
        decision: &mut Decision,
    ) {
        let extenders = profile.extenders();
        let name = |position: &usize| extenders.get(*position).map(|e| Arc::clone(&e.name));
        let (verb, asked) = match &question {
            Question::Filter(position) => ("filter nodes", name(position)),
            Question::Prioritize(positions) => ("score nodes", positions.first().and_then(name)),
            Question::Preempt(position) => ("confirm a preemption", name(position)),
        };
        let plugin = asked.unwrap_or_default();
        let message: Arc<str> = format!("waiting for extender {plugin:?} to {verb}").into();
        self.next_attempt += 1;
        let token = Token(self.next_attempt);
        let since = attempt.since.unwrap_or((token.0, self.begun));
        let (attempt, outside) = (since.0, attempt.outside);
        let request = Request::Extender { attempt, call: call.clone() };
        self.effects.push(Effect::Call { token, pod: decision.pod.clone(), plugin, request });
        self.asked.insert(token, pod);
        let (begun, reply) = (since.1, None);
        let message_of = Arc::clone(&message);
        let asking =
            Asking { profile, outside, question, call, reply, token, attempt, begun, message };
        self.asking.insert(pod, asking);
        decision.outcome = Outcome::Asking;
        decision.message = Some(message_of);
    }

    /// An extender answered: its cycle goes on when it has its turn.
    pub(super) fn extender_replied(&mut self, now: Tick, token: Token, reply: ExtenderReply) {
        let Some(pod) = self.asked.remove(&token) else {
            return self.binder_replied(now, token, &reply);
        };
        if let Some(asking) = self.asking.get_mut(&pod) {
            asking.reply = Some(reply);
            self.answered.push_back(pod);
        }
    }

    /// The next cycle that can go on.
    pub(super) fn next_answered(&mut self) -> Option<(PodId, Attempt)> {
        loop {
            let pod = self.answered.pop_front()?;
            // It may be gone, and its number another pod's that still waits.
            if self.asking.get(&pod).is_none_or(|asking| asking.reply.is_none()) {
                continue;
            }
            let Some(asking) = self.asking.remove(&pod) else {
                continue;
            };
            let since = Some((asking.attempt, asking.begun));
            let (Some(entry), Some(record), Some(reply)) =
                (self.queue.entry(pod), self.cluster.pod(pod), asking.reply)
            else {
                continue;
            };
            let current = &self.profiles[entry.profile];
            let profile = if bug!(self.bugs, EndsUnderAnother) { current } else { &asking.profile };
            let profile = Arc::clone(profile);
            let extenders = Arc::clone(profile.extenders());
            let (outside, profile) = (asking.outside, Some(profile));
            let mut attempt = Attempt { outside, profile, since, failed: None };
            let about = (record, &self.cluster);
            let (question, call) = (&asking.question, &asking.call);
            let taken = attempt.outside.answer(about, &extenders, question, call, reply);
            attempt.failed = taken.err();
            return Some((pod, attempt));
        }
    }

    /// The pod needs no cycle any more: it is gone, or somebody bound it.
    pub(super) fn stop_asking(&mut self, pod: PodId) {
        if let Some(asking) = self.asking.remove(&pod) {
            self.asked.remove(&asking.token);
        }
    }

    /// Chooses a node with the help of extenders, or says what to ask them.
    pub(super) fn choose_outside(
        &mut self,
        profile: &Profile,
        shape_id: ShapeId,
        (expected, place): (Option<NodeId>, &Place),
        outside: &mut Outside,
        decision: &mut Decision,
    ) -> Result<Choice, Failure> {
        let shape = self.cluster.shape(shape_id);
        let extenders = profile.extenders();
        let Some(ledger) = self.ledgers.get_mut(&shape_id) else {
            return Err(Failure::no_nodes());
        };
        let name = |node: NodeId| Arc::clone(&self.cluster.node(node).name);
        // Where it is expected it goes, if extenders agree; else they see all nodes.
        if outside.first != First::Done
            && let Some(node) = expected
        {
            let own = name(node);
            if outside.lets_pass(&own) {
                (decision.evaluated, decision.feasible) = (1, 1);
                outside.first = First::Asked;
                return Ok(match outside.next_filter(extenders, shape) {
                    None => Choice::Node(node),
                    Some(next) => filter(extenders[next].id, next, [own].into()),
                });
            }
        }
        if outside.first != First::Done {
            outside.with_all_nodes();
        }
        if let Some(node) = expected {
            // One among the others: what is kept of it counts the pod against itself.
            ledger.expect_once(profile, shape, &self.cluster, node, Ok(()));
            ledger.open_classes(profile);
        }
        let count = self.cluster.node_count();
        if ledger.is_broken() {
            return Err(Failure::fit(profile, ledger, count));
        }
        let fitting = ledger.fitting().into_iter().filter(|node| place.has(*node));
        let fitting = fitting.map(|node| (node, name(node)));
        let left: Vec<_> = fitting.filter(|(_, name)| outside.lets_pass(name)).collect();
        decision.feasible = u32::try_from(left.len()).unwrap_or(u32::MAX);
        if left.is_empty() {
            return Err(Failure::fit_outside(profile, ledger, &self.cluster, outside));
        }
        let names = || left.iter().map(|(_, name)| Arc::clone(name)).collect::<NodeNames>();
        if let Some(next) = outside.next_filter(extenders, shape) {
            return Ok(filter(extenders[next].id, next, names()));
        }
        if let [(node, _)] = left.as_slice() {
            return Ok(Choice::Node(*node));
        }
        if let Some((plugin, status)) = &ledger.prepared.score_error {
            return Err(Failure::error(running("PreScore", profile, *plugin, status)));
        }
        let scorers = outside.next_scores(extenders, shape);
        if !scorers.is_empty() {
            let asked = scorers.iter().map(|p| extenders[*p].id).collect();
            let call = ExtenderCall::Prioritize { extenders: asked, nodes: names() };
            return Ok(Choice::Ask(Question::Prioritize(scorers), call));
        }
        let rated = left.iter().map(|(node, name)| (*node, outside.score(name)));
        let best = ledger.best_among(profile, &rated.collect::<Vec<_>>());
        best.map(|(node, _)| Choice::Node(node)).ok_or_else(Failure::no_nodes)
    }

    /// Parked cycles as people see them.
    pub(super) fn asking_views(&self) -> Vec<QueuedPod> {
        let view = |(pod, asking): (&PodId, &Asking)| {
            let (record, entry) = (self.cluster.pod(*pod)?, self.queue.entry(*pod)?);
            Some(QueuedPod {
                pod: record.key.to_string(),
                queue: "asking",
                priority: record.priority,
                attempts: entry.attempts,
                first_queued_micros: entry.first.0,
                node: String::new(),
                message: asking.message.to_string(),
            })
        };
        let mut views: Vec<QueuedPod> = self.asking.iter().filter_map(view).collect();
        views.sort_unstable_by(|a, b| a.pod.cmp(&b.pod));
        views
    }
}

fn filter(extender: crate::framework::ExtenderId, position: usize, nodes: NodeNames) -> Choice {
    Choice::Ask(Question::Filter(position), ExtenderCall::Filter { extender, nodes })
}
