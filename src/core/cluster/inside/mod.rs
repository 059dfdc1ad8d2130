//! What a node is inside at this moment: what is built in, what is in use, who is on the way.
//!
//! Everything here is made from the newest report of the node and the pods that are on it in
//! this state, seats of gangs and trials among them: so what a transaction or a dry run has
//! put on a node or taken off it counts, and there is nothing to undo. Pods are reconciled by
//! UID: what pods have that are not on the node any more counts as free (the kubelet forgets
//! them before it admits another), and pods that are on the node and that the agent has not
//! seen are expected. Must never decide where a pod goes.

mod devices;
mod likely;
mod machine;
#[cfg(test)]
mod tests;
mod usage;
mod vigil;

use std::sync::Arc;

use smallvec::SmallVec;

pub use devices::{Holder, NodeDevices};
pub(super) use machine::{Machines, is_same, machine};
pub(super) use usage::reported;
pub(super) use vigil::Vigil;

use super::NodeView;
use crate::bugs::bug;
use crate::cluster::node_topologies::Known;
use crate::io::Tick;
use crate::model::node_topology::Source;
use crate::model::{NodeTopology, PodId};
use crate::numa::{Holding, Machine, Memo, Pod, Usage};

/// A NodeResourceTopology does not say whom it counts: those who were bound so long before it
/// came.
const SETTLE_SECONDS: i64 = 10;

/// Pods, and what they ask for.
pub type Expected<'a> = SmallVec<[(PodId, &'a Arc<Pod>); 4]>;

/// A node, what is in use there, and who is on the way.
pub struct Inside<'a> {
    /// What was reported.
    pub topology: &'a NodeTopology,
    /// What is built in, and how the kubelet is set.
    pub machine: &'a Arc<Machine>,
    /// What is in use without the pods that are gone.
    pub usage: Usage,
    /// Pods that are on the node, that will have something to themselves, and that the agent has
    /// not seen; the oldest first.
    pub expected: Expected<'a>,
    /// What was in use when the first of them may have come.
    pub start: Usage,
    /// What those had who are gone since; `None` if it is not known well enough. Empty if nobody
    /// is expected.
    pub leaving: Option<Vec<Arc<Holding>>>,
}

impl<'a> Inside<'a> {
    /// What those who are expected ask for.
    #[must_use]
    pub fn coming(&self) -> Vec<&'a Arc<Pod>> {
        self.expected.iter().map(|(_, pod)| *pod).collect()
    }
}

impl<'a> NodeView<'a> {
    /// What the node is inside; `None` if too little is known of it to predict anything.
    #[must_use]
    pub fn inside(self) -> Option<Inside<'a>> {
        let known = self.cluster().insides.known(self.id())?;
        let (topology, machine) = (&*known.topology, known.machine.as_ref()?);
        let (seen, mut expected) = self.reconcile(known);
        expected.retain(|(_, pod)| pod.holds(machine));
        if bug!(self.cluster().bugs, UnseenIgnored) {
            expected.clear();
        }
        let usage = usage::without(known, machine, &seen);
        let mut inside =
            Inside { topology, machine, start: usage.clone(), usage, expected, leaving: None };
        inside.leaving = match inside.expected.is_empty() {
            true => Some(Vec::new()),
            false if self.is_haunted() => None,
            false => usage::leaving(topology, machine, &seen),
        };
        if inside.leaving.as_ref().is_some_and(|leaving| !leaving.is_empty()) {
            inside.start = known.usage.clone();
        }
        Some(inside)
    }

    /// Whether enough is known of the node to predict what its kubelet does.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.machine().is_some()
    }

    /// What is built in, and how the kubelet is set, if that is known.
    pub(crate) fn machine(self) -> Option<&'a Arc<Machine>> {
        self.cluster().insides.known(self.id())?.machine.as_ref()
    }

    /// Predictions that were made before.
    #[must_use]
    pub fn predictions(self) -> &'a Memo {
        self.cluster().insides.memo()
    }

    /// Which of the pods that the agent saw are on the node, and pods on it that it did not see
    /// although they ask for something that it would.
    fn reconcile(self, known: &Known) -> (SmallVec<[bool; 16]>, Expected<'a>) {
        let (cluster, topology) = (self.cluster(), &known.topology);
        let counts = topology.source == Source::ResourceTopology;
        let settled = |bound: Tick| bound.after_secs(SETTLE_SECONDS) <= known.came;
        let mut seen = SmallVec::from_elem(false, topology.pods.len());
        let mut expected = Expected::new();
        for &id in &self.info().pods {
            let Some(pod) = cluster.pod(id) else { continue };
            if let Some(at) = topology.pod_at(&pod.key.uid) {
                seen[at] = true;
                continue;
            }
            let shape = cluster.shape(pod.shape);
            let mistaken = bug!(cluster.bugs, StrangersIgnored) && shape.profile.is_none();
            let in_the_sums = counts && pod.bound.is_some_and(settled);
            if let Some(asks) = shape.aligned.as_ref().filter(|_| !in_the_sums && !mistaken) {
                expected.push((id, asks));
            }
        }
        // Whatever was tried on the node meanwhile.
        expected.sort_unstable_by_key(|(id, _)| *id);
        // Of a pod without a UID nobody can say that it is gone.
        let never = bug!(cluster.bugs, GoneHolds);
        for (seen, pod) in seen.iter_mut().zip(&topology.pods) {
            *seen |= pod.uid.is_empty() || never;
        }
        (seen, expected)
    }
}
