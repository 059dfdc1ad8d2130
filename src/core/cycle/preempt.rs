//! PostFilter: when no node fits, who could make room.
//!
//! Owns what preemption found per shape, kept current change by change, and the rule
//! that no budget is broken. Must never change the state: a plan is carried out by
//! `evict`.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::muster::PreemptionMode;

use super::evict::unanswered_to;
use super::ledger::Ledger;
use super::outside::{Outside, Question};
use super::restraint::{Restraint, Seeker, Seeking};
use super::trial::Trial;
use super::{Core, failure::Failure, failure::Nominate};
use crate::bugs::bug;
use crate::cluster::{Budget, Cluster, NodeId};
use crate::framework::{Code, ExtensionPoint, PostFilterResult, Profile, Room, Status};
use crate::hash::{IdMap, IdSet, scramble};
use crate::io::{ExtenderCall, NodeVictims, Tick};
use crate::model::{Pod, PodId, PodShape};
use crate::plugins::DefaultPreemptionArgs;
use crate::preemption::{
    Candidate, Candidates, Leaving, Preemptor, Stays, budgets_of, nothing_found, protected,
    refusal, sort_by_importance, units, with_gangs,
};
use crate::queue::PluginMask;
use crate::report::Observation;

/// Candidates with whose victims gangs go whole, of which the best is sought: they rank
/// by all that goes, and not by what is kept of their node.
const MAX_GROWN: usize = 64;

/// What preemption found for a shape.
pub(crate) struct Kept {
    candidates: Candidates,
    /// Up to which change of nodes.
    synced: u64,
    /// Under which budgets.
    budgets: u64,
    /// Under which protections.
    shields: u64,
    /// Nodes that were tried on behalf of one pod only.
    dirty: Vec<NodeId>,
}

impl Kept {
    pub(crate) fn bytes(&self) -> usize {
        self.candidates.bytes()
    }
}

/// Room that can be made.
pub(super) struct Found {
    /// Where.
    pub(super) node: Arc<str>,
    /// Who has to go.
    pub(super) victims: Vec<PodId>,
    /// Whatever their budgets say.
    pub(super) by_force: bool,
}

/// What is known of evictions under way.
#[derive(Default)]
pub(super) struct Victims {
    /// Pods that have to go, and for whom, by UID: until they are gone, or may stay. Several
    /// may wait for the same pod to go; one may be gone before it, and another pod have
    /// its number.
    pub(super) taken: IdMap<PodId, Vec<Arc<str>>>,
    /// Pods that the server says are gone, until they are seen to go.
    pub(super) gone: IdSet<PodId>,
    /// Pods that a budget kept the server from evicting: not asked for again before.
    pub(super) refused: IdMap<PodId, Tick>,
    /// What the server said of those of them that it will never evict.
    pub(super) why: IdMap<PodId, Arc<str>>,
    /// Those of them that may be going all the same, for a preemptor that waits no more.
    pub(super) doubtful: IdSet<PodId>,
}

impl Victims {
    /// Whether a pod is going for another one, or has gone and was not seen to. What
    /// `preemptor` has made to go goes, seen or not.
    fn leaves(&self, id: PodId, pod: &Pod, preemptor: &str) -> bool {
        let taken = self.taken.get(&id).filter(|_| !self.doubtful.contains(&id));
        let own = taken.is_some_and(|by| by.iter().any(|by| **by == *preemptor));
        own || pod.deleting && (pod.disrupted || taken.is_some()) || self.gone.contains(&id)
    }

    /// Who is on the way out, and not seen to be.
    pub(super) fn leaving(&self) -> Leaving<'_> {
        Leaving { taken: &self.taken, gone: &self.gone }
    }

    /// Whether a pod has to go for `preemptor`.
    pub(super) fn is_taken_by(&self, victim: PodId, preemptor: &Arc<str>) -> bool {
        self.taken.get(&victim).is_some_and(|by| by.contains(preemptor))
    }

    /// A pod has to go for `preemptor`, whoever else waits for that.
    pub(super) fn take(&mut self, victim: PodId, preemptor: &Arc<str>) {
        let by = self.taken.entry(victim).or_default();
        if !by.contains(preemptor) {
            by.push(Arc::clone(preemptor));
        }
    }

    /// A pod may stay after all, or is gone, as far as `preemptor` is concerned.
    pub(super) fn let_go(&mut self, victim: PodId, preemptor: &str) {
        if let Some(by) = self.taken.get_mut(&victim) {
            by.retain(|by| **by != *preemptor);
            if by.is_empty() {
                self.taken.remove(&victim);
            }
        }
    }

    /// Evictions per budget that were planned for others than `preemptor`, or of which
    /// nobody knows what became, and that the budget does not show yet.
    pub(super) fn outstanding<'a>(
        &self,
        cluster: &'a Cluster,
        preemptor: PodId,
    ) -> BTreeMap<(&'a str, &'a str), i32> {
        let mut asked = BTreeMap::new();
        if !cluster.policies().has_budgets() {
            return asked;
        }
        let own = cluster.pod(preemptor).map(|p| &*p.key.uid);
        let counts = |(victim, by): &(&PodId, &Vec<Arc<str>>)| {
            by.iter().any(|by| Some(&**by) != own) || self.doubtful.contains(victim)
        };
        for (&victim, _) in self.taken.iter().filter(counts) {
            let Some(pod) = cluster.pod(victim).filter(|p| !p.deleting) else {
                continue;
            };
            let unseen = |b: &&Arc<Budget>| !b.disrupted.contains(&*pod.key.name);
            for budget in budgets_of(cluster, victim).filter(unseen) {
                *asked.entry((&*budget.namespace, &*budget.name)).or_default() += 1;
            }
        }
        asked
    }
}

/// What the PostFilter plugins come to.
pub(super) enum PostFiltered {
    /// Nobody can make room.
    Nothing,
    /// Room can be made.
    Room(Found),
    /// An extender has to be asked first.
    Ask(Question, ExtenderCall),
}

/// A candidate, and whether a budget would have to be broken for it.
type Choice = (Arc<Candidate>, bool);

/// A pod that fits nowhere, and what a PostFilter plugin may ask.
struct Search<'a> {
    now: Tick,
    pod: PodId,
    profile: &'a Profile,
    shape: Arc<PodShape>,
    cluster: &'a mut Cluster,
    ledger: &'a mut Ledger,
    victims: &'a Victims,
    restraint: &'a mut Restraint,
    by: Seeking,
    /// For metrics: why nobody goes although somebody might.
    held: Option<&'static str>,
    /// Calls of a plan that the pod gave up, which are still on their way.
    unanswered: usize,
    /// Victims that save their work first, if it has a plan that waits for that.
    saving: Option<usize>,
    seed: u32,
    /// Whether a budget or a policy stood in the way.
    blocked: bool,
    /// Plugins that keep the pod off some node whoever leaves it.
    rejectors: PluginMask,
    outside: &'a Outside,
    /// What extenders said of nodes that plugins let pass.
    refused: BTreeMap<NodeId, Code>,
    /// What has to be asked of an extender before anything can be said.
    ask: Option<(Question, ExtenderCall)>,
}

impl Core {
    /// Runs the PostFilter plugins: the pods that have to go if one of them found
    /// room. Adds to the failure what they say.
    pub(super) fn post_filter(
        &mut self,
        now: Tick,
        pod: PodId,
        profile: &Profile,
        outside: &Outside,
        failure: &mut Failure,
    ) -> PostFiltered {
        let Some(shape_id) = self.cluster.pod(pod).map(|p| p.shape) else {
            return PostFiltered::Nothing;
        };
        let seed = self.tie_seed(shape_id).0;
        let own = self.cluster.pod(pod).map(|p| &*p.key.uid).unwrap_or_default();
        let unanswered = unanswered_to(&self.orphans, own);
        let saving = self.waits_for_savers(now, pod);
        let shape = Arc::clone(self.cluster.shape(shape_id));
        self.cluster.count_zones();
        let by = self.seeking(Seeker::Pod(pod));
        let said = outside.statuses.iter();
        let node = |name: &Arc<str>| self.cluster.node_by_name(name);
        let refused = said.filter_map(|(name, s)| Some((node(name)?, s.code))).collect();
        let Some(ledger) = self.ledgers.get_mut(&shape_id) else {
            return PostFiltered::Nothing;
        };
        let mut search = Search {
            now,
            pod,
            profile,
            shape,
            cluster: &mut self.cluster,
            ledger,
            victims: &self.victims,
            restraint: &mut self.restraint,
            by,
            held: None,
            unanswered,
            saving,
            seed,
            blocked: false,
            rejectors: 0,
            outside,
            refused,
            ask: None,
        };
        let mut messages = Vec::new();
        for (i, weighted) in profile.called(ExtensionPoint::PostFilter) {
            let Some(plugin) = weighted.plugin.as_post_filter() else {
                continue;
            };
            // A plugin that says nothing of the nomination leaves it alone.
            if messages.is_empty() {
                failure.nominate = Nominate::Keep;
            }
            search.blocked = false;
            let result = plugin.post_filter(&mut search);
            if let Some(reason) = search.held.take() {
                self.observations.push(Observation::PreemptionHeld { reason });
            }
            if let Some((question, call)) = search.ask.take() {
                return PostFiltered::Ask(question, call);
            }
            if search.blocked {
                failure.rejectors |= 1 << i;
            }
            failure.rejectors |= search.rejectors;
            match &result.nominate {
                Some(node) if node.is_empty() => failure.nominate = Nominate::Clear,
                Some(node) => failure.nominate = Nominate::Set(Arc::clone(node)),
                None => {}
            }
            messages.push(result.status.message());
            if result.status.code == Code::Success {
                failure.add(&messages.pop().unwrap_or_default());
                let Some(node) = result.nominate else {
                    return PostFiltered::Nothing;
                };
                let (victims, by_force) = (result.victims, result.by_force);
                return PostFiltered::Room(Found { node, victims, by_force });
            }
        }
        messages.retain(|m| !m.is_empty());
        failure.add(&messages.join(", "));
        PostFiltered::Nothing
    }
}

impl Search<'_> {
    /// What was said of a node, by plugins or else by extenders.
    fn code_of(&self, node: NodeId) -> Option<Code> {
        let code = self.ledger.code_of(self.profile, node)?;
        let refused = || self.refused.get(&node).copied();
        if code == Code::Success { refused().or(Some(code)) } else { Some(code) }
    }

    /// Brings what is known of all nodes up to date.
    fn candidates(&mut self, args: &DefaultPreemptionArgs) -> Box<Kept> {
        let (head, budgets) = (self.cluster.journal.head(), self.cluster.policies().generation());
        let shields = self.cluster.shield_stamp();
        // What a spread constraint says of a node depends on others: nothing is kept.
        let keeps = self.ledger.keeps_preemption();
        let known = self.ledger.preemption.take().filter(|_| keeps);
        let known = known.filter(|kept| kept.shields == shields);
        let changes = known.as_ref().and_then(|kept| self.cluster.journal.since(kept.synced));
        let few = changes.filter(|changes| changes.len() <= self.cluster.node_count());
        let (mut kept, mut nodes) = match few.map(Iterator::collect::<Vec<_>>).zip(known) {
            Some((mut nodes, mut kept)) => {
                nodes.append(&mut kept.dirty);
                nodes.extend(kept.candidates.lapsed(self.now));
                if kept.budgets != budgets {
                    nodes.extend(kept.candidates.budgeted());
                }
                nodes.sort_unstable();
                nodes.dedup();
                (kept, nodes)
            }
            None => {
                let (candidates, dirty) = (Candidates::new(self.seed), Vec::new());
                let kept = Kept { candidates, synced: head, budgets, shields, dirty };
                (Box::new(kept), self.cluster.nodes().iter().collect())
            }
        };
        (kept.synced, kept.budgets) = (head, budgets);
        let own = self.own_node();
        nodes.extend(own.filter(|node| !nodes.contains(node)));
        // What extenders said holds for this pod only.
        let said: Vec<NodeId> = self.refused.keys().copied().collect();
        nodes.extend(said.iter().copied().filter(|node| Some(*node) != own));
        nodes.sort_unstable();
        nodes.dedup();
        let potential = |node: &NodeId| self.code_of(*node) == Some(Code::Unschedulable);
        let mut nodes: Vec<(NodeId, bool)> = nodes.iter().map(|n| (*n, potential(n))).collect();
        let mut wanted = usize::MAX;
        if !keeps {
            nodes.retain(|(_, potential)| *potential);
            wanted = args.wanted(nodes.len());
            let offset = scramble(self.pod.0, self.seed) as usize % nodes.len().max(1);
            nodes.rotate_left(offset);
        }
        let pod = self.pod;
        let mut trial =
            Trial::begin(self.profile, &self.shape, self.cluster, &mut self.ledger.prepared);
        for (node, potential) in nodes {
            let own = own.filter(|own| *own == node).map(|_| pod);
            kept.candidates.try_node(&mut trial, node, own, potential);
            let (found, harmless) = kept.candidates.found();
            if harmless && found >= wanted {
                break;
            }
        }
        kept.dirty.extend(own);
        kept.dirty.extend(said);
        kept
    }

    /// The node that this pod is expected on.
    fn own_node(&self) -> Option<NodeId> {
        let name = self.cluster.pod(self.pod)?.nominated.as_ref()?;
        self.cluster.node_by_name(name)
    }

    /// What stands in the way of carrying a candidate out.
    fn obstacle(
        &self,
        candidate: &Candidate,
        outstanding: &BTreeMap<(&str, &str), i32>,
    ) -> Option<String> {
        let asked = |budget: (&str, &str)| outstanding.get(&budget).copied().unwrap_or(0);
        let budget = || refusal(self.cluster, &candidate.victims, asked);
        let forbidden = if bug!(self.cluster.bugs, BudgetIgnored) { None } else { budget() };
        forbidden.or_else(|| self.refused(candidate))
    }

    /// A victim that the server said it would never evict or delete, for want of a right perhaps:
    /// no force helps.
    fn stays(&self, candidate: &Candidate) -> Option<String> {
        let never = candidate.victims.iter().any(|victim| self.victims.why.contains_key(victim));
        if never { self.refused(candidate) } else { None }
    }

    /// A victim that the server would not evict a short while ago.
    fn refused(&self, candidate: &Candidate) -> Option<String> {
        let lately =
            |v: &&PodId| self.victims.refused.get(v).is_some_and(|until| *until > self.now);
        let victim = candidate.victims.iter().find(lately)?;
        let pod = self.cluster.pod(*victim)?;
        let why = self.victims.why.get(victim).map(|why| format!(": {why}")).unwrap_or_default();
        Some(format!("node(s) need the eviction of {}, which was refused{why}", pod.key))
    }
}

impl Search<'_> {
    /// Candidates as extenders want them, the best first. `Err` ends the search: with
    /// a question that has to be asked first, or for good.
    fn confirmed(
        &mut self,
        lawful: Vec<Choice>,
        args: &DefaultPreemptionArgs,
    ) -> Result<Vec<Choice>, Arc<str>> {
        if let Some(why) = &self.outside.no_preemption {
            return Err(Arc::clone(why));
        }
        // Copied out: trials change the state for a moment.
        let outside = self.outside;
        let mut left: Vec<Choice> = match &outside.victims {
            None => lawful,
            Some(answer) => {
                let said = answer.iter().filter_map(|said| self.candidate(said));
                said.map(|candidate| (candidate, false)).collect()
            }
        };
        let outstanding = self.victims.outstanding(self.cluster, self.pod);
        for (candidate, by_force) in &mut left {
            *by_force = self.obstacle(candidate, &outstanding).is_some();
        }
        drop(outstanding);
        left.retain(|(_, by_force)| !by_force || args.allow_budget_violations);
        if left.is_empty() {
            return Err("no candidate node for preemption".into());
        }
        self.sort(&mut left);
        let extenders = self.profile.extenders();
        if let Some(next) = self.outside.next_preempt(extenders, &self.shape) {
            let candidates = left.iter().map(|(c, _)| self.victims_of(c)).collect();
            let call = ExtenderCall::Preempt { extender: extenders[next].id, candidates };
            self.ask = Some((Question::Preempt(next), call));
            return Err("".into());
        }
        Ok(left)
    }

    /// The same without those that need not go because whole gangs do: what goes together
    /// stays together. None if all have to go.
    fn trimmed(&mut self, candidate: &Candidate) -> Option<Candidate> {
        let (node, mut victims) = (candidate.node, candidate.victims.clone());
        for unit in units(self.cluster, &candidate.victims, self.victims.leaving()) {
            let goes = |v: &PodId| !unit.contains(v);
            let rest: Vec<PodId> = victims.iter().copied().filter(goes).collect();
            if !rest.is_empty() && self.fits_without(node, &rest) {
                victims = rest;
            }
        }
        let fewer = victims.len() < candidate.victims.len();
        let violations = protected(self.cluster, &victims);
        fewer.then(|| Candidate::new(self.cluster, node, victims, violations))
    }

    /// The best first.
    fn sort(&self, choices: &mut [Choice]) {
        choices.sort_by_cached_key(|(c, _)| (c.rank().clone(), !scramble(c.node.0, self.seed)));
    }

    /// The victims of a node; those that go with them from other nodes are no concern of
    /// an extender.
    fn victims_of(&self, candidate: &Candidate) -> NodeVictims {
        let pods = candidate.victims.iter().filter_map(|v| self.cluster.pod(*v));
        let pods = pods.filter(|p| p.stage.node() == Some(candidate.node));
        NodeVictims {
            node: Arc::clone(&self.cluster.node(candidate.node).name),
            pods: pods.map(|p| p.key.clone()).collect(),
            violations: candidate.violations.into(),
        }
    }

    /// What an extender wants, as far as it still makes sense: those who are still there
    /// go, and then the pod fits.
    fn candidate(&mut self, said: &NodeVictims) -> Option<Arc<Candidate>> {
        let node = self.cluster.node_by_name(&said.node)?;
        let there = self.cluster.node(node).pods.iter().copied();
        let goes = |pod: &PodId| {
            let key = self.cluster.pod(*pod).map(|p| &p.key);
            key.is_some_and(|key| said.pods.iter().any(|p| p.uid == key.uid))
        };
        let mut victims: Vec<PodId> = there.filter(goes).collect();
        let shielded = |id: &PodId| {
            let pod = self.cluster.pod(*id);
            pod.is_some_and(|p| self.cluster.shield(*id, p, self.shape.priority).is_some())
        };
        if victims.is_empty() || victims.iter().any(shielded) || !self.fits_without(node, &victims)
        {
            return None;
        }
        sort_by_importance(self.cluster, &mut victims);
        let violations = u32::try_from(said.violations.max(0)).unwrap_or(u32::MAX);
        let own = Candidate::new(self.cluster, node, victims, violations);
        let whole =
            with_gangs(self.cluster, &own, self.shape.priority, self.victims.leaving()).ok()?;
        Some(Arc::new(whole.unwrap_or(own)))
    }
}

impl Search<'_> {
    /// Why policies let nobody go for the pod now.
    fn held_back(&mut self) -> Option<String> {
        let (reason, why) = self.restraint.held_back(self.now, &self.by, self.cluster.bugs)?;
        (self.held, self.blocked) = (Some(reason), true);
        Some(why)
    }

    /// Why these do not go although they would make room: it is only asked what would be, or
    /// so many cannot go now.
    fn kept_from(&mut self, candidate: &Candidate) -> Option<String> {
        // Who goes anyway, or for somebody else too, is nobody more.
        let stays = |victim: &&PodId| {
            let there = self.cluster.pod(**victim).is_some_and(|p| !p.deleting);
            there && !self.victims.taken.contains_key(*victim)
        };
        let going: Vec<PodId> = candidate.victims.iter().filter(stays).copied().collect();
        let simulates = self.by.terms.mode == PreemptionMode::Simulate;
        if simulates && !bug!(self.cluster.bugs, SimulateIgnored) {
            (self.held, self.blocked) = (Some("simulate"), true);
            let names = going.iter().filter_map(|v| Some(self.cluster.pod(*v)?.key.to_string()));
            let (count, node) = (going.len(), &self.cluster.node(candidate.node).name);
            let names = named(names);
            return Some(format!("would evict {count} pods from node {node} (Simulate): {names}"));
        }
        let bugs = self.cluster.bugs;
        let (reason, why) = self.restraint.wait_for(self.now, &self.by, going.len(), bugs)?;
        (self.held, self.blocked) = (Some(reason), true);
        Some(why)
    }
}

/// Pods or gangs that a message names.
const MAX_NAMED: usize = 4;

/// Some of the names, and how many more there are.
pub(super) fn named(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    let more = all.len().saturating_sub(MAX_NAMED);
    let shown = all[..all.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

impl Room for Search<'_> {
    fn pod(&self) -> &Pod {
        self.cluster.pod(self.pod).expect("a pod that is tried is known")
    }

    fn shape(&self) -> &PodShape {
        &self.shape
    }

    fn cluster(&self) -> &Cluster {
        self.cluster
    }

    fn potential(&self) -> Vec<NodeId> {
        let resolvable = |node: &NodeId| self.code_of(*node) == Some(Code::Unschedulable);
        self.cluster.nodes().iter().filter(resolvable).collect()
    }

    fn fits_without(&mut self, node: NodeId, victims: &[PodId]) -> bool {
        let own = self.pod;
        let mut trial =
            Trial::begin(self.profile, &self.shape, self.cluster, &mut self.ledger.prepared);
        for &victim in victims {
            let here = trial.cluster().pod(victim).and_then(|p| p.stage.node()) == Some(node);
            if here {
                trial.remove(victim, node);
            }
        }
        trial.fits(node, Some(own)).is_ok()
    }

    fn preempt(&mut self, args: &DefaultPreemptionArgs) -> PostFilterResult {
        let unschedulable = |message: String, nominate: Option<&str>| PostFilterResult {
            status: Status::unschedulable(message),
            nominate: nominate.map(Into::into),
            victims: Vec::new(),
            by_force: false,
        };
        if let Some(count) = self.saving {
            let why = format!("waiting for {count} pods to save their work");
            return unschedulable(format!("preemption: {why}"), None);
        }
        let me = Preemptor::of(self.pod, self.pod());
        let status = self.own_node().and_then(|node| self.code_of(node));
        let own = &*self.pod().key.uid;
        let leaves = |id: PodId, pod: &Pod| self.victims.leaves(id, pod, own);
        if let Err(why) = me.eligible(self.cluster, status, leaves) {
            return unschedulable(format!("preemption: {why}"), None);
        }
        if self.unanswered > 0 {
            let why = format!("waiting for {} answers about the last plan", self.unanswered);
            return unschedulable(format!("preemption: {why}"), None);
        }
        if let Some(why) = self.held_back() {
            return unschedulable(format!("preemption: {why}"), None);
        }
        let nodes = self.cluster.node_count();
        let forces = self.by.terms.force_above.is_some_and(|above| self.shape.priority > above);
        let args = &DefaultPreemptionArgs {
            allow_budget_violations: args.allow_budget_violations || forces,
            ..args.clone()
        };
        let kept = self.candidates(args);
        let mut in_the_way: Vec<Arc<str>> = Vec::new();
        let mut lapse = kept.candidates.next_lapse();
        let outstanding = self.victims.outstanding(self.cluster, self.pod);
        // Without extenders the first will do.
        let extenders = self.profile.extenders();
        let asks = Outside::default().next_preempt(extenders, &self.shape).is_some();
        let wanted = if asks { args.wanted(nodes) } else { 1 };
        let mut lawful: Vec<Choice> = Vec::new();
        let mut grown = 0;
        for candidate in kept.candidates.ranked() {
            let whole = match with_gangs(
                self.cluster,
                candidate,
                self.shape.priority,
                self.victims.leaving(),
            ) {
                Ok(whole) => whole.map(Arc::new),
                Err(Stays { why, until }) => {
                    in_the_way.push(why.into());
                    lapse = lapse.into_iter().chain(until).min();
                    continue;
                }
            };
            let own = whole.is_none();
            grown += usize::from(!own);
            let candidate = whole.unwrap_or_else(|| Arc::clone(candidate));
            if let Some(why) = self.stays(&candidate) {
                in_the_way.push(why.into());
                continue;
            }
            match self.obstacle(&candidate, &outstanding) {
                Some(why) if !args.allow_budget_violations => in_the_way.push(why.into()),
                obstacle => lawful.push((candidate, obstacle.is_some())),
            }
            // Those after it rank after it, with gangs or without.
            let enough = lawful.len() >= wanted && (own || grown >= MAX_GROWN);
            if enough {
                break;
            }
        }
        drop(outstanding);
        if grown > 0 {
            self.sort(&mut lawful);
        }
        if asks && !lawful.is_empty() {
            lawful = match self.confirmed(lawful, args) {
                Ok(confirmed) => confirmed,
                Err(why) => {
                    if self.ledger.keeps_preemption() {
                        self.ledger.preemption = Some(kept);
                    }
                    return unschedulable(format!("preemption: {why}"), None);
                }
            };
        }
        let chosen = lawful.into_iter().next().map(|(candidate, by_force)| {
            match if grown > 0 { self.trimmed(&candidate) } else { None } {
                Some(less) => {
                    let outstanding = self.victims.outstanding(self.cluster, self.pod);
                    let by_force = by_force && self.obstacle(&less, &outstanding).is_some();
                    (Arc::new(less), by_force)
                }
                None => (candidate, by_force),
            }
        });
        let kept_from = chosen.as_ref().and_then(|(candidate, _)| self.kept_from(candidate));
        let result = match chosen {
            Some(_) if kept_from.is_some() => {
                let why = kept_from.unwrap_or_default();
                unschedulable(format!("preemption: {why}"), None)
            }
            Some((candidate, by_force)) => {
                let node = &self.cluster.node(candidate.node).name;
                let victims = candidate.victims.clone();
                let status = Status::new(
                    Code::Success,
                    format!(
                        "preemption: found a potential placement for pod on node {node}, \
                         preempting {} victims",
                        victims.len()
                    ),
                );
                let nominate = Some(Arc::clone(node));
                PostFilterResult { status, nominate, victims, by_force }
            }
            None => {
                self.blocked = !in_the_way.is_empty() || kept.candidates.protects();
                if let Some(at) = lapse {
                    self.held = Some("protected");
                    self.restraint.look_again(self.now, self.by.seeker, at);
                }
                self.rejectors = kept.candidates.rejectors().fold(0, |all, i| all | 1 << i);
                // After errors upstream leaves the nomination alone.
                let failed = in_the_way.is_empty() && kept.candidates.errors().is_some();
                let text = nothing_found(&kept.candidates, nodes, &in_the_way);
                unschedulable(text, Some("").filter(|_| !failed))
            }
        };
        if self.ledger.keeps_preemption() {
            self.ledger.preemption = Some(kept);
        }
        result
    }
}
