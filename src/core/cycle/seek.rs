//! The search for a domain in which a gang has room.
//!
//! Owns which domains are tried, in which order, and what is said if none will do. Bounds
//! say where a try is worth it; whether members fit is decided by seating them. Must never
//! say that there is no room before every domain whose bound suffices was tried, unless it
//! says that it gave up.

use std::sync::Arc;

use super::failure::Failure;
use super::scope::{Place, Sought};
use super::seat::{Blocked, Candidate, Need, Tried, wanted};
use super::{Core, Decision};
use crate::bugs::bug;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::gang::{Count, GangId, GangSpec, Wish};
use crate::io::Tick;
use crate::model::{PodId, ShapeId};
use crate::plugins::names;
use crate::report::{DomainView, MAX_DOMAINS_SHOWN};
use crate::topology::{Room, Worth};

/// Domains tried for a gang whose members differ, before it is said that none was found.
pub(super) const MAX_STEPS: usize = 64;

/// Where members may be seated, and in which order.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    /// Tried one after the other; the last is all there is.
    places: Vec<Place>,
    /// The same for roles that ask for something of their own.
    roles: Vec<Option<Vec<Place>>>,
}

impl Scope {
    /// All nodes.
    pub(super) fn all() -> Self {
        Self { places: vec![Place::All], roles: Vec::new() }
    }

    pub(super) fn places(&self, role: Option<usize>) -> &[Place] {
        let own = role.and_then(|role| self.roles.get(role)?.as_deref());
        own.unwrap_or(&self.places)
    }
}

/// What an attempt is about.
pub(super) struct Attempted<'a> {
    pub(super) now: Tick,
    pub(super) id: GangId,
    pub(super) spec: &'a GangSpec,
    pub(super) profile: &'a Arc<Profile>,
    pub(super) held: &'a Count,
}

/// Members of each shape that have to be seated.
type Wanted = Vec<(PodId, ShapeId)>;

/// How many of each shape fit on each node, at most.
struct Bounds {
    /// How many are needed.
    need: u32,
    /// By shape: how many are needed at least, and what each node is worth.
    shapes: Vec<(u32, Vec<Worth>)>,
    /// All together.
    all: Vec<Worth>,
}

impl Bounds {
    fn worth(worths: &[Worth], node: NodeId) -> Worth {
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
        let mut steps = 0;
        let Some(sought) = sought else {
            return self.seek_roles(at, vec![Place::All], true, &mut steps, candidates, decision);
        };
        let members = self.places_of_members(at.id, at.spec, None, None);
        let fixed = match sought.asked.required.map(|level| (level, sought.common(level, &members)))
        {
            Some((level, Err(split))) => return refuse(sought.apart(level, split)),
            Some((level, Ok(domain))) => domain.map(|domain| (level, domain)),
            None => None,
        };
        let wanted = wanted(Need::new(at.spec, at.held), candidates);
        let pool: Wanted = candidates.iter().map(|c| (c.pod, c.shape)).collect();
        let bounds = self.bounds(at.profile, &pool, wanted.len(), &Place::All);
        let tree = Arc::clone(&sought.tree);
        let room = Room::new(&tree, |node| Bounds::worth(&bounds.all, node), &members);
        let options = options(&sought, &room, &bounds, fixed, &members);
        // One shape: bounds leave nothing out, so all that are left are tried.
        let mixed = bounds.shapes.len() > 1 || at.spec.roles.iter().any(|r| r.topology.is_some());
        let mut best: Option<Blocked> = None;
        for (level, domain) in options {
            if mixed && steps >= MAX_STEPS {
                break;
            }
            steps += 1;
            let places = places(&sought, &room, level, domain, bounds.need);
            match self.seek_roles(at, places, false, &mut steps, candidates, decision) {
                Tried::Failed(mut why) if why.failure.is_rejected() => {
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
        let gave_up = mixed && steps >= MAX_STEPS;
        let Some(level) = sought.asked.required else {
            let mut places: Vec<Place> = room
                .parts_of_all(bounds.need)
                .into_iter()
                .map(|(level, domain)| Place::Domain(Arc::clone(&tree), level, domain))
                .collect();
            places.push(Place::All);
            return self.seek_roles(at, places, true, &mut steps, candidates, decision);
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
        let shape = wanted.first().map(|(_, shape)| *shape);
        let tried = self.domain_views(&sought, level, &ranked, at.profile, shape);
        self.set_tried(at.id, tried);
        if let Some(mut why) = best.filter(|_| !at.spec.accumulate) {
            why.gave_up = gave_up;
            return Tried::Failed(why);
        }
        let mut places = places(&sought, &room, level, largest, bounds.need);
        if bug!(self.bugs, TopologyIgnored) {
            places.push(Place::All);
        }
        let mut tried = self.seek_roles(at, places, true, &mut steps, candidates, decision);
        if let Tried::Failed(why) | Tried::Kept(why) = &mut tried {
            why.set_place(&sought, fixed.is_some(), level, largest);
            why.gave_up = gave_up;
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
        places: Vec<Place>,
        keeps: bool,
        steps: &mut usize,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Tried {
        let mut scope = Scope { places, roles: vec![None; at.spec.roles.len()] };
        let mut left: Vec<Vec<Vec<Place>>> = vec![Vec::new(); at.spec.roles.len()];
        for (role, wish) in at.spec.roles.iter().enumerate() {
            let Some(wish) = &wish.topology else { continue };
            let base = scope.places.last().cloned().unwrap_or(Place::All);
            match self.role_places(at, role, wish, &base, candidates) {
                Ok(Some(mut options)) => {
                    options.reverse();
                    scope.roles[role] = options.pop();
                    left[role] = options;
                }
                Ok(None) => {}
                Err(why) => return Tried::Failed(*why),
            }
        }
        loop {
            let more = left.iter().any(|options| !options.is_empty());
            match self.try_scope(at, &scope, keeps && !more, candidates, decision) {
                Tried::Failed(mut why) => {
                    let next = why.role.and_then(|role| Some((role, left[role].pop()?)));
                    let Some((role, places)) = next.filter(|_| *steps < MAX_STEPS) else {
                        why.gave_up = more;
                        return Tried::Failed(why);
                    };
                    *steps += 1;
                    scope.roles[role] = Some(places);
                }
                tried => return tried,
            }
        }
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
        let members = self.places_of_members(at.id, at.spec, Some(role), None);
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
        let inside = |(level, domain): (usize, u32)| -> Vec<Place> {
            let places = places(&sought, &room, level, domain, bounds.need).into_iter();
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
    fn bounds(
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
        let members = self.places_of_members(id, spec, None, None);
        let domains = &sought.tree.levels[level].domains;
        Some(match sought.common(level, &members) {
            Ok(Some(domain)) => vec![domains[domain as usize].nodes.clone()],
            Ok(None) => domains.iter().map(|domain| domain.nodes.clone()).collect(),
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
fn places(sought: &Sought, room: &Room<'_>, level: usize, domain: u32, need: u32) -> Vec<Place> {
    let place = |(level, domain)| Place::Domain(Arc::clone(&sought.tree), level, domain);
    let mut places: Vec<Place> = room.parts(level, domain, need).into_iter().map(place).collect();
    if level + 1 < sought.tree.levels.len() || places.is_empty() {
        places.push(place((level, domain)));
    }
    places
}
