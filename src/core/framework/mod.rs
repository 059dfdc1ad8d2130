//! The scheduling framework: one trait per extension point, upstream's names.
//!
//! Owns the contract between the cycle and its plugins. A plugin sees shapes and
//! nodes, never a client or a clock; what upstream does by blocking is a
//! [`Step::Park`] here, answered by an input. Must never hold per-pod state
//! beyond what a plugin returns from `pre_filter` and `pre_score`.

mod args;
mod care;
mod classes;
mod events;
mod extender;
mod point;
mod profile;
mod registry;
mod status;

pub use args::Args;
pub use care::NodeCare;
pub use classes::{ClassFilter, ClassKey, ClassScore, Survey, UNRANKED};
pub use events::{Actions, ClusterEvent, Hint, HintCx, Registration, Resource, Subject};
pub use extender::{EXTENDER_NAME, ExtenderId, ExtenderSpec, MAX_EXTENDER_SCORE};
pub use point::ExtensionPoint;
pub use profile::{Profile, ProfileId, ProfileSpec, Weighted};
pub use registry::{Factory, PluginArgs, Registry, RegistryError};
pub use status::{Code, Status};

use std::any::Any;
use std::sync::Arc;

use muster_api::k8s;

use crate::cluster::{Cluster, NodeId, NodeSet, NodeView, VolumePlan};
use crate::io::{PodRef, Request};
use crate::model::{Pod, PodId, PodShape, Predicted};

/// What a plugin computed once for a shape and reads for every node.
pub type State = Option<Box<dyn Any + Send + Sync>>;

/// Scores are in 0..=MAX_SCORE after normalisation.
pub const MAX_SCORE: i64 = 100;

/// A plugin. It implements the extension points it has and hands them out here.
pub trait Plugin: Send + Sync {
    /// Registry name, spelled as upstream.
    fn name(&self) -> &'static str;

    /// Events after which a pod this plugin rejected may be tried again.
    fn events(&self) -> Vec<Registration> {
        vec![Registration { resource: Resource::Any, actions: Actions::ALL }]
    }

    /// Whether a registered event can help pods of this shape.
    fn hint(&self, _cx: &HintCx<'_>) -> Hint {
        Hint::Queue
    }

    /// A digest of everything beyond shape and node that verdicts and scores of
    /// this shape depend on. When it changes, cached results are dropped.
    fn stamp(&self, _shape: &PodShape, _cluster: &Cluster) -> u64 {
        0
    }

    /// Whether verdicts and scores may be kept until shape, node, `stamp` or the
    /// data fed to this plugin change. If not, the profile's plugins judge every
    /// node anew for every pod.
    fn is_cacheable(&self) -> bool {
        true
    }

    /// What it wants of nodes whose agents are silent and of kubelets that refuse pods.
    fn node_care(&self) -> Option<NodeCare> {
        None
    }

    /// What it reads of a pod beside its shape, if anything.
    fn as_facet(&self) -> Option<&dyn Facet> {
        None
    }
    /// PreEnqueue, if it has it.
    fn as_pre_enqueue(&self) -> Option<&dyn PreEnqueue> {
        None
    }
    /// QueueSort, if it has it.
    fn as_queue_sort(&self) -> Option<&dyn QueueSort> {
        None
    }
    /// PreFilter, if it has it.
    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        None
    }
    /// Filter, if it has it.
    fn as_filter(&self) -> Option<&dyn Filter> {
        None
    }
    /// PostFilter, if it has it.
    fn as_post_filter(&self) -> Option<&dyn PostFilter> {
        None
    }
    /// PreScore and Score, if it has them.
    fn as_score(&self) -> Option<&dyn Score> {
        None
    }
    /// Reserve, if it has it.
    fn as_reserve(&self) -> Option<&dyn Reserve> {
        None
    }
    /// Permit, if it has it.
    fn as_permit(&self) -> Option<&dyn Permit> {
        None
    }
    /// PreBind, if it has it.
    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        None
    }
    /// Bind, if it has it.
    fn as_bind(&self) -> Option<&dyn Bind> {
        None
    }
    /// PostBind, if it has it.
    fn as_post_bind(&self) -> Option<&dyn PostBind> {
        None
    }
    /// Group-level points, if it has them.
    fn as_placement(&self) -> Option<&dyn Placement> {
        None
    }
}

/// Reads of a pod what its shape does not hold: a team's label, the namespace.
pub trait Facet {
    /// What it reads. It becomes part of the shape ([`PodShape::facet`]), so that pods
    /// that differ in it share no kept result. Few distinct texts are cheap; one
    /// per pod makes every pod a shape of its own.
    fn facet(&self, pod: &k8s::Pod) -> Option<Box<str>>;

    /// Whether it reads something else under other arguments. If so, they cannot be
    /// changed while the scheduler runs: of pods that wait, only what was read is kept.
    fn depends_on_args(&self) -> bool {
        true
    }
}

/// Keeps a pod out of the active queue.
pub trait PreEnqueue {
    /// `Err` gates the pod.
    fn pre_enqueue(&self, pod: &Pod) -> Result<(), Status>;
}

/// Orders the queue.
pub trait QueueSort {
    /// Smaller sorts first. A key instead of upstream's `Less` keeps the order
    /// total whatever a plugin computes.
    fn key(&self, pod: &Pod, queued_at: crate::io::Tick) -> SortKey;
}

/// A queue position; the core appends the order of arrival.
pub type SortKey = [i64; 3];

/// Outcome of PreFilter.
pub enum PreFilterResult {
    /// Filter (and AddPod/RemovePod) of this plugin is not needed.
    Skip,
    /// Go on with this state, on these nodes only if given.
    Go {
        /// State for Filter.
        state: State,
        /// Names of the nodes the pod may go to, whether they exist or not;
        /// `None` is all.
        nodes: Option<Vec<Box<str>>>,
    },
    /// No node will do.
    Reject(Status),
}

/// Computes once per shape what Filter reads for every node.
pub trait PreFilter {
    /// Runs once per shape and state of the world.
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult;

    /// The state as if `pod` were on `node` too (nominated pods, dry runs).
    fn add_pod(&self, _state: &mut State, _shape: &PodShape, _pod: &Pod, _node: NodeView<'_>) {}

    /// The state as if `pod` were not on `node`.
    fn remove_pod(&self, _state: &mut State, _shape: &PodShape, _pod: &Pod, _node: NodeView<'_>) {}
}

/// Judges nodes.
pub trait Filter {
    /// Judges one node alone.
    fn filter(&self, state: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status>;

    /// Narrows a whole set at once. Must agree with `filter` on every node; a
    /// property test holds them equal.
    fn narrow(&self, state: &State, shape: &PodShape, cluster: &Cluster, set: &mut NodeSet) {
        set.retain(|node| self.filter(state, shape, cluster.view(node)).is_ok());
    }

    /// Judging by class, if verdicts depend on more than shape and node.
    fn by_class(&self) -> Option<&dyn ClassFilter> {
        None
    }
}

/// Outcome of PostFilter.
pub struct PostFilterResult {
    /// Success ends the search for room; the message is appended to the pod's.
    pub status: Status,
    /// Node to nominate: `None` leaves the nomination, `Some("")` clears it.
    pub nominate: Option<Arc<str>>,
    /// Pods to evict from that node.
    pub victims: Vec<PodId>,
    /// Have them go even if a budget forbids it: they are deleted. Else their budgets
    /// are kept.
    pub by_force: bool,
}

/// What a PostFilter plugin may ask about a pod that fits nowhere.
pub trait Room {
    /// The pod.
    fn pod(&self) -> &Pod;
    /// Its shape.
    fn shape(&self) -> &PodShape;
    /// The state.
    fn cluster(&self) -> &Cluster;
    /// Nodes that were rejected in a way that evictions may resolve.
    fn potential(&self) -> Vec<NodeId>;
    /// Whether the pod would fit a node without some pods of it.
    fn fits_without(&mut self, node: NodeId, victims: &[PodId]) -> bool;
    /// What upstream's DefaultPreemption would do.
    fn preempt(&mut self, args: &crate::plugins::DefaultPreemptionArgs) -> PostFilterResult;
}

/// Tries to make room when no node fits.
pub trait PostFilter {
    /// Looks for room.
    fn post_filter(&self, room: &mut dyn Room) -> PostFilterResult;

    /// Whether it may have pods go that a budget forbids to.
    fn may_force(&self) -> bool {
        false
    }
}

/// Outcome of PreScore.
pub enum PreScoreResult {
    /// The plugin does not score this shape.
    Skip,
    /// Go on with this state.
    Go(State),
    /// The attempt fails.
    Fail(Status),
}

/// Rates feasible nodes.
pub trait Score {
    /// Runs once per shape.
    fn pre_score(&self, shape: &PodShape, cluster: &Cluster) -> PreScoreResult;

    /// The raw score of one node. Not asked of a plugin that rates by class.
    fn score(&self, _state: &State, _shape: &PodShape, _node: NodeView<'_>) -> i64 {
        0
    }

    /// What people should know of the score of a node, beside the number.
    fn note(&self, _state: &State, _shape: &PodShape, _node: NodeView<'_>) -> Option<String> {
        None
    }

    /// Rating by class, if scores depend on more than shape and node.
    fn by_class(&self) -> Option<&dyn ClassScore> {
        None
    }

    /// How raw scores become 0..=100, from the extremes over feasible nodes.
    fn normalize(&self) -> Normalize {
        Normalize::AsIs
    }
}

/// Normalisation as a function of a raw score and the extremes over feasible
/// nodes: all that upstream's plugins need, and what lets a changed extreme
/// re-key classes of nodes instead of nodes.
#[derive(Clone, Copy)]
pub enum Normalize {
    /// Raw scores are final.
    AsIs,
    /// `100 * raw / max`, or 100 minus that.
    ByMax {
        /// Lower raw is better.
        reverse: bool,
    },
    /// Any function of (raw, min, max); [`UNRANKED`] raws are no extremes.
    ByExtremes(fn(i64, i64, i64) -> i64),
}

impl Normalize {
    /// The normalised score.
    #[must_use]
    pub fn apply(self, raw: i64, min: i64, max: i64) -> i64 {
        match self {
            Self::AsIs => raw,
            Self::ByMax { reverse } if max == 0 => {
                if reverse {
                    MAX_SCORE
                } else {
                    raw
                }
            }
            Self::ByMax { reverse } => {
                let score = MAX_SCORE.saturating_mul(raw) / max;
                if reverse { MAX_SCORE - score } else { score }
            }
            Self::ByExtremes(f) => f(raw, min, max),
        }
    }
}

/// A pod on its way to a node, as Reserve and later points see it.
pub struct Placed<'a> {
    /// The pod's id.
    pub id: PodId,
    /// The pod.
    pub pod: &'a Pod,
    /// Its shape.
    pub shape: &'a PodShape,
    /// The node chosen.
    pub node: NodeView<'a>,
}

/// Claims what a placement needs beside the node's own columns.
pub trait Reserve {
    /// Claims; a failure unreserves all plugins in reverse order.
    fn reserve(&self, placed: &Placed<'_>) -> Result<(), Status>;
    /// Gives back. Must be idempotent.
    fn unreserve(&self, placed: &Placed<'_>);
    /// Volumes the placement takes: counted as taken until it is bound, or given
    /// back with it. Asked after `reserve`.
    fn volumes(&self, _placed: &Placed<'_>) -> Result<Option<VolumePlan>, Status> {
        Ok(None)
    }
    /// Devices that the pod is expected to get: nobody else is expected to get them while it
    /// is on the node and its agent has not seen it. Asked after `volumes`.
    fn devices(&self, _placed: &Placed<'_>) -> Option<Arc<Predicted>> {
        None
    }
}

/// Outcome of Permit.
pub enum PermitResult {
    /// Go on.
    Allow,
    /// Wait, at most so many seconds (capped at 15 minutes).
    Wait {
        /// Deadline.
        seconds: i64,
    },
    /// Wait as above, and ask the outside.
    Ask {
        /// Deadline.
        seconds: i64,
        /// The request.
        request: Request,
    },
    /// Do not bind.
    Reject(Status),
}

/// What a plugin makes of news about a pod that it holds at Permit.
pub enum Held {
    /// Go on.
    Allow,
    /// Wait on; the deadline stays.
    Wait,
    /// Wait on, and ask the outside after so many seconds.
    Ask {
        /// From now.
        after_seconds: i64,
        /// The request.
        request: Request,
        /// Why it is not decided yet, for people.
        why: Arc<str>,
    },
    /// Do not bind.
    Reject(Status),
}

/// Holds a placement back until something agrees.
pub trait Permit {
    /// Decides.
    fn permit(&self, placed: &Placed<'_>) -> PermitResult;
    /// The pod changed while this plugin holds it.
    fn changed(&self, _placed: &Placed<'_>) -> Held {
        Held::Wait
    }
    /// The outside answered the request of this plugin.
    fn answered(&self, _placed: &Placed<'_>, _answer: Result<&str, &str>) -> Held {
        Held::Wait
    }
    /// What it waits for, for people: the pod's condition and an event say so.
    fn waits_for(&self) -> Option<String> {
        None
    }
}

/// Outcome of a point that may need the outside.
pub enum Step {
    /// Done.
    Done,
    /// Nothing to do.
    Skip,
    /// Ask the outside and go on when it answers.
    Park {
        /// The request.
        request: Request,
    },
    /// Failed.
    Fail(Status),
}

/// Prepares the outside for a bind.
pub trait PreBind {
    /// Starts.
    fn pre_bind(&self, placed: &Placed<'_>) -> Step;
    /// Reads the answer to its request; `Err` fails the binding.
    fn resume(&self, _pod: &PodRef, answer: Result<&str, &str>) -> Result<(), Status> {
        answer.map(|_| ()).map_err(Status::error)
    }
    /// Whether what it asked for has come about. Asked after a good answer, and
    /// again whenever volumes change and every second.
    fn settled(&self, _placed: &Placed<'_>) -> Result<bool, Status> {
        Ok(true)
    }
    /// For how many seconds it is asked, and what it says when they are over.
    fn patience(&self) -> (i64, Status) {
        (600, Status::error("timed out"))
    }
}

/// Binds.
pub trait Bind {
    /// Whether this plugin binds the pod; the first that does wins.
    fn handles(&self, _placed: &Placed<'_>) -> bool {
        true
    }
}

/// Is told of a bind.
pub trait PostBind {
    /// The pod is bound.
    fn post_bind(&self, placed: &Placed<'_>);
}

/// Group-level points: PlacementGenerate, PlacementFeasible, PlacementScore and
/// PodGroupPostFilter. Used by gang scheduling.
pub trait Placement {
    /// Sets of nodes among which a whole group might be placed.
    fn generate(&self, candidates: &NodeSet, cluster: &Cluster) -> Vec<NodeSet>;
    /// Rates a placement of a group: one node per member.
    fn score(&self, assignment: &[NodeId], cluster: &Cluster) -> i64;
}
