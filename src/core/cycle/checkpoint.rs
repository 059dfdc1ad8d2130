//! Victims that save their work before they have to go.
//!
//! Owns the wait between a plan and its evictions: who is asked, by a note on the pod, and when
//! the wait is over. The note says all there is to know, so a process that takes over goes on
//! from there. The preemptor is not held back meanwhile: room that comes is taken. When all
//! have saved their work, or have had their time, it plans anew, and what has changed counts:
//! budgets, policies, who is there; who was asked is not asked again for that. Must never choose
//! a victim, or evict one.

use std::sync::Arc;

use super::Core;
use super::evict::{Step, Todo, Victim};
use crate::bugs::bug;
use crate::cluster::Cluster;
use crate::gang::GangId;
use crate::io::{Effect, EventRecord, PodRef, Tick};
use crate::model::{Pod, PodId};
use crate::queue::QueueCx;
use crate::report::Observation;

/// How long after a pod has saved its work, or has had its time for it, it may be pushed out
/// without being asked anew.
const STANDS_SECONDS: i64 = 300;

/// Whether a pod that wants to be asked first may be pushed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Saving {
    /// It was not asked lately.
    Unasked,
    /// It was asked, and has until then.
    Until(Tick),
    /// It has saved its work.
    Saved,
    /// It has had its time.
    Late,
}

/// What a pod needs before it is pushed out; nothing if it does not ask for it, or has no work
/// to save. `asked`: when it was asked, if that may not be seen yet.
pub(super) fn saving(pod: &Pod, asked: Option<Tick>, now: Tick) -> Option<Saving> {
    let wait = pod.checkpoint_wait.filter(|_| pod.running && !pod.deleting)?;
    // By a clock that is ahead of ours nobody is waited for: it is asked anew, by our own.
    let asked = asked.or(pod.checkpoint_asked).filter(|asked| *asked <= now);
    let Some(asked) = asked else {
        return Some(Saving::Unasked);
    };
    if let Some(saved) = pod.checkpoint.filter(|saved| *saved >= asked) {
        let stands = now < saved.after_secs(STANDS_SECONDS);
        return Some(if stands { Saving::Saved } else { Saving::Unasked });
    }
    let due = asked.after_secs(wait);
    Some(if now < due {
        Saving::Until(due)
    } else if now < due.after_secs(STANDS_SECONDS) {
        Saving::Late
    } else {
        Saving::Unasked
    })
}

/// As a note on a pod says it.
pub(super) fn whole_seconds(now: Tick) -> Tick {
    Tick::default().after_secs(now.secs())
}

impl Victim {
    /// Until when it is waited for.
    fn saves_until(&self, cluster: &Cluster, now: Tick) -> Option<Tick> {
        let pod = cluster.pod(self.id).filter(|p| p.key.uid == self.key.uid)?;
        match saving(pod, self.asked, now)? {
            Saving::Until(due) if self.state == Todo::Agreed => Some(due),
            _ => None,
        }
    }
}

impl Core {
    /// Whether somebody among victims has to be asked, or waited for, before any of them goes.
    pub(super) fn any_saves(&self, now: Tick, victims: &[PodId]) -> bool {
        let saves = |id: &PodId| {
            let pod = self.cluster.pod(*id).filter(|_| !self.victims.gone.contains(id));
            let saving = pod.and_then(|p| saving(p, None, now));
            matches!(saving, Some(Saving::Unasked | Saving::Until(_)))
        };
        !bug!(self.bugs, CheckpointSkipped) && victims.iter().any(saves)
    }

    /// The plan of a preemptor begins with questions: all at once.
    pub(super) fn ask_to_save(&mut self, now: Tick, pod: PodId) {
        let plan = self.plans.get(&pod);
        let victims: Vec<PodId> = plan.iter().flat_map(|p| &p.victims).map(|v| v.id).collect();
        self.saving.extend(victims.into_iter().map(|victim| (victim, pod)));
        self.ask(pod);
        self.plan_step(now, pod);
    }

    /// The note is on a victim.
    pub(super) fn was_asked(
        &mut self,
        pod: PodId,
        scheduler: &Arc<str>,
        victim: &PodRef,
        (id, asked): (PodId, Option<Tick>),
    ) {
        let same = |p: &&mut Pod| p.key.uid == victim.uid;
        let Some(record) = self.cluster.pod_mut(id).filter(same) else {
            return;
        };
        record.checkpoint_asked = asked.or(record.checkpoint_asked);
        let wait = record.checkpoint_wait.unwrap_or(0);
        self.observations.push(Observation::Checkpoint { result: "asked" });
        let Some((preemptor, by)) = self.preemptor_named(pod) else {
            return;
        };
        self.effects.push(Effect::Event(EventRecord {
            pod: victim.clone(),
            related: Some(preemptor),
            warning: false,
            reason: "CheckpointRequested",
            action: "Preempting",
            note: format!("To be preempted by {by}: it has {wait}s to save its work").into(),
            reporting_controller: Arc::clone(scheduler),
        }));
    }

    /// All questions are answered: waits for those who save their work.
    pub(super) fn saving_step(&mut self, now: Tick, pod: PodId) {
        let Some(plan) = self.plans.get_mut(&pod) else {
            return;
        };
        let cluster = &self.cluster;
        let until = plan.victims.iter().filter_map(|v| v.saves_until(cluster, now)).max();
        let Some(due) = until else {
            return self.saving_ends(now, pod);
        };
        if let Some(before) = plan.timer.replace(due) {
            self.timers.remove(&(before, pod));
        }
        self.timers.insert((due, pod));
    }

    /// Everybody may go: the preemptor plans anew, unless it needs nobody to go any more.
    fn saving_ends(&mut self, now: Tick, pod: PodId) {
        let Some(plan) = self.drop_plan(now, pod) else {
            return;
        };
        for victim in &plan.victims {
            let record = self.cluster.pod(victim.id).filter(|p| p.key.uid == victim.key.uid);
            let result = match record.and_then(|p| saving(p, victim.asked, now)) {
                Some(Saving::Saved) => "saved",
                Some(Saving::Late) => "late",
                _ => continue,
            };
            self.observations.push(Observation::Checkpoint { result });
        }
        if !self.gang_plans_anew(now, pod) {
            let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
            self.queue.stir(&cx, pod, "CheckpointDone");
        }
    }

    /// A pod has changed: it may have been waited for.
    pub(super) fn saving_news(&mut self, now: Tick, victim: PodId) {
        for pod in self.savers_plans(victim) {
            if self.plans.get(&pod).is_some_and(|plan| plan.stage == Step::Save) {
                self.plan_step(now, pod);
            }
        }
    }

    /// A pod is gone: nobody waits for it to save its work.
    pub(super) fn saver_gone(&mut self, now: Tick, victim: PodId) {
        for pod in self.savers_plans(victim) {
            self.saving.remove(&(victim, pod));
            let Some(plan) = self.plans.get_mut(&pod).filter(|p| p.stage == Step::Save) else {
                continue;
            };
            for own in plan.victims.iter_mut().filter(|v| v.id == victim) {
                // An answer that is on its way is waited for.
                if !matches!(own.state, Todo::Asked(_)) {
                    own.state = Todo::Gone;
                }
            }
            self.plan_step(now, pod);
        }
    }

    fn savers_plans(&self, victim: PodId) -> Vec<PodId> {
        let all = self.saving.range((victim, PodId(0))..=(victim, PodId(u32::MAX)));
        all.map(|(_, pod)| *pod).collect()
    }

    /// For how many victims that save their work a pod waits.
    pub(super) fn waits_for_savers(&self, now: Tick, pod: PodId) -> Option<usize> {
        let plan = self.plans.get(&pod).filter(|plan| plan.stage == Step::Save)?;
        let asked = |v: &&Victim| {
            let open = matches!(v.state, Todo::Open | Todo::Later | Todo::Asked(_));
            open || v.saves_until(&self.cluster, now).is_some()
        };
        Some(plan.victims.iter().filter(asked).count())
    }

    /// For how many victims that save their work a gang waits.
    pub(super) fn gang_waits_for_savers(&self, now: Tick, id: GangId) -> Option<usize> {
        self.waits_for_savers(now, self.led_by(id)?)
    }
}
