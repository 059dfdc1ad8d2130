//! Gangs, judged on the API server's truth.
//!
//! S2: at rest a gang is whole or absent, unless it was whole before, or somebody else
//! bound a member; a part that crashes and lost calls have left bound is gone when its
//! time is over. S5: a gang that was whole and lost members to others only is whole still,
//! or absent. L1: no gang of one shape waits for which there is room node by node.
//! Must never ask a scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s::{Node, Pod};
use muster_api::muster::{HalfBound, PodGroup};
use muster_core::io::{Object, Tick};

use super::fit::Room;
use super::rest::{Truth, priority};
use super::{Checker, Finding};
use crate::model::api::{Notice, PodId};
use crate::model::budget::StoredBudget;
use crate::model::groups::{counts, is_met, role_of};
use crate::model::objects::{group_name, is_terminal};
use crate::scenario::SCHEDULER_NAME;
use crate::time::{Micros, SECOND};

/// How long room may be held by a part of a gang, if its group says nothing else.
const TIMEOUT: Micros = 300 * SECOND;
/// How much later the part may still be there: until a new leader has noted it, and
/// until it has been asked for twice.
const SLACK: Micros = 30 * SECOND;

/// The history of a gang.
#[derive(Debug, Default)]
pub(super) struct Gang {
    group: Option<PodGroup>,
    existed: bool,
    members: BTreeMap<PodId, Arc<Pod>>,
    /// Members that counted and do so no more, and since when.
    left: BTreeMap<PodId, (Tick, Arc<Pod>)>,
    /// It was whole at some time, or may have looked so to whoever had not heard yet of a
    /// member that left.
    whole: bool,
    /// Since when it is whole.
    whole_since: Option<Tick>,
    /// The longest time that it was whole and is no more.
    longest: Micros,
    /// Somebody else bound a member.
    foreign: bool,
    /// Since when only a part is bound.
    half_since: Option<Tick>,
    /// UIDs of members that had to go for others, while it was whole.
    pushed_out: BTreeSet<String>,
    /// UIDs of members that counted and do so no more.
    lost: BTreeSet<String>,
}

impl Gang {
    fn live(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.members.values().filter(|pod| counts(pod) && !is_terminal(pod))
    }

    /// A member is as it is now; none if it is gone.
    fn note(&mut self, now: Tick, id: PodId, member: Option<&Arc<Pod>>) {
        let before = match member {
            Some(member) => self.members.insert(id, Arc::clone(member)),
            None => self.members.remove(&id),
        };
        let counted = before.filter(|pod| counts(pod));
        if let Some(counted) = counted.filter(|_| !member.is_some_and(|pod| counts(pod))) {
            self.lost.insert(counted.metadata.uid.clone());
            self.left.insert(id, (now, counted));
        }
    }

    /// Looks again after a change; whoever schedules may be behind by so much.
    fn weigh(&mut self, now: Tick, behind: Micros) {
        let all = || self.members.values().map(|pod| &**pod).filter(|pod| counts(pod));
        let met = |group: &PodGroup| is_met(group, all());
        let whole = self.group.as_ref().is_some_and(met);
        self.left.retain(|_, (since, _)| now.0 - since.0 <= behind);
        let looks_met = |group: &PodGroup| {
            is_met(group, all().chain(self.left.values().map(|(_, pod)| &**pod)))
        };
        self.whole |= whole || self.group.as_ref().is_some_and(looks_met);
        self.whole_since = match self.whole_since {
            Some(since) if !whole => {
                self.longest = self.longest.max(now.0 - since.0);
                None
            }
            since => since.or(whole.then_some(now)),
        };
        self.half_since = match self.half_since {
            _ if whole || self.group.is_none() || self.live().next().is_none() => None,
            since => since.or(Some(now)),
        };
    }
}

impl Checker {
    /// One accepted write, as far as gangs are concerned.
    pub(super) fn observe_gangs(&mut self, now: Tick, notice: &Notice) {
        match notice {
            Notice::Pod { id, object, deleted, .. } => {
                let Some(name) = group_name(object) else { return };
                let key = (object.metadata.namespace.clone(), name.to_owned());
                let gang = self.gangs.entry(key).or_default();
                gang.note(now, *id, (!*deleted).then_some(object));
                gang.weigh(now, self.terms.behind);
            }
            Notice::Object { object, deleted, .. } => {
                let Object::PodGroup(group) = &**object else { return };
                let meta = &group.metadata;
                let key = (meta.namespace.clone(), meta.name.clone());
                let gang = self.gangs.entry(key).or_default();
                gang.group = (!*deleted).then(|| group.clone());
                gang.existed = true;
                gang.weigh(now, self.terms.behind);
            }
            Notice::Node { .. } => {}
        }
    }

    /// Somebody else bound a pod.
    pub(crate) fn bound_by_others(&mut self, pod: &Pod) {
        if let Some(name) = group_name(pod) {
            let key = (pod.metadata.namespace.clone(), name.to_owned());
            self.gangs.entry(key).or_default().foreign = true;
        }
    }

    /// A scheduler let a member of a half-bound gang go; all is as it was before.
    pub(crate) fn released(&mut self, now: Tick, member: &Pod, budgets: &[StoredBudget]) {
        self.guarded(now, member, budgets);
        let name = format!("{}/{}", member.metadata.namespace, member.metadata.name);
        let Some(group) = group_name(member) else {
            return self.violation(now, "S2", &format!("{name} was let go, and is in no gang"));
        };
        let key = (member.metadata.namespace.clone(), group.to_owned());
        // What was whole for a moment only a scheduler may miss.
        let whole = self.gangs.get(&key).map_or(0, |gang| gang.longest);
        if whole > self.terms.behind && self.terms.sees_all {
            let what = format!("{name} was let go, but its gang was whole");
            self.violation(now, "S2", &what);
        }
    }

    /// A scheduler has a pod go for another.
    pub(super) fn pushed_out(&mut self, victim: &Pod) {
        let Some(name) = group_name(victim) else { return };
        let key = (victim.metadata.namespace.clone(), name.to_owned());
        let gang = self.gangs.entry(key).or_default();
        if gang.whole {
            gang.pushed_out.insert(victim.metadata.uid.clone());
        }
    }

    /// S5 at rest: whoever pushed members of a gang out left it whole, or took all.
    fn cut(&self, budgets: &[StoredBudget]) -> Vec<String> {
        let mut found = Vec::new();
        for ((namespace, name), gang) in self.gangs.iter().filter(|_| self.terms.calm) {
            let Some(group) = gang.group.as_ref().filter(|_| !gang.pushed_out.is_empty()) else {
                continue;
            };
            let guarded = gang.live().any(|pod| budgets.iter().any(|b| b.spec.covers(pod)));
            let otherwise = gang.foreign || !gang.lost.is_subset(&gang.pushed_out);
            let all = gang.members.values().map(|pod| &**pod).filter(|pod| counts(pod));
            let count = gang.live().count();
            if !guarded && !otherwise && count > 0 && !is_met(group, all) {
                let least = group.spec.min_member();
                found.push(format!("{namespace}/{name} was left with {count} of {least} members"));
            }
        }
        found
    }

    /// S2 at rest; `calm` is since when nothing has gone wrong any more.
    pub(crate) fn half_bound(&mut self, now: Tick, calm: Tick, budgets: &[StoredBudget]) {
        let mut found = Vec::new();
        for ((namespace, name), gang) in &self.gangs {
            let count = gang.live().count();
            if gang.whole || gang.foreign || count == 0 {
                continue;
            }
            let Some(group) = &gang.group else {
                if !gang.existed {
                    let what = "are bound, but their pod group never existed";
                    found.push(format!("{count} members of {namespace}/{name} {what}"));
                }
                continue;
            };
            let waits = group.spec.when_half_bound == Some(HalfBound::Wait);
            let kept = gang.live().any(|pod| budgets.iter().any(|b| b.spec.covers(pod)));
            let timeout = group.spec.schedule_timeout_seconds;
            let timeout = timeout.map_or(TIMEOUT, |seconds| Micros::from(seconds) * SECOND);
            let since = gang.half_since.unwrap_or(now).max(calm);
            if !waits && !kept && now.0 - since.0 > timeout + SLACK {
                let least = group.spec.min_member();
                found.push(format!("{count} of {least} members of {namespace}/{name} are bound"));
            }
        }
        for what in found {
            self.violation(now, "S2", &what);
        }
        for what in self.cut(budgets) {
            self.violation(now, "S5", &what);
        }
    }
}

/// Whether a pod names a group of an API that is not simulated: such groups never exist.
fn names_another(pod: &Pod) -> bool {
    let native = pod.spec.scheduling_group.as_ref();
    let native = native.and_then(|group| group.pod_group_name.as_ref()).is_some();
    native || pod.metadata.labels.contains_key("scheduling.x-k8s.io/pod-group")
}

impl Truth<'_> {
    /// Whether a pod waits for its gang, not for room of its own.
    pub(super) fn waits_for_gang(&self, pod: &Pod) -> bool {
        let Some(name) = group_name(pod) else {
            return names_another(pod);
        };
        let namespace = &pod.metadata.namespace;
        let Some(group) = self.api.group(namespace, name) else {
            return true;
        };
        let members = self.api.members(namespace, name);
        // Where the others are is judged for whole gangs only.
        self.is_held(group)
            || self.some_are_alone()
            || !is_met(group, members.filter(|pod| counts(pod)))
    }

    /// L1: no gang waits that has room.
    pub(crate) fn gangs_left_waiting(&self, findings: &mut Vec<Finding>) {
        for (namespace, name) in self.api.gangs() {
            let Some(group) = self.api.group(namespace, name) else { continue };
            let members = || self.api.members(namespace, name);
            let waits = |pod: &&Pod| {
                pod.spec.node_name.is_empty()
                    && !is_terminal(pod)
                    && pod.spec.scheduler_name == SCHEDULER_NAME
            };
            let waiting: Vec<&Pod> = members().filter(waits).collect();
            let held = || members().filter(|pod| counts(pod));
            let Some(first) = waiting.first().filter(|_| !is_met(group, held())) else { continue };
            let hindered = |pod: &Pod| {
                pod.metadata.deletion_timestamp.is_some()
                    || !pod.spec.scheduling_gates.is_empty()
                    || pod.spec != first.spec
            };
            let all = held().chain(waiting.iter().copied());
            if waiting.iter().any(|pod| hindered(pod)) || !is_met(group, all) {
                continue;
            }
            let need = missing(group, held());
            // Segments, and what policies ask for, are not judged here.
            let asks = group.spec.topology.as_ref();
            if asks.is_some_and(|t| !t.segments.is_empty())
                || asks.is_none() && self.api.policies_speak_of_topology()
            {
                continue;
            }
            let open = |node: &Node| !self.is_closed(namespace, name, node);
            let slots = match required(group).map(|level| self.api.level(level)) {
                None => self.slots(first, need, open),
                Some(None) => continue,
                Some(Some(keys)) => self.slots_in_one(first, need, &keys, held(), open),
            };
            if slots >= need {
                let what = format!(
                    "{} members of {namespace}/{name} wait, but the {need} that are missing fit",
                    waiting.len()
                );
                findings.push(Finding { invariant: "L1", what });
            }
        }
    }

    /// Whether it matters where members of a group are, relative to each other.
    fn is_held(&self, group: &PodGroup) -> bool {
        let topology = group.spec.topology.as_ref();
        required(group).is_some()
            || topology.is_some_and(|topology| !topology.segments.is_empty())
            || topology.is_none() && self.api.policies_speak_of_topology()
    }

    /// Whether any gang wants a domain for itself.
    fn some_are_alone(&self) -> bool {
        let mut groups = self.api.gangs().filter_map(|(ns, name)| self.api.group(ns, name));
        groups.any(|group| alone_in(group).is_some())
    }

    /// Whether a node is closed to a gang: another has its domain for itself, or others are
    /// in a domain that it wants for itself.
    fn is_closed(&self, namespace: &str, name: &str, node: &Node) -> bool {
        let own = self.api.group(namespace, name).and_then(|group| alone_in(group));
        self.api.gangs().filter(|other| *other != (namespace, name)).any(|(ns, other)| {
            let theirs = self.api.group(ns, other).and_then(|group| alone_in(group));
            let near = |level: &str| {
                let Some(keys) = self.api.level(level) else { return false };
                let here = values(&keys, node);
                let live = self.api.members(ns, other).filter(|pod| !is_terminal(pod));
                here.is_some()
                    && live
                        .filter_map(|pod| self.api.node(&pod.spec.node_name))
                        .any(|there| values(&keys, there) == here)
            };
            own.into_iter().chain(theirs).any(near)
        })
    }

    /// How many pods like this one fit on nodes with one value of labels: where members are
    /// already, if they are anywhere; nowhere, if they are apart.
    fn slots_in_one<'p>(
        &self,
        pod: &Pod,
        most: usize,
        keys: &[&str],
        held: impl Iterator<Item = &'p Pod>,
        open: impl Fn(&Node) -> bool,
    ) -> usize {
        let value = |node: &Node| values(keys, node);
        let nodes = || self.api.nodes().map(|node| &**node);
        let of = |name: &str| nodes().find(|node| node.metadata.name == name).and_then(value);
        let live = held.filter(|pod| !is_terminal(pod));
        let begun: BTreeSet<Vec<String>> = live.filter_map(|pod| of(&pod.spec.node_name)).collect();
        let values: BTreeSet<Vec<String>> = match begun.len() {
            0 => nodes().filter_map(value).collect(),
            1 => begun,
            _ => BTreeSet::new(),
        };
        let inside = |own: &Vec<String>| {
            self.slots(pod, most, |node| open(node) && value(node).as_ref() == Some(own))
        };
        values.iter().map(inside).max().unwrap_or(0)
    }

    /// How many pods like this one fit, node by node; no more than `most` are counted.
    fn slots(&self, pod: &Pod, most: usize, inside: impl Fn(&Node) -> bool) -> usize {
        let mut slots = 0;
        for node in self.api.nodes().filter(|node| inside(node)) {
            let name = node.metadata.name.as_str();
            let here = self.pods_on(name).iter().copied();
            let expected = self.waiting.values().copied().filter(|other| {
                other.status.nominated_node_name == name && priority(other) >= priority(pod)
            });
            let mut room = Room::new(node, here.chain(expected));
            while slots < most && room.fits(pod, self.rules) {
                room.take(pod);
                slots += 1;
            }
        }
        slots
    }
}

/// The values of some labels of a node; none if it lacks one.
fn values(keys: &[&str], node: &Node) -> Option<Vec<String>> {
    keys.iter().map(|key| node.metadata.labels.get(*key).cloned()).collect()
}

/// The level of which a gang wants a domain for itself.
fn alone_in(group: &PodGroup) -> Option<&str> {
    group.spec.topology.as_ref().filter(|topology| topology.exclusive)?.required.as_deref()
}

/// The level of which members must be in one domain.
fn required(group: &PodGroup) -> Option<&str> {
    group.spec.topology.as_ref()?.required.as_deref()
}

/// How many members a group still needs, of whatever role.
fn missing<'a>(group: &PodGroup, held: impl Iterator<Item = &'a Pod>) -> usize {
    let mut roles: Vec<i32> = group.spec.roles.iter().map(|role| role.min_member).collect();
    let mut all = group.spec.min_member();
    for pod in held {
        all -= 1;
        if let Some(role) = role_of(group, pod) {
            roles[role] -= 1;
        }
    }
    let roles: i32 = roles.into_iter().map(|left| left.max(0)).sum();
    usize::try_from(all.max(roles)).unwrap_or(0)
}
