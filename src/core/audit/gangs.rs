//! Gangs as the checker knows them, and S2: none of a gang is bound before its minimum has
//! room and is ready.
//!
//! Owns its own reading of pod groups and of who is in them. What a group asks for is
//! judged as of the inputs seen.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;

use super::Audit;
use super::pods::{Place, Pod, Stage};
use super::topology::{Asks, Held};
use super::world::{World, key_of};
use crate::io::{Kind, Object, ObjectKey, Token};
use crate::{Decision, Outcome};

/// What a group asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    min: usize,
    /// Minimum and labels of each role; only plain selectors are judged.
    roles: Vec<(usize, k8s::LabelSelector)>,
    /// Its pods go one by one.
    alone: bool,
    /// Where members shall be, relative to each other.
    topology: Asks,
    /// The same of each role.
    role_topologies: Vec<Asks>,
    seen: u64,
}

/// A member that has ended well: the list in which it was last seen, and its labels.
type Ended = (u64, BTreeMap<String, String>);

/// Groups, their members that have ended well, and what they wait for.
#[derive(Default)]
pub(super) struct Groups {
    /// By API and name.
    groups: BTreeMap<String, Group>,
    /// UIDs and labels, by group.
    succeeded: BTreeMap<String, BTreeMap<String, Ended>>,
    /// PreBind work on its way: whose, by UID. A pod by an old name has no part in it.
    pre_binds: BTreeMap<Token, String>,
    /// Names and UIDs of members that wait to be bound together, by group.
    rounds: BTreeMap<String, BTreeMap<String, String>>,
}

fn count(number: i32) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// The group that a pod names, as the checker calls it.
pub(super) fn group_of(wire: &k8s::Pod) -> Option<String> {
    let label = |key: &str| wire.metadata.labels.get(key).filter(|name| !name.is_empty());
    let native = || wire.spec.scheduling_group.as_ref()?.pod_group_name.as_ref();
    let named = [
        ("muster", label("muster.dev/pod-group")),
        ("native", native().filter(|name| !name.is_empty())),
        ("coscheduling", label("scheduling.x-k8s.io/pod-group")),
    ];
    let (api, name) = named.into_iter().find_map(|(api, name)| Some((api, name?)))?;
    Some(format!("{api}:{}", key_of(&wire.metadata.namespace, name)))
}

const fn api_of(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::PodGroup | Kind::EndedMember => Some("muster"),
        Kind::NativePodGroup | Kind::EndedNative => Some("native"),
        Kind::CoschedulingPodGroup | Kind::EndedCoscheduled => Some("coscheduling"),
        _ => None,
    }
}

impl Group {
    fn of(object: &Object, seen: u64) -> Option<Self> {
        let one = Self { seen, ..Self::default() };
        Some(match object {
            Object::PodGroup(group) => {
                let spec = &group.spec;
                let roles: Vec<_> =
                    spec.roles.iter().map(|r| (count(r.min_member), r.selector.clone())).collect();
                let sum: usize = roles.iter().map(|(min, _)| *min).sum();
                let topology = Asks::of(spec.topology.as_ref());
                let of_roles = spec.roles.iter().map(|role| Asks::of(role.topology.as_ref()));
                let role_topologies = of_roles.collect();
                let min = spec.min_member.map_or(sum, count).max(1);
                Self { min, roles, topology, role_topologies, ..one }
            }
            Object::NativePodGroup(group) => {
                let topology = group.spec.scheduling_constraints.topology.first();
                let required = topology.map(|t| t.key.clone()).filter(|key| !key.is_empty());
                let topology = Asks { required, is_label: true, ..Asks::default() };
                match &group.spec.scheduling_policy.gang {
                    Some(gang) => Self { min: count(gang.min_count).max(1), topology, ..one },
                    None => Self { alone: true, topology, ..one },
                }
            }
            Object::CoschedulingPodGroup(group) => {
                Self { min: count(group.spec.min_member).max(1), ..one }
            }
            _ => return None,
        })
    }

    /// The first role that labels match, by plain selectors.
    fn role_of(&self, labels: &BTreeMap<String, String>) -> Option<usize> {
        self.roles.iter().position(|(_, selector)| {
            selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        })
    }

    /// Whether members with these labels are enough; in doubt they are.
    fn is_met<'a>(&self, members: impl Iterator<Item = &'a BTreeMap<String, String>>) -> bool {
        let mut roles = vec![0; self.roles.len()];
        let mut all = 0;
        let mut doubt = false;
        for labels in members {
            all += 1;
            let role = self.roles.iter().position(|(_, selector)| {
                doubt |= !selector.match_expressions.is_empty();
                selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            });
            if let Some(role) = role {
                roles[role] += 1;
            }
        }
        let short = self.roles.iter().zip(&roles).any(|((min, _), has)| has < min);
        all >= self.min && (doubt || !short)
    }
}

impl Groups {
    pub(super) fn upsert(&mut self, object: &Object, seen: u64) {
        let (Some(api), meta) = (api_of(object.kind()), object.metadata()) else { return };
        if let Some(group) = Group::of(object, seen) {
            let key = format!("{api}:{}", key_of(&meta.namespace, &meta.name));
            self.groups.insert(key, group);
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, key: &ObjectKey) {
        if let Some(api) = api_of(kind) {
            self.groups.remove(&format!("{api}:{}", key_of(&key.namespace, &key.name)));
        }
    }

    pub(super) fn ended(&mut self, wire: &k8s::Pod, ours: bool, seen: u64) {
        let Some(group) = group_of(wire) else { return };
        let uid = wire.metadata.uid.clone();
        if ours && wire.status.phase == "Succeeded" {
            let ended = self.succeeded.entry(group).or_default();
            ended.insert(uid, (seen, wire.metadata.labels.clone()));
        } else {
            self.ended_gone(&uid);
        }
    }

    pub(super) fn has_succeeded(&self, uid: &str) -> bool {
        self.succeeded.values().any(|ended| ended.contains_key(uid))
    }

    pub(super) fn ended_gone(&mut self, uid: &str) {
        self.succeeded.values_mut().for_each(|ended| drop(ended.remove(uid)));
    }

    pub(super) fn relist_done(&mut self, kind: Kind, seen: u64) {
        let Some(api) = api_of(kind).map(|api| format!("{api}:")) else { return };
        if kind.is_ended() {
            let own = self.succeeded.iter_mut().filter(|(key, _)| key.starts_with(&api));
            own.for_each(|(_, ended)| ended.retain(|_, (at, _)| *at >= seen));
        } else {
            self.groups.retain(|key, group| !key.starts_with(&api) || group.seen >= seen);
        }
    }

    /// What a member with these labels is held to, and together with whom.
    pub(super) fn asks<'a>(
        &'a self,
        group: &str,
        labels: &BTreeMap<String, String>,
    ) -> Vec<Held<'a>> {
        let Some(group) = self.groups.get(group) else { return Vec::new() };
        let mut asks: Vec<Held<'a>> = Vec::new();
        asks.push((&group.topology, Box::new(|_| true)));
        let doubt = group.roles.iter().any(|(_, s)| !s.match_expressions.is_empty());
        if let Some(role) = group.role_of(labels).filter(|_| !doubt)
            && let Some(own) = group.role_topologies.get(role)
        {
            asks.push((own, Box::new(move |other| group.role_of(other) == Some(role))));
        }
        asks
    }

    /// Whether it matters where members of a group are, relative to each other or to other
    /// gangs. Of a group that does not exist nobody can tell.
    pub(super) fn has_topology(&self, group: &str) -> bool {
        let asks = |group: &Group| {
            group.topology.is_any() || group.role_topologies.iter().any(Asks::is_any)
        };
        let alone = |group: &Group| {
            group.topology.exclusive || group.role_topologies.iter().any(|asks| asks.exclusive)
        };
        self.groups.get(group).is_none_or(asks) || self.groups.values().any(alone)
    }

    /// Whether a group says nothing of topology, and leaves it to policies.
    pub(super) fn leaves_topology(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| !group.topology.is_any() && !group.alone)
    }

    /// Whether the pods of a group go one by one: it is no gang.
    pub(super) fn go_alone(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.alone)
    }

    /// Whether members of a group go together.
    pub(super) fn is_gang(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| !group.alone)
    }

    /// How many members a group lacks that has so many, ended ones aside; none if roles or
    /// domains make that more than a number.
    pub(super) fn missing(&self, group: &str, held: usize) -> Option<usize> {
        let spec = self.groups.get(group).filter(|spec| spec.roles.is_empty())?;
        let ended = self.succeeded.get(group).map_or(0, BTreeMap::len);
        let near = spec.alone || spec.topology.is_any();
        (!near).then(|| spec.min.saturating_sub(held + ended)).filter(|missing| *missing > 0)
    }

    /// Whether members of a group that have ended, and these, are enough.
    pub(super) fn is_met<'a>(
        &'a self,
        group: &str,
        members: impl Iterator<Item = (&'a str, &'a BTreeMap<String, String>)>,
    ) -> Result<(), String> {
        let Some(spec) = self.groups.get(group) else {
            return Err(format!("{group} does not exist"));
        };
        if spec.alone {
            return Ok(());
        }
        let ended: BTreeMap<&str, &BTreeMap<String, String>> = self
            .succeeded
            .get(group)
            .into_iter()
            .flatten()
            .map(|(uid, (_, labels))| (uid.as_str(), labels))
            .collect();
        let all: BTreeMap<&str, &BTreeMap<String, String>> =
            members.chain(ended.iter().map(|(uid, labels)| (*uid, *labels))).collect();
        let has = all.len();
        if spec.is_met(all.into_values()) {
            return Ok(());
        }
        Err(format!("{group} needs {} members and has {has}", spec.min))
    }
}

impl World {
    /// Members of a group that have room for good or are on their way.
    pub(super) fn members<'a>(
        &'a self,
        group: &'a str,
        counts: impl Fn(&Pod) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a str, &'a Pod)> {
        let own = move |pod: &&'a Pod| {
            pod.gang.as_deref() == Some(group) && pod.profile.is_some() && !pod.deleting
        };
        let pods = self.pods.iter().map(|(key, pod)| (key.as_str(), pod));
        pods.filter(move |(_, pod)| own(pod) && counts(pod))
    }
}

fn has_room(pod: &Pod) -> bool {
    !matches!(pod.place, Place::Pending)
}

fn waits_for_others(pod: &Pod) -> bool {
    pod.stage() == Some(Stage::Gathered)
}

/// Has room, and waits for nobody.
fn is_through(pod: &Pod) -> bool {
    has_room(pod) && !waits_for_others(pod)
}

impl Audit {
    /// A gang was tried.
    pub(super) fn see_gang(&mut self, decision: &Decision) {
        let (Outcome::Gathered { members } | Outcome::Accumulating { members }) = &decision.outcome
        else {
            if decision.message.as_deref().unwrap_or_default().is_empty() {
                let what = format!("{:?} was not placed, and nothing says why", decision.gang);
                self.violation("O1", what);
            }
            return;
        };
        let mut groups = BTreeSet::new();
        for (member, node) in members {
            let name = super::steps::key(member);
            let Some(pod) = self.world.find(member) else {
                self.violation("S6", format!("{name} was seated, but it is gone"));
                continue;
            };
            let wrong = if pod.profile.is_none() {
                Some("asks for another scheduler")
            } else if pod.gated {
                Some("is gated")
            } else if pod.deleting {
                Some("is being deleted")
            } else if has_room(pod) {
                Some("has a node")
            } else if pod.gang.is_none() {
                Some("is in no gang")
            } else {
                None
            };
            groups.extend(pod.gang.clone());
            if let Some(wrong) = wrong {
                self.violation("S6", format!("{name} was seated, but it {wrong}"));
                continue;
            }
            self.world.edit(&name, |p| {
                p.decided = decision.version;
                (p.tried, p.called, p.asking, p.held) = (true, false, false, false);
            });
            self.chosen(&name, node, Stage::Gathered);
        }
        if matches!(decision.outcome, Outcome::Accumulating { .. }) {
            return;
        }
        if groups.len() > 1 {
            self.violation("S2", format!("a gang of members of {groups:?}"));
        }
        for group in groups {
            self.quorum(&group, "was given room", has_room);
            let round = self.world.members(&group, waits_for_others);
            let round = round.map(|(name, pod)| (name.to_owned(), pod.uid.clone())).collect();
            self.groups.rounds.insert(group, round);
        }
    }

    /// Whoever waits to be bound waits for members that are still there.
    pub(super) fn rounds_are_whole(&mut self) {
        let mut wrong = Vec::new();
        let pods = &self.world.pods;
        self.groups.rounds.retain(|group, round| {
            let is = |(name, uid): (&String, &String), what: fn(&Pod) -> bool| {
                pods.get(name).is_some_and(|pod| pod.uid == *uid && what(pod))
            };
            if !round.iter().any(|member| is(member, waits_for_others)) {
                return false;
            }
            let lost = round.iter().find(|member| !is(*member, has_room));
            wrong.extend(lost.map(|(lost, _)| format!("{group} waits for {lost}, which is gone")));
            lost.is_none()
        });
        wrong.into_iter().for_each(|what| self.violation("S2", what));
    }

    fn quorum(&mut self, group: &str, what: &str, counts: impl Fn(&Pod) -> bool) {
        let members = self.world.members(group, counts);
        let members = members.map(|(_, pod)| (pod.uid.as_str(), &pod.labels));
        if let Err(why) = self.groups.is_met(group, members) {
            self.violation("S2", format!("{what}, but {why}"));
        }
    }

    /// A member of a gang is tried by itself: the gang has what it needs.
    pub(super) fn goes_alone(&mut self, name: &str) {
        let group = self.world.pods.get(name).and_then(|pod| pod.gang.clone());
        if let Some(group) = group {
            self.quorum(&group, &format!("{name} goes alone"), is_through);
        }
    }

    /// A member that waited for its gang is bound: all have room and are ready.
    pub(super) fn bound_with_gang(&mut self, name: &str) {
        let Some(group) = self.world.pods.get(name).and_then(|pod| pod.gang.clone()) else {
            return self.violation("S2", format!("{name} is in no gang"));
        };
        self.quorum(&group, &format!("{name} is bound"), has_room);
        let busy = self.groups.pre_binds.values();
        let busy: BTreeSet<&str> = busy.map(String::as_str).collect();
        // Who was bound by somebody else meanwhile is waited for no more.
        let busy =
            self.world.members(&group, |pod| waits_for_others(pod) && busy.contains(&*pod.uid));
        let busy = busy.map(|(other, _)| other.to_owned()).next();
        if let Some(busy) = busy {
            let what = format!("{name} is bound while PreBind of {busy} is under way");
            self.violation("S2", what);
        }
        let held = |pod: &Pod| pod.held && pod.stage() == Some(Stage::Gathered);
        let other = self.world.members(&group, held).next().map(|(name, _)| name.to_owned());
        if let Some(other) = other {
            let what = format!("{name} is bound while Permit holds {other}");
            self.violation("S2", what);
        }
    }

    /// PreBind of a member asks for outside work.
    pub(super) fn pre_bind_asked(&mut self, token: Token, name: &str) {
        if let Some(pod) = self.world.pods.get(name) {
            self.groups.pre_binds.insert(token, pod.uid.clone());
        }
    }

    /// A pod begins anew: what was asked for an attempt before has no part in this one,
    /// however that one ended.
    pub(super) fn new_attempt(&mut self, uid: &str) {
        self.groups.pre_binds.retain(|_, pod| pod != uid);
    }

    pub(super) fn pre_bind_answered(&mut self, token: Token) {
        self.groups.pre_binds.remove(&token);
    }

    /// A gang gave back the room of all members that waited for each other.
    pub(super) fn gang_gave_up(&mut self, group: &str) {
        let waiting = self.world.members(group, waits_for_others);
        let waiting: Vec<(String, String)> =
            waiting.map(|(name, pod)| (name.to_owned(), pod.uid.clone())).collect();
        for (name, uid) in waiting {
            self.groups.pre_binds.retain(|_, pod| *pod != uid);
            self.world.take_off(&name);
            self.world.edit(&name, |p| p.message = None);
        }
    }
}
