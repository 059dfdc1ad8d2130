//! Scheduling policies: what they ask for, which of them are in force, and what they
//! come to together.
//!
//! Owns the translation from the wire ([`Policy`]), the verdict on each ([`judge()`]) and
//! the merge ([`Scoring`], [`GangTerms`], `preemption`, `pacing`). Which policies govern a pod is known to
//! `cluster/governance.rs`. Must never switch a filter off: a policy weighs scores, sets
//! what gangs leave out, and holds preemption and binds back.

mod compile;
mod judge;
mod pacing;
mod preemption;
#[cfg(test)]
mod tests;

pub use compile::{Placement, Policy, Thresholds};
pub use judge::{Judged, MAX_POLICIES, Verdict, judge};
pub(crate) use pacing::{PaceTerms, pace_terms};
pub(crate) use preemption::{
    PreemptorTerms, Rate, VictimTerms, preemptor_terms, protects, victim_terms,
};

use std::sync::Arc;

use muster_api::muster::{HalfBound, TopologyRequest};

/// Which nodes are preferred by how full they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Preference {
    /// Full ones.
    Full,
    /// Empty ones.
    Empty,
    /// Neither.
    Neither,
}

/// How the scores of a pod are weighed: what of its policies is in its shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scoring {
    /// Weights in place of the profile's, by plugin, sorted.
    pub weights: Box<[(Box<str>, i64)]>,
    /// In place of the strategy of NodeResourcesFit.
    pub prefers: Option<Preference>,
}

impl Scoring {
    /// The weight of a plugin, if it is another than the profile's.
    #[must_use]
    pub fn weight(&self, plugin: &str) -> Option<i64> {
        let at = self.weights.binary_search_by(|(name, _)| (**name).cmp(plugin)).ok()?;
        Some(self.weights[at].1)
    }
}

/// What policies say of gangs whose group leaves it out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GangTerms {
    /// How long room may be held before the minimum is bound.
    pub timeout_seconds: Option<i64>,
    /// How long members may take to start.
    pub start_seconds: Option<i32>,
    /// How long it may be passed over before room is kept for it.
    pub starvation_seconds: Option<i64>,
    /// Whether the bound members are let go if the rest cannot be bound in time.
    pub release: Option<bool>,
    /// Where members shall be, if the group does not say.
    pub topology: Option<Arc<TopologyRequest>>,
}

/// A policy in force as it is now: what goes by the load is decided.
pub(crate) struct Active<'a> {
    pub(crate) policy: &'a Policy,
    /// Of one that packs at low load: whether it does.
    pub(crate) packs: bool,
}

impl Active<'_> {
    fn prefers(&self) -> Option<Preference> {
        match self.policy.placement.as_ref()? {
            Placement::Fixed(preference) => Some(*preference),
            Placement::ByLoad(_) if self.packs => Some(Preference::Full),
            Placement::ByLoad(_) => Some(Preference::Empty),
        }
    }
}

/// What policies come to, the highest priority first. None if they leave scores as they
/// are.
pub(crate) fn scoring<'a>(policies: impl Iterator<Item = Active<'a>>) -> Option<Scoring> {
    let (mut weights, mut prefers) = (Vec::<(Box<str>, i64)>::new(), None);
    for active in policies {
        for (plugin, weight) in &active.policy.weights {
            if weights.iter().all(|(known, _)| known != plugin) {
                weights.push((plugin.clone(), *weight));
            }
        }
        prefers = prefers.or_else(|| active.prefers());
    }
    weights.sort_unstable();
    let scoring = Scoring { weights: weights.into(), prefers };
    (scoring != Scoring::default()).then_some(scoring)
}

/// The same for gangs, field by field.
pub(crate) fn gang_terms<'a>(policies: impl Iterator<Item = &'a Policy>) -> GangTerms {
    let mut terms = GangTerms::default();
    for policy in policies {
        let gang = &policy.gang;
        let own = GangTerms {
            timeout_seconds: gang.schedule_timeout_seconds.map(i64::from),
            start_seconds: gang.start_timeout_seconds,
            starvation_seconds: gang.starvation_seconds.map(i64::from),
            release: gang.when_half_bound.map(|then| then == HalfBound::Release),
            topology: policy.topology.clone(),
        };
        terms = GangTerms {
            timeout_seconds: terms.timeout_seconds.or(own.timeout_seconds),
            start_seconds: terms.start_seconds.or(own.start_seconds),
            starvation_seconds: terms.starvation_seconds.or(own.starvation_seconds),
            release: terms.release.or(own.release),
            topology: terms.topology.or(own.topology),
        };
    }
    terms
}

/// What each policy decides of a pod, in words, the highest priority first: what a
/// higher one has decided is not decided again.
pub(crate) fn decides<'a>(policies: impl Iterator<Item = Active<'a>>) -> Vec<Vec<String>> {
    let (mut weighed, mut placed, mut near) = (Vec::<Box<str>>::new(), false, false);
    let (mut preempts, mut paces) = (Vec::new(), Vec::new());
    let each = policies.map(|active| {
        let mut own = Vec::new();
        for (plugin, weight) in &active.policy.weights {
            if !weighed.contains(plugin) {
                weighed.push(plugin.clone());
                own.push(format!("scoreWeights[{plugin}]={weight}"));
            }
        }
        if let Some(placement) = active.policy.placement.as_ref().filter(|_| !placed) {
            placed = true;
            own.push(format!("placement={}", placement.words(active.packs)));
        }
        if let Some(topology) = active.policy.topology.as_ref().filter(|_| !near) {
            near = true;
            let level = |word: &str, level: &Option<String>| {
                level.as_ref().map(|level| format!("{word} {level}"))
            };
            let levels =
                [level("required", &topology.required), level("preferred", &topology.preferred)];
            let levels: Vec<String> = levels.into_iter().flatten().collect();
            own.push(format!("topology={}", levels.join(", ")));
        }
        own.extend(preemption::decides(active.policy, &mut preempts));
        own.extend(pacing::decides(active.policy, &mut paces));
        own
    });
    each.collect()
}
