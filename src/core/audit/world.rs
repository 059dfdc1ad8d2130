//! The checker's picture of the cluster, kept change by change.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;

use super::budgets::Budget;
use super::fit::{Load, Node, Usage};
use super::pods::{Place, Pod, Stage};
use crate::io::{Kind, ObjectKey, PodRef, Tick};

/// A waiting pod's rank in the active queue, and its key.
type Fresh = ((i64, Tick, u64), String);

/// What was seen.
#[derive(Default)]
pub(super) struct World {
    pub(super) nodes: BTreeMap<String, Node>,
    /// By `namespace/name`.
    pub(super) pods: BTreeMap<String, Pod>,
    /// By `namespace/name`.
    pub(super) budgets: BTreeMap<String, Budget>,
    /// How many changes of budgets were seen.
    pub(super) budget_changes: u64,
    /// What is taken on each node, whether it exists or not.
    usage: BTreeMap<String, Usage>,
    /// Pods in the active queue for certain.
    fresh: BTreeSet<Fresh>,
    /// Nodes that joined and pods that left theirs, so far.
    pub(super) stirs: u64,
    /// Some pod was seen that does not want others near it.
    pub(super) repelled: bool,
    /// UIDs of the pods that were lost from sight in this step.
    pub(super) lost: Vec<String>,
    /// UIDs of pods that lost their room, not yet looked at.
    pub(super) left: Vec<String>,
    pub(super) relists: [u64; Kind::COUNT],
    arrivals: u64,
}

static NOTHING: Usage =
    Usage { amounts: BTreeMap::new(), ports: Vec::new(), pods: BTreeSet::new() };

pub(super) fn key_of(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

impl World {
    pub(super) fn usage(&self, node: &str) -> &Usage {
        self.usage.get(node).unwrap_or(&NOTHING)
    }

    /// The pod of that name and UID.
    pub(super) fn find(&self, pod: &PodRef) -> Option<&Pod> {
        let found = self.pods.get(&key_of(&pod.namespace, &pod.name))?;
        (*found.uid == *pod.uid).then_some(found)
    }

    /// The first pod in order of those in the active queue for certain, but `not`.
    pub(super) fn first_fresh(&self, not: &str) -> Option<&Fresh> {
        self.fresh.iter().find(|(_, key)| key != not)
    }

    /// Changes a pod and what hangs on it.
    pub(super) fn edit<T>(&mut self, key: &str, change: impl FnOnce(&mut Pod) -> T) -> Option<T> {
        let pod = self.pods.get_mut(key)?;
        if pod.is_fresh() {
            self.fresh.remove(&(pod.rank(), key.to_owned()));
        }
        let result = change(pod);
        if pod.is_fresh() {
            self.fresh.insert((pod.rank(), key.to_owned()));
        }
        Some(result)
    }

    /// Changes something of all pods on which nothing hangs.
    pub(super) fn each_pod(&mut self, change: impl FnMut(&mut Pod)) {
        self.pods.values_mut().for_each(change);
    }

    /// Puts a pod on a node, or on none.
    pub(super) fn put(&mut self, key: &str, place: Place, load: Load) {
        self.clear(key);
        self.edit(key, |pod| (pod.place, pod.load) = (place, load));
        let Some(pod) = self.pods.get(key) else { return };
        if let Some(node) = pod.node() {
            self.usage.entry(node.to_owned()).or_default().add(key, &pod.load);
        }
    }

    /// Takes a pod off its node, if it has one.
    pub(super) fn take_off(&mut self, key: &str) {
        let room = self.pods.get(key).filter(|pod| pod.node().is_some());
        self.left.extend(room.map(|pod| pod.uid.clone()));
        self.clear(key);
    }

    fn clear(&mut self, key: &str) {
        let Some(pod) = self.pods.get(key) else { return };
        if let Some(node) = pod.node()
            && let Some(usage) = self.usage.get_mut(node)
        {
            usage.remove(key, &pod.load);
            if usage.pods.is_empty() {
                let node = node.to_owned();
                self.usage.remove(&node);
            }
        }
        self.edit(key, |pod| (pod.place, pod.load) = (Place::Pending, Load::default()));
    }

    // ---- inputs ------------------------------------------------------------

    pub(super) fn relist_started(&mut self, kind: Kind) {
        self.relists[kind as usize] += 1;
    }

    pub(super) fn relist_done(&mut self, kind: Kind) {
        let seen = self.relists[kind as usize];
        match kind {
            Kind::Node => self.nodes.retain(|_, node| node.seen >= seen),
            Kind::Pod => {
                let gone = self.pods.iter().filter(|(_, p)| p.seen < seen);
                let gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
                gone.iter().for_each(|key| self.forget(key));
            }
            Kind::PodDisruptionBudget => self.budgets.retain(|_, budget| budget.seen >= seen),
            _ => {}
        }
    }

    pub(super) fn upsert_budget(&mut self, wire: &k8s::PodDisruptionBudget) {
        let key = key_of(&wire.metadata.namespace, &wire.metadata.name);
        let seen = self.relists[Kind::PodDisruptionBudget as usize];
        self.budget_changes += 1;
        let mut budget = Budget::of(wire, seen);
        budget.changed = self.budget_changes;
        self.budgets.insert(key, budget);
    }

    pub(super) fn upsert_node(&mut self, wire: &k8s::Node) {
        if !wire.metadata.name.is_empty() {
            let node = Node::of(wire, self.relists[Kind::Node as usize]);
            let old = self.nodes.insert(wire.metadata.name.clone(), node);
            self.stirs += u64::from(old.is_none());
        }
    }

    pub(super) fn delete_pod(&mut self, key: &ObjectKey) {
        let name = key_of(&key.namespace, &key.name);
        if self.pods.get(&name).is_some_and(|p| key.uid.is_empty() || p.uid == key.uid) {
            self.forget(&name);
        }
    }

    pub(super) fn forget(&mut self, key: &str) {
        // A pod on a node that is not known leaves no room to anybody.
        let node = self.pods.get(key).and_then(Pod::node);
        let left = node.is_some_and(|node| self.nodes.contains_key(node));
        self.stirs += u64::from(left);
        self.take_off(key);
        self.edit(key, |pod| pod.dropped = true);
        self.lost.extend(self.pods.remove(key).map(|pod| pod.uid));
    }

    pub(super) fn upsert_pod(&mut self, now: Tick, wire: &k8s::Pod, profile: Option<usize>) {
        let meta = &wire.metadata;
        if meta.name.is_empty() {
            return;
        }
        let key = key_of(&meta.namespace, &meta.name);
        if self.pods.get(&key).is_some_and(|p| p.uid != meta.uid)
            || matches!(wire.status.phase.as_str(), "Succeeded" | "Failed")
        {
            self.forget(&key);
        }
        if matches!(wire.status.phase.as_str(), "Succeeded" | "Failed") {
            return;
        }
        let affinity = wire.spec.affinity.as_ref();
        self.repelled |= affinity.is_some_and(|a| a.pod_anti_affinity.is_some());
        let seen = self.relists[Kind::Pod as usize];
        let assigned = !wire.spec.node_name.is_empty();
        if !self.pods.contains_key(&key) {
            if profile.is_none() && !assigned {
                return;
            }
            self.arrivals += 1;
            let pod = Pod::new(wire, profile, now, self.arrivals);
            self.pods.insert(key.clone(), pod);
            // Only now: an edit keeps the index of fresh pods.
            self.edit(&key, |pod| pod.seen = seen);
        } else {
            let old = self.edit(&key, |pod| {
                pod.seen = seen;
                let old = pod.is_old_news(wire);
                if !old {
                    pod.read(wire);
                }
                old
            });
            if old == Some(true) {
                return;
            }
        }
        self.settle(&key, wire, assigned);
    }

    /// Where the pod is, now that this is known of it.
    fn settle(&mut self, key: &str, wire: &k8s::Pod, assigned: bool) {
        let Some(pod) = self.pods.get(key) else { return };
        match (&pod.place, assigned) {
            (Place::Pending | Place::Reserved { .. }, true) => {
                let place = Place::Bound { node: wire.spec.node_name.clone() };
                let load = pod.idle_load.clone();
                self.put(key, place, load);
            }
            // Pods do not move: only what it takes may have changed.
            (Place::Bound { .. }, true) => {
                let (place, load) = (pod.place.clone(), pod.idle_load.clone());
                self.put(key, place, load);
            }
            // Held at Permit and deleted: given up at once, without a word.
            (Place::Reserved { stage: Stage::Permit { .. } | Stage::Gathered, .. }, false)
                if pod.deleting =>
            {
                self.take_off(key);
                self.edit(key, |pod| pod.dropped = true);
            }
            _ => {}
        }
    }
}
