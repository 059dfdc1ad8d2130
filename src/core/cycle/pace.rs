//! Pace: how fast pods are bound, and how many start on a node at a time.
//!
//! Owns who waits before it is tried because of that, and in what order it is called: for its
//! turn where a policy allows so many binds a second, or for pods to run that start on the
//! nodes. A gang waits whole. Must never place anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::muster::reason;

use super::Core;
use super::restraint::Seeker;
use super::turns::{Order, Turns};
use crate::cluster::NodeSet;
use crate::io::Tick;
use crate::policy::{PaceTerms, Rate};
use crate::queue::QueueCx;

const SECOND_MICROS: i64 = 1_000_000;
/// How many are called when one pod more runs.
const CALLED: usize = 4;
/// How often those are called who wait for pods to run, whether any does or not.
const LOOK_SECONDS: i64 = 10;
/// How many are called then.
const LOOKED: usize = 64;

/// Who waits for its pace.
#[derive(Default)]
pub(super) struct Pace {
    /// By policy.
    rates: BTreeMap<Box<str>, Turns>,
    /// Those for whom too many pods start.
    crowd: BTreeSet<Order>,
    /// When some of them are called.
    look: Option<Tick>,
    waits: BTreeMap<Seeker, Waiting>,
}

/// How one waits.
struct Waiting {
    /// In whose line; none: before nodes where pods start.
    policy: Option<Box<str>>,
    order: Order,
    /// It was set aside, and is in no queue.
    aside: bool,
}

impl Pace {
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.rates.values().filter_map(Turns::alarm).chain(self.look).min()
    }

    fn turns(&mut self, now: Tick, rate: &Rate) -> &mut Turns {
        let known = self.rates.entry(rate.policy.clone());
        let turns = known.or_insert_with(|| Turns::new(now, rate.turns, SECOND_MICROS));
        turns.refill(now, rate.turns);
        turns
    }

    fn leave(&mut self, seeker: Seeker) {
        let Some(Waiting { policy, order, .. }) = self.waits.remove(&seeker) else { return };
        match policy.map(|policy| self.rates.get_mut(&policy)) {
            Some(turns) => turns.into_iter().for_each(|turns| turns.leave(&order)),
            None => drop(self.crowd.remove(&order)),
        }
    }

    fn join_crowd(&mut self, now: Tick, seeker: Seeker, order: Order, aside: bool) {
        self.crowd.insert(order);
        self.look.get_or_insert(now.after_secs(LOOK_SECONDS));
        self.waits.insert(seeker, Waiting { policy: None, order, aside });
    }

    /// The first of those who wait for pods to run.
    fn call_crowd(&mut self, most: usize) -> Vec<Seeker> {
        let called: Vec<Order> = std::iter::from_fn(|| self.crowd.pop_first()).take(most).collect();
        self.look = self.look.filter(|_| !self.crowd.is_empty());
        called.into_iter().map(|(.., seeker)| seeker).collect()
    }
}

impl Core {
    fn pace_terms(&self, seeker: Seeker) -> PaceTerms {
        match seeker {
            Seeker::Pod(pod) => self.cluster.pace_terms(pod),
            Seeker::Gang(gang) => self.cluster.gang_pace_terms(gang),
        }
    }

    /// Whether one that was just taken from the queue has to wait: it is set aside, and called.
    pub(super) fn paced(&mut self, now: Tick, seeker: Seeker) -> bool {
        let terms = self.pace_terms(seeker);
        if terms == PaceTerms::default() {
            return false;
        }
        let order = self.seekers_order(seeker);
        if let Some(rate) = terms.rate.as_ref() {
            let binds = i64::try_from(self.binds_of(seeker)).unwrap_or(i64::MAX);
            let turns = self.pace.turns(now, rate);
            if turns.open_to(&order).is_some_and(|open| open < binds) {
                turns.join(order, binds);
                let policy = Some(rate.policy.clone());
                self.pace.waits.insert(seeker, Waiting { policy, order, aside: true });
                let text = format!(
                    "waits its turn: SchedulingPolicy {} allows {} binds a second",
                    rate.policy, rate.turns
                );
                self.set_aside(now, seeker, &text);
                return true;
            }
        }
        let crowded = terms.starting.and_then(|most| self.cluster.crowded(most));
        if crowded.is_some_and(|nodes| nodes.len() >= self.cluster.node_count()) {
            self.pace.join_crowd(now, seeker, order, true);
            let most = terms.starting.unwrap_or(0);
            self.set_aside(now, seeker, &format!("on every node {most} pods are starting"));
            return true;
        }
        false
    }

    fn set_aside(&mut self, now: Tick, seeker: Seeker, text: &str) {
        match seeker {
            Seeker::Pod(pod) => self.queue.set_aside(pod, text.into()),
            Seeker::Gang(gang) => {
                self.queue.hold_gang(gang);
                self.say(now, gang, reason::SCHEDULING, text.to_owned());
            }
        }
    }

    /// So many are on their way to be bound.
    pub(super) fn charge_pace(&mut self, now: Tick, seeker: Seeker, binds: usize) {
        if let Some(rate) = self.pace_terms(seeker).rate {
            self.pace.turns(now, &rate).spend(i64::try_from(binds).unwrap_or(i64::MAX));
        }
    }

    /// Nodes on which fewer pods start than policies allow for one; none if all are.
    pub(super) fn uncrowded(&self, seeker: Seeker) -> Option<Arc<NodeSet>> {
        let most = self.pace_terms(seeker).starting?;
        let crowded = self.cluster.crowded(most)?;
        let mut open = self.cluster.nodes().clone();
        open.subtract(&crowded);
        Some(Arc::new(open))
    }

    /// One would have room where too many pods start: it is called when some of them run.
    pub(super) fn wait_for_starts(&mut self, now: Tick, seeker: Seeker) {
        let order = self.seekers_order(seeker);
        self.pace.leave(seeker);
        self.pace.join_crowd(now, seeker, order, false);
    }

    /// A pod that was starting runs, or is gone.
    pub(super) fn start_ended(&mut self, now: Tick) {
        if !self.pace.crowd.is_empty() {
            let called = self.pace.call_crowd(CALLED);
            called.into_iter().for_each(|seeker| self.call_paced(now, seeker));
        }
    }

    /// Calls those whose turn it is.
    pub(super) fn call_pace(&mut self, now: Tick) {
        let mut called: Vec<Seeker> =
            self.pace.rates.values_mut().flat_map(|turns| turns.call(now)).collect();
        if self.pace.look.is_some_and(|at| at <= now) {
            self.pace.look = Some(now.after_secs(LOOK_SECONDS));
            called.extend(self.pace.call_crowd(LOOKED));
        }
        called.into_iter().for_each(|seeker| self.call_paced(now, seeker));
    }

    /// Policies have changed: all are tried again.
    pub(super) fn pace_changed(&mut self, now: Tick) {
        let cluster = &self.cluster;
        let mut called = self.pace.call_crowd(usize::MAX);
        for turns in self.pace.rates.values_mut() {
            called.extend(turns.disperse());
        }
        self.pace.rates.retain(|policy, _| cluster.knows_scheduling_policy(policy));
        called.into_iter().for_each(|seeker| self.call_paced(now, seeker));
    }

    fn call_paced(&mut self, now: Tick, seeker: Seeker) {
        let aside = self.pace.waits.remove(&seeker).is_some_and(|waiting| waiting.aside);
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        match seeker {
            Seeker::Pod(pod) if aside => self.queue.unhold(&cx, pod),
            Seeker::Pod(pod) => self.queue.stir(&cx, pod, "PaceTurn"),
            Seeker::Gang(gang) if aside => self.queue.unhold_gang(&cx, gang, true),
            Seeker::Gang(gang) => self.queue.call_gang(&cx, gang),
        }
    }

    /// One is gone, or has room.
    pub(super) fn paced_no_more(&mut self, seeker: Seeker) {
        if !self.pace.waits.is_empty() {
            self.pace.leave(seeker);
        }
    }

    /// How many binds one needs: a pod one, a gang as many as it lacks.
    fn binds_of(&self, seeker: Seeker) -> usize {
        let Seeker::Gang(id) = seeker else { return 1 };
        let Some(gang) = self.cluster.gang(id) else { return 1 };
        let spec = gang.spec.as_ref().map(Arc::clone);
        spec.map_or(1, |spec| {
            let held = self.standing(id, gang, &spec).held.all;
            spec.min.saturating_sub(held).max(1)
        })
    }
}
