//! How the GPUs of nodes are linked, by machine model, and what has been asked for of late.
//!
//! Owns the tables that nodes of a model share, and the demand per resource. Both are bounded: what
//! finds no room is not judged, and not counted.

use std::sync::Arc;

use muster_api::muster::labels::{GPU_CLIQUE, NVLINK_DOMAIN};

use super::{Cluster, Gang, NodeId, NodeView};
use crate::gpu_links::{Demand, Links, Shares, Wiring};
use crate::hash::TextMap;
use crate::io::Tick;
use crate::model::node_topology::NodeHardware;
use crate::model::{PodId, PodShape, ResId, Sym};

/// Most bytes of tables. One of eight GPUs has 2 KiB, one of sixteen half a megabyte.
const MAX_TABLE_BYTES: usize = 64 << 20;
/// Most resources of which demand is noted.
const MAX_RESOURCES: usize = 32;

/// Tables by what they are made from.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkTables {
    known: TextMap<Wiring, Arc<Links>>,
    bytes: usize,
}

impl LinkTables {
    /// The table of a machine; none if it has no GPUs, too many, or there is no room for it.
    pub(super) fn of(&mut self, hardware: &NodeHardware) -> Option<Arc<Links>> {
        let wiring = Wiring::of(hardware)?;
        if let Some(known) = self.known.get(&wiring) {
            return Some(Arc::clone(known));
        }
        let links = Arc::new(Links::new(wiring.clone()));
        if self.bytes + links.bytes() > MAX_TABLE_BYTES {
            self.known.retain(|_, links| Arc::strong_count(links) > 1);
            self.bytes = self.known.values().map(|links| links.bytes()).sum();
        }
        if self.bytes + links.bytes() > MAX_TABLE_BYTES {
            return None;
        }
        self.bytes += links.bytes();
        self.known.insert(wiring, Arc::clone(&links));
        Some(links)
    }
}

/// Demand by resource, in the order in which they were first asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Demands(Vec<(ResId, Demand)>);

impl Cluster {
    /// A pod has come that is to be placed.
    pub(crate) fn note_demand(&mut self, now: Tick, shape: &PodShape) {
        for name in &shape.named {
            let count = usize::try_from(self.request_of(shape, name)).unwrap_or(0);
            let Some(id) = self.resources.get(name).filter(|_| count > 0) else { continue };
            let known = self.demands.0.iter().position(|(own, _)| *own == id);
            let at = known.unwrap_or_else(|| {
                self.demands.0.push((id, Demand::default()));
                self.demands.0.len() - 1
            });
            if at < MAX_RESOURCES {
                self.demands.0[at].1.note(now.secs(), count);
            } else {
                self.demands.0.truncate(MAX_RESOURCES);
            }
        }
    }

    /// Lets what was asked for fade.
    pub(crate) fn fade_demand(&mut self, now: Tick) {
        for (_, demand) in &mut self.demands.0 {
            demand.settle(now.secs());
        }
    }

    /// By how much the loss of sets of two, four and eight devices of a resource counts.
    #[must_use]
    pub fn demand(&self, resource: &str) -> Shares {
        let id = self.resources.get(resource);
        let known = self.demands.0.iter().find(|(own, _)| Some(*own) == id);
        known.map_or_else(|| Demand::default().shares(), |(_, demand)| demand.shares())
    }
}

impl Cluster {
    /// Notes which NVLink domain a node is in, as its report says it.
    pub(super) fn note_domain(&mut self, node: NodeId) {
        let known = self.insides.known(node);
        let domain = known.and_then(|known| known.topology.hardware.nvlink_domain.clone());
        let domain = domain.map(|domain| Arc::make_mut(&mut self.syms).intern(&domain));
        let before = self.infos.get(node.index()).nvlink_domain;
        if before != domain {
            self.infos.get_mut(node.index()).nvlink_domain = domain;
            self.in_domains -= usize::from(before.is_some());
            self.in_domains += usize::from(domain.is_some());
            self.labelled += 1;
        }
    }

    /// What a node has as a label that topologies name.
    pub(crate) fn level_value(&self, node: NodeId, key: &str) -> Option<Sym> {
        let info = self.node(node);
        let label = |key: &str| info.label(self.syms.get(key)?);
        match key {
            NVLINK_DOMAIN => info.nvlink_domain.or_else(|| label(GPU_CLIQUE)),
            key => label(key),
        }
    }

    /// Whether members of a gang do better in one NVLink domain: there are some, somebody goes
    /// by links, and the gang asks for devices.
    pub(super) fn prefers_domains(&self, gang: &Gang, links: bool) -> bool {
        let asks =
            |pod: &PodId| self.pod(*pod).is_some_and(|pod| !self.shape(pod.shape).named.is_empty());
        links && self.has_label(NVLINK_DOMAIN) && gang.members.first().is_some_and(asks)
    }
}

impl<'a> NodeView<'a> {
    /// How good the sets of the node's GPUs are, if it is known.
    #[must_use]
    pub fn links(self) -> Option<&'a Links> {
        self.cluster().insides.known(self.id())?.links.as_deref()
    }
}
