//! What nodes are inside, by node.
//!
//! Owns the newest report of each node, whether the node is known or not, and which of two is in
//! force: Muster's agent knows more than a NodeResourceTopology does. A column by node lets
//! filters read it without a search. Must never believe half a report: one that contradicts
//! itself leaves what was before.

use std::sync::Arc;

use super::chunked::Chunked;
use super::gpus::LinkTables;
use super::inside::{self, Machines};
use super::{Cluster, NodeId};
use crate::bugs::{Bugs, bug};
use crate::gpu_links::Links;
use crate::hash::TextMap;
use crate::io::{Kind, Object, Tick};
use crate::model::NodeTopology;
use crate::numa::{Machine, Memo, Usage};

/// Most nodes of which reports are kept, known or not.
pub const MAX_NODE_TOPOLOGIES: usize = 1 << 17;

/// What was reported of nodes.
#[derive(Clone, Default)]
pub struct NodeTopologies {
    by_name: Arc<TextMap<Arc<str>, Reports>>,
    /// What is in force, by node that exists.
    column: Chunked<Option<Arc<Known>>>,
    machines: Arc<Machines>,
    links: Arc<LinkTables>,
    memo: Arc<Memo>,
}

/// A report, and what the predictor reads of it.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) topology: Arc<NodeTopology>,
    /// When it came.
    pub(super) came: Tick,
    /// None if too little is known to predict anything.
    pub(super) machine: Option<Arc<Machine>>,
    /// What is in use if every pod that was reported is still there.
    pub(super) usage: Usage,
    /// How good the sets of its GPUs are.
    pub(super) links: Option<Arc<Links>>,
}

/// What was reported of a node: by Muster's agent, and by another.
#[derive(Clone, Debug, Default)]
struct Reports {
    agent: Option<Report>,
    foreign: Option<Report>,
}

/// One report.
#[derive(Clone, Debug)]
pub struct Report {
    /// What it says.
    pub topology: Arc<NodeTopology>,
    /// When the agent saw it, by the agent's clock: an agent writes when something changes, so
    /// an old report is not a wrong one.
    pub observed_at: Option<Tick>,
    /// The agent's number of it; begins anew when the agent does.
    pub sequence: u64,
    /// When it came.
    pub came: Tick,
    version: Box<str>,
    seen: u64,
}

/// What a change of a report means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing that a decision reads is other than before.
    None,
    /// The first report of a node.
    Added,
    /// Another one.
    Updated,
    /// There is none any more.
    Removed,
}

impl Reports {
    fn of(&mut self, kind: Kind) -> &mut Option<Report> {
        if kind == Kind::NodeTopology { &mut self.agent } else { &mut self.foreign }
    }

    fn in_force(&self) -> Option<&Report> {
        self.agent.as_ref().or(self.foreign.as_ref())
    }

    fn topology(&self) -> Option<&Arc<NodeTopology>> {
        self.in_force().map(|report| &report.topology)
    }
}

impl NodeTopologies {
    /// The report that is in force of a node, by name.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<&Report> {
        self.by_name.get(name)?.in_force()
    }

    /// What is in force of a node.
    pub(super) fn get(&self, node: NodeId) -> Option<&NodeTopology> {
        self.known(node).map(|known| &*known.topology)
    }

    /// As [`NodeTopologies::get`], with what the predictor reads of it.
    pub(super) fn known(&self, node: NodeId) -> Option<&Known> {
        if node.index() >= self.column.len() {
            return None;
        }
        self.column.get(node.index()).as_deref()
    }

    /// Predictions that were made before.
    pub(super) fn memo(&self) -> &Memo {
        &self.memo
    }

    /// Takes in a report of a node. An object that was seen before is not looked at.
    ///
    /// # Errors
    /// Why it was not taken; what was before stays.
    pub(super) fn upsert(&mut self, now: Tick, object: &Object, seen: u64) -> Result<News, String> {
        let (kind, meta) = (object.kind(), object.metadata());
        let name = meta.name.as_str();
        if self.by_name.len() >= MAX_NODE_TOPOLOGIES && !self.by_name.contains_key(name) {
            return Err(format!("there are {MAX_NODE_TOPOLOGIES} of them already"));
        }
        let by_name = Arc::make_mut(&mut self.by_name);
        if !by_name.contains_key(name) {
            by_name.insert(name.into(), Reports::default());
        }
        let Some(reports) = by_name.get_mut(name) else { return Ok(News::None) };
        let before = reports.topology().cloned();
        let report = reports.of(kind);
        if let Some(known) = report {
            known.seen = seen;
            if !known.version.is_empty() && *known.version == *meta.resource_version {
                return Ok(News::None);
            }
        }
        let compiled = compile(object, report.as_ref().map(|report| &*report.topology));
        let topology = match compiled {
            Ok(topology) => topology,
            Err(error) => {
                if reports.in_force().is_none() {
                    by_name.remove(name);
                }
                return Err(error);
            }
        };
        let shared = report.take().map(|r| r.topology).filter(|known| **known == topology);
        let (observed_at, sequence) = stamp(object);
        *report = Some(Report {
            topology: shared.unwrap_or_else(|| Arc::new(topology)),
            observed_at,
            sequence,
            came: now,
            version: meta.resource_version.as_str().into(),
            seen,
        });
        let news = News::between(before.as_ref(), reports.topology());
        // It does not say whom it speaks of: by its time it does.
        let confirms = kind == Kind::NodeResourceTopology && reports.agent.is_none();
        Ok(if confirms && news == News::None { News::Updated } else { news })
    }

    /// A report is gone.
    pub(super) fn remove(&mut self, kind: Kind, name: &str) -> News {
        if !self.by_name.contains_key(name) {
            return News::None;
        }
        let by_name = Arc::make_mut(&mut self.by_name);
        let Some(reports) = by_name.get_mut(name) else { return News::None };
        let before = reports.topology().cloned();
        *reports.of(kind) = None;
        let news = News::between(before.as_ref(), reports.topology());
        if reports.in_force().is_none() {
            by_name.remove(name);
        }
        news
    }

    /// Names of nodes whose reports were last seen before list `seen`.
    pub(super) fn stale(&self, kind: Kind, seen: u64) -> Vec<Arc<str>> {
        let report = |reports: &Reports| match kind {
            Kind::NodeTopology => reports.agent.as_ref().is_some_and(|r| r.seen < seen),
            _ => reports.foreign.as_ref().is_some_and(|r| r.seen < seen),
        };
        let stale = self.by_name.iter().filter(|(_, reports)| report(reports));
        let mut stale: Vec<Arc<str>> = stale.map(|(name, _)| Arc::clone(name)).collect();
        stale.sort_unstable();
        stale
    }

    /// Puts what is in force of a node into the column, or nothing if the node is gone.
    pub(super) fn place(&mut self, node: NodeId, name: Option<&str>, bugs: Bugs) {
        let report = name.and_then(|name| self.by_name.get(name)?.in_force()).cloned();
        if report.is_none() && node.index() >= self.column.len() {
            return;
        }
        self.column.grow(node.index() + 1);
        let before = self.column.get_mut(node.index()).take();
        let tables = (Arc::make_mut(&mut self.machines), Arc::make_mut(&mut self.links));
        let known = report.map(|report| Arc::new(Known::of(report, before, tables, bugs)));
        *self.column.get_mut(node.index()) = known;
    }
}

impl Known {
    fn of(
        report: Report,
        before: Option<Arc<Self>>,
        (machines, links): (&mut Machines, &mut LinkTables),
        bugs: Bugs,
    ) -> Self {
        let Report { topology, came, .. } = report;
        let same_hardware =
            |before: &&Arc<Self>| Arc::ptr_eq(&before.topology.hardware, &topology.hardware);
        let links = match before.as_ref().filter(same_hardware) {
            Some(before) => before.links.clone(),
            None => links.of(&topology.hardware),
        };
        let same = before.and_then(|before| {
            let machine = before.machine.as_ref()?;
            let same = inside::is_same(machine, &before.topology, &topology);
            (same || bug!(bugs, MachineStale)).then(|| Arc::clone(machine))
        });
        let machine =
            same.or_else(|| inside::machine(&topology).map(|machine| machines.shared(machine)));
        let usage = machine.as_ref().map(|machine| inside::reported(&topology, machine));
        Self { topology, came, machine, usage: usage.unwrap_or_default(), links }
    }
}

impl Cluster {
    /// What nodes are inside.
    #[must_use]
    pub fn node_topologies(&self) -> &NodeTopologies {
        &self.insides
    }

    /// Takes in what an agent says of a node: a change of that node if it is news.
    pub(crate) fn set_node_topology(
        &mut self,
        now: Tick,
        object: &Object,
        seen: u64,
    ) -> Result<News, String> {
        let news = self.insides.upsert(now, object, seen)?;
        self.place_node_topology(&object.metadata().name, news);
        Ok(news)
    }

    /// A report of a node is gone.
    pub(crate) fn remove_node_topology(&mut self, kind: Kind, name: &str) -> News {
        let news = self.insides.remove(kind, name);
        self.place_node_topology(name, news);
        news
    }

    fn place_node_topology(&mut self, name: &str, news: News) {
        if let Some(node) = self.index.node(name).filter(|_| news != News::None) {
            self.insides.place(node, Some(name), self.bugs);
            self.note_report(node);
            self.note_domain(node);
            self.journal.push(node);
        }
    }

    /// Nodes whose reports were last seen before list `seen`.
    pub(crate) fn stale_node_topologies(&self, kind: Kind, seen: u64) -> Vec<Arc<str>> {
        self.insides.stale(kind, seen)
    }
}

impl News {
    fn between(before: Option<&Arc<NodeTopology>>, after: Option<&Arc<NodeTopology>>) -> Self {
        match (before, after) {
            (None, None) => Self::None,
            (None, Some(_)) => Self::Added,
            (Some(_), None) => Self::Removed,
            (Some(before), Some(after)) if Arc::ptr_eq(before, after) || before == after => {
                Self::None
            }
            (Some(_), Some(_)) => Self::Updated,
        }
    }
}

fn compile(object: &Object, before: Option<&NodeTopology>) -> Result<NodeTopology, String> {
    match object {
        Object::NodeTopology(object) => NodeTopology::compile(object, before),
        Object::NodeResourceTopology(object) => NodeTopology::compile_foreign(object),
        other => Err(format!("{:?} says nothing of what a node is inside", other.kind())),
    }
}

fn stamp(object: &Object) -> (Option<Tick>, u64) {
    match object {
        Object::NodeTopology(object) => {
            (object.status.observed_at.map(|time| Tick(time.0)), object.status.sequence)
        }
        _ => (None, 0),
    }
}
