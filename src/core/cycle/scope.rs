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
use super::fence::Fence;
use super::outside::{Outside, may_ask};
use super::restraint::Seeker;
use super::round::After;
use super::{Choice, Core, Decision};
use crate::bugs::bug;
use crate::cluster::{Cluster, NodeId, NodeSet};
use crate::framework::Profile;
use crate::gang::{GangId, GangSpec, Wish};
use crate::io::Tick;
use crate::model::{PodId, ShapeId};
use crate::queue::QueueCx;
use crate::topology::{Asked, Tree};

/// Trees that are kept; beyond it all are made anew.
const MAX_TREES: usize = 64;
/// Nodes with pods of a controller that are looked at for a further one.
const MAX_SIBLING_NODES: usize = 4096;
/// Domains of a level that are tried for a pod because others of its controller are there.
const MAX_NEAR: usize = 2;

/// Some of the nodes.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// All of them.
    All,
    /// Those of a domain: level and number.
    Domain(Arc<Tree>, usize, u32),
    /// Those in any domain of a level.
    Level(Arc<Tree>, usize),
    /// These.
    Only(Arc<NodeSet>),
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
            Self::Only(nodes) => nodes.contains(node),
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
            Self::Only(nodes) => Some(Cow::Owned(nodes.iter().collect())),
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

/// Members that are meant.
#[derive(Clone, Debug, Default)]
pub(super) struct Among<'a> {
    /// Those of a role.
    pub(super) role: Option<usize>,
    /// All others.
    pub(super) but: Option<PodId>,
    /// Those of a segment: the label of ranks, how many a segment has, and which it is.
    pub(super) ranks: Option<(&'a str, u32, u32)>,
}

impl Among<'_> {
    fn has(&self, cluster: &Cluster, spec: &GangSpec, pod: PodId) -> bool {
        let segment = |(label, size, which): (&str, u32, u32)| {
            cluster.rank_of(pod, label).is_some_and(|rank| rank / size == which)
        };
        self.but != Some(pod)
            && (self.role.is_none() || cluster.role_of(spec, pod) == self.role)
            && self.ranks.is_none_or(segment)
    }
}

/// Something that is asked of members relative to each other.
struct Bond<'a> {
    wish: Cow<'a, Wish>,
    among: Among<'a>,
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

    /// The domains around a node, from the narrowest to one of level `last`.
    pub(super) fn around(&self, node: NodeId, last: usize) -> impl Iterator<Item = Place> + '_ {
        (last..self.tree.levels.len()).rev().filter_map(move |level| {
            let domain = self.tree.domain_of(level, node)?;
            Some(Place::Domain(Arc::clone(&self.tree), level, domain))
        })
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

    /// Nodes that exist on which members are that stay.
    pub(super) fn places_of_members(
        &self,
        id: GangId,
        spec: &GangSpec,
        among: &Among<'_>,
    ) -> Vec<NodeId> {
        let Some(gang) = self.cluster.gang(id) else {
            return Vec::new();
        };
        let meant = gang.members.iter().filter(|pod| among.has(&self.cluster, spec, **pod));
        let mut nodes: Vec<NodeId> = meant.filter_map(|pod| self.place_of(*pod)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The node that exists on which a member is that stays.
    pub(super) fn place_of(&self, pod: PodId) -> Option<NodeId> {
        let pod = self.cluster.pod(pod).filter(|pod| !pod.deleting)?;
        pod.stage.node().filter(|node| self.cluster.node(*node).exists)
    }

    /// What concerns a member: what its gang asks for, its role, and the segments that it is
    /// in. `Err`: it must be in a segment, and has no rank.
    fn bonds<'a>(&self, spec: &'a GangSpec, pod: PodId) -> Result<Vec<Bond<'a>>, String> {
        let role = self.cluster.role_of(spec, pod);
        let mut bonds = Vec::new();
        for (role, wish) in spec.wishes_on(role) {
            let among = Among { role, but: Some(pod), ranks: None };
            bonds.push(Bond { wish: Cow::Borrowed(wish), among: among.clone() });
            if wish.segments.is_empty() || bug!(self.bugs, SegmentsIgnored) {
                continue;
            }
            let label = wish.rank_label();
            let rank = self.cluster.rank_of(pod, label);
            for segment in &wish.segments {
                let Some(rank) = rank else {
                    if segment.required.is_some() {
                        return Err(self.no_rank(pod, label));
                    }
                    continue;
                };
                let ranks = Some((label, segment.size, rank / segment.size));
                let among = Among { ranks, ..among.clone() };
                bonds.push(Bond { wish: Cow::Owned(segment.wish()), among });
            }
        }
        Ok(bonds)
    }

    /// A member that must be in a segment has no rank.
    pub(super) fn no_rank(&self, pod: PodId, label: &str) -> String {
        let name = self.cluster.pod(pod).map(|p| Arc::clone(&p.key.name)).unwrap_or_default();
        format!(
            "topology.segments: member {name} has no rank: its label {label} is missing, or no \
             number from 0; label members with their ranks, or name their label as rankLabel"
        )
    }

    /// The node of the member whose rank is nearest to that of another; `role`: of that role.
    fn neighbour(
        &self,
        id: GangId,
        spec: &GangSpec,
        among: &Among<'_>,
        label: &str,
    ) -> Option<NodeId> {
        let rank = self.cluster.rank_of(among.but?, label)?;
        let members = self.cluster.gang(id)?.members.iter();
        let ranked =
            members.filter(|pod| among.has(&self.cluster, spec, **pod)).filter_map(|pod| {
                Some((self.cluster.rank_of(*pod, label)?.abs_diff(rank), self.place_of(*pod)?))
            });
        ranked.min().map(|(_, node)| node)
    }

    /// Where a member that goes alone may go, the best first; the last place is all that
    /// is left to it.
    fn places_for(
        &mut self,
        pod: PodId,
        profile: &Profile,
    ) -> Result<(Vec<Place>, Option<Fence>), Failure> {
        let Some(id) = self.cluster.pod(pod).and_then(|p| p.gang) else {
            return Ok((self.places_beside(pod), None));
        };
        let spec = self.cluster.gang(id).and_then(|gang| gang.spec.as_ref().map(Arc::clone));
        let Some(spec) = spec else {
            return Ok((vec![Place::All], None));
        };
        let mut bounds: Vec<Place> = Vec::new();
        let mut near = Vec::new();
        let bonds = self.bonds(&spec, pod).map_err(|text| Failure::topology(profile, text))?;
        for Bond { wish, among } in bonds {
            let sought = self.sought(&wish).map_err(|text| Failure::topology(profile, text))?;
            let Some(sought) = sought else { continue };
            let members = self.places_of_members(id, &spec, &among);
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
            let mut nearer: Vec<Place> = Vec::new();
            // Near whoever has the next rank, then near them all.
            if let Some(node) = self.neighbour(id, &spec, &among, spec.rank_label(among.role)) {
                nearer.extend(sought.around(node, sought.asked.last()));
            }
            let narrow = (sought.asked.last()..=sought.asked.first).rev();
            let narrow = narrow.filter(|level| Some(*level) != sought.asked.required);
            nearer.extend(narrow.filter_map(|level| {
                let domain = sought.common(level, &members).ok()??;
                Some(Place::Domain(Arc::clone(&sought.tree), level, domain))
            }));
            nearer.append(&mut near);
            near = nearer;
        }
        let role = self.cluster.role_of(&spec, pod);
        let fence = self.fence(id, &spec, role);
        bounds.extend(fence.as_ref().map(|fence| Fence::place(Some(fence))));
        let mut places: Vec<Place> =
            near.into_iter().map(|place: Place| place.within(&bounds)).collect();
        places.push(Place::All.within(&bounds));
        Ok((places, fence))
    }

    /// Where a pod of no gang should go by its policies, the best first: near the pods of its
    /// controller, and anywhere if there is no room.
    fn places_beside(&mut self, pod: PodId) -> Vec<Place> {
        let mut places = Vec::new();
        if let Some(request) = self.cluster.topology_for(pod)
            && let Some(wish) = Wish::of(Some(&request))
            && let Some(sought) = self.sought_softly(&wish)
        {
            let asked = &sought.asked;
            // Required of gangs only: there is a level, and no more is asked for.
            let first = match (asked.required, &wish.preferred) {
                (Some(required), None) => required,
                _ => asked.first,
            };
            for level in (asked.last()..=first).rev() {
                let mut domains: BTreeMap<u32, u32> = BTreeMap::new();
                let siblings = self.cluster.nodes_of_siblings(pod).take(MAX_SIBLING_NODES);
                for (node, pods) in siblings {
                    if let Some(domain) = sought.tree.domain_of(level, node) {
                        *domains.entry(domain).or_default() += pods;
                    }
                }
                let mut most: Vec<(u32, u32)> = domains.into_iter().collect();
                most.sort_by_key(|(domain, pods)| (std::cmp::Reverse(*pods), *domain));
                let nearest = most.iter().take(MAX_NEAR);
                places
                    .extend(nearest.map(|(domain, _)| {
                        Place::Domain(Arc::clone(&sought.tree), level, *domain)
                    }));
            }
        }
        places.push(Place::All);
        places
    }

    /// As [`Core::sought`]; what is required and not known is no reason to wait.
    fn sought_softly(&mut self, wish: &Wish) -> Option<Sought> {
        match self.sought(wish) {
            Ok(sought) => sought,
            Err(_) => self.sought(&Wish { required: None, ..wish.clone() }).ok()?,
        }
    }

    /// Whether a node is where the members of a pod's gang are, as far as they must be
    /// together; else why not.
    fn strays(&mut self, pod: PodId, node: NodeId) -> Option<String> {
        let id = self.cluster.pod(pod)?.gang?;
        let spec = self.cluster.gang(id)?.spec.as_ref().map(Arc::clone)?;
        let bonds = match self.bonds(&spec, pod) {
            Ok(bonds) => bonds,
            Err(text) => return Some(text),
        };
        for Bond { wish, among } in bonds {
            let sought = match self.sought(&wish) {
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
            let members = self.places_of_members(id, &spec, &among);
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
        self.trespasses(pod, node)
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
        let minds = self.minds_exclusive(id, &spec);
        if !spec.has_topology() && !minds {
            return None;
        }
        let members = self.cluster.gang(id)?.members.iter();
        let in_round = |pod: &&PodId| self.bindings.get(pod).is_some_and(|b| b.round == Some(id));
        let round: Vec<PodId> = members.filter(in_round).copied().collect();
        let suspect = self.is_apart(id, &spec) || minds && self.any_trespasses(id, &spec, &round);
        let mut round = round.into_iter().filter(|_| suspect);
        round.find_map(|pod| Some((pod, self.strayed(pod)?)))
    }

    /// Whether members that have room may be where they must not be: one look at each, so
    /// that a large gang that is well costs little.
    fn is_apart(&mut self, id: GangId, spec: &GangSpec) -> bool {
        for (role, wish) in spec.wishes() {
            let segments = wish.segments.iter().map(|s| (s.size, Cow::Owned(s.wish())));
            let all = std::iter::once((u32::MAX, Cow::Borrowed(wish))).chain(segments);
            for (size, wish_of) in all {
                let Ok(sought) = self.sought(&wish_of) else { return true };
                let Some((level, sought)) = sought.and_then(|s| Some((s.asked.required?, s)))
                else {
                    continue;
                };
                let among = Among { role, ..Among::default() };
                let mut found: BTreeMap<u32, u32> = BTreeMap::new();
                let members = self.cluster.gang(id).into_iter().flat_map(|gang| &gang.members);
                for pod in members.filter(|pod| among.has(&self.cluster, spec, **pod)) {
                    let Some(node) = self.place_of(*pod) else { continue };
                    let rank = self.cluster.rank_of(*pod, wish.rank_label());
                    let segment = if size == u32::MAX { Some(0) } else { rank.map(|r| r / size) };
                    let domain = sought.tree.domain_of(level, node);
                    let bound = !self.bindings.contains_key(pod);
                    let (Some(segment), Some(domain)) = (segment, domain) else {
                        // Of whoever is bound nothing is asked any more.
                        if bound {
                            continue;
                        }
                        return true;
                    };
                    if *found.entry(segment).or_insert(domain) != domain {
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Labels of nodes or levels have changed: rounds that are apart now are given up, and
    /// whoever waits is tried again.
    pub(super) fn topology_changed(&mut self, now: Tick) {
        self.open_fences(now);
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
        let (mut places, fence) = self.places_for(pod, profile)?;
        let anywhere = places.last().cloned().unwrap_or(Place::All);
        let seeker = Seeker::Pod(pod);
        let calm = self.uncrowded(seeker);
        if let Some(calm) = &calm {
            if places.is_empty() {
                places.push(Place::All);
            }
            let within = |place: Place| place.within(&[Place::Only(Arc::clone(calm))]);
            places = places.into_iter().map(within).collect();
        }
        // Extenders are asked once: about all that is left to it.
        if places.len() > 1 && may_ask(profile.extenders(), self.cluster.shape(shape)) {
            places.drain(..places.len() - 1);
        }
        let last = places.pop().unwrap_or(Place::All);
        for place in places {
            if !self.may_sit(profile, shape, &place) {
                continue;
            }
            match self.choose(profile, shape, pod, &place, outside, decision) {
                Err(failure) if failure.is_rejected() => {}
                choice => return choice,
            }
        }
        let mut choice = self.choose(profile, shape, pod, &last, outside, decision);
        if let (Some(calm), Err(failure)) = (&calm, &mut choice)
            && failure.is_rejected()
        {
            if self.ledgers.get(&shape).is_some_and(|ledger| ledger.feasible() > 0) {
                let more = self.cluster.node_count() - calm.len();
                failure.add(&format!("({more} more nodes: too many pods start there)"));
                self.wait_for_starts(self.cluster.now(), seeker);
            } else {
                // It would have no room there either: somebody may make some.
                choice = self.choose(profile, shape, pod, &anywhere, outside, decision);
            }
        }
        choice.map_err(|mut failure| {
            if let Some(fence) = fence.filter(|_| failure.is_rejected()) {
                failure.add(&format!("({})", fence.says));
            }
            failure
        })
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
            let among = Among { role, ..Among::default() };
            sought.shown(wish, &core.places_of_members(id, spec, &among))
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
