//! Gangs of members that differ, packed into a domain once scores have not found room for all.
//!
//! Owns the question to `topology`'s arithmetic and what is made of the answer. Must never
//! take room.

use std::sync::Arc;

use super::Core;
use super::scope::Place;
use super::seat::{Candidate, Need, wanted};
use super::seek::{Attempted, Scope};
use crate::cluster::{NodeId, NodeSet};
use crate::hash::IdSet;
use crate::model::{PodId, ResId, ShapeId};
use crate::topology::{Alike, Packed, pack};

/// What packing has to say.
pub(super) enum Repacked {
    /// A node for every member.
    Scope(Scope),
    /// There is no room by resources alone, however they are packed.
    Nowhere,
    /// Nobody knows.
    Unknown,
}

impl Core {
    /// Finds a node for every member that is wanted, within what a scope leaves to each.
    pub(super) fn repack(
        &mut self,
        at: &Attempted<'_>,
        scope: &Scope,
        candidates: &[Candidate],
    ) -> Repacked {
        let wanted: IdSet<PodId> =
            wanted(Need::new(at.spec, at.held), candidates).iter().map(|(pod, _)| *pod).collect();
        let surplus = candidates.len() > wanted.len();
        // Members alike, of one list of places.
        let mut kinds: Vec<(ShapeId, usize, Vec<PodId>)> = Vec::new();
        for candidate in candidates.iter().filter(|c| wanted.contains(&c.pod)) {
            let list = scope.number(candidate.pod, candidate.role);
            match kinds.iter_mut().find(|(shape, of, _)| (*shape, *of) == (candidate.shape, list)) {
                Some((.., pods)) => pods.push(candidate.pod),
                None => kinds.push((candidate.shape, list, vec![candidate.pod])),
            }
        }
        let mut resources: Vec<ResId> = Vec::new();
        for (shape, ..) in &kinds {
            // The seats that were tried are free again.
            self.refresh_ledger(at.profile, *shape);
            let charged = &self.cluster.shape(*shape).requests.charged;
            resources.extend(charged.iter().map(|(resource, _)| *resource));
        }
        resources.sort_unstable();
        resources.dedup();
        let places: Vec<Place> = kinds.iter().map(|(_, list, _)| scope.last_of(*list)).collect();
        let nodes: Vec<NodeId> =
            self.cluster.nodes().iter().filter(|n| places.iter().any(|p| p.has(*n))).collect();
        let alike = kinds.iter().zip(&places).map(|((shape_id, _, pods), place)| {
            let (shape, ledger) = (self.cluster.shape(*shape_id), self.ledgers.get(shape_id));
            let of = |resource: &ResId| {
                let charged = shape.requests.charged.iter().find(|(own, _)| own == resource);
                charged.map_or(0, |(_, amount)| *amount)
            };
            let takes = resources.iter().map(of).chain([1]).collect();
            let may = |node: &NodeId| {
                place.has(*node) && ledger.is_none_or(|ledger| ledger.might_fit(*node))
            };
            Alike { count: pods.len(), takes, may: nodes.iter().map(may).collect() }
        });
        let alike: Vec<Alike> = alike.collect();
        let left = nodes.iter().map(|node| {
            let view = self.cluster.view(*node);
            let left = |resource: &ResId| view.allocatable(*resource) - view.requested(*resource);
            resources.iter().map(left).chain([view.max_pods() - view.pods()]).collect()
        });
        let found = match pack(&alike, left.collect()) {
            Packed::Found(found) => found,
            Packed::Nowhere if !surplus => return Repacked::Nowhere,
            Packed::Nowhere | Packed::Unknown => return Repacked::Unknown,
        };
        let mut packed = scope.clone();
        for ((_, list, pods), seats) in kinds.iter().zip(found) {
            let all = scope.last_of(*list);
            for (pod, seat) in pods.iter().zip(seats) {
                let mut only = NodeSet::default();
                only.insert(nodes[seat]);
                let own = packed.add_list(vec![Place::Only(Arc::new(only)), all.clone()]);
                packed.set_own(*pod, own);
            }
        }
        packed.set_idle(candidates.iter().map(|c| c.pod).filter(|pod| !wanted.contains(pod)));
        Repacked::Scope(packed)
    }
}
