//! What befalls nodes: cordons, losses, returns, and the collection of orphans.

use std::collections::BTreeMap;

use muster_api::k8s::{Node, Taint};
use muster_core::io::Tick;

use super::api::Api;
use super::eviction::DeleteOptions;
use super::objects;
use crate::scenario::{Action, NodeChange, NodeGroup};
use crate::time::{MINUTE, Micros, SECOND};

/// Pods of a node that no longer exists are deleted after this, as the pod
/// garbage collector's quarantine has it.
pub(crate) const ORPHAN_QUARANTINE: Micros = 40 * SECOND;

/// Pods of a node that is not reachable are deleted after this, as the default
/// tolerations have it.
pub(crate) const UNREACHABLE: Micros = 5 * MINUTE;

/// The taint of a node whose kubelet is silent.
const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";

/// The outside world's hand on nodes.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    removed: BTreeMap<String, Node>,
}

impl Cluster {
    /// Nodes join.
    pub(crate) fn add(now: Tick, group: &NodeGroup, api: &mut Api) {
        for index in 0..group.count {
            api.put_node(now, objects::node(group, index));
        }
    }

    /// Something happens; names of nodes whose pods are orphans now are returned.
    pub(crate) fn act(&mut self, now: Tick, action: &Action, api: &mut Api) -> Vec<String> {
        match action {
            Action::Cordon(names) => cordon(now, names, true, api),
            Action::Uncordon(names) => cordon(now, names, false, api),
            Action::Add(group) => Self::add(now, group, api),
            Action::Restore(names) => {
                for node in names.iter().filter_map(|name| self.removed.remove(name)) {
                    api.put_node(now, node);
                }
            }
            Action::Remove(names) => {
                for name in names {
                    let Some(node) = api.node(name) else { continue };
                    self.removed.insert(name.clone(), Node::clone(node));
                    api.delete_node(name);
                }
                return names.clone();
            }
            Action::NotReady(names) => reachable(now, names, false, api),
            Action::Ready(names) => reachable(now, names, true, api),
            Action::Change(change) => change_node(now, change, api),
            // What befalls pods and schedulers is not this one's business.
            Action::Delete(_)
            | Action::Evict(_)
            | Action::DeleteGroup(_)
            | Action::Ungate(_)
            | Action::Bind { .. }
            | Action::Reload(_)
            | Action::Policy(_)
            | Action::DeletePolicy(_)
            | Action::Topology(_)
            | Action::DeleteTopology(_) => {}
        }
        Vec::new()
    }

    /// The quarantine is over: pods of a node that is still missing are deleted.
    pub(crate) fn collect_orphans(node: &str, api: &mut Api) {
        if api.node(node).is_none() {
            for pod in api.pods_on(node) {
                api.delete_pod(pod);
            }
        }
    }

    /// A node was not reachable for too long: its pods are asked to go.
    pub(crate) fn evict_unreachable(now: Tick, node: &str, api: &mut Api) {
        let tainted = |n: &Node| n.spec.taints.iter().any(|t| t.key == UNREACHABLE_TAINT);
        if api.node(node).is_some_and(|n| tainted(n)) {
            for pod in api.pods_on(node) {
                let _ = api.delete(now, pod, &DeleteOptions::default());
            }
        }
    }
}

fn reachable(now: Tick, names: &[String], yes: bool, api: &mut Api) {
    for name in names {
        let Some(node) = api.node(name) else { continue };
        let mut node = Node::clone(node);
        node.spec.taints.retain(|taint| taint.key != UNREACHABLE_TAINT);
        if !yes {
            node.spec.taints.extend(["NoSchedule", "NoExecute"].map(|effect| Taint {
                key: UNREACHABLE_TAINT.to_owned(),
                value: String::new(),
                effect: effect.to_owned(),
            }));
        }
        api.put_node(now, node);
    }
}

fn change_node(now: Tick, change: &NodeChange, api: &mut Api) {
    let Some(node) = api.node(&change.node) else {
        return;
    };
    let mut node = Node::clone(node);
    if let Some(labels) = &change.labels {
        node.metadata.labels.retain(|key, _| key == objects::HOSTNAME_LABEL);
        node.metadata.labels.extend(labels.clone());
    }
    if let Some(taints) = &change.taints {
        node.spec.taints.clone_from(taints);
    }
    if let Some(allocatable) = &change.allocatable {
        node.status.allocatable.clone_from(allocatable);
    }
    api.put_node(now, node);
}

fn cordon(now: Tick, names: &[String], cordoned: bool, api: &mut Api) {
    for name in names {
        let Some(node) = api.node(name) else { continue };
        let mut node = Node::clone(node);
        if node.spec.unschedulable != cordoned {
            node.spec.unschedulable = cordoned;
            api.put_node(now, node);
        }
    }
}
