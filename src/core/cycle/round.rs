//! A round: members of a gang that have room, on their way to be bound together.
//!
//! Owns the two barriers. At the first, every member waits until no Permit plugin holds
//! any of them; at the second, until PreBind of all of them has succeeded. Before it any
//! failure, refusal or timeout gives back the room of all. After it binds go out together
//! and each is on its own. Must never let a member pass a barrier before the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::muster::reason;

use super::binding::{Left, Stage};
use super::failure::Failure;
use super::restraint::Seeker;
use super::{Core, Decision, Outcome};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::gang::{GangId, GangSpec};
use crate::io::{PodRef, Tick, Token};
use crate::model::{PodId, Taint, TaintEffect, tolerates};
use crate::queue::{QueueCx, Reach};

/// A round under way.
pub(super) struct Round {
    members: Vec<PodId>,
    profile: Arc<Profile>,
    seconds: i64,
    /// It has all members that it needs.
    whole: bool,
    /// The first barrier is passed.
    permitted: bool,
    /// Members that have passed PreBind.
    ready: usize,
}

/// What is to become of a gang whose round failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It is tried again after backing off.
    Backoff,
    /// It is tried again at once: nobody refused it.
    Again,
}

/// What is kept of gangs beside their place in the queue.
#[derive(Default)]
pub(super) struct Rounds {
    rounds: crate::hash::IdMap<GangId, Round>,
    /// Rounds that have lost a member.
    broken: BTreeSet<GangId>,
    timers: BTreeSet<(Tick, GangId, Due)>,
    /// The one gang that keeps what it has found while it waits for more.
    pub(super) accumulator: Option<GangId>,
    /// The same by gang: there may be thousands.
    armed: BTreeMap<(GangId, Due), Tick>,
    /// Since when a part of a gang is bound that was never whole.
    pub(super) half: crate::hash::IdMap<GangId, Tick>,
    /// Evictions of such parts, on their way.
    pub(super) releases: crate::hash::IdMap<Token, GangId>,
}

/// What a timer of a gang is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// The round has to be over.
    Round,
    /// What is said may be said anew.
    Words,
    /// A part of it is bound for too long.
    HalfBound,
    /// It was passed over for too long.
    Starving,
    /// Room was kept for it for another while.
    Keep,
    /// Victims have to have left for it.
    Hold,
}

impl Rounds {
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.timers.first().map(|(at, ..)| *at)
    }

    pub(super) fn arm(&mut self, gang: GangId, due: Due, at: Option<Tick>) {
        if let Some(before) = self.armed.remove(&(gang, due)) {
            self.timers.remove(&(before, gang, due));
        }
        if let Some(at) = at {
            self.armed.insert((gang, due), at);
            self.timers.insert((at, gang, due));
        }
    }
}

impl Core {
    pub(super) fn has_round(&self, gang: GangId) -> bool {
        self.rounds.rounds.contains_key(&gang)
    }

    pub(super) fn has_whole_round(&self, gang: GangId) -> bool {
        self.rounds.rounds.get(&gang).is_some_and(|round| round.whole)
    }

    /// The round that a pod is in, if it has not passed both barriers.
    pub(super) fn round_of(&self, pod: PodId) -> Option<GangId> {
        self.bindings.get(&pod).and_then(|b| b.round).filter(|gang| self.has_round(*gang))
    }

    pub(super) fn drop_round(&mut self, gang: GangId) -> Option<Vec<PodId>> {
        self.rounds.arm(gang, Due::Round, None);
        self.rounds.broken.remove(&gang);
        self.rounds.accumulator.take_if(|one| *one == gang);
        self.rounds.rounds.remove(&gang).map(|round| round.members)
    }

    /// A member is not in its round any more: the round cannot go on.
    pub(super) fn round_lost(&mut self, gang: GangId) {
        if self.has_round(gang) && !bug!(self.bugs, GangLossIgnored) {
            self.rounds.broken.insert(gang);
        }
    }

    /// Rounds that have lost a member are given up, and their gangs tried again.
    pub(super) fn mend_rounds(&mut self, now: Tick) {
        while let Some(gang) = self.rounds.broken.pop_first() {
            let failure = Failure::error("a member left while the gang was being bound".into());
            self.abort_round(now, gang, None, &failure, After::Again);
        }
    }

    /// All that is needed has room.
    pub(super) fn begin_round(
        &mut self,
        now: Tick,
        id: GangId,
        spec: &GangSpec,
        profile: &Arc<Profile>,
        members: Vec<PodId>,
        decision: &mut Decision,
    ) {
        decision.outcome = Outcome::Gathered { members: self.places(&members) };
        self.charge_pace(now, Seeker::Gang(id), members.len());
        self.add_to_round(now, id, spec, profile, members);
        self.permit_round(now, id);
    }

    /// Members with their nodes.
    pub(super) fn places(&self, members: &[PodId]) -> Vec<(PodRef, Arc<str>)> {
        let place = |pod: &PodId| {
            let node = self.bindings.get(pod)?.node;
            let name = Arc::clone(&self.cluster.node(node).name);
            Some((self.cluster.pod(*pod)?.key.clone(), name))
        };
        members.iter().filter_map(place).collect()
    }

    /// Members have room: they are in flight, in a round of their gang.
    pub(super) fn add_to_round(
        &mut self,
        now: Tick,
        id: GangId,
        spec: &GangSpec,
        profile: &Arc<Profile>,
        members: Vec<PodId>,
    ) {
        self.queue.depart(id, &members);
        for &pod in &members {
            let node = self.bindings.get(&pod).map(|b| Arc::clone(&self.cluster.node(b.node).name));
            let expected = self.cluster.pod(pod).and_then(|p| p.nominated.clone());
            if expected.is_some() && expected != node {
                self.expected_room_freed(now, pod);
            }
        }
        if bug!(self.bugs, GangExtrasEarly)
            && let Some(gang) = self.cluster.gang_mut(id)
        {
            gang.formed = true;
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.disband(&cx, id);
        }
        if let Some(round) = self.rounds.rounds.get_mut(&id) {
            return round.members.extend(members);
        }
        let (profile, seconds) = (Arc::clone(profile), spec.timeout_seconds);
        let (whole, permitted, ready) = (false, false, 0);
        let round = Round { members, profile, seconds, whole, permitted, ready };
        self.rounds.rounds.insert(id, round);
        self.rounds.arm(id, Due::Round, Some(now.after_secs(seconds)));
    }

    /// A round has all it needs: Permit is asked.
    pub(super) fn permit_round(&mut self, now: Tick, id: GangId) {
        let Some(round) = self.rounds.rounds.get_mut(&id) else {
            return;
        };
        round.whole = true;
        self.queue.gang_departs(id);
        self.rounds.accumulator.take_if(|one| *one == id);
        let pods = round.members.clone();
        for &pod in &pods {
            // What was kept over a reload ends under the version it began with.
            let begun = self.bindings.get(&pod).map(|b| (b.node, Arc::clone(&b.profile)));
            let Some((node, profile)) = begun else {
                continue;
            };
            if let Err(failure) = self.permit(now, pod, &profile, node) {
                return self.abort_round(now, id, Some(pod), &failure, After::Backoff);
            }
        }
        // One that waits holds all: whoever watches knows where they will be.
        if pods.iter().any(|pod| self.at_permit(*pod)) {
            for pod in pods {
                let node = self.bindings.get(&pod).map(|b| self.cluster.node(b.node).name.clone());
                self.cluster.nominate(pod, node);
            }
        }
        self.pass_permit(now, id);
    }

    /// Says who is waited for at Permit.
    fn say_waits(&mut self, now: Tick, id: GangId) {
        let Some(round) = self.rounds.rounds.get(&id) else {
            return;
        };
        let waiting: Vec<PodId> =
            round.members.iter().copied().filter(|pod| self.at_permit(*pod)).collect();
        let says = waiting.iter().find_map(|pod| {
            let (binding, record) = (self.bindings.get(pod)?, self.cluster.pod(*pod)?);
            let message = self.permit_message(binding);
            let why = if message.is_empty() { String::new() } else { format!(": {message}") };
            Some(format!("member {}{why}", record.key.name))
        });
        let text = format!(
            "{} of {} members wait at Permit, at most {}s; {}",
            waiting.len(),
            round.members.len(),
            round.seconds,
            says.unwrap_or_default()
        );
        self.say(now, id, reason::WAITING_FOR_PERMIT, text);
    }

    /// The first barrier: nobody is held at Permit any more.
    pub(super) fn pass_permit(&mut self, now: Tick, id: GangId) {
        let Some(round) = self.rounds.rounds.get(&id).filter(|round| !round.permitted) else {
            return;
        };
        let gathered = |pod: &PodId| {
            self.bindings.get(pod).is_some_and(|b| matches!(b.stage, Stage::Gathered))
        };
        if self.rounds.broken.contains(&id) {
            return;
        }
        if !round.members.iter().all(gathered) {
            return self.say_waits(now, id);
        }
        let members = round.members.clone();
        for pod in members {
            // A plugin may have had the round given up.
            if !self.has_round(id) {
                return;
            }
            if let Err(failure) = self.pre_bind_from(now, pod, 0) {
                return self.abort_round(now, id, Some(pod), &failure, After::Backoff);
            }
        }
        if let Some(round) = self.rounds.rounds.get_mut(&id) {
            round.permitted = true;
        }
        self.pass_pre_bind(now, id);
    }

    /// A member has passed PreBind.
    pub(super) fn pre_bound(&mut self, now: Tick, id: GangId, pod: PodId) {
        self.set_stage(pod, Stage::PreBound, None);
        if let Some(round) = self.rounds.rounds.get_mut(&id) {
            round.ready += 1;
        }
        self.pass_pre_bind(now, id);
    }

    /// The second barrier: all have passed PreBind, the binds go out together.
    fn pass_pre_bind(&mut self, now: Tick, id: GangId) {
        let Some(round) = self.rounds.rounds.get(&id) else {
            return;
        };
        let all = round.ready == round.members.len() || bug!(self.bugs, GangBarrierSkipped);
        if !round.permitted || !all || self.rounds.broken.contains(&id) {
            return;
        }
        // What the gang asks for may have changed, and bound members have gone.
        if !self.quorum_holds(id) {
            let failure = Failure::error("fewer members have room than it needs now".into());
            return self.abort_round(now, id, None, &failure, After::Again);
        }
        if let Some((pod, failure)) = self.strayed_in_round(id) {
            return self.abort_round(now, id, Some(pod), &failure, After::Again);
        }
        let members = self.drop_round(id).unwrap_or_default();
        for pod in &members {
            if let Some(binding) = self.bindings.get_mut(pod) {
                binding.round = None;
            }
        }
        for pod in members {
            if !self.ask_binder(pod, 0)
                && let Err(failure) = self.bind_by_plugin(now, pod)
            {
                self.fail_binding(now, pod, failure);
            }
        }
        self.queue.idle_gang(id, false);
        self.queue.gang_changed(id, false);
    }

    /// Gives back the room of all members of a round.
    pub(super) fn abort_round(
        &mut self,
        now: Tick,
        id: GangId,
        culprit: Option<PodId>,
        failure: &Failure,
        after: After,
    ) {
        let Some(round) = self.rounds.rounds.get(&id) else {
            return;
        };
        let profile = Arc::clone(&round.profile);
        let members = self.drop_round(id).unwrap_or_default();
        let mut left: Vec<Left> = Vec::new();
        for pod in members.iter().rev() {
            let Some(binding) = self.bindings.get(pod).filter(|b| b.round == Some(id)) else {
                continue;
            };
            let begun = binding.begun;
            if let Stage::Permit { since, .. } = binding.stage {
                self.permit_ended(now, since, "Unschedulable");
            }
            self.attempt_ended(now, begun, &profile, failure.result());
            if bug!(self.bugs, GangRoomLeaked) && Some(pod) == members.first() {
                continue;
            }
            let room = self.unreserve(*pod);
            self.nominate(now, *pod, None);
            let same = |l: &Left, r: &Left| Arc::ptr_eq(&l.0, &r.0) && Arc::ptr_eq(&l.1, &r.1);
            left.extend(room.filter(|room| !left.iter().any(|known| same(known, room))));
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.come_back(&cx, members.into_iter());
        match after {
            After::Backoff => self.queue.gang_failed(&cx, id),
            After::Again => self.queue.gang_again(&cx, id),
        }
        // What it had is no news to it.
        self.queue.take_gang_news(id);
        self.queue.gang_changed(id, false);
        let member = culprit.and_then(|pod| self.cluster.pod(pod));
        let member = member.map(|p| format!("member {}: ", p.key.name)).unwrap_or_default();
        let reason = match (after, failure.timed_out()) {
            (_, true) => reason::SCHEDULE_TIMEOUT,
            (After::Again, _) => reason::SCHEDULING,
            _ if failure.is_rejected() => reason::REJECTED,
            _ => super::words::BROKEN,
        };
        let text = format!("{member}{}", failure.message());
        self.say_gave_up(now, id, reason, &text);
        for room in left {
            self.room_freed(now, room, Reach::default());
        }
    }

    /// A node takes no pods any more: whoever has room there and is not being bound is
    /// planned again, with its gang.
    pub(super) fn node_shut(&mut self, now: Tick, node: NodeId, what: &str) {
        let pods = self.cluster.node(node).pods.clone();
        let name = Arc::clone(&self.cluster.node(node).name);
        for pod in pods {
            if let Some(gang) = self.round_of(pod).filter(|_| self.is_shut_for(node, pod)) {
                let failure = Failure::node_shut(&name, what);
                self.abort_round(now, gang, Some(pod), &failure, After::Again);
            }
        }
    }

    /// Whether a node is gone, or repels a pod that has room there.
    fn is_shut_for(&self, node: NodeId, pod: PodId) -> bool {
        let (info, syms) = (self.cluster.node(node), &self.cluster.syms);
        let Some(shape) = self.cluster.pod(pod).map(|p| self.cluster.shape(p.shape)) else {
            return false;
        };
        let tolerations = &shape.tolerations;
        let repels = |t: &Taint| {
            matches!(t.effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
                && !t.tolerated_by(tolerations, syms)
        };
        let cordoned = || {
            let (key, effect) = ("node.kubernetes.io/unschedulable", "NoSchedule");
            !tolerations.iter().any(|t| tolerates(t, key, "", effect))
        };
        !info.exists || info.taints.iter().any(repels) || info.unschedulable && cordoned()
    }

    /// A timer of a gang is due.
    pub(super) fn gang_timers(&mut self, now: Tick) {
        while let Some(&(at, gang, due)) = self.rounds.timers.first() {
            if at > now {
                break;
            }
            self.rounds.arm(gang, due, None);
            match due {
                Due::Words => self.say_now(now, gang),
                Due::HalfBound => self.release_half_bound(now, gang),
                Due::Keep => self.keep_step(now, gang),
                Due::Hold => self.hold_expired(now, gang),
                Due::Starving => {
                    let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
                    self.queue.call_gang(&cx, gang);
                }
                Due::Round => {
                    let Some(seconds) = self.rounds.rounds.get(&gang).map(|r| r.seconds) else {
                        continue;
                    };
                    let failure = Failure::round_timeout(seconds);
                    self.abort_round(now, gang, None, &failure, After::Backoff);
                }
            }
        }
    }
}
