//! The core's closed alphabet: what goes in and what comes out.
//!
//! Owns [`Input`] and [`Effect`]. The live shell, the simulator and every test
//! speak to the core in these words only. Nothing here does I/O: an effect is a
//! request to whoever drives the core, and its answer is another input.

mod extender;

pub use extender::{ExtenderCall, ExtenderReply, NodeNames, NodeReason, NodeVictims, Scores};

use std::fmt;
use std::sync::Arc;

use muster_api::{k8s, muster};
use serde_json::Value;

use crate::gang::GangKey;
use crate::model::Predicted;

/// A point in time: microseconds since the Unix epoch, handed in by the driver.
///
/// The core has no clock. The driver promises that ticks never go backwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(pub i64);

impl Tick {
    /// The tick `micros` later.
    #[must_use]
    pub const fn after_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// The tick `seconds` later.
    #[must_use]
    pub const fn after_secs(self, seconds: i64) -> Self {
        self.after_micros(seconds.saturating_mul(1_000_000))
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }
}

/// Kinds of objects the core is told about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Pods.
    Pod,
    /// Namespaces.
    Namespace,
    /// Services.
    Service,
    /// Replication controllers.
    ReplicationController,
    /// Replica sets.
    ReplicaSet,
    /// Stateful sets.
    StatefulSet,
    /// Persistent volumes.
    PersistentVolume,
    /// Persistent volume claims.
    PersistentVolumeClaim,
    /// Storage classes.
    StorageClass,
    /// CSI drivers of nodes.
    CSINode,
    /// CSI drivers.
    CSIDriver,
    /// Room of CSI drivers.
    CSIStorageCapacity,
    /// Attached volumes.
    VolumeAttachment,
    /// Disruption budgets.
    PodDisruptionBudget,
    /// Priority classes.
    PriorityClass,
    /// Scheduling policies.
    SchedulingPolicy,
    /// Pod groups of Muster's own.
    PodGroup,
    /// Pod groups of Kubernetes.
    NativePodGroup,
    /// Pod groups of scheduler-plugins.
    CoschedulingPodGroup,
    /// Levels of the network between nodes.
    ClusterTopology,
    /// What nodes are inside, by Muster's agent.
    NodeTopology,
    /// What nodes are inside, by other agents.
    NodeResourceTopology,
    /// Members of Muster's pod groups that have ended.
    EndedMember,
    /// Members of Kubernetes' pod groups that have ended.
    EndedNative,
    /// Members of scheduler-plugins' pod groups that have ended.
    EndedCoscheduled,
    /// Pods that have failed: perhaps because a kubelet refused them.
    RefusedPod,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 27] = [
        Self::Node,
        Self::Pod,
        Self::Namespace,
        Self::Service,
        Self::ReplicationController,
        Self::ReplicaSet,
        Self::StatefulSet,
        Self::PersistentVolume,
        Self::PersistentVolumeClaim,
        Self::StorageClass,
        Self::CSINode,
        Self::CSIDriver,
        Self::CSIStorageCapacity,
        Self::VolumeAttachment,
        Self::PodDisruptionBudget,
        Self::PriorityClass,
        Self::SchedulingPolicy,
        Self::PodGroup,
        Self::NativePodGroup,
        Self::CoschedulingPodGroup,
        Self::ClusterTopology,
        Self::NodeTopology,
        Self::NodeResourceTopology,
        Self::EndedMember,
        Self::EndedNative,
        Self::EndedCoscheduled,
        Self::RefusedPod,
    ];
    /// How many kinds there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Whether objects of this kind say how pods are related.
    #[must_use]
    pub const fn is_relation(self) -> bool {
        matches!(
            self,
            Self::Namespace
                | Self::Service
                | Self::ReplicationController
                | Self::ReplicaSet
                | Self::StatefulSet
        )
    }

    /// Whether objects of this kind say which pods go together.
    #[must_use]
    pub const fn is_pod_group(self) -> bool {
        matches!(self, Self::PodGroup | Self::NativePodGroup | Self::CoschedulingPodGroup)
    }

    /// Whether objects of this kind are members of pod groups that have ended.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::EndedMember | Self::EndedNative | Self::EndedCoscheduled)
    }

    /// Whether nothing is decided before all objects of this kind are known.
    #[must_use]
    pub const fn is_awaited(self) -> bool {
        !matches!(self, Self::RefusedPod)
    }

    /// Whether objects of this kind say what a node is inside.
    #[must_use]
    pub const fn is_node_report(self) -> bool {
        matches!(self, Self::NodeTopology | Self::NodeResourceTopology)
    }

    /// Whether objects of this kind say who may push out whom.
    #[must_use]
    pub const fn is_policy(self) -> bool {
        matches!(self, Self::PodDisruptionBudget | Self::PriorityClass)
    }
}

/// An object of a kind other than nodes and pods. The core keeps these as they
/// are; a new kind is a variant here and a place to keep it in `cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "inputs hold it in a box")]
pub enum Object {
    /// A namespace.
    Namespace(k8s::Namespace),
    /// A service.
    Service(k8s::Service),
    /// A replication controller.
    ReplicationController(k8s::ReplicationController),
    /// A replica set.
    ReplicaSet(k8s::ReplicaSet),
    /// A stateful set.
    StatefulSet(k8s::StatefulSet),
    /// A persistent volume.
    PersistentVolume(k8s::PersistentVolume),
    /// A persistent volume claim.
    PersistentVolumeClaim(k8s::PersistentVolumeClaim),
    /// A storage class.
    StorageClass(k8s::StorageClass),
    /// The CSI drivers of a node.
    CSINode(k8s::CSINode),
    /// A CSI driver.
    CSIDriver(k8s::CSIDriver),
    /// Room of a CSI driver.
    CSIStorageCapacity(k8s::CSIStorageCapacity),
    /// An attached volume.
    VolumeAttachment(k8s::VolumeAttachment),
    /// A disruption budget.
    PodDisruptionBudget(k8s::PodDisruptionBudget),
    /// A priority class.
    PriorityClass(k8s::PriorityClass),
    /// A scheduling policy.
    SchedulingPolicy(muster::SchedulingPolicy),
    /// A pod group of Muster's own.
    PodGroup(muster::PodGroup),
    /// A pod group of Kubernetes.
    NativePodGroup(k8s::NativePodGroup),
    /// A pod group of scheduler-plugins.
    CoschedulingPodGroup(k8s::CoschedulingPodGroup),
    /// Levels of the network between nodes.
    ClusterTopology(muster::ClusterTopology),
    /// What a node is inside, by Muster's agent.
    NodeTopology(muster::NodeTopology),
    /// What a node is inside, by another agent.
    NodeResourceTopology(k8s::NodeResourceTopology),
}

impl Object {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Namespace(_) => Kind::Namespace,
            Self::Service(_) => Kind::Service,
            Self::ReplicationController(_) => Kind::ReplicationController,
            Self::ReplicaSet(_) => Kind::ReplicaSet,
            Self::StatefulSet(_) => Kind::StatefulSet,
            Self::PersistentVolume(_) => Kind::PersistentVolume,
            Self::PersistentVolumeClaim(_) => Kind::PersistentVolumeClaim,
            Self::StorageClass(_) => Kind::StorageClass,
            Self::CSINode(_) => Kind::CSINode,
            Self::CSIDriver(_) => Kind::CSIDriver,
            Self::CSIStorageCapacity(_) => Kind::CSIStorageCapacity,
            Self::VolumeAttachment(_) => Kind::VolumeAttachment,
            Self::PodDisruptionBudget(_) => Kind::PodDisruptionBudget,
            Self::PriorityClass(_) => Kind::PriorityClass,
            Self::SchedulingPolicy(_) => Kind::SchedulingPolicy,
            Self::PodGroup(_) => Kind::PodGroup,
            Self::NativePodGroup(_) => Kind::NativePodGroup,
            Self::CoschedulingPodGroup(_) => Kind::CoschedulingPodGroup,
            Self::ClusterTopology(_) => Kind::ClusterTopology,
            Self::NodeTopology(_) => Kind::NodeTopology,
            Self::NodeResourceTopology(_) => Kind::NodeResourceTopology,
        }
    }

    /// Its metadata.
    #[must_use]
    pub const fn metadata(&self) -> &k8s::ObjectMeta {
        match self {
            Self::Namespace(o) => &o.metadata,
            Self::Service(o) => &o.metadata,
            Self::ReplicationController(o) => &o.metadata,
            Self::ReplicaSet(o) => &o.metadata,
            Self::StatefulSet(o) => &o.metadata,
            Self::PersistentVolume(o) => &o.metadata,
            Self::PersistentVolumeClaim(o) => &o.metadata,
            Self::StorageClass(o) => &o.metadata,
            Self::CSINode(o) => &o.metadata,
            Self::CSIDriver(o) => &o.metadata,
            Self::CSIStorageCapacity(o) => &o.metadata,
            Self::VolumeAttachment(o) => &o.metadata,
            Self::PodDisruptionBudget(o) => &o.metadata,
            Self::PriorityClass(o) => &o.metadata,
            Self::SchedulingPolicy(o) => &o.metadata,
            Self::PodGroup(o) => &o.metadata,
            Self::NativePodGroup(o) => &o.metadata,
            Self::CoschedulingPodGroup(o) => &o.metadata,
            Self::ClusterTopology(o) => &o.metadata,
            Self::NodeTopology(o) => &o.metadata,
            Self::NodeResourceTopology(o) => &o.metadata,
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub enum Change<T> {
    /// The object is now this (added or modified).
    Upsert(Box<T>),
    /// The object is gone.
    Delete(ObjectKey),
}

/// Which object: `uid` may be empty when the source does not know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Incarnation.
    pub uid: String,
}

/// A pod as effects and reports name it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Incarnation.
    pub uid: Arc<str>,
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the core is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// A node changed.
    Node(Change<k8s::Node>),
    /// A pod changed.
    Pod(Change<k8s::Pod>),
    /// An object of another kind is now this (added or modified).
    Object(Box<Object>),
    /// An object of another kind is gone.
    ObjectGone(Kind, ObjectKey),
    /// A member of a pod group that has ended; told apart from pods that have not, because
    /// two watches show the two, and they are not in step.
    Ended(Kind, Change<k8s::Pod>),
    /// A pod has failed: perhaps because its kubelet refused it.
    Refused(Box<k8s::Pod>),
    /// A full list of `Kind` begins (first list, or the watch was lost).
    RelistStarted(Kind),
    /// The list is complete: objects of `Kind` not upserted since the start are gone.
    RelistDone(Kind),
    /// The answer to [`Effect::Bind`].
    BindDone {
        /// The pod.
        pod: PodRef,
        /// The attempt that the effect named; answers to older ones are ignored.
        attempt: u64,
        /// What happened.
        result: Result<(), WriteError>,
    },
    /// The answer to [`Effect::Call`].
    Reply {
        /// The token of the call.
        token: Token,
        /// What the outside said.
        reply: Reply,
    },
    /// An outside decision on a pod that waits at Permit.
    Permit {
        /// The pod.
        pod: PodRef,
        /// On behalf of which plugin.
        plugin: Arc<str>,
        /// `Ok` allows, `Err` rejects with a message.
        verdict: Result<(), Arc<str>>,
    },
    /// Data from outside the cluster, for one plugin to read.
    Data(Datum),
}

/// One value that the outside feeds to a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct Datum {
    /// Whose it is: no other plugin is told of it.
    pub plugin: Arc<str>,
    /// What it is about.
    pub about: About,
    /// The value; `None` takes it back.
    pub value: Option<Arc<Value>>,
}

/// What a [`Datum`] is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    /// A node, by name, whether it exists or not. Kept results of that node are
    /// made anew, and of no other.
    Node(Arc<str>),
    /// Anything else, by a key of the plugin's own. All kept results are made
    /// anew: for what changes rarely.
    Key(Arc<str>),
}

/// How a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// 409: the object is not as assumed (for a bind: already bound, or another UID).
    Conflict(String),
    /// 404: the object is gone.
    NotFound(String),
    /// Refused for good by the server (4xx), or failed with nothing written.
    Rejected(String),
    /// The answer never came: the write may or may not have happened.
    Unknown(String),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(m) | Self::NotFound(m) | Self::Rejected(m) | Self::Unknown(m) => {
                f.write_str(m)
            }
        }
    }
}

/// Names one outstanding [`Effect::Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What an outside call answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done; the text is the plugin's to read.
    Done(Arc<str>),
    /// Failed, with a message for people.
    Failed(Arc<str>),
    /// Objects were written, in order, up to the first error.
    Written {
        /// Name (`namespace/name` for namespaced kinds) and new version of each.
        versions: Vec<(Box<str>, Box<str>)>,
        /// Why the rest was not.
        error: Option<Arc<str>>,
    },
    /// The answer to [`Request::Evict`].
    Evicted(Eviction),
    /// The answer to [`Request::Extender`].
    Extender(ExtenderReply),
}

/// What became of an eviction, or of its dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The server accepted it: the pod is going.
    Accepted,
    /// The pod is gone, or another one of that name is there.
    Gone,
    /// A disruption budget forbids it, in the server's words.
    Refused(Arc<str>),
    /// The server could not be asked, or was too busy: worth another try.
    Unavailable(Arc<str>),
    /// The server will not do it, whenever it is asked.
    Failed(Arc<str>),
}

impl Reply {
    /// What went wrong, if anything.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Extender(ExtenderReply::Failed { error, .. }) => Some(error),
            Self::Done(_)
            | Self::Evicted(Eviction::Accepted | Eviction::Gone)
            | Self::Extender(_) => None,
            Self::Failed(text)
            | Self::Evicted(
                Eviction::Refused(text) | Eviction::Unavailable(text) | Eviction::Failed(text),
            ) => Some(text),
            Self::Written { error, .. } => error.as_deref(),
        }
    }
}

/// What the core asks its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bind a pod to a node, with the pod's UID as precondition.
    Bind {
        /// The pod.
        pod: PodRef,
        /// The node.
        node: Arc<str>,
        /// Echoed in [`Input::BindDone`].
        attempt: u64,
        /// The devices that it is expected to get, if any: they go into the same write.
        devices: Option<Arc<Predicted>>,
    },
    /// Patch the pod's status. A newer patch for the same pod replaces an older one.
    PatchStatus(StatusPatch),
    /// Record an event about a pod (events.k8s.io/v1).
    Event(EventRecord),
    /// Say in the status of a pod group what has become of it.
    Group(GroupSays),
    /// Outside work on which an entity is parked.
    Call {
        /// Echoed in [`Input::Reply`].
        token: Token,
        /// The pod on whose behalf.
        pod: PodRef,
        /// The plugin that asks.
        plugin: Arc<str>,
        /// What it asks.
        request: Request,
    },
}

/// What a plugin asks of the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// In the plugin's own words.
    Text(Arc<str>),
    /// Write these objects in order, up to the first error; answered by
    /// [`Reply::Written`].
    Write(Arc<[ObjectPatch]>),
    /// Ask a server of the user's own by POST of JSON, once; answered by
    /// [`Reply::Done`] with the body of a 200, or by [`Reply::Failed`].
    Post(Arc<Post>),
    /// Have a pod go, its UID as precondition; answered by [`Reply::Evicted`].
    Evict {
        /// The pod to go.
        victim: PodRef,
        /// By what means.
        how: Removal,
    },
    /// Ask extenders; answered by [`Reply::Extender`]. The plugin named beside it is
    /// the extender's name.
    Extender {
        /// The attempt in which it is asked: what was read of the pod for an earlier call
        /// of it is good enough for this one.
        attempt: u64,
        /// What is asked.
        call: ExtenderCall,
    },
}

/// A question to a server of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Where.
    pub url: Arc<str>,
    /// PEM file with the certificates of those who may vouch for the server; those
    /// of the system without it.
    pub ca_file: Option<Arc<str>>,
    /// What is sent: JSON.
    pub body: Arc<str>,
    /// How long the answer may take.
    pub timeout_seconds: u32,
}

/// How a pod is made to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Not yet: ask it to save its work, by a note on it.
    Checkpoint {
        /// The time on the note, in whole seconds.
        asked: Tick,
    },
    /// Not at all: ask whether its eviction would be allowed.
    DryRun,
    /// By the Eviction API, which keeps budgets.
    Evict,
    /// Deleted, whatever its budgets say.
    Delete,
}

impl Removal {
    /// Whether nothing is changed by it.
    #[must_use]
    pub fn is_dry_run(self) -> bool {
        self == Self::DryRun
    }

    /// Whether the pod goes by it.
    #[must_use]
    pub fn removes(self) -> bool {
        matches!(self, Self::Evict | Self::Delete)
    }
}

impl From<&str> for Request {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// A change of one object, valid for one version of it only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectPatch {
    /// Bind a persistent volume to a claim.
    BindVolume {
        /// The volume.
        volume: Box<str>,
        /// The version it must have.
        version: Box<str>,
        /// The claim.
        claim: ObjectKey,
        /// The claim's version.
        claim_version: Box<str>,
        /// Whether to note that a controller, not an administrator, chose.
        by_controller: bool,
    },
    /// Ask for the volume of a claim to be made for a node.
    SelectNode {
        /// The claim.
        claim: ObjectKey,
        /// The version it must have.
        version: Box<str>,
        /// The node.
        node: Arc<str>,
    },
}

/// A patch of pod status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPatch {
    /// The pod.
    pub pod: PodRef,
    /// The PodScheduled condition to set.
    pub condition: Option<Condition>,
    /// The status of that condition as the API server last showed it: a time of
    /// transition goes with a change of status only.
    pub shown: Option<bool>,
    /// `nominatedNodeName` to set; `Some("")` clears it.
    pub nominated_node: Option<Arc<str>>,
}

/// A PodScheduled condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// `True` or `False`.
    pub status: bool,
    /// Reason.
    pub reason: &'static str,
    /// Message.
    pub message: Arc<str>,
    /// Generation of the pod that was judged.
    pub observed_generation: Option<i64>,
}

/// What the scheduler says of a gang. What it said before no longer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSays {
    /// Which gang.
    pub gang: GangKey,
    /// One of [`muster::reason`]; empty if there is nothing to say.
    pub reason: &'static str,
    /// The same for people.
    pub message: Arc<str>,
    /// The room that members had while they waited for each other is given back.
    pub gave_up: bool,
    /// The domain that the gang got for its topology; none if it has none, or is not placed.
    pub domain: Option<muster::Domain>,
    /// The domains that roles got for theirs, by name.
    pub role_domains: Vec<(String, muster::Domain)>,
}

/// An event about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// The pod.
    pub pod: PodRef,
    /// Another pod that it is about.
    pub related: Option<PodRef>,
    /// `true`: Warning, `false`: Normal.
    pub warning: bool,
    /// Reason, CamelCase.
    pub reason: &'static str,
    /// Action, CamelCase.
    pub action: &'static str,
    /// Note for people, at most 1,024 bytes.
    pub note: Arc<str>,
    /// The profile's scheduler name.
    pub reporting_controller: Arc<str>,
}
