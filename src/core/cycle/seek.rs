//! The search for a domain in which a gang has room.
//!
//! Owns which domains are tried, in which order, and what is said if none will do. Bounds
//! say where a try is worth it; whether members fit is decided by seating them. Must never
//! say that there is no room before every domain whose bound suffices was tried, unless it
//! says that it gave up.

use std::sync::Arc;

use super::failure::Failure;
use super::fence::Fence;
use super::pack::Repacked;
use super::scope::{Among, Place, Sought};
use super::seat::{Blocked, Candidate, Need, Tried, wanted};
use super::segments::Segments;
use super::{Core, Decision};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::gang::{Count, GangId, GangSpec, Wish};
use crate::hash::{IdMap, IdSet};
use crate::io::Tick;
use crate::model::{PodId, ShapeId};
use crate::plugins::names;
use crate::report::{DomainView, MAX_DOMAINS_SHOWN};
use crate::topology::{Domain, Room, Worth};

/// Domains tried for a gang whose members differ, before it is said that none was found.
pub(super) const MAX_STEPS: usize = 64;

/// Where members may be seated, and in which order.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Lists of places, tried one after the other; the last of a list is all there is. The
    /// first list is the gang's.
    lists: Vec<Vec<Place>>,
    /// The list of each role that asks for something of its own.
    roles: Vec<Option<usize>>,
    /// The list of each member of a segment.
    own: IdMap<PodId, usize>,
    /// Where the ranks next to a member's are.
    near: IdMap<PodId, Vec<Place>>,
    /// Members that are not seated now.
    idle: IdSet<PodId>,
}

impl Scope {
    /// One list for all.
    pub(super) fn of(places: Vec<Place>) -> Self {
        Self { lists: vec![places], ..Self::default() }
    }

    pub(super) fn number(&self, pod: PodId, role: Option<usize>) -> usize {
        let of_role = || role.and_then(|role| self.roles.get(role).copied().flatten());
        self.own.get(&pod).copied().or_else(of_role).unwrap_or(0)
    }

    /// The places of a member.
    pub(super) fn list(&self, pod: PodId, role: Option<usize>) -> &[Place] {
        &self.lists[self.number(pod, role)]
    }

    /// The same and the number of the list; none if it is not to be seated.
    pub(super) fn places(&self, pod: PodId, role: Option<usize>) -> Option<(usize, &[Place])> {
        let number = self.number(pod, role);
        (!self.idle.contains(&pod)).then(|| (number, self.lists[number].as_slice()))
    }

    pub(super) fn near(&self, pod: PodId) -> &[Place] {
        self.near.get(&pod).map_or(&[], Vec::as_slice)
    }

    pub(super) fn has_segments(&self) -> bool {
        !self.own.is_empty()
    }

    /// All that is left to members of a role, or to those of none.
    pub(super) fn base(&self, role: Option<usize>) -> Place {
        let list = role.and_then(|role| self.roles.get(role).copied().flatten()).unwrap_or(0);
        self.lists[list].last().cloned().unwrap_or(Place::All)
    }

    fn set_role(&mut self, role: usize, places: Option<Vec<Place>>) {
        self.roles[role] = places.map(|places| {
            self.lists.push(places);
            self.lists.len() - 1
        });
    }

    /// A member has a place of its own, within what is left to it otherwise.
    pub(super) fn set_own(&mut self, pod: PodId, list: usize) {
        self.own.insert(pod, list);
    }

    /// These are not seated now.
    pub(super) fn set_idle(&mut self, pods: impl Iterator<Item = PodId>) {
        self.idle = pods.collect();
    }

    pub(super) fn add_list(&mut self, places: Vec<Place>) -> usize {
        self.lists.push(places);
        self.lists.len() - 1
    }

    /// The list that a member of a segment has already.
    pub(super) fn own(&self, pod: PodId) -> Option<usize> {
        self.own.get(&pod).copied()
    }

    pub(super) fn last_of(&self, list: usize) -> Place {
        self.lists[list].last().cloned().unwrap_or(Place::All)
    }
}

/// What an attempt is about.
pub(super) struct Attempted<'a> {
    pub(super) now: Tick,
    pub(super) id: GangId,
    pub(super) spec: &'a GangSpec,
    pub(super) profile: &'a Arc<Profile>,
    pub(super) held: &'a Count,
    /// Nodes that are closed to it.
    pub(super) fence: Option<Fence>,
}

/// What is found out once for all domains that are tried.
struct Search {
    segments: Vec<Segments>,
    /// Ranks and nodes of members that are placed.
    ranked: Vec<(u32, NodeId)>,
    steps: usize,
}

/// Places that are tried, and the tree that they are of.
struct Ground<'a> {
    places: Vec<Place>,
    /// Members may be near the ranks next to theirs, within a level.
    tree: Option<(&'a Sought, usize)>,
}

/// Members of each shape that have to be seated.
pub(super) type Wanted = Vec<(PodId, ShapeId)>;

/// How many of each shape fit on each node, at most.
pub(super) struct Bounds {
    /// How many are needed.
    need: u32,
    /// By shape: how many are needed at least, and what each node is worth.
    shapes: Vec<(u32, Vec<Worth>)>,
    /// All together.
    pub(super) all: Vec<Worth>,
}

impl Bounds {
    pub(super) fn worth(worths: &[Worth], node: NodeId) -> Worth {
        worths.get(node.index()).copied().unwrap_or_default()
    }
}

impl Core {
    /// Seats a gang that asks where its members are, relative to each other.
    pub(super) fn seek(
        &mut self,
        at: &Attempted<'_>,
        first: &Candidate,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Tried {
        let refuse = |text: String| {
            Tried::Failed(Blocked::refused(first, Failure::topology(at.profile, text)))
        };
        let wish = at.spec.topology.clone().unwrap_or_default();
        let sought = match self.sought(&wish) {
            Ok(sought) => sought,
            Err(text) => return refuse(text),
        };
        self.set_tried(at.id, Vec::new());
        let segments = match self.segments(at, candidates) {
            Ok(segments) => segments,
            Err(why) => return Tried::Failed(*why),
        };
        let ranked = self.ranked_members(at.id, at.spec);
        let mut search = Search { segments, ranked, steps: 0 };
        let open = Fence::place(at.fence.as_ref());
        let Some(sought) = sought else {
            let ground = Ground { places: vec![open], tree: None };
            return self.seek_roles(at, &mut search, ground, true, candidates, decision);
        };
        let members = self.places_of_members(at.id, at.spec, &Among::default());
        let fixed = match sought.asked.required.map(|level| (level, sought.common(level, &members)))
        {
            Some((level, Err(split))) => return refuse(sought.apart(level, split)),
            Some((level, Ok(domain))) => domain.map(|domain| (level, domain)),
            None => None,
        };
        let wanted = wanted(Need::new(at.spec, at.held), candidates);
        let pool: Wanted = candidates.iter().map(|c| (c.pod, c.shape)).collect();
        let bounds = self.bounds(at.profile, &pool, wanted.len(), &open);
        let tree = Arc::clone(&sought.tree);
        let room = Room::new(&tree, |node| Bounds::worth(&bounds.all, node), &members);
        let options = options(&sought, &room, &bounds, fixed, &members);
        let in_order = candidates.iter().any(|c| c.rank.is_some());
        let places = |level: usize, domain: u32| {
            let places = places(&sought, &room, (level, domain), bounds.need, in_order);
            let places = places.into_iter().map(|p| p.within(std::slice::from_ref(&open)));
            Ground { places: places.collect(), tree: Some((&sought, level)) }
        };
        // One shape: bounds leave nothing out, so all that are left are tried.
        let mixed = bounds.shapes.len() > 1 || at.spec.roles.iter().any(|r| r.topology.is_some());
        let mut best: Option<Blocked> = None;
        let mut unsure = false;
        for (level, domain) in options {
            if mixed && search.steps >= MAX_STEPS {
                break;
            }
            search.steps += 1;
            let ground = places(level, domain);
            match self.seek_roles(at, &mut search, ground, false, candidates, decision) {
                Tried::Failed(mut why) if why.failure.is_rejected() => {
                    unsure |= why.gave_up;
                    if sought.asked.required == Some(level) {
                        why.set_place(&sought, fixed.is_some(), level, domain);
                        if best.as_ref().is_none_or(|best| best.seated < why.seated) {
                            best = Some(why);
                        }
                    }
                }
                tried => return tried,
            }
        }
        let gave_up = unsure || mixed && search.steps >= MAX_STEPS;
        let Some(level) = sought.asked.required else {
            let mut parts = room.parts_of_all(bounds.need);
            if in_order {
                parts.sort_unstable();
            }
            let part = |(level, domain)| Place::Domain(Arc::clone(&tree), level, domain);
            let parts = parts.into_iter().map(part).chain([Place::All]);
            let places = parts.map(|part| part.within(std::slice::from_ref(&open))).collect();
            let ground = Ground { places, tree: Some((&sought, 0)) };
            return self.seek_roles(at, &mut search, ground, true, candidates, decision);
        };
        let largest = fixed.map(|(_, domain)| domain).or_else(|| room.largest(level));
        let Some(largest) = largest else {
            let (name, key) = (&sought.asked.names[level], &sought.asked.keys[level]);
            return refuse(format!(
                "there is no {name}: no node has the label {key}, and those of \
                                   wider levels"
            ));
        };
        let ranked = match fixed {
            Some((_, domain)) => vec![(domain, room.fits(level, domain))],
            None => room.ranked(level),
        };
        let mut largest = largest;
        if let Some(fence) = at.fence.as_ref().filter(|_| room.fits(level, largest) == 0) {
            // What keeps members off a domain that is open may pass without a fence being
            // opened: it is looked at there.
            let is_open = |(domain, _): &&(u32, u32)| {
                let nodes = &sought.tree.domain(level, *domain).nodes;
                nodes.iter().any(|node| !fence.is_closed(*node))
            };
            let Some((open, _)) = ranked.iter().find(is_open) else {
                return refuse(format!(
                    "no {} is open to it: {}",
                    sought.asked.names[level], fence.says
                ));
            };
            largest = *open;
        }
        let shape = wanted.first().map(|(_, shape)| *shape);
        let tried = self.domain_views(&sought, level, &ranked, at.profile, shape);
        self.set_tried(at.id, tried);
        if let Some(mut why) = best.filter(|_| !at.spec.accumulate) {
            why.gave_up |= gave_up;
            return Tried::Failed(why);
        }
        let mut ground = places(level, largest);
        if bug!(self.bugs, TopologyIgnored) {
            ground.places.push(Place::All);
        }
        let mut tried = self.seek_roles(at, &mut search, ground, true, candidates, decision);
        if let Tried::Failed(why) | Tried::Kept(why) = &mut tried {
            why.set_place(&sought, fixed.is_some(), level, largest);
            why.gave_up |= gave_up;
        }
        tried
    }

    /// What domains have room for, and what keeps their nodes.
    fn domain_views(
        &self,
        sought: &Sought,
        level: usize,
        ranked: &[(u32, u32)],
        profile: &Profile,
        shape: Option<ShapeId>,
    ) -> Vec<DomainView> {
        let ledger = shape.and_then(|shape| self.ledgers.get(&shape));
        let view = |&(domain, fits): &(u32, u32)| {
            let nodes = &sought.tree.domain(level, domain).nodes;
            let verdicts = ledger.map(|ledger| ledger.verdicts_within(profile, nodes));
            let worst = verdicts.into_iter().flatten().max_by_key(|verdict| verdict.nodes);
            let blocker = worst
                .map(|v| format!("{} of {} nodes: {}", v.nodes, nodes.len(), v.status.message()));
            DomainView {
                domain: sought.word(level, domain),
                fits,
                nodes: nodes.len(),
                blocker: blocker.unwrap_or_default(),
            }
        };
        ranked.iter().take(MAX_DOMAINS_SHOWN).map(view).collect()
    }

    /// Seats members at some places, those of roles with wishes of their own in domains of
    /// their own among these. `keeps`: what is found may be kept though it is not enough.
    fn seek_roles(
        &mut self,
        at: &Attempted<'_>,
        search: &mut Search,
        ground: Ground<'_>,
        keeps: bool,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Tried {
        let mut scope = Scope::of(ground.places);
        scope.roles = vec![None; at.spec.roles.len()];
        let mut left: Vec<Vec<Vec<Place>>> = vec![Vec::new(); at.spec.roles.len()];
        for (role, wish) in at.spec.roles.iter().enumerate() {
            let Some(wish) = &wish.topology else { continue };
            let base = scope.base(None);
            match self.role_places(at, role, wish, &base, candidates) {
                Ok(Some(mut options)) => {
                    options.reverse();
                    scope.set_role(role, options.pop());
                    left[role] = options;
                }
                Ok(None) => {}
                Err(why) => return Tried::Failed(*why),
            }
        }
        let mut learned = IdMap::default();
        let mut plans = 0;
        loop {
            let more = left.iter().any(|options| !options.is_empty());
            let mut laid = scope.clone();
            let tried = match self.lay_segments(at, search, &learned, &mut laid, candidates) {
                Err(why) => Tried::Failed(*why),
                Ok(()) => {
                    neighbours(search, ground.tree, &mut laid, candidates);
                    let tried = self.try_scope(at, &laid, keeps && !more, candidates, decision);
                    self.try_packed(at, &laid, tried, candidates, decision)
                }
            };
            match tried {
                Tried::Failed(mut why) => {
                    // Fewer fit where a segment was to be than was thought: once more.
                    let news = learn(&mut learned, &why.full);
                    if news && plans < MAX_STEPS {
                        plans += 1;
                        continue;
                    }
                    let next = why.role.and_then(|role| Some((role, left[role].pop()?)));
                    let Some((role, places)) = next.filter(|_| search.steps < MAX_STEPS) else {
                        why.gave_up |= more || news;
                        return Tried::Failed(why);
                    };
                    search.steps += 1;
                    learned.clear();
                    scope.set_role(role, Some(places));
                }
                tried => return tried,
            }
        }
    }

    /// Members that differ have found no room one after the other: tries them as they would
    /// be packed, if that helps.
    fn try_packed(
        &mut self,
        at: &Attempted<'_>,
        scope: &Scope,
        tried: Tried,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Tried {
        let differ = candidates.iter().any(|c| c.shape != candidates[0].shape);
        let mut why = match tried {
            Tried::Failed(why) if differ && why.failure.is_rejected() => why,
            tried => return tried,
        };
        match self.repack(at, scope, candidates) {
            Repacked::Nowhere => {}
            Repacked::Unknown => why.gave_up = true,
            Repacked::Scope(packed) => {
                match self.try_scope(at, &packed, false, candidates, decision) {
                    Tried::Failed(_) => why.gave_up = true,
                    tried => return tried,
                }
            }
        }
        Tried::Failed(why)
    }

    /// Finds a place for every segment, within what a scope leaves to its members.
    fn lay_segments(
        &self,
        at: &Attempted<'_>,
        search: &Search,
        learned: &IdMap<NodeId, u32>,
        scope: &mut Scope,
        candidates: &[Candidate],
    ) -> Result<(), Box<Blocked>> {
        if search.segments.is_empty() {
            return Ok(());
        }
        let wanted: IdSet<PodId> =
            wanted(Need::new(at.spec, at.held), candidates).iter().map(|(pod, _)| *pod).collect();
        scope.set_idle(candidates.iter().map(|c| c.pod).filter(|pod| !wanted.contains(pod)));
        let mut all = search.segments.iter();
        all.try_for_each(|segments| self.lay_in(at.profile, segments, learned, scope))
    }

    /// Where members of a role could go by its own wish, the best first.
    fn role_places(
        &mut self,
        at: &Attempted<'_>,
        role: usize,
        wish: &Wish,
        base: &Place,
        candidates: &[Candidate],
    ) -> Result<Option<Vec<Vec<Place>>>, Box<Blocked>> {
        let own: Vec<Candidate> =
            candidates.iter().filter(|c| c.role == Some(role)).cloned().collect();
        let Some(first) = own.first() else {
            return Ok(None);
        };
        let refuse =
            |text: String| Box::new(Blocked::refused(first, Failure::topology(at.profile, text)));
        let name = &at.spec.roles[role].name;
        let Some(sought) =
            self.sought(wish).map_err(|text| refuse(format!("role {name}: {text}")))?
        else {
            return Ok(None);
        };
        let among = Among { role: Some(role), ..Among::default() };
        let members = self.places_of_members(at.id, at.spec, &among);
        let fence = wish.exclusive.then(|| self.fence(at.id, at.spec, Some(role))).flatten();
        let base = &base.clone().within(&[Fence::place(fence.as_ref())]);
        let fixed = match sought.asked.required.map(|level| (level, sought.common(level, &members)))
        {
            Some((level, Err(split))) => {
                return Err(refuse(format!("role {name}: {}", sought.apart(level, split))));
            }
            Some((level, Ok(domain))) => domain.map(|domain| (level, domain)),
            None => None,
        };
        let all = wanted(Need::new(at.spec, at.held), candidates);
        let need = all.iter().filter(|(pod, _)| own.iter().any(|c| c.pod == *pod)).count();
        let pool: Wanted = own.iter().map(|c| (c.pod, c.shape)).collect();
        let bounds = self.bounds(at.profile, &pool, need, base);
        let room = Room::new(&sought.tree, |node| Bounds::worth(&bounds.all, node), &members);
        let found = options(&sought, &room, &bounds, fixed, &members);
        let in_order = own.iter().any(|c| c.rank.is_some());
        let inside = |(level, domain): (usize, u32)| -> Vec<Place> {
            let places = places(&sought, &room, (level, domain), bounds.need, in_order).into_iter();
            places.map(|place| place.within(std::slice::from_ref(base))).collect()
        };
        // Members that are not needed now are held to it too.
        let mut options: Vec<Vec<Place>> = found.into_iter().map(inside).collect();
        match sought.asked.required {
            None => options.push(vec![base.clone()]),
            Some(level) => {
                let largest = fixed.map(|(_, domain)| domain).or_else(|| room.largest(level));
                let Some(largest) = largest else {
                    let (level, key) = (&sought.asked.names[level], &sought.asked.keys[level]);
                    return Err(refuse(format!(
                        "role {name}: there is no {level}: no node has the label {key}"
                    )));
                };
                // None suffices: the largest says best what is missing.
                if options.is_empty() {
                    options.push(inside((level, largest)));
                }
            }
        }
        Ok(Some(options))
    }

    /// How many of each shape fit on each node of a place, at most; `need` of the pool have
    /// to be seated.
    pub(super) fn bounds(
        &mut self,
        profile: &Arc<Profile>,
        pool: &Wanted,
        need: usize,
        place: &Place,
    ) -> Bounds {
        let mut shapes: Vec<(ShapeId, PodId, usize)> = Vec::new();
        for &(pod, shape) in pool {
            match shapes.iter_mut().find(|(known, ..)| *known == shape) {
                Some((.., count)) => *count += 1,
                None => shapes.push((shape, pod, 1)),
            }
        }
        let nodes: Vec<NodeId> = self.cluster.nodes().iter().collect();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut bounds = Bounds {
            need: number(need),
            shapes: Vec::with_capacity(shapes.len()),
            all: vec![Worth { fits: 0, whole: true }; self.cluster.node_capacity()],
        };
        // What no filter asks for must not bound: bounds are from above.
        let counts = profile.filters_by(names::NODE_RESOURCES_FIT)
            && profile.args().fit.ignored_resources.is_empty()
            && profile.args().fit.ignored_resource_groups.is_empty();
        for (shape_id, pod, count) in shapes {
            // As many as the others cannot stand in for.
            let least = number(need.saturating_sub(pool.len() - count));
            let most = need.min(count);
            self.refresh_ledger(profile, shape_id);
            self.count_expected(profile, shape_id, pod);
            let Some(ledger) = self.ledgers.get(&shape_id) else { continue };
            let shape = self.cluster.shape(shape_id);
            let one_each = !shape.ports.is_empty() && profile.filters_by(names::NODE_PORTS);
            let most = if one_each { 1 } else { i64::try_from(most).unwrap_or(0) };
            let mut worths = vec![Worth::default(); self.cluster.node_capacity()];
            for &node in &nodes {
                let (now, empty) = self.capacity(shape, node);
                let own = &mut worths[node.index()];
                own.whole = now == empty;
                if ledger.might_fit(node) && place.has(node) {
                    let fits = if counts { now.min(most) } else { most };
                    own.fits = u32::try_from(fits).unwrap_or(0);
                }
                let all = &mut bounds.all[node.index()];
                all.fits = all.fits.saturating_add(own.fits);
                all.whole &= own.whole;
            }
            bounds.shapes.push((least, worths));
        }
        bounds
    }

    /// Nodes of a domain of the required level each, for room that is kept; none if nothing
    /// is required.
    pub(super) fn domains_for(&mut self, id: GangId, spec: &GangSpec) -> Option<Vec<Vec<NodeId>>> {
        let sought = self.sought(spec.topology.as_ref()?).ok()??;
        let level = sought.asked.required?;
        let members = self.places_of_members(id, spec, &Among::default());
        let open = Fence::place(self.fence(id, spec, None).as_ref());
        let nodes = |domain: &Domain| -> Vec<NodeId> {
            domain.nodes.iter().copied().filter(|node| open.has(*node)).collect()
        };
        let domains = &sought.tree.levels[level].domains;
        Some(match sought.common(level, &members) {
            Ok(Some(domain)) => vec![nodes(&domains[domain as usize])],
            Ok(None) => domains.iter().map(nodes).collect(),
            Err(_) => Vec::new(),
        })
    }
}

/// Domains in which all could be, level by level from the narrowest on, the best first.
/// Members that are there already say which they are.
fn options(
    sought: &Sought,
    room: &Room<'_>,
    bounds: &Bounds,
    fixed: Option<(usize, u32)>,
    members: &[NodeId],
) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    for level in (sought.asked.last()..=sought.asked.first).rev() {
        let within = match sought.common(level, members) {
            Ok(Some(domain)) => Some((level, domain)),
            Ok(None) => fixed,
            // They are apart at this level already.
            Err(_) => continue,
        };
        let domains = room.candidates(level, bounds.need, within);
        let suffices = |domain: &u32| {
            bounds.shapes.len() < 2
                || bounds.shapes.iter().all(|(need, worths)| {
                    let nodes = sought.tree.domain(level, *domain).nodes.iter();
                    let fits = nodes.map(|node| u64::from(Bounds::worth(worths, *node).fits));
                    fits.sum::<u64>() >= u64::from(*need)
                })
        };
        found.extend(domains.into_iter().filter(suffices).map(|domain| (level, domain)));
    }
    found
}

/// The parts of a domain in the order in which they are filled, and last the whole of it.
/// `in_order`: along the tree, so that consecutive ranks are near each other.
fn places(
    sought: &Sought,
    room: &Room<'_>,
    (level, domain): (usize, u32),
    need: u32,
    in_order: bool,
) -> Vec<Place> {
    let place = |(level, domain)| Place::Domain(Arc::clone(&sought.tree), level, domain);
    let mut parts = room.parts(level, domain, need);
    if in_order {
        parts.sort_unstable();
    }
    let mut places: Vec<Place> = parts.into_iter().map(place).collect();
    if level + 1 < sought.tree.levels.len() || places.is_empty() {
        places.push(place((level, domain)));
    }
    places
}

/// Has members try the domains first in which the ranks next to theirs are.
fn neighbours(
    search: &Search,
    tree: Option<(&Sought, usize)>,
    scope: &mut Scope,
    candidates: &[Candidate],
) {
    let Some((sought, level)) = tree.filter(|_| !search.ranked.is_empty()) else {
        return;
    };
    for candidate in candidates {
        let Some(rank) = candidate.rank else { continue };
        let after = search.ranked.partition_point(|(other, _)| *other < rank);
        let beside = search.ranked[after.saturating_sub(1)..].iter().take(2);
        let nearest = beside.min_by_key(|(other, _)| other.abs_diff(rank));
        let Some((_, node)) = nearest else { continue };
        let base = scope.list(candidate.pod, candidate.role).last().cloned();
        let bounds = base.as_slice();
        let near = sought.around(*node, level + 1).map(|place| place.within(bounds)).collect();
        scope.near.insert(candidate.pod, near);
    }
}

/// Notes how many fit on nodes; true if that is fewer than was known.
fn learn(learned: &mut IdMap<NodeId, u32>, full: &[(NodeId, u32)]) -> bool {
    let mut news = false;
    for &(node, fits) in full {
        let known = learned.entry(node).or_insert(u32::MAX);
        news |= fits < *known;
        *known = fits.min(*known);
    }
    news
}
