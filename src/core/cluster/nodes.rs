//! Nodes: dense columns for what filters and scores read, and a record for the rest.

use std::sync::Arc;

use muster_api::k8s;

use crate::model::{
    Features, HostPort, Interner, NodeMatcher, PodId, ResId, ResourceTable, Sym, Taint,
};

use super::chunked::Chunked;

/// A node: a dense index, reused after the node is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a node beside its columns.
#[derive(Clone, Debug)]
pub struct NodeInfo {
    /// Name.
    pub name: Arc<str>,
    /// Whether the node object exists; pods may name a node that does not.
    pub exists: bool,
    /// Labels, sorted by key symbol.
    pub labels: Vec<(Sym, Sym)>,
    /// The NVLink domain that it is in, if that is larger than a node: see
    /// [`labels::NVLINK_DOMAIN`](muster_api::muster::labels::NVLINK_DOMAIN).
    pub nvlink_domain: Option<Sym>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// Cordoned.
    pub unschedulable: bool,
    /// Image names and sizes.
    pub images: Vec<(Sym, i64)>,
    /// Features the kubelet declares.
    pub features: Features,
    /// Pods on the node, bound and assumed.
    pub pods: Vec<PodId>,
    /// Host ports in use.
    pub ports: Vec<HostPort>,
    /// Version last seen.
    pub resource_version: Box<str>,
    /// The relist in which it was last seen.
    pub seen: u64,
}

impl Default for NodeInfo {
    fn default() -> Self {
        Self {
            name: "".into(),
            exists: false,
            labels: Vec::new(),
            nvlink_domain: None,
            taints: Vec::new(),
            unschedulable: false,
            images: Vec::new(),
            features: Features::default(),
            pods: Vec::new(),
            ports: Vec::new(),
            resource_version: "".into(),
            seen: 0,
        }
    }
}

impl NodeInfo {
    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: Sym) -> Option<Sym> {
        let at = self.labels.binary_search_by_key(&key, |(k, _)| *k).ok()?;
        Some(self.labels[at].1)
    }

    /// The size of an image on the node.
    #[must_use]
    pub fn image(&self, name: Sym) -> Option<i64> {
        let at = self.images.binary_search_by_key(&name, |(n, _)| *n).ok()?;
        Some(self.images[at].1)
    }

    /// Takes over what the wire object says, leaving pods and ports alone.
    pub(crate) fn read(&mut self, node: &k8s::Node, syms: &mut Interner) {
        self.labels =
            node.metadata.labels.iter().map(|(k, v)| (syms.intern(k), syms.intern(v))).collect();
        self.labels.sort_unstable();
        self.taints = node.spec.taints.iter().map(|t| Taint::of(t, syms)).collect();
        self.unschedulable = node.spec.unschedulable;
        // One name twice on a node: the last size counts, as upstream. The sort
        // is stable, so going backwards the first of equal names is the last.
        let sizes = node.status.images.iter().rev().flat_map(|image| {
            image.names.iter().rev().map(move |name| (name.as_str(), image.size_bytes))
        });
        let mut images: Vec<(Sym, i64)> = sizes.map(|(n, size)| (syms.intern(n), size)).collect();
        images.sort_by_key(|(name, _)| *name);
        images.dedup_by_key(|(name, _)| *name);
        self.images = images;
        self.features = Features::declared(&node.status.declared_features);
        self.resource_version = node.metadata.resource_version.as_str().into();
    }
}

/// A node's labels and name, as selectors ask for them.
pub(crate) struct Labels<'a> {
    pub(crate) info: &'a NodeInfo,
    pub(crate) syms: &'a Interner,
}

impl NodeMatcher for Labels<'_> {
    fn name(&self) -> &str {
        &self.info.name
    }

    fn label(&self, key: &str) -> Option<&str> {
        let value = self.info.label(self.syms.get(key)?)?;
        Some(self.syms.text(value))
    }
}

/// The numbers of all nodes, a column each.
#[derive(Clone, Default)]
pub(crate) struct Columns {
    pub(crate) allocatable: Vec<Chunked<i64>>,
    pub(crate) requested: Vec<Chunked<i64>>,
    pub(crate) nonzero_cpu: Chunked<i64>,
    pub(crate) nonzero_memory: Chunked<i64>,
    pub(crate) pods: Chunked<i64>,
    pub(crate) max_pods: Chunked<i64>,
    rows: usize,
}

impl Columns {
    pub(crate) fn grow(&mut self, rows: usize, resources: usize) {
        self.rows = self.rows.max(rows);
        for columns in [&mut self.allocatable, &mut self.requested] {
            if columns.len() < resources {
                columns.resize_with(resources, Chunked::default);
            }
            columns.iter_mut().for_each(|c| c.grow(self.rows));
        }
        for column in
            [&mut self.nonzero_cpu, &mut self.nonzero_memory, &mut self.pods, &mut self.max_pods]
        {
            column.grow(self.rows);
        }
    }

    /// Sets a node's allocatable from the wire.
    pub(crate) fn set_allocatable(
        &mut self,
        node: NodeId,
        list: &k8s::ResourceList,
        table: &mut ResourceTable,
    ) {
        let amounts: Vec<(ResId, i64)> = list
            .iter()
            .filter_map(|(name, &q)| {
                let id = table.intern(name)?;
                Some((id, crate::model::amount_of(id, q)))
            })
            .collect();
        self.grow(node.index() + 1, table.len());
        for column in &mut self.allocatable {
            if *column.get(node.index()) != 0 {
                *column.get_mut(node.index()) = 0;
            }
        }
        for (id, amount) in amounts {
            *self.allocatable[id.index()].get_mut(node.index()) = amount;
        }
        *self.max_pods.get_mut(node.index()) = list.get("pods").map_or(0, |q| q.value());
    }
}
