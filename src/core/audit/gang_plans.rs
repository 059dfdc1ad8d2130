//! Who may be pushed out as far as gangs are concerned, by a pod or for a gang (S5).
//!
//! A gang that loses a member has what it needs without it, or loses all of them. Victims
//! of a gang make room for all that it lacks, and none of them is too many: judged by
//! numbers, for gangs whose members are alike and ask for nothing else. In doubt it is
//! silent.

use std::collections::{BTreeMap, BTreeSet};

use super::Audit;
use super::fit::{Answer, Node, Usage};
use super::plans::{Plan, Victim};
use super::pods::{Place, Pod};

/// How long victims have to leave before they are given up.
const PATIENCE_SECONDS: i64 = 600;

impl Audit {
    /// The group for which a pod has others pushed out, if it does not go alone.
    pub(super) fn plans_for(&self, name: &str) -> Option<String> {
        let group = self.world.pods.get(name)?.gang.clone()?;
        self.is_short(&group).then_some(group)
    }

    /// Whether a group lacks members.
    fn is_short(&self, group: &str) -> bool {
        let has = |pod: &Pod| !matches!(pod.place, Place::Pending);
        let members = self.world.members(group, has);
        let members = members.map(|(_, pod)| (pod.uid.as_str(), &pod.labels));
        self.groups.is_met(group, members).is_err()
    }

    fn victims<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (&'a Victim, &'a Pod)> {
        let of = |v: &Victim| self.world.pods.get(&v.name).filter(|p| p.uid == v.uid);
        plan.victims.iter().filter_map(move |v| Some((v, of(v)?)))
    }

    /// No gang is left with less than it needs, and more than nothing.
    pub(super) fn cuts_no_gang(&mut self, name: &str, plan: &Plan) {
        let goes: BTreeSet<&str> = plan.victims.iter().map(|v| v.uid.as_str()).collect();
        let groups: BTreeSet<&String> =
            self.victims(plan).filter_map(|(_, pod)| pod.gang.as_ref()).collect();
        let mut wrong = Vec::new();
        for group in groups {
            // What is below its minimum already was cut by something else.
            if self.is_short(group) || !self.groups.is_gang(group) {
                continue;
            }
            let stays = |pod: &Pod| {
                let there = !matches!(pod.place, Place::Pending) && !self.plans.is_gone(&pod.uid);
                there && !goes.contains(pod.uid.as_str())
            };
            let left: BTreeMap<&str, &Pod> =
                self.world.members(group, stays).map(|(_, pod)| (pod.uid.as_str(), pod)).collect();
            let labels = left.iter().map(|(uid, pod)| (*uid, &pod.labels));
            if !left.is_empty() && self.groups.is_met(group, labels).is_err() {
                wrong
                    .push(format!("{} members of {group} are left by {name}, too few", left.len()));
            }
        }
        wrong.into_iter().for_each(|what| self.violation("S5", what));
    }

    /// All members that are missing fit once the victims are gone; with one victim back, or
    /// one gang that has to go whole, they do not.
    pub(super) fn makes_sense_for(&mut self, name: &str, group: &str, plan: &Plan) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let Some(profile) = pod.profile.map(|p| &self.profiles[p]) else { return };
        let modelled = profile.complete && !self.lenient && !self.world.repelled;
        let alike = |other: &Pod| {
            other.priority == pod.priority
                && other.idle_load == pod.idle_load
                && other.wants.is_as(&pod.wants)
        };
        let waits = |other: &Pod| matches!(other.place, Place::Pending);
        let plain = pod.wants.ports.is_empty() && !pod.wants.unmodelled && pod.has_rank;
        if !modelled || !plain || !self.world.members(group, waits).all(|(_, other)| alike(other)) {
            return;
        }
        let has = |other: &Pod| !waits(other);
        let held = self.world.members(group, has).count();
        let Some(need) = self.groups.missing(group, held) else { return };
        let goes: BTreeSet<&str> = plan.victims.iter().map(|v| v.name.as_str()).collect();
        let leaves = |other: &Pod| other.deleting || self.plans.is_gone(&other.uid);
        let weaker = |other: &Pod| {
            let passing = !matches!(other.place, Place::Bound { .. });
            leaves(other) || other.priority < pod.priority && passing
        };
        let mut wrong = Vec::new();
        let most =
            self.fits(pod, need, |node| self.without(node, |n, p| goes.contains(n) || weaker(p)));
        if most < need {
            wrong
                .push(format!("{need} members of {group} are missing, {most} fit without victims"));
        }
        // Where members may be is judged elsewhere: by numbers alone nobody is superfluous.
        let anywhere = !self.groups.has_topology(group) && !self.policies.have_topology();
        for unit in self.units(plan).into_iter().filter(|_| anywhere) {
            let room = |node: &str| {
                let stays = |n: &str| goes.contains(n) && !unit.contains(n);
                let mut left = self.without(node, |n, _| stays(n));
                self.expect_but(&mut left, node, name, group);
                left
            };
            if self.fits(pod, need, room) >= need {
                wrong.push(format!("{group} has room though {unit:?} stay"));
            }
        }
        wrong.into_iter().for_each(|what| self.violation("S5", what));
    }

    /// Victims as they go: members of gangs that go whole together.
    pub(super) fn units<'a>(&'a self, plan: &'a Plan) -> Vec<BTreeSet<&'a str>> {
        let mut gangs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut units = Vec::new();
        for (victim, pod) in self.victims(plan).filter(|(_, pod)| !pod.deleting) {
            match pod.gang.as_deref().filter(|group| self.groups.is_gang(group)) {
                Some(group) => drop(gangs.entry(group).or_default().insert(&victim.name)),
                None => units.push(BTreeSet::from([victim.name.as_str()])),
            }
        }
        for (group, own) in gangs {
            let has = |pod: &Pod| !matches!(pod.place, Place::Pending) && !pod.deleting;
            let all = self.world.members(group, has).count();
            if own.len() < all {
                units.extend(own.into_iter().map(|one| BTreeSet::from([one])));
            } else {
                units.push(own);
            }
        }
        units
    }

    /// What is taken on a node without some.
    fn without(&self, node: &str, goes: impl Fn(&str, &Pod) -> bool) -> Usage {
        let mut left = self.world.usage(node).clone();
        let pods: Vec<String> = left.pods.iter().cloned().collect();
        for name in pods {
            if let Some(pod) = self.world.pods.get(&name).filter(|pod| goes(&name, pod)) {
                left.remove(&name, &pod.load);
            }
        }
        left
    }

    /// As [`Audit::expect`], but for members of a group.
    fn expect_but(&self, usage: &mut Usage, node: &str, name: &str, group: &str) {
        let priority = self.world.pods.get(name).map_or(i32::MIN, |p| p.priority);
        let expected = self.world.pods.iter().filter(|(_, p)| {
            p.gang.as_deref() != Some(group)
                && p.priority >= priority
                && matches!(p.place, Place::Pending)
                && p.is_expected_on(node)
        });
        expected.for_each(|(other, p)| usage.add(other, &p.idle_load));
    }

    /// How many pods like this one fit, node by node; no more than `most` are counted.
    fn fits(&self, pod: &Pod, most: usize, room: impl Fn(&str) -> Usage) -> usize {
        let rules = pod.profile.map(|p| self.profiles[p].rules).unwrap_or_default();
        let mut fits = 0;
        let fits_on = |node: &String, there: &Node, fits: &mut usize| {
            let mut used = room(node);
            while *fits < most && pod.wants.judge(rules, node, there, &used) == Answer::Yes {
                *fits += 1;
                used.add(&format!("one more {fits}"), &pod.idle_load);
            }
        };
        self.world.nodes.iter().for_each(|(node, there)| fits_on(node, there, &mut fits));
        fits
    }

    /// A gang does not begin again while victims of its last plan are leaving.
    pub(super) fn waits_for_victims(&mut self, group: &str, name: &str, plan: &Plan) {
        let leaves = |v: &Victim| {
            let there = self.world.pods.get(&v.name).filter(|p| p.uid == v.uid);
            there.is_some_and(|p| p.deleting && !self.plans.is_gone(&p.uid))
                && v.may_leave(self.plans.asked_at)
        };
        let late = self.plans.asked_at.secs() - plan.begun.secs() >= PATIENCE_SECONDS;
        let same = plan.waiting == self.waiting_in(group) && !plan.waiting.is_empty() && !late;
        if same && plan.victims.iter().any(leaves) {
            let what = format!("{name} plans for {group} again while victims leave");
            self.violation("S5", what);
        }
    }

    /// UIDs of members that wait.
    pub(super) fn waiting_in(&self, group: &str) -> BTreeSet<String> {
        let waits = |pod: &Pod| matches!(pod.place, Place::Pending);
        self.world.members(group, waits).map(|(_, pod)| pod.uid.clone()).collect()
    }
}
