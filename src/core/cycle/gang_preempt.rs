//! Preemption for a gang: who would have to go, tried out for real.
//!
//! Owns the way from a gang that fits nowhere to a plan: what the arithmetic of
//! [`preemption::gang`](crate::preemption::gang) is told of the cluster, and whether the
//! plans it comes up with are true. For that the victims are taken off their nodes, the gang
//! is seated as in any attempt, so that all it asks for holds, whoever is not in its way
//! comes back, and then all of it is undone. Must never evict, and never leave a pod off its
//! node.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::muster::PreemptionMode;

use super::fence::Fence;
use super::preempt::named;
use super::restraint::Seeker;
use super::seat::{Blocked, Candidate, Need, Tried, wanted};
use super::seek::{Attempted, Scope};
use super::{Core, Decision};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::{ExtensionPoint, Profile};
use crate::gang::GangId;
use crate::hash::IdMap;
use crate::model::{PodId, PodStage, ShapeId};
use crate::plugins::names;
use crate::preemption::gang::{Ground, MAX_LIFTED, Plan};
use crate::preemption::refusal;
use crate::report::{GangVictimsView, MAX_VICTIMS_SHOWN, Observation};

/// Room that can be made for a gang.
pub(super) struct Planned {
    /// Where its members would be.
    pub(super) seats: Vec<(PodId, NodeId)>,
    /// Who has to leave, those who do anyway among them.
    pub(super) victims: Vec<PodId>,
    /// Whatever their budgets say.
    pub(super) by_force: bool,
    /// For people.
    pub(super) text: String,
}

/// A plan that was tried out: seats, and who has to go.
type Tested = (Vec<(PodId, NodeId)>, Vec<u32>);

impl Core {
    /// Looks for the cheapest pods that would make room for a gang. `Err` says why there
    /// are none; nothing if pods are never pushed out here.
    pub(super) fn plan_for_gang(
        &mut self,
        at: &Attempted<'_>,
        candidates: &[Candidate],
        blocked: &mut Blocked,
        decision: &Decision,
    ) -> Result<Planned, String> {
        let Some(plugin) = preempts(at.profile) else {
            return Err(String::new());
        };
        if at.spec.accumulate {
            return Err("preemption: not for groups that accumulate".to_owned());
        }
        let wanted = wanted(Need::new(at.spec, at.held), candidates);
        let members = || wanted.iter().filter_map(|(pod, _)| self.cluster.pod(*pod));
        if members().any(|p| !p.may_preempt) && !bug!(self.bugs, NeverIgnored) {
            return Err("preemption: not eligible due to preemptionPolicy=Never".to_owned());
        }
        let Some(priority) = members().map(|p| p.priority).min() else {
            return Err(String::new());
        };
        if let Some(count) = self.gang_waits_for_savers(at.now, at.id) {
            return Err(format!("preemption: waiting for {count} pods to save their work"));
        }
        let leaving = self.still_leaving(at.id);
        if leaving > 0 {
            return Err(format!("preemption: waiting for {leaving} pods to leave"));
        }
        let unanswered = self.unanswered(at.id);
        if unanswered > 0 {
            return Err(format!(
                "preemption: waiting for {unanswered} answers about the last plan"
            ));
        }
        let by = self.seeking(Seeker::Gang(at.id));
        if let Some(held) = self.restraint.held_back(at.now, &by, self.bugs) {
            blocked.failure.rejectors |= 1 << plugin;
            return Err(self.nobody_goes(held));
        }
        self.cluster.count_zones();
        let force = at.profile.args().default_preemption.allow_budget_violations
            || by.terms.force_above.is_some_and(|above| priority > above);
        let found = self.survey(at, &wanted, priority);
        if !found.ground.budgets.is_empty() || found.guarded > 0 || found.protects() {
            // A budget or a policy that allows more may be all that is missing.
            blocked.failure.rejectors |= 1 << plugin;
        }
        let tried = self.try_plans(at, candidates, &found.ground, force, decision);
        let victims = tried.as_ref().map(|(_, tested)| asked(&found.ground, tested));
        let view = self.victims_view(victims.as_deref().unwrap_or_default(), found.stay());
        self.looked.insert(at.id, view);
        let Some((plan, tested)) = tried else {
            self.restraint.went_wrong(at.now, &by);
            if let Some(until) = found.until {
                self.restraint.look_again(at.now, by.seeker, until);
                self.observations.push(Observation::PreemptionHeld { reason: "protected" });
            }
            return Err(found.nothing());
        };
        if tested.1.is_empty() {
            // In another order all fit: that is no reason to have anybody go.
            return Err(String::new());
        }
        let asked = victims.unwrap_or_default();
        if by.terms.mode == PreemptionMode::Simulate && !bug!(self.bugs, SimulateIgnored) {
            let (count, names) = (asked.len(), self.name_victims(&asked));
            let text = format!("would evict {count} pods (Simulate): {names}");
            blocked.failure.rejectors |= 1 << plugin;
            return Err(self.nobody_goes(("simulate", text)));
        }
        if let Some(held) = self.restraint.wait_for(at.now, &by, asked.len(), self.bugs) {
            blocked.failure.rejectors |= 1 << plugin;
            return Err(self.nobody_goes(held));
        }
        Ok(self.planned(at, &found.ground, &plan, tested))
    }

    /// What an explanation says of it.
    fn victims_view(&self, victims: &[PodId], stay: Vec<String>) -> GangVictimsView {
        let names = victims.iter().filter_map(|pod| Some(self.cluster.pod(*pod)?.key.to_string()));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names.truncate(MAX_VICTIMS_SHOWN);
        GangVictimsView { victims: names, count: victims.len(), stay }
    }

    /// Nobody goes for a gang, although somebody might.
    fn nobody_goes(&mut self, (reason, why): (&'static str, String)) -> String {
        self.observations.push(Observation::PreemptionHeld { reason });
        format!("preemption: {why}")
    }

    /// The first of the plans that is true.
    fn try_plans(
        &mut self,
        at: &Attempted<'_>,
        candidates: &[Candidate],
        ground: &Ground,
        force: bool,
        decision: &Decision,
    ) -> Option<(Plan, Tested)> {
        let plans = ground.plans(force);
        for plan in &plans {
            if let Some(tested) = self.test(at, candidates, ground, plan, decision) {
                return Some((plan.clone(), tested));
            }
        }
        // What stands in the way is more than numbers: who does is found by letting back
        // all but those.
        let domain = plans.first()?.domain;
        let all = ground.everything(domain, force)?;
        let tested = self.test(at, candidates, ground, &all, decision)?;
        Some((all, tested))
    }

    /// Whether the gang finds room once these are gone: with its seats, and those of them
    /// that have to go. Nothing is changed.
    fn test(
        &mut self,
        at: &Attempted<'_>,
        candidates: &[Candidate],
        ground: &Ground,
        plan: &Plan,
        decision: &Decision,
    ) -> Option<Tested> {
        debug_assert!(plan.marks.len() <= MAX_LIFTED);
        let views = self.tried(at.id);
        for &mark in &plan.marks {
            self.lift(ground.marks[mark as usize].pod);
        }
        debug_assert!(!at.spec.accumulate, "what it finds would be kept");
        let mut candidates = candidates.to_vec();
        let mut scratch = decision.clone();
        let tried = match candidates.first().cloned() {
            None => None,
            Some(first) if at.spec.has_topology() => {
                Some(self.seek(at, &first, &mut candidates, &mut scratch))
            }
            Some(_) => {
                let all = Scope::of(vec![Fence::place(at.fence.as_ref())]);
                Some(self.try_scope(at, &all, false, &mut candidates, &mut scratch))
            }
        };
        let tested = match tried {
            Some(Tried::Seated(seated)) => {
                let seats = self.seats_of(&seated);
                let left = self.reprieve(at.profile, ground, plan, &seats);
                for pod in seated.iter().rev() {
                    self.unreserve(*pod);
                }
                Some((seats.into_iter().map(|(pod, node, _)| (pod, node)).collect(), left))
            }
            _ => None,
        };
        self.put_back();
        self.set_tried(at.id, views);
        tested
    }

    fn seats_of(&self, seated: &[PodId]) -> Vec<(PodId, NodeId, ShapeId)> {
        let seat = |pod: &PodId| {
            let record = self.cluster.pod(*pod)?;
            Some((*pod, record.stage.node()?, record.shape))
        };
        seated.iter().filter_map(seat).collect()
    }

    /// Takes a pod off its node until [`Core::put_back`].
    fn lift(&mut self, pod: PodId) {
        let Some(stage) = self.cluster.pod(pod).map(|p| p.stage) else {
            return;
        };
        if self.cluster.displace(pod).is_some() {
            self.lifted.push((pod, stage));
        }
    }

    /// Puts back who was taken off its node.
    pub(super) fn put_back(&mut self) {
        while let Some((pod, stage)) = self.lifted.pop() {
            if let Some(node) = stage.node() {
                self.cluster.place(pod, node, matches!(stage, PodStage::Assumed(_)));
            }
        }
    }

    fn put_back_one(&mut self, pod: PodId) -> Option<NodeId> {
        let at = self.lifted.iter().position(|(known, _)| *known == pod)?;
        let (_, stage) = self.lifted.swap_remove(at);
        let node = stage.node()?;
        self.cluster.place(pod, node, matches!(stage, PodStage::Assumed(_)));
        Some(node)
    }

    /// Puts back whoever is not in the way of a seat, the most important first: one by one,
    /// gangs that have to go whole together. Those who have to go.
    fn reprieve(
        &mut self,
        profile: &Arc<Profile>,
        ground: &Ground,
        plan: &Plan,
        seats: &[(PodId, NodeId, ShapeId)],
    ) -> Vec<u32> {
        if bug!(self.bugs, GangVictimSuperfluous) {
            return plan.marks.clone();
        }
        let mut on: IdMap<NodeId, Vec<(PodId, ShapeId)>> = IdMap::default();
        for &(pod, node, shape) in seats {
            let here = on.entry(node).or_default();
            // One of each kind speaks for the others.
            if !here.iter().any(|(_, known)| *known == shape) {
                here.push((pod, shape));
            }
        }
        let mut gone: BTreeSet<u32> = plan.marks.iter().copied().collect();
        for unit in ground.units(&plan.marks) {
            if self.comes_back(profile, ground, &on, &unit) {
                gone.retain(|mark| !unit.contains(mark));
                continue;
            }
            let mut back: Vec<u32> = Vec::new();
            if unit.len() > 1 {
                for &mark in &unit {
                    if self.comes_back(profile, ground, &on, &[mark]) {
                        gone.remove(&mark);
                        back.push(mark);
                    }
                }
                if !ground.is_sound(&gone, unit[0]) {
                    for mark in back {
                        gone.insert(mark);
                        self.lift(ground.marks[mark as usize].pod);
                    }
                }
            }
        }
        gone.into_iter().collect()
    }

    /// Puts pods back if members can stay where they sit.
    fn comes_back(
        &mut self,
        profile: &Arc<Profile>,
        ground: &Ground,
        on: &IdMap<NodeId, Vec<(PodId, ShapeId)>>,
        marks: &[u32],
    ) -> bool {
        let pods: Vec<PodId> = marks.iter().map(|m| ground.marks[*m as usize].pod).collect();
        let nodes: BTreeSet<NodeId> = pods.iter().filter_map(|p| self.put_back_one(*p)).collect();
        let stays = nodes.iter().all(|node| {
            let sit = on.get(node).map(Vec::as_slice).unwrap_or_default();
            sit.iter().all(|(pod, shape)| self.can_stay(profile, *pod, *shape, *node))
        });
        if !stays {
            pods.into_iter().for_each(|pod| self.lift(pod));
        }
        stays
    }

    /// Whether a member would be let onto the node where it sits.
    fn can_stay(
        &mut self,
        profile: &Arc<Profile>,
        pod: PodId,
        shape_id: ShapeId,
        node: NodeId,
    ) -> bool {
        self.refresh_ledger(profile, shape_id);
        let shape = Arc::clone(self.cluster.shape(shape_id));
        let Some(ledger) = self.ledgers.get_mut(&shape_id) else {
            return false;
        };
        let (cluster, prepared) = (&mut self.cluster, &mut ledger.prepared);
        let mut trial = super::Trial::begin(profile, &shape, cluster, prepared);
        trial.remove(pod, node);
        trial.fits(node, Some(pod)).is_ok()
    }

    fn planned(
        &mut self,
        at: &Attempted<'_>,
        ground: &Ground,
        plan: &Plan,
        tested: Tested,
    ) -> Planned {
        let asked = asked(ground, &tested);
        let (seats, gone) = tested;
        let marks = || gone.iter().map(|m| &ground.marks[*m as usize]);
        let victims: Vec<PodId> = marks().map(|m| m.pod).collect();
        let lost_seconds = marks().map(|m| m.work).sum();
        let (going, names) = (victims.len() - asked.len(), self.name_victims(&asked));
        let text = match asked.len() {
            0 => format!("preemption: waiting for {going} pods to leave"),
            count => format!("preempting {count} pods: {names}"),
        };
        let others =
            self.victims.outstanding(&self.cluster, seats.first().map_or(PodId(0), |s| s.0));
        let count = |budget: (&str, &str)| others.get(&budget).copied().unwrap_or(0);
        let by_force = plan.cost.violations > 0 && refusal(&self.cluster, &asked, count).is_some();
        drop(others);
        let gangs: BTreeSet<GangId> = asked
            .iter()
            .filter_map(|pod| self.cluster.pod(*pod)?.gang)
            .filter(|gang| *gang != at.id)
            .collect();
        if !self.any_saves(at.now, &asked) {
            self.observations.push(Observation::GangPreemption {
                victims: asked.len(),
                gangs: gangs.len(),
                lost_seconds,
            });
        }
        Planned { seats, victims, by_force, text }
    }

    /// `pod group default/low (4), default/x`.
    fn name_victims(&self, asked: &[PodId]) -> String {
        let mut gangs: Vec<(GangId, usize)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for pod in asked.iter().filter_map(|pod| self.cluster.pod(*pod)) {
            match pod.gang.map(|gang| (gang, gangs.iter().position(|(known, _)| *known == gang))) {
                Some((_, Some(at))) => gangs[at].1 += 1,
                Some((gang, None)) => gangs.push((gang, 1)),
                None => names.push(pod.key.to_string()),
            }
        }
        let group = |(id, pods): &(GangId, usize)| {
            let key = &self.cluster.gang(*id)?.key;
            Some(format!("pod group {key} ({pods})"))
        };
        named(gangs.iter().filter_map(group).chain(names))
    }

    /// Begins to make room for a gang: its members are expected where they will be.
    pub(super) fn start_gang_plan(&mut self, at: &Attempted<'_>, planned: Planned) {
        let Planned { seats, victims, by_force, .. } = planned;
        let (now, id) = (at.now, at.id);
        let Some(&(leader, first)) = seats.first() else {
            return;
        };
        self.end_keep(now, id);
        let seated: BTreeSet<PodId> = seats.iter().map(|(pod, _)| *pod).collect();
        let others: Vec<PodId> =
            self.queue.gathered(id).filter(|pod| !seated.contains(pod)).collect();
        for pod in others {
            if self.nominate(now, pod, None) {
                self.patch_nomination(pod);
            }
        }
        let nodes: BTreeSet<NodeId> = seats.iter().map(|(_, node)| *node).collect();
        for &(pod, node) in &seats {
            let name = Arc::clone(&self.cluster.node(node).name);
            self.nominate(now, pod, Some(name));
            self.patch_nomination(pod);
        }
        for node in nodes.into_iter().filter(|node| *node != first) {
            let name = Arc::clone(&self.cluster.node(node).name);
            self.unseat_others(now, leader, &name);
        }
        self.begin_hold(now, id, leader, victims.iter().copied().collect());
        let node = Arc::clone(&self.cluster.node(first).name);
        let scheduler = at.profile.scheduler_name();
        let found = super::preempt::Found { node, victims, by_force };
        self.start_plan(now, leader, scheduler, found);
    }
}

/// Those of a plan that do not go anyway.
fn asked(ground: &Ground, (_, gone): &Tested) -> Vec<PodId> {
    let marks = gone.iter().map(|m| &ground.marks[*m as usize]);
    marks.filter(|m| !m.going).map(|m| m.pod).collect()
}

/// The position of the plugin by which a profile has pods pushed out.
fn preempts(profile: &Profile) -> Option<usize> {
    let mut plugins = profile.called(ExtensionPoint::PostFilter);
    plugins.find(|(_, p)| p.plugin.name() == names::DEFAULT_PREEMPTION).map(|(i, _)| i)
}
