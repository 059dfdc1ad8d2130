//! What policies say of pace.

use muster_api::muster::{MAX_BINDS_PER_SECOND, MAX_STARTING_PODS, PacingPolicy};

use super::compile::within;
use super::{Policy, Rate};

/// What policies come to for pods that are about to be placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PaceTerms {
    /// Binds in a second.
    pub(crate) rate: Option<Rate>,
    /// Pods that may be starting on a node.
    pub(crate) starting: Option<u32>,
}

/// The sum, the highest priority first.
pub(crate) fn pace_terms<'a>(policies: impl Iterator<Item = &'a Policy>) -> PaceTerms {
    let mut terms = PaceTerms::default();
    for (policy, own) in policies.filter_map(|policy| Some((policy, policy.pacing.as_ref()?))) {
        let named = |turns: i32| Rate { policy: policy.name.clone(), turns: i64::from(turns) };
        terms.rate = terms.rate.or_else(|| own.binds_per_second.map(named));
        let starting = own.starting_pods_per_node.and_then(|most| u32::try_from(most).ok());
        terms.starting = terms.starting.or(starting);
    }
    terms
}

/// What is out of range.
pub(super) fn check(own: &PacingPolicy) -> Result<(), String> {
    within("pacing.bindsPerSecond", own.binds_per_second, 1, MAX_BINDS_PER_SECOND)?;
    within("pacing.startingPodsPerNode", own.starting_pods_per_node, 1, MAX_STARTING_PODS)
}

/// What a policy decides that none before it has, in words; `decided` is added to.
pub(super) fn decides(policy: &Policy, decided: &mut Vec<&'static str>) -> Vec<String> {
    let Some(own) = &policy.pacing else {
        return Vec::new();
    };
    let mut words = Vec::new();
    for (field, value) in [
        ("bindsPerSecond", own.binds_per_second),
        ("startingPodsPerNode", own.starting_pods_per_node),
    ] {
        if let Some(value) = value.filter(|_| !decided.contains(&field)) {
            decided.push(field);
            words.push(format!("pacing.{field}={value}"));
        }
    }
    words
}
