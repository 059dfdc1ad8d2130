//! What befalls nodes: cordons, losses, returns, and the collection of orphans.

use std::collections::BTreeMap;

use muster_api::k8s::Node;
use muster_core::io::Tick;

use super::api::Api;
use super::objects;
use crate::scenario::{Action, NodeGroup};
use crate::time::{Micros, SECOND};

/// Pods of a node that no longer exists are deleted after this, as the pod
/// garbage collector's quarantine has it.
pub(crate) const ORPHAN_QUARANTINE: Micros = 40 * SECOND;

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
