//! Domains that gangs have for themselves.
//!
//! Owns which nodes are closed to the members of a gang because of `exclusive`: those of
//! domains that another gang has for itself, and, if the gang asks for one of its own, those
//! of domains where other gangs are. Members count from when they have room until they are
//! gone. Pods of no gang are not concerned. Must never take room.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use super::scope::{Place, Sought};
use crate::bugs::bug;
use crate::cluster::{NodeId, NodeSet};
use crate::gang::{GangId, GangSpec, Wish};
use crate::io::Tick;
use crate::model::PodId;

/// Most reasons that are told of closed domains.
const MAX_WORDS: usize = 2;

/// Nodes that are closed to the members of a gang.
pub(super) struct Fence {
    /// Those that are open.
    open: Arc<NodeSet>,
    /// Why others are not.
    pub(super) says: String,
}

impl Fence {
    /// The nodes that are open.
    pub(super) fn place(fence: Option<&Self>) -> Place {
        fence.map_or(Place::All, |fence| Place::Only(Arc::clone(&fence.open)))
    }

    /// The same, as far as nodes are among these.
    pub(super) fn within(fence: Option<&Self>, nodes: &Arc<NodeSet>, says: String) -> Self {
        let Some(fence) = fence else {
            return Self { open: Arc::clone(nodes), says };
        };
        let mut open = (*fence.open).clone();
        open.intersect(nodes);
        Self { open: Arc::new(open), says: format!("{}; {says}", fence.says) }
    }

    /// Whether a node is not.
    pub(super) fn is_closed(&self, node: NodeId) -> bool {
        !self.open.contains(node)
    }
}

/// What is closed, while it is collected.
struct Closed {
    nodes: NodeSet,
    says: Vec<String>,
}

impl Closed {
    fn close(&mut self, sought: &Sought, level: usize, domain: u32) {
        let nodes = &sought.tree.domain(level, domain).nodes;
        nodes.iter().for_each(|node| self.nodes.insert(*node));
    }
}

impl Core {
    /// Nodes that are closed to members of a gang; `role`: to those of a role. None if all
    /// are open.
    pub(super) fn fence(
        &mut self,
        id: GangId,
        spec: &GangSpec,
        role: Option<usize>,
    ) -> Option<Fence> {
        if spec.alone || bug!(self.bugs, ExclusiveIgnored) {
            return None;
        }
        let nodes = NodeSet::with_capacity(self.cluster.node_capacity());
        let mut closed = Closed { nodes, says: Vec::new() };
        for (_, wish) in spec.wishes_on(role).filter(|(_, wish)| wish.exclusive) {
            self.close_shared(id, wish, &mut closed);
        }
        let others: Vec<GangId> =
            self.cluster.exclusive_gangs().filter(|other| *other != id).collect();
        for other in others {
            self.close_held(other, &mut closed);
        }
        if closed.nodes.is_empty() {
            return None;
        }
        self.fenced.insert(id);
        let mut open = self.cluster.nodes().clone();
        open.subtract(&closed.nodes);
        Some(Fence { open: Arc::new(open), says: closed.says.join("; ") })
    }

    /// Closes domains of the level that a gang wants one of for itself, and where others are.
    fn close_shared(&mut self, id: GangId, wish: &Wish, closed: &mut Closed) {
        let Some((sought, level)) = self.exclusive_level(wish) else { return };
        let mut shared: BTreeSet<u32> = BTreeSet::new();
        let mut example = None;
        for node in self.cluster.nodes().iter() {
            let mut others = self.cluster.gangs_on(node).iter().filter(|other| **other != id);
            let Some(other) = others.find(|other| self.is_gang(**other)) else { continue };
            if let Some(domain) = sought.tree.domain_of(level, node) {
                shared.insert(domain);
                example = example.or(Some((domain, *other)));
            }
        }
        shared.iter().for_each(|domain| closed.close(&sought, level, *domain));
        if let Some((domain, other)) = example {
            closed.says.push(format!(
                "it wants a {} for itself (exclusive), and other gangs are in {} of {}, such as {} \
                 in {}",
                sought.asked.names[level],
                shared.len(),
                sought.tree.levels[level].domains.len(),
                self.gang_word(other),
                sought.tree.domain(level, domain).value,
            ));
        }
    }

    /// Closes the domains that a gang has for itself.
    fn close_held(&mut self, other: GangId, closed: &mut Closed) {
        let spec = self.cluster.gang(other).and_then(|gang| gang.spec.as_ref().map(Arc::clone));
        let Some(spec) = spec.filter(|spec| !spec.alone) else { return };
        for (role, wish) in spec.wishes().filter(|(_, wish)| wish.exclusive) {
            if self.cluster.nodes_of_gang(other).next().is_none() {
                return;
            }
            let Some((sought, level)) = self.exclusive_level(wish) else { continue };
            let nodes = match role {
                None => self.cluster.nodes_of_gang(other).collect(),
                Some(_) => self.nodes_of_role(other, &spec, role),
            };
            let domains: BTreeSet<u32> =
                nodes.iter().filter_map(|node| sought.tree.domain_of(level, *node)).collect();
            for domain in domains {
                closed.close(&sought, level, domain);
                if closed.says.len() < MAX_WORDS {
                    let (gang, word) = (self.gang_word(other), sought.word(level, domain));
                    closed.says.push(format!("{gang} has {word} for itself"));
                }
            }
        }
    }

    /// Nodes on which members of a role are, those that are being deleted too.
    fn nodes_of_role(&self, id: GangId, spec: &GangSpec, role: Option<usize>) -> Vec<NodeId> {
        let members = self.cluster.gang(id).into_iter().flat_map(|gang| &gang.members);
        let own = members.filter(|pod| self.cluster.role_of(spec, **pod) == role);
        own.filter_map(|pod| self.cluster.pod(*pod)?.stage.node()).collect()
    }

    fn exclusive_level(&mut self, wish: &Wish) -> Option<(Sought, usize)> {
        let sought = self.sought(wish).ok()??;
        let level = sought.asked.required?;
        Some((sought, level))
    }

    /// Whether these are pods that start together; a group that is gone may have been.
    fn is_gang(&self, id: GangId) -> bool {
        let spec = self.cluster.gang(id).and_then(|gang| gang.spec.as_ref());
        spec.is_none_or(|spec| !spec.alone)
    }

    fn gang_word(&self, id: GangId) -> String {
        self.cluster.gang(id).map(|gang| format!("gang {}", gang.key)).unwrap_or_default()
    }

    /// Why a node is closed to a member of a gang that has room there.
    pub(super) fn trespasses(&mut self, pod: PodId, node: NodeId) -> Option<String> {
        let id = self.cluster.pod(pod)?.gang?;
        let spec = self.cluster.gang(id)?.spec.as_ref().map(Arc::clone)?;
        let role = self.cluster.role_of(&spec, pod);
        let fence = self.fence(id, &spec, role).filter(|fence| fence.is_closed(node))?;
        Some(format!("node {} is closed to it: {}", self.cluster.node(node).name, fence.says))
    }

    /// Whether exclusive domains are any concern to a gang.
    pub(super) fn minds_exclusive(&self, id: GangId, spec: &GangSpec) -> bool {
        spec.is_exclusive() || self.cluster.exclusive_gangs().any(|other| other != id)
    }

    /// Whether any of these members that have room is where it must not be.
    pub(super) fn any_trespasses(&mut self, id: GangId, spec: &GangSpec, pods: &[PodId]) -> bool {
        let alone = |(role, wish): (Option<usize>, &Wish)| role.filter(|_| wish.exclusive);
        let roles: Vec<Option<usize>> =
            std::iter::once(None).chain(spec.wishes().filter_map(alone).map(Some)).collect();
        roles.into_iter().any(|role| {
            let Some(fence) = self.fence(id, spec, role) else { return false };
            let of_role =
                |pod: &&PodId| role.is_none() || self.cluster.role_of(spec, **pod) == role;
            let mut nodes =
                pods.iter().filter(of_role).filter_map(|pod| self.cluster.pod(*pod)?.stage.node());
            nodes.any(|node| fence.is_closed(node))
        })
    }

    /// Members of a gang have gone, or want a domain for themselves no longer: whoever found
    /// domains closed is tried again.
    pub(super) fn open_fences(&mut self, now: Tick) {
        for id in std::mem::take(&mut self.fenced) {
            self.call_members(now, id);
            self.queue.gang_changed(id, true);
        }
    }
}
