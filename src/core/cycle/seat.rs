//! The attempt at a gang: a seat for every member that is missing, or none.
//!
//! Owns the order in which members are seated, and undoing all of it if one finds no seat.
//! Must never bind, and never leave a part of a gang with room unless it accumulates.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use muster_api::muster::reason;

use super::binding::{Binding, Stage};
use super::failure::Failure;
use super::fence::Fence;
use super::outside::Outside;
use super::restraint::Seeker;
use super::scope::{Place, Sought};
use super::seek::{Attempted, MAX_STEPS, Scope};
use super::{Choice, Core, Decision, Outcome};
use crate::bugs::bug;
use crate::cluster::{NodeId, NodeSet};
use crate::framework::Profile;
use crate::gang::{Count, GangId, GangSpec};
use crate::hash::IdMap;
use crate::io::Tick;
use crate::model::{PodId, PodStage, ShapeId};
use crate::queue::{QueueCx, Rejected};
use crate::report::{AttemptResult, Observation};

/// Orders in which the shapes of a gang are tried before it is said not to fit.
const MAX_ORDERS: usize = 4;

/// How many members are still to be found.
pub(super) struct Need {
    roles: Vec<usize>,
    /// Of whatever role.
    any: usize,
}

impl Need {
    pub(super) fn new(spec: &GangSpec, held: &Count) -> Self {
        let roles = spec.roles.iter().zip(&held.roles);
        let roles: Vec<usize> = roles.map(|(role, has)| role.min.saturating_sub(*has)).collect();
        let all = spec.min.saturating_sub(held.all);
        Self { any: all.saturating_sub(roles.iter().sum()), roles }
    }

    fn all(&self) -> usize {
        self.any + self.roles.iter().sum::<usize>()
    }

    /// The place that a member of this role would fill.
    fn place(&mut self, role: Option<usize>) -> Option<&mut usize> {
        match role.filter(|role| self.roles[*role] > 0) {
            Some(role) => Some(&mut self.roles[role]),
            None => Some(&mut self.any).filter(|any| **any > 0),
        }
    }
}

/// A member that waits for a seat.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) pod: PodId,
    pub(super) shape: ShapeId,
    pub(super) role: Option<usize>,
    /// Its rank, if that matters.
    pub(super) rank: Option<u32>,
}

/// The members that would fill what is missing.
pub(super) fn wanted(mut need: Need, candidates: &[Candidate]) -> Vec<(PodId, ShapeId)> {
    let fills = |c: &&Candidate| match need.place(c.role) {
        Some(place) => {
            *place -= 1;
            true
        }
        None => false,
    };
    candidates.iter().filter(fills).map(|c| (c.pod, c.shape)).collect()
}

/// Where a member is to be seated.
struct Places<'a> {
    /// Tried first, by this member only: where the ranks next to its own are.
    near: &'a [Place],
    /// Tried one after the other; the last is all there is.
    places: &'a [Place],
    /// Those before it are full.
    from: &'a mut usize,
}

/// Who found no seat, and why.
pub(super) struct Blocked {
    pub(super) pod: PodId,
    pub(super) shape: ShapeId,
    pub(super) role: Option<usize>,
    pub(super) failure: Failure,
    /// How many had a seat by then.
    pub(super) seated: usize,
    /// Where: ` in the best rack (r7)`.
    place: String,
    /// Nothing was tried: there is nothing to say of room.
    untried: bool,
    /// Not all was tried that could be.
    pub(super) gave_up: bool,
    /// What is said counts segments, not members.
    of_segments: bool,
    /// Of a member of a segment: how many had a seat on each node where it could have been.
    pub(super) full: Vec<(NodeId, u32)>,
}

impl Blocked {
    /// A member is told why it was not tried.
    pub(super) fn refused(first: &Candidate, failure: Failure) -> Self {
        let &Candidate { pod, shape, role, .. } = first;
        let (seated, place, gave_up) = (0, String::new(), false);
        let (untried, of_segments, full) = (true, false, Vec::new());
        Self { pod, shape, role, failure, seated, place, untried, gave_up, of_segments, full }
    }

    /// There is no room for all segments: so many members would have had a seat.
    pub(super) fn short(first: &Candidate, failure: Failure, seated: usize) -> Self {
        Self { seated, of_segments: true, ..Self::refused(first, failure) }
    }

    /// Says where room was sought. `theirs`: where other members are already.
    pub(super) fn set_place(&mut self, sought: &Sought, theirs: bool, level: usize, domain: u32) {
        let (name, value) = (&sought.asked.names[level], &sought.tree.domain(level, domain).value);
        self.place = match theirs {
            true => format!(" in {name} {value}, where the others are"),
            false => format!(" in the best {name} ({value})"),
        };
    }
}

/// Who is tried first.
fn first_of(candidates: &[Candidate]) -> Option<Candidate> {
    candidates.first().cloned()
}

/// What came of seating a gang.
pub(super) enum Tried {
    /// All that are needed have a seat.
    Seated(Vec<PodId>),
    /// Some have, and keep it.
    Kept(Blocked),
    /// None has.
    Failed(Blocked),
}

impl Core {
    /// Tries a gang: the members that are missing get room, all of them or none.
    pub(super) fn attempt_gang(&mut self, now: Tick, id: GangId) -> Option<Decision> {
        let started = self.stopwatch.nanos();
        let gang = self.cluster.gang(id).map(Arc::clone)?;
        let spec = gang.spec.as_ref().map(Arc::clone)?;
        let profile = Arc::clone(self.profiles.get(self.queue.gang(id)?.profile)?);
        let held = self.standing(id, &gang, &spec).held;
        let mut candidates = self.candidates(id, &spec);
        let first = candidates.first()?.pod;
        let mut decision = self.undecided(first)?.1;
        decision.version = profile.version();
        decision.gang = Some(gang.key.clone());
        decision.evaluated = u32::try_from(self.cluster.node_count()).unwrap_or(u32::MAX);
        self.order_by_need(&profile, &mut candidates);
        let expected = self.lift_expectations(id);
        let fence = self.fence(id, &spec, None);
        let at = Attempted { now, id, spec: &spec, profile: &profile, held: &held, fence };
        let calm = self.uncrowded(Seeker::Gang(id)).filter(|_| !spec.accumulate);
        let (tried, crowded) = match calm {
            None => {
                (self.try_gang(&at, &first_of(&candidates)?, &mut candidates, &mut decision), false)
            }
            Some(calm) => self.try_calmly(&at, &calm, &mut candidates, &mut decision)?,
        };
        let (mut blocked, kept) = match tried {
            Tried::Seated(seated) => {
                self.expectations_met(now, id, expected);
                self.fenced.remove(&id);
                self.begin_round(now, id, &spec, &profile, seated, &mut decision);
                return Some(decision);
            }
            Tried::Kept(blocked) => (blocked, true),
            // What it has found before it keeps, though nothing could be tried now.
            Tried::Failed(blocked) if blocked.failure.is_rejected() && self.has_round(id) => {
                decision.outcome = Outcome::Accumulating { members: Vec::new() };
                (blocked, true)
            }
            Tried::Failed(blocked) => (blocked, false),
        };
        let mut text = self.blocked(&spec, held.all, &blocked);
        if let Some(fence) = at.fence.as_ref().filter(|fence| !text.contains(&fence.says)) {
            text += &format!(" ({})", fence.says);
        }
        let tried_all = !kept && !crowded && blocked.failure.is_rejected() && !blocked.untried;
        let mut planned = None;
        if tried_all {
            match self.plan_for_gang(&at, &candidates, &mut blocked, &decision) {
                Ok(found) => planned = Some(found),
                Err(why) if why.is_empty() => {}
                Err(why) => text += &format!("; {why}"),
            }
        }
        self.restore_expectations(expected);
        if let Some(planned) = &planned {
            text += &format!("; {}", planned.text);
        } else if !kept && blocked.failure.is_rejected() {
            let wanted = wanted(Need::new(&spec, &held), &candidates);
            let says = self.keep_room(now, id, &spec, &profile, &wanted);
            text += &says.map(|says| format!(" ({says})")).unwrap_or_default();
        }
        self.fail_gang(now, id, &profile, &candidates, &blocked, kept, &text, &mut decision);
        if let Some(planned) = planned {
            self.start_gang_plan(&at, planned);
        }
        if kept {
            return Some(decision);
        }
        let nanos = self.stopwatch.nanos().saturating_sub(started);
        let result = match decision.outcome {
            Outcome::Unschedulable => AttemptResult::Unschedulable,
            _ => AttemptResult::Error,
        };
        let profile = Arc::clone(profile.scheduler_name());
        self.observations.push(Observation::Attempt { profile, result, nanos });
        Some(decision)
    }

    /// Seats a gang wherever it may be.
    fn try_gang(
        &mut self,
        at: &Attempted<'_>,
        first: &Candidate,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Tried {
        if at.spec.has_topology() {
            return self.seek(at, first, candidates, decision);
        }
        let scope = Scope::of(vec![Fence::place(at.fence.as_ref())]);
        self.try_scope(at, &scope, true, candidates, decision)
    }

    /// The same on nodes where few pods start; elsewhere too if it has room nowhere. Whether
    /// it has room, and waits for pods to run.
    fn try_calmly(
        &mut self,
        at: &Attempted<'_>,
        calm: &Arc<NodeSet>,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Option<(Tried, bool)> {
        let first = first_of(candidates)?;
        let says = format!(
            "too many pods start on {} nodes",
            self.cluster.node_count().saturating_sub(calm.len())
        );
        let fence = Some(Fence::within(at.fence.as_ref(), calm, says));
        let narrow = Attempted { fence, ..*at };
        let tried = self.try_gang(&narrow, &first, candidates, decision);
        if !matches!(tried, Tried::Failed(_)) {
            return Some((tried, false));
        }
        match self.try_gang(at, &first, candidates, decision) {
            Tried::Seated(seated) => {
                seated.iter().rev().for_each(|pod| drop(self.unreserve(*pod)));
                self.wait_for_starts(at.now, Seeker::Gang(at.id));
                Some((tried, true))
            }
            wider => Some((wider, false)),
        }
    }

    /// Seats a gang within a scope: all that are needed or none, unless what was found may
    /// be kept.
    pub(super) fn try_scope(
        &mut self,
        at: &Attempted<'_>,
        scope: &Scope,
        keeps: bool,
        candidates: &mut [Candidate],
        decision: &mut Decision,
    ) -> Tried {
        let &Attempted { now, id, spec, profile, held, .. } = at;
        let mut blocked: Option<Blocked> = None;
        for _ in 0..MAX_ORDERS {
            let mut seated = Vec::new();
            let need = Need::new(spec, held);
            let try_out = (&*candidates, &mut seated);
            match self.seat_all(now, id, (profile, scope), need, try_out, decision) {
                None => return Tried::Seated(seated),
                Some(why)
                    if keeps && why.failure.is_rejected() && self.may_accumulate(now, id, spec) =>
                {
                    self.accumulate(now, id, spec, profile, seated, decision);
                    return Tried::Kept(why);
                }
                Some(mut why) => {
                    if scope.has_segments() {
                        why.full = self.taken(scope, &why, &seated);
                    }
                    // Nobody else has seen the room taken: giving it back is no event.
                    let forgets = usize::from(bug!(self.bugs, GangUndoForgotten));
                    for pod in seated.iter().skip(forgets).rev() {
                        self.unreserve(*pod);
                    }
                    // Who found no seat goes first the next time, if that is another order.
                    let again = candidates.first().is_some_and(|c| c.shape != why.shape);
                    let shape = why.shape;
                    if blocked.as_ref().is_none_or(|before| before.seated < why.seated) {
                        blocked = Some(why);
                    }
                    if !again {
                        break;
                    }
                    candidates.sort_by_key(|c| c.shape != shape);
                }
            }
        }
        Tried::Failed(blocked.expect("an attempt that failed was blocked by somebody"))
    }

    /// Members that could be seated, the oldest first.
    fn candidates(&mut self, id: GangId, spec: &GangSpec) -> Vec<Candidate> {
        let mut pods: Vec<PodId> = self.queue.gathered(id).collect();
        self.cluster.weigh_load();
        for &pod in &pods {
            if let Some(settled) = self.cluster.settle(pod) {
                self.swap_shape(pod, settled);
            }
        }
        let cluster = &self.cluster;
        pods.retain(|pod| {
            let waits = |p: &crate::model::Pod| p.stage == PodStage::Pending && !p.deleting;
            cluster.pod(*pod).is_some_and(waits)
        });
        pods.sort_by(|a, b| {
            let key = |pod: &PodId| cluster.pod(*pod).map(|p| (p.created, &p.key.name));
            key(a).cmp(&key(b))
        });
        let candidate = |pod: PodId| {
            let (shape, role) = (cluster.pod(pod)?.shape, cluster.role_of(spec, pod));
            let label = spec.has_topology().then(|| spec.rank_label(role));
            let rank = label.and_then(|label| cluster.rank_of(pod, label));
            Some(Candidate { pod, shape, role, rank })
        };
        let mut candidates: Vec<Candidate> = pods.into_iter().filter_map(candidate).collect();
        // Consecutive ranks are seated one after the other, so that they are near.
        candidates.sort_by_key(|c| c.rank.unwrap_or(u32::MAX));
        candidates
    }

    /// How many have a seat on each node where a member of a segment could have been.
    fn taken(&self, scope: &Scope, why: &Blocked, seated: &[PodId]) -> Vec<(NodeId, u32)> {
        let list = scope.list(why.pod, why.role).last();
        let nodes = list.and_then(Place::nodes).unwrap_or_default();
        let mut taken: Vec<(NodeId, u32)> = nodes.iter().map(|node| (*node, 0)).collect();
        for node in seated.iter().filter_map(|pod| self.cluster.pod(*pod)?.stage.node()) {
            if let Ok(at) = taken.binary_search_by_key(&node, |(node, _)| *node) {
                taken[at].1 += 1;
            }
        }
        taken
    }

    /// Shapes that fit the fewest nodes go first.
    fn order_by_need(&mut self, profile: &Arc<Profile>, candidates: &mut [Candidate]) {
        let mut shapes: Vec<ShapeId> = candidates.iter().map(|c| c.shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        if shapes.len() < 2 || self.cluster.node_count() == 0 {
            return;
        }
        let mut feasible: Vec<(ShapeId, u32)> = Vec::with_capacity(shapes.len());
        for shape in shapes {
            self.refresh_ledger(profile, shape);
            let fits = self.ledgers.get(&shape).map_or(0, super::Ledger::feasible);
            feasible.push((shape, fits));
        }
        let fits = |shape: ShapeId| {
            feasible.binary_search_by_key(&shape, |(s, _)| *s).map_or(0, |at| feasible[at].1)
        };
        candidates.sort_by_key(|c| fits(c.shape));
    }

    /// Seats as many members as are needed; who found no seat, if that failed.
    fn seat_all(
        &mut self,
        now: Tick,
        id: GangId,
        (profile, scope): (&Arc<Profile>, &Scope),
        mut need: Need,
        (candidates, seated): (&[Candidate], &mut Vec<PodId>),
        decision: &mut Decision,
    ) -> Option<Blocked> {
        let mut blocked: Option<Blocked> = None;
        // Places that are full for a shape stay so: seats are only taken here.
        let mut full: IdMap<(ShapeId, usize), usize> = IdMap::default();
        for candidate in candidates {
            let &Candidate { pod, shape, role, .. } = candidate;
            if need.all() == 0 {
                break;
            }
            // Who is like one that found no seat finds none either.
            if blocked.as_ref().is_some_and(|b| b.shape == shape) || need.place(role).is_none() {
                continue;
            }
            let Some((list, places)) = scope.places(pod, role) else { continue };
            let from = full.entry((shape, list)).or_default();
            let places = Places { near: scope.near(pod), places, from };
            match self.seat(now, id, pod, profile, places, decision) {
                Ok(()) => {
                    seated.push(pod);
                    if let Some(place) = need.place(role) {
                        *place -= 1;
                    }
                }
                Err(failure) => {
                    let seated = seated.len();
                    let why =
                        Blocked { seated, untried: false, ..Blocked::refused(candidate, failure) };
                    blocked.get_or_insert(why);
                }
            }
        }
        if bug!(self.bugs, GangPartial) && !seated.is_empty() {
            return None;
        }
        if need.all() == 0 { None } else { blocked }
    }

    /// Finds room for one member and takes it.
    fn seat(
        &mut self,
        now: Tick,
        id: GangId,
        pod: PodId,
        profile: &Arc<Profile>,
        Places { near, places, from }: Places<'_>,
        decision: &mut Decision,
    ) -> Result<(), Failure> {
        let Some(shape) = self.cluster.pod(pod).map(|p| p.shape) else {
            return Err(Failure::no_nodes());
        };
        let mut near = near.iter();
        let choice = loop {
            let beside = near.next();
            let place = beside.or_else(|| places.get(*from)).unwrap_or(&Place::All);
            let last = beside.is_none() && *from + 1 >= places.len();
            let next = usize::from(beside.is_none());
            if !last && !self.may_sit(profile, shape, place) {
                *from += next;
                continue;
            }
            let outside = &mut Outside::default();
            match self.choose(profile, shape, pod, place, outside, decision) {
                Err(failure) if failure.is_rejected() && !last => *from += next,
                choice => break choice?,
            }
        };
        let node = match choice {
            Choice::Node(node) => node,
            Choice::Ask(..) => {
                let text = "an extender has a say in where its members go: gangs cannot be \
                            placed with the help of extenders";
                return Err(Failure::error(text.to_owned()));
            }
        };
        self.cluster.place(pod, node, true);
        let binding = Binding::new(now, profile, node, Stage::Gathered, Some(id));
        self.bindings.insert(pod, binding);
        self.reserve(pod, profile, node).inspect_err(|_| drop(self.unreserve(pod)))
    }

    /// Who blocks a gang, and how many have room.
    fn blocked(&self, spec: &GangSpec, held: usize, why: &Blocked) -> String {
        let Blocked { pod, role, failure, seated, place, .. } = why;
        if why.untried {
            let place = if why.of_segments { place } else { "" };
            return format!("{}{place}", failure.message());
        }
        let member = self.cluster.pod(*pod).map(|p| Arc::clone(&p.key.name)).unwrap_or_default();
        let role = role.map(|role| format!(" (role {})", spec.roles[role].name));
        let gave_up = format!("; not found within {MAX_STEPS} steps");
        format!(
            "room for {} of {} members{place}; member {member}{}: {}{}",
            held + seated,
            spec.min,
            role.unwrap_or_default(),
            failure.message(),
            if why.gave_up { gave_up } else { String::new() },
        )
    }

    /// No room for the gang: says why, and has it wait for what may help.
    #[expect(clippy::too_many_arguments, reason = "one attempt, told whole")]
    fn fail_gang(
        &mut self,
        now: Tick,
        id: GangId,
        profile: &Profile,
        candidates: &[Candidate],
        Blocked { pod, failure, .. }: &Blocked,
        kept: bool,
        text: &str,
        decision: &mut Decision,
    ) {
        if !kept {
            decision.outcome =
                if failure.is_rejected() { Outcome::Unschedulable } else { Outcome::Error };
        }
        if let Some(record) = self.cluster.pod(*pod) {
            decision.pod = record.key.clone();
        }
        decision.message = Some(text.into());
        let (rejectors, pending) = failure.plugins();
        let mut rejected: Vec<Rejected> = Vec::new();
        for candidate in candidates {
            let shape = self.cluster.shape(candidate.shape);
            if !rejected.iter().any(|r| Arc::ptr_eq(&r.shape, shape)) {
                rejected.push(Rejected { shape: Arc::clone(shape), rejectors, pending });
            }
        }
        if failure.is_rejected() {
            let plugins = profile.plugins().iter().enumerate();
            let named = plugins.filter(|(i, _)| rejectors >> i & 1 == 1);
            self.observations.push(Observation::Rejected {
                profile: Arc::clone(profile.scheduler_name()),
                plugins: named.map(|(_, p)| p.plugin.name()).collect(),
            });
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        // An older version says nothing of the one in force.
        if failure.is_rejected() && profile.version() == self.version {
            self.queue.gang_rejected(&cx, id, rejected);
        } else {
            self.queue.gang_failed(&cx, id);
        }
        let reason = match (kept, failure.is_rejected()) {
            (true, _) => reason::ACCUMULATING,
            (_, true) => reason::UNSCHEDULABLE,
            _ => super::words::BROKEN,
        };
        self.say(now, id, reason, text.to_owned());
    }

    /// The gang's cycle panicked: what it took is given back, and it is left alone until
    /// it changes.
    pub(super) fn quarantine_gang(
        &mut self,
        now: Tick,
        id: GangId,
        panic: &(dyn Any + Send),
    ) -> Option<Decision> {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let message = format!("the scheduling cycle panicked: {}", text.unwrap_or("no message"));
        self.ledgers.clear();
        self.put_back();
        self.drop_round(id);
        let gang = self.cluster.gang(id).map(Arc::clone)?;
        let own = |pod: &&PodId| self.bindings.get(pod).is_some_and(|b| b.round == Some(id));
        let seated: Vec<PodId> = gang.members.iter().filter(own).copied().collect();
        for pod in seated.iter().rev() {
            if catch_unwind(AssertUnwindSafe(|| self.unreserve(*pod))).is_err() {
                self.displace(*pod);
            }
        }
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.come_back(&cx, seated.into_iter());
        self.queue.quarantine_gang(id);
        let first = self.queue.gathered(id).next()?;
        let mut decision = self.undecided(first)?.1;
        decision.gang = Some(gang.key.clone());
        (decision.outcome, decision.message) = (Outcome::Error, Some(message.as_str().into()));
        self.observations.push(Observation::Quarantined {
            error: format!("{}: {message}; it is not tried again until it changes", gang.key),
        });
        self.say(now, id, super::words::BROKEN, message);
        // What it took and gave back is no news to it.
        self.queue.take_gang_news(id);
        Some(decision)
    }
}
