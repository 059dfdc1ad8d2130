//! What policies say of preemption: of those that push others out, and of those that are
//! pushed out.

use muster_api::muster::{
    MAX_PRIORITY_GAP, MAX_SECONDS, MAX_VICTIMS_PER_MINUTE, PreemptionMode, PreemptionPolicy,
};

use super::Policy;
use super::compile::within;

/// How many in a time, and which policy says so: all that it governs share what it allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) policy: Box<str>,
    pub(crate) turns: i64,
}

/// What is said of pods that find no room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PreemptorTerms {
    pub(crate) mode: PreemptionMode,
    pub(crate) rate: Option<Rate>,
    pub(crate) delay_seconds: i64,
    pub(crate) max_pause_seconds: i64,
    /// Above which priority budgets may be broken.
    pub(crate) force_above: Option<i32>,
}

/// What is said of pods that others would push out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VictimTerms {
    pub(crate) min_runtime_seconds: i64,
    pub(crate) min_gap: Option<i32>,
    pub(crate) repeat_window_seconds: Option<i64>,
    pub(crate) unhealthy_zone_percent: Option<i32>,
}

/// The policies that say anything of preemption.
fn speaking<'a>(
    policies: impl Iterator<Item = &'a Policy>,
) -> impl Iterator<Item = (&'a Policy, &'a PreemptionPolicy)> {
    policies.filter_map(|policy| Some((policy, policy.preemption.as_ref()?)))
}

/// What policies come to for those that push out others, the highest priority first.
pub(crate) fn preemptor_terms<'a>(policies: impl Iterator<Item = &'a Policy>) -> PreemptorTerms {
    let mut sum = PreemptionPolicy::default();
    let mut rate = None;
    for (policy, own) in speaking(policies) {
        let named = |turns: i32| Rate { policy: policy.name.clone(), turns: i64::from(turns) };
        rate = rate.or_else(|| own.victims_per_minute.map(named));
        sum.mode = sum.mode.or(own.mode);
        sum.delay_seconds = sum.delay_seconds.or(own.delay_seconds);
        sum.max_pause_seconds = sum.max_pause_seconds.or(own.max_pause_seconds);
        sum.force_above_priority = sum.force_above_priority.or(own.force_above_priority);
    }
    PreemptorTerms {
        mode: sum.mode.unwrap_or_default(),
        rate,
        delay_seconds: sum.delay_seconds.unwrap_or(0).into(),
        max_pause_seconds: sum.max_pause_seconds.unwrap_or(0).into(),
        force_above: sum.force_above_priority,
    }
}

/// The same for those that would be pushed out.
pub(crate) fn victim_terms<'a>(policies: impl Iterator<Item = &'a Policy>) -> VictimTerms {
    let mut sum = VictimTerms::default();
    let mut min_runtime = None;
    for (_, own) in speaking(policies) {
        min_runtime = min_runtime.or(own.min_runtime_seconds);
        sum.min_gap = sum.min_gap.or(own.min_priority_gap);
        let window = own.repeat_window_seconds.map(i64::from);
        sum.repeat_window_seconds = sum.repeat_window_seconds.or(window);
        sum.unhealthy_zone_percent = sum.unhealthy_zone_percent.or(own.unhealthy_zone_percent);
    }
    sum.min_runtime_seconds = min_runtime.unwrap_or(0).into();
    sum
}

/// Whether a policy keeps anybody from being pushed out.
pub(crate) fn protects(policy: &PreemptionPolicy) -> bool {
    policy.min_runtime_seconds.is_some()
        || policy.min_priority_gap.is_some()
        || policy.repeat_window_seconds.is_some()
        || policy.unhealthy_zone_percent.is_some()
}

/// What is out of range.
pub(super) fn check(wire: &PreemptionPolicy) -> Result<(), String> {
    for (field, number, least, most) in fields(wire) {
        within(&format!("preemption.{field}"), number, least, most)?;
    }
    Ok(())
}

type Field = (&'static str, Option<i32>, i32, i32);

/// Its numbers, with what they may be.
fn fields(own: &PreemptionPolicy) -> [Field; 8] {
    [
        ("victimsPerMinute", own.victims_per_minute, 1, MAX_VICTIMS_PER_MINUTE),
        ("delaySeconds", own.delay_seconds, 0, MAX_SECONDS),
        ("maxPauseSeconds", own.max_pause_seconds, 0, MAX_SECONDS),
        ("forceAbovePriority", own.force_above_priority, i32::MIN, i32::MAX),
        ("minRuntimeSeconds", own.min_runtime_seconds, 0, MAX_SECONDS),
        ("minPriorityGap", own.min_priority_gap, 1, MAX_PRIORITY_GAP),
        ("repeatWindowSeconds", own.repeat_window_seconds, 1, MAX_SECONDS),
        ("unhealthyZonePercent", own.unhealthy_zone_percent, 0, 100),
    ]
}

/// What a policy decides that none before it has, in words; `decided` is added to.
pub(super) fn decides(policy: &Policy, decided: &mut Vec<&'static str>) -> Vec<String> {
    let Some(own) = &policy.preemption else {
        return Vec::new();
    };
    let mode = own.mode.map(|mode| ("mode", mode.to_string()));
    let numbers = fields(own).into_iter();
    let numbers = numbers.filter_map(|(field, number, ..)| Some((field, number?.to_string())));
    let mut words = Vec::new();
    for (field, value) in mode.into_iter().chain(numbers) {
        if !decided.contains(&field) {
            decided.push(field);
            words.push(format!("preemption.{field}={value}"));
        }
    }
    words
}
