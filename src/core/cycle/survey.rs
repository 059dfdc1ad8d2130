//! What a gang's search for victims is told of the cluster.
//!
//! Owns who could go at all: pods of lower priority that no two budgets guard and that were
//! not refused lately, whole gangs only if all of them may. Must never decide who goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Core;
use super::seek::Attempted;
use crate::bugs::bug;
use crate::cluster::{Budget, GroupId, NodeId, Protection};
use crate::framework::{Code, Profile};
use crate::gang::GangId;
use crate::hash::{IdMap, IdSet};
use crate::io::Tick;
use crate::model::{PodId, PodShape, ResId, ShapeId};
use crate::plugins::names;
use crate::preemption::gang::{Amounts, Ask, Bond, Ground, Mark, Spot, Takes};
use crate::preemption::{bound_by, budgets_of, held, members};

/// The number of the budget that guards a pod, if one does; `Err`: several do.
type Guard = Result<Option<(u32, Arc<Budget>)>, ()>;

/// What was found.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) ground: Ground,
    /// Pods that two budgets guard.
    pub(super) guarded: usize,
    /// Pods that were refused lately.
    refused: usize,
    /// Pods that may not go now, by what keeps them.
    protected: BTreeMap<Protection, IdSet<PodId>>,
    /// When another of them may.
    pub(super) until: Option<Tick>,
    resources: Vec<ResId>,
    /// Marks by pod.
    marks: IdMap<PodId, u32>,
    bonds: IdMap<GangId, u32>,
    budgets: BTreeMap<(Box<str>, Box<str>), u32>,
    /// By pods with the same labels.
    guards: IdMap<GroupId, Guard>,
}

impl Survey {
    /// Why others of lower priority stay: how many, and what keeps them.
    pub(super) fn stay(&self) -> Vec<String> {
        let spent = |m: &&Mark| m.budget.is_some_and(|b| self.ground.budgets[b as usize] == 0);
        let spent = self.ground.marks.iter().filter(spent).count();
        [
            (self.guarded, "under two PodDisruptionBudgets"),
            (spent, "whose PodDisruptionBudget forbids it"),
            (self.refused, "whose eviction was refused"),
        ]
        .into_iter()
        .filter(|(pods, _)| *pods > 0)
        .map(|(pods, why)| format!("{pods} {why}"))
        .chain(
            self.protected
                .iter()
                .map(|(by, pods)| format!("{} protected by {}", pods.len(), by.words())),
        )
        .collect()
    }

    /// Why no plan was found; nothing if there is nobody of lower priority.
    pub(super) fn nothing(&self) -> String {
        let stay = self.stay().join(", ");
        match (self.ground.marks.is_empty(), stay.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!("preemption: no pod may go: {stay}"),
            (false, true) => "preemption: not enough room even without all that may go".to_owned(),
            (false, false) => {
                format!("preemption: not enough room even without all that may go; stay: {stay}")
            }
        }
    }

    /// Whether anybody of lower priority may not go now.
    pub(super) fn protects(&self) -> bool {
        !self.protected.is_empty()
    }

    fn amounts(&self, shape: &PodShape) -> Amounts {
        let charged = &shape.requests.charged;
        let amount = |r: &ResId| charged.iter().find(|(own, _)| own == r).map_or(0, |(_, a)| *a);
        self.resources.iter().map(amount).chain([1]).collect()
    }
}

impl Core {
    /// Looks at the nodes that a gang may use, and at who is on them.
    pub(super) fn survey(
        &mut self,
        at: &Attempted<'_>,
        wanted: &[(PodId, ShapeId)],
        priority: i32,
    ) -> Survey {
        let mut survey = Survey::default();
        let mut shapes: Vec<(ShapeId, u32)> = Vec::new();
        for &(_, shape) in wanted {
            match shapes.iter_mut().find(|(known, _)| *known == shape) {
                Some((_, need)) => *need += 1,
                None => shapes.push((shape, 1)),
            }
        }
        for (shape, _) in &shapes {
            self.refresh_ledger(at.profile, *shape);
            let charged = &self.cluster.shape(*shape).requests.charged;
            survey.resources.extend(charged.iter().filter(|(_, a)| *a > 0).map(|(r, _)| *r));
        }
        survey.resources.sort_unstable();
        survey.resources.dedup();
        for &(shape, need) in &shapes {
            let shape = self.cluster.shape(shape);
            let alone = !shape.ports.is_empty() || shape.related.terms.repels().next().is_some();
            let most = if alone { 1 } else { u32::MAX };
            survey.ground.asks.push(Ask { amounts: survey.amounts(shape), need, most });
        }
        let domains = self.domains_for(at.id, at.spec);
        let domains = domains.unwrap_or_else(|| vec![self.cluster.nodes().iter().collect()]);
        for (number, nodes) in (0..).zip(domains) {
            let mut spots = Vec::with_capacity(nodes.len());
            for node in nodes {
                let takes = self.takes(at.profile, &shapes, node);
                if takes.iter().any(|takes| *takes != Takes::Never) {
                    spots.push(u32::try_from(survey.ground.spots.len()).unwrap_or(u32::MAX));
                    self.survey_node(at, &mut survey, node, (number, takes), priority);
                }
            }
            survey.ground.domains.push(spots);
        }
        survey.ground.domains.retain(|spots| !spots.is_empty());
        let spots = survey.ground.domains.iter().enumerate();
        for (domain, spots) in spots {
            for at in spots {
                survey.ground.spots[*at as usize].domain = u32::try_from(domain).unwrap_or(0);
            }
        }
        self.survey_gangs(at, &mut survey, priority);
        self.survey_budgets(at, &mut survey);
        survey
    }

    /// Whether a node takes members of each shape once there is room.
    fn takes(
        &self,
        profile: &Profile,
        shapes: &[(ShapeId, u32)],
        node: NodeId,
    ) -> SmallVec<[Takes; 2]> {
        let of = |(shape, _): &(ShapeId, u32)| {
            let said = self.ledgers.get(shape).and_then(|ledger| ledger.said_of(profile, node));
            let name = |plugin: usize| profile.plugins()[plugin].plugin.name();
            match said {
                Some((Code::Success, _)) => Takes::Plain,
                Some((Code::Unschedulable, Some(by))) if name(by) == names::NODE_RESOURCES_FIT => {
                    Takes::Plain
                }
                Some((Code::Unschedulable, _)) => Takes::Cleared,
                _ => Takes::Never,
            }
        };
        shapes.iter().map(of).collect()
    }

    fn survey_node(
        &self,
        at: &Attempted<'_>,
        survey: &mut Survey,
        node: NodeId,
        (domain, takes): (u32, SmallVec<[Takes; 2]>),
        priority: i32,
    ) {
        let view = self.cluster.view(node);
        let left = |r: &ResId| view.allocatable(*r).saturating_sub(view.requested(*r));
        let pods = view.max_pods() - view.pods();
        let mut free: Amounts = survey.resources.iter().map(left).chain([pods]).collect();
        // Others of no lower priority are expected here.
        for other in self.cluster.nominated_on(node).iter().filter_map(|p| self.cluster.pod(*p)) {
            if other.gang != Some(at.id) && other.priority >= priority {
                let asks = survey.amounts(self.cluster.shape(other.shape));
                free.iter_mut().zip(asks).for_each(|(free, asks)| *free -= asks);
            }
        }
        let spot = u32::try_from(survey.ground.spots.len()).unwrap_or(u32::MAX);
        let mut marks = Vec::new();
        for &pod in &self.cluster.node(node).pods {
            if let Some(mut mark) = self.mark(at, survey, pod, priority) {
                mark.spot = Some(spot);
                marks.push(survey.add(mark));
            }
        }
        marks.sort_by_key(|mark| survey.ground.marks[*mark as usize].work);
        survey.ground.spots.push(Spot { free, takes, marks, domain });
    }

    /// A pod as somebody who could go; none if it has to stay.
    fn mark(
        &self,
        at: &Attempted<'_>,
        survey: &mut Survey,
        pod: PodId,
        priority: i32,
    ) -> Option<Mark> {
        let record = self.cluster.pod(pod)?;
        if self.victims.refused.get(&pod).is_some_and(|until| *until > at.now) {
            survey.refused += 1;
            return None;
        }
        let going = record.deleting || self.victims.gone.contains(&pod);
        let mut mark = Mark {
            pod,
            spot: None,
            frees: survey.amounts(self.cluster.shape(record.shape)),
            priority: i32::MIN,
            work: 0,
            bond: None,
            role: None,
            budget: None,
            going,
        };
        if going {
            return Some(mark);
        }
        if record.gang == Some(at.id) || self.victims.taken.contains_key(&pod) {
            return None;
        }
        if record.priority >= priority {
            return None;
        }
        if let Some(shield) = self.cluster.shield(pod, record, priority) {
            survey.protected.entry(shield.by).or_default().insert(pod);
            survey.until = survey.until.into_iter().chain(shield.until).min();
            return None;
        }
        let Ok(budget) = self.guard(survey, pod, record.group) else {
            survey.guarded += 1;
            return None;
        };
        let counts = |(_, b): &(u32, Arc<Budget>)| !b.disrupted.contains(&*record.key.name);
        mark.budget = budget.filter(counts).map(|(number, _)| number);
        mark.priority = record.priority;
        mark.work = work_lost(at.now, record.started, record.checkpoint);
        if let Some((gang, _, spec)) = bound_by(&self.cluster, pod)
            && !bug!(self.bugs, VictimGangCut)
        {
            mark.role = self.cluster.role_of(spec, pod);
            mark.bond = Some(survey.bond(gang));
        }
        Some(mark)
    }

    /// The budget that guards a pod.
    fn guard(&self, survey: &mut Survey, pod: PodId, group: GroupId) -> Guard {
        if !self.cluster.policies().has_budgets() {
            return Ok(None);
        }
        if let Some(known) = survey.guards.get(&group) {
            return known.clone();
        }
        let mut budgets = budgets_of(&self.cluster, pod);
        let guard = match (budgets.next(), budgets.next()) {
            (_, Some(_)) => Err(()),
            (one, None) => Ok(one.map(|one| (survey.budget(one), Arc::clone(one)))),
        };
        survey.guards.insert(group, guard.clone());
        guard
    }

    /// Who has to go with members of gangs that cannot do without them.
    fn survey_gangs(&self, at: &Attempted<'_>, survey: &mut Survey, priority: i32) {
        let mut bonds: Vec<(u32, GangId)> =
            survey.bonds.iter().map(|(id, at)| (*at, *id)).collect();
        bonds.sort_unstable();
        let leaving = self.victims.leaving();
        for (bond, id) in bonds {
            let Some(gang) = self.cluster.gang(id) else { continue };
            let Some(spec) = gang.spec.as_deref() else { continue };
            let has = held(&self.cluster, gang, spec, |pod| leaving.has(pod));
            let left = |has: usize, min: usize| i64::try_from(has.saturating_sub(min)).unwrap_or(0);
            let mut own = Bond { whole: true, ..Bond::default() };
            // What is below its minimum has nobody to spare.
            if has.suffices(spec) {
                own.spare = left(has.all, spec.min);
                let roles = spec.roles.iter().zip(&has.roles);
                own.spare_roles = roles.map(|(role, has)| left(*has, role.min)).collect();
            }
            let all = members(&self.cluster, gang);
            own.whole = all.is_ok();
            for pod in all.unwrap_or_else(|_| gang.members.iter().copied().collect()) {
                let known = survey.marks.get(&pod).copied();
                let mark = known.or_else(|| {
                    let mark = self.mark(at, survey, pod, priority)?;
                    Some(survey.add(mark))
                });
                match mark.filter(|mark| !survey.ground.marks[*mark as usize].going) {
                    Some(mark) => own.marks.push(mark),
                    // Some member stays: the others cannot all go.
                    None => own.whole = false,
                }
            }
            survey.ground.bonds[bond as usize] = own;
        }
    }

    /// What budgets allow beside what was asked for already.
    fn survey_budgets(&self, at: &Attempted<'_>, survey: &mut Survey) {
        let first = self.queue.gathered(at.id).next().unwrap_or(PodId(u32::MAX));
        let others = self.victims.outstanding(&self.cluster, first);
        for (number, (namespace, name)) in survey.budgets.iter().map(|(key, at)| (*at, key)) {
            let mut known = self.cluster.policies().budgets(namespace);
            let allowed = known.find(|b| b.name == *name).map_or(0, |b| b.allowed);
            let asked = others.get(&(&**namespace, &**name)).copied().unwrap_or(0);
            let left = i64::from(allowed.saturating_sub(asked).max(0));
            let left = if bug!(self.bugs, GangBudgetIgnored) { i64::MAX / 2 } else { left };
            survey.ground.budgets[number as usize] = left;
        }
    }
}

impl Survey {
    fn add(&mut self, mark: Mark) -> u32 {
        let number = u32::try_from(self.ground.marks.len()).unwrap_or(u32::MAX);
        self.marks.insert(mark.pod, number);
        self.ground.marks.push(mark);
        number
    }

    fn bond(&mut self, gang: GangId) -> u32 {
        let bonds = &mut self.ground.bonds;
        *self.bonds.entry(gang).or_insert_with(|| {
            bonds.push(Bond::default());
            u32::try_from(bonds.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn budget(&mut self, budget: &Budget) -> u32 {
        let (budgets, key) =
            (&mut self.ground.budgets, (budget.namespace.clone(), budget.name.clone()));
        *self.budgets.entry(key).or_insert_with(|| {
            budgets.push(0);
            u32::try_from(budgets.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// Seconds of work that are lost if a pod has to go now.
fn work_lost(now: Tick, started: Option<Tick>, saved: Option<Tick>) -> u64 {
    let since = started.map(|started| saved.map_or(started, |saved| saved.max(started)));
    since.map_or(0, |since| u64::try_from(now.secs() - since.secs()).unwrap_or(0))
}
