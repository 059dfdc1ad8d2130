//! Which scheduling policies exist, which are in force, and whom they govern.
//!
//! Owns the policies and one matcher for each that is in force: a group of pods knows its
//! matchers, so whom a policy governs is never searched for. What policies come to
//! together is `policy`'s arithmetic, interned per set of policies. Shared between forks.
//! Must never decide where a pod goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s;
use muster_api::muster::labels::NVLINK_DOMAIN;
use muster_api::muster::{SchedulingPolicy, TopologyRequest};

use super::kin::{GroupId, GroupKey, MatchKey, MatcherId};
use super::{Cluster, Objects};
use crate::bugs::bug;
use crate::gang::GangId;
use crate::hash::TextMap;
use crate::model::{LabelSet, PodId, Scope};
use crate::plugins::names;
use crate::policy::{
    self, Active, GangTerms, PaceTerms, Placement, Policy, PreemptorTerms, Scoring, Verdict,
    VictimTerms, judge,
};
use crate::report::{PolicyInForce, PolicyView};

/// Sets of policies whose sum is remembered.
const MAX_INTERNED: usize = 1024;

/// Bit i: the i-th policy in force.
type Set = u64;

#[derive(Clone)]
struct InForce {
    policy: Arc<Policy>,
    matcher: MatcherId,
    /// Of one that packs at low load: whether it does.
    packs: bool,
}

impl InForce {
    fn active(&self) -> Active<'_> {
        Active { policy: &self.policy, packs: self.packs }
    }

    fn thresholds(&self) -> Option<&policy::Thresholds> {
        match &self.policy.placement {
            Some(Placement::ByLoad(thresholds)) => Some(thresholds),
            _ => None,
        }
    }
}

/// All policies.
#[derive(Clone, Default)]
pub(super) struct Governance {
    all: Objects<Policy>,
    verdicts: BTreeMap<Box<str>, Verdict>,
    /// The highest priority first.
    in_force: Vec<InForce>,
    /// Whether any of these speaks of gangs, of topology, of preemption, protects anybody from
    /// it, or goes by the load.
    speaks_of_gangs: bool,
    speaks_of_topology: bool,
    speaks_of_preemption: bool,
    speaks_of_pace: bool,
    protects: bool,
    minds_zones: bool,
    weighs_load: bool,
    /// Names of the plugins that score in some profile.
    plugins: Option<BTreeSet<&'static str>>,
    interned: TextMap<Set, Option<Arc<Scoring>>>,
    /// Grows with every change of what is said of a policy.
    generation: u64,
}

impl Governance {
    fn set_of(&self, matchers: &[MatcherId]) -> Set {
        let governs = |own: &InForce| matchers.binary_search(&own.matcher).is_ok();
        let bits = self.in_force.iter().enumerate().filter(|(_, own)| governs(own));
        bits.fold(0, |set, (i, _)| set | 1 << i)
    }

    fn members(&self, set: Set) -> impl Iterator<Item = &InForce> {
        self.in_force.iter().enumerate().filter(move |(i, _)| set >> i & 1 == 1).map(|(_, p)| p)
    }

    fn scoring(&mut self, set: Set) -> Option<Arc<Scoring>> {
        if let Some(known) = self.interned.get(&set) {
            return known.clone();
        }
        let made = policy::scoring(self.members(set).map(InForce::active)).map(Arc::new);
        if self.interned.len() >= MAX_INTERNED {
            self.interned.clear();
        }
        self.interned.insert(set, made.clone());
        made
    }

    fn explained(&self, set: Set) -> Vec<PolicyInForce> {
        let decides = policy::decides(self.members(set).map(InForce::active));
        let each = self.members(set).zip(decides).map(|(own, decides)| PolicyInForce {
            name: own.policy.name.to_string(),
            priority: own.policy.priority,
            decides,
        });
        each.collect()
    }
}

/// Pods that a policy governs. A namespace without an object is one without labels.
fn match_key(policy: &Policy) -> MatchKey {
    let scope = Scope { names: Box::default(), selector: policy.namespaces.clone() };
    MatchKey { all: vec![(scope, policy.pods.clone())], living: false, lenient: true }
}

impl Cluster {
    /// Takes in a policy; true if anything changed.
    pub(crate) fn set_scheduling_policy(&mut self, wire: &SchedulingPolicy, seen: u64) -> bool {
        let policy = Arc::new(Policy::of(wire));
        let governance = Arc::make_mut(&mut self.governance);
        let before = governance.all.insert(&policy.name, Arc::clone(&policy), seen);
        if before.is_some_and(|before| before == policy) {
            return false;
        }
        self.judge_policies();
        true
    }

    /// Forgets a policy; true if it was known.
    pub(crate) fn remove_scheduling_policy(&mut self, name: &str) -> bool {
        let known = Arc::make_mut(&mut self.governance).all.remove(name).is_some();
        if known {
            self.judge_policies();
        }
        known
    }

    /// Whether there is such a policy.
    pub(crate) fn knows_scheduling_policy(&self, name: &str) -> bool {
        self.governance.all.get(name).is_some()
    }

    /// Forgets policies last seen before relist `seen`; true if there were any.
    pub(crate) fn sweep_scheduling_policies(&mut self, seen: u64) -> bool {
        let stale = self.governance.all.stale(seen);
        let governance = Arc::make_mut(&mut self.governance);
        stale.iter().for_each(|name| drop(governance.all.remove(name)));
        if !stale.is_empty() {
            self.judge_policies();
        }
        !stale.is_empty()
    }

    /// Says which plugins score in any profile; true if that is news.
    pub(crate) fn set_score_plugins(&mut self, plugins: BTreeSet<&'static str>) -> bool {
        if self.governance.plugins.as_ref() == Some(&plugins) {
            return false;
        }
        Arc::make_mut(&mut self.governance).plugins = Some(plugins);
        self.judge_policies();
        true
    }

    /// Finds out anew which policies are in force.
    fn judge_policies(&mut self) {
        let all = self.governance.all.iter().map(|(_, policy)| policy);
        let judged = judge(all, self.governance.plugins.as_ref());
        let mut in_force = Vec::with_capacity(judged.in_force.len());
        for policy in judged.in_force {
            let matcher = self.watch_governed(&policy);
            // Whoever packs goes on to, if nothing but other fields changed.
            let same = |old: &&InForce| {
                old.policy.uid == policy.uid && old.policy.placement == policy.placement
            };
            let packs = self.governance.in_force.iter().find(same).is_none_or(|old| old.packs);
            in_force.push(InForce { policy, matcher, packs });
        }
        let governance = Arc::make_mut(&mut self.governance);
        governance.verdicts = judged.verdicts;
        governance.speaks_of_gangs = in_force.iter().any(|own| own.policy.speaks_of_gangs());
        governance.speaks_of_topology = in_force.iter().any(|own| own.policy.topology.is_some());
        let preemption = || in_force.iter().filter_map(|own| own.policy.preemption.as_ref());
        governance.speaks_of_preemption = preemption().next().is_some();
        governance.speaks_of_pace = in_force.iter().any(|own| own.policy.pacing.is_some());
        governance.protects = preemption().any(policy::protects);
        governance.minds_zones = preemption().any(|own| own.unhealthy_zone_percent.is_some());
        governance.weighs_load = in_force.iter().any(|own| own.thresholds().is_some());
        governance.interned.clear();
        governance.generation += 1;
        // After those of the new ones: what both watch stays counted.
        let old = std::mem::replace(&mut governance.in_force, in_force);
        let kin = Arc::make_mut(&mut self.kin);
        for own in old {
            if kin.unwatch(own.matcher) {
                self.tally.forget_matcher(own.matcher);
            }
        }
        kin.epoch += 1;
        self.weigh_load();
    }

    fn watch_governed(&mut self, policy: &Policy) -> MatcherId {
        let (matcher, seeded) = Arc::make_mut(&mut self.kin).watch(match_key(policy));
        for group in seeded.into_iter().flatten() {
            self.tally.admit(matcher, group, true);
        }
        matcher
    }

    /// Lets policies that pack at low load look at it. A switch is another shape for the
    /// pods they govern.
    pub(crate) fn weigh_load(&mut self) {
        if !self.governance.weighs_load {
            return;
        }
        let packs = |own: &InForce| {
            own.thresholds().map_or(own.packs, |thresholds| self.packs(thresholds, own.packs))
        };
        let now: Vec<bool> = self.governance.in_force.iter().map(packs).collect();
        let before = self.governance.in_force.iter().map(|own| own.packs);
        if before.eq(now.iter().copied()) {
            return;
        }
        let governance = Arc::make_mut(&mut self.governance);
        for (own, packs) in governance.in_force.iter_mut().zip(now) {
            own.packs = packs;
        }
        governance.interned.clear();
        Arc::make_mut(&mut self.kin).epoch += 1;
    }

    fn scoring_by(&mut self, set: Set) -> Option<Arc<Scoring>> {
        if set == 0 {
            return None;
        }
        // Most are known: nothing is copied then, even while a fork lives.
        if let Some(known) = self.governance.interned.get(&set) {
            return known.clone();
        }
        Arc::make_mut(&mut self.governance).scoring(set)
    }

    /// What policies say of the scores of pods of such a group.
    pub(super) fn scoring_of(&mut self, group: &GroupKey) -> Option<Arc<Scoring>> {
        if self.governance.in_force.is_empty() {
            return None;
        }
        self.scoring_by(self.governance.set_of(&self.kin.matchers_of(group)))
    }

    /// As `scoring_of`, for a group that exists.
    pub(super) fn scoring_of_group(&mut self, group: GroupId) -> Option<Arc<Scoring>> {
        if self.governance.in_force.is_empty() {
            return None;
        }
        self.scoring_by(self.governance.set_of(self.kin.matchers(group)))
    }

    /// Where policies want a pod of no gang to be, relative to others of its controller.
    pub(crate) fn topology_for(&self, pod: PodId) -> Option<Arc<TopologyRequest>> {
        let group = self.pod(pod).filter(|_| self.governance.speaks_of_topology)?.group;
        let set = self.governance.set_of(self.kin.matchers(group));
        self.governance.members(set).find_map(|own| own.policy.topology.clone())
    }

    // ---- preemption --------------------------------------------------------

    fn policies_in(&self, set: Set) -> impl Iterator<Item = &Policy> {
        self.governance.members(set).map(|own| &*own.policy)
    }

    /// What policies say of a pod that finds no room.
    pub(crate) fn preemptor_terms(&self, pod: PodId) -> PreemptorTerms {
        let Some(record) = self.pod(pod).filter(|_| self.governance.speaks_of_preemption) else {
            return PreemptorTerms::default();
        };
        let set = self.governance.set_of(self.kin.matchers(record.group));
        policy::preemptor_terms(self.policies_in(set))
    }

    /// What policies say of a gang that finds no room: those that govern all its members.
    pub(crate) fn gang_preemptor_terms(&self, id: GangId) -> PreemptorTerms {
        let Some(gang) = self.gang(id).filter(|_| self.governance.speaks_of_preemption) else {
            return PreemptorTerms::default();
        };
        policy::preemptor_terms(self.policies_in(self.set_of_gang(gang)))
    }

    /// What policies say of the pace of a pod.
    pub(crate) fn pace_terms(&self, pod: PodId) -> PaceTerms {
        let Some(record) = self.pod(pod).filter(|_| self.governance.speaks_of_pace) else {
            return PaceTerms::default();
        };
        let set = self.governance.set_of(self.kin.matchers(record.group));
        policy::pace_terms(self.policies_in(set))
    }

    /// The same of a gang: by the policies that govern all its members.
    pub(crate) fn gang_pace_terms(&self, id: GangId) -> PaceTerms {
        let Some(gang) = self.gang(id).filter(|_| self.governance.speaks_of_pace) else {
            return PaceTerms::default();
        };
        policy::pace_terms(self.policies_in(self.set_of_gang(gang)))
    }

    /// What policies say of pods alike in namespace and labels that others would push out.
    pub(super) fn victim_terms(&self, group: GroupId) -> VictimTerms {
        if !self.governance.protects {
            return VictimTerms::default();
        }
        let set = self.governance.set_of(self.kin.matchers(group));
        policy::victim_terms(self.policies_in(set))
    }

    /// Whether any policy protects anybody from being pushed out.
    pub(super) fn policies_protect(&self) -> bool {
        self.governance.protects
    }

    /// Whether any policy goes by how many nodes of a zone are ready.
    pub(super) fn policies_mind_zones(&self) -> bool {
        self.governance.minds_zones
    }

    // ---- gangs -------------------------------------------------------------

    /// Policies that govern every member of a gang. One without members goes by its
    /// namespace, as a pod without labels would.
    fn set_of_gang(&self, gang: &super::Gang) -> Set {
        let groups = gang.members.iter().filter_map(|pod| Some(self.pod(*pod)?.group));
        let sets = groups.map(|group| self.governance.set_of(self.kin.matchers(group)));
        sets.reduce(|one, other| one & other).unwrap_or_else(|| {
            let (namespace, labels) = (Arc::clone(&gang.key.namespace), LabelSet::default());
            let nobody = GroupKey { namespace, labels, deleting: false };
            self.governance.set_of(&self.kin.matchers_of(&nobody))
        })
    }

    /// What policies say of a gang.
    fn terms_of(&self, id: GangId) -> GangTerms {
        let Some(gang) = self.gang(id) else { return GangTerms::default() };
        let mut terms = self.terms_by_policy(gang);
        let plugins = self.governance.plugins.as_ref();
        let links = plugins.is_some_and(|plugins| plugins.contains(names::GPU_LINKS));
        if terms.topology.is_none() && self.prefers_domains(gang, links) {
            let preferred = Some(NVLINK_DOMAIN.to_owned());
            let near = TopologyRequest { preferred, ..TopologyRequest::default() };
            terms.topology = Some(Arc::new(near));
        }
        terms
    }

    fn terms_by_policy(&self, gang: &super::Gang) -> GangTerms {
        if !self.governance.speaks_of_gangs {
            return GangTerms::default();
        }
        policy::gang_terms(self.policies_in(self.set_of_gang(gang)))
    }

    /// Has a gang obey the policies that govern it now; true if that changes anything.
    pub(crate) fn govern_gang(&mut self, id: GangId) -> bool {
        let terms = self.terms_of(id);
        if self.gang(id).is_none_or(|gang| gang.terms == terms) {
            return false;
        }
        let had = |gang: &Arc<super::Gang>| gang.terms != GangTerms::default();
        if bug!(self.bugs, PolicyStale) && self.gang(id).is_some_and(had) {
            return false;
        }
        let Some(gang) = self.gang_mut(id) else {
            return false;
        };
        let before = gang.spec.take();
        gang.spec = before.as_ref().map(|spec| Arc::new((**spec).clone().under(&terms)));
        let topology = gang.terms.topology != terms.topology;
        gang.terms = terms;
        topology || gang.spec != before
    }

    // ---- views -------------------------------------------------------------

    /// The policies that govern pods of a group.
    pub(crate) fn policies_on(&self, group: GroupId) -> Vec<PolicyInForce> {
        self.governance.explained(self.governance.set_of(self.kin.matchers(group)))
    }

    /// The policies that would govern a pod.
    pub(crate) fn policies_for(&self, wire: &k8s::Pod) -> Vec<PolicyInForce> {
        let matchers = self.kin.matchers_of(&self.group_key(wire));
        self.governance.explained(self.governance.set_of(&matchers))
    }

    /// Grows with every change of what is said of a policy.
    pub(crate) fn policies_generation(&self) -> u64 {
        self.governance.generation
    }

    /// Every policy by name, with what is said of it.
    pub(crate) fn policy_views(&self) -> Vec<PolicyView> {
        if self.governance.verdicts.is_empty() {
            return Vec::new();
        }
        let mut governed: BTreeMap<MatcherId, u64> =
            self.governance.in_force.iter().map(|own| (own.matcher, 0)).collect();
        for (matchers, pods) in self.kin.ours() {
            for matcher in matchers {
                if let Some(count) = governed.get_mut(matcher) {
                    *count += u64::from(pods);
                }
            }
        }
        let matcher = |name: &str| {
            let own = self.governance.in_force.iter().find(|own| *own.policy.name == *name);
            own.map(|own| own.matcher)
        };
        let views = self.governance.all.iter().filter_map(|(name, policy)| {
            let verdict = self.governance.verdicts.get(name)?;
            Some(PolicyView {
                name: policy.name.clone(),
                uid: policy.uid.clone(),
                generation: policy.generation,
                accepted: verdict.accepted,
                reason: verdict.reason,
                message: Arc::clone(&verdict.message),
                governed: matcher(name).and_then(|m| governed.get(&m).copied()).unwrap_or(0),
            })
        });
        views.collect()
    }
}
