//! Where a member may go because of where its gang is.
//!
//! Owns the domains of the levels that are asked for, which of them members are in, and the
//! places that are left to one that goes alone. The search for a whole gang is `seek`'s.
//! Must never take room.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::muster::Domain;

use super::failure::Failure;
use super::outside::{Outside, may_ask};
use super::round::After;
use super::{Choice, Core, Decision};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::gang::{GangId, GangSpec, Wish};
use crate::io::Tick;
use crate::model::{PodId, ShapeId};
use crate::queue::QueueCx;
use crate::topology::{Asked, Tree};

/// Trees that are kept; beyond it all are made anew.
const MAX_TREES: usize = 64;

/// Some of the nodes.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// All of them.
    All,
    /// Those of a domain: level and number.
    Domain(Arc<Tree>, usize, u32),
    /// Those in any domain of a level.
    Level(Arc<Tree>, usize),
    /// Those that are in all of these.
    Within(Vec<Place>),
}

impl Place {
    /// Whether a node is in.
    pub(super) fn has(&self, node: NodeId) -> bool {
        match self {
            Self::All => true,
            Self::Domain(tree, level, domain) => tree.domain_of(*level, node) == Some(*domain),
            Self::Level(tree, level) => tree.domain_of(*level, node).is_some(),
            Self::Within(places) => places.iter().all(|place| place.has(node)),
        }
    }

    /// The same, as far as it is in these too.
    pub(super) fn within(self, others: &[Self]) -> Self {
        let all = std::iter::once(self).chain(others.iter().cloned());
        let mut places: Vec<Self> = all.filter(|place| !matches!(place, Self::All)).collect();
        match places.len() {
            0 => Self::All,
            1 => places.remove(0),
            _ => Self::Within(places),
        }
    }

    /// Its nodes; none for all.
    pub(super) fn nodes(&self) -> Option<Cow<'_, [NodeId]>> {
        match self {
            Self::All => None,
            Self::Domain(tree, level, domain) => {
                Some(Cow::Borrowed(tree.domain(*level, *domain).nodes.as_slice()))
            }
            Self::Level(tree, level) => {
                let domains = tree.levels[*level].domains.iter();
                let mut nodes: Vec<NodeId> = domains.flat_map(|d| &d.nodes).copied().collect();
                nodes.sort_unstable();
                Some(Cow::Owned(nodes))
            }
            Self::Within(places) => {
                let nodes = places.iter().find_map(Self::nodes)?;
                let all = nodes.iter().copied().filter(|node| self.has(*node));
                Some(Cow::Owned(all.collect()))
            }
        }
    }
}

/// Domains by levels, made when they are asked for.
#[derive(Default)]
pub(super) struct Trees {
    labelled: u64,
    trees: BTreeMap<Vec<Box<str>>, Arc<Tree>>,
}

/// A wish with the domains it speaks of.
pub(super) struct Sought {
    pub(super) asked: Asked,
    pub(super) tree: Arc<Tree>,
}

impl Sought {
    /// The domain of a level in which all these nodes are. `Err`: they are in several.
    /// Nodes in no domain do not count.
    pub(super) fn common(&self, level: usize, nodes: &[NodeId]) -> Result<Option<u32>, (u32, u32)> {
        let mut found = nodes.iter().filter_map(|node| self.tree.domain_of(level, *node));
        let Some(first) = found.next() else {
            return Ok(None);
        };
        match found.find(|other| *other != first) {
            None => Ok(Some(first)),
            Some(other) => Err((first.min(other), first.max(other))),
        }
    }

    /// `rack r7`.
    pub(super) fn word(&self, level: usize, domain: u32) -> String {
        format!("{} {}", self.asked.names[level], self.tree.domain(level, domain).value)
    }

    /// Members are in two domains of the required level.
    pub(super) fn apart(&self, level: usize, (one, other): (u32, u32)) -> String {
        format!(
            "members are in {} and in {}, and must be in one {}: those in one of them have to go",
            self.word(level, one),
            self.word(level, other),
            self.asked.names[level],
        )
    }

    /// The domain that members on these nodes have, as a status shows it.
    fn shown(&self, wish: &Wish, nodes: &[NodeId]) -> Option<Domain> {
        let named = wish.required.as_ref().or(wish.preferred.as_ref());
        let level = match self.asked.required {
            Some(required) => required,
            // As narrow as it came to be.
            None => (0..=self.asked.first)
                .rev()
                .find(|level| matches!(self.common(*level, nodes), Ok(Some(_))))?,
        };
        let all = nodes.iter().all(|node| self.tree.domain_of(level, *node).is_some());
        let domain = self.common(level, nodes).ok()?.filter(|_| all)?;
        let asked = level == self.asked.required.unwrap_or(self.asked.first);
        let name = named.filter(|_| asked).map_or(&self.asked.names[level], |named| &named.name);
        Some(Domain {
            level: name.to_string(),
            key: self.asked.keys[level].to_string(),
            value: self.tree.domain(level, domain).value.to_string(),
        })
    }
}

impl Core {
    /// What a wish means, with the domains as they are now.
    pub(super) fn sought(&mut self, wish: &Wish) -> Result<Option<Sought>, String> {
        let cluster = &self.cluster;
        let asked = Asked::of(wish, cluster.topologies(), |key| cluster.has_label(key))?;
        let Some(asked) = asked else {
            return Ok(None);
        };
        let trees = &mut self.trees;
        if trees.labelled != cluster.labelled() || trees.trees.len() >= MAX_TREES {
            *trees = Trees { labelled: cluster.labelled(), trees: BTreeMap::new() };
        }
        let known = trees.trees.entry(asked.keys.clone());
        let tree = known.or_insert_with(|| Arc::new(Tree::build(cluster, &asked.keys)));
        Ok(Some(Sought { tree: Arc::clone(tree), asked }))
    }

    /// Nodes that exist on which members are that stay; `role`: of that role only.
    pub(super) fn places_of_members(
        &self,
        id: GangId,
        spec: &GangSpec,
        role: Option<usize>,
        but: Option<PodId>,
    ) -> Vec<NodeId> {
        let Some(gang) = self.cluster.gang(id) else {
            return Vec::new();
        };
        let others = gang.members.iter().copied().filter(|pod| Some(*pod) != but);
        let of_role = |pod: &PodId| role.is_none() || self.cluster.role_of(spec, *pod) == role;
        let place = |pod: PodId| {
            let pod = self.cluster.pod(pod).filter(|pod| !pod.deleting)?;
            pod.stage.node().filter(|node| self.cluster.node(*node).exists)
        };
        let mut nodes: Vec<NodeId> = others.filter(of_role).filter_map(place).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The wishes that concern a member: its gang's, and its role's.
    fn wishes(spec: &GangSpec, role: Option<usize>) -> Vec<(Option<usize>, &Wish)> {
        let group = spec.topology.as_ref().map(|wish| (None, wish));
        let own = role.and_then(|role| Some((Some(role), spec.roles[role].topology.as_ref()?)));
        group.into_iter().chain(own).collect()
    }

    /// Where a member that goes alone may go, the best first; the last place is all that
    /// is left to it.
    fn places_for(&mut self, pod: PodId, profile: &Profile) -> Result<Vec<Place>, Failure> {
        let anywhere = Ok(vec![Place::All]);
        let Some(id) = self.cluster.pod(pod).and_then(|p| p.gang) else {
            return anywhere;
        };
        let spec = self.cluster.gang(id).and_then(|gang| gang.spec.as_ref().map(Arc::clone));
        let Some(spec) = spec.filter(|spec| spec.has_topology()) else {
            return anywhere;
        };
        let role = self.cluster.role_of(&spec, pod);
        let mut bounds: Vec<Place> = Vec::new();
        let mut near = Vec::new();
        for (of_role, wish) in Self::wishes(&spec, role) {
            let sought = self.sought(wish).map_err(|text| Failure::topology(profile, text))?;
            let Some(sought) = sought else { continue };
            let members = self.places_of_members(id, &spec, of_role, Some(pod));
            if let Some(level) = sought.asked.required {
                let place = match sought.common(level, &members) {
                    Ok(Some(domain)) => Place::Domain(Arc::clone(&sought.tree), level, domain),
                    Ok(None) => Place::Level(Arc::clone(&sought.tree), level),
                    Err(split) => {
                        return Err(Failure::topology(profile, sought.apart(level, split)));
                    }
                };
                bounds.push(place);
            }
            let narrow = (sought.asked.last()..=sought.asked.first).rev();
            let narrow = narrow.filter(|level| Some(*level) != sought.asked.required);
            let mut nearer: Vec<Place> = narrow
                .filter_map(|level| {
                    let domain = sought.common(level, &members).ok()??;
                    Some(Place::Domain(Arc::clone(&sought.tree), level, domain))
                })
                .collect();
            nearer.append(&mut near);
            near = nearer;
        }
        let mut places: Vec<Place> =
            near.into_iter().map(|place: Place| place.within(&bounds)).collect();
        places.push(Place::All.within(&bounds));
        Ok(places)
    }

    /// Whether a node is where the members of a pod's gang are, as far as they must be
    /// together; else why not.
    fn strays(&mut self, pod: PodId, node: NodeId) -> Option<String> {
        let id = self.cluster.pod(pod)?.gang?;
        let spec = self.cluster.gang(id)?.spec.as_ref().map(Arc::clone)?;
        let role = self.cluster.role_of(&spec, pod);
        for (of_role, wish) in Self::wishes(&spec, role) {
            let sought = match self.sought(wish) {
                Ok(Some(sought)) => sought,
                Ok(None) => continue,
                // Nobody knows where it must be any more.
                Err(text) => return Some(text),
            };
            let Some(level) = sought.asked.required else { continue };
            let name = &self.cluster.node(node).name;
            let Some(own) = sought.tree.domain_of(level, node) else {
                let key = &sought.asked.keys[level];
                return Some(format!(
                    "node {name} is in no {}: it lacks the label {key} or that of \
                                     a wider level",
                    sought.asked.names[level]
                ));
            };
            let members = self.places_of_members(id, &spec, of_role, Some(pod));
            let elsewhere = members
                .iter()
                .filter_map(|other| sought.tree.domain_of(level, *other))
                .find(|domain| *domain != own);
            if let Some(other) = elsewhere {
                return Some(format!(
                    "node {name} is in {}, and other members are in {}",
                    sought.word(level, own),
                    sought.word(level, other)
                ));
            }
        }
        None
    }

    /// As [`Core::strays`], for a member that has room and was not bound yet.
    pub(super) fn strayed(&mut self, pod: PodId) -> Option<Failure> {
        if bug!(self.bugs, TopologyNotRechecked) {
            return None;
        }
        let node = self.bindings.get(&pod).map(|binding| binding.node)?;
        self.strays(pod, node).map(Failure::strayed)
    }

    /// A member of a round that is not where it must be, as labels and levels are now.
    pub(super) fn strayed_in_round(&mut self, id: GangId) -> Option<(PodId, Failure)> {
        let spec = self.cluster.gang(id)?.spec.as_ref().map(Arc::clone)?;
        if !spec.has_topology() {
            return None;
        }
        let members = self.cluster.gang(id)?.members.iter();
        let in_round = |pod: &PodId| {
            let binding = self.bindings.get(pod).filter(|b| b.round == Some(id))?;
            Some((*pod, binding.node, self.cluster.role_of(&spec, *pod)))
        };
        let round: Vec<(PodId, NodeId, Option<usize>)> = members.filter_map(in_round).collect();
        let group = spec.topology.as_ref().map(|wish| (None, wish));
        let roles = spec.roles.iter().enumerate();
        let roles = roles.filter_map(|(i, role)| Some((Some(i), role.topology.as_ref()?)));
        let mut suspect = false;
        for (role, wish) in group.into_iter().chain(roles) {
            let Ok(sought) = self.sought(wish) else {
                suspect = true;
                continue;
            };
            let Some(sought) = sought else { continue };
            let Some(level) = sought.asked.required else { continue };
            let nodes = self.places_of_members(id, &spec, role, None);
            let mut own = round.iter().filter(|(.., of)| role.is_none() || *of == role);
            suspect |= sought.common(level, &nodes).is_err()
                || own.any(|(_, node, _)| sought.tree.domain_of(level, *node).is_none());
        }
        let mut round = round.into_iter().filter(|_| suspect);
        round.find_map(|(pod, ..)| Some((pod, self.strayed(pod)?)))
    }

    /// Labels of nodes or levels have changed: rounds that are apart now are given up, and
    /// whoever waits is tried again.
    pub(super) fn topology_changed(&mut self, now: Tick) {
        for id in self.cluster.gangs_with_topology() {
            if self.has_round(id)
                && let Some((pod, failure)) = self.strayed_in_round(id)
            {
                self.abort_round(now, id, Some(pod), &failure, After::Again);
            }
            self.call_members(now, id);
            self.queue.gang_changed(id, true);
        }
    }

    /// Whether a gang asks where its members are, relative to each other.
    pub(super) fn has_topology(&self, id: GangId) -> bool {
        let spec = self.cluster.gang(id).and_then(|gang| gang.spec.as_ref());
        spec.is_some_and(|spec| spec.has_topology())
    }

    /// Members that wait by themselves are tried again: where the others are, or whether
    /// that matters, has changed.
    pub(super) fn call_members(&mut self, now: Tick, id: GangId) {
        let Some(gang) = self.cluster.gang(id) else {
            return;
        };
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        for pod in &gang.members {
            self.queue.call(&cx, *pod, "TopologyChange");
        }
    }

    /// Chooses a node for a pod that goes alone: near the members of its gang if it has one
    /// that asks for it.
    pub(super) fn choose_near(
        &mut self,
        profile: &Arc<Profile>,
        shape: ShapeId,
        pod: PodId,
        outside: &mut Outside,
        decision: &mut Decision,
    ) -> Result<Choice, Failure> {
        let mut places = self.places_for(pod, profile)?;
        // Extenders are asked once: about all that is left to it.
        if places.len() > 1 && may_ask(profile.extenders(), self.cluster.shape(shape)) {
            places.drain(..places.len() - 1);
        }
        let last = places.pop().unwrap_or(Place::All);
        for place in places {
            match self.choose(profile, shape, pod, &place, outside, decision) {
                Err(failure) if failure.is_rejected() => {}
                choice => return choice,
            }
        }
        self.choose(profile, shape, pod, &last, outside, decision)
    }

    /// Whether any node of a place fits a shape, but for pods that are expected there: worth
    /// a look, because saying why not costs more than a choice.
    pub(super) fn may_sit(&mut self, profile: &Profile, shape: ShapeId, place: &Place) -> bool {
        self.refresh_ledger(profile, shape);
        let (ledger, nodes) = (self.ledgers.get(&shape), place.nodes());
        ledger.zip(nodes).is_none_or(|(ledger, nodes)| ledger.fits_any(&nodes))
    }

    /// The domains that a gang and its roles got.
    pub(super) fn domains_of(
        &mut self,
        id: GangId,
        spec: &GangSpec,
    ) -> (Option<Domain>, Vec<(String, Domain)>) {
        let shown = |core: &mut Self, role: Option<usize>, wish: &Wish| {
            let sought = core.sought(wish).ok().flatten()?;
            sought.shown(wish, &core.places_of_members(id, spec, role, None))
        };
        let group = spec.topology.as_ref().and_then(|wish| shown(self, None, wish));
        let mut roles = Vec::new();
        for (i, role) in spec.roles.iter().enumerate() {
            let domain = role.topology.as_ref().and_then(|wish| shown(self, Some(i), wish));
            roles.extend(domain.map(|domain| (role.name.to_string(), domain)));
        }
        (group, roles)
    }
}
