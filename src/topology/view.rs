//! The tree as it is shown: in order, with its nodes. Its JSON is a stable form.

use std::collections::HashMap;

use serde::Serialize;

use super::order::natural;
use super::tree::{At, ROOT, Sums, Tree};

/// Nodes that are named of those that lack a label.
const EXAMPLES: usize = 5;

/// One topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Name of the `ClusterTopology`; empty for levels named on the command line.
    pub name: String,
    /// Its levels, widest first.
    pub levels: Vec<LevelView>,
    /// Nodes of the cluster.
    pub nodes: NodeCounts,
    /// Their GPUs.
    pub gpus: GpuCounts,
    /// Domains of the widest level.
    pub domains: Vec<DomainView>,
    /// Nodes in no domain at all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_list: Vec<NodeView>,
    /// Labels that nodes lack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<Lacking>,
}

/// A level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LevelView {
    /// Its name.
    pub name: String,
    /// The node label whose values are its domains.
    pub node_label: String,
    /// How many domains it has.
    pub domains: i64,
}

/// One domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainView {
    /// Its level's name.
    pub level: String,
    /// The label's value.
    pub name: String,
    /// Its nodes.
    pub nodes: NodeCounts,
    /// Their GPUs.
    pub gpus: GpuCounts,
    /// Domains in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainView>,
    /// Nodes in it that are in none of those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_list: Vec<NodeView>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub gpus: GpuCounts,
    /// Why it takes no pods, if it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<&'static str>,
}

/// Nodes, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounts {
    /// All.
    pub total: i64,
    /// Those that take no pods: cordoned, or not ready.
    pub closed: i64,
    /// Those with GPUs, all of them free.
    pub idle: i64,
}

/// GPUs, counted. What is neither used nor free is on nodes that take no pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuCounts {
    /// All.
    pub total: i64,
    /// Those that pods have asked for.
    pub used: i64,
    /// Those that a pod could have.
    pub free: i64,
}

impl GpuCounts {
    /// On nodes that take no pods, and not in use.
    #[must_use]
    pub fn closed(&self) -> i64 {
        self.total - self.used - self.free
    }
}

/// A label that nodes lack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lacking {
    /// The level's name.
    pub level: String,
    /// The label.
    pub node_label: String,
    /// How many nodes lack it and have those of all wider levels.
    pub nodes: usize,
    /// Some of them.
    pub examples: Vec<String>,
}

fn counts(sums: &Sums) -> (NodeCounts, GpuCounts) {
    (
        NodeCounts { total: sums.nodes, closed: sums.closed, idle: sums.idle },
        GpuCounts { total: sums.gpus, used: sums.used, free: sums.free },
    )
}

impl View {
    /// The tree of the topology of this name, to be shown. If its narrowest level has a
    /// domain per node, these domains are shown as nodes.
    #[must_use]
    pub fn of(name: &str, tree: &Tree) -> Self {
        let shown = tree.levels.len() - usize::from(tree.ends_in_hosts());
        let mut nodes: HashMap<At, Vec<NodeView>> = HashMap::new();
        let mut missing: Vec<Vec<&str>> = vec![Vec::new(); tree.levels.len()];
        for (node, place) in &tree.nodes {
            if let Some(names) = missing.get_mut(place.depth) {
                names.push(node);
            }
            let mut at = place.domain;
            if place.depth > shown {
                at = tree.domains[at].parent;
            }
            let (_, gpus) = counts(&Sums::of(&place.room));
            let node = NodeView { name: node.to_string(), gpus, closed: place.room.closed };
            nodes.entry(at).or_default().push(node);
        }
        for list in nodes.values_mut() {
            list.sort_unstable_by(|a, b| natural(&a.name, &b.name));
        }
        let mut making = Making { tree, nodes, shown };
        let (domains, node_list) = making.below(ROOT, 0);
        let (nodes, gpus) = counts(&tree.sums());
        let levels = tree.levels.iter().enumerate().map(|(i, level)| LevelView {
            name: level.name.clone(),
            node_label: level.node_label.clone(),
            domains: tree.domains_of(i),
        });
        let lacking = tree.levels.iter().zip(missing).filter(|(_, names)| !names.is_empty());
        Self {
            name: name.to_owned(),
            levels: levels.collect(),
            nodes,
            gpus,
            domains,
            node_list,
            lacking: lacking
                .map(|(level, mut names)| {
                    names.sort_unstable_by(|a, b| natural(a, b));
                    Lacking {
                        level: level.name.clone(),
                        node_label: level.node_label.clone(),
                        nodes: names.len(),
                        examples: names.iter().take(EXAMPLES).map(ToString::to_string).collect(),
                    }
                })
                .collect(),
        }
    }
}

struct Making<'a> {
    tree: &'a Tree,
    nodes: HashMap<At, Vec<NodeView>>,
    /// Levels that are shown as domains.
    shown: usize,
}

impl Making<'_> {
    /// What is in a domain that is `depth` levels deep.
    fn below(&mut self, at: At, depth: usize) -> (Vec<DomainView>, Vec<NodeView>) {
        let node_list = self.nodes.remove(&at).unwrap_or_default();
        if depth == self.shown {
            return (Vec::new(), node_list);
        }
        let tree = self.tree;
        let mut children: Vec<(&str, At)> =
            tree.domains[at].children.iter().map(|(name, at)| (&**name, *at)).collect();
        children.sort_unstable_by(|a, b| natural(a.0, b.0));
        let level = &tree.levels[depth].name;
        let mut domains = Vec::with_capacity(children.len());
        for (name, child) in children {
            let (inner, node_list) = self.below(child, depth + 1);
            let (nodes, gpus) = counts(&tree.domains[child].sums);
            let (level, name) = (level.clone(), name.to_owned());
            domains.push(DomainView { level, name, nodes, gpus, domains: inner, node_list });
        }
        (domains, node_list)
    }
}
