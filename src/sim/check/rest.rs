//! What must hold when the faults are over and nothing moves any more.
//!
//! L1: nothing waits that fits, or that could make room for itself. L2: every process believes what the API server
//! holds. O1: whatever waits is told why.

use std::collections::BTreeMap;

use muster_api::k8s::{Node, Pod};
use muster_core::{CacheView, QueueView, QueuedPod};

use super::Finding;
use super::fit::Room;
use crate::model::api::Api;
use crate::model::objects::{group_name, is_terminal};
use crate::model::requests::{Amounts, amounts, pod_requests};
use crate::scenario::{SCHEDULER_NAME, SchedulerSpec};

/// What a process says of itself.
pub(crate) struct Statement {
    pub(crate) name: String,
    pub(crate) leads: bool,
    pub(crate) idle: bool,
    pub(crate) cache: CacheView,
    pub(crate) queue: QueueView,
}

pub(super) fn priority(pod: &Pod) -> i32 {
    pod.spec.priority.unwrap_or(0)
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.metadata.namespace, pod.metadata.name)
}

/// The API server's truth, arranged for questions.
pub(crate) struct Truth<'a> {
    pub(super) api: &'a Api,
    pub(super) rules: &'a SchedulerSpec,
    /// Pods that hold room, by node.
    on: BTreeMap<&'a str, Vec<&'a Pod>>,
    /// Pods of ours that wait, by full name.
    pub(super) waiting: BTreeMap<String, &'a Pod>,
}

impl<'a> Truth<'a> {
    pub(crate) fn new(api: &'a Api, rules: &'a SchedulerSpec) -> Self {
        let mut truth = Self { api, rules, on: BTreeMap::new(), waiting: BTreeMap::new() };
        for (_, stored) in api.pods() {
            let pod = &*stored.object;
            if is_terminal(pod) {
                continue;
            }
            if !pod.spec.node_name.is_empty() {
                truth.on.entry(&pod.spec.node_name).or_default().push(pod);
            } else if pod.spec.scheduler_name == SCHEDULER_NAME {
                truth.waiting.insert(full_name(pod), pod);
            }
        }
        truth
    }

    pub(super) fn pods_on(&self, node: &str) -> &[&'a Pod] {
        self.on.get(node).map_or(&[], Vec::as_slice)
    }

    /// L1: no pod waits that fits a node.
    pub(crate) fn left_waiting(&self, findings: &mut Vec<Finding>) {
        if self.waiting.is_empty() {
            return;
        }
        let rooms: Vec<Room<'_>> = self
            .api
            .nodes()
            .map(|node| Room::new(node, self.pods_on(&node.metadata.name).iter().copied()))
            .collect();
        for (name, pod) in &self.waiting {
            if !pod.spec.scheduling_gates.is_empty() && self.rules.has("SchedulingGates") {
                continue;
            }
            if self.waits_for_gang(pod) {
                continue;
            }
            let fits = |room: &&Room<'_>| {
                room.fits(pod, self.rules) && self.room_for(room.node, pod, false)
            };
            if let Some(room) = rooms.iter().find(fits) {
                let what = format!("{name} waits, but fits node {}", room.node.metadata.name);
                findings.push(Finding { invariant: "L1", what });
            } else if let Some(node) = self.could_make_room(pod) {
                let what = format!("{name} waits, but could push others off node {node}");
                findings.push(Finding { invariant: "L1", what });
            }
        }
    }

    /// Whether a node has room for a pod beside those that are expected there and no
    /// less important; without the lesser ones if `alone`.
    fn room_for(&self, node: &'a Node, pod: &Pod, alone: bool) -> bool {
        let name = node.metadata.name.as_str();
        let stays = |other: &&&'a Pod| !alone || priority(other) >= priority(pod);
        let here = self.pods_on(name).iter().filter(stays).copied();
        let expected = self.waiting.values().copied().filter(|other| {
            other.status.nominated_node_name == name
                && priority(other) >= priority(pod)
                && other.metadata.uid != pod.metadata.uid
        });
        Room::new(node, here.chain(expected)).fits(pod, self.rules)
    }

    /// A node that the pod could have made room on for certain: no budget and no gang has a
    /// say.
    fn could_make_room(&self, pod: &Pod) -> Option<&'a str> {
        let never = pod.spec.preemption_policy.as_deref() == Some("Never");
        // Policies may protect victims, or slow evictions down: for how long is not known here.
        let restrained = self.api.preemption_is_restrained();
        if never || restrained || !self.rules.has("DefaultPreemption") {
            return None;
        }
        // While somebody leaves the node where it is expected it asks nobody else.
        let leaves = |other: &&Pod| other.metadata.deletion_timestamp.is_some();
        if self.pods_on(&pod.status.nominated_node_name).iter().any(leaves) {
            return None;
        }
        let free = |other: &&Pod| {
            other.metadata.deletion_timestamp.is_none()
                && group_name(other).is_none()
                && !self.api.budgets().iter().any(|b| b.spec.covers(other))
        };
        let mut nodes = self.api.nodes().filter(|node| {
            let lesser: Vec<&Pod> = self
                .pods_on(&node.metadata.name)
                .iter()
                .filter(|other| priority(other) < priority(pod))
                .copied()
                .collect();
            !lesser.is_empty() && lesser.iter().all(free) && self.room_for(node, pod, true)
        });
        nodes.next().map(|node| node.metadata.name.as_str())
    }

    /// L2 and O1 for one process.
    pub(crate) fn compare(&self, said: &Statement, findings: &mut Vec<Finding>) {
        let mut found = |invariant, what: String| {
            findings.push(Finding { invariant, what: format!("{}: {what}", said.name) });
        };
        if !said.idle {
            found("L2", "the writer still has calls to make".to_owned());
        }
        if !said.cache.assumed.is_empty() {
            found("L2", format!("still assumed: {}", said.cache.assumed.join(", ")));
        }
        let known: BTreeMap<&str, _> =
            said.cache.nodes.iter().map(|n| (n.name.as_str(), n)).collect();
        for node in self.api.nodes() {
            let name = node.metadata.name.as_str();
            let Some(cached) = known.get(name) else {
                found("L2", format!("node {name} is not in the cache"));
                continue;
            };
            let mut pods: Vec<String> = self.pods_on(name).iter().map(|p| full_name(p)).collect();
            pods.sort_unstable();
            if cached.pods != pods {
                found("L2", format!("node {name} has {pods:?}, the cache says {:?}", cached.pods));
            }
            let real = nonzero(amounts(&node.status.allocatable));
            if cached.allocatable != real
                && without_pods(&cached.allocatable) != without_pods(&real)
            {
                let cached = &cached.allocatable;
                found("L2", format!("node {name} offers {real:?}, the cache says {cached:?}"));
            }
            let used = self.used(name);
            if without_pods(&cached.requested) != used {
                let cached = &cached.requested;
                found("L2", format!("node {name} has {used:?} in use, the cache says {cached:?}"));
            }
        }
        for name in known.keys().filter(|name| self.api.node(name).is_none()) {
            found("L2", format!("node {name} is in the cache and does not exist"));
        }
        let queued: BTreeMap<&str, &QueuedPod> =
            said.queue.pods.iter().map(|p| (p.pod.as_str(), p)).collect();
        for (name, pod) in &self.waiting {
            match queued.get(name.as_str()) {
                None => found("L2", format!("{name} waits and is in no queue")),
                Some(entry) if said.leads => self.explained(name, pod, entry, &mut found),
                Some(_) => {}
            }
        }
        for name in queued.keys().filter(|name| !self.waiting.contains_key(**name)) {
            found("L2", format!("{name} is queued and does not wait"));
        }
    }

    fn used(&self, node: &str) -> Amounts {
        let mut sum = Amounts::new();
        for pod in self.pods_on(node) {
            for (name, amount) in pod_requests(&pod.spec) {
                *sum.entry(name).or_default() += amount;
            }
        }
        without_pods(&nonzero(sum))
    }

    /// O1: the pod's condition says what the scheduler thinks.
    fn explained(
        &self,
        name: &str,
        pod: &Pod,
        entry: &QueuedPod,
        found: &mut impl FnMut(&'static str, String),
    ) {
        if entry.message.is_empty() {
            return found("O1", format!("{name} waits ({}) without a reason", entry.queue));
        }
        let condition = pod.status.conditions.iter().find(|c| c.kind == "PodScheduled");
        let gated = !pod.spec.scheduling_gates.is_empty();
        // Another leader may have found other words before this one leads again.
        let theirs = self.rules.replicas > 1;
        match condition {
            Some(c) if c.status == "False" && (gated || theirs || c.message == entry.message) => {}
            Some(c) => found(
                "O1",
                format!("{name} says {:?}, the scheduler {:?}", c.message, entry.message),
            ),
            None => found("O1", format!("{name} has no condition; {:?}", entry.message)),
        }
    }
}

fn nonzero(mut all: Amounts) -> Amounts {
    all.retain(|_, amount| *amount != 0);
    all
}

/// The number of pods is kept apart by the core.
fn without_pods(all: &Amounts) -> Amounts {
    all.iter().filter(|(name, _)| *name != "pods").map(|(k, v)| (k.clone(), *v)).collect()
}
