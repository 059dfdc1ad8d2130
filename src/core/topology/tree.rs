//! Domains: which nodes share the values of labels, level by level.

use std::sync::Arc;

use crate::cluster::{Cluster, NodeId};
use crate::hash::IdMap;
use crate::model::Sym;

/// In no domain.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The domains of some levels, widest first.
///
/// A domain of a level is within one domain of the level before: nodes are in one if all
/// labels down to its level have the same values. A node that lacks one of those labels is
/// in none.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    pub(crate) levels: Vec<Level>,
}

/// The domains of one level.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub(crate) domains: Vec<Domain>,
    /// By node.
    of: Vec<u32>,
}

/// A domain.
#[derive(Debug)]
pub(crate) struct Domain {
    /// The value of the level's label.
    pub(crate) value: Arc<str>,
    /// The domain of the level before that it is in.
    pub(crate) parent: u32,
    /// Its nodes, in order.
    pub(crate) nodes: Vec<NodeId>,
    /// Domains of the next level in it, in order.
    pub(crate) children: Vec<u32>,
}

impl Tree {
    /// The domains of the nodes that exist.
    pub(crate) fn build(cluster: &Cluster, keys: &[Box<str>]) -> Self {
        let mut tree = Self::default();
        for key in keys {
            let level = Level::build(cluster, key, tree.levels.last());
            if let Some(above) = tree.levels.last_mut() {
                for (i, domain) in level.domains.iter().enumerate() {
                    above.domains[domain.parent as usize].children.push(i as u32);
                }
            }
            tree.levels.push(level);
        }
        tree
    }

    /// The domain of a level that a node is in.
    pub(crate) fn domain_of(&self, level: usize, node: NodeId) -> Option<u32> {
        let found = self.levels.get(level)?.of.get(node.index()).copied();
        found.filter(|domain| *domain != NOWHERE)
    }

    /// The domain of a wider level that a domain is in.
    pub(crate) fn above(&self, level: usize, domain: u32, wider: usize) -> u32 {
        let up = (wider + 1..=level).rev();
        up.fold(domain, |domain, level| self.levels[level].domains[domain as usize].parent)
    }

    /// A domain.
    pub(crate) fn domain(&self, level: usize, domain: u32) -> &Domain {
        &self.levels[level].domains[domain as usize]
    }
}

impl Level {
    fn build(cluster: &Cluster, key: &str, above: Option<&Self>) -> Self {
        let mut of = vec![NOWHERE; cluster.node_capacity()];
        let mut found: IdMap<(u32, Sym), u32> = IdMap::default();
        let mut domains: Vec<(u32, Arc<str>, Vec<NodeId>)> = Vec::new();
        for node in cluster.nodes().iter() {
            let parent = above.map_or(0, |above| above.of[node.index()]);
            let value = cluster.level_value(node, key).filter(|_| parent != NOWHERE);
            let Some(value) = value else { continue };
            let domain = *found.entry((parent, value)).or_insert_with(|| {
                domains.push((parent, Arc::clone(cluster.syms.text(value)), Vec::new()));
                domains.len() as u32 - 1
            });
            domains[domain as usize].2.push(node);
        }
        // In order of names, so that the order does not depend on who came first.
        domains.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let domains: Vec<Domain> = domains
            .into_iter()
            .map(|(parent, value, nodes)| Domain { value, parent, nodes, children: Vec::new() })
            .collect();
        for (i, domain) in domains.iter().enumerate() {
            domain.nodes.iter().for_each(|node| of[node.index()] = i as u32);
        }
        Self { domains, of }
    }
}
