//! NodeNumaFit: no pod goes where the kubelet would refuse it.
//!
//! A plugin of Muster's own, off by default. What a node is inside comes from its
//! [`NodeTopology`](crate::model::NodeTopology); what its kubelet would do with a pod from
//! [`numa::predict`]. Pods that are on the node and that the agent has not seen yet are put
//! there first, in every order in which they may arrive: only if the kubelet admits all of
//! them whatever the order, and whatever device each gets, does another one go beside them.
//!
//! Must never let a pod pass because something took too long to predict.

mod orders;
mod pod;
mod read;

use std::sync::Arc;

use serde::Deserialize;

use super::names;
use crate::cluster::{Cluster, NodeView};
use crate::framework::{
    Actions, Args, Facet, Filter, Plugin, PreFilter, PreFilterResult, PreScoreResult, Registration,
    RegistryError, Resource, Score, State, Status,
};
use crate::model::PodShape;
use crate::numa;

/// What becomes of nodes of which too little is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Unknown {
    /// They are judged by the other plugins alone.
    #[default]
    Allow,
    /// Pods that a kubelet might refuse wait for the agent.
    Wait,
}

/// Arguments, as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Written {
    unknown_nodes: Unknown,
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeNumaFit {
    unknown: Unknown,
}

const WAITS_FOR_REPORT: &str =
    "node(s) whose agent has not said yet what they are inside: is muster-node-agent running?";

impl NodeNumaFit {
    /// Reads and checks the arguments.
    ///
    /// # Errors
    ///
    /// If they are wrong: the error names the field.
    pub fn new(args: &Args<'_>) -> Result<Self, RegistryError> {
        let written: Written = args.parse()?;
        Ok(Self { unknown: written.unknown_nodes })
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

    fn as_facet(&self) -> Option<&dyn Facet> {
        Some(self)
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

impl Facet for NodeNumaFit {
    fn facet(&self, wire: &muster_api::k8s::Pod) -> Option<Box<str>> {
        pod::text(wire)
    }

    fn depends_on_args(&self) -> bool {
        false
    }
}

impl PreFilter for NodeNumaFit {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        match pod::of(shape) {
            Some(pod) => PreFilterResult::Go { state: Some(Box::new(pod)), nodes: None },
            None => PreFilterResult::Skip,
        }
    }
}

impl Filter for NodeNumaFit {
    fn filter(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let Some(pod) = asked(state) else { return Ok(()) };
        let Some(inside) = read::inside(node) else {
            return match self.unknown {
                Unknown::Allow => Ok(()),
                Unknown::Wait => Err(Status::unschedulable(WAITS_FOR_REPORT)),
            };
        };
        if read::not_judged(&inside.machine, pod) {
            return Ok(());
        }
        judge(&inside, pod)
    }
}

/// What stands against a pod on a node.
fn judge(inside: &read::Inside, pod: &numa::Pod) -> Result<(), Status> {
    let (machine, usage) = (&inside.machine, &inside.usage);
    if inside.strangers > 0 {
        return Err(Status::unschedulable(waiting(inside.strangers)));
    }
    if inside.expected.is_empty() {
        let prediction = numa::predict(machine, usage, pod);
        if prediction.certain() {
            return Ok(());
        }
        let words = refusal(&prediction);
        // Evictions are of no use if an empty machine would refuse it, too.
        let empty = numa::predict(machine, &machine.unused(), pod);
        return Err(if empty.certain() {
            Status::unschedulable(words)
        } else {
            Status::unresolvable(words)
        });
    }
    let mut pods: Vec<&numa::Pod> = inside.expected.iter().collect();
    pods.push(pod);
    if orders::all_admitted(machine, usage, &pods) {
        Ok(())
    } else {
        Err(Status::unschedulable(waiting(inside.expected.len())))
    }
}

fn waiting(pods: usize) -> String {
    format!("node(s) on which the agent has not seen {pods} pod(s) yet that are bound there")
}

/// What the kubelet would say, and why, in the words of people.
fn refusal(prediction: &numa::Prediction) -> Arc<str> {
    let Some(refusal) = prediction.refused.first() else {
        return "node(s) whose kubelet may decide in more ways than can be followed".into();
    };
    let reason = refusal.cause.reason().as_str();
    let may = if prediction.admitted.is_empty() { "would" } else { "might" };
    match &refusal.clash {
        Some(clash) => format!("node(s) whose kubelet {may} refuse the pod ({reason}): {clash}"),
        None => {
            let cause = &refusal.cause;
            format!("node(s) whose kubelet {may} refuse the pod ({reason}): {cause}")
        }
    }
    .into()
}

fn asked(state: &State) -> Option<&numa::Pod> {
    state.as_ref()?.downcast_ref()
}

impl Score for NodeNumaFit {
    fn pre_score(&self, shape: &PodShape, _: &Cluster) -> PreScoreResult {
        match pod::of(shape) {
            Some(pod) => PreScoreResult::Go(Some(Box::new(pod))),
            None => PreScoreResult::Skip,
        }
    }

    /// 100 if all that the pod has is on one NUMA node; less, the farther the nodes are
    /// apart on which it may be at worst. 0 where nothing is known.
    fn score(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> i64 {
        let (Some(pod), Some(inside)) = (asked(state), read::inside(node)) else { return 0 };
        let prediction = numa::predict(&inside.machine, &inside.usage, pod);
        let worst = prediction.admitted.iter().map(|course| {
            let mask = course.nodes(&inside.machine);
            numa::spread(&inside.machine, mask)
        });
        worst.max().map_or(0, |spread| 1000 / i64::from(spread.max(10)))
    }
}
