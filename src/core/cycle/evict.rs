//! Carrying out a preemption: ask whether every eviction would be allowed, then evict.
//!
//! Owns the plans under way, one per preemptor, and which pods we evicted. A gang's
//! preemptor is one of its members, and what is to become of the others is `hold`'s. Evictions
//! go through the Eviction API, so the server has the last word on budgets; only where
//! the configuration allows a plan against them are its victims deleted. While its plan
//! is under way the preemptor is held back. Must never choose a victim.

use std::sync::Arc;

use super::Core;
use super::checkpoint::{Saving, saving, whole_seconds};
use super::failure::Failure;
use super::preempt::Found;
use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId};
use crate::framework::Status;
use crate::gang::GangId;
use crate::hash::IdMap;
use crate::io::{Effect, EventRecord, Eviction, PodRef, Removal, Request, Tick, Token};
use crate::model::{Pod, PodId, PodStage};
use crate::plugins::names;
use crate::preemption::{budgets_of, refusal};
use crate::queue::QueueCx;
use crate::report::Observation;

/// What the preemptor waits for meanwhile, in upstream's words.
const HELD: &str = "waiting for the preemption for this pod to be finished";
/// How long after a server that could not be asked it is asked again.
const AGAIN_SECONDS: i64 = 1;
/// How often that is done for one plan.
const MAX_TRIES: u32 = 60;
/// How long a pod whose eviction was refused is left alone.
const REFUSED_SECONDS: i64 = 30;

/// Namespace and name of a budget.
pub(super) type BudgetName = (Box<str>, Box<str>);

/// A preemption under way.
pub(super) struct Plan {
    /// The preemptor's UID.
    preemptor: Arc<str>,
    /// The preemptor's scheduler.
    scheduler: Arc<str>,
    pub(super) victims: Vec<Victim>,
    /// Whether its victims go whatever their budgets say.
    by_force: bool,
    /// Whether no budget stood in its way when it began.
    lawful: bool,
    pub(super) stage: Step,
    tries: u32,
    pub(super) timer: Option<Tick>,
    begun: Tick,
    /// The policy that its victims are charged to.
    policy: Option<Box<str>>,
}

impl Plan {
    /// Whether a timer runs for it.
    pub(super) fn waits(&self) -> bool {
        self.timer.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Waiting for those who save their work first; then it is planned anew.
    Save,
    /// Asking whether the server would evict.
    Ask,
    /// Evicting.
    Evict,
}

pub(super) struct Victim {
    pub(super) id: PodId,
    pub(super) key: PodRef,
    pub(super) node: Arc<str>,
    pub(super) state: Todo,
    /// When it was asked to save its work, if it was.
    pub(super) asked: Option<Tick>,
    /// It was told to go, and nobody knows whether it does.
    doubtful: bool,
    /// It is charged to a policy: nobody else waits for it.
    charged: bool,
}

/// A call on its way whose plan was given up.
pub(super) struct Orphan {
    victim: PodId,
    /// Who planned, and its UID.
    pod: PodId,
    preemptor: Arc<str>,
    step: Step,
    /// The gang it planned for, or is in.
    gang: Option<GangId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Todo {
    /// To be asked for.
    Open,
    /// To be asked for again, after a pause: nobody knows what became of the call.
    Later,
    /// On its way.
    Asked(Token),
    /// The server agrees.
    Agreed,
    /// The server will not do it.
    Refused,
    /// It is gone.
    Gone,
}

impl Core {
    /// Begins to make room on a node.
    pub(super) fn start_plan(
        &mut self,
        now: Tick,
        pod: PodId,
        scheduler: &Arc<str>,
        Found { node, victims, by_force }: Found,
    ) {
        // One that waited for savers is over: another plugin may have found this room.
        self.drop_plan(now, pod);
        let saves = self.any_saves(now, &victims);
        if !saves {
            self.observations.push(Observation::Preemption { victims: victims.len() });
        }
        let goes = |id: &PodId| {
            let there = |p: &Pod| !p.deleting && p.stage != PodStage::Pending;
            self.cluster.pod(*id).is_some_and(there) && !self.victims.gone.contains(id)
        };
        // For those who leave anyway nobody is asked, and nobody's room taken again and again.
        if victims.iter().any(goes) {
            self.unseat_others(now, pod, &node);
        }
        let mut left = Vec::new();
        let (mut in_memory, mut gang_gave_up) = (false, false);
        for id in victims {
            let stays = !self.victims.gone.contains(&id);
            // With one member that waits its whole gang has given up its room.
            let there = |p: &&Pod| stays && !p.deleting && p.stage != PodStage::Pending;
            let Some(record) = self.cluster.pod(id).filter(there) else {
                continue;
            };
            let Some(on) = record.stage.node() else {
                continue;
            };
            let (key, on) = (record.key.clone(), Arc::clone(&self.cluster.node(on).name));
            if self.unsent(id) {
                gang_gave_up |= self.round_of(id).is_some();
                // Not bound yet: it goes back to the queue, and the room is free.
                self.tell_victim(pod, scheduler, &key, &on, " (in kube-scheduler memory).");
                let status = Status::unschedulable("preempted");
                self.fail_binding(now, id, Failure::preempted(&status));
                in_memory = true;
            } else {
                let charged = !self.victims.taken.contains_key(&id);
                let (state, asked) = (Todo::Open, None);
                left.push(Victim { id, key, node: on, state, asked, doubtful: false, charged });
            }
        }
        if gang_gave_up {
            // The rest of its gang has left too, other victims among them perhaps: who still
            // has to go is found anew.
            return self.preemptor_goes(now, pod);
        }
        if left.is_empty() {
            // Nobody will be seen to go who has not been, or all are going already.
            if in_memory {
                self.preemptor_goes(now, pod);
            }
            return;
        }
        if bug!(self.bugs, VictimForgotten) && left.len() > 1 {
            left.pop();
        }
        let skipped = by_force || bug!(self.bugs, DryRunSkipped);
        let stage = match skipped {
            _ if saves => Step::Save,
            true => Step::Evict,
            false => Step::Ask,
        };
        let (tries, timer) = (0, None);
        let Some(uid) = self.cluster.pod(pod).map(|p| Arc::clone(&p.key.uid)) else {
            return;
        };
        left.iter().for_each(|victim| self.victims.take(victim.id, &uid));
        let ids: Vec<PodId> = left.iter().map(|v| v.id).collect();
        let lawful = self.lawful(pod, &ids);
        let charged = left.iter().filter(|v| v.charged).count();
        let policy = self.charge_turns(now, pod, charged);
        if !saves {
            ids.iter().for_each(|victim| self.cluster.pace_zone(*victim));
        }
        let plan = Plan {
            preemptor: uid,
            scheduler: Arc::clone(scheduler),
            victims: left,
            by_force,
            lawful,
            stage,
            tries,
            timer,
            begun: now,
            policy,
        };
        self.plans.insert(pod, plan);
        if saves {
            return self.ask_to_save(now, pod);
        }
        if !bug!(self.bugs, PlanNotHeld) && !self.hold_gang_of(pod) {
            self.queue.hold(pod, HELD.into());
        }
        self.ask(pod);
    }

    /// Who waited for its plan is tried as soon as it may be.
    fn preemptor_goes(&mut self, now: Tick, pod: PodId) {
        if !self.gang_goes(now, pod) {
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.activate_now(&cx, pod);
        }
    }

    /// Pods of lower priority that were expected on the node have to look elsewhere.
    pub(super) fn unseat_others(&mut self, now: Tick, pod: PodId, node: &str) {
        let own = self.cluster.pod(pod);
        let (priority, gang) = own.map_or((i32::MIN, None), |p| (p.priority, p.gang));
        let Some(id) = self.cluster.node_by_name(node) else {
            return;
        };
        // Members of its gang are expected there with it.
        let stranger = |p: &Pod| gang.is_none() || p.gang != gang;
        let lower = |p: &&PodId| {
            self.cluster.pod(**p).is_some_and(|p| p.priority < priority && stranger(p))
        };
        let others: Vec<PodId> =
            self.cluster.nominated_on(id).iter().filter(lower).copied().collect();
        for other in others {
            self.nominate(now, other, None);
            self.patch_nomination(other);
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.activate_now(&cx, other);
        }
    }

    /// Sends what is open of a plan's present step.
    pub(super) fn ask(&mut self, pod: PodId) {
        let now = self.cluster.now();
        let (Some(plan), Some(record)) = (self.plans.get_mut(&pod), self.cluster.pod(pod)) else {
            return;
        };
        let how = match plan.stage {
            Step::Save => Removal::Checkpoint { asked: whole_seconds(now) },
            Step::Ask => Removal::DryRun,
            Step::Evict if plan.by_force => Removal::Delete,
            Step::Evict => Removal::Evict,
        };
        let cluster = &self.cluster;
        let (mut told, mut asking): (Vec<PodId>, Vec<PodId>) = (Vec::new(), Vec::new());
        let stays = |victim: &Victim| {
            let pod = cluster.pod(victim.id).filter(|p| p.key.uid == victim.key.uid);
            let on = pod.and_then(|p| p.stage.node());
            on.is_some_and(|on| *cluster.node(on).name == *victim.node)
        };
        for (i, victim) in plan.victims.iter_mut().enumerate() {
            if victim.state != Todo::Open {
                continue;
            }
            // Its bind failed meanwhile: it has left without being asked to.
            if !stays(victim) {
                (victim.state, victim.doubtful) = (Todo::Gone, false);
                self.victims.let_go(victim.id, &record.key.uid);
                continue;
            }
            if let Removal::Checkpoint { asked } = how {
                // Who was asked already, perhaps by a process before this one, is not again.
                let known = cluster.pod(victim.id).and_then(|p| saving(p, victim.asked, now));
                if known != Some(Saving::Unasked) {
                    victim.state = Todo::Agreed;
                    continue;
                }
                victim.asked = Some(asked);
                asking.push(victim.id);
            }
            let counted = how == Removal::Evict;
            let budgets = if counted { budget_names(cluster, victim.id) } else { Vec::new() };
            // One at a time under each budget: the server counts them one by one, and is
            // slow where several are counted at once.
            if budgets.iter().any(|budget| self.spending.values().any(|b| b.contains(budget))) {
                continue;
            }
            self.next_attempt += 1;
            let token = Token(self.next_attempt);
            victim.state = Todo::Asked(token);
            self.evictions.insert(token, (pod, i));
            if !budgets.is_empty() {
                self.spending.insert(token, budgets);
            }
            if how.removes() {
                told.push(victim.id);
            }
            self.effects.push(Effect::Call {
                token,
                pod: record.key.clone(),
                plugin: names::DEFAULT_PREEMPTION.into(),
                request: Request::Evict { victim: victim.key.clone(), how },
            });
        }
        for victim in told {
            self.cluster.note_eviction(victim);
        }
        if let Removal::Checkpoint { asked } = how {
            // Who else needs the same pod to go need not ask it too.
            for victim in asking {
                if let Some(record) = self.cluster.pod_mut(victim) {
                    record.checkpoint_asked = Some(asked);
                }
            }
        }
    }

    /// The server answered.
    pub(super) fn evicted(&mut self, now: Tick, token: Token, eviction: &Eviction) {
        if self.spending.remove(&token).is_some() {
            self.answered(now, token, eviction);
            return self.ask_others(now);
        }
        self.answered(now, token, eviction);
    }

    /// A budget is free again: whoever waits for it is asked for.
    fn ask_others(&mut self, now: Tick) {
        let open = |plan: &Plan| {
            plan.stage == Step::Evict && plan.victims.iter().any(|v| v.state == Todo::Open)
        };
        let plans = self.plans.iter().filter(|(_, plan)| open(plan));
        let mut waiting: Vec<(Tick, PodId)> = plans.map(|(pod, plan)| (plan.begun, *pod)).collect();
        waiting.sort_unstable();
        for (_, pod) in waiting {
            self.ask_again(now, pod);
        }
    }

    fn answered(&mut self, now: Tick, token: Token, eviction: &Eviction) {
        if let Some(orphan) = self.orphans.remove(&token) {
            return self.orphan_answered(now, &orphan, eviction);
        }
        let Some((pod, at)) = self.evictions.remove(&token) else {
            return;
        };
        let Some(plan) = self.plans.get_mut(&pod) else {
            return;
        };
        let (step, scheduler) = (plan.stage, Arc::clone(&plan.scheduler));
        let Some(victim) = plan.victims.get_mut(at).filter(|v| v.state == Todo::Asked(token))
        else {
            return;
        };
        let (id, key, node) = (victim.id, victim.key.clone(), Arc::clone(&victim.node));
        let unknown = matches!(eviction, Eviction::Unavailable(_));
        victim.doubtful = unknown && step == Step::Evict;
        if step == Step::Save && *eviction != Eviction::Accepted {
            // Whether the note is on it nobody knows: it is asked anew.
            victim.asked = None;
            if let Some(record) = self.cluster.pod_mut(id) {
                record.checkpoint_asked = None;
            }
        }
        let cause = match eviction {
            Eviction::Accepted | Eviction::Gone => None,
            Eviction::Refused(_) => Some("budget"),
            Eviction::Unavailable(_) => Some("unavailable"),
            Eviction::Failed(_) => Some("failed"),
        };
        if let Some(cause) = cause.filter(|_| step != Step::Save) {
            let dry_run = step == Step::Ask;
            self.observations.push(Observation::EvictionRefused { cause, dry_run });
            if !dry_run {
                self.cluster.unnote_eviction(id);
            }
        }
        match eviction {
            Eviction::Refused(_) if step == Step::Ask && bug!(self.bugs, RefusalIgnored) => {
                victim.state = Todo::Agreed;
            }
            Eviction::Accepted => {
                victim.state = Todo::Agreed;
                let asked = victim.asked;
                match step {
                    Step::Save => self.was_asked(pod, &scheduler, &key, (id, asked)),
                    Step::Ask => {}
                    Step::Evict => self.tell_victim(pod, &scheduler, &key, &node, ""),
                }
            }
            Eviction::Gone => {
                victim.state = Todo::Gone;
                self.victims.let_go(id, &plan.preemptor);
                // Nobody asks for it again before the watch shows it.
                if self.cluster.pod(id).is_some_and(|p| p.key.uid == key.uid) {
                    self.victims.gone.insert(id);
                }
            }
            Eviction::Unavailable(_) if plan.tries < MAX_TRIES => {
                victim.state = Todo::Later;
                plan.tries += 1;
                let due = now.after_secs(AGAIN_SECONDS);
                if plan.timer.is_none() {
                    plan.timer = Some(due);
                    self.timers.insert((due, pod));
                }
            }
            Eviction::Refused(_) | Eviction::Unavailable(_) | Eviction::Failed(_) => {
                victim.state = Todo::Refused;
                if !victim.doubtful {
                    self.victims.let_go(id, &plan.preemptor);
                }
                self.leave_alone(now, id);
                if let Eviction::Failed(why) = eviction {
                    self.victims.why.insert(id, Arc::clone(why));
                }
            }
        }
        self.plan_step(now, pod);
    }

    /// An answer for a plan that was given up. Its gang may plan anew with the last of them.
    fn orphan_answered(&mut self, now: Tick, orphan: &Orphan, eviction: &Eviction) {
        match eviction {
            _ if orphan.step != Step::Evict => {}
            Eviction::Accepted => {}
            Eviction::Unavailable(_) => self.leave_in_doubt(now, orphan.victim),
            _ => self.victims.let_go(orphan.victim, &orphan.preemptor),
        }
        orphan.gang.into_iter().for_each(|gang| self.mind_leaving(now, gang));
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        if let Some(gang) = orphan.gang.filter(|gang| self.unanswered(*gang) == 0) {
            self.queue.gang_now(&cx, gang);
        }
        if unanswered_to(&self.orphans, &orphan.preemptor) == 0 {
            let same = |p: &&Pod| p.key.uid == orphan.preemptor && !p.deleting;
            if self.cluster.pod(orphan.pod).filter(same).is_some() {
                self.queue.activate_now(&cx, orphan.pod);
            }
        }
    }

    /// How many calls of plans that a gang has given up are still on their way.
    pub(super) fn unanswered(&self, gang: GangId) -> usize {
        self.orphans.values().filter(|orphan| orphan.gang == Some(gang)).count()
    }

    /// A member planned for itself alone, and is with its gang again: the gang plans.
    pub(super) fn plan_for_one_ends(&mut self, now: Tick, id: GangId, pod: PodId) {
        if self.hold_led_by(pod).is_some() {
            return;
        }
        let Some(plan) = self.drop_plan(now, pod) else {
            return;
        };
        let goes = |v: &PodId| {
            let there = self.cluster.pod(*v).filter(|p| p.stage != PodStage::Pending);
            there.is_some() && self.victims.is_taken_by(*v, &plan.preemptor)
        };
        let leaving = plan.victims.iter().map(|v| v.id).filter(goes).collect();
        self.inherit_leaving(now, id, &plan.preemptor, &leaving);
        if self.nominate(now, pod, None) {
            self.patch_nomination(pod);
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.unhold(&cx, pod);
        self.queue.activate_now(&cx, pod);
    }

    /// Nobody asks for this pod for a while.
    fn leave_alone(&mut self, now: Tick, victim: PodId) {
        self.leave_alone_for(now, victim, REFUSED_SECONDS);
    }

    /// Nobody asks for this pod, or counts on its going, for so many seconds.
    pub(super) fn leave_alone_for(&mut self, now: Tick, victim: PodId, seconds: i64) {
        let until = now.after_secs(seconds);
        if let Some(before) = self.victims.refused.insert(victim, until) {
            self.refusals.remove(&(before, victim));
        }
        self.refusals.insert((until, victim));
    }

    /// Nobody will say what became of this eviction: it counts until it would have been
    /// seen.
    fn leave_in_doubt(&mut self, now: Tick, victim: PodId) {
        // Taken still means that it is there.
        if self.victims.taken.contains_key(&victim) {
            self.victims.doubtful.insert(victim);
            self.leave_alone(now, victim);
        }
    }

    /// Pods that were refused a while ago may be asked for again: whoever waited for
    /// that is told.
    pub(super) fn refusals_end(&mut self, now: Tick) {
        let mut ended = false;
        while let Some(&(until, victim)) = self.refusals.first().filter(|(until, _)| *until <= now)
        {
            self.refusals.remove(&(until, victim));
            self.victims.refused.remove(&victim);
            self.victims.why.remove(&victim);
            if self.victims.doubtful.remove(&victim) {
                self.victims.taken.remove(&victim);
            }
            ended = true;
        }
        if ended {
            self.budgets_changed(now);
        }
    }

    /// Goes on when every answer of a step is there.
    pub(super) fn plan_step(&mut self, now: Tick, pod: PodId) {
        let Some(plan) = self.plans.get_mut(&pod) else {
            return;
        };
        // Every answer is waited for, so that nobody is asked about twice at a time.
        let has = |state: fn(&Todo) -> bool| plan.victims.iter().any(|v| state(&v.state));
        let acting = plan.stage == Step::Evict;
        if has(|s| matches!(s, Todo::Asked(_))) || acting && has(|s| *s == Todo::Later) {
            return;
        }
        if has(|s| *s == Todo::Refused) {
            let step = plan.stage;
            return self.plan_failed(now, pod, step);
        }
        if has(|s| matches!(s, Todo::Open | Todo::Later)) {
            return;
        }
        if plan.stage == Step::Save {
            return self.saving_step(now, pod);
        }
        if plan.stage == Step::Ask {
            let agreed = plan.victims.iter().filter(|v| v.state == Todo::Agreed);
            let agreed: Vec<PodId> = agreed.map(|v| v.id).collect();
            let was_lawful = plan.lawful;
            // Budgets may have changed since the plan was made.
            if was_lawful && !self.lawful(pod, &agreed) {
                return self.plan_failed(now, pod, Step::Ask);
            }
            let Some(plan) = self.plans.get_mut(&pod) else {
                return;
            };
            plan.stage = Step::Evict;
            for victim in plan.victims.iter_mut().filter(|v| v.state == Todo::Agreed) {
                victim.state = Todo::Open;
            }
            self.ask(pod);
            // All were gone before they were asked to go.
            return self.plan_settled(now, pod);
        }
        self.plan_settled(now, pod);
    }

    /// Whether no budget stands in the way of evicting these pods for a preemptor.
    fn lawful(&self, pod: PodId, victims: &[PodId]) -> bool {
        let others = self.victims.outstanding(&self.cluster, pod);
        let asked = |budget: (&str, &str)| others.get(&budget).copied().unwrap_or(0);
        refusal(&self.cluster, victims, asked).is_none()
    }

    fn plan_settled(&mut self, now: Tick, pod: PodId) {
        let done = self.plans.get(&pod).is_some_and(|plan| {
            plan.victims.iter().all(|v| matches!(v.state, Todo::Agreed | Todo::Gone))
        });
        if !done {
            return;
        }
        let Some(plan) = self.drop_plan(now, pod) else {
            return;
        };
        self.plan_went_well(pod);
        self.plan_observed(now, &plan, "success");
        if self.gang_plan_settled(now, pod) {
            return;
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.unhold(&cx, pod);
        // Those who are gone may have left before anybody waited for it.
        let left = |v: &Victim| v.state == Todo::Gone && !self.victims.gone.contains(&v.id);
        if plan.victims.iter().all(left) {
            self.queue.activate_now(&cx, pod);
        }
    }

    /// The server would not evict a victim. What was freed stays the preemptor's; if
    /// nothing was, it is not expected on the node any more. It plans again at once,
    /// without the pod that stays.
    fn plan_failed(&mut self, now: Tick, pod: PodId, step: Step) {
        let Some(plan) = self.drop_plan(now, pod) else {
            return;
        };
        let freed = step == Step::Evict && plan.victims.iter().any(|v| v.state == Todo::Agreed);
        self.plan_went_wrong(now, pod);
        self.plan_observed(now, &plan, "error");
        if self.gang_plan_failed(now, pod, freed) {
            return;
        }
        if !freed && self.nominate(now, pod, None) {
            self.patch_nomination(pod);
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.unhold(&cx, pod);
        self.queue.activate_now(&cx, pod);
    }

    fn plan_observed(&mut self, now: Tick, plan: &Plan, result: &'static str) {
        let micros = now.0.saturating_sub(plan.begun.0);
        self.observations.push(Observation::PreemptionDone { result, micros });
    }

    /// Forgets a plan: it is done, or its preemptor needs it no more.
    pub(super) fn drop_plan(&mut self, now: Tick, pod: PodId) -> Option<Plan> {
        let plan = self.plans.remove(&pod)?;
        if let Some(due) = plan.timer {
            self.timers.remove(&(due, pod));
        }
        for victim in &plan.victims {
            self.saving.remove(&(victim.id, pod));
        }
        if let Some(policy) = &plan.policy {
            let acted = plan.stage == Step::Evict;
            let goes = |v: &Victim| acted && matches!(v.state, Todo::Asked(_) | Todo::Agreed);
            let stays = plan.victims.iter().filter(|v| v.charged && !goes(v)).count();
            self.refund_turns(policy, stays);
        }
        let own = || self.cluster.pod(pod).filter(|p| p.key.uid == plan.preemptor)?.gang;
        let gang = self.hold_led_by(pod).or_else(own);
        for victim in &plan.victims {
            // Who was asked to go may be going, whatever becomes of the plan.
            let unasked = matches!(victim.state, Todo::Open | Todo::Later | Todo::Refused);
            let stays = plan.stage != Step::Evict || unasked;
            if let Todo::Asked(token) = victim.state {
                self.evictions.remove(&token);
                let (preemptor, step) = (Arc::clone(&plan.preemptor), plan.stage);
                let orphan = Orphan { victim: victim.id, pod, preemptor, step, gang };
                self.orphans.insert(token, orphan);
            }
            if stays && victim.doubtful {
                self.leave_in_doubt(now, victim.id);
            } else if stays {
                self.victims.let_go(victim.id, &plan.preemptor);
            }
        }
        Some(plan)
    }

    /// Time to ask again; false if the pod has no plan.
    pub(super) fn plan_timer(&mut self, now: Tick, pod: PodId) -> bool {
        let Some(plan) = self.plans.get_mut(&pod) else {
            return false;
        };
        plan.timer = None;
        // Somebody stays: what a dry run says of others matters no more, and the plan ends
        // with the last answer that is on its way.
        let lost = plan.victims.iter().any(|v| v.state == Todo::Refused);
        if plan.stage != Step::Evict && lost {
            return true;
        }
        for victim in plan.victims.iter_mut().filter(|v| v.state == Todo::Later) {
            victim.state = Todo::Open;
        }
        self.ask_again(now, pod);
        true
    }

    /// Asks for those who are left, unless a budget that was spent meanwhile forbids it.
    fn ask_again(&mut self, now: Tick, pod: PodId) {
        let Some(plan) = self.plans.get(&pod) else {
            return;
        };
        // Those that were asked to go count as long as their budget does not show it.
        let going = plan.victims.iter().filter(|v| !matches!(v.state, Todo::Gone | Todo::Refused));
        let (going, was_lawful) = (going.map(|v| v.id).collect::<Vec<_>>(), plan.lawful);
        if !was_lawful || self.lawful(pod, &going) {
            self.ask(pod);
        } else if let Some(plan) = self.plans.get_mut(&pod) {
            let unasked = |v: &&mut Victim| v.state == Todo::Open;
            plan.victims.iter_mut().filter(unasked).for_each(|v| v.state = Todo::Refused);
        }
        self.plan_step(now, pod);
    }

    fn tell_victim(
        &mut self,
        pod: PodId,
        scheduler: &Arc<str>,
        victim: &PodRef,
        node: &str,
        how: &str,
    ) {
        let Some((preemptor, by)) = self.preemptor_named(pod) else {
            return;
        };
        let note = format!("Preempted by {by} on node {node}{how}").into();
        self.effects.push(Effect::Event(EventRecord {
            pod: victim.clone(),
            related: Some(preemptor),
            warning: false,
            reason: "Preempted",
            action: "Preempting",
            note,
            reporting_controller: Arc::clone(scheduler),
        }));
    }

    /// For whom pods are made to go, and how events call it.
    pub(super) fn preemptor_named(&self, pod: PodId) -> Option<(PodRef, String)> {
        let preemptor = self.cluster.pod(pod)?.key.clone();
        let by = match self.hold_led_by(pod).and_then(|id| self.cluster.gang(id)) {
            Some(gang) => format!("pod group {} for its pod {}", gang.key, preemptor.uid),
            None => format!("pod {}", preemptor.uid),
        };
        Some((preemptor, by))
    }

    /// The node that a pod leaves for others, and its priority.
    pub(super) fn victim_on(&self, pod: PodId) -> Option<(NodeId, i32)> {
        let record = self.cluster.pod(pod)?;
        let evicted = record.disrupted || self.victims.taken.contains_key(&pod);
        let leaves = evicted || self.victims.gone.contains(&pod);
        Some((record.stage.node().filter(|_| leaves)?, record.priority))
    }

    /// A victim has left a node: whoever is expected there may have waited for just that,
    /// even if it was not the victim that kept it off.
    pub(super) fn victim_left(&mut self, now: Tick, node: NodeId, priority: i32) {
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        for &pod in self.cluster.nominated_on(node) {
            if self.cluster.pod(pod).is_some_and(|p| p.priority > priority) {
                self.queue.stir(&cx, pod, "VictimGone");
            }
        }
    }

    /// A pod is gone: it is nobody's victim any more.
    pub(super) fn forget_victim(&mut self, now: Tick, pod: PodId) {
        self.saver_gone(now, pod);
        self.hold_victim_gone(now, pod);
        self.victims.taken.remove(&pod);
        self.victims.gone.remove(&pod);
        self.victims.doubtful.remove(&pod);
        self.victims.why.remove(&pod);
        if let Some(until) = self.victims.refused.remove(&pod) {
            self.refusals.remove(&(until, pod));
        }
    }
}

/// How many calls of plans that a pod, named by UID, has given up are still on their way.
pub(super) fn unanswered_to(orphans: &IdMap<Token, Orphan>, preemptor: &str) -> usize {
    orphans.values().filter(|orphan| *orphan.preemptor == *preemptor).count()
}

/// The budgets that cover a pod, by name.
fn budget_names(cluster: &Cluster, pod: PodId) -> Vec<BudgetName> {
    let names = budgets_of(cluster, pod).map(|b| (b.namespace.clone(), b.name.clone()));
    names.collect()
}
