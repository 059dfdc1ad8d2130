//! What extenders are asked, and what they answer.

use std::sync::Arc;

use super::PodRef;
use crate::framework::ExtenderId;

/// Names of nodes. Cheap to clone.
pub type NodeNames = Arc<[Arc<str>]>;

/// What is asked of an extender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtenderCall {
    /// Which of these nodes the pod may go to.
    Filter {
        /// Whom to ask.
        extender: ExtenderId,
        /// The nodes.
        nodes: NodeNames,
    },
    /// How good these nodes are. Several are asked at once, and answer together.
    Prioritize {
        /// Whom to ask.
        extenders: Arc<[ExtenderId]>,
        /// The nodes.
        nodes: NodeNames,
    },
    /// Which pods have to go, and where.
    Preempt {
        /// Whom to ask.
        extender: ExtenderId,
        /// Nodes where the pod would fit, and who would have to go.
        candidates: Arc<[NodeVictims]>,
    },
    /// Bind the pod to this node.
    Bind {
        /// Whom to ask.
        extender: ExtenderId,
        /// The node.
        node: Arc<str>,
    },
}

/// Pods that would have to leave a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVictims {
    /// The node.
    pub node: Arc<str>,
    /// The pods.
    pub pods: Vec<PodRef>,
    /// How many of them a disruption budget protects.
    pub violations: i64,
}

/// A node and what is said of it.
pub type NodeReason = (Arc<str>, Arc<str>);

/// Nodes and their scores, or why there are none.
pub type Scores = Result<Vec<(Arc<str>, i64)>, Arc<str>>;

/// What an extender answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtenderReply {
    /// To [`ExtenderCall::Filter`].
    Filtered {
        /// Nodes that are left.
        nodes: Vec<Arc<str>>,
        /// Nodes that are not, for now.
        failed: Vec<NodeReason>,
        /// Nodes that are not, whoever is preempted.
        unresolvable: Vec<NodeReason>,
    },
    /// To [`ExtenderCall::Prioritize`]: one answer of each, in the order asked.
    Prioritized(Vec<Scores>),
    /// To [`ExtenderCall::Preempt`]: node, UIDs of the pods, violations.
    Preempted(Vec<(Arc<str>, Vec<Arc<str>>, i64)>),
    /// To [`ExtenderCall::Bind`]: the extender says that it did.
    Bound,
    /// The call failed.
    Failed {
        /// Why, for people.
        error: Arc<str>,
        /// Whether the extender may have acted nevertheless.
        in_doubt: bool,
    },
}
