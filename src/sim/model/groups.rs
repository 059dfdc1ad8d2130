//! Pod groups in the store, and which pods name them.
//!
//! Owns their versions and the one word of status that a scheduler reads back: that the
//! minimum was bound once. It is written as the live controller writes it, a moment after
//! it is true. Must never look at what a scheduler says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s::{ObjectMeta, Pod};
use muster_api::muster::PodGroup;
use muster_core::gang::{Api as GangApi, GangKey};
use muster_core::io::{Object, Tick};

use super::api::{Api, Notice, PodId, timestamp};
use super::objects::{group_name, group_uid, is_terminal};
use crate::scenario::SCHEDULER_NAME;

/// Namespace and name.
type Key = (String, String);

/// Pod groups, and pods that name one whether or not it exists.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<Key, Arc<PodGroup>>,
    members: BTreeMap<Key, BTreeSet<PodId>>,
    made: u64,
}

fn key_of(pod: &Pod) -> Option<Key> {
    Some((pod.metadata.namespace.clone(), group_name(pod)?.to_owned()))
}

impl Groups {
    pub(super) fn joined(&mut self, pod: &Pod, id: PodId) {
        if let Some(key) = key_of(pod) {
            self.members.entry(key).or_default().insert(id);
        }
    }

    pub(super) fn left(&mut self, pod: &Pod, id: PodId) {
        if let Some(members) = key_of(pod).and_then(|key| self.members.get_mut(&key)) {
            members.remove(&id);
        }
    }
}

/// Whether members are enough: those of `pods` that `counts` picks.
pub(crate) fn is_met<'a>(group: &PodGroup, pods: impl Iterator<Item = &'a Pod>) -> bool {
    let mut all = 0;
    let mut roles = vec![0; group.spec.roles.len()];
    for pod in pods {
        all += 1;
        if let Some(role) = role_of(group, pod) {
            roles[role] += 1;
        }
    }
    let short = group.spec.roles.iter().zip(&roles).any(|(role, has)| *has < role.min_member);
    all >= group.spec.min_member() && !short
}

/// The first role whose labels a member has.
pub(crate) fn role_of(group: &PodGroup, pod: &Pod) -> Option<usize> {
    let labels = &pod.metadata.labels;
    let has = |(key, value): (&String, &String)| labels.get(key) == Some(value);
    group.spec.roles.iter().position(|role| role.selector.match_labels.iter().all(has))
}

/// Whether a pod counts toward its group: bound and neither ended nor going, or ended well.
pub(crate) fn counts(pod: &Pod) -> bool {
    if pod.spec.scheduler_name != SCHEDULER_NAME {
        return false;
    }
    if is_terminal(pod) {
        return pod.status.phase == "Succeeded";
    }
    !pod.spec.node_name.is_empty() && pod.metadata.deletion_timestamp.is_none()
}

impl Api {
    /// A user creates a pod group; one of that name that is there already stays.
    pub(crate) fn add_group(&mut self, now: Tick, mut group: PodGroup) {
        let key = (group.metadata.namespace.clone(), group.metadata.name.clone());
        if self.groups.groups.contains_key(&key) {
            return;
        }
        self.groups.made += 1;
        group.metadata.uid = group_uid(self.groups.made);
        group.metadata.creation_timestamp = Some(timestamp(now));
        self.put_group(key, group);
    }

    fn put_group(&mut self, key: Key, mut group: PodGroup) {
        group.metadata.resource_version = self.next_revision();
        let object = Arc::new(Object::PodGroup(group.clone()));
        self.groups.groups.insert(key, Arc::new(group));
        self.tell(Notice::Object { object, deleted: false, broken: false });
    }

    /// A user deletes a pod group; its pods stay.
    pub(crate) fn delete_group(&mut self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        let Some(group) = self.groups.groups.remove(&key) else {
            return;
        };
        let mut group = PodGroup::clone(&group);
        group.metadata.resource_version = self.next_revision();
        let object = Arc::new(Object::PodGroup(group));
        self.tell(Notice::Object { object, deleted: true, broken: false });
    }

    pub(crate) fn group(&self, namespace: &str, name: &str) -> Option<&Arc<PodGroup>> {
        self.groups.groups.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Namespace and name of all groups that a pod has named.
    pub(crate) fn gangs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.groups.members.keys().map(|(namespace, name)| (namespace.as_str(), name.as_str()))
    }

    /// Pods that name a group.
    pub(crate) fn members(&self, namespace: &str, name: &str) -> impl Iterator<Item = &Pod> {
        let ids = self.groups.members.get(&(namespace.to_owned(), name.to_owned()));
        ids.into_iter().flatten().filter_map(|id| Some(&*self.pod(*id)?.object))
    }

    /// Members of a gang that wait for a node.
    pub(crate) fn waiting_members(&self, gang: &GangKey) -> Vec<PodId> {
        let key = (gang.namespace.to_string(), gang.name.to_string());
        let members = self.groups.members.get(&key).filter(|_| gang.api == GangApi::Muster);
        let waits = |id: &PodId| {
            let pod = self.pod(*id).map(|stored| &*stored.object);
            pod.is_some_and(|pod| pod.spec.node_name.is_empty() && !is_terminal(pod))
        };
        members.into_iter().flatten().copied().filter(waits).collect()
    }

    /// All pod groups, as a list shows them.
    pub(super) fn group_objects(&self) -> impl Iterator<Item = Arc<Object>> + '_ {
        self.groups.groups.values().map(|g| Arc::new(Object::PodGroup(PodGroup::clone(g))))
    }

    /// Writes a group anew, as it is.
    pub(super) fn touch_group(&mut self, meta: &ObjectMeta) {
        let key = (meta.namespace.clone(), meta.name.clone());
        if let Some(group) = self.groups.groups.get(&key).map(|group| PodGroup::clone(group)) {
            self.put_group(key, group);
        }
    }

    /// The controller of pod groups notes whose minimum is bound.
    pub(crate) fn reconcile_groups(&mut self, now: Tick) {
        let new = self.groups.groups.iter().filter(|(_, g)| g.status.scheduled_time.is_none());
        let bound: Vec<Key> = new
            .filter(|(key, group)| {
                let ids = self.groups.members.get(*key).into_iter().flatten();
                let pods = ids.filter_map(|id| Some(&*self.pod(*id)?.object));
                is_met(group, pods.filter(|pod| counts(pod)))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in bound {
            let Some(group) = self.groups.groups.get(&key) else { continue };
            let mut group = PodGroup::clone(group);
            group.status.scheduled_time = Some(timestamp(now));
            self.put_group(key, group);
        }
    }
}
