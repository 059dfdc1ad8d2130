//! What if: pods taken off a node, or put on it, to see whether a shape fits.
//!
//! Owns the changes it makes to the state and to what plugins prepared, and undoes
//! all of them. Must never leave a trace: nothing is journalled or counted, and
//! nobody is told.

use smallvec::SmallVec;

use super::prepare::Prepared;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{Profile, Status};
use crate::model::{Pod, PodId, PodShape};

/// A trial on the state.
pub(crate) struct Trial<'a> {
    profile: &'a Profile,
    shape: &'a PodShape,
    cluster: &'a mut Cluster,
    prepared: &'a mut Prepared,
    /// Pods that were put on a node (or taken off it), newest last.
    steps: Vec<(PodId, NodeId, bool)>,
}

impl<'a> Trial<'a> {
    pub(crate) fn begin(
        profile: &'a Profile,
        shape: &'a PodShape,
        cluster: &'a mut Cluster,
        prepared: &'a mut Prepared,
    ) -> Self {
        Self { profile, shape, cluster, prepared, steps: Vec::new() }
    }

    /// The state as it is now.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// The shape that is tried.
    pub(crate) fn shape(&self) -> &PodShape {
        self.shape
    }

    /// As if the pod were on the node.
    pub(crate) fn add(&mut self, pod: PodId, node: NodeId) {
        self.step(pod, node, true);
        self.steps.push((pod, node, true));
    }

    /// As if the pod were not on the node.
    pub(crate) fn remove(&mut self, pod: PodId, node: NodeId) {
        self.step(pod, node, false);
        self.steps.push((pod, node, false));
    }

    fn step(&mut self, pod: PodId, node: NodeId, add: bool) {
        if add {
            self.cluster.occupy(pod, node);
        } else {
            self.cluster.clear(pod, node);
        }
        let (Some(record), view) = (self.cluster.pod(pod), self.cluster.view(node)) else {
            return;
        };
        for active in &mut self.prepared.filters {
            let plugin = &self.profile.plugins()[active.plugin].plugin;
            let Some(pre_filter) = plugin.as_pre_filter() else {
                continue;
            };
            if add {
                pre_filter.add_pod(&mut active.state, self.shape, record, view);
            } else {
                pre_filter.remove_pod(&mut active.state, self.shape, record, view);
            }
        }
    }

    /// How much was done so far.
    pub(crate) fn mark(&self) -> usize {
        self.steps.len()
    }

    /// Undoes what was done since.
    pub(crate) fn undo_to(&mut self, mark: usize) {
        while self.steps.len() > mark {
            if let Some((pod, node, added)) = self.steps.pop() {
                self.step(pod, node, !added);
            }
        }
    }

    /// Whether the shape fits a node: with the pods that are expected there and are
    /// no less important, `own` aside, and without them.
    pub(crate) fn fits(&mut self, node: NodeId, own: Option<PodId>) -> Result<(), (usize, Status)> {
        self.fits_beside(node, own)?;
        self.judge(node)
    }

    /// Whether it fits with the pods that are expected there, if there are any.
    pub(crate) fn fits_beside(
        &mut self,
        node: NodeId,
        own: Option<PodId>,
    ) -> Result<(), (usize, Status)> {
        let others = expected(self.cluster, self.shape, node, own);
        if others.is_empty() {
            return Ok(());
        }
        let mark = self.mark();
        for pod in others {
            self.add(pod, node);
        }
        let verdict = self.judge(node);
        self.undo_to(mark);
        verdict
    }

    fn judge(&self, node: NodeId) -> Result<(), (usize, Status)> {
        self.prepared.judge(self.profile, self.shape, self.cluster.view(node))
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.undo_to(0);
    }
}

/// Pods expected on a node that the shape must leave room for.
fn expected(
    cluster: &Cluster,
    shape: &PodShape,
    node: NodeId,
    own: Option<PodId>,
) -> SmallVec<[PodId; 4]> {
    let pods = cluster.nominated_on(node).iter().copied();
    // Who will have ended by then may use what is kept for a gang meanwhile.
    let ends = shape.deadline.is_some_and(|seconds| seconds <= cluster.kept_seconds());
    let leaves = |p: &Pod| p.priority >= shape.priority && !(p.kept && ends);
    let counts = |pod: &PodId| Some(*pod) != own && cluster.pod(*pod).is_some_and(leaves);
    pods.filter(counts).collect()
}
