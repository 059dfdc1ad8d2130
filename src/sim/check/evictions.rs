//! Evictions by a scheduler, judged on the API server's truth.
//!
//! S4: a budget that guards the victim had room for it. S5: the victim is less
//! important than the pod that it makes room for, which may preempt at all; a gang that
//! lost members by nothing else has its minimum, or nobody (see `gangs`).

use muster_api::k8s::Pod;
use muster_api::muster::annotations;
use muster_core::io::Tick;

use super::Checker;
use crate::model::budget::StoredBudget;
use crate::model::objects::time_on;

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace, pod.metadata.name)
}

impl Checker {
    /// A scheduler's eviction was carried out; `victim` and `budgets` are as they were
    /// before. Of a preemptor that is gone nothing is known any more.
    pub(crate) fn evicted(
        &mut self,
        now: Tick,
        preemptor: Option<&Pod>,
        victim: &Pod,
        budgets: &[StoredBudget],
    ) {
        let name = full_name(victim);
        self.guarded(now, victim, budgets);
        self.pushed_out(victim);
        self.has_saved(now, victim);
        let Some(preemptor) = preemptor else { return };
        let priority = |pod: &Pod| pod.spec.priority.unwrap_or(0);
        let (high, low) = (priority(preemptor), priority(victim));
        let whom = full_name(preemptor);
        if high <= low {
            let what = format!("{name} ({low}) was evicted for {whom} ({high})");
            self.violation(now, "S5", &what);
        }
        if preemptor.spec.preemption_policy.as_deref() == Some("Never") {
            let what = format!("{name} was evicted for {whom}, which preempts never");
            self.violation(now, "S5", &what);
        }
    }

    /// S5: whoever wants to be asked first was, and has saved its work or had its time. Of what
    /// has run for a moment only a scheduler may not know yet that it runs.
    fn has_saved(&mut self, now: Tick, victim: &Pod) {
        let wait = victim.metadata.annotations.get(annotations::CHECKPOINT_BEFORE_EVICTION);
        let Some(wait) = wait.and_then(|wait| wait.parse::<i64>().ok()) else { return };
        let started = victim.status.start_time.map_or(i64::MAX, |time| time.0);
        let runs = victim.status.phase == "Running" && started < now.0 - self.terms.behind;
        if !runs || victim.metadata.deletion_timestamp.is_some() || self.terms.jumps {
            return;
        }
        let asked = time_on(victim, annotations::CHECKPOINT_REQUESTED);
        let saved = time_on(victim, annotations::LAST_CHECKPOINT);
        let late = |asked: i64| now >= Tick(asked).after_secs(wait);
        if !asked.is_some_and(|asked| saved >= Some(asked) || late(asked)) {
            let what = format!("{} was evicted before it had saved its work", full_name(victim));
            self.violation(now, "S5", &what);
        }
    }

    /// S4: whoever was evicted was under one budget at most, and that had room.
    pub(super) fn guarded(&mut self, now: Tick, victim: &Pod, budgets: &[StoredBudget]) {
        let name = full_name(victim);
        // Not started, or going already: under no budget.
        let guarded = victim.status.phase == "Running"
            && victim.metadata.deletion_timestamp.is_none()
            && victim.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
        let over: Vec<&StoredBudget> =
            budgets.iter().filter(|b| guarded && b.spec.covers(victim)).collect();
        if over.len() > 1 {
            self.violation(now, "S4", &format!("{name} was evicted from under two budgets"));
        }
        for budget in over.iter().filter(|b| b.status.disruptions_allowed < 1) {
            let what = format!("{name} was evicted, budget {} had no room", budget.spec.name);
            self.violation(now, "S4", &what);
        }
    }
}
