//! Cluster events and queueing hints.

use std::ops::BitOr;

use crate::cluster::{Cluster, GroupKey, Kept, NodeBefore, NodeId};
use crate::model::PodShape;

/// Kinds of objects events are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Nodes.
    Node,
    /// Pods that occupy a node.
    AssignedPod,
    /// The waiting pod itself.
    TargetPod,
    /// Persistent volumes.
    PersistentVolume,
    /// Persistent volume claims.
    PersistentVolumeClaim,
    /// Storage classes.
    StorageClass,
    /// CSI drivers of nodes.
    CsiNode,
    /// CSI drivers.
    CsiDriver,
    /// Room of CSI drivers.
    CsiStorageCapacity,
    /// Attached volumes.
    VolumeAttachment,
    /// Disruption budgets.
    PodDisruptionBudget,
    /// What nodes are inside. The subject is the node.
    NodeTopology,
    /// Data that a plugin is fed from outside: the plugin's own only.
    Data,
    /// Anything: the leftover flush.
    Any,
}

/// What happened to an object: a set of upstream's action types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Actions(u16);

impl Actions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Added.
    pub const ADD: Self = Self(1);
    /// Deleted.
    pub const DELETE: Self = Self(1 << 1);
    /// Node allocatable changed.
    pub const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 2);
    /// Node labels changed.
    pub const UPDATE_NODE_LABEL: Self = Self(1 << 3);
    /// Node taints changed, or the node was cordoned or uncordoned.
    pub const UPDATE_NODE_TAINT: Self = Self(1 << 4);
    /// Images on the node changed. No filter reads images: no hint asks for it.
    pub const UPDATE_NODE_IMAGES: Self = Self(1 << 5);
    /// Pod labels changed.
    pub const UPDATE_POD_LABEL: Self = Self(1 << 6);
    /// Pod requests shrank.
    pub const UPDATE_POD_SCALE_DOWN: Self = Self(1 << 7);
    /// Pod tolerations were added.
    pub const UPDATE_POD_TOLERATION: Self = Self(1 << 8);
    /// All scheduling gates are gone.
    pub const UPDATE_POD_GATES_ELIMINATED: Self = Self(1 << 9);
    /// An object other than a node changed, in no way that has an action of its own.
    pub const UPDATE: Self = Self(1 << 10);
    /// Features that the kubelet declares changed.
    pub const UPDATE_NODE_DECLARED_FEATURE: Self = Self(1 << 11);
    /// A condition of the waiting pod changed that is not PodScheduled.
    pub const UPDATE_POD_CONDITION: Self = Self(1 << 12);
    /// Any change: what a plugin registers that upstream would let register `Update`.
    pub const ANY_UPDATE: Self = Self(u16::MAX).without(Self::ADD).without(Self::DELETE);
    /// Everything.
    pub const ALL: Self = Self(u16::MAX);

    /// Upstream's name of the event that a change of a node is: of several, the first
    /// it would tell.
    #[must_use]
    pub const fn of_node(self) -> &'static str {
        const NAMES: &[(Actions, &str)] = &[
            (Actions::ADD, "NodeAdd"),
            (Actions::DELETE, "NodeDelete"),
            (Actions::UPDATE_NODE_ALLOCATABLE, "NodeUpdateNodeAllocatable"),
            (Actions::UPDATE_NODE_LABEL, "NodeUpdateNodeLabel"),
            (Actions::UPDATE_NODE_TAINT, "NodeUpdateNodeTaint"),
            (Actions::UPDATE_NODE_DECLARED_FEATURE, "NodeUpdateNodeDeclaredFeature"),
        ];
        self.first(NAMES, "NodeUpdate")
    }

    /// As [`Actions::of_node`], of a waiting pod itself.
    #[must_use]
    pub const fn of_target(self) -> &'static str {
        const NAMES: &[(Actions, &str)] = &[
            (Actions::UPDATE_POD_LABEL, "TargetPodUpdatePodLabel"),
            (Actions::UPDATE_POD_SCALE_DOWN, "TargetPodUpdatePodScaleDown"),
            (Actions::UPDATE_POD_GATES_ELIMINATED, "TargetPodUpdatePodSchedulingGatesEliminated"),
            (Actions::UPDATE_POD_TOLERATION, "TargetPodUpdatePodToleration"),
        ];
        self.first(NAMES, "TargetPodUpdate")
    }

    const fn first(
        self,
        mut names: &[(Self, &'static str)],
        general: &'static str,
    ) -> &'static str {
        while let [(action, name), rest @ ..] = names {
            if self.intersects(*action) {
                return name;
            }
            names = rest;
        }
        general
    }

    /// Those that are not in another set.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether any action is in both.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Actions {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Something that happened in the cluster and may let a pod schedule.
#[derive(Clone, Debug)]
pub struct ClusterEvent {
    /// About what.
    pub resource: Resource,
    /// What happened.
    pub actions: Actions,
    /// Upstream's name of the event, for metrics.
    pub label: &'static str,
    /// The object.
    pub subject: Subject,
}

/// The object of an event.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A node, and how it was before an update.
    Node {
        /// The node.
        node: NodeId,
        /// Before.
        before: Option<std::sync::Arc<NodeBefore>>,
    },
    /// A pod came to a node, left it, or changed there: the shape it had.
    Pod {
        /// Its shape.
        shape: std::sync::Arc<PodShape>,
        /// Its namespace and labels.
        group: std::sync::Arc<GroupKey>,
        /// Its labels before an update of them.
        before: Option<std::sync::Arc<GroupKey>>,
    },
    /// A pod on a node was resized in place: the shape it had and the one it has.
    Resized {
        /// Before.
        before: std::sync::Arc<PodShape>,
        /// After.
        after: std::sync::Arc<PodShape>,
    },
    /// An object of another kind: before (unless added) and after (unless gone).
    Object {
        /// Before.
        before: Option<Kept>,
        /// After.
        after: Option<Kept>,
    },
    /// Data that a plugin was fed.
    Data {
        /// The plugin.
        plugin: std::sync::Arc<str>,
        /// What it is about.
        about: crate::io::About,
    },
    /// The waiting pod itself.
    Target,
    /// None in particular.
    None,
}

/// What a hint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The event cannot help this pod.
    Skip,
    /// It might: try again.
    Queue,
}

/// Which events may make a plugin change its mind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// About what.
    pub resource: Resource,
    /// Which actions.
    pub actions: Actions,
}

/// What a hint may look at.
pub struct HintCx<'a> {
    /// The shape of the waiting pods.
    pub shape: &'a PodShape,
    /// The event.
    pub event: &'a ClusterEvent,
    /// The state after the event.
    pub cluster: &'a Cluster,
}
