//! Nodes as far as topologies are concerned: labels, GPUs, and which pods hold them.
//!
//! Kept up to date note by note: a change costs what it changes. Equal labels of
//! different nodes are held once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use muster_api::k8s::{Node, Pod};

use super::Note;
use crate::topology::{Gpus, Room, idle_because, of_node};

/// A node.
#[derive(Debug)]
struct Site {
    /// `key=value`, in order of keys.
    labels: Box<[Arc<str>]>,
    gpus: i64,
    closed: Option<&'static str>,
    list: u32,
}

/// A pod that holds GPUs.
#[derive(Debug)]
struct Holder {
    node: Box<str>,
    gpus: i64,
    list: u32,
}

/// All nodes, and the pods that hold GPUs.
#[derive(Debug, Default)]
pub(super) struct Ground {
    sites: HashMap<Box<str>, Site>,
    labels: HashSet<Arc<str>>,
    /// By UID.
    holders: HashMap<Box<str>, Holder>,
    /// GPUs that pods hold, by node; the node need not be known.
    held: HashMap<Box<str>, i64>,
    gpus: Gpus,
    node_list: u32,
    pod_list: u32,
    /// Nodes that changed since [`Ground::take_changed`].
    changed: HashSet<Box<str>>,
}

impl Ground {
    /// The value of a node's label.
    pub(super) fn label(&self, node: &str, key: &str) -> Option<&str> {
        let site = self.sites.get(node)?;
        site.labels.iter().find_map(|label| label.strip_prefix(key)?.strip_prefix('='))
    }

    /// What a node has.
    pub(super) fn room(&self, node: &str) -> Option<Room> {
        let site = self.sites.get(node)?;
        let used = self.held.get(node).copied().unwrap_or(0);
        Some(Room { gpus: site.gpus, used, closed: site.closed })
    }

    /// Names of all nodes.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &str> {
        self.sites.keys().map(|name| &**name)
    }

    /// Nodes that changed since this was asked.
    pub(super) fn take_changed(&mut self) -> HashSet<Box<str>> {
        std::mem::take(&mut self.changed)
    }

    /// The watch of nodes speaks.
    pub(super) fn note_node(&mut self, note: Note<&Node>) {
        match note {
            Note::Listing => self.node_list += 1,
            Note::Changed(node) => self.node_seen(node),
            Note::Gone(node) => self.node_gone(&node.metadata.name),
            Note::Listed => {
                let stale = |site: &Site| site.list != self.node_list;
                let gone: Vec<Box<str>> =
                    self.sites.iter().filter(|(_, s)| stale(s)).map(|(n, _)| n.clone()).collect();
                gone.iter().for_each(|name| self.node_gone(name));
            }
        }
    }

    /// The watch of pods that have not ended speaks.
    pub(super) fn note_pod(&mut self, note: Note<&Pod>) {
        match note {
            Note::Listing => self.pod_list += 1,
            Note::Changed(pod) => self.pod_seen(pod),
            Note::Gone(pod) => self.pod_gone(&pod.metadata.uid),
            Note::Listed => {
                let stale = |holder: &Holder| holder.list != self.pod_list;
                let gone: Vec<Box<str>> =
                    self.holders.iter().filter(|(_, h)| stale(h)).map(|(u, _)| u.clone()).collect();
                gone.iter().for_each(|uid| self.pod_gone(uid));
            }
        }
    }

    fn node_seen(&mut self, node: &Node) {
        let name = node.metadata.name.as_str();
        let (gpus, closed, list) = (of_node(node), idle_because(node), self.node_list);
        let labels = &node.metadata.labels;
        if let Some(site) = self.sites.get_mut(name) {
            site.list = list;
            let same = site.labels.len() == labels.len()
                && site.labels.iter().zip(labels).all(|(own, (key, value))| {
                    own.strip_prefix(key.as_str()).and_then(|l| l.strip_prefix('=')) == Some(value)
                });
            if same && site.gpus == gpus && site.closed == closed {
                return; // the heartbeat of most nodes, most of the time
            }
        }
        let labels = labels.iter().map(|(key, value)| self.shared(format!("{key}={value}")));
        let labels = labels.collect();
        let before = self.sites.insert(name.into(), Site { labels, gpus, closed, list });
        self.release(before);
        self.changed.insert(name.into());
    }

    fn node_gone(&mut self, name: &str) {
        let before = self.sites.remove(name);
        if before.is_some() {
            self.changed.insert(name.into());
        }
        self.release(before);
    }

    fn shared(&mut self, label: String) -> Arc<str> {
        if let Some(known) = self.labels.get(label.as_str()) {
            return Arc::clone(known);
        }
        let label: Arc<str> = label.into();
        self.labels.insert(Arc::clone(&label));
        label
    }

    /// Labels that no node has any more are forgotten.
    fn release(&mut self, site: Option<Site>) {
        for label in site.into_iter().flat_map(|site| site.labels.into_vec()) {
            if Arc::strong_count(&label) == 2 {
                self.labels.remove(&label);
            }
        }
    }

    fn pod_seen(&mut self, pod: &Pod) {
        let node = pod.spec.node_name.as_str();
        let gpus = if node.is_empty() { 0 } else { self.gpus.of_pod(pod) };
        let uid = pod.metadata.uid.as_str();
        match self.holders.get_mut(uid) {
            Some(holder) if holder.gpus == gpus && *holder.node == *node => {
                holder.list = self.pod_list;
                return;
            }
            Some(_) => self.pod_gone(uid),
            None => {}
        }
        if gpus > 0 {
            let holder = Holder { node: node.into(), gpus, list: self.pod_list };
            self.holders.insert(uid.into(), holder);
            self.hold(node, gpus);
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        if let Some(holder) = self.holders.remove(uid) {
            self.hold(&holder.node, -holder.gpus);
        }
    }

    fn hold(&mut self, node: &str, gpus: i64) {
        if let Some(held) = self.held.get_mut(node) {
            *held += gpus;
            if *held == 0 {
                self.held.remove(node);
            }
        } else {
            self.held.insert(node.into(), gpus);
        }
        self.changed.insert(node.into());
    }

    /// Labels, pods and nodes that are held.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize, usize) {
        (self.labels.len(), self.holders.len(), self.held.len() + self.sites.len())
    }
}
