//! Who may be pushed out, and how: budgets (S4) and victims (S5).
//!
//! A question is judged as it is asked; a plan when the step is over that made it,
//! because only then all its victims are known.

use std::collections::BTreeSet;

use super::Audit;
use super::fit::{Answer, Usage};
use super::plans::{Ask, Plan, Victim};
use super::pods::{Place, Pod};
use super::steps::key;
use crate::io::{PodRef, Removal, Tick, Token};

impl Audit {
    /// The core asks for an eviction, or whether it would be allowed.
    pub(super) fn evicts(
        &mut self,
        now: Tick,
        token: Token,
        preemptor: &PodRef,
        victim: &PodRef,
        how: Removal,
    ) {
        let (dry, forced) = (how == Removal::DryRun, how == Removal::Delete);
        let (name, other) = (key(preemptor), key(victim));
        self.plans.asked_at = now;
        self.may_preempt(&name);
        self.may_go(&name, victim);
        if forced && !self.may_force(&name) {
            self.violation("S4", format!("{other} is deleted for {name}, which is not allowed"));
        }
        if !self.plans.ask(token, &preemptor.uid, &victim.uid, dry) {
            self.violation("S5", format!("{name} asks about {other} by an old token"));
        }
        let mut plan = self.plans.plans.remove(&*preemptor.uid).unwrap_or_default();
        if (dry || forced) && plan.is_over_for(&victim.uid, forced) {
            if plan.is_open() {
                self.violation("S5", format!("{name} begins again before it is answered"));
            }
            let group = self.plans_for(&name);
            if let Some(group) = &group {
                self.waits_for_victims(group, &name, &plan);
            }
            plan.renew(forced);
            plan.begun = now;
            plan.waiting = group.map(|group| self.waiting_in(&group)).unwrap_or_default();
        }
        if plan.victim(&victim.uid).is_none() {
            plan.victims.push(Victim {
                name: other.clone(),
                uid: victim.uid.to_string(),
                dry: Ask::Never,
                real: Ask::Never,
                now: true,
                asked: 0,
                doubted: Tick(0),
            });
        }
        let Some(asked) = plan.victim(&victim.uid) else { return };
        asked.now = true;
        asked.asked = self.world.budget_changes;
        let before = if dry { &mut asked.dry } else { &mut asked.real };
        let twice = std::mem::replace(before, Ask::Open) == Ask::Open;
        let allowed = matches!(asked.dry, Ask::Yes | Ask::Gone);
        if twice {
            self.violation("S5", format!("{name} asks about {other} twice at a time"));
        }
        if !dry {
            plan.acting = true;
            if forced {
                // Nobody is asked.
            } else if !allowed {
                let what = format!("{other} is evicted for {name} without a dry run");
                self.violation("S4", what);
            } else if plan.victims.iter().any(|v| v.dry == Ask::No) {
                let what = format!("{other} is evicted for {name} after a refusal");
                self.violation("S4", what);
            }
        }
        self.plans.plans.insert(preemptor.uid.to_string(), plan);
        self.plans.touched.push((preemptor.uid.to_string(), name));
    }

    /// The core asks a pod to save its work, because it may have to go.
    pub(super) fn asks_to_save(&mut self, name: &str, victim: &PodRef, asked: Tick) {
        self.may_preempt(name);
        self.may_go(name, victim);
        let other = key(victim);
        let Some(pod) = self.world.find(victim) else { return };
        if pod.saves.is_none() || !pod.runs {
            let what = format!("{other} shall save its work for {name}, but does not want to");
            self.violation("S5", what);
        }
        self.world.edit(&other, |p| p.asked_to_save[1] = Some(asked));
    }

    /// Whoever wants to be asked before it goes was, and has saved its work or had its time.
    fn have_saved(&mut self, now: Tick, name: &str, plan: &Plan) {
        let of = |v: &Victim| self.world.pods.get(&v.name).filter(|p| p.uid == v.uid);
        let hurried = |v: &&Victim| of(v).is_some_and(|p| !p.may_lose_work(now));
        let hurried = plan.victims.iter().find(hurried).map(|v| v.name.clone());
        if let Some(other) = hurried {
            let what = format!("{other} shall go for {name} before it has saved its work");
            self.violation("S5", what);
        }
    }

    /// Whoever got an answer may be tried at once: its plan failed, or nobody is left.
    pub(super) fn call_answered(&mut self) {
        let answered = std::mem::take(&mut self.plans.answered);
        self.book(&answered);
        let of = |p: &Pod| answered.contains(&p.uid);
        let found = self.world.pods.iter().filter(|(_, p)| of(p)).map(|(name, _)| name.clone());
        for name in found.collect::<Vec<_>>() {
            self.world.edit(&name, |p| p.called = true);
        }
    }

    fn may_force(&self, name: &str) -> bool {
        let profile = self.world.pods.get(name).and_then(|pod| pod.profile);
        self.policies.may_force() || profile.is_some_and(|p| self.profiles[p].may_force)
    }

    fn may_preempt(&mut self, name: &str) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let wrong = if pod.preempts_never {
            "preempts never"
        } else if !matches!(pod.place, Place::Pending) {
            "has a node"
        } else if pod.deleting {
            "is being deleted"
        } else {
            return;
        };
        self.violation("S5", format!("{name} wants room made, but it {wrong}"));
    }

    fn may_go(&mut self, name: &str, victim: &PodRef) {
        let other = key(victim);
        let (Some(high), Some(low)) = (self.world.pods.get(name), self.world.find(victim)) else {
            // It may have gone while its dry run was under way.
            return;
        };
        let ranked = high.has_rank && low.has_rank;
        if ranked && low.priority >= high.priority {
            let what =
                format!("{other} ({}) shall go for {name} ({})", low.priority, high.priority);
            return self.violation("S5", what);
        }
        if low.node().is_none() {
            self.violation("S5", format!("{other} shall go for {name}, but has no node"));
        }
    }

    /// The step is over: judges the plans it touched.
    pub(super) fn planned(&mut self) {
        let now = self.plans.asked_at;
        let mut touched = std::mem::take(&mut self.plans.touched);
        touched.sort_unstable();
        touched.dedup();
        for (uid, name) in touched {
            let Some(plan) = self.plans.plans.get_mut(&uid) else { continue };
            let (fresh, acting) = (plan.fresh, plan.acting);
            (plan.fresh, plan.acting) = (false, false);
            plan.victims.iter_mut().for_each(|v| v.now = false);
            let plan = plan.clone();
            if fresh {
                self.have_saved(now, &name, &plan);
                self.is_allowed(now, &name, &plan);
                self.charge(now, &name, &plan);
                self.cuts_no_gang(&name, &plan);
                match self.plans_for(&name) {
                    Some(group) => self.makes_sense_for(&name, &group, &plan),
                    None => self.makes_sense(&name, &plan),
                }
            }
            if (fresh || acting) && !plan.forced {
                self.keeps_budgets(now, &name, &plan, acting);
            }
            if acting {
                self.is_complete(&name, &plan);
            }
        }
    }

    /// The node on which its victims are; those elsewhere go with members of their gang.
    fn node_of(&self, name: &str, plan: &Plan) -> Option<String> {
        let there = |v: &Victim| self.world.pods.get(&v.name).filter(|p| p.uid == v.uid);
        let victims: Vec<&Pod> = plan.victims.iter().filter_map(there).collect();
        let pod = self.world.pods.get(name)?;
        let nodes: BTreeSet<&str> = victims.iter().filter_map(|p| p.node()).collect();
        let own = match nodes.len() {
            1 => nodes.first().copied()?,
            // What was asked for last says it best.
            _ => {
                let told = nodes.iter().find(|node| pod.was_told(node));
                told.or_else(|| nodes.iter().find(|node| pod.is_expected_on(node))).copied()?
            }
        };
        let gangs: BTreeSet<&str> = victims
            .iter()
            .filter(|p| p.node() == Some(own))
            .filter_map(|p| p.gang.as_deref())
            .collect();
        let strays = |p: &&Pod| {
            p.node() != Some(own) && !p.gang.as_deref().is_some_and(|gang| gangs.contains(gang))
        };
        (!victims.iter().any(strays)).then(|| own.to_owned())
    }

    /// With all of them gone the pod fits, with one of them back it does not.
    fn makes_sense(&mut self, name: &str, plan: &Plan) {
        let Some(pod) = self.world.pods.get(name) else { return };
        let Some(profile) = pod.profile.map(|p| &self.profiles[p]) else { return };
        let modelled = profile.complete && !self.lenient && !self.world.repelled;
        if !modelled || pod.wants.unmodelled || pod.decided != self.version {
            return;
        }
        let Some(node) = self.node_of(name, plan) else {
            return self.violation("S5", format!("the victims of {name} are not on one node"));
        };
        let Some(there) = self.world.nodes.get(&node) else { return };
        let rules = profile.rules;
        let here = self.world.usage(&node);
        let mut left = here.clone();
        // Those elsewhere go with members of their gang.
        for victim in plan.victims.iter().filter(|v| here.pods.contains(&v.name)) {
            self.leave(&mut left, &victim.name);
        }
        // Who goes anyway, or has not come yet, may go without being asked.
        let mut least = left.clone();
        let weaker = |p: &Pod| p.priority < pod.priority;
        let leaves = |p: &Pod| p.deleting || self.plans.is_gone(&p.uid);
        let going = |p: &Pod| weaker(p) && (leaves(p) || !matches!(p.place, Place::Bound { .. }));
        for other in left.pods.iter().filter(|n| self.world.pods.get(*n).is_some_and(going)) {
            self.leave(&mut least, other);
        }
        let mut wrong = Vec::new();
        if let Answer::No(why) = pod.wants.judge(rules, &node, there, &least) {
            wrong.push(format!("{name} does not fit {node} without its victims: {why}"));
        }
        self.expect(&mut left, &node, name);
        for unit in self.units(plan) {
            let mut with = left.clone();
            let back = unit.iter().filter_map(|n| Some((*n, self.world.pods.get(*n)?)));
            let back = back.filter(|(_, p)| p.node() == Some(&*node));
            back.for_each(|(n, p)| with.add(n, &p.load));
            // Who goes with its gang need not be in the way itself: the gang is, or is not.
            let some = with.pods.len() > left.pods.len();
            if some && pod.wants.judge(rules, &node, there, &with) == Answer::Yes {
                wrong.push(format!("{name} fits {node} though {unit:?} stay"));
            }
        }
        wrong.into_iter().for_each(|what| self.violation("S5", what));
    }

    fn leave(&self, usage: &mut Usage, name: &str) {
        if let Some(pod) = self.world.pods.get(name) {
            usage.remove(name, &pod.load);
        }
    }

    /// Adds the pods that may be expected on a node and that `name` must leave room
    /// for: rather too many than too few.
    pub(super) fn expect(&self, usage: &mut Usage, node: &str, name: &str) {
        let priority = self.world.pods.get(name).map_or(i32::MIN, |p| p.priority);
        let expected = self.world.pods.iter().filter(|(other, p)| {
            other.as_str() != name
                && p.priority >= priority
                && matches!(p.place, Place::Pending)
                && p.is_expected_on(node)
        });
        expected.for_each(|(other, p)| usage.add(other, &p.idle_load));
    }

    /// What is asked for, and what was and is not seen yet, is within what each
    /// budget allows, as far as it was shown.
    fn keeps_budgets(&mut self, now: Tick, name: &str, plan: &Plan, acting: bool) {
        let asked = |v: &&Victim| !acting || v.may_leave(now);
        let own: Vec<&Victim> = plan.victims.iter().filter(asked).collect();
        let others = self.plans.leaving(now).filter(|v| own.iter().all(|o| o.uid != v.uid));
        let all: Vec<&Victim> = own.iter().copied().chain(others).collect();
        let mut wrong = Vec::new();
        let guarded = |v: &Victim| self.world.pods.get(&v.name).filter(|p| p.is_guarded(&v.uid));
        for victim in &own {
            let Some(pod) = guarded(victim) else { continue };
            if self.world.budgets.values().filter(|b| b.guards(pod)).count() > 1 {
                wrong.push(format!("{} is under two budgets, and goes for {name}", victim.name));
            }
        }
        for (budget, known) in &self.world.budgets {
            let counts = |v: &&&Victim| {
                // The server counts before it answers: what the budget said since has it.
                let counted = v.real == Ask::Yes && known.changed > v.asked
                    || known.disrupted.contains(v.own_name());
                !counted && guarded(v).is_some_and(|p| known.guards(p))
            };
            let mine = own.iter().filter(|v| counts(v)).count();
            // Two pods may wait for the same one to go: it goes once.
            let mut open: BTreeSet<&str> = all.iter().filter(counts).map(|v| &*v.uid).collect();
            for victim in all.iter().filter(|v| !counts(v)) {
                open.remove(&*victim.uid);
            }
            let sum = open.len();
            if mine > 0 && i64::try_from(sum).unwrap_or(i64::MAX) > known.allowed.max(0) {
                let allowed = known.allowed;
                wrong.push(format!("{budget} allows {allowed}, {name} makes it {sum}"));
            }
        }
        wrong.into_iter().for_each(|what| self.violation("S4", what));
    }

    /// Whoever was found to be in the way is asked to go together with the others.
    fn is_complete(&mut self, name: &str, plan: &Plan) {
        let of = |v: &Victim| self.world.pods.get(&v.name).filter(|p| p.uid == v.uid);
        // One at a time under each budget: those under one may wait for their turn.
        let waits = |pod: &Pod| self.world.budgets.values().any(|b| b.guards(pod));
        let stays = |v: &&Victim| {
            let there = of(v).is_some_and(|p| !p.deleting && p.node().is_some() && !waits(p));
            v.real == Ask::Never && v.dry != Ask::Gone && there
        };
        if let Some(victim) = plan.victims.iter().find(stays) {
            let what = format!("{} was to go for {name}, but is not asked to", victim.name);
            self.violation("S5", what);
        }
    }
}
