//! Against storms: when whoever found no room may have others pushed out.
//!
//! Owns who waits before it plans, for what, and when it is called: for an autoscaler to act
//! first, for the pause after a failed plan to end, for its turn where a policy allows so many
//! evictions a minute, for victims that may go later. Whoever no policy speaks of waits for
//! nothing. Must never choose a victim.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use muster_api::muster::PreemptionMode;

use super::Core;
use super::turns::{Order, Turns};
use crate::bugs::{Bugs, bug};
use crate::gang::GangId;
use crate::io::Tick;
use crate::model::PodId;
use crate::policy::{PreemptorTerms, Rate};
use crate::queue::QueueCx;

/// The span in which a policy allows so many evictions.
const MINUTE_MICROS: i64 = 60_000_000;
/// Longest pause between two looks at victims that may go later.
const MAX_LOOK_SECONDS: i64 = 32;

/// Who found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Seeker {
    Pod(PodId),
    Gang(GangId),
}

/// What is known of one that waits.
#[derive(Debug, Default)]
struct Wait {
    /// Since when it has found no room.
    since: Option<Tick>,
    /// Plans that failed since the last one that did not.
    failures: u32,
    /// It makes no plan before.
    paused: Option<Tick>,
    /// Looks in vain at victims that may go later.
    looks: u32,
    /// When it is called.
    alarm: Option<Tick>,
    /// The policy in whose line it stands.
    line: Option<(Box<str>, Order)>,
}

/// All that wait.
#[derive(Default)]
pub(super) struct Restraint {
    waits: BTreeMap<Seeker, Wait>,
    alarms: BTreeSet<(Tick, Seeker)>,
    /// By policy.
    rates: BTreeMap<Box<str>, Turns>,
}

/// One that has found no room, and what policies say of it.
pub(super) struct Seeking {
    pub(super) seeker: Seeker,
    pub(super) terms: PreemptorTerms,
    order: Order,
}

impl Restraint {
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        let alarm = self.alarms.first().map(|(at, _)| *at);
        self.rates.values().filter_map(Turns::alarm).chain(alarm).min()
    }

    fn set_alarm(&mut self, seeker: Seeker, at: Tick) {
        let wait = self.waits.entry(seeker).or_default();
        if let Some(before) = wait.alarm.replace(at) {
            self.alarms.remove(&(before, seeker));
        }
        self.alarms.insert((at, seeker));
    }

    fn leave_line(&mut self, seeker: Seeker) {
        let line = self.waits.get_mut(&seeker).and_then(|wait| wait.line.take());
        if let Some((policy, order)) = line
            && let Some(turns) = self.rates.get_mut(&policy)
        {
            turns.leave(&order);
        }
    }

    /// Why nobody goes for one now, if policies say so, as a reason and for people; what it
    /// waits for calls it.
    pub(super) fn held_back(
        &mut self,
        now: Tick,
        by: &Seeking,
        bugs: Bugs,
    ) -> Option<(&'static str, String)> {
        let terms = &by.terms;
        if *terms == PreemptorTerms::default() {
            return None;
        }
        if terms.mode == PreemptionMode::Never {
            return Some(("never", "its SchedulingPolicy says mode Never".to_owned()));
        }
        let wait = self.waits.entry(by.seeker).or_default();
        let due = wait.since.get_or_insert(now).after_secs(terms.delay_seconds);
        if now < due && !bug!(bugs, DelayIgnored) {
            self.set_alarm(by.seeker, due);
            let seconds = terms.delay_seconds;
            return Some(("delay", format!("nobody goes in its first {seconds}s (delaySeconds)")));
        }
        if let Some(until) = wait.paused.filter(|until| now < *until) {
            self.set_alarm(by.seeker, until);
            return Some(("pause", "pauses after a failed plan (maxPauseSeconds)".to_owned()));
        }
        self.wait_for(now, by, 1, bugs)
    }

    /// Why so many cannot go for one now: it is called when they can.
    pub(super) fn wait_for(
        &mut self,
        now: Tick,
        by: &Seeking,
        victims: usize,
        bugs: Bugs,
    ) -> Option<(&'static str, String)> {
        let simulates = by.terms.mode == PreemptionMode::Simulate;
        let rate = by.terms.rate.as_ref().filter(|_| !simulates && !bug!(bugs, RateIgnored))?;
        self.leave_line(by.seeker);
        let victims = i64::try_from(victims).unwrap_or(i64::MAX);
        let turns = self.turns(now, rate);
        if turns.open_to(&by.order).is_none_or(|open| open >= victims) {
            return None;
        }
        turns.join(by.order, victims);
        let line = Some((rate.policy.clone(), by.order));
        self.waits.entry(by.seeker).or_default().line = line;
        let (policy, most) = (&rate.policy, rate.turns);
        let text =
            format!("waits its turn: SchedulingPolicy {policy} allows {most} evictions a minute");
        Some(("rate", text))
    }

    /// Why nobody goes for one now, as far as it waits for that; nothing changes.
    pub(super) fn says(&self, now: Tick, by: &Seeking) -> String {
        let terms = &by.terms;
        let wait = self.waits.get(&by.seeker);
        let paused = wait.and_then(|wait| wait.paused).is_some_and(|until| now < until);
        let due = wait.and_then(|wait| wait.since).unwrap_or(now).after_secs(terms.delay_seconds);
        if terms.mode != PreemptionMode::Enabled {
            format!("its SchedulingPolicy says mode {}", terms.mode)
        } else if now < due {
            format!("nobody goes in its first {}s (delaySeconds)", terms.delay_seconds)
        } else if paused {
            "pauses after a failed plan (maxPauseSeconds)".to_owned()
        } else if let Some((policy, _)) = wait.and_then(|wait| wait.line.as_ref()) {
            let before = self.rates.get(policy).map_or(0, |turns| turns.before(&by.order));
            format!("waits its turn: {before} come before it by SchedulingPolicy {policy}")
        } else {
            String::new()
        }
    }

    /// The bucket of a policy as it is now.
    fn turns(&mut self, now: Tick, rate: &Rate) -> &mut Turns {
        let known = self.rates.entry(rate.policy.clone());
        let turns = known.or_insert_with(|| Turns::new(now, rate.turns, MINUTE_MICROS));
        turns.refill(now, rate.turns);
        turns
    }

    /// A plan failed, or none was found: the next waits longer.
    pub(super) fn went_wrong(&mut self, now: Tick, by: &Seeking) {
        let most = by.terms.max_pause_seconds;
        if most > 0 {
            let wait = self.waits.entry(by.seeker).or_default();
            wait.paused = Some(now.after_secs(grown(wait.failures).min(most)));
            wait.failures += 1;
        }
    }

    /// Victims may go later: one looks again then, but each time it was in vain later.
    pub(super) fn look_again(&mut self, now: Tick, seeker: Seeker, at: Tick) {
        let wait = self.waits.entry(seeker).or_default();
        let pause = grown(wait.looks).min(MAX_LOOK_SECONDS);
        wait.looks += 1;
        self.set_alarm(seeker, at.max(now.after_secs(pause)));
    }
}

/// A second, doubled so many times.
fn grown(times: u32) -> i64 {
    1 << times.min(32)
}

impl Core {
    /// One that has found no room.
    pub(super) fn seeking(&self, seeker: Seeker) -> Seeking {
        let terms = match seeker {
            Seeker::Pod(pod) => self.cluster.preemptor_terms(pod),
            Seeker::Gang(gang) => self.cluster.gang_preemptor_terms(gang),
        };
        Seeking { seeker, terms, order: self.seekers_order(seeker) }
    }

    /// The more important come first, then the older.
    pub(super) fn seekers_order(&self, seeker: Seeker) -> Order {
        let of = |pod: PodId| self.cluster.pod(pod).map(|p| (p.priority, p.created));
        let (priority, created) = match seeker {
            Seeker::Pod(pod) => of(pod),
            Seeker::Gang(gang) => {
                let members = self.queue.gathered(gang).filter_map(of);
                members.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
            }
        }
        .unwrap_or((i32::MIN, Tick::default()));
        (Reverse(priority), created, seeker)
    }

    /// In whose name pods are made to go: a gang, or the pod alone.
    pub(super) fn seeker_of(&self, pod: PodId) -> Seeker {
        self.hold_led_by(pod).map_or(Seeker::Pod(pod), Seeker::Gang)
    }

    /// So many are made to go: they are charged to the policy whose name is returned.
    pub(super) fn charge_turns(
        &mut self,
        now: Tick,
        pod: PodId,
        victims: usize,
    ) -> Option<Box<str>> {
        let by = self.seeking(self.seeker_of(pod));
        let rate = by.terms.rate?;
        self.restraint.leave_line(by.seeker);
        let turns = self.restraint.turns(now, &rate);
        turns.spend(i64::try_from(victims).unwrap_or(i64::MAX));
        Some(rate.policy)
    }

    /// So many of them stay after all.
    pub(super) fn refund_turns(&mut self, policy: &str, victims: usize) {
        if let Some(turns) = self.restraint.rates.get_mut(policy) {
            turns.refund(i64::try_from(victims).unwrap_or(0));
        }
    }

    /// The plan of a pod, or of the gang in whose name it plans, failed.
    pub(super) fn plan_went_wrong(&mut self, now: Tick, pod: PodId) {
        let by = self.seeking(self.seeker_of(pod));
        self.restraint.went_wrong(now, &by);
    }

    /// Its victims go: nothing is held against it.
    pub(super) fn plan_went_well(&mut self, pod: PodId) {
        let seeker = self.seeker_of(pod);
        if let Some(wait) = self.restraint.waits.get_mut(&seeker) {
            (wait.failures, wait.paused, wait.looks) = (0, None, 0);
        }
    }

    /// One has room, or is gone.
    pub(super) fn seeks_no_more(&mut self, seeker: Seeker) {
        if let Seeker::Gang(gang) = seeker {
            self.looked.remove(&gang);
        }
        self.paced_no_more(seeker);
        if self.restraint.waits.is_empty() {
            return;
        }
        self.restraint.leave_line(seeker);
        if let Some(wait) = self.restraint.waits.remove(&seeker)
            && let Some(at) = wait.alarm
        {
            self.restraint.alarms.remove(&(at, seeker));
        }
    }

    /// Calls those whose time has come.
    pub(super) fn call_seekers(&mut self, now: Tick) {
        while let Some(&(at, seeker)) = self.restraint.alarms.first().filter(|(at, _)| *at <= now) {
            self.restraint.alarms.remove(&(at, seeker));
            if let Some(wait) = self.restraint.waits.get_mut(&seeker) {
                wait.alarm = None;
            }
            self.call_seeker(now, seeker);
        }
        let called: Vec<Seeker> =
            self.restraint.rates.values_mut().flat_map(|turns| turns.call(now)).collect();
        for seeker in called {
            if let Some(wait) = self.restraint.waits.get_mut(&seeker) {
                wait.line = None;
            }
            self.call_seeker(now, seeker);
        }
    }

    fn call_seeker(&mut self, now: Tick, seeker: Seeker) {
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        match seeker {
            Seeker::Pod(pod) => self.queue.stir(&cx, pod, "PreemptionTurn"),
            Seeker::Gang(gang) => self.queue.call_gang(&cx, gang),
        }
    }

    /// Policies, or whom they govern, have changed: whoever waits because of them is tried
    /// again, and so is whoever found victims protected.
    pub(super) fn protections_changed(&mut self, now: Tick) {
        self.pace_changed(now);
        self.restraint.alarms.clear();
        let cluster = &self.cluster;
        self.restraint.rates.retain(|policy, turns| {
            cluster.knows_scheduling_policy(policy) || turns.alarm().is_some()
        });
        let mut seekers: BTreeSet<Seeker> = BTreeSet::new();
        for turns in self.restraint.rates.values_mut() {
            seekers.extend(turns.disperse());
        }
        for (seeker, wait) in &mut self.restraint.waits {
            wait.line = None;
            if wait.alarm.take().is_some() {
                seekers.insert(*seeker);
            }
        }
        seekers.into_iter().for_each(|seeker| self.call_seeker(now, seeker));
        self.budgets_changed(now);
    }
}
