//! NodeNumaFit: no pod goes where the kubelet would refuse it.
//!
//! A plugin of Muster's own, off by default. What a node is inside comes from its newest report
//! and the pods on it ([`Inside`]); what its kubelet would do with a pod from the predictor
//! ([`numa`]). Pods that are on the node and that the agent has not seen yet come first, in every
//! order in which they may arrive: only if the kubelet admits all of them whatever the order,
//! and whatever device each gets, does another one go beside them.
//!
//! Must never let a pod pass because something took too long to predict.

mod args;
mod score;
mod words;

use std::sync::Arc;

use smallvec::SmallVec;

use super::names;
use crate::bugs::{Bugs, bug};
use crate::cluster::{Cluster, Inside, NodeView};
use crate::framework::{
    Actions, Args, Filter, NodeCare, Plugin, PreFilter, PreFilterResult, Registration,
    RegistryError, Resource, Score, State, Status,
};
use crate::model::PodShape;
use crate::numa;
use args::{Settings, Unknown};

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeNumaFit {
    settings: Settings,
}

impl NodeNumaFit {
    /// Reads and checks the arguments.
    ///
    /// # Errors
    ///
    /// If they are wrong: the error names the field.
    pub fn new(args: &Args<'_>) -> Result<Self, RegistryError> {
        Ok(Self { settings: Settings::read(args)? })
    }

    /// What becomes of a node of which too little is known.
    fn unknown(&self, waits: bool, words: &str) -> Result<(), Status> {
        match self.settings.unknown {
            Unknown::Allow if !waits => Ok(()),
            // Evictions tell nothing.
            _ => Err(Status::unresolvable(words)),
        }
    }
}

impl Plugin for NodeNumaFit {
    fn name(&self) -> &'static str {
        names::NODE_NUMA_FIT
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration { resource: Resource::NodeTopology, actions: Actions::ALL },
            Registration { resource: Resource::AssignedPod, actions: Actions::DELETE },
            Registration { resource: Resource::Node, actions: Actions::ADD },
        ]
    }

    fn node_care(&self) -> Option<NodeCare> {
        Some(self.settings.care)
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }
}

impl PreFilter for NodeNumaFit {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        match shape.aligned {
            Some(_) => PreFilterResult::Go { state: None, nodes: None },
            None => PreFilterResult::Skip,
        }
    }
}

impl Filter for NodeNumaFit {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let Some(pod) = &shape.aligned else { return Ok(()) };
        if let Some(why) = node.avoided_for(pod) {
            return Err(Status::unresolvable(Arc::clone(why)));
        }
        let Some(inside) = node.inside() else {
            return self
                .unknown(node.is_awaited(self.settings.care.wait_seconds), words::UNREPORTED);
        };
        if inside.machine.settings.pod_level && pod.whole.is_some() {
            // Decided by what a scheduler does not see: the limits of containers.
            return Ok(());
        }
        if node.is_overdue(self.settings.care.wait_seconds) {
            return self.unknown(false, words::BEHIND);
        }
        judge(node, &inside, pod)
    }
}

/// What stands against a pod on a node.
fn judge(node: NodeView<'_>, inside: &Inside<'_>, pod: &Arc<numa::Pod>) -> Result<(), Status> {
    let (memo, machine) = (node.predictions(), inside.machine);
    let coming = inside.coming();
    let reached = |new| {
        let events = inside.events(&coming, new)?;
        numa::reached(memo, machine, &inside.start, &events)
    };
    let waits = || Err(Status::unresolvable(words::waiting(coming.len())));
    // Who is on the way may be refused: nobody knows what they leave.
    let Some(states) = reached(None) else { return waits() };
    let predictions = states.iter().map(|usage| memo.predict(machine, usage, pod));
    let predictions: SmallVec<[Arc<numa::Prediction>; 2]> = predictions.collect();
    if admits(node.cluster().bugs, coming.is_empty(), &predictions) {
        return Ok(());
    }
    let refused = predictions.iter().all(|prediction| prediction.admitted.is_empty());
    if let (Some(first), true) = (predictions.first(), refused || coming.is_empty()) {
        let words = words::refusal(memo, machine, pod, first);
        // Evictions are of no use if an empty machine would refuse it, too.
        let empty = memo.predict(machine, &machine.unused(), pod);
        return Err(if empty.certain() {
            Status::unschedulable(words)
        } else {
            Status::unresolvable(words)
        });
    }
    // It may come first, or between them.
    match reached(Some(pod)) {
        Some(_) => Ok(()),
        None => waits(),
    }
}

/// Whether nothing more has to be asked: nobody is on the way, and the pod is admitted whatever
/// chance decides.
fn admits(bugs: Bugs, alone: bool, predictions: &[Arc<numa::Prediction>]) -> bool {
    if bug!(bugs, ChanceIgnored) {
        return predictions.iter().any(|prediction| !prediction.admitted.is_empty());
    }
    let certain = predictions.iter().all(|prediction| prediction.certain());
    certain && (alone || bug!(bugs, OrderIgnored))
}
