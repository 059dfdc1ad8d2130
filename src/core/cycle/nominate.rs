//! Pods that are expected on a node before they are bound.
//!
//! Owns what the API shows of nominations and what follows from them in a cycle: the
//! node a pod is expected on is tried first, and others leave room there for pods
//! that are no less important. Must never take room.

use std::sync::Arc;

use super::Core;
use super::binding::Left;
use super::trial::Trial;
use crate::cluster::NodeId;
use crate::framework::Profile;
use crate::io::Tick;
use crate::model::{PodId, PodStage, ShapeId};
use crate::queue::Reach;

impl Core {
    /// Expects a pod on a node, or nowhere; true if that is news. Where a waiting pod
    /// was expected before, others may find room now.
    pub(super) fn nominate(&mut self, now: Tick, pod: PodId, node: Option<Arc<str>>) -> bool {
        let record = self.cluster.pod(pod);
        let waited = record.is_some_and(|p| p.stage == PodStage::Pending && p.nominated.is_some());
        let news = self.cluster.nominate(pod, node);
        if news && waited {
            self.expected_room_freed(now, pod);
        }
        news
    }

    /// Expects a pod on the node that it waits for, and says so: whoever watches knows
    /// where it will be.
    pub(super) fn announce(&mut self, pod: PodId, node: NodeId) {
        let name = Arc::clone(&self.cluster.node(node).name);
        self.cluster.nominate(pod, Some(name));
        self.patch_nomination(pod);
    }

    /// The API shows where a pod is expected. What it showed before says nothing new:
    /// a decision of ours may be on its way.
    pub(super) fn nomination_shown(&mut self, now: Tick, pod: PodId, shown: &str) {
        let Some(record) = self.cluster.pod_mut(pod) else {
            return;
        };
        if *record.nominated_shown == *shown {
            return;
        }
        record.nominated_shown = shown.into();
        if let Some(told) = &record.nominated_told {
            // What we wrote last is on its way: whatever is shown came before it.
            if **told == *shown {
                record.nominated_told = None;
            }
            return;
        }
        let node = (!shown.is_empty()).then(|| shown.into());
        self.nominate(now, pod, node);
    }

    /// A pod is not expected any more where it was. The room may help those who had to
    /// leave it to that pod: others of no higher priority.
    pub(super) fn expected_room_freed(&mut self, now: Tick, pod: PodId) {
        let priority = self.cluster.pod(pod).map(|p| p.priority);
        if let Some(left) = self.cluster.kind_of(pod) {
            self.room_freed(now, left, Reach { cause: Some(pod), priority });
        }
    }

    /// A waiting pod asks for something else. Where it is expected, others may find room
    /// now if it asked for more before, as `left` says.
    pub(super) fn asks_otherwise(&mut self, now: Tick, pod: PodId, left: Option<Left>) {
        let priority = self.cluster.pod(pod).map(|p| p.priority);
        if self.cluster.expected_changed(pod)
            && let Some(left) = left
        {
            self.room_freed(now, left, Reach { cause: Some(pod), priority });
        }
    }

    /// Lets the ledger of a shape count pods that are expected on nodes. Returns the
    /// node that the pod itself is expected on, if it fits there.
    pub(super) fn count_expected(
        &mut self,
        profile: &Profile,
        shape_id: ShapeId,
        pod: PodId,
    ) -> Option<NodeId> {
        if !self.cluster.has_nominations() {
            return None;
        }
        let shape = Arc::clone(self.cluster.shape(shape_id));
        let ledger = self.ledgers.get_mut(&shape_id)?;
        if ledger.prepared.rejected.is_some() {
            return None;
        }
        let nodes = ledger.unexpected(profile, &shape, &self.cluster);
        let own = self.cluster.pod(pod)?.nominated.as_ref();
        let own = own.and_then(|name| self.cluster.node_by_name(name));
        let mut trial = Trial::begin(profile, &shape, &mut self.cluster, &mut ledger.prepared);
        let mut verdicts = Vec::with_capacity(nodes.len());
        for node in nodes {
            verdicts.push((node, trial.fits_beside(node, None)));
        }
        let own = own.map(|node| (node, trial.fits(node, Some(pod))));
        drop(trial);
        for (node, verdict) in verdicts {
            ledger.expect(node, verdict);
        }
        let mut first = None;
        match own {
            Some((node, Ok(()))) => first = Some(node),
            // What holds for this pod does not hold for others of its shape.
            Some((node, verdict)) => {
                ledger.expect_once(profile, &shape, &self.cluster, node, verdict);
            }
            None => {}
        }
        ledger.open_classes(profile);
        first
    }
}
