//! What the conditions of waiting pods shall say.
//!
//! A status patch has no answer: the shell may drop it, the server refuse it, the
//! process that carried it end. So a condition counts as written only while the
//! watch shows it; until then it is asked for again, now and then. What a scheduler
//! that is no more had sent may come late, and is set right the same way.

use std::sync::Arc;

use super::Core;
use crate::io::{Condition, Effect, StatusPatch, Tick};
use crate::model::{Pod, PodId, PodStage};

/// How long the watch has to show a condition before it is asked for again.
const REMIND_SECONDS: i64 = 30;
/// How often it is asked for again; the next failure of the pod begins anew.
const MAX_REMINDERS: u32 = 20;

/// What a condition shall say.
pub(super) struct Told {
    condition: Condition,
    /// When it is asked for again; never while it is shown.
    due: Option<Tick>,
    reminders: u32,
}

impl Told {
    fn is_shown_by(&self, pod: &Pod) -> bool {
        let wanted = &self.condition;
        pod.condition.as_ref().is_some_and(|(status, reason, message)| {
            *status == wanted.status && **reason == *wanted.reason && *message == wanted.message
        })
    }
}

/// The node a pod is expected on, if the API shows another one or will.
fn untold(pod: &mut Pod) -> Option<Arc<str>> {
    let wanted = pod.nominated.as_deref().unwrap_or_default();
    let told = pod.nominated_told.as_deref();
    if *wanted == *pod.nominated_shown && told.is_none_or(|told| told == wanted) {
        return None;
    }
    pod.nominated_told = Some(wanted.into());
    pod.nominated_told.clone()
}

impl Core {
    /// Whether this is what the pod's condition says, as far as is known.
    pub(super) fn says_already(&self, pod: PodId, wanted: &Condition) -> bool {
        let same = |status: bool, reason: &str, message: &str| {
            status == wanted.status && reason == wanted.reason && message == &*wanted.message
        };
        let known = self.cluster.pod(pod).and_then(|record| record.condition.as_ref());
        let told = self.told.get(&pod).map(|told| &told.condition);
        known.is_some_and(|(status, reason, message)| same(*status, reason, message))
            && told.is_none_or(|told| same(told.status, told.reason, &told.message))
    }

    /// Asks for a condition.
    pub(super) fn write_condition(&mut self, now: Tick, pod: PodId, condition: Condition) {
        let Some(record) = self.cluster.pod_mut(pod) else {
            return;
        };
        let Condition { status, reason, message, .. } = &condition;
        record.condition = Some((*status, (*reason).into(), message.clone()));
        self.patch_condition(pod, condition.clone());
        self.unremind(pod);
        let due = now.after_secs(REMIND_SECONDS);
        self.reminders.insert((due, pod));
        self.told.insert(pod, Told { condition, due: Some(due), reminders: 0 });
    }

    /// The condition says this already: it shall go on saying it.
    pub(super) fn keep_condition(&mut self, pod: PodId, condition: Condition) {
        let told = Told { condition, due: None, reminders: 0 };
        self.told.entry(pod).or_insert(told);
    }

    fn patch_condition(&mut self, pod: PodId, condition: Condition) {
        let Some(record) = self.cluster.pod_mut(pod) else {
            return;
        };
        self.effects.push(Effect::PatchStatus(StatusPatch {
            pod: record.key.clone(),
            condition: Some(condition),
            shown: record.shown,
            nominated_node: untold(record),
        }));
    }

    /// Writes the node a pod is expected on, if the API shows another one.
    pub(super) fn patch_nomination(&mut self, pod: PodId) {
        let Some(record) = self.cluster.pod_mut(pod) else {
            return;
        };
        let nominated_node = untold(record);
        if nominated_node.is_some() {
            self.effects.push(Effect::PatchStatus(StatusPatch {
                pod: record.key.clone(),
                condition: None,
                shown: record.shown,
                nominated_node,
            }));
        }
    }

    /// Nothing needs to be said of the pod any more.
    pub(super) fn unremind(&mut self, pod: PodId) {
        if let Some(due) = self.told.remove(&pod).and_then(|told| told.due) {
            self.reminders.remove(&(due, pod));
        }
    }

    /// The watch showed the pod: perhaps with the condition that was asked for.
    pub(super) fn condition_seen(&mut self, now: Tick, pod: PodId) {
        let Some(told) = self.told.get_mut(&pod) else {
            return;
        };
        let placed = |p: &&Pod| matches!(p.stage, PodStage::Bound(_) | PodStage::Away(_));
        let record = self.cluster.pod(pod).filter(|p| !placed(p));
        let Some(record) = record else {
            return self.unremind(pod);
        };
        match (told.is_shown_by(record), told.due) {
            (true, Some(due)) => {
                told.due = None;
                self.reminders.remove(&(due, pod));
            }
            // It was shown, and is not any more.
            (false, None) => {
                let due = now.after_secs(REMIND_SECONDS);
                (told.due, told.reminders) = (Some(due), 0);
                self.reminders.insert((due, pod));
            }
            _ => {}
        }
    }

    /// Asks again for what the watch has not shown.
    pub(super) fn remind(&mut self, now: Tick) {
        while let Some(&(due, pod)) = self.reminders.first() {
            if due > now {
                break;
            }
            self.reminders.remove(&(due, pod));
            let waits = |p: &Pod| p.stage == PodStage::Pending && p.gates.is_empty();
            let waits = self.cluster.pod(pod).is_some_and(waits);
            let Some(told) = self.told.get_mut(&pod) else {
                continue;
            };
            if !waits || told.reminders == MAX_REMINDERS {
                self.told.remove(&pod);
                continue;
            }
            told.reminders += 1;
            let due = now.after_secs(REMIND_SECONDS);
            told.due = Some(due);
            let condition = told.condition.clone();
            self.reminders.insert((due, pod));
            self.patch_condition(pod, condition);
        }
    }
}
