//! What policies keep from being pushed out, and how fast others go (S5).
//!
//! Owns its own buckets of evictions. A plan is charged as it begins and given back as soon as
//! anything in it may have failed, so that nobody is blamed who may have had room. In doubt it
//! is silent.

use std::collections::BTreeMap;

use muster_api::muster::{PreemptionMode, PreemptionPolicy};

use super::Audit;
use super::plans::{Ask, Plan, Victim};
use super::pods::{Place, Pod};
use crate::io::Tick;

const MINUTE: i64 = 60_000_000;

/// What is left of a policy's evictions, times a minute.
#[derive(Debug)]
struct Bucket {
    rate: i64,
    level: i64,
    at: Tick,
}

impl Bucket {
    fn refill(&mut self, now: Tick) {
        let more = (now.0 - self.at.0).max(0).saturating_mul(self.rate);
        self.level = (self.level + more).min(self.rate * MINUTE);
        self.at = now;
    }
}

/// Buckets by policy, and what plans under way have taken from which.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    buckets: BTreeMap<String, Bucket>,
    /// By the preemptor's UID.
    taken: BTreeMap<String, (String, i64)>,
}

impl Buckets {
    /// Gives back what the last plan of a preemptor has taken.
    fn give_back(&mut self, preemptor: &str) {
        if let Some((policy, victims)) = self.taken.remove(preemptor)
            && let Some(bucket) = self.buckets.get_mut(&policy)
        {
            bucket.level = (bucket.level + victims * MINUTE).min(bucket.rate * MINUTE);
        }
    }

    /// Takes so many for a plan; false if it should have waited.
    fn take(
        &mut self,
        now: Tick,
        preemptor: &str,
        (policy, rate): (String, i64),
        victims: i64,
    ) -> bool {
        self.give_back(preemptor);
        let full = || Bucket { rate, level: rate * MINUTE, at: now };
        let bucket = self.buckets.entry(policy.clone()).or_insert_with(full);
        if bucket.rate != rate {
            // How much it had under the other rate is not asked.
            *bucket = full();
        }
        bucket.refill(now);
        let enough = bucket.level >= victims.min(rate) * MINUTE;
        bucket.level -= victims * MINUTE;
        self.taken.insert(preemptor.to_owned(), (policy, victims));
        enough
    }

    /// Forgets policies that are gone: who comes back under the name begins anew.
    pub(super) fn keep(&mut self, is_known: impl Fn(&str) -> bool) {
        self.buckets.retain(|policy, _| is_known(policy));
    }

    /// Victims of this preemptor go, whatever comes: they stay counted.
    fn settle(&mut self, preemptor: &str) {
        self.taken.remove(preemptor);
    }
}

impl Audit {
    /// What policies say of whoever has others pushed out, and which of them says how fast.
    fn preemptor_terms(&self, name: &str) -> Option<(PreemptionPolicy, String)> {
        let pod = self.world.pods.get(name)?;
        match self.plans_for(name) {
            None => self.policies.preemption(&pod.namespace, &[&pod.labels]),
            Some(group) => {
                let ours = |pod: &&Pod| pod.gang.as_ref() == Some(&group) && pod.profile.is_some();
                let members = self.world.pods.values().filter(ours);
                let labels: Vec<_> = members.map(|member| &member.labels).collect();
                self.policies.preemption(&pod.namespace, &labels)
            }
        }
    }

    /// Whether policies let the victims of a plan that begins go for this one, now.
    pub(super) fn is_allowed(&mut self, now: Tick, name: &str, plan: &Plan) {
        if !self.policies.speak_of_preemption() {
            return;
        }
        for victim in &plan.victims {
            self.may_be_pushed(now, name, victim);
        }
    }

    fn may_be_pushed(&mut self, now: Tick, name: &str, victim: &Victim) {
        let there = self.world.pods.get(&victim.name).filter(|p| p.uid == victim.uid);
        let (Some(high), Some(low)) = (self.world.pods.get(name), there) else {
            return;
        };
        let other = &victim.name;
        let mut wrong = Vec::new();
        if let Some((terms, _)) = self.preemptor_terms(name) {
            match terms.mode {
                None | Some(PreemptionMode::Enabled) => {}
                Some(mode) => {
                    wrong.push(format!("{other} shall go for {name}, whose mode is {mode}"));
                }
            }
            // How long a gang has waited, others may have begun to.
            let alone = self.plans_for(name).is_none();
            let waited = now.secs() - high.first.secs();
            if alone && waited + 1 < i64::from(terms.delay_seconds.unwrap_or(0)) {
                wrong.push(format!("{other} shall go for {name}, which has waited {waited}s only"));
            }
        }
        if let Some((terms, _)) = self.policies.preemption(&low.namespace, &[&low.labels]) {
            let gap = i64::from(high.priority) - i64::from(low.priority);
            let ranked = high.has_rank && low.has_rank;
            if ranked && gap < i64::from(terms.min_priority_gap.unwrap_or(1)) {
                wrong.push(format!("{other} shall go for {name}, which is only {gap} above it"));
            }
            let ran = low.started.map(|since| now.secs() - since);
            let bound = matches!(low.place, Place::Bound { .. }) && !low.deleting;
            let least = i64::from(terms.min_runtime_seconds.unwrap_or(0));
            if bound && ran.is_some_and(|ran| ran + 1 < least) {
                wrong.push(format!("{other} shall go for {name}, and has not run for {least}s"));
            }
        }
        wrong.into_iter().for_each(|what| self.violation("S5", what));
    }

    /// Whether the policy of whoever begins a plan allows as many to go now.
    pub(super) fn keeps_the_rate(&mut self, now: Tick, name: &str, plan: &Plan) {
        let Some(uid) = self.world.pods.get(name).map(|pod: &Pod| pod.uid.clone()) else { return };
        let Some((terms, policy)) = self.preemptor_terms(name) else { return };
        let Some(rate) = terms.victims_per_minute.map(i64::from) else { return };
        // Whom somebody else has made to go is nobody more.
        let alone = |victim: &&Victim| {
            let mut others = self.plans.plans.iter().filter(|(own, _)| **own != uid);
            !others.any(|(_, other)| other.victims.iter().any(|v| v.uid == victim.uid))
        };
        let victims = plan.victims.iter().filter(alone).count();
        if victims == 0 {
            return;
        }
        let victims = i64::try_from(victims).unwrap_or(i64::MAX);
        if !self.buckets.take(now, &uid, (policy.clone(), rate), victims) {
            let what = format!("{victims} go for {name}, more than {policy} allows now ({rate})");
            self.violation("S5", what);
        }
    }

    /// Answers have come for plans of these: what may have failed is not counted any more.
    pub(super) fn recount(&mut self, preemptors: &[String]) {
        for preemptor in preemptors {
            let Some(plan) = self.plans.plans.get(preemptor) else { continue };
            let failed = |ask: Ask| matches!(ask, Ask::No | Ask::Gone | Ask::Unknown);
            if plan.victims.iter().any(|v| failed(v.dry) || failed(v.real)) {
                self.buckets.give_back(preemptor);
            } else if plan.victims.iter().all(|v| v.real == Ask::Yes) {
                self.buckets.settle(preemptor);
            }
        }
    }

    /// A preemptor is gone: its plan may have ended before anybody went.
    pub(super) fn uncount(&mut self, preemptor: &str) {
        self.buckets.give_back(preemptor);
    }
}
