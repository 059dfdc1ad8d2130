//! Who is not to be pushed out now, and until when.
//!
//! Owns the answer, from what a victim's policies and its priority class say, how long it has
//! run, how often it and those it replaces were evicted, and how its zone fares. Time is that
//! of the input under way. Must never know who asks beyond its priority, so that answers may
//! be kept for all pods alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s;

use super::{Cluster, NodeId};
use crate::bugs::bug;
use crate::io::Tick;
use crate::model::{Pod, PodId, PodStage, Sym};

/// Nodes of a zone above which evictions slow down instead of ending: as the node lifecycle
/// controller has it, and the two that follow.
const LARGE_ZONE: u32 = 50;
/// Nodes that may be not ready in any zone.
const FEW_NODES: u32 = 2;
/// How long after an eviction in such a large zone the next may follow.
const SLOW_SECONDS: i64 = 100;
/// How often a zone is looked at again that stands still.
const LOOK_SECONDS: i64 = 10;

/// What keeps a pod from being pushed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    /// Who would push it out is not so much more important.
    Gap,
    /// It has not run for long enough.
    Runtime,
    /// Its priority class says so.
    Toleration,
    /// It was evicted twice lately, or replaces such a pod.
    Repeated,
    /// Too few nodes of its zone are ready.
    Zone,
}

impl Protection {
    /// What says so, for people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Gap => "minPriorityGap",
            Self::Runtime => "minRuntimeSeconds",
            Self::Toleration => "toleration of its PriorityClass",
            Self::Repeated => "repeatWindowSeconds",
            Self::Zone => "unhealthyZonePercent",
        }
    }
}

/// A pod stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shield {
    pub(crate) by: Protection,
    /// None: whatever time passes.
    pub(crate) until: Option<Tick>,
}

/// Region and zone.
type Zone = (Option<Sym>, Option<Sym>);

/// How the nodes of a zone fare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Health {
    nodes: u32,
    not_ready: u32,
}

/// Who was evicted, and how zones fare.
#[derive(Clone, Default)]
pub(super) struct Shields {
    now: Tick,
    zones: Arc<BTreeMap<Zone, Health>>,
    /// When the next pod may go from a zone that fares badly.
    paces: BTreeMap<Zone, Tick>,
    /// Nodes have changed since they were counted.
    stale: bool,
    /// Grows when another answer may hold, beside what nodes and time say.
    generation: u64,
    pub(super) lineages: Arc<super::lineages::Lineages>,
}

impl Cluster {
    /// The time of the input under way.
    pub(crate) fn set_now(&mut self, now: Tick) {
        self.shields.now = now;
    }

    /// The time of the input under way.
    pub(crate) fn now(&self) -> Tick {
        self.shields.now
    }

    /// The priority class that a pod names.
    pub(crate) fn class_of(&mut self, wire: &k8s::Pod) -> Option<Sym> {
        let name = wire.spec.priority_class_name.as_str();
        (!name.is_empty()).then(|| Arc::make_mut(&mut self.syms).intern(name))
    }

    /// Nodes came, went, or have changed.
    pub(super) fn zones_changed(&mut self) {
        self.shields.stale = true;
    }

    /// Counts nodes anew if any has changed and anybody goes by it.
    pub(crate) fn count_zones(&mut self) {
        if !self.shields.stale || !self.policies_mind_zones() {
            return;
        }
        self.shields.stale = false;
        let mut zones: BTreeMap<Zone, Health> = BTreeMap::new();
        let unready = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
        let unready = unready.map(|key| self.syms.get(key));
        for node in self.nodes().iter() {
            let health = zones.entry(self.zone_of(node)).or_default();
            health.nodes += 1;
            let taints = &self.node(node).taints;
            health.not_ready += u32::from(taints.iter().any(|t| unready.contains(&Some(t.key))));
        }
        if *self.shields.zones != zones {
            self.shields.zones = Arc::new(zones);
            self.shields.generation += 1;
        }
    }

    fn zone_of(&self, node: NodeId) -> Zone {
        let label = |key: &str| self.node(node).label(self.syms.get(key)?);
        (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
    }

    /// A pod has to go from a node: if its zone fares badly the next one waits.
    pub(crate) fn pace_zone(&mut self, victim: PodId) {
        let Some(pod) = self.pod(victim).filter(|_| self.policies_mind_zones()) else {
            return;
        };
        let percent = self.victim_terms(pod.group).unhealthy_zone_percent;
        let Some((node, percent)) = pod.stage.node().zip(percent) else {
            return;
        };
        let (zone, now) = (self.zone_of(node), self.shields.now);
        if self.shields.ails(zone, percent).is_some() {
            let paces = &mut self.shields.paces;
            paces.retain(|_, next| *next > now);
            let next = paces.entry(zone).or_insert(now);
            *next = next.after_secs(SLOW_SECONDS);
            self.shields.generation += 1;
        }
    }

    /// Grows when another answer may hold than before, beside what nodes and time say; the
    /// same as long as nobody is protected.
    pub(crate) fn shield_stamp(&self) -> u64 {
        if !self.may_shield() {
            return 0;
        }
        let of_policies = self.policies_generation() + self.policies().tolerated();
        1 + of_policies + self.kin_stamp() + self.shields.generation
    }

    /// Whether anybody might be protected.
    pub(crate) fn may_shield(&self) -> bool {
        self.policies_protect() || self.policies().has_tolerations()
    }

    /// What keeps a pod from being pushed out by one of this priority: what does so for the
    /// longest time.
    pub(crate) fn shield(&self, id: PodId, pod: &Pod, priority: i32) -> Option<Shield> {
        // Who leaves anyway needs none.
        if !self.may_shield() || pod.deleting || bug!(self.bugs, ShieldIgnored) {
            return None;
        }
        let terms = self.victim_terms(pod.group);
        let gap = terms.min_gap.filter(|gap| priority < pod.priority.saturating_add(*gap));
        if gap.is_some() {
            return Some(Shield { by: Protection::Gap, until: None });
        }
        let mut found: Option<Shield> = None;
        let mut note = |by: Protection, until: Option<Tick>| {
            let later =
                |known: &Shield| known.until.is_none_or(|at| until.is_some_and(|t| t <= at));
            if !found.as_ref().is_some_and(later) {
                found = Some(Shield { by, until });
            }
        };
        let now = self.shields.now;
        let class = pod.class.and_then(|class| self.policies().toleration(self.syms.text(class)));
        if let Some(class) = class.filter(|class| priority < class.minimum) {
            match class.seconds {
                ..0 => note(Protection::Toleration, None),
                seconds => {
                    let until = pod.started.unwrap_or(now).after_secs(seconds);
                    if until > now {
                        note(Protection::Toleration, Some(until));
                    }
                }
            }
        }
        // Nothing is lost of a pod that is not bound yet.
        let bound = matches!(pod.stage, PodStage::Bound(_) | PodStage::Away(_));
        let runs_until = pod.started.unwrap_or(now).after_secs(terms.min_runtime_seconds);
        if bound && runs_until > now {
            note(Protection::Runtime, Some(runs_until));
        }
        let window = terms.repeat_window_seconds;
        let until = window.and_then(|window| self.shields.lineages.protected(id, window));
        if let Some(until) = until.filter(|until| *until > now) {
            note(Protection::Repeated, Some(until));
        }
        let ails = terms
            .unhealthy_zone_percent
            .zip(pod.stage.node())
            .and_then(|(percent, node)| self.shields.ails(self.zone_of(node), percent));
        if let Some(until) = ails.filter(|until| *until > now) {
            note(Protection::Zone, Some(until));
        }
        found
    }
}

impl Shields {
    /// Whether a zone fares badly, and when the next pod may go from it.
    fn ails(&self, zone: Zone, percent: i32) -> Option<Tick> {
        let Health { nodes, not_ready } = *self.zones.get(&zone)?;
        let share = u64::from(not_ready) * 100;
        let bad =
            not_ready > FEW_NODES && share > u64::from(nodes) * u64::try_from(percent).unwrap_or(0);
        let dead = not_ready == nodes;
        match (bad || dead, nodes > LARGE_ZONE && !dead) {
            (false, _) => None,
            (true, true) => Some(self.paces.get(&zone).copied().unwrap_or(self.now)),
            (true, false) => Some(self.now.after_secs(LOOK_SECONDS)),
        }
    }
}
