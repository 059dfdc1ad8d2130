//! What the board holds, and what follows from it. No I/O, no clock, no lock.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use muster_api::k8s::{Node, Pod, Time};
use muster_api::muster::{PodGroup, PodGroupSpec, PodGroupStatus, labels};
use muster_core::gang::status::{Facts, Says, status};
use tokio::time::Instant;

use super::Note;
use super::board::{Due, Key, Outcome, Write};
use super::nodes::Nodes;
use super::pace::{GATHER, Pace, differs_in_substance};
use super::roll::{Roll, Side};

/// A group as the API has it.
#[derive(Debug)]
struct Object {
    uid: Box<str>,
    version: Box<str>,
    generation: Option<i64>,
    spec: PodGroupSpec,
    status: PodGroupStatus,
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
}

/// How far the list of a watch has come.
#[derive(Clone, Copy, Debug, Default)]
struct List {
    number: u32,
    complete: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    groups: HashMap<Key, Group>,
    /// The group of each member: labels can change.
    members: HashMap<Key, Box<str>>,
    nodes: Nodes,
    group_list: List,
    live_list: List,
    ended_list: List,
    /// Groups by the time at which they are looked at.
    agenda: BTreeSet<(Instant, Key)>,
}

impl State {
    /// The first appointment.
    pub(super) fn first(&self) -> Option<Instant> {
        self.agenda.first().filter(|_| self.is_complete()).map(|(at, _)| *at)
    }

    /// Groups and members that are held.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.members.len())
    }

    /// Whether every watch has shown all there is.
    fn is_complete(&self) -> bool {
        let lists = [self.group_list, self.live_list, self.ended_list];
        lists.iter().all(|l| l.complete) && self.nodes.listed()
    }

    pub(super) fn note_group(&mut self, note: Note<&PodGroup>, now: Instant) {
        match note {
            Note::Listing => self.group_list.number += 1,
            Note::Changed(group) => {
                let key = Key::of(&group.metadata.namespace, &group.metadata.name);
                let list = self.group_list.number;
                let entry = self.groups.entry(key.clone()).or_default();
                if entry.object.as_ref().is_some_and(|o| *o.uid != group.metadata.uid) {
                    entry.pace = Pace::default();
                    entry.says = Says::default();
                }
                entry.object = Some(Object {
                    uid: group.metadata.uid.as_str().into(),
                    version: group.metadata.resource_version.as_str().into(),
                    generation: group.metadata.generation,
                    spec: group.spec.clone(),
                    status: group.status.clone(),
                    list,
                });
                self.look_at(&key, now + GATHER, now);
            }
            Note::Gone(group) => {
                let key = Key::of(&group.metadata.namespace, &group.metadata.name);
                self.group_gone(&key, &group.metadata.uid);
            }
            Note::Listed => {
                let list = self.group_list.number;
                let stale = |g: &Group| g.object.as_ref().filter(|o| o.list != list).is_some();
                let gone: Vec<Key> =
                    self.groups.iter().filter(|(_, g)| stale(g)).map(|(k, _)| k.clone()).collect();
                for key in gone {
                    let object = self.groups.get(&key).and_then(|g| g.object.as_ref());
                    let uid = object.map(|o| o.uid.clone()).unwrap_or_default();
                    self.group_gone(&key, &uid);
                }
                self.group_list.complete = true;
            }
        }
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
    pub(super) fn note_node(&mut self, note: Note<&Node>) -> bool {
        self.nodes.note(note)
    }

    pub(super) fn note_pod(&mut self, note: Note<&Pod>, side: Side, now: Instant) {
        let list = match side {
            Side::Live => &mut self.live_list,
            Side::Ended => &mut self.ended_list,
        };
        match note {
            Note::Listing => list.number += 1,
            Note::Changed(pod) => {
                let number = list.number;
                self.pod_seen(pod, side, number, now);
            }
            Note::Gone(pod) => {
                let meta = &pod.metadata;
                let Some(group) = meta.labels.get(labels::POD_GROUP) else { return };
                let key = Key::of(&meta.namespace, group);
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
                for (key, group) in &mut self.groups {
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

    fn pod_seen(&mut self, pod: &Pod, side: Side, list: u32, now: Instant) {
        let meta = &pod.metadata;
        let label = meta.labels.get(labels::POD_GROUP).filter(|name| !name.is_empty());
        if label.is_none() && self.members.is_empty() {
            return;
        }
        let pod_key = Key::of(&meta.namespace, &meta.name);
        if let Some(before) = self.members.get(&pod_key)
            && label.is_none_or(|name| **name != **before)
        {
            let before = Key { namespace: pod_key.namespace.clone(), name: before.clone() };
            self.members.remove(&pod_key);
            if let Some(group) = self.groups.get_mut(&before)
                && group.roll.remove(&meta.name)
            {
                self.look_at(&before, now + GATHER, now);
            }
        }
        let Some(name) = label else { return };
        let key = Key::of(&meta.namespace, name);
        let group = self.groups.entry(key.clone()).or_default();
        let changed = group.roll.seen(pod, side, list);
        self.members.entry(pod_key).or_insert_with(|| name.as_str().into());
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
        let keys: Vec<Key> = self.groups.keys().cloned().collect();
        for key in keys {
            self.look_at(&key, now, now);
        }
    }

    /// What is to be written now.
    pub(super) fn due(&mut self, now: Instant, time: Time, room: usize) -> Due {
        if !self.is_complete() {
            return Due::default();
        }
        self.look_at_changed_nodes(now);
        let mut writes = Vec::new();
        while writes.len() < room {
            match self.agenda.first() {
                Some((at, _)) if *at <= now => {}
                _ => break,
            }
            let Some((_, key)) = self.agenda.pop_first() else { break };
            let nodes = &self.nodes;
            let Some(group) = self.groups.get_mut(&key) else { continue };
            group.wake = None;
            let (write, next) = group.look(&key, nodes, now, time);
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
        Due { writes, wake: if room == 0 { None } else { self.first() } }
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
fn forget_members(members: &mut HashMap<Key, Box<str>>, group: &Key, names: Vec<Box<str>>) {
    for name in names {
        let pod = Key { namespace: group.namespace.clone(), name };
        if members.get(&pod).is_some_and(|of| *of == group.name) {
            members.remove(&pod);
        }
    }
}

impl Group {
    /// Works the status out: a write if it is time for one, and when to look again.
    fn look(
        &mut self,
        key: &Key,
        nodes: &Nodes,
        now: Instant,
        time: Time,
    ) -> (Option<Write>, Option<Instant>) {
        let leaves = self.roll.settle(now);
        let Some(object) = self.object.as_ref().filter(|_| !self.flying) else {
            return (None, leaves);
        };
        let facts = Facts {
            spec: &object.spec,
            generation: object.generation,
            says: &self.says,
            previous: &object.status,
            now: time,
        };
        let made = status(&facts, self.roll.members(), |node| nodes.lost(node));
        let deadline = made.due.map(|due| {
            let micros = u64::try_from(due.0.saturating_sub(time.0)).unwrap_or(0);
            now + Duration::from_micros(micros)
        });
        let next = [leaves, deadline].into_iter().flatten().min();
        if made.status == object.status {
            self.since = None;
            return (None, next);
        }
        let substance = differs_in_substance(&object.status, &made.status);
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
            since: self.since.take().unwrap_or(now),
            substance,
        };
        (Some(write), next)
    }
}
