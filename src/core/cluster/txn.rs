//! Transactions: try something on the state, then keep it or drop it.

use std::sync::Arc;

use super::{Cluster, NodeId, VolumePlan};
use crate::model::{PodId, PodStage, Predicted};

/// What a transaction has done, by sub-ledger, newest last.
///
/// Resources, ports and pod counts move with `Step::Placed` and
/// `Step::Displaced`, and so do CPUs, memory and devices of NUMA nodes: what a node is inside
/// is made from the pods that are on it. Volumes move with `Step::Volumes`, the devices that
/// are expected for a pod with `Step::Devices`. One rollback undoes all in reverse order.
#[derive(Debug, Default)]
pub struct Ledgers {
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Placed(PodId),
    Displaced { pod: PodId, was: PodStage },
    Volumes(PodId),
    Devices { pod: PodId, were: Option<Arc<Predicted>> },
}

/// A trial on the state: what is not committed is undone on drop.
///
/// The owner holds the state exclusively, so nobody sees a trial half done and
/// reads stay plain column reads: the transaction writes in place and keeps an
/// undo list instead of an overlay that every read would have to consult.
pub struct Txn<'a> {
    cluster: &'a mut Cluster,
    ledgers: Ledgers,
    committed: bool,
}

impl<'a> Txn<'a> {
    /// Begins a transaction.
    pub fn begin(cluster: &'a mut Cluster) -> Self {
        Self { cluster, ledgers: Ledgers::default(), committed: false }
    }

    /// The state as this transaction sees it.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// Reserves a node for a pending pod.
    pub fn place(&mut self, pod: PodId, node: NodeId) {
        self.cluster.place(pod, node, true);
        self.ledgers.steps.push(Step::Placed(pod));
    }

    /// Takes a pod off its node, as an eviction would.
    pub fn displace(&mut self, pod: PodId) {
        let Some(was) = self.cluster.pod(pod).map(|p| p.stage) else {
            return;
        };
        if self.cluster.displace(pod).is_some() {
            self.ledgers.steps.push(Step::Displaced { pod, was });
        }
    }

    /// Takes volumes for a placed pod. An error names what has changed since
    /// they were found; nothing is taken then.
    pub fn take_volumes(&mut self, pod: PodId, plan: VolumePlan) -> Result<(), String> {
        self.cluster.volumes_mut().assume(pod, plan)?;
        self.ledgers.steps.push(Step::Volumes(pod));
        Ok(())
    }

    /// Notes which devices a placed pod is expected to get.
    pub fn predict(&mut self, pod: PodId, set: Option<Arc<Predicted>>) {
        let were = self.cluster.pod(pod).and_then(|p| p.predicted.clone());
        self.cluster.predict(pod, set);
        self.ledgers.steps.push(Step::Devices { pod, were });
    }

    /// Keeps everything.
    pub fn commit(mut self) {
        self.committed = true;
        for step in &self.ledgers.steps {
            if let Step::Displaced { was, .. } = step
                && let Some(node) = was.node()
            {
                self.cluster.reap(node);
            }
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        while let Some(step) = self.ledgers.steps.pop() {
            match step {
                Step::Placed(pod) => {
                    self.cluster.displace(pod);
                }
                Step::Volumes(pod) => self.cluster.volumes_mut().revert(pod),
                Step::Devices { pod, were } => self.cluster.predict(pod, were),
                Step::Displaced { pod, was } => {
                    if let Some(node) = was.node() {
                        self.cluster.place(pod, node, matches!(was, PodStage::Assumed(_)));
                    }
                }
            }
        }
    }
}
