//! What policies keep from being pushed out, and how fast others go (S5).
//!
//! Owns its own books of evictions. Only plans of which every victim goes are booked, for the
//! time at which they began: whether they could begin then is worked out from all that were
//! booked before. In doubt it is silent.

use std::collections::BTreeMap;

use muster_api::muster::{PreemptionMode, PreemptionPolicy};

use super::Audit;
use super::plans::{Ask, Plan, Victim};
use super::pods::{Place, Pod};
use crate::io::Tick;

const MINUTE: i64 = 60_000_000;
/// Plans that are remembered of a policy.
const MAX_BOOKED: usize = 512;

/// A plan under way, and who allows how many a minute.
#[derive(Debug)]
struct Charge {
    policy: String,
    rate: i64,
    begun: Tick,
    victims: i64,
}

/// Plans under a policy, by when they began, with how many they made go.
#[derive(Debug)]
struct Book {
    rate: i64,
    plans: Vec<(Tick, i64)>,
}

impl Book {
    /// Whether all of them could begin when they did: the bucket was full at first, holds a
    /// minute's worth, and whoever needs more waits until it is full.
    fn is_sound(&self) -> bool {
        let most = self.rate * MINUTE;
        let (mut level, mut last) = (most, self.plans.first().map_or(Tick(0), |(at, _)| *at));
        self.plans.iter().all(|(at, victims)| {
            let more = (at.0 - last.0).max(0).saturating_mul(self.rate);
            level = level.saturating_add(more).min(most);
            last = *at;
            let enough = level >= victims * MINUTE || level >= most;
            level -= victims * MINUTE;
            enough
        })
    }
}

/// Books by policy, and plans under way by the preemptor's UID.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    books: BTreeMap<String, Book>,
    begun: BTreeMap<String, Charge>,
}

impl Buckets {
    /// Forgets policies that are gone: who comes back under the name begins anew.
    pub(super) fn keep(&mut self, is_known: impl Fn(&str) -> bool) {
        self.books.retain(|policy, _| is_known(policy));
        self.begun.retain(|_, charge| is_known(&charge.policy));
    }

    /// All victims of a preemptor's plan go. The policy that did not allow it, if one did not.
    fn book(&mut self, preemptor: &str) -> Option<String> {
        let Charge { policy, rate, begun, victims } = self.begun.remove(preemptor)?;
        let none = || Book { rate, plans: Vec::new() };
        let book = self.books.entry(policy.clone()).or_insert_with(none);
        if book.rate != rate {
            // How much there was under the other rate is not asked.
            *book = none();
        }
        let at = book.plans.partition_point(|(other, _)| *other <= begun);
        book.plans.insert(at, (begun, victims));
        if book.plans.len() > MAX_BOOKED {
            book.plans.remove(0);
        }
        (!book.is_sound()).then_some(policy)
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

    /// Notes whose policy whoever begins a plan is charged to.
    pub(super) fn charge(&mut self, now: Tick, name: &str, plan: &Plan) {
        let Some(uid) = self.world.pods.get(name).map(|pod: &Pod| pod.uid.clone()) else { return };
        let Some((terms, policy)) = self.preemptor_terms(name) else { return };
        let Some(rate) = terms.victims_per_minute.map(i64::from) else { return };
        // Whom somebody else has made to go is nobody more.
        let alone = |victim: &&Victim| {
            let mut others = self.plans.plans.iter().filter(|(own, _)| **own != uid);
            !others.any(|(_, other)| other.victims.iter().any(|v| v.uid == victim.uid))
        };
        let victims = plan.victims.iter().filter(alone).count();
        let victims = i64::try_from(victims).unwrap_or(i64::MAX);
        let charge = Charge { policy, rate, begun: now, victims };
        self.buckets.begun.insert(uid, charge);
    }

    /// Answers have come for plans of these.
    pub(super) fn book(&mut self, preemptors: &[String]) {
        for preemptor in preemptors {
            let Some(plan) = self.plans.plans.get(preemptor) else { continue };
            if !plan.victims.iter().all(|v| v.real == Ask::Yes) {
                continue;
            }
            if let Some(policy) = self.buckets.book(preemptor) {
                let what = format!("more go for {preemptor} than policy {policy} allows by then");
                self.violation("S5", what);
            }
        }
    }

    /// A preemptor is gone: its plan may have ended before anybody went.
    pub(super) fn unbook(&mut self, preemptor: &str) {
        self.buckets.begun.remove(preemptor);
    }
}
