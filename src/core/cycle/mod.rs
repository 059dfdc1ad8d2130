//! The core: inputs in, decisions and effects out.
//!
//! Owns the order of things: ingestion, the cycle from pop to bound as a state
//! machine that parks on effects and resumes on inputs, and what happens when any
//! of it fails. Must never block, read a clock or call out.

mod accumulate;
mod binding;
mod checkpoint;
mod evict;
mod extend;
mod extend_bind;
mod failure;
mod feed;
mod fence;
mod gang;
mod gang_preempt;
mod govern;
mod half_bound;
mod hold;
mod ingest;
mod inside;
mod inspect;
mod keep;
mod ledger;
mod nominate;
mod outside;
mod pace;
mod pack;
mod permit;
mod pre_bind;
mod preempt;
mod prepare;
mod prepare_classes;
mod quarantine;
mod reload;
mod remind;
mod restraint;
mod round;
mod scope;
mod seat;
mod seek;
mod segments;
mod survey;
#[cfg(test)]
mod tests;
mod trial;
mod turns;
mod vigil;
mod words;

pub(crate) use inspect::{Going, Waiting};
pub use reload::{MAX_VERSIONS, Reload, ReloadError};

pub(crate) use prepare::{Prepared, no_nodes};
pub(crate) use trial::Trial;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::bugs::Bugs;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{EXTENDER_NAME, Profile, Status};
use crate::gang::{GangId, GangKey};
use crate::hash::{IdMap, TextMap, scramble};
use crate::io::{Effect, ExtenderCall, Input, Kind, PodRef, Tick, Token};
use crate::model::{PodId, PodStage, ShapeId};
use crate::preemption::Preemptor;
use crate::queue::{Backoff, EXTENDER, Popped, Queue, QueueCx};
use crate::report::{
    Asked, AttemptResult, CacheNode, CacheView, Explanation, GangCounts, GangVictimsView, GangView,
    Observation, PendingCounts, PolicyInForce, QueueView, QueuedPod, TieSeed, explain,
};
use binding::Binding;
use extend::Attempt;
use ledger::Ledger;
use outside::Outside;
use restraint::Seeker;
use scope::Place;

/// Bytes all ledgers together may hold; the least recently used go first.
const LEDGER_BUDGET: usize = 64 << 20;

/// On whose behalf the bound part of a gang is asked to go.
pub(crate) const RELEASE: &str = "GangRelease";

/// How the core is set up.
#[derive(Clone)]
pub struct Config {
    /// Profiles; pods are scheduled by the one whose scheduler name they carry.
    pub profiles: Vec<Profile>,
    /// Seed of tie-breaks.
    pub seed: u64,
    /// Bounds of the backoff.
    pub backoff: Backoff,
    /// Seconds after which an unschedulable pod is tried again without an event.
    pub max_in_unschedulable_secs: i64,
    /// A mistake to make.
    #[cfg(any(test, feature = "seeded-bugs"))]
    pub bug: Option<crate::Bug>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profiles: vec![Profile::default_named("muster")],
            seed: 0,
            backoff: Backoff::default(),
            max_in_unschedulable_secs: 300,
            #[cfg(any(test, feature = "seeded-bugs"))]
            bug: None,
        }
    }
}

/// Measures durations for observations. Nothing is decided by it.
pub trait Stopwatch: Send + Sync {
    /// Nanoseconds since some fixed point.
    fn nanos(&self) -> u64;
}

struct NoTime;

impl Stopwatch for NoTime {
    fn nanos(&self) -> u64 {
        0
    }
}

/// What became of one pod's attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A node was chosen and the bind is under way.
    Scheduled {
        /// The node.
        node: Arc<str>,
    },
    /// A node was chosen; a Permit plugin holds the pod.
    WaitingOnPermit {
        /// The node.
        node: Arc<str>,
    },
    /// No node fits.
    Unschedulable,
    /// Something is broken.
    Error,
    /// The pod needed no attempt (deleted, or already placed).
    Skipped,
    /// An extender was asked: the attempt goes on when it has answered.
    Asking,
    /// A gang: these members have found room too, and wait for each other.
    Gathered {
        /// With their nodes.
        members: Vec<(PodRef, Arc<str>)>,
    },
    /// A gang: these members keep the room they have found, and wait for more.
    Accumulating {
        /// With their nodes.
        members: Vec<(PodRef, Arc<str>)>,
    },
}

/// What a cycle comes to.
enum Choice {
    /// This node.
    Node(NodeId),
    /// An extender has to be asked first.
    Ask(outside::Question, ExtenderCall),
}

/// One attempt and what was decided.
#[derive(Clone, Debug)]
#[must_use]
pub struct Decision {
    /// The pod; of a gang, the member that found no room, or any.
    pub pod: PodRef,
    /// The gang, if one was tried.
    pub gang: Option<GangKey>,
    /// The profile's scheduler name.
    pub profile: Arc<str>,
    /// The version of the profile: how many reloads came before it.
    pub version: u64,
    /// What became of it.
    pub outcome: Outcome,
    /// Why, if it was not scheduled.
    pub message: Option<Arc<str>>,
    /// Nodes looked at.
    pub evaluated: u32,
    /// Nodes that fit.
    pub feasible: u32,
    /// Every node and plugin, if tracing is on.
    pub explanation: Option<Box<Explanation>>,
}

/// The scheduler without its surroundings.
pub struct Core {
    cluster: Cluster,
    /// The versions in force. An attempt under way holds the one it began with.
    profiles: Vec<Arc<Profile>>,
    /// How many reloads there were.
    version: u64,
    by_scheduler: TextMap<Arc<str>, usize>,
    by_key: TextMap<Box<str>, PodId>,
    queue: Queue,
    ledgers: IdMap<ShapeId, Ledger>,
    uses: u64,
    bindings: IdMap<PodId, Binding>,
    /// Pods parked on an outside call.
    calls: IdMap<Token, PodId>,
    timers: std::collections::BTreeSet<(Tick, PodId)>,
    /// Conditions asked for and not yet seen, and when to ask again.
    told: IdMap<PodId, remind::Told>,
    reminders: std::collections::BTreeSet<(Tick, PodId)>,
    /// Preemptions under way, by preemptor.
    plans: IdMap<PodId, evict::Plan>,
    /// Evictions on their way: preemptor and position in its plan.
    evictions: IdMap<Token, (PodId, usize)>,
    /// Evictions on their way under budgets.
    spending: std::collections::BTreeMap<Token, Vec<evict::BudgetName>>,
    /// Evictions and questions on their way whose plan was given up.
    orphans: IdMap<Token, evict::Orphan>,
    /// Who was asked to save its work, and in whose plan.
    saving: std::collections::BTreeSet<(PodId, PodId)>,
    victims: preempt::Victims,
    /// Who waits before it has others pushed out.
    restraint: restraint::Restraint,
    /// Who waits before it is tried.
    pace: pace::Pace,
    /// Whom gangs that wait would push out, for explanations.
    looked: IdMap<GangId, GangVictimsView>,
    /// When victims that were refused may be asked for again.
    refusals: std::collections::BTreeSet<(Tick, PodId)>,
    /// Cycles parked on an extender.
    asking: IdMap<PodId, extend::Asking>,
    /// Calls of extenders for them.
    asked: IdMap<Token, PodId>,
    /// Those that can go on, in order of their answers.
    answered: std::collections::VecDeque<PodId>,
    /// Gangs on their way to be bound.
    rounds: round::Rounds,
    /// Room that is kept for a gang.
    keep: Option<keep::Keep>,
    /// Room that is being freed for gangs.
    holds: hold::Holds,
    /// Pods that are off their nodes while a gang is tried without them.
    lifted: Vec<(PodId, PodStage)>,
    /// Domains of the levels that gangs ask for.
    trees: scope::Trees,
    /// Labels of nodes or levels have changed since gangs were looked at.
    topology_news: bool,
    /// Gangs that found nodes closed to them, and whether any may be open now.
    fenced: std::collections::BTreeSet<GangId>,
    fence_news: bool,
    /// What is said of gangs.
    words: IdMap<GangId, words::Words>,
    /// Nodes that are waited for.
    vigil: vigil::Vigil,
    /// Kubelets that refuse pods.
    quarantine: quarantine::Quarantine,
    /// When the present attempt began, by the stopwatch.
    begun: u64,
    effects: Vec<Effect>,
    observations: Vec<Observation>,
    stopwatch: Arc<dyn Stopwatch>,
    seed: u64,
    trace: bool,
    relists: [u64; Kind::COUNT],
    next_attempt: u64,
    bugs: Bugs,
}

impl Core {
    /// A core that knows nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let names = config.profiles.iter().enumerate();
        let bugs = Bugs {
            #[cfg(any(test, feature = "seeded-bugs"))]
            on: config.bug,
        };
        let mut cluster = Cluster::with(bugs);
        cluster.set_score_plugins(govern::score_plugins(config.profiles.iter()));
        let by_scheduler = names.map(|(i, p)| (Arc::clone(p.scheduler_name()), i)).collect();
        let profiles: Vec<Arc<Profile>> = config.profiles.into_iter().map(Arc::new).collect();
        Self {
            cluster,
            by_scheduler,
            vigil: vigil::Vigil::new(&profiles),
            quarantine: quarantine::Quarantine::default(),
            profiles,
            version: 0,
            by_key: TextMap::default(),
            queue: Queue::new(config.backoff, config.max_in_unschedulable_secs).with(bugs),
            ledgers: IdMap::default(),
            uses: 0,
            bindings: IdMap::default(),
            calls: IdMap::default(),
            timers: std::collections::BTreeSet::new(),
            told: IdMap::default(),
            reminders: std::collections::BTreeSet::new(),
            plans: IdMap::default(),
            evictions: IdMap::default(),
            spending: std::collections::BTreeMap::new(),
            orphans: IdMap::default(),
            saving: std::collections::BTreeSet::new(),
            victims: preempt::Victims::default(),
            restraint: restraint::Restraint::default(),
            pace: pace::Pace::default(),
            looked: IdMap::default(),
            refusals: std::collections::BTreeSet::new(),
            asking: IdMap::default(),
            asked: IdMap::default(),
            answered: std::collections::VecDeque::new(),
            rounds: round::Rounds::default(),
            keep: None,
            holds: hold::Holds::new(),
            lifted: Vec::new(),
            trees: scope::Trees::default(),
            topology_news: false,
            fenced: std::collections::BTreeSet::new(),
            fence_news: false,
            words: IdMap::default(),
            begun: 0,
            effects: Vec::new(),
            observations: Vec::new(),
            stopwatch: Arc::new(NoTime),
            seed: config.seed,
            trace: false,
            relists: [0; Kind::COUNT],
            next_attempt: 0,
            bugs,
        }
    }

    /// A core of its own that knows what this one knows, for what-if questions: what neither
    /// changes is shared. Nothing if somebody waits or is on the way to a node here: what they
    /// wait for cannot be copied.
    #[must_use]
    pub fn fork(&self) -> Option<Self> {
        let under_way = self.queue.tracked() != (0, 0) || !self.bindings.is_empty();
        if under_way || !self.plans.is_empty() || !self.orphans.is_empty() {
            return None;
        }
        let config = Config { profiles: Vec::new(), seed: self.seed, ..Config::default() };
        Some(Self {
            cluster: self.cluster.fork(),
            profiles: self.profiles.clone(),
            by_scheduler: self.by_scheduler.clone(),
            by_key: self.by_key.clone(),
            version: self.version,
            relists: self.relists,
            bugs: self.bugs,
            ..Self::new(config)
        })
    }

    /// Measures durations with `stopwatch`.
    #[must_use]
    pub fn with_stopwatch(mut self, stopwatch: Arc<dyn Stopwatch>) -> Self {
        self.stopwatch = stopwatch;
        self
    }

    /// Whether decisions carry a full explanation (costs a pass over all nodes).
    pub fn set_trace(&mut self, on: bool) {
        self.trace = on;
    }

    /// Takes in what happened outside.
    pub fn apply(&mut self, now: Tick, input: Input) {
        self.cluster.set_now(now);
        self.ingest(now, input);
        self.mend_rounds(now);
    }

    /// Lets time pass: backoffs end, waits time out.
    pub fn advance(&mut self, now: Tick) {
        self.cluster.fade_demand(now);
        self.cluster.set_now(now);
        let cx = QueueCx { profiles: &self.profiles, cluster: &self.cluster, now };
        self.queue.advance(&cx);
        while let Some(&(due, pod)) = self.timers.first() {
            if due > now {
                break;
            }
            self.timers.remove(&(due, pod));
            if !self.plan_timer(now, pod) {
                self.binding_timer(now, pod);
            }
        }
        self.gang_timers(now);
        self.remind(now);
        self.refusals_end(now);
        self.look_in_on_nodes(now);
        self.end_quarantines(now);
        self.call_seekers(now);
        self.call_pace(now);
    }

    /// When [`Core::advance`] next has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        let timer = self.timers.first().map(|(due, _)| *due);
        let reminder = self.reminders.first().map(|(due, _)| *due);
        let refusal = self.refusals.first().map(|(due, _)| *due);
        let gang = self.rounds.next_deadline();
        let nodes = self.vigil.next_deadline().into_iter().chain(self.quarantine.next_deadline());
        let own = timer.into_iter().chain(reminder).chain(refusal).chain(gang).chain(nodes);
        let own = own.chain(self.restraint.next_deadline()).chain(self.pace.next_deadline());
        own.chain(self.queue.next_deadline()).min()
    }

    /// What the core wants done, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What happened, for metrics.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        let mut all = std::mem::take(&mut self.observations);
        all.append(&mut self.queue.observations);
        all
    }

    /// Looks at the gangs of which anything has changed. [`Core::schedule_one`] does so
    /// first; whoever wants to see what follows from it apart from the next decision calls
    /// this before.
    pub fn settle(&mut self, now: Tick) {
        self.settle_gangs(now);
    }

    /// Tries the next pod or gang. `None`: nothing is ready.
    pub fn schedule_one(&mut self, now: Tick) -> Option<Decision> {
        self.cluster.set_now(now);
        self.settle_gangs(now);
        let (decision, started) = loop {
            let (pod, attempt) = match self.next_answered() {
                Some(answered) => answered,
                None => match self.queue.pop(self.may_ask())? {
                    Popped::Pod(pod) => (pod, Attempt::default()),
                    Popped::Gang(gang) if self.paced(now, Seeker::Gang(gang)) => continue,
                    Popped::Gang(gang) => match self.schedule_gang(now, gang) {
                        Some(decision) => return Some(decision),
                        None => continue,
                    },
                },
            };
            let said = self.effects.len();
            let started = attempt.begun().unwrap_or_else(|| self.stopwatch.nanos());
            self.begun = started;
            let new = attempt.is_new();
            let profile = self.queue.entry(pod).map(|e| e.profile);
            if new && profile.is_some_and(|profile| self.postponed(now, pod, profile)) {
                continue;
            }
            if new && self.paced(now, Seeker::Pod(pod)) {
                continue;
            }
            let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt(now, pod, attempt)));
            let decision = attempt.unwrap_or_else(|panic| {
                self.effects.truncate(said);
                self.stop_asking(pod);
                self.quarantine(now, pod, &*panic)
            });
            if let Some(decision) = decision {
                break (decision, started);
            }
            // The queue held a pod the cluster does not know: drop it.
            self.queue.remove(pod);
        };
        let nanos = self.stopwatch.nanos().saturating_sub(started);
        let result = match decision.outcome {
            // Such an attempt ends with the bind, or with its failure.
            Outcome::Scheduled { .. }
            | Outcome::WaitingOnPermit { .. }
            | Outcome::Skipped
            | Outcome::Gathered { .. }
            | Outcome::Accumulating { .. }
            | Outcome::Asking => return Some(decision),
            Outcome::Unschedulable => AttemptResult::Unschedulable,
            Outcome::Error => AttemptResult::Error,
        };
        let profile = Arc::clone(&decision.profile);
        self.observations.push(Observation::Attempt { profile, result, nanos });
        Some(decision)
    }

    /// Tries a gang. `None`: it was gone when its turn came.
    fn schedule_gang(&mut self, now: Tick, gang: GangId) -> Option<Decision> {
        let said = self.effects.len();
        self.begun = self.stopwatch.nanos();
        let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt_gang(now, gang)));
        let decision = attempt.unwrap_or_else(|panic| {
            self.effects.truncate(said);
            self.quarantine_gang(now, gang, &*panic)
        });
        if decision.is_none() {
            self.queue.idle_gang(gang, false);
            self.queue.gang_changed(gang, false);
        }
        decision
    }

    /// A decision on a pod, before anything is decided.
    fn undecided(&self, pod: PodId) -> Option<(Arc<Profile>, Decision)> {
        let profile = Arc::clone(self.profiles.get(self.queue.entry(pod)?.profile)?);
        let decision = Decision {
            pod: self.cluster.pod(pod)?.key.clone(),
            gang: None,
            profile: Arc::clone(profile.scheduler_name()),
            version: profile.version(),
            outcome: Outcome::Skipped,
            message: None,
            evaluated: 0,
            feasible: 0,
            explanation: None,
        };
        Some((profile, decision))
    }

    fn attempt(&mut self, now: Tick, pod: PodId, mut attempt: Attempt) -> Option<Decision> {
        let (mut profile, mut decision) = self.undecided(pod)?;
        if let Some(begun_with) = attempt.profile.take() {
            profile = begun_with;
            decision.version = profile.version();
        }
        let record = self.cluster.pod(pod)?;
        if record.deleting {
            self.skip_deleting(pod, &mut decision);
            return Some(decision);
        }
        if record.stage != PodStage::Pending {
            self.queue.remove(pod);
            return Some(decision);
        }
        self.cluster.weigh_load();
        if let Some(settled) = self.cluster.settle(pod) {
            self.swap_shape(pod, settled);
        }
        let shape_id = self.cluster.pod(pod)?.shape;
        if self.trace {
            let ties = Some(self.tie_seed(shape_id));
            let shape = Arc::clone(self.cluster.shape(shape_id));
            let (key, record) = (decision.pod.to_string(), self.cluster.pod(pod)?.clone());
            let asked = Asked { pod: &key, preemptor: Preemptor::of(pod, &record) };
            let explanation = explain(&asked, &profile, &shape, &mut self.cluster, ties);
            decision.explanation = Some(Box::new(explanation));
        }
        decision.evaluated = u32::try_from(self.cluster.node_count()).unwrap_or(u32::MAX);
        let choice = match attempt.failed.take() {
            None => self.choose_near(&profile, shape_id, pod, &mut attempt.outside, &mut decision),
            Some(error) => Err(failure::Failure::error(error.to_string())),
        };
        match choice {
            Ok(Choice::Node(node)) => {
                self.assume(now, pod, &profile, node, &mut decision);
                if !matches!(decision.outcome, Outcome::Unschedulable | Outcome::Error) {
                    self.charge_pace(now, Seeker::Pod(pod), 1);
                }
            }
            Ok(Choice::Ask(question, call)) => {
                self.park(pod, profile, (question, call), attempt, &mut decision);
            }
            Err(failure) => {
                self.fail_choice(now, pod, profile, failure, attempt, &mut decision);
            }
        }
        Some(decision)
    }

    /// The best node of a place for a shape, or why there is none.
    fn choose(
        &mut self,
        profile: &Arc<Profile>,
        shape_id: ShapeId,
        pod: PodId,
        place: &Place,
        outside: &mut Outside,
        decision: &mut Decision,
    ) -> Result<Choice, failure::Failure> {
        if self.cluster.node_count() == 0 {
            return Err(failure::Failure::no_nodes());
        }
        let started = self.stopwatch.nanos();
        self.refresh_ledger(profile, shape_id);
        // Where it is expected it goes, if it fits: nothing is scored.
        let expected = self.count_expected(profile, shape_id, pod);
        let expected = expected.filter(|node| place.has(*node));
        let filtered = self.stopwatch.nanos();
        if outside::may_ask(profile.extenders(), self.cluster.shape(shape_id)) {
            let choice =
                self.choose_outside(profile, shape_id, (expected, place), outside, decision);
            if !matches!(choice, Ok(Choice::Ask(..))) {
                // As upstream, with the time that extenders took.
                let nanos = self.stopwatch.nanos().saturating_sub(self.begun);
                self.observations.push(Observation::Algorithm { nanos });
            }
            return choice;
        }
        let Some(ledger) = self.ledgers.get_mut(&shape_id) else {
            return Err(failure::Failure::no_nodes());
        };
        decision.feasible = ledger.feasible();
        // One broken node ends the attempt, as upstream.
        let nodes = self.cluster.node_count();
        let best = match &ledger.prepared.score_error {
            _ if expected.is_some() => {
                // No other node was looked at.
                (decision.evaluated, decision.feasible) = (1, 1);
                expected.ok_or_else(failure::Failure::no_nodes)
            }
            _ if ledger.is_broken() => Err(failure::Failure::fit(profile, ledger, nodes)),
            Some((plugin, status)) if ledger.feasible() > 1 => {
                Err(failure::Failure::error(running("PreScore", profile, *plugin, status)))
            }
            _ => match place.nodes() {
                None => {
                    let best = ledger.best(profile).map(|(node, _)| node);
                    best.ok_or_else(|| failure::Failure::fit(profile, ledger, nodes))
                }
                Some(nodes) => {
                    let best = ledger.best_within(profile, &nodes).map(|(node, _)| node);
                    best.ok_or_else(|| failure::Failure::fit_within(profile, ledger, &nodes))
                }
            },
        };
        let chosen = self.stopwatch.nanos();
        self.observations.push(Observation::Algorithm { nanos: chosen.saturating_sub(started) });
        let profile = profile.scheduler_name();
        let status = if best.is_ok() { "Success" } else { "Unschedulable" };
        for (point, nanos) in [
            ("Filter", filtered.saturating_sub(started)),
            ("Score", chosen.saturating_sub(filtered)),
        ] {
            let profile = Arc::clone(profile);
            self.observations.push(Observation::Point { profile, point, status, nanos });
        }
        best.map(Choice::Node)
    }

    fn refresh_ledger(&mut self, profile: &Profile, shape_id: ShapeId) {
        for freed in self.cluster.take_freed_shapes() {
            self.ledgers.remove(&freed);
        }
        let shape = self.cluster.shape(shape_id);
        // An attempt that goes on may be of an older version than the ledger.
        let same = |l: &&mut Ledger| profile.is_cacheable() && l.version == profile.version();
        let known = self.ledgers.get_mut(&shape_id).filter(same);
        let current = known.is_some_and(|ledger| ledger.sync(profile, shape, &self.cluster));
        if !current {
            let ledger = Ledger::build(profile, shape, &self.cluster, self.tie_seed(shape_id).0);
            self.ledgers.insert(shape_id, ledger);
            self.evict_ledgers(shape_id);
        }
        self.uses += 1;
        if let Some(ledger) = self.ledgers.get_mut(&shape_id) {
            ledger.last_used = self.uses;
        }
    }

    fn tie_seed(&self, shape: ShapeId) -> TieSeed {
        TieSeed(scramble(shape.0, self.seed as u32) ^ (self.seed >> 32) as u32)
    }

    fn evict_ledgers(&mut self, keep: ShapeId) {
        let mut bytes: usize = self.ledgers.values().map(Ledger::bytes).sum();
        while bytes > LEDGER_BUDGET {
            let others = self.ledgers.iter().filter(|(id, _)| **id != keep);
            let oldest = others.min_by_key(|(id, l)| (l.last_used, **id)).map(|(id, _)| *id);
            let Some(ledger) = oldest.and_then(|id| self.ledgers.remove(&id)) else {
                break;
            };
            bytes -= ledger.bytes();
        }
    }

    /// Explains a pod on a fork of the state.
    #[must_use]
    pub fn question(&self, namespace: &str, name: &str) -> Option<Question> {
        let pod = *self.by_key.get(ingest::key_text(namespace, name).as_str())?;
        let mut cluster = self.cluster.fork();
        cluster.weigh_load();
        let settled = cluster.settle(pod).map(Arc::new);
        let record = cluster.pod(pod)?;
        let shape = settled.unwrap_or_else(|| Arc::clone(cluster.shape(record.shape)));
        let profile = Arc::clone(self.profiles.get(usize::from(shape.profile?.0))?);
        let ties = self.tie_seed(record.shape);
        let policies = cluster.policies_on(record.group);
        let record = record.clone();
        let gang = self.gang_view(pod);
        let held = self.restraint.says(cluster.now(), &self.seeking(Seeker::Pod(pod)));
        Some(Question { pod, record, profile, shape, cluster, ties, gang, policies, held })
    }

    /// Explains a pod that need not exist, under a profile by position. If a pod
    /// of that name is known it is judged as if it were not there.
    #[must_use]
    pub fn explain_pod(
        &mut self,
        now: Tick,
        wire: &muster_api::k8s::Pod,
        profile: u16,
    ) -> Explanation {
        let gang = self.try_gang_of(now, &wire.metadata.namespace, &wire.metadata.name);
        self.delete_pod(now, &wire.metadata.namespace, &wire.metadata.name);
        self.cluster.weigh_load();
        let shape = self.compile(wire, Some(crate::framework::ProfileId(profile)));
        let policies = self.cluster.policies_for(wire);
        let pod = format!("{}/{}", wire.metadata.namespace, wire.metadata.name);
        let ranks = self.cluster.policies();
        let nominated = wire.status.nominated_node_name.as_str();
        let preemptor = Preemptor {
            id: None,
            priority: ranks.priority_of(wire),
            may_preempt: ranks.may_preempt(wire),
            nominated: Some(nominated).filter(|name| !name.is_empty()),
        };
        let asked = Asked { pod: &pod, preemptor };
        let profile = &self.profiles[usize::from(profile)];
        let answer = explain(&asked, profile, &shape, &mut self.cluster, None);
        Explanation { gang, policies, ..answer }
    }

    /// Takes a node for a pod that need not exist, as a cycle of a profile does
    /// between choosing a node and binding: for what-if questions.
    ///
    /// # Errors
    ///
    /// If there is no such node, or a Reserve plugin refuses.
    pub fn place_pod(
        &mut self,
        now: Tick,
        wire: &muster_api::k8s::Pod,
        profile: u16,
        node: &str,
    ) -> Result<(), String> {
        let meta = &wire.metadata;
        self.delete_pod(now, &meta.namespace, &meta.name);
        let found = self.cluster.node_by_name(node);
        let node = found.ok_or_else(|| format!("node {node:?} does not exist"))?;
        let shape = self.compile(wire, Some(crate::framework::ProfileId(profile)));
        let key = ingest::key_text(&meta.namespace, &meta.name).into();
        let pod = self.insert_pod(now, key, wire, shape);
        self.cluster.place(pod, node, true);
        let profile = Arc::clone(&self.profiles[usize::from(profile)]);
        self.reserve(pod, &profile, node).map_err(failure::Failure::into_message)
    }

    /// Sizes, for gauges.
    #[must_use]
    pub fn pending_counts(&self) -> PendingCounts {
        let (active, backoff, unschedulable, gated) = self.queue.counts();
        PendingCounts {
            active,
            backoff,
            unschedulable,
            gated,
            assumed: self.bindings.len(),
            asking: self.asking.len(),
            pods: self.cluster.pod_count(),
            nodes: self.cluster.node_count(),
            avoided: self.cluster.avoided(),
        }
    }

    /// Gangs with members that wait, by queue.
    #[must_use]
    pub fn gang_counts(&self) -> GangCounts {
        GangCounts { holds: self.holds.len(), ..self.queue.count_gangs() }
    }

    /// How many pods wait because of a plugin: profile, plugin, pods.
    #[must_use]
    pub fn unschedulable_by_plugin(&self) -> Vec<(Arc<str>, &'static str, usize)> {
        let counts = self.queue.rejections().into_iter();
        counts
            .filter_map(|((profile, plugin), pods)| {
                let profile = self.profiles.get(profile)?;
                Some((Arc::clone(profile.scheduler_name()), plugin_name(profile, plugin), pods))
            })
            .collect()
    }

    /// What waits and why.
    #[must_use]
    pub fn queue_view(&self) -> QueueView {
        let waiting = self.queue.listing().filter_map(|(pod, queue, entry)| {
            let record = self.cluster.pod(pod)?;
            Some(QueuedPod {
                pod: record.key.to_string(),
                queue,
                priority: record.priority,
                attempts: entry.attempts,
                first_queued_micros: entry.first.0,
                node: String::new(),
                message: entry.message().unwrap_or_default().to_owned(),
            })
        });
        let pods = waiting.chain(self.asking_views()).chain(self.binding_views()).collect();
        QueueView { pods }
    }

    /// What the core believes of the cluster, sorted by name.
    #[must_use]
    pub fn cache_view(&self) -> CacheView {
        let amounts = |of: &dyn Fn(crate::model::ResId) -> i64| {
            (0..self.cluster.resources.len() as u16)
                .map(crate::model::ResId)
                .map(|r| (self.cluster.resources.name(r).to_string(), of(r)))
                .filter(|(_, amount)| *amount != 0)
                .collect()
        };
        let mut nodes: Vec<CacheNode> = self
            .cluster
            .nodes()
            .iter()
            .map(|id| {
                let (info, view) = (self.cluster.node(id), self.cluster.view(id));
                let keys = info.pods.iter().filter_map(|p| self.cluster.pod(*p));
                let mut pods: Vec<String> = keys.map(|p| p.key.to_string()).collect();
                pods.sort_unstable();
                CacheNode {
                    name: info.name.to_string(),
                    pods,
                    requested: amounts(&|r| view.requested(r)),
                    allocatable: amounts(&|r| view.allocatable(r)),
                }
            })
            .collect();
        nodes.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let assumed = self.cluster.pods().filter(|(_, p)| matches!(p.stage, PodStage::Assumed(_)));
        let mut assumed: Vec<String> = assumed.map(|(_, p)| p.key.to_string()).collect();
        assumed.sort_unstable();
        CacheView { nodes, assumed }
    }
}

/// A question about one pod, on its own copy of the state: it can be answered on
/// any thread while scheduling goes on.
pub struct Question {
    pod: PodId,
    record: crate::model::Pod,
    profile: Arc<Profile>,
    shape: Arc<crate::model::PodShape>,
    cluster: Cluster,
    ties: TieSeed,
    gang: Option<GangView>,
    policies: Vec<PolicyInForce>,
    held: String,
}

impl Question {
    /// Answers it.
    #[must_use]
    pub fn explain(mut self) -> Explanation {
        let key = self.record.key.to_string();
        let asked = Asked { pod: &key, preemptor: Preemptor::of(self.pod, &self.record) };
        let cluster = &mut self.cluster;
        let mut answer = explain(&asked, &self.profile, &self.shape, cluster, Some(self.ties));
        if let Some(preemption) = &mut answer.preemption {
            preemption.held = self.held;
        }
        Explanation { gang: self.gang, policies: self.policies, ..answer }
    }
}

/// The name of a plugin in a profile, for messages.
fn plugin_name(profile: &Profile, plugin: usize) -> &'static str {
    if plugin == EXTENDER {
        return EXTENDER_NAME;
    }
    profile.plugins().get(plugin).map_or("", |p| p.plugin.name())
}

/// A status as text for an error message.
fn running(point: &str, profile: &Profile, plugin: usize, status: &Status) -> String {
    format!("running {point} plugin {:?}: {}", plugin_name(profile, plugin), status.message())
}
