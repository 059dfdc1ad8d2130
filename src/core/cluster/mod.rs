//! The state: nodes in columns, pods, shapes and indexes.
//!
//! Owns what is known of the cluster and the arithmetic of placing a pod on a
//! node. One owner thread writes it; a [`Cluster::fork`] is a cheap, independent
//! copy for questions. Must never decide anything, and never walk all pods for
//! one change.

mod away;
mod chunked;
mod data;
mod gangs;
mod governance;
#[cfg(test)]
mod governance_tests;
mod gpus;
mod index;
mod inside;
mod journal;
mod kin;
#[cfg(test)]
mod kin_tests;
mod lineages;
mod load;
mod node_set;
mod node_topologies;
mod nodes;
mod nominations;
mod objects;
mod objects_related;
mod owners;
mod policies;
mod relate;
mod shapes;
mod shields;
mod sites;
mod starts;
mod tally;
#[cfg(test)]
mod tests;
mod txn;
mod volumes;

pub use away::AwayId;
pub use data::{Data, MAX_DATA, MAX_DATUM};
pub use gangs::{Gang, Standing};
pub use inside::{Expected, Holder, Inside, NodeDevices};
pub use kin::{GroupId, GroupKey};
pub use node_set::NodeSet;
pub use node_topologies::{MAX_NODE_TOPOLOGIES, NodeTopologies, Report};
pub use nodes::{NodeId, NodeInfo};
pub use objects::Objects;
pub use owners::Owner;
pub use policies::{Budget, Policies};
pub use sites::CrewId;
pub use txn::{Ledgers, Txn};
pub use volumes::{Kept, Volume, VolumeBindingPlan, VolumePlan, Volumes, claim_class, claim_key};

pub(crate) use index::Index;
pub(crate) use kin::{Kin, MatchKey};
pub(crate) use node_topologies::News;
pub(crate) use nodes::Labels;
pub(crate) use relate::Counted;
pub(crate) use shields::{Protection, Shield};
pub(crate) use volumes::{is_bound_to, object_key};

use std::sync::Arc;

use muster_api::k8s;
use muster_api::muster::labels::{GPU_CLIQUE, NVLINK_DOMAIN};

use crate::bugs::{Bugs, bug};
use crate::model::{
    Interner, Pod, PodId, PodRequests, PodShape, PodStage, PodVolumes, ResId, ResourceTable,
    ShapeId,
};
use chunked::Chunked;
use journal::Journal;
use nodes::Columns;
use nominations::Nominations;
use shapes::ShapeTable;
use tally::Tally;

/// Everything the plugins read.
#[derive(Default)]
pub struct Cluster {
    pub(crate) syms: Arc<Interner>,
    pub(crate) resources: Arc<ResourceTable>,
    pub(crate) index: Arc<Index>,
    columns: Columns,
    infos: Chunked<NodeInfo>,
    live: NodeSet,
    live_count: usize,
    free_nodes: Vec<NodeId>,
    /// Nodes that are gone while pods are still on them.
    ghosts: crate::hash::TextMap<Arc<str>, NodeId>,
    /// Pods on nodes that are not known.
    away: Arc<away::Away>,
    pods: Chunked<Option<Pod>>,
    free_pods: Vec<PodId>,
    pod_count: usize,
    shapes: ShapeTable,
    volumes: Volumes,
    policies: Policies,
    governance: Arc<governance::Governance>,
    load: load::Load,
    nominations: Nominations,
    /// For how many seconds at least room is kept for a gang.
    kept_seconds: i64,
    data: Data,
    gangs: Arc<gangs::Gangs>,
    insides: NodeTopologies,
    demands: gpus::Demands,
    /// Nodes that are in an NVLink domain larger than a node.
    in_domains: usize,
    vigil: inside::Vigil,
    shields: shields::Shields,
    starts: starts::Starts,
    sites: Arc<sites::Sites>,
    topologies: crate::topology::Topologies,
    /// Grows with every node that comes or goes, or has other labels.
    labelled: u64,
    pub(crate) journal: Journal,
    pub(crate) bugs: Bugs,
    pub(crate) kin: Arc<Kin>,
    pub(crate) tally: Tally,
    namespaces_seen: Arc<crate::hash::TextMap<Arc<str>, u64>>,
}

/// What an upsert of a node changed.
#[derive(Clone, Debug)]
pub struct NodeChange {
    /// The node.
    pub node: NodeId,
    /// Which aspects changed; empty if nothing the scheduler reads did.
    pub actions: crate::framework::Actions,
    /// The node before, for updates.
    pub before: Option<NodeBefore>,
    /// Pods that were known to be on it before it was known itself.
    pub came: Vec<PodId>,
}

/// A node as it was before an update.
#[derive(Clone, Debug)]
pub struct NodeBefore {
    /// Record.
    pub info: NodeInfo,
    /// Allocatable, non-zero entries.
    pub allocatable: Vec<(ResId, i64)>,
    /// Most pods.
    pub max_pods: i64,
}

impl Cluster {
    /// An empty one, with a mistake in it perhaps.
    pub(crate) fn with(bugs: Bugs) -> Self {
        Self { bugs, ..Self::default() }
    }

    /// An independent copy that shares unchanged chunks. Its journal begins
    /// where this one ends.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self {
            syms: Arc::clone(&self.syms),
            resources: Arc::clone(&self.resources),
            index: Arc::clone(&self.index),
            columns: self.columns.clone(),
            infos: self.infos.clone(),
            live: self.live.clone(),
            live_count: self.live_count,
            free_nodes: self.free_nodes.clone(),
            ghosts: self.ghosts.clone(),
            away: Arc::clone(&self.away),
            pods: self.pods.clone(),
            free_pods: self.free_pods.clone(),
            pod_count: self.pod_count,
            shapes: self.shapes.clone(),
            volumes: self.volumes.clone(),
            policies: self.policies.clone(),
            governance: Arc::clone(&self.governance),
            load: self.load.clone(),
            nominations: self.nominations.clone(),
            kept_seconds: self.kept_seconds,
            data: self.data.clone(),
            gangs: Arc::clone(&self.gangs),
            insides: self.insides.clone(),
            demands: self.demands.clone(),
            in_domains: self.in_domains,
            vigil: self.vigil.clone(),
            shields: self.shields.clone(),
            starts: self.starts.clone(),
            sites: Arc::clone(&self.sites),
            topologies: self.topologies.clone(),
            labelled: self.labelled,
            journal: self.journal.fork(),
            bugs: self.bugs,
            kin: Arc::clone(&self.kin),
            tally: self.tally.clone(),
            namespaces_seen: Arc::clone(&self.namespaces_seen),
        }
    }

    // ---- nodes -------------------------------------------------------------

    /// Nodes that exist.
    #[must_use]
    pub fn nodes(&self) -> &NodeSet {
        &self.live
    }

    /// How many nodes exist.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.live_count
    }

    /// One more than the greatest node index in use.
    #[must_use]
    pub fn node_capacity(&self) -> usize {
        self.infos.len()
    }

    /// The record of a node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> &NodeInfo {
        self.infos.get(node.index())
    }

    /// The node of that name, if it exists.
    #[must_use]
    pub fn node_by_name(&self, name: &str) -> Option<NodeId> {
        self.index.node(name)
    }

    /// A view for plugins.
    #[must_use]
    pub fn view(&self, node: NodeId) -> NodeView<'_> {
        NodeView { cluster: self, id: node }
    }

    /// Adds or updates a node from the wire.
    pub fn upsert_node(&mut self, wire: &k8s::Node, seen: u64) -> NodeChange {
        let name = wire.metadata.name.as_str();
        let existing = self.index.node(name);
        let node = existing.unwrap_or_else(|| self.claim_node(name));
        let before = existing.map(|_| self.snapshot_node(node));
        if let Some(before) = &before {
            Arc::make_mut(&mut self.index).remove(node, &before.info);
            self.weigh_node(node, false);
        }
        let table = Arc::make_mut(&mut self.resources);
        self.columns.set_allocatable(node, &wire.status.allocatable, table);
        let info = self.infos.get_mut(node.index());
        info.read(wire, Arc::make_mut(&mut self.syms));
        if let Some(before) = before.as_ref().filter(|_| bug!(self.bugs, TaintIgnored)) {
            info.taints.clone_from(&before.info.taints);
        }
        info.exists = true;
        info.seen = seen;
        Arc::make_mut(&mut self.index).add(node, self.infos.get(node.index()));
        if before.is_none() {
            self.live.insert(node);
            self.live_count += 1;
            self.insides.place(node, Some(name), self.bugs);
            self.note_domain(node);
        }
        self.weigh_node(node, true);
        let actions = self.actions_since(node, before.as_ref());
        if actions != crate::framework::Actions::NONE {
            self.journal.push(node);
        }
        if before.as_ref().is_none_or(|b| b.info.labels != self.node(node).labels) {
            self.labelled += 1;
        }
        if actions != crate::framework::Actions::NONE {
            self.zones_changed();
        }
        let came = if before.is_none() { self.gather(node, name) } else { Vec::new() };
        NodeChange { node, actions, before, came }
    }

    /// Removes a node object. Pods that name it keep their place on a ghost.
    pub fn remove_node(&mut self, name: &str) -> Option<NodeId> {
        let node = self.index.node(name)?;
        let info = self.infos.get(node.index()).clone();
        Arc::make_mut(&mut self.index).remove(node, &info);
        self.weigh_node(node, false);
        self.live.remove(node);
        self.live_count -= 1;
        self.insides.place(node, None, self.bugs);
        self.note_domain(node);
        self.labelled += 1;
        self.zones_changed();
        let empty = info.pods.is_empty();
        let slot = self.infos.get_mut(node.index());
        slot.exists = false;
        if empty {
            self.release_node(node);
        } else {
            self.ghosts.insert(info.name, node);
        }
        self.journal.push(node);
        Some(node)
    }

    fn claim_node(&mut self, name: &str) -> NodeId {
        if let Some(node) = self.ghosts.remove(name) {
            return node;
        }
        let node = self.free_nodes.pop().unwrap_or_else(|| {
            let next = u32::try_from(self.infos.len()).expect("fewer than 2^32 nodes");
            self.infos.grow(self.infos.len() + 1);
            NodeId(next)
        });
        self.columns.grow(self.infos.len(), self.resources.len());
        *self.infos.get_mut(node.index()) = NodeInfo { name: name.into(), ..NodeInfo::default() };
        node
    }

    fn release_node(&mut self, node: NodeId) {
        for column in &mut self.columns.allocatable {
            *column.get_mut(node.index()) = 0;
        }
        *self.columns.max_pods.get_mut(node.index()) = 0;
        *self.infos.get_mut(node.index()) = NodeInfo::default();
        self.free_nodes.push(node);
    }

    /// A node that exists, as it is.
    pub(crate) fn node_before(&self, name: &str) -> Option<NodeBefore> {
        Some(self.snapshot_node(self.index.node(name)?))
    }

    fn snapshot_node(&self, node: NodeId) -> NodeBefore {
        let i = node.index();
        let amounts = self.columns.allocatable.iter().enumerate();
        NodeBefore {
            info: self.infos.get(i).clone(),
            allocatable: amounts
                .map(|(r, c)| (ResId(r as u16), *c.get(i)))
                .filter(|(_, amount)| *amount != 0)
                .collect(),
            max_pods: *self.columns.max_pods.get(i),
        }
    }

    fn actions_since(
        &self,
        node: NodeId,
        before: Option<&NodeBefore>,
    ) -> crate::framework::Actions {
        use crate::framework::Actions;
        let Some(before) = before else {
            return Actions::ADD;
        };
        let now = self.snapshot_node(node);
        let mut actions = Actions::NONE;
        if now.allocatable != before.allocatable || now.max_pods != before.max_pods {
            actions = actions | Actions::UPDATE_NODE_ALLOCATABLE;
        }
        if now.info.labels != before.info.labels {
            actions = actions | Actions::UPDATE_NODE_LABEL;
        }
        if now.info.taints != before.info.taints
            || now.info.unschedulable != before.info.unschedulable
        {
            actions = actions | Actions::UPDATE_NODE_TAINT;
        }
        if now.info.features != before.info.features {
            actions = actions | Actions::UPDATE_NODE_DECLARED_FEATURE;
        }
        if now.info.images != before.info.images {
            actions = actions | Actions::UPDATE_NODE_IMAGES;
        }
        actions
    }

    /// Nodes last seen before relist `seen`.
    pub(crate) fn stale_nodes(&self, seen: u64) -> Vec<Arc<str>> {
        let stale = self.live.iter().map(|n| self.node(n)).filter(|info| info.seen < seen);
        stale.map(|info| Arc::clone(&info.name)).collect()
    }

    // ---- pods --------------------------------------------------------------

    /// A pod.
    #[must_use]
    pub fn pod(&self, pod: PodId) -> Option<&Pod> {
        if (pod.0 as usize) < self.pods.len() {
            self.pods.get(pod.0 as usize).as_ref()
        } else {
            None
        }
    }

    pub(crate) fn pod_mut(&mut self, pod: PodId) -> Option<&mut Pod> {
        self.pods.get_mut(pod.0 as usize).as_mut()
    }

    /// How many pods are known.
    #[must_use]
    pub fn pod_count(&self) -> usize {
        self.pod_count
    }

    pub(crate) fn pods(&self) -> impl Iterator<Item = (PodId, &Pod)> {
        self.pods.iter().enumerate().filter_map(|(i, p)| Some((PodId(i as u32), p.as_ref()?)))
    }

    /// The shape of a pod.
    #[must_use]
    pub fn shape(&self, shape: ShapeId) -> &Arc<PodShape> {
        self.shapes.get(shape)
    }

    /// Shapes freed since the last call, whose ledgers can go.
    pub(crate) fn take_freed_shapes(&mut self) -> std::collections::BTreeSet<ShapeId> {
        self.shapes.take_freed()
    }

    /// Adds a pod that occupies nothing yet.
    pub(crate) fn add_pod(&mut self, pod: Pod) -> PodId {
        debug_assert_eq!(pod.stage, PodStage::Pending);
        let id = self.free_pods.pop().unwrap_or_else(|| {
            let next = u32::try_from(self.pods.len()).expect("fewer than 2^32 pods");
            self.pods.grow(self.pods.len() + 1);
            PodId(next)
        });
        *self.pods.get_mut(id.0 as usize) = Some(pod);
        self.pod_count += 1;
        id
    }

    /// Forgets a pod and frees what it occupied.
    pub(crate) fn drop_pod(&mut self, id: PodId) {
        if !bug!(self.bugs, NominationLeaked) {
            self.nominate(id, None);
        }
        self.recall(id);
        if let Some(node) = self.displace(id) {
            self.reap(node);
        }
        self.set_crew(id, None);
        self.forget_evictions(id);
        if let Some(pod) = self.pods.get_mut(id.0 as usize).take() {
            self.release_shape(pod.shape);
            Arc::make_mut(&mut self.kin).leave(pod.group, pod.ours);
            self.free_pods.push(id);
            self.pod_count -= 1;
        }
    }

    /// Puts a pending pod on a node.
    pub(crate) fn place(&mut self, id: PodId, node: NodeId, assumed: bool) {
        let Some(pod) = self.pods.get_mut(id.0 as usize) else {
            return;
        };
        debug_assert_eq!(pod.stage, PodStage::Pending);
        pod.stage = if assumed { PodStage::Assumed(node) } else { PodStage::Bound(node) };
        let (shape_id, group) = (pod.shape, pod.group);
        self.expect(id, false);
        self.tally_pod(group, shape_id, node, true);
        self.count_site(id, node, true);
        self.occupy(id, node);
        self.begin_start(id, node);
        self.journal.push(node);
    }

    /// Takes room on a node for a pod, wherever the pod is: nothing else is told.
    /// Whoever tries something calls this, and undoes it with [`Cluster::clear`].
    pub(crate) fn occupy(&mut self, id: PodId, node: NodeId) {
        let Some(shape_id) = self.pod(id).map(|p| p.shape) else {
            return;
        };
        let shape = Arc::clone(self.shapes.get(shape_id));
        let exact = self.charge(node, &shape.requests, true);
        let info = self.infos.get_mut(node.index());
        info.pods.push(id);
        if !bug!(self.bugs, PortsIgnored) {
            info.ports.extend(shape.ports.iter().cloned());
        }
        if let Some(volumes) = &shape.volumes {
            self.volumes.count(id, volumes, true);
        }
        if !exact {
            self.recount(node);
        }
    }

    /// Takes a pod off its node; it is pending again.
    pub(crate) fn displace(&mut self, id: PodId) -> Option<NodeId> {
        let pod = self.pods.get_mut(id.0 as usize).as_mut()?;
        let node = pod.stage.node()?;
        pod.stage = PodStage::Pending;
        let (shape_id, group) = (pod.shape, pod.group);
        self.expect(id, true);
        self.tally_pod(group, shape_id, node, false);
        self.count_site(id, node, false);
        self.clear(id, node);
        self.end_start(id, node);
        self.journal.push(node);
        Some(node)
    }

    /// Gives back the room that [`Cluster::occupy`] took.
    pub(crate) fn clear(&mut self, id: PodId, node: NodeId) {
        let Some(shape_id) = self.pod(id).map(|p| p.shape) else {
            return;
        };
        let shape = Arc::clone(self.shapes.get(shape_id));
        let exact = bug!(self.bugs, RoomNotFreed) || self.charge(node, &shape.requests, false);
        let info = self.infos.get_mut(node.index());
        if let Some(at) = info.pods.iter().position(|p| *p == id) {
            info.pods.swap_remove(at);
        }
        for port in &shape.ports {
            if let Some(at) = info.ports.iter().position(|p| p == port)
                && !bug!(self.bugs, PortsLeaked)
            {
                info.ports.swap_remove(at);
            }
        }
        if let Some(volumes) = &shape.volumes {
            self.volumes.count(id, volumes, false);
        }
        if !exact {
            self.recount(node);
        }
    }

    /// Forgets a node that no longer exists once its last pod is gone.
    pub(crate) fn reap(&mut self, node: NodeId) {
        let info = self.infos.get(node.index());
        if !info.exists && info.pods.is_empty() && !info.name.is_empty() {
            let name = Arc::clone(&info.name);
            self.ghosts.remove(&name);
            self.release_node(node);
        }
    }

    /// Adds a pod's requests to a node, or takes them off. False if a sum does
    /// not fit 64 bits, or did not before: it must be counted afresh then.
    fn charge(&mut self, node: NodeId, requests: &PodRequests, add: bool) -> bool {
        self.columns.grow(self.infos.len(), self.resources.len());
        self.grow_load();
        let (i, exists) = (node.index(), self.live.contains(node));
        let mut exact = true;
        let mut apply = |cell: &mut i64, amount: i64| {
            let sum = if add { cell.checked_add(amount) } else { cell.checked_sub(amount) };
            let cut_before = matches!(*cell, i64::MIN | i64::MAX);
            match sum {
                Some(sum) if !cut_before => *cell = sum,
                _ => exact = false,
            }
        };
        for &(id, amount) in &requests.charged {
            if id == ResId::MEMORY && bug!(self.bugs, Overcommit) {
                continue;
            }
            let cell = self.columns.requested[id.index()].get_mut(i);
            let before = *cell;
            apply(cell, amount);
            if exists {
                self.load.request(id, before, *cell);
            }
        }
        apply(self.columns.nonzero_cpu.get_mut(i), requests.nonzero_cpu);
        apply(self.columns.nonzero_memory.get_mut(i), requests.nonzero_memory);
        *self.columns.pods.get_mut(i) += if add { 1 } else { -1 };
        exact
    }

    /// Sums up what the pods of a node ask for, cut to 64 bits. Quantities that
    /// need it exist in hostile objects only; cut sums cannot be subtracted from,
    /// and a node must be as empty as before once such a pod is gone.
    fn recount(&mut self, node: NodeId) {
        let i = node.index();
        let mut requested = vec![0_i128; self.columns.requested.len()];
        let (mut cpu, mut memory) = (0_i128, 0_i128);
        for pod in &self.infos.get(i).pods {
            let Some(pod) = self.pods.get(pod.0 as usize) else {
                continue;
            };
            let requests = &self.shapes.get(pod.shape).requests;
            for &(id, amount) in &requests.charged {
                requested[id.index()] += i128::from(amount);
            }
            cpu += i128::from(requests.nonzero_cpu);
            memory += i128::from(requests.nonzero_memory);
        }
        let cut = |sum: i128| sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let exists = self.live.contains(node);
        for (at, (column, sum)) in self.columns.requested.iter_mut().zip(requested).enumerate() {
            let before = std::mem::replace(column.get_mut(i), cut(sum));
            if exists {
                self.load.request(ResId(at as u16), before, cut(sum));
            }
        }
        *self.columns.nonzero_cpu.get_mut(i) = cut(cpu);
        *self.columns.nonzero_memory.get_mut(i) = cut(memory);
    }

    /// Volumes, claims, classes and drivers.
    #[must_use]
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    pub(crate) fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// Disruption budgets and priority classes.
    #[must_use]
    pub fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(crate) fn policies_mut(&mut self) -> &mut Policies {
        &mut self.policies
    }

    /// Levels of the network between nodes.
    #[must_use]
    pub fn topologies(&self) -> &crate::topology::Topologies {
        &self.topologies
    }

    pub(crate) fn topologies_mut(&mut self) -> &mut crate::topology::Topologies {
        &mut self.topologies
    }

    /// Grows with every node that comes or goes, or has other labels.
    pub(crate) fn labelled(&self) -> u64 {
        self.labelled
    }

    /// Whether any node has a label.
    pub(crate) fn has_label(&self, key: &str) -> bool {
        if key == NVLINK_DOMAIN {
            return self.in_domains > 0 || self.has_label(GPU_CLIQUE);
        }
        self.index.has_key(&self.syms, key)
    }

    /// What a pod asks for of a resource, by name, in whole units (thousandths of `cpu`).
    #[must_use]
    pub fn request_of(&self, shape: &PodShape, resource: &str) -> i64 {
        let id = self.resources.get(resource);
        let charged = shape.requests.charged.iter();
        charged.filter(|(own, _)| Some(*own) == id).map(|(_, amount)| *amount).sum()
    }

    /// What plugins were fed from outside.
    #[must_use]
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Takes in a value from outside; true if it is news.
    pub(crate) fn set_data(&mut self, datum: &crate::io::Datum) -> Result<bool, String> {
        let exists = |name: &str| self.index.node(name).is_some();
        let news = self.data.set(datum, exists)?;
        if let crate::io::About::Node(name) = &datum.about
            && let Some(node) = self.index.node(name).filter(|_| news)
        {
            self.journal.push(node);
        }
        Ok(news)
    }

    /// Compiles a wire pod into a shape.
    pub(crate) fn compile(
        &mut self,
        pod: &k8s::Pod,
        profile: Option<crate::framework::ProfileId>,
    ) -> PodShape {
        let table = Arc::make_mut(&mut self.resources);
        let mut shape = crate::model::compile_pod(pod, profile, table);
        if profile.is_some() {
            shape.priority = self.policies.priority_of(pod);
            let (owner, group) = (Owner::of(&pod.metadata), self.group_key(pod));
            self.relate(&mut shape, &group, owner.as_ref());
            shape.scoring = self.scoring_of(&group);
        }
        shape
    }
}

/// One node, as a plugin sees it.
#[derive(Clone, Copy)]
pub struct NodeView<'a> {
    cluster: &'a Cluster,
    id: NodeId,
}

impl<'a> NodeView<'a> {
    /// The node's id.
    #[must_use]
    pub fn id(self) -> NodeId {
        self.id
    }

    /// Its record.
    #[must_use]
    pub fn info(self) -> &'a NodeInfo {
        self.cluster.infos.get(self.id.index())
    }

    /// The whole cluster.
    #[must_use]
    pub fn cluster(self) -> &'a Cluster {
        self.cluster
    }

    /// What pods may use of a resource.
    #[must_use]
    pub fn allocatable(self, resource: ResId) -> i64 {
        let column = self.cluster.columns.allocatable.get(resource.index());
        column.map_or(0, |c| *c.get(self.id.index()))
    }

    /// What pods on the node asked for.
    #[must_use]
    pub fn requested(self, resource: ResId) -> i64 {
        let column = self.cluster.columns.requested.get(resource.index());
        column.map_or(0, |c| *c.get(self.id.index()))
    }

    /// As `requested(CPU)`, with defaults for containers that ask for none.
    #[must_use]
    pub fn nonzero_cpu(self) -> i64 {
        *self.cluster.columns.nonzero_cpu.get(self.id.index())
    }

    /// As `requested(MEMORY)`, with defaults for containers that ask for none.
    #[must_use]
    pub fn nonzero_memory(self) -> i64 {
        *self.cluster.columns.nonzero_memory.get(self.id.index())
    }

    /// The value of a label.
    #[must_use]
    pub fn label(self, key: &str) -> Option<&'a str> {
        let syms = &self.cluster.syms;
        Some(syms.text(self.info().label(syms.get(key)?)?))
    }

    /// What pods may use of a resource, and what pods on the node asked for, by name.
    #[must_use]
    pub fn resource(self, name: &str) -> (i64, i64) {
        let id = self.cluster.resources.get(name);
        id.map_or((0, 0), |id| (self.allocatable(id), self.requested(id)))
    }

    /// What the node is inside, if an agent has said it.
    #[must_use]
    pub fn topology(self) -> Option<&'a crate::model::NodeTopology> {
        self.cluster.insides.get(self.id)
    }

    /// What a plugin was fed about this node.
    #[must_use]
    pub fn data(self, plugin: &str) -> Option<&'a serde_json::Value> {
        self.cluster.data.node(plugin, &self.info().name)
    }

    /// Pods on the node.
    #[must_use]
    pub fn pods(self) -> i64 {
        *self.cluster.columns.pods.get(self.id.index())
    }

    /// Most pods.
    #[must_use]
    pub fn max_pods(self) -> i64 {
        *self.cluster.columns.max_pods.get(self.id.index())
    }

    /// Volumes of the pods on the node, of those that have any.
    pub fn pod_volumes(self) -> impl Iterator<Item = &'a PodVolumes> {
        let pods = self.info().pods.iter().filter_map(move |p| self.cluster.pod(*p));
        pods.filter_map(move |p| self.cluster.shape(p.shape).volumes.as_deref())
    }

    pub(crate) fn labels(self) -> Labels<'a> {
        Labels { info: self.info(), syms: &self.cluster.syms }
    }
}
