//! What the board holds, and what follows from it. No I/O, no clock, no lock.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use muster_api::k8s::{Node, Pod, Time};
#[cfg(test)]
use muster_api::muster::PodGroup;
use muster_api::muster::{ClusterTopology, PodGroupSpec, PodGroupStatus};
use muster_core::gang::Api;
use muster_core::gang::status::{Facts, Says, status};
use tokio::time::Instant;

use super::Note;
use super::board::{Due, Key, Outcome, Write};
use super::domains::Domains;
use super::forms::{Form, Seen};
use super::ground::Ground;
use super::nodes::Nodes;
use super::pace::{GATHER, Pace};
use super::roll::{Roll, Side};
use super::topologies::{Topologies, TopologyWrite};

/// A group as the API has it.
#[derive(Debug)]
struct Object {
    uid: Box<str>,
    version: Box<str>,
    generation: Option<i64>,
    spec: PodGroupSpec,
    /// The status in our own form: what is not in the API's is remembered.
    status: PodGroupStatus,
    form: Form,
    list: u32,
}

/// What is known of a group: it may have members before it exists.
#[derive(Debug, Default)]
struct Group {
    object: Option<Object>,
    roll: Roll,
    says: Says,
    pace: Pace,
    /// When it will be looked at.
    wake: Option<Instant>,
    /// Since when there may be something to write.
    since: Option<Instant>,
    flying: bool,
    /// A member is or was ours to schedule.
    ours: bool,
    /// How long members may take to start, if the group does not say.
    start: Option<i32>,
}

/// How far the list of a watch has come.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    number: u32,
    complete: bool,
}

/// Namespace and name of a pod.
type PodKey = (Box<str>, Box<str>);
/// The group that a pod names.
type Named = (Api, Box<str>);

#[derive(Debug, Default)]
pub(super) struct State {
    groups: HashMap<Key, Group>,
    /// The group of each member: labels can change.
    members: HashMap<PodKey, Named>,
    schedulers: Vec<Arc<str>>,
    nodes: Nodes,
    ground: Ground,
    topologies: Topologies,
    group_lists: [List; Api::COUNT],
    live_list: List,
    ended_lists: [List; Api::COUNT],
    /// Groups by the time at which they are looked at.
    agenda: BTreeSet<(Instant, Key)>,
}

impl State {
    pub(super) fn new(schedulers: Vec<Arc<str>>) -> Self {
        Self { schedulers, ..Self::default() }
    }

    /// Only a part of the nodes is seen here.
    pub(super) fn see_only_a_part(&mut self) {
        self.topologies.see_only_a_part();
    }

    /// The first appointment.
    pub(super) fn first(&self) -> Option<Instant> {
        let group = self.agenda.first().filter(|_| self.is_complete()).map(|(at, _)| *at);
        let topology = self.topologies.first(self.sees_nodes());
        [group, topology].into_iter().flatten().min()
    }

    /// Whether the watches of nodes and pods have shown all there is.
    fn sees_nodes(&self) -> bool {
        self.live_list.complete && self.nodes.listed()
    }

    /// Groups and members that are held.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.members.len())
    }

    /// The tree of a topology.
    #[cfg(test)]
    pub(super) fn tree(&self, topology: &str) -> Option<&crate::topology::Tree> {
        self.topologies.tree(topology)
    }

    /// Labels, pods with GPUs and nodes that are held.
    #[cfg(test)]
    pub(super) fn ground_sizes(&self) -> (usize, usize, usize) {
        self.ground.sizes()
    }

    /// Whether every watch has shown all there is.
    fn is_complete(&self) -> bool {
        let mut any = false;
        for api in Api::ALL {
            let (groups, ended) = (self.group_lists[api as usize], self.ended_lists[api as usize]);
            if groups.number == 0 {
                continue; // not served
            }
            any = true;
            if !groups.complete || !ended.complete {
                return false;
            }
        }
        any && self.sees_nodes()
    }

    #[cfg(test)]
    pub(super) fn note_group(&mut self, note: Note<&PodGroup>, now: Instant) {
        self.note(Api::Muster, note.map(Seen::muster), now);
    }

    pub(super) fn note(&mut self, api: Api, note: Note<Seen<'_>>, now: Instant) {
        let lists = &mut self.group_lists[api as usize];
        match note {
            Note::Listing => lists.number += 1,
            Note::Changed(seen) => {
                let list = lists.number;
                self.group_seen(api, seen, list, now);
            }
            Note::Gone(seen) => {
                let key = Key::of(api, &seen.meta.namespace, &seen.meta.name);
                self.group_gone(&key, &seen.meta.uid);
            }
            Note::Listed => {
                lists.complete = true;
                let list = lists.number;
                let stale = |o: &&Object| o.list != list;
                let groups = self.groups.iter().filter(|(key, _)| key.api == api);
                let gone: Vec<(Key, Box<str>)> = groups
                    .filter_map(|(key, g)| Some((key, g.object.as_ref().filter(stale)?)))
                    .map(|(key, object)| (key.clone(), object.uid.clone()))
                    .collect();
                for (key, uid) in gone {
                    self.group_gone(&key, &uid);
                }
            }
        }
    }

    fn group_seen(&mut self, api: Api, seen: Seen<'_>, list: u32, now: Instant) {
        let key = Key::of(api, &seen.meta.namespace, &seen.meta.name);
        let group = self.groups.entry(key.clone()).or_default();
        let known = group.object.take().filter(|o| *o.uid == seen.meta.uid);
        if known.is_none() {
            group.pace = Pace::default();
            group.says = Says::default();
        }
        let status = match known {
            // A foreign form does not hold all of it.
            Some(known) if api != Api::Muster => known.status,
            _ => seen.form.past(),
        };
        group.object = Some(Object {
            uid: seen.meta.uid.as_str().into(),
            version: seen.meta.resource_version.as_str().into(),
            generation: seen.meta.generation,
            spec: seen.spec,
            status,
            form: seen.form,
            list,
        });
        self.look_at(&key, now + GATHER, now);
    }

    fn group_gone(&mut self, key: &Key, uid: &str) {
        if let Some(group) = self.groups.get_mut(key)
            && group.object.as_ref().is_some_and(|o| *o.uid == *uid)
        {
            group.object = None;
            group.says = Says::default();
            group.pace = Pace::default();
            self.forget_if_empty(key);
        }
    }

    /// `true` if the controller should look at once.
    pub(super) fn note_node(&mut self, note: Note<&Node>, now: Instant) -> bool {
        self.ground.note_node(note);
        self.topologies.follow(&mut self.ground, now);
        self.nodes.note(note)
    }

    pub(super) fn note_topology(&mut self, note: Note<&ClusterTopology>, now: Instant) {
        if !self.topologies.note(note, &self.ground, now) {
            return;
        }
        // Levels have another meaning now.
        let asks = |o: &Object| {
            o.spec.topology.is_some() || o.spec.roles.iter().any(|r| r.topology.is_some())
        };
        let groups = self.groups.iter().filter(|(_, g)| g.object.as_ref().is_some_and(asks));
        let keys: Vec<Key> = groups.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.look_at(&key, now + GATHER, now);
        }
    }

    pub(super) fn note_pod(&mut self, note: Note<&Pod>, side: Side, now: Instant) {
        if side == Side::Live {
            self.ground.note_pod(note);
            self.topologies.follow(&mut self.ground, now);
        }
        self.note_member(note, side, Api::Muster, now);
    }

    /// The watch of pods that have not ended speaks of all; of those that have, each
    /// API has a watch.
    pub(super) fn note_member(&mut self, note: Note<&Pod>, side: Side, api: Api, now: Instant) {
        let list = match side {
            Side::Live => &mut self.live_list,
            Side::Ended => &mut self.ended_lists[api as usize],
        };
        match note {
            Note::Listing => list.number += 1,
            Note::Changed(pod) => {
                let number = list.number;
                let named = Api::of(pod);
                if side == Side::Live || named.is_some_and(|(of, _)| of == api) {
                    self.pod_seen(pod, named, side, number, now);
                }
            }
            Note::Gone(pod) => {
                let meta = &pod.metadata;
                let Some((of, group)) = Api::of(pod) else { return };
                let key = Key::of(of, &meta.namespace, group);
                if let Some(group) = self.groups.get_mut(&key)
                    && group.roll.gone(&meta.name, &meta.uid, side, now)
                {
                    forget_members(&mut self.members, &key, group.roll.take_removed());
                    self.look_at(&key, now + GATHER, now);
                }
            }
            Note::Listed => {
                list.complete = true;
                let number = list.number;
                let mut changed = Vec::new();
                let listed = |key: &Key| side == Side::Live || key.api == api;
                for (key, group) in self.groups.iter_mut().filter(|(key, _)| listed(key)) {
                    if group.roll.listed(side, number, now) {
                        forget_members(&mut self.members, key, group.roll.take_removed());
                        changed.push(key.clone());
                    }
                }
                for key in changed {
                    self.look_at(&key, now + GATHER, now);
                }
            }
        }
    }

    fn pod_seen(
        &mut self,
        pod: &Pod,
        named: Option<(Api, &str)>,
        side: Side,
        list: u32,
        now: Instant,
    ) {
        let meta = &pod.metadata;
        if named.is_none() && self.members.is_empty() {
            return;
        }
        let pod_key: PodKey = (meta.namespace.as_str().into(), meta.name.as_str().into());
        if let Some((api, name)) = self.members.get(&pod_key)
            && named.is_none_or(|(of, group)| of != *api || *group != **name)
        {
            let before = Key { api: *api, namespace: pod_key.0.clone(), name: name.clone() };
            self.members.remove(&pod_key);
            if let Some(group) = self.groups.get_mut(&before)
                && group.roll.remove(&meta.name)
            {
                self.look_at(&before, now + GATHER, now);
            }
        }
        let Some((api, name)) = named else { return };
        let key = Key::of(api, &meta.namespace, name);
        let ours = self.schedulers.iter().any(|s| **s == *pod.spec.scheduler_name);
        let group = self.groups.entry(key.clone()).or_default();
        group.ours |= ours;
        let changed = group.roll.seen(pod, side, list);
        self.members.entry(pod_key).or_insert_with(|| (api, name.into()));
        if changed {
            self.look_at(&key, now + GATHER, now);
        }
    }

    pub(super) fn say(&mut self, key: &Key, says: Says, now: Instant) {
        if let Some(group) = self.groups.get_mut(key)
            && group.says != says
        {
            group.says = says;
            self.look_at(key, now + GATHER, now);
        }
    }

    /// What policies say of how long members may take to start, by group.
    pub(super) fn set_starts(&mut self, starts: &BTreeMap<Key, i32>, now: Instant) {
        let mut changed = Vec::new();
        for (key, group) in &mut self.groups {
            let start = starts.get(key).copied();
            if group.start != start {
                group.start = start;
                changed.push(key.clone());
            }
        }
        for key in changed {
            self.look_at(&key, now + GATHER, now);
        }
    }

    /// Puts a group on the agenda, unless it is on it for an earlier time.
    fn look_at(&mut self, key: &Key, at: Instant, since: Instant) {
        let Some(group) = self.groups.get_mut(key) else { return };
        group.since.get_or_insert(since);
        if group.wake.is_some_and(|wake| wake <= at) {
            return;
        }
        if let Some(wake) = group.wake.replace(at) {
            self.agenda.remove(&(wake, key.clone()));
        }
        self.agenda.insert((at, key.clone()));
    }

    pub(super) fn look_at_all(&mut self, now: Instant) {
        self.topologies.look_at_all(now);
        let keys: Vec<Key> = self.groups.keys().cloned().collect();
        for key in keys {
            self.look_at(&key, now, now);
        }
    }

    /// What is to be written now.
    pub(super) fn due(&mut self, now: Instant, time: Time, room: usize) -> Due {
        let topologies =
            if self.sees_nodes() { self.topologies.due(now, time, room) } else { Vec::new() };
        let room = room - topologies.len();
        let writes = if self.is_complete() { self.due_groups(now, time, room) } else { Vec::new() };
        Due { writes, topologies, wake: if room == 0 { None } else { self.first() } }
    }

    fn due_groups(&mut self, now: Instant, time: Time, room: usize) -> Vec<Write> {
        self.look_at_changed_nodes(now);
        let mut writes = Vec::new();
        let levels = self.topologies.levels();
        let levels: Vec<Vec<_>> = levels.into_iter().map(<[_]>::to_vec).collect();
        let levels: Vec<&[_]> = levels.iter().map(Vec::as_slice).collect();
        while writes.len() < room {
            match self.agenda.first() {
                Some((at, _)) if *at <= now => {}
                _ => break,
            }
            let Some((_, key)) = self.agenda.pop_first() else { break };
            let domains = Domains { ground: &self.ground, nodes: &self.nodes, levels: &levels };
            let Some(group) = self.groups.get_mut(&key) else { continue };
            group.wake = None;
            let (write, next) = group.look(&key, &domains, now, time);
            writes.extend(write);
            forget_members(&mut self.members, &key, group.roll.take_removed());
            if let Some(next) = next {
                let since = group.since;
                self.look_at(&key, next, now);
                // An appointment is no change.
                if let Some(group) = self.groups.get_mut(&key) {
                    group.since = since;
                }
            }
            self.forget_if_empty(&key);
        }
        writes
    }

    /// What became of the write of a topology's status; returns how often it has failed in a
    /// row.
    pub(super) fn topology_settled(
        &mut self,
        write: TopologyWrite,
        outcome: Outcome,
        now: Instant,
    ) -> u32 {
        self.topologies.settled(write, outcome, now)
    }

    fn look_at_changed_nodes(&mut self, now: Instant) {
        let changed = self.nodes.take_changed();
        if changed.is_empty() {
            return;
        }
        let on = self.groups.iter().filter(|(_, g)| g.roll.is_on(&changed));
        let keys: Vec<Key> = on.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.look_at(&key, now, now);
        }
    }

    fn forget_if_empty(&mut self, key: &Key) {
        let Some(group) = self.groups.get(key) else { return };
        if group.object.is_none() && group.roll.is_empty() && !group.flying {
            if let Some(wake) = group.wake {
                self.agenda.remove(&(wake, key.clone()));
            }
            self.groups.remove(key);
        }
    }

    /// What became of a write; returns how often it has failed in a row.
    pub(super) fn settled(&mut self, write: Write, outcome: Outcome, now: Instant) -> u32 {
        let Some(group) = self.groups.get_mut(&write.key) else { return 0 };
        group.flying = false;
        let same = group.object.as_mut().filter(|o| o.uid == write.uid);
        let (next, since) = match (outcome, same) {
            (Outcome::Written(version), same) => {
                group.pace.wrote(write.substance, now);
                if let Some(object) = same
                    && object.version == write.version
                {
                    // Ahead of the watch; not if the watch was faster.
                    object.version = version;
                    object.status = write.status;
                    object.form = write.form;
                }
                (now + GATHER, now)
            }
            (Outcome::Conflict, _) => (group.pace.conflicted(now), write.since),
            (_, _) => (group.pace.failed(now), write.since),
        };
        let failures = group.pace.failures();
        self.look_at(&write.key, next, since);
        self.forget_if_empty(&write.key);
        failures
    }
}

/// Members that are no more have no group.
fn forget_members(members: &mut HashMap<PodKey, Named>, group: &Key, names: Vec<Box<str>>) {
    for name in names {
        let pod = (group.namespace.clone(), name);
        if members.get(&pod).is_some_and(|of| of.0 == group.api && of.1 == group.name) {
            members.remove(&pod);
        }
    }
}

impl Group {
    /// Works the status out: a write if it is time for one, and when to look again.
    fn look(
        &mut self,
        key: &Key,
        domains: &Domains<'_>,
        now: Instant,
        time: Time,
    ) -> (Option<Write>, Option<Instant>) {
        let leaves = self.roll.settle(now);
        let ours = key.api == Api::Muster || self.ours;
        let Some(object) = self.object.as_mut().filter(|_| !self.flying && ours) else {
            return (None, leaves);
        };
        let mut previous = Cow::Borrowed(&object.status);
        let asks = object.spec.topology.is_some() || !object.spec.roles.is_empty();
        let said = asks
            .then(|| domains.said(&object.spec, self.roll.members(), previous.to_mut(), &self.says))
            .flatten();
        let mut spec = Cow::Borrowed(&object.spec);
        if spec.start_timeout_seconds.is_none() && self.start.is_some() {
            spec.to_mut().start_timeout_seconds = self.start;
        }
        let facts = Facts {
            spec: &spec,
            generation: object.generation,
            says: said.as_ref().unwrap_or(&self.says),
            previous: &previous,
            now: time,
        };
        let made = status(&facts, self.roll.members(), |node| domains.nodes.lost(node));
        let deadline = made.due.map(|due| {
            let micros = u64::try_from(due.0.saturating_sub(time.0)).unwrap_or(0);
            now + Duration::from_micros(micros)
        });
        let next = [leaves, deadline].into_iter().flatten().min();
        let form = object.form.follow(&made.status);
        if form == object.form {
            object.status = made.status;
            self.since = None;
            return (None, next);
        }
        let substance = object.form.differs_in_substance(&form);
        let allowed = self.pace.allowed(substance, now);
        if allowed > now {
            return (None, Some(next.map_or(allowed, |next| next.min(allowed))));
        }
        self.flying = true;
        let write = Write {
            key: key.clone(),
            uid: object.uid.clone(),
            version: object.version.clone(),
            status: made.status,
            form,
            since: self.since.take().unwrap_or(now),
            substance,
        };
        (Some(write), next)
    }
}
