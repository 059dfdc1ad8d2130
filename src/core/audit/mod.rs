//! An independent checker of what one scheduler process does.
//!
//! Owns its own picture of the cluster, drawn from the inputs, effects and
//! decisions that pass by, and its own arithmetic; [`Audit::full`] compares the
//! picture with what the core believes. Must never share code with the plugins,
//! the model or the queue, and never influence a decision. It must be sound: where
//! the rules are in doubt it says nothing.
//!
//! | invariant | checked |
//! |---|---|
//! | S1 | at every decision: room, ports, taints, cordon, selectors of the node chosen |
//! | S2 | at every decision on a gang or a member, at every bind of one that waited for its gang |
//! | topology | at every seat and every bind: members that must be in one domain are |
//! | S3 | at every bind: one at a time, to the reserved node, none twice, none in doubt |
//! | S6 | at every decision and effect: our pods only, none gated, none gone |
//! | S4 | at every eviction: a dry run first, no budget overdrawn, none under two budgets |
//! | S5 | at every eviction: of lesser pods only, none too many, none forgotten, one plan at a time; no gang is left below its minimum |
//! | O1 | a pod that failed has a current explanation, here and in its condition |
//! | queue | each waiting pod is in exactly one place, and nothing else is |
//! | backoff, order | a pod comes back when it may, the first in order first |
//! | requeue | no pod waits for an event while a node would take it |
//! | binding | a binding ends after its answer, a wait at its deadline |
//! | cache | nodes, sums and places are what was fed in |
//! | version | an attempt begins under the version in force, and ends under that |
//! | devices | at every bind: what a pod is expected to get is there, nobody has it, and no other pod is expected to get it |
//! | avoided | at every decision: a node whose kubelet refused enough pods that ask for the same is left alone |
//! | reserve | what Reserve took is given back once, in reverse order |
//!
//! A nomination is no reservation: whoever is more important may take the room, so
//! S1 knows nothing of it; only "no node fits" takes it into account.
//!
//! Which devices kubelets give is theirs: what is expected of them is checked, and that nodes
//! are left alone whose kubelets refuse.

mod attempts;
mod audited;
mod budgets;
mod decisions;
mod devices;
mod fit;
mod full;
mod gang_plans;
mod gangs;
mod plans;
mod pods;
mod policies;
mod preempt;
mod requests;
mod reserve;
mod restraint;
mod steps;
#[cfg(test)]
mod tests;
mod topology;
#[cfg(any(test, feature = "seeded-bugs"))]
mod witness;
mod world;

pub use audited::Audited;
pub use reserve::{Point, PointCall, PointLog};
#[cfg(any(test, feature = "seeded-bugs"))]
pub use witness::Witness;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::framework::{ExtensionPoint, PostFilter};
use crate::io::{Effect, Input, Tick};
use crate::plugins::PodTopologySpreadArgs;
use crate::{Backoff, Config, Decision, Reload};
use fit::Rules;
use plans::Plans;
use reserve::Reservations;
use world::World;

/// Violations kept until they are taken; further ones are counted.
const MAX_VIOLATIONS: usize = 64;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which invariant.
    pub invariant: &'static str,
    /// What was wrong, for people.
    pub what: String,
}

/// What the checker knows of a profile.
#[derive(Clone, Debug)]
struct ProfileFacts {
    name: Arc<str>,
    rules: Rules,
    /// Plugins whose verdicts this checker can work out itself.
    modelled: BTreeSet<&'static str>,
    /// All filters are such plugins.
    complete: bool,
    /// Only scheduling gates keep pods out of the queue.
    plain_gates: bool,
    /// Ordered by priority, then time.
    plain_order: bool,
    /// Extenders have a say: what plugins would decide is not all.
    extended: bool,
    /// Some plugin may have pods go against their budgets.
    may_force: bool,
    /// When nodes are left alone whose kubelets refuse pods.
    care: Option<devices::Care>,
}

impl ProfileFacts {
    fn be_lenient(&mut self) {
        self.modelled.clear();
        self.rules.room = false;
    }

    fn of(profile: &crate::Profile) -> Self {
        let names = |point| profile.called(point).map(|(_, p)| p.plugin.name());
        let has = |name: &str| names(ExtensionPoint::Filter).any(|filter| filter == name);
        // What arguments add to a plugin's rules is not known here.
        let args = profile.args();
        let ignored = [&args.fit.ignored_resources, &args.fit.ignored_resource_groups];
        let strange: Vec<&str> = [
            ("NodeResourcesFit", ignored.iter().any(|list| !list.is_empty())),
            ("NodeAffinity", args.node_affinity.added_affinity.is_some()),
            ("PodTopologySpread", args.pod_topology_spread != PodTopologySpreadArgs::System),
        ]
        .into_iter()
        .filter_map(|(name, strange)| strange.then_some(name))
        .collect();
        let has = |name: &str| has(name) && !strange.contains(&name);
        let mut filters = names(ExtensionPoint::Filter).chain(names(ExtensionPoint::PreFilter));
        let mut sorts = names(ExtensionPoint::QueueSort).peekable();
        let extended = !profile.extenders().is_empty();
        Self {
            name: Arc::clone(profile.scheduler_name()),
            rules: Rules {
                cordon: has("NodeUnschedulable"),
                taints: has("TaintToleration"),
                affinity: has("NodeAffinity"),
                ports: has("NodePorts"),
                room: has("NodeResourcesFit"),
            },
            modelled: MODELLED.iter().copied().filter(|name| has(name)).collect(),
            complete: !extended
                && filters.all(|name| {
                    !strange.contains(&name) && (MODELLED.contains(&name) || IDLE.contains(&name))
                }),
            plain_gates: names(ExtensionPoint::PreEnqueue).all(|name| name == "SchedulingGates"),
            may_force: profile
                .called(ExtensionPoint::PostFilter)
                .any(|(_, p)| p.plugin.as_post_filter().is_some_and(PostFilter::may_force)),
            care: care_of(profile),
            extended,
            // Who needs an extender waits for a turn, and others pass by.
            plain_order: !extended
                && sorts.peek().is_some()
                && sorts.all(|name| name == "PrioritySort"),
        }
    }
}

fn care_of(profile: &crate::Profile) -> Option<devices::Care> {
    let mut filters = profile.called(ExtensionPoint::Filter);
    let care = filters.find_map(|(_, p)| p.plugin.node_care())?;
    (care.refusals > 0).then_some(devices::Care {
        refusals: care.refusals,
        window_seconds: care.window_seconds,
        avoid_seconds: care.avoid_seconds,
    })
}

/// Plugins whose rejections the checker can judge.
const MODELLED: &[&str] =
    &["NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit"];

/// Filters that let every pending pod pass whose wishes are all modelled.
const IDLE: &[&str] = &[
    "InterPodAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
];

/// The checker. Tell it of each step in this order: [`Audit::input`] before the
/// core takes it in, [`Audit::decision`] as soon as it is made, [`Audit::effect`]
/// for all that the step brought, before the next step begins. [`Audited`] does so.
pub struct Audit {
    profiles: Vec<ProfileFacts>,
    /// How many reloads there were.
    version: u64,
    backoff: Backoff,
    world: World,
    reservations: Reservations,
    plans: Plans,
    groups: gangs::Groups,
    levels: topology::Levels,
    policies: policies::Policies,
    buckets: restraint::Buckets,
    devices: devices::Devices,
    /// When the last step was.
    clock: Tick,
    /// Plugins that look again at all pods they rejected, whatever happens.
    eager: BTreeSet<&'static str>,
    /// Plugins have arguments that the checker does not know.
    lenient: bool,
    /// When timers last fired.
    advanced: Option<Tick>,
    /// Questions to servers of the user's own, while Permit holds the pod that they
    /// are about.
    asked: std::collections::BTreeMap<crate::io::Token, String>,
    /// Pods whose condition has to be written in this step.
    owing: Vec<String>,
    last_attempt: u64,
    turn: usize,
    violations: Vec<Violation>,
    dropped: u64,
}

impl Audit {
    /// A checker for a core set up like this.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            profiles: config.profiles.iter().map(ProfileFacts::of).collect(),
            version: 0,
            backoff: config.backoff,
            world: World::default(),
            reservations: Reservations::default(),
            plans: Plans::default(),
            groups: gangs::Groups::default(),
            levels: topology::Levels::default(),
            policies: policies::Policies::default(),
            buckets: restraint::Buckets::default(),
            devices: devices::Devices::default(),
            clock: Tick(0),
            eager: BTreeSet::new(),
            lenient: false,
            advanced: None,
            asked: std::collections::BTreeMap::new(),
            owing: Vec::new(),
            last_attempt: 0,
            turn: 0,
            violations: Vec::new(),
            dropped: 0,
        }
    }

    /// For profiles whose plugins have arguments of their own (resources not to
    /// check, added affinity): leaves out what depends on those.
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.lenient = true;
        self.profiles.iter_mut().for_each(ProfileFacts::be_lenient);
        self
    }

    /// The core has taken up other profiles.
    pub fn reloaded(&mut self, reload: &Reload) {
        // What came before is judged by what held then.
        self.owing();
        self.version += 1;
        for profile in &reload.profiles {
            let mut facts = ProfileFacts::of(profile);
            if self.lenient {
                facts.be_lenient();
            }
            let Some(known) = self.profiles.iter_mut().find(|known| known.name == facts.name)
            else {
                continue;
            };
            // A plan of before may still be carried out.
            facts.may_force |= known.may_force;
            *known = facts;
        }
        let before = std::mem::replace(&mut self.backoff, reload.backoff);
        if before == self.backoff {
            return;
        }
        self.world.each_pod(|pod| {
            pod.attempts.rebound(before, reload.backoff);
            // Who is due by the old bounds stays so.
            pod.called = true;
        });
    }

    /// Says that a plugin registers for all events and has no hint of its own: a
    /// node that joins and a pod that leaves always wake the pods it rejected.
    #[must_use]
    pub fn eager(mut self, plugin: &'static str) -> Self {
        self.eager.insert(plugin);
        self
    }

    /// What the core is about to be told.
    pub fn input(&mut self, now: Tick, input: &Input) {
        self.clock = now;
        self.see_input(now, input);
    }

    /// What the core asks for.
    pub fn effect(&mut self, now: Tick, effect: &Effect) {
        self.see_effect(now, effect);
    }

    /// What the core decided.
    pub fn decision(&mut self, now: Tick, decision: &Decision) {
        self.clock = now;
        self.see_decision(now, decision);
    }

    /// The core's timers fired.
    pub fn advanced(&mut self, now: Tick) {
        self.advanced = Some(now);
    }

    /// A test plugin's Reserve or Unreserve was called.
    pub fn called(&mut self, call: &PointCall) {
        if let Some(what) = self.reservations.see(call) {
            self.violation("reserve", what);
        }
    }

    /// What was wrong since the last call, the first few in full.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        if self.dropped > 0 {
            let what = format!("{} more violations were not kept", self.dropped);
            self.violations.push(Violation { invariant: "more", what });
            self.dropped = 0;
        }
        std::mem::take(&mut self.violations)
    }

    fn violation(&mut self, invariant: &'static str, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(Violation { invariant, what });
        } else {
            self.dropped += 1;
        }
    }

    /// The profile of a scheduler name.
    fn profile(&self, name: &str) -> Option<usize> {
        self.profiles.iter().position(|p| *p.name == *name)
    }
}
