//! The watched kinds: one `impl` each.

use std::fmt::Debug;

use muster_api::k8s::{
    CSIDriver, CSINode, CSIStorageCapacity, CoschedulingPodGroup, Namespace, NativePodGroup, Node,
    NodeResourceTopology, ObjectMeta, PersistentVolume, PersistentVolumeClaim, Pod,
    PodDisruptionBudget, PriorityClass, ReplicaSet, ReplicationController, Service, StatefulSet,
    StorageClass, VolumeAttachment,
};
use muster_api::muster::{self, ClusterTopology, NodeTopology, PodGroup, SchedulingPolicy};
use muster_core::io::{Change, Input, Kind, Object, ObjectKey};
use muster_core::numa::Reason;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::controller::{Api, Board, Note};

/// Pods that have ended hold nothing: as in upstream, the server leaves them
/// out, and tells us of their end as of a deletion.
pub const POD_FIELDS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A kind that can be watched.
pub trait Watched: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// The core's name of the kind.
    const KIND: Kind;
    /// The API's name of the kind.
    const NAME: &'static str;
    /// API group; empty for the core group.
    const GROUP: &'static str;
    /// API version.
    const VERSION: &'static str;
    /// Resource name in paths.
    const PLURAL: &'static str;
    /// Field selector, or nothing.
    const FIELDS: Option<&'static str>;
    /// Label selector, or nothing.
    const LABELS: Option<&'static str> = None;
    /// The kind of members that have ended, of a kind that has members.
    const ENDED: Option<Kind> = None;

    /// Metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// The input that says that the object changed.
    fn changed(change: Change<Self>) -> Input;

    /// The input that says that the object is gone.
    fn deleted(key: ObjectKey) -> Input {
        Self::changed(Change::Delete(key))
    }

    /// Whether the core is told of it: not everything can be selected by the server.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Tells the controller, if it cares.
    fn note(_: Note<&Self>, _: &Board) {}
}

impl Watched for Node {
    const KIND: Kind = Kind::Node;
    const NAME: &'static str = "Node";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "nodes";
    const FIELDS: Option<&'static str> = None;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn changed(change: Change<Self>) -> Input {
        Input::Node(change)
    }

    fn note(note: Note<&Self>, board: &Board) {
        board.note_node(note);
    }
}

impl Watched for Pod {
    const KIND: Kind = Kind::Pod;
    const NAME: &'static str = "Pod";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "pods";
    const FIELDS: Option<&'static str> = Some(POD_FIELDS);

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn changed(change: Change<Self>) -> Input {
        Input::Pod(change)
    }

    fn note(note: Note<&Self>, board: &Board) {
        board.note_pod(note);
    }
}

/// Members of an API's groups that have ended: [`POD_FIELDS`] leaves them out.
macro_rules! ended {
    ($($(#[$doc:meta])* $name:ident, $api:ident, $labels:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Pod);

        impl Watched for $name {
            const KIND: Kind = Kind::$name;
            const NAME: &'static str = "Pod";
            const GROUP: &'static str = "";
            const VERSION: &'static str = "v1";
            const PLURAL: &'static str = "pods";
            const FIELDS: Option<&'static str> =
                Some("status.phase!=Pending,status.phase!=Running,status.phase!=Unknown");
            const LABELS: Option<&'static str> = $labels;

            fn metadata(&self) -> &ObjectMeta {
                &self.0.metadata
            }

            fn changed(change: Change<Self>) -> Input {
                let change = match change {
                    Change::Upsert(member) => Change::Upsert(Box::new(member.0)),
                    Change::Delete(key) => Change::Delete(key),
                };
                Input::Ended(Kind::$name, change)
            }

            fn is_wanted(&self) -> bool {
                Api::of(&self.0).is_some_and(|(api, _)| api == Api::$api)
            }

            fn note(note: Note<&Self>, board: &Board) {
                board.note_ended(Api::$api, note.map(|member| &member.0));
            }
        }
    )*};
}

ended! {
    /// A member of a pod group that has ended.
    EndedMember, Muster, Some(muster::labels::POD_GROUP);
    /// A member of a pod group of Kubernetes that has ended. Pods cannot be selected by
    /// their group: where such groups are served, all that has ended is looked at.
    EndedNative, Native, None;
    /// A member of a pod group of scheduler-plugins that has ended.
    EndedCoscheduled, Coscheduling, Some(CoschedulingPodGroup::LABEL);
}

/// A pod that has failed. The server cannot select by the reason: those that no kubelet
/// refused are left out here.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct RefusedPod(Pod);

impl Watched for RefusedPod {
    const KIND: Kind = Kind::RefusedPod;
    const NAME: &'static str = "Pod";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "pods";
    const FIELDS: Option<&'static str> = Some("status.phase=Failed,spec.nodeName!=");

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn changed(change: Change<Self>) -> Input {
        match change {
            Change::Upsert(pod) => Input::Refused(Box::new(pod.0)),
            Change::Delete(key) => Input::ObjectGone(Kind::RefusedPod, key),
        }
    }

    fn is_wanted(&self) -> bool {
        Reason::ALL.iter().any(|reason| reason.as_str() == self.0.status.reason)
    }
}

/// Pod groups, told to the controller as well: type, API group, version, how they are told,
/// and the kind of their members that have ended.
macro_rules! noted {
    ($($kind:ident, $group:expr, $version:expr, $note:ident, $ended:ident;)*) => {$(
        impl Watched for $kind {
            const KIND: Kind = Kind::$kind;
            const NAME: &'static str = stringify!($kind);
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const PLURAL: &'static str = "podgroups";
            const FIELDS: Option<&'static str> = None;
            const ENDED: Option<Kind> = Some(Kind::$ended);

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn changed(change: Change<Self>) -> Input {
                match change {
                    Change::Upsert(object) => Input::Object(Box::new(Object::$kind(*object))),
                    Change::Delete(key) => Input::ObjectGone(Kind::$kind, key),
                }
            }

            fn note(note: Note<&Self>, board: &Board) {
                board.$note(note);
            }
        }
    )*};
}

noted! {
    PodGroup, muster::GROUP, muster::VERSION, note_group, EndedMember;
    NativePodGroup, "scheduling.k8s.io", "v1beta1", note_native, EndedNative;
    CoschedulingPodGroup, "scheduling.x-k8s.io", "v1alpha1", note_coscheduling, EndedCoscheduled;
}

/// A kind that the core keeps as it is: type, group, version, resource, and how the
/// controller is told, if it cares.
macro_rules! kept {
    ($($kind:ident, $group:expr, $version:expr, $plural:expr $(, $note:ident)?;)*) => {$(
        impl Watched for $kind {
            const KIND: Kind = Kind::$kind;
            const NAME: &'static str = stringify!($kind);
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const PLURAL: &'static str = $plural;
            const FIELDS: Option<&'static str> = None;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn changed(change: Change<Self>) -> Input {
                match change {
                    Change::Upsert(object) => Input::Object(Box::new(Object::$kind(*object))),
                    Change::Delete(key) => Input::ObjectGone(Kind::$kind, key),
                }
            }

            $(
                fn note(note: Note<&Self>, board: &Board) {
                    board.$note(note);
                }
            )?
        }
    )*};
}

kept! {
    Namespace, "", "v1", "namespaces";
    Service, "", "v1", "services";
    ReplicationController, "", "v1", "replicationcontrollers";
    ReplicaSet, "apps", "v1", "replicasets";
    StatefulSet, "apps", "v1", "statefulsets";
    PersistentVolume, "", "v1", "persistentvolumes";
    PersistentVolumeClaim, "", "v1", "persistentvolumeclaims";
    StorageClass, "storage.k8s.io", "v1", "storageclasses";
    CSINode, "storage.k8s.io", "v1", "csinodes";
    CSIDriver, "storage.k8s.io", "v1", "csidrivers";
    CSIStorageCapacity, "storage.k8s.io", "v1", "csistoragecapacities";
    VolumeAttachment, "storage.k8s.io", "v1", "volumeattachments";
    PodDisruptionBudget, "policy", "v1", "poddisruptionbudgets";
    PriorityClass, "scheduling.k8s.io", "v1", "priorityclasses";
    NodeTopology, muster::GROUP, muster::VERSION, NodeTopology::PLURAL;
    NodeResourceTopology, NodeResourceTopology::GROUP, NodeResourceTopology::VERSION,
        NodeResourceTopology::PLURAL;
    ClusterTopology, muster::GROUP, muster::VERSION, ClusterTopology::PLURAL, note_topology;
    SchedulingPolicy, muster::GROUP, muster::VERSION, SchedulingPolicy::PLURAL, note_policy;
}
