//! Which nodes have a label, a taint, an image: postings for whole-set filters.

use std::sync::Arc;

use super::node_set::Posting;
use super::{NodeId, NodeInfo, NodeSet};
use crate::hash::TextMap;
use crate::model::{Interner, Sym, Taint};

/// Postings over the nodes that exist.
#[derive(Clone, Default)]
pub(crate) struct Index {
    labels: TextMap<Sym, Key>,
    taints: TextMap<Taint, Posting>,
    images: TextMap<Sym, u32>,
    names: TextMap<Arc<str>, NodeId>,
    pub(crate) unschedulable: NodeSet,
}

#[derive(Clone, Default)]
struct Key {
    any: Posting,
    values: TextMap<Sym, Posting>,
}

impl Index {
    pub(crate) fn add(&mut self, node: NodeId, info: &NodeInfo) {
        self.names.insert(Arc::clone(&info.name), node);
        for &(key, value) in &info.labels {
            let key = self.labels.entry(key).or_default();
            key.any.insert(node);
            key.values.entry(value).or_default().insert(node);
        }
        for &taint in &info.taints {
            self.taints.entry(taint).or_default().insert(node);
        }
        for &(image, _) in &info.images {
            *self.images.entry(image).or_default() += 1;
        }
        if info.unschedulable {
            self.unschedulable.insert(node);
        }
    }

    pub(crate) fn remove(&mut self, node: NodeId, info: &NodeInfo) {
        self.names.remove(&info.name);
        for (key, value) in &info.labels {
            if let Some(entry) = self.labels.get_mut(key) {
                entry.any.remove(node);
                if let Some(posting) = entry.values.get_mut(value) {
                    posting.remove(node);
                    if posting.len() == 0 {
                        entry.values.remove(value);
                    }
                }
                if entry.any.len() == 0 {
                    self.labels.remove(key);
                }
            }
        }
        for taint in &info.taints {
            if let Some(posting) = self.taints.get_mut(taint) {
                posting.remove(node);
                if posting.len() == 0 {
                    self.taints.remove(taint);
                }
            }
        }
        for (image, _) in &info.images {
            if let Some(count) = self.images.get_mut(image) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(image);
                }
            }
        }
        self.unschedulable.remove(node);
    }

    pub(crate) fn node(&self, name: &str) -> Option<NodeId> {
        self.names.get(name).copied()
    }

    /// On how many nodes the image is.
    pub(crate) fn image_nodes(&self, image: Sym) -> u32 {
        self.images.get(&image).copied().unwrap_or(0)
    }

    /// Takes the nodes out of `set` that carry a taint for which `repels` holds.
    pub(crate) fn subtract_tainted(&self, set: &mut NodeSet, repels: impl Fn(&Taint) -> bool) {
        for (taint, posting) in &self.taints {
            if repels(taint) {
                posting.take_from(set);
            }
        }
    }

    /// Nodes with `key` whose value satisfies `accept`.
    pub(crate) fn with_value(
        &self,
        syms: &Interner,
        key: &str,
        accept: impl Fn(&str) -> bool,
    ) -> NodeSet {
        let mut set = NodeSet::default();
        if let Some(key) = syms.get(key).and_then(|k| self.labels.get(&k)) {
            for (&value, posting) in &key.values {
                if accept(syms.text(value)) {
                    posting.add_to(&mut set);
                }
            }
        }
        set
    }

    /// Nodes on which `key` has one of `values`.
    pub(crate) fn with_values(&self, syms: &Interner, key: &str, values: &[Box<str>]) -> NodeSet {
        let mut set = NodeSet::default();
        if let Some(key) = syms.get(key).and_then(|k| self.labels.get(&k)) {
            for value in values {
                if let Some(posting) = syms.get(value).and_then(|v| key.values.get(&v)) {
                    posting.add_to(&mut set);
                }
            }
        }
        set
    }

    /// Whether any node has `key`.
    pub(crate) fn has_key(&self, syms: &Interner, key: &str) -> bool {
        syms.get(key).is_some_and(|key| self.labels.contains_key(&key))
    }

    /// Nodes that have `key` at all.
    pub(crate) fn with_key(&self, syms: &Interner, key: &str) -> NodeSet {
        let mut set = NodeSet::default();
        if let Some(key) = syms.get(key).and_then(|k| self.labels.get(&k)) {
            key.any.add_to(&mut set);
        }
        set
    }
}
