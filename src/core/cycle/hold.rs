//! Room that preemption is freeing for a gang.
//!
//! Owns which gangs wait for victims to leave, and for whom. The members are expected on
//! the nodes that the plan found for them, so others of no higher priority leave the room
//! alone, until the gang has it or the hold expires. A gang has one plan at a time, and none
//! while somebody still leaves for the last one or an answer about it is on its way. Must
//! never choose a victim or evict one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Core;
use super::round::Due;
use crate::bugs::bug;
use crate::gang::GangId;
use crate::io::Tick;
use crate::model::{PodId, PodStage};
use crate::queue::QueueCx;

/// How long after its evictions room is held for a gang, at most: victims have that long to
/// leave. Who has not by then is not counted on for as long again.
const HOLD_SECONDS: i64 = 600;

/// Gangs that wait for room to be freed.
pub(super) type Holds = BTreeMap<GangId, Hold>;

/// A gang that waits for room to be freed.
pub(super) struct Hold {
    /// The member in whose name pods are made to go; none if nothing is held any more, and
    /// victims leave all the same.
    leader: Option<PodId>,
    /// In whose name they were.
    uid: Arc<str>,
    /// Who has not left yet.
    leaving: BTreeSet<PodId>,
}

/// Where members of a gang were expected.
pub(super) type Expected = Vec<(PodId, Arc<str>)>;

impl Core {
    /// Room is being freed for a gang, in the name of one of its members.
    pub(super) fn begin_hold(
        &mut self,
        now: Tick,
        id: GangId,
        leader: PodId,
        leaving: BTreeSet<PodId>,
    ) {
        let Some(uid) = self.cluster.pod(leader).map(|p| Arc::clone(&p.key.uid)) else {
            return;
        };
        self.holds.insert(id, Hold { leader: Some(leader), uid, leaving });
        self.rounds.arm(id, Due::Hold, Some(now.after_secs(HOLD_SECONDS)));
    }

    /// Who was made to go for a member alone leaves for its gang: it is one again.
    pub(super) fn inherit_leaving(
        &mut self,
        now: Tick,
        id: GangId,
        uid: &Arc<str>,
        leaving: &BTreeSet<PodId>,
    ) {
        if leaving.is_empty() {
            return;
        }
        let hold = self.holds.entry(id).or_insert_with(|| Hold {
            leader: None,
            uid: Arc::clone(uid),
            leaving: BTreeSet::new(),
        });
        hold.leaving.extend(leaving);
        self.rounds.arm(id, Due::Hold, Some(now.after_secs(HOLD_SECONDS)));
    }

    /// The gang for which pods are made to go in the name of this one.
    pub(super) fn hold_led_by(&self, pod: PodId) -> Option<GangId> {
        let mut holds = self.holds.iter();
        holds.find(|(_, hold)| self.leader_of(hold) == Some(pod)).map(|(id, _)| *id)
    }

    /// The member in whose name pods are made to go; none if it is gone, and its number another
    /// pod's.
    fn leader_of(&self, hold: &Hold) -> Option<PodId> {
        let same = |pod: &PodId| self.cluster.pod(*pod).is_none_or(|p| p.key.uid == hold.uid);
        hold.leader.filter(same)
    }

    /// The member in whose name pods are made to go for a gang.
    pub(super) fn led_by(&self, id: GangId) -> Option<PodId> {
        self.leader_of(self.holds.get(&id)?)
    }

    /// How many are still to leave for a gang.
    pub(super) fn still_leaving(&self, id: GangId) -> usize {
        if bug!(self.bugs, GangPlansTwice) {
            return 0;
        }
        self.holds.get(&id).map_or(0, |hold| hold.leaving.len())
    }

    /// The gang of a preemptor is not tried while its plan is carried out; false if the
    /// pod goes alone.
    pub(super) fn hold_gang_of(&mut self, pod: PodId) -> bool {
        let gang = self.hold_led_by(pod);
        gang.into_iter().for_each(|id| self.queue.hold_gang(id));
        gang.is_some()
    }

    /// Nobody has to be asked to go, or not those that were thought to: the gang is tried
    /// anew; false if the pod goes alone.
    pub(super) fn gang_goes(&mut self, now: Tick, pod: PodId) -> bool {
        let Some(id) = self.hold_led_by(pod) else {
            return false;
        };
        self.end_hold(now, id);
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.gang_now(&cx, id);
        true
    }

    /// Who is to go has saved its work: the gang plans anew, and is expected where it was until
    /// then. False if the pod goes alone.
    pub(super) fn gang_plans_anew(&mut self, now: Tick, pod: PodId) -> bool {
        let Some(id) = self.hold_led_by(pod) else {
            return false;
        };
        self.count_leaving(id);
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.call_gang(&cx, id);
        true
    }

    /// All victims were told to go; false if the pod goes alone.
    pub(super) fn gang_plan_settled(&mut self, now: Tick, pod: PodId) -> bool {
        let Some(id) = self.hold_led_by(pod) else {
            return false;
        };
        self.count_leaving(id);
        self.rounds.arm(id, Due::Hold, Some(now.after_secs(HOLD_SECONDS)));
        let at_once = self.still_leaving(id) == 0;
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.unhold_gang(&cx, id, at_once);
        true
    }

    /// A victim may not go. What was freed stays the gang's, and it plans for the rest when
    /// those who go have left; if nothing was, it plans anew. False if the pod goes alone.
    pub(super) fn gang_plan_failed(&mut self, now: Tick, pod: PodId, freed: bool) -> bool {
        let Some(id) = self.hold_led_by(pod) else {
            return false;
        };
        if freed {
            self.count_leaving(id);
        } else {
            self.end_hold(now, id);
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.unhold_gang(&cx, id, true);
        true
    }

    /// Forgets victims of a gang that stay after all.
    fn count_leaving(&mut self, id: GangId) {
        let Some(hold) = self.holds.get_mut(&id) else {
            return;
        };
        let (victims, cluster, uid) = (&self.victims, &self.cluster, &hold.uid);
        hold.leaving.retain(|pod| {
            let taken = victims.taken.get(pod).is_some_and(|by| by.contains(uid));
            let there = cluster.pod(*pod).filter(|p| p.stage != PodStage::Pending);
            there.is_some_and(|p| p.deleting || taken || victims.gone.contains(pod))
        });
    }

    /// A victim may stay after all, though nothing is held any more.
    pub(super) fn mind_leaving(&mut self, now: Tick, id: GangId) {
        if self.holds.get(&id).is_some_and(|hold| hold.leader.is_none()) {
            self.count_leaving(id);
            if self.still_leaving(id) == 0 {
                self.drop_hold(now, id);
            }
        }
    }

    /// Whoever waits for this pod to leave waits no more.
    pub(super) fn hold_victim_gone(&mut self, now: Tick, pod: PodId) {
        let mut free: Vec<GangId> = Vec::new();
        for (id, hold) in &mut self.holds {
            if hold.leaving.remove(&pod) && hold.leaving.is_empty() {
                free.push(*id);
            }
        }
        for id in &free {
            if self.holds.get(id).is_some_and(|hold| hold.leader.is_none()) {
                self.drop_hold(now, *id);
            }
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        free.into_iter().for_each(|id| self.queue.gang_now(&cx, id));
    }

    /// The member in whose name pods were made to go may be gone, and its plan with it.
    pub(super) fn mind_hold(&mut self, now: Tick, id: GangId) {
        if self.holds.get(&id).is_none_or(|hold| hold.leader.is_none()) {
            return;
        }
        if !self.led_by(id).is_some_and(|leader| self.plans.contains_key(&leader)) {
            self.count_leaving(id);
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.unhold_gang(&cx, id, false);
        }
    }

    /// The gang has its room: nothing is held for it any more.
    pub(super) fn drop_hold(&mut self, now: Tick, id: GangId) -> bool {
        self.rounds.arm(id, Due::Hold, None);
        if !self.holds.contains_key(&id) {
            return false;
        }
        if let Some(leader) = self.led_by(id) {
            self.drop_plan(now, leader);
        }
        self.holds.remove(&id);
        true
    }

    /// The gang lacks members: no room is held, but it does not plan anew either before
    /// those have left who were told to.
    pub(super) fn pause_hold(&mut self, now: Tick, id: GangId) {
        let Some(hold) = self.holds.get(&id).filter(|hold| hold.leader.is_some()) else {
            return;
        };
        let uid = Arc::clone(&hold.uid);
        if let Some(leader) = self.led_by(id) {
            self.drop_plan(now, leader);
        }
        self.count_leaving(id);
        let leaving = self.holds.get(&id).map(|hold| hold.leaving.clone()).unwrap_or_default();
        self.end_hold(now, id);
        self.inherit_leaving(now, id, &uid, &leaving);
    }

    /// No room is held for the gang any more: its members are expected nowhere.
    pub(super) fn end_hold(&mut self, now: Tick, id: GangId) {
        if !self.drop_hold(now, id) {
            return;
        }
        let members: Vec<PodId> = self.queue.gathered(id).collect();
        for pod in members {
            if self.nominate(now, pod, None) {
                self.patch_nomination(pod);
            }
        }
    }

    /// Victims did not leave in time: the gang looks for others.
    pub(super) fn hold_expired(&mut self, now: Tick, id: GangId) {
        let Some(hold) = self.holds.get(&id) else {
            return;
        };
        let stuck: Vec<PodId> = hold.leaving.iter().copied().collect();
        for pod in stuck {
            self.leave_alone_for(now, pod, HOLD_SECONDS);
        }
        self.end_hold(now, id);
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.unhold_gang(&cx, id, true);
        self.queue.call_gang(&cx, id);
    }

    /// Where members are expected must not stand in the way of their own gang: they are
    /// expected nowhere while it is tried. Nobody is told. A process before this one may have
    /// written it; of room that is kept otherwise each member has its own part.
    pub(super) fn lift_expectations(&mut self, id: GangId) -> Expected {
        if self.keep.as_ref().is_some_and(|keep| keep.is_for(id)) || !self.cluster.has_nominations()
        {
            return Vec::new();
        }
        let members: Vec<PodId> = self.queue.gathered(id).collect();
        let mut lifted = Vec::new();
        for pod in members {
            if let Some(node) = self.cluster.pod(pod).and_then(|p| p.nominated.clone()) {
                self.cluster.nominate(pod, None);
                lifted.push((pod, node));
            }
        }
        lifted
    }

    /// Members are expected where they were before the attempt.
    pub(super) fn restore_expectations(&mut self, lifted: Expected) {
        for (pod, node) in lifted {
            let waits = self.cluster.pod(pod).is_some_and(|p| p.stage == PodStage::Pending);
            if waits {
                self.cluster.nominate(pod, Some(node));
            }
        }
    }

    /// The gang has room: where its members were expected and are not, others may have it.
    pub(super) fn expectations_met(&mut self, now: Tick, id: GangId, lifted: Expected) {
        self.drop_hold(now, id);
        for (pod, expected) in lifted {
            let node = self.cluster.pod(pod).and_then(|p| p.stage.node());
            let there = node.is_some_and(|node| self.cluster.node(node).name == expected);
            if !there {
                self.expected_room_freed(now, pod);
            }
        }
    }
}
