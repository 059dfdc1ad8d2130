//! Room that is kept for a gang which was passed over for too long.
//!
//! Owns which gang that is, on which nodes, and until when: one gang at a time, so that
//! little stands idle. Its members are expected on nodes that could hold them once what
//! runs there has ended; pods of no higher priority leave that room alone, but for those
//! that will have ended by then. Must never take room, and never have a pod go.

use std::sync::Arc;

use super::Core;
use super::round::Due;
use crate::cluster::NodeId;
use crate::framework::{Code, Profile};
use crate::gang::{GangId, GangSpec};
use crate::io::Tick;
use crate::model::{PodId, PodShape, PodStage, ShapeId};

/// How long room is kept.
const KEEP_SECONDS: i64 = 600;
/// How often it is told anew who may use it meanwhile.
const STEP_SECONDS: i64 = 60;

/// Room that is kept.
pub(super) struct Keep {
    gang: GangId,
    until: Tick,
    nodes: usize,
}

impl Keep {
    pub(super) fn is_for(&self, gang: GangId) -> bool {
        self.gang == gang
    }
}

impl Core {
    /// A gang found no room: keeps some for it if it has waited for too long. Says so.
    pub(super) fn keep_room(
        &mut self,
        now: Tick,
        id: GangId,
        spec: &GangSpec,
        profile: &Profile,
        wanted: &[(PodId, ShapeId)],
    ) -> Option<String> {
        let patience = spec.starvation_seconds?;
        if let Some(keep) = &self.keep {
            let own = keep.gang == id;
            return own.then(|| format!("room is kept for it on {} nodes", keep.nodes));
        }
        let due = self.queue.gang(id)?.first.after_secs(patience);
        if now < due {
            self.rounds.arm(id, Due::Starving, Some(due));
            return None;
        }
        let places = match self.domains_for(id, spec) {
            None => self.places_if_empty(profile, wanted, |_| true)?,
            // Members that must be together are expected in one domain.
            Some(domains) => domains.iter().find_map(|nodes| {
                let inside = |node: NodeId| nodes.binary_search(&node).is_ok();
                self.places_if_empty(profile, wanted, inside)
            })?,
        };
        let mut nodes: Vec<NodeId> = places.iter().map(|(_, node)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for (pod, node) in places {
            let name = Arc::clone(&self.cluster.node(node).name);
            if let Some(record) = self.cluster.pod_mut(pod) {
                record.kept = true;
            }
            self.nominate(now, pod, Some(name));
            self.patch_nomination(pod);
        }
        let (until, nodes) = (now.after_secs(KEEP_SECONDS), nodes.len());
        self.keep = Some(Keep { gang: id, until, nodes });
        self.keep_step(now, id);
        Some(format!("room is kept for it on {nodes} nodes"))
    }

    /// Where members would go if nobody else were there: nodes with the most room now come
    /// first. None if they would not fit even then.
    fn places_if_empty(
        &self,
        profile: &Profile,
        wanted: &[(PodId, ShapeId)],
        inside: impl Fn(NodeId) -> bool,
    ) -> Option<Vec<(PodId, NodeId)>> {
        let mut places = Vec::with_capacity(wanted.len());
        let mut shapes: Vec<ShapeId> = wanted.iter().map(|(_, shape)| *shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let mut used: Vec<NodeId> = Vec::new();
        for shape_id in shapes {
            let ledger = self.ledgers.get(&shape_id)?;
            let shape = self.cluster.shape(shape_id);
            let mut nodes: Vec<(i64, i64, NodeId)> = Vec::new();
            let free = |node: &NodeId| inside(*node) && !used.contains(node);
            for node in self.cluster.nodes().iter().filter(free) {
                let code = ledger.code_of(profile, node);
                if matches!(code, Some(Code::Success | Code::Unschedulable)) {
                    let (now, empty) = self.capacity(shape, node);
                    nodes.push((-now, -empty, node));
                }
            }
            nodes.sort_unstable();
            let mut pods = wanted.iter().filter(|(_, shape)| *shape == shape_id).peekable();
            for (_, empty, node) in nodes {
                for _ in 0..-empty {
                    let Some((pod, _)) = pods.next() else { break };
                    places.push((*pod, node));
                }
                if empty < 0 {
                    used.push(node);
                }
                if pods.peek().is_none() {
                    break;
                }
            }
            if pods.next().is_some() {
                return None;
            }
        }
        Some(places)
    }

    /// How many pods of a shape a node can take by its resources: now, and empty.
    pub(super) fn capacity(&self, shape: &PodShape, node: NodeId) -> (i64, i64) {
        let view = self.cluster.view(node);
        let mut now = (view.max_pods() - view.pods()).max(0);
        let mut empty = view.max_pods().max(0);
        for &(resource, amount) in shape.requests.charged.iter().filter(|(_, amount)| *amount > 0) {
            let has = view.allocatable(resource);
            now = now.min((has - view.requested(resource)).max(0) / amount);
            empty = empty.min(has.max(0) / amount);
        }
        (now, empty)
    }

    /// The time that is left has become less: fewer pods end before it is over.
    pub(super) fn keep_step(&mut self, now: Tick, id: GangId) {
        let Some(keep) = self.keep.as_ref().filter(|keep| keep.gang == id) else {
            return;
        };
        if now >= keep.until {
            // Others have their turn before any is kept for it again.
            self.queue.gang_waits_anew(now, id);
            return self.end_keep(now, id);
        }
        // Until the next step no less than this is left.
        let next = now.after_secs(STEP_SECONDS).min(keep.until);
        let left = keep.until.secs() - next.secs();
        self.cluster.set_kept_seconds(left);
        self.rounds.arm(id, Due::Keep, Some(next));
    }

    /// No room is kept for the gang any more.
    pub(super) fn end_keep(&mut self, now: Tick, id: GangId) {
        self.rounds.arm(id, Due::Starving, None);
        if self.keep.as_ref().is_none_or(|keep| keep.gang != id) {
            return;
        }
        self.keep = None;
        self.rounds.arm(id, Due::Keep, None);
        self.cluster.set_kept_seconds(0);
        let members: Vec<PodId> = match self.cluster.gang(id) {
            Some(gang) => gang.members.iter().copied().collect(),
            None => return,
        };
        for pod in members {
            let Some(record) = self.cluster.pod_mut(pod).filter(|p| p.kept) else {
                continue;
            };
            record.kept = false;
            if record.stage == PodStage::Pending {
                self.nominate(now, pod, None);
                self.patch_nomination(pod);
            }
        }
    }
}
