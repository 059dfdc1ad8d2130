//! Groups of several APIs: whose members they are, and what their status looks
//! like.
//!
//! The arithmetic is one; a foreign group's status is said in its own form, and
//! only if one of its members is ours to schedule.

use muster_api::k8s::{
    CoschedulingPodGroup, CoschedulingPodGroupStatus, NativePodGroup, ObjectMeta,
};
use muster_api::muster::{
    self, Condition, MemberCounts, Phase, PodGroup, PodGroupSpec, PodGroupStatus, condition, reason,
};
use muster_core::gang::Api;
use serde_json::{Value, json};

use super::pace;

/// API group and version of the groups of an API.
pub(super) fn group_version(api: Api) -> (&'static str, &'static str) {
    match api {
        Api::Muster => (muster::GROUP, muster::VERSION),
        Api::Native => ("scheduling.k8s.io", "v1beta1"),
        Api::Coscheduling => ("scheduling.x-k8s.io", "v1alpha1"),
    }
}

/// A group of any API.
#[derive(Clone, Debug)]
pub(super) struct Seen<'a> {
    pub(super) meta: &'a ObjectMeta,
    pub(super) spec: PodGroupSpec,
    pub(super) form: Form,
}

impl<'a> Seen<'a> {
    pub(super) fn muster(group: &'a PodGroup) -> Self {
        let form = Form::Muster(Box::new(group.status.clone()));
        Self { meta: &group.metadata, spec: group.spec.clone(), form }
    }

    pub(super) fn native(group: &'a NativePodGroup) -> Self {
        // Without a gang policy each pod goes alone.
        let min = group.spec.scheduling_policy.gang.as_ref().map_or(1, |gang| gang.min_count);
        let form = Form::Native(group.status.conditions.clone());
        Self { meta: &group.metadata, spec: asking_for(min), form }
    }

    pub(super) fn coscheduling(group: &'a CoschedulingPodGroup) -> Self {
        let form = Form::Coscheduling(group.status.clone());
        Self { meta: &group.metadata, spec: asking_for(group.spec.min_member), form }
    }
}

fn asking_for(min: i32) -> PodGroupSpec {
    PodGroupSpec { min_member: Some(min), ..PodGroupSpec::default() }
}

/// A status as an API has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Muster(Box<PodGroupStatus>),
    Native(Vec<Condition>),
    Coscheduling(CoschedulingPodGroupStatus),
}

impl Form {
    /// What it tells of the past.
    pub(super) fn past(&self) -> PodGroupStatus {
        match self {
            Self::Muster(status) => (**status).clone(),
            Self::Native(conditions) => {
                let kind = NativePodGroup::INITIALLY_SCHEDULED;
                let was = conditions.iter().find(|c| c.kind == kind && c.is_true());
                was.map(was_scheduled).unwrap_or_default()
            }
            Self::Coscheduling(status) => past_of(status),
        }
    }

    /// The same status brought up to date.
    pub(super) fn follow(&self, status: &PodGroupStatus) -> Self {
        match self {
            Self::Muster(_) => Self::Muster(Box::new(status.clone())),
            Self::Native(before) => Self::Native(native(before, status)),
            Self::Coscheduling(_) => Self::Coscheduling(coscheduling(status)),
        }
    }

    /// Whether more than counts differs.
    pub(super) fn differs_in_substance(&self, new: &Self) -> bool {
        match (self, new) {
            (Self::Muster(old), Self::Muster(new)) => pace::differs_in_substance(old, new),
            (Self::Coscheduling(old), Self::Coscheduling(new)) => {
                old.phase != new.phase || old.schedule_start_time != new.schedule_start_time
            }
            (old, new) => old != new,
        }
    }

    /// A merge patch of the status: what is no more is taken away.
    pub(super) fn patch(&self) -> Value {
        // Types of strings, numbers and lists cannot fail to be written.
        match self {
            Self::Muster(status) => {
                let mut fields = serde_json::to_value(status).unwrap_or_default();
                if let Some(fields) = fields.as_object_mut() {
                    for name in OPTIONAL {
                        fields.entry(name).or_insert(Value::Null);
                    }
                }
                fields
            }
            Self::Native(conditions) => json!({"conditions": conditions}),
            Self::Coscheduling(status) => serde_json::to_value(status).unwrap_or_default(),
        }
    }
}

/// What a status of ours may have, and must lose if it has it no more.
const OPTIONAL: [&str; 8] = [
    "message",
    "roles",
    "domain",
    "conditions",
    "scheduleStartTime",
    "scheduledTime",
    "startTime",
    "completionTime",
];

fn was_scheduled(was: &Condition) -> PodGroupStatus {
    let scheduled = Condition { kind: condition::SCHEDULED.to_owned(), ..was.clone() };
    PodGroupStatus {
        scheduled_time: Some(was.last_transition_time),
        conditions: vec![scheduled],
        ..PodGroupStatus::default()
    }
}

/// As kube-scheduler writes it: nothing before the gang was tried, and once it was
/// scheduled for ever so.
fn native(before: &[Condition], status: &PodGroupStatus) -> Vec<Condition> {
    let mut conditions = before.to_vec();
    let Some(now) = status.condition(condition::SCHEDULED) else { return conditions };
    let kind = NativePodGroup::INITIALLY_SCHEDULED;
    let old = conditions.iter_mut().find(|c| c.kind == kind);
    let verdicts = [reason::UNSCHEDULABLE, reason::SCHEDULE_TIMEOUT, reason::REJECTED];
    let verdict = now.is_true() || verdicts.contains(&now.reason.as_str());
    if !verdict || old.as_ref().is_some_and(|c| c.is_true()) {
        return conditions;
    }
    let word = if now.is_true() { "Scheduled" } else { "Unschedulable" };
    let mut new = Condition { kind: kind.to_owned(), reason: word.to_owned(), ..now.clone() };
    match old {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time;
            }
            *old = new;
        }
        None => conditions.push(new),
    }
    conditions
}

fn coscheduling(status: &PodGroupStatus) -> CoschedulingPodGroupStatus {
    let counts = status.members.unwrap_or_default();
    let phase = match status.phase.unwrap_or_default() {
        Phase::Pending => "Pending",
        Phase::Scheduling | Phase::Waiting => "Scheduling",
        Phase::Scheduled => "Scheduled",
        Phase::Running => "Running",
        // "Part of the pods are running, others are not."
        Phase::Degraded => "Unknown",
        Phase::Succeeded => "Finished",
        Phase::Failed => "Failed",
    };
    CoschedulingPodGroupStatus {
        phase: phase.to_owned(),
        running: counts.running,
        succeeded: counts.succeeded,
        failed: counts.failed,
        schedule_start_time: status.schedule_start_time,
    }
}

fn past_of(status: &CoschedulingPodGroupStatus) -> PodGroupStatus {
    let start = status.schedule_start_time.unwrap_or_default();
    let held = |kind: &str| Condition {
        kind: kind.to_owned(),
        status: "True".to_owned(),
        last_transition_time: start,
        ..Condition::default()
    };
    let mut past = PodGroupStatus {
        schedule_start_time: status.schedule_start_time,
        ..PodGroupStatus::default()
    };
    match status.phase.as_str() {
        "Scheduled" | "Running" => {
            past.scheduled_time = Some(start);
            past.conditions.push(held(condition::SCHEDULED));
        }
        "Unknown" => past.scheduled_time = Some(start),
        "Finished" | "Failed" => {
            let finished = status.phase == "Finished";
            past.phase = Some(if finished { Phase::Succeeded } else { Phase::Failed });
            past.members = Some(MemberCounts {
                running: status.running,
                succeeded: status.succeeded,
                failed: status.failed,
                ..MemberCounts::default()
            });
            past.conditions.push(held(condition::FINISHED));
        }
        _ => {}
    }
    past
}

#[cfg(test)]
mod tests {
    use muster_api::k8s::Time;

    use super::*;

    fn status(phase: Phase, scheduled: (&str, &str)) -> PodGroupStatus {
        let condition = Condition {
            kind: condition::SCHEDULED.to_owned(),
            status: scheduled.0.to_owned(),
            reason: scheduled.1.to_owned(),
            message: "why".to_owned(),
            last_transition_time: Time(9_000_000),
            ..Condition::default()
        };
        let members =
            MemberCounts { existing: 3, running: 2, ready: 3, succeeded: 1, ..Default::default() };
        PodGroupStatus {
            phase: Some(phase),
            members: Some(members),
            conditions: vec![condition],
            ..PodGroupStatus::default()
        }
    }

    #[test]
    fn what_a_status_has_no_more_is_taken_away() {
        let bare = PodGroupStatus { phase: Some(Phase::Pending), ..PodGroupStatus::default() };
        assert_eq!(
            Form::Muster(Box::new(bare)).patch(),
            json!({
                "phase": "Pending", "message": null, "roles": null, "domain": null,
                "conditions": null, "scheduleStartTime": null, "scheduledTime": null,
                "startTime": null, "completionTime": null,
            })
        );
    }

    #[test]
    fn a_native_group_says_when_it_was_tried_and_never_unsays_that_it_was_scheduled() {
        let other = Condition { kind: "DisruptionTarget".to_owned(), ..Condition::default() };
        let mut form = Form::Native(vec![other]);
        for (phase, scheduled, expected) in [
            (Phase::Pending, ("False", reason::GANG_INCOMPLETE), ""),
            (Phase::Scheduling, ("False", reason::SCHEDULING), ""),
            (Phase::Scheduling, ("False", reason::UNSCHEDULABLE), "False Unschedulable why"),
            (Phase::Scheduling, ("False", reason::SCHEDULE_TIMEOUT), "False Unschedulable why"),
            (Phase::Waiting, ("False", reason::WAITING_FOR_PERMIT), "False Unschedulable why"),
            (Phase::Running, ("True", reason::SCHEDULED), "True Scheduled why"),
            (Phase::Degraded, ("False", reason::UNSCHEDULABLE), "True Scheduled why"),
        ] {
            form = form.follow(&status(phase, scheduled));
            let Form::Native(conditions) = &form else { panic!("{form:?}") };
            assert_eq!(conditions[0].kind, "DisruptionTarget");
            let said =
                conditions.get(1).map(|c| format!("{} {} {}", c.status, c.reason, c.message));
            assert_eq!(said.unwrap_or_default(), expected, "{phase} {scheduled:?}");
        }
        assert_eq!(form.past().scheduled_time, Some(Time(9_000_000)));
    }

    #[test]
    fn a_coscheduling_group_has_its_own_phases() {
        for (phase, expected) in [
            (Phase::Pending, "Pending"),
            (Phase::Scheduling, "Scheduling"),
            (Phase::Waiting, "Scheduling"),
            (Phase::Scheduled, "Scheduled"),
            (Phase::Running, "Running"),
            (Phase::Degraded, "Unknown"),
            (Phase::Succeeded, "Finished"),
            (Phase::Failed, "Failed"),
        ] {
            let old = Form::Coscheduling(CoschedulingPodGroupStatus::default());
            let new = old.follow(&status(phase, ("True", reason::SCHEDULED)));
            let said = json!({"phase": expected, "running": 2, "succeeded": 1, "failed": 0,
                "scheduleStartTime": null});
            assert_eq!(new.patch(), said);
            assert!(old.differs_in_substance(&new));
            let over = matches!(phase, Phase::Succeeded | Phase::Failed);
            assert_eq!(new.past().is_true(condition::FINISHED), over, "{phase}");
            assert_eq!(new.past().phase.is_some(), over, "{phase}");
        }
    }
}
