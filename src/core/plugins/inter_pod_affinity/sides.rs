//! Sums per topology value of pods that matter to one shape.
//!
//! Owns the sums over nodes. Each node's part is remembered, so that a change of a
//! node is a subtraction and an addition. Must never count pods: the cluster
//! keeps counts per node.

use crate::cluster::{Cluster, Counted, GroupKey, NodeId, NodeView};
use crate::hash::IdMap;
use crate::model::{Sym, TermId};

/// Whose pods are summed up.
pub(super) enum Source {
    /// Pods that a selector of the incoming pod matches.
    Matching(Counted),
    /// Pods that have a term, which matches the incoming pod.
    Having(TermId),
}

impl Source {
    fn on(&self, cluster: &Cluster, node: NodeId) -> i64 {
        match self {
            Self::Matching(counted) => counted.on(cluster, node),
            Self::Having(term) => cluster.tally.having(*term).on(node).into(),
        }
    }
}

/// The sum of one topology value.
#[derive(Clone, Copy, Default)]
struct Sum {
    pods: i64,
    weight: i64,
}

#[derive(Clone, Copy, Default)]
struct Part {
    value: Option<Sym>,
    sum: Sum,
}

/// One topology key with weighted sources.
pub(super) struct TopologyKey {
    pub(super) key: Box<str>,
    sources: Vec<(i64, Source)>,
    sums: IdMap<Sym, Sum>,
    parts: Vec<Part>,
    pods: i64,
}

/// Topology keys that are judged or rated together.
#[derive(Default)]
pub(super) struct Side {
    pub(super) keys: Vec<TopologyKey>,
}

impl TopologyKey {
    /// The node's value of the key.
    pub(super) fn value(&self, node: NodeView<'_>) -> Option<Sym> {
        node.info().label(node.cluster().syms.get(&self.key)?)
    }

    /// Pods with that value.
    pub(super) fn pods(&self, value: Sym) -> i64 {
        self.sums.get(&value).map_or(0, |s| s.pods)
    }

    /// The weighted sum of that value.
    pub(super) fn weight(&self, value: Sym) -> i64 {
        self.sums.get(&value).map_or(0, |s| s.weight)
    }

    fn add(&mut self, value: Sym, sum: Sum, sign: i64) {
        let total = self.sums.entry(value).or_default();
        total.pods += sign * sum.pods;
        total.weight += sign * sum.weight;
        self.pods += sign * sum.pods;
        if total.pods == 0 {
            self.sums.remove(&value);
        }
    }

    /// Takes a node's part in, instead of the one it had. The values whose sums
    /// changed so that `matters` says so.
    fn take(&mut self, cluster: &Cluster, node: NodeId) -> [Option<Sym>; 2] {
        let mut part = Part::default();
        if cluster.nodes().contains(node) {
            part.value = self.value(cluster.view(node));
            for (weight, source) in &self.sources {
                let pods = source.on(cluster, node);
                part.sum.pods += pods;
                part.sum.weight += weight * pods;
            }
        }
        if self.parts.len() <= node.index() {
            self.parts.resize(cluster.node_capacity(), Part::default());
        }
        let before = std::mem::replace(&mut self.parts[node.index()], part);
        if let Some(value) = before.value {
            self.add(value, before.sum, -1);
        }
        if let Some(value) = part.value {
            self.add(value, part.sum, 1);
        }
        [before.value, part.value]
    }
}

impl Side {
    /// Adds a source under a topology key.
    pub(super) fn add(&mut self, key: &str, weight: i64, source: Source) {
        let at = self.keys.iter().position(|k| *k.key == *key).unwrap_or_else(|| {
            let (sources, sums, parts) = (Vec::new(), IdMap::default(), Vec::new());
            self.keys.push(TopologyKey { key: key.into(), sources, sums, parts, pods: 0 });
            self.keys.len() - 1
        });
        self.keys[at].sources.push((weight, source));
    }

    /// Sums up all nodes.
    pub(super) fn fill(mut self, cluster: &Cluster) -> Self {
        for key in &mut self.keys {
            for node in cluster.nodes().iter() {
                key.take(cluster, node);
            }
        }
        self
    }

    /// Whether no pod matters anywhere.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.iter().all(|k| k.pods == 0)
    }

    pub(super) fn is_kept(&self) -> bool {
        let sources = self.keys.iter().flat_map(|k| &k.sources);
        sources.into_iter().all(|(_, s)| match s {
            Source::Matching(counted) => counted.is_kept(),
            Source::Having(_) => true,
        })
    }

    /// Follows a change of a node: nodes of a value whose sum changed so that
    /// `differs` are added to `also`.
    pub(super) fn follow(
        &mut self,
        cluster: &Cluster,
        node: NodeId,
        differs: impl Fn(&TopologyKey, (i64, i64), (i64, i64)) -> bool,
        also: &mut Vec<NodeId>,
    ) {
        for key in &mut self.keys {
            let old = key.parts.get(node.index()).and_then(|p| p.value);
            let new = key.value(cluster.view(node));
            let sums = |key: &TopologyKey, v: Option<Sym>| {
                v.map_or((0, 0), |v| (key.pods(v), key.weight(v)))
            };
            let before = [sums(key, old), sums(key, new)];
            key.take(cluster, node);
            for (value, before) in [old, new].into_iter().zip(before) {
                if let Some(value) = value
                    && differs(key, before, sums(key, Some(value)))
                {
                    let text: Box<str> = (&**cluster.syms.text(value)).into();
                    let nodes = cluster.index.with_values(&cluster.syms, &key.key, &[text]);
                    also.extend(nodes.iter());
                }
            }
        }
    }

    /// As if a pod that `counts` says matters were on the node too, or were not.
    pub(super) fn nudge(
        &mut self,
        node: NodeView<'_>,
        delta: i64,
        counts: impl Fn(&TopologyKey) -> i64,
    ) {
        for key in &mut self.keys {
            let pods = counts(key) * delta;
            if let Some(value) = key.value(node)
                && pods != 0
            {
                key.add(value, Sum { pods, weight: 0 }, 1);
            }
        }
    }
}

/// Whether pods of a group satisfy terms of an incoming pod.
pub(super) fn satisfies<'a>(
    cluster: &Cluster,
    group: &GroupKey,
    mut terms: impl Iterator<Item = &'a crate::model::AffinityTerm>,
) -> bool {
    terms.all(|t| {
        t.selector.matches(&group.labels) && cluster.kin.covers(&t.scope, &group.namespace, false)
    })
}
