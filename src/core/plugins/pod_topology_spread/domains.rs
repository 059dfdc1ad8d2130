//! Pods per topology domain, for one shape.
//!
//! Owns the sums over eligible nodes. Each node's part is remembered, so that a
//! change of a node is a subtraction and an addition. Must never count pods: the
//! cluster keeps counts per node.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Counted, NodeId, NodeView};
use crate::framework::ClassKey;
use crate::hash::IdMap;
use crate::model::{PodShape, SpreadConstraint, Sym};
use crate::plugins::{node_affinity, taint_toleration};

/// The label that names a node.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

const NONE: u32 = u32::MAX;

/// What a count of no pods is in a class key. A dry run counts below that, as
/// upstream does: it takes pods off that it had not counted, for they terminate.
const COUNT: i64 = 1 << 32;

/// One value of a topology key.
#[derive(Clone, Copy, Default)]
struct Domain {
    pods: i64,
    /// Eligible nodes: without any the domain does not exist.
    eligible: u32,
    /// Nodes that have the value.
    nodes: u32,
}

/// What a node contributes to a constraint.
#[derive(Clone, Copy)]
struct Part {
    domain: u32,
    /// Whether the node has the label.
    labeled: bool,
    eligible: bool,
    pods: i64,
    /// Pods on the node itself, eligible or not.
    own: i64,
}

const NO_PART: Part = Part { domain: NONE, labeled: false, eligible: false, pods: 0, own: 0 };

/// A constraint with its domains.
pub(super) struct Tracked {
    pub(super) constraint: SpreadConstraint,
    counted: Counted,
    /// Whether nodes are told apart by count instead of domain: domains are as many
    /// as nodes, so that a changed count changes one node.
    by_count: bool,
    /// `None` is the empty value.
    index: IdMap<Option<Sym>, u32>,
    domains: Vec<Domain>,
    /// How many domains have how many pods.
    counts: BTreeMap<i64, u32>,
}

/// The constraints of a shape with their domains.
pub(super) struct Spread {
    pub(super) tracked: Vec<Tracked>,
    parts: Vec<Part>,
    /// Whether a node without all keys is left out.
    pub(super) strict: bool,
    /// Whether counts by hostname are those of the node itself, as for scores.
    own_counts: bool,
}

impl Tracked {
    fn domain(&mut self, value: Option<Sym>) -> u32 {
        let next = self.domains.len() as u32;
        let domain = *self.index.entry(value).or_insert(next);
        if domain == next {
            self.domains.push(Domain::default());
        }
        domain
    }

    /// Adds a node's part, or takes it off.
    fn shift(&mut self, part: &Part, add: bool) {
        let Some(domain) = self.domains.get_mut(part.domain as usize) else {
            return;
        };
        let sign = if add { 1 } else { -1 };
        let before = (domain.eligible > 0).then_some(domain.pods);
        domain.nodes = domain.nodes.wrapping_add_signed(sign);
        if part.eligible {
            domain.eligible = domain.eligible.wrapping_add_signed(sign);
            domain.pods += i64::from(sign) * part.pods;
        }
        let after = (domain.eligible > 0).then_some(domain.pods);
        self.recount(before, after);
    }

    fn recount(&mut self, before: Option<i64>, after: Option<i64>) {
        if before == after {
            return;
        }
        if let Some(pods) = before
            && let Some(domains) = self.counts.get_mut(&pods)
        {
            *domains -= 1;
            if *domains == 0 {
                self.counts.remove(&pods);
            }
        }
        if let Some(pods) = after {
            *self.counts.entry(pods).or_default() += 1;
        }
    }

    /// The fewest pods in a domain, as upstream counts them.
    pub(super) fn least(&self) -> i64 {
        let domains: u32 = self.counts.values().sum();
        if i64::from(domains) < i64::from(self.constraint.min_domains) {
            return 0;
        }
        self.counts.first_key_value().map_or(i32::MAX.into(), |(pods, _)| *pods)
    }

    /// The pods that a number of a class key stands for.
    pub(super) fn pods(&self, number: i64) -> i64 {
        if self.by_count {
            return number - COUNT;
        }
        usize::try_from(number).ok().and_then(|d| self.domains.get(d)).map_or(0, |d| d.pods)
    }

    pub(super) fn is_by_count(&self) -> bool {
        self.by_count
    }

    pub(super) fn domain_count(&self) -> usize {
        self.domains.len()
    }

    /// Changes a domain's count by hand, for dry runs.
    fn nudge(&mut self, value: Sym, delta: i64) {
        if let Some(&domain) = self.index.get(&Some(value)) {
            let domain = &mut self.domains[domain as usize];
            let before = (domain.eligible > 0).then_some(domain.pods);
            domain.pods += delta;
            let after = (domain.eligible > 0).then_some(domain.pods);
            self.recount(before, after);
        }
    }
}

impl Spread {
    pub(super) fn new(
        constraints: Vec<SpreadConstraint>,
        strict: bool,
        own_counts: bool,
        shape: &PodShape,
        cluster: &Cluster,
    ) -> Self {
        let namespace = shape.related.namespace.as_deref().unwrap_or_default();
        let tracked: Vec<Tracked> = constraints
            .into_iter()
            .map(|constraint| Tracked {
                counted: cluster.counted_for_spread(namespace, &constraint.selector),
                by_count: *constraint.topology_key == *HOSTNAME,
                constraint,
                index: IdMap::default(),
                domains: Vec::new(),
                counts: BTreeMap::new(),
            })
            .collect();
        let parts = vec![NO_PART; cluster.node_capacity() * tracked.len()];
        let mut spread = Self { tracked, parts, strict, own_counts };
        for node in cluster.nodes().iter() {
            spread.take(shape, cluster, node);
        }
        spread
    }

    /// Whether every count follows placements.
    fn is_kept(&self) -> bool {
        self.tracked.iter().all(|t| t.counted.is_kept())
    }

    /// Takes a node's parts in, instead of those it had.
    fn take(&mut self, shape: &PodShape, cluster: &Cluster, node: NodeId) {
        let at = node.index() * self.tracked.len();
        if self.parts.len() < at + self.tracked.len() {
            self.parts.resize(cluster.node_capacity() * self.tracked.len(), NO_PART);
        }
        let (live, info) = (cluster.nodes().contains(node), cluster.node(node));
        let value = |key: &str| cluster.syms.get(key).and_then(|key| info.label(key));
        let complete = !self.strict
            || self.tracked.iter().all(|t| value(&t.constraint.topology_key).is_some());
        let view = cluster.view(node);
        let (mut affine, mut clean) = (None, None);
        for (i, tracked) in self.tracked.iter_mut().enumerate() {
            let mut part = NO_PART;
            let own = if live { value(&tracked.constraint.topology_key) } else { None };
            let constraint = &tracked.constraint;
            if live && (own.is_some() || !self.strict) {
                let affine = !constraint.honor_affinity
                    || *affine.get_or_insert_with(|| node_affinity::matches(shape, &view.labels()));
                let clean = !constraint.honor_taints
                    || *clean.get_or_insert_with(|| taint_toleration::admits(shape, view));
                part.own = tracked.counted.on(cluster, node);
                part.eligible = complete && affine && clean;
                part.pods = if part.eligible { part.own } else { 0 };
                part.labeled = own.is_some();
                part.domain = tracked.domain(own.filter(|v| !cluster.syms.text(*v).is_empty()));
            }
            let before = std::mem::replace(&mut self.parts[at + i], part);
            tracked.shift(&before, false);
            tracked.shift(&part, true);
        }
    }

    /// Follows a change of a node; see the framework.
    pub(super) fn follow(
        &mut self,
        shape: &PodShape,
        cluster: &Cluster,
        node: NodeId,
        also: &mut Vec<NodeId>,
    ) -> bool {
        if !self.is_kept() {
            return false;
        }
        let before: Vec<(u32, i64)> = self.counts_at(node);
        self.take(shape, cluster, node);
        let after = self.counts_at(node);
        if self.own_counts || before == after {
            return true;
        }
        // Nodes that share a hostname are told apart by a count they share.
        for (tracked, sums) in self.tracked.iter().zip(before.iter().zip(&after)) {
            for &(domain, _) in [sums.0, sums.1] {
                let shared = tracked.domains.get(domain as usize).is_some_and(|d| d.nodes > 0);
                if tracked.by_count && shared {
                    let nodes = tracked.index.iter().find(|(_, d)| **d == domain);
                    let value = nodes.and_then(|(value, _)| *value);
                    let value: Box<str> = value.map_or("", |v| &**cluster.syms.text(v)).into();
                    let key = &tracked.constraint.topology_key;
                    also.extend(cluster.index.with_values(&cluster.syms, key, &[value]).iter());
                }
            }
        }
        true
    }

    /// Domain and sum of each constraint, for a node.
    fn counts_at(&self, node: NodeId) -> Vec<(u32, i64)> {
        let at = node.index() * self.tracked.len();
        let parts = self.parts.get(at..at + self.tracked.len()).unwrap_or_default();
        let sum = |(t, p): (&Tracked, &Part)| {
            (p.domain, t.domains.get(p.domain as usize).map_or(0, |d| d.pods))
        };
        self.tracked.iter().zip(parts).map(sum).collect()
    }

    /// A number per constraint: the domain, or the count where nodes are told apart
    /// by that. Below zero if the node lacks the key: -1, or -2 minus the domain
    /// of the empty value if that is no reason to leave it out.
    pub(super) fn tell(&self, node: NodeView<'_>, key: &mut ClassKey) {
        let at = node.id().index() * self.tracked.len();
        let Some(parts) = self.parts.get(at..at + self.tracked.len()) else {
            key.resize(key.len() + self.tracked.len(), -1);
            return;
        };
        for (tracked, part) in self.tracked.iter().zip(parts) {
            key.push(match part.domain {
                NONE => -1,
                domain if !part.labeled => -2 - i64::from(domain),
                _ if tracked.by_count && self.own_counts => COUNT + part.own,
                domain if tracked.by_count => COUNT + tracked.domains[domain as usize].pods,
                domain => domain.into(),
            });
        }
    }

    /// As if a pod with these labels were on the node too, or were not.
    pub(super) fn nudge(
        &mut self,
        group: &crate::cluster::GroupKey,
        node: NodeView<'_>,
        delta: i64,
    ) {
        let at = node.id().index() * self.tracked.len();
        for (i, tracked) in self.tracked.iter_mut().enumerate() {
            let eligible = self.parts.get(at + i).is_some_and(|p| p.eligible);
            let syms = &node.cluster().syms;
            let value = syms.get(&tracked.constraint.topology_key);
            let value = value.and_then(|key| node.info().label(key));
            if let Some(value) = value
                && eligible
                && tracked.constraint.selector.matches(&group.labels)
            {
                tracked.nudge(value, delta);
            }
        }
    }
}
