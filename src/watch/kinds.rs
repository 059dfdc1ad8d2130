//! The watched kinds: one `impl` each.

use std::fmt::Debug;

use muster_api::k8s::{
    CSIDriver, CSINode, CSIStorageCapacity, Namespace, Node, ObjectMeta, PersistentVolume,
    PersistentVolumeClaim, Pod, PodDisruptionBudget, PriorityClass, ReplicaSet,
    ReplicationController, Service, StatefulSet, StorageClass, VolumeAttachment,
};
use muster_api::muster::{self, PodGroup};
use muster_core::io::{Change, Input, Kind, Object, ObjectKey};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::controller::{Board, Note};

/// Pods that have ended hold nothing: as in upstream, the server leaves them
/// out, and tells us of their end as of a deletion.
pub const POD_FIELDS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// A kind that can be watched.
pub trait Watched: DeserializeOwned + Clone + Debug + Send + Sync + 'static {
    /// The core's name of the kind; none if the core does not hear of it.
    const KIND: Option<Kind>;
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

    /// Metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// The input that says that the object changed.
    fn changed(change: Change<Self>) -> Option<Input>;

    /// The input that says that the object is gone.
    fn deleted(key: ObjectKey) -> Option<Input> {
        Self::changed(Change::Delete(key))
    }

    /// Tells the controller, if it cares.
    fn note(_: Note<&Self>, _: &Board) {}
}

impl Watched for Node {
    const KIND: Option<Kind> = Some(Kind::Node);
    const NAME: &'static str = "Node";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "nodes";
    const FIELDS: Option<&'static str> = None;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn changed(change: Change<Self>) -> Option<Input> {
        Some(Input::Node(change))
    }

    fn note(note: Note<&Self>, board: &Board) {
        board.note_node(note);
    }
}

impl Watched for Pod {
    const KIND: Option<Kind> = Some(Kind::Pod);
    const NAME: &'static str = "Pod";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "pods";
    const FIELDS: Option<&'static str> = Some(POD_FIELDS);

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn changed(change: Change<Self>) -> Option<Input> {
        Some(Input::Pod(change))
    }

    fn note(note: Note<&Self>, board: &Board) {
        board.note_pod(note);
    }
}

/// A member of a pod group that has ended: [`POD_FIELDS`] leaves it out.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct EndedMember(Pod);

impl Watched for EndedMember {
    const KIND: Option<Kind> = None;
    const NAME: &'static str = "Pod";
    const GROUP: &'static str = "";
    const VERSION: &'static str = "v1";
    const PLURAL: &'static str = "pods";
    const FIELDS: Option<&'static str> =
        Some("status.phase!=Pending,status.phase!=Running,status.phase!=Unknown");
    const LABELS: Option<&'static str> = Some(muster::labels::POD_GROUP);

    fn metadata(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn changed(_: Change<Self>) -> Option<Input> {
        None
    }

    fn note(note: Note<&Self>, board: &Board) {
        board.note_ended(match note {
            Note::Listing => Note::Listing,
            Note::Changed(member) => Note::Changed(&member.0),
            Note::Gone(member) => Note::Gone(&member.0),
            Note::Listed => Note::Listed,
        });
    }
}

impl Watched for PodGroup {
    const KIND: Option<Kind> = None;
    const NAME: &'static str = PodGroup::KIND;
    const GROUP: &'static str = muster::GROUP;
    const VERSION: &'static str = muster::VERSION;
    const PLURAL: &'static str = PodGroup::PLURAL;
    const FIELDS: Option<&'static str> = None;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn changed(_: Change<Self>) -> Option<Input> {
        None
    }

    fn note(note: Note<&Self>, board: &Board) {
        board.note_group(note);
    }
}

/// A kind that the core keeps as it is: type, group, resource.
macro_rules! kept {
    ($($kind:ident, $group:literal, $plural:literal;)*) => {$(
        impl Watched for $kind {
            const KIND: Option<Kind> = Some(Kind::$kind);
            const NAME: &'static str = stringify!($kind);
            const GROUP: &'static str = $group;
            const VERSION: &'static str = "v1";
            const PLURAL: &'static str = $plural;
            const FIELDS: Option<&'static str> = None;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn changed(change: Change<Self>) -> Option<Input> {
                Some(match change {
                    Change::Upsert(object) => Input::Object(Box::new(Object::$kind(*object))),
                    Change::Delete(key) => Input::ObjectGone(Kind::$kind, key),
                })
            }
        }
    )*};
}

kept! {
    Namespace, "", "namespaces";
    Service, "", "services";
    ReplicationController, "", "replicationcontrollers";
    ReplicaSet, "apps", "replicasets";
    StatefulSet, "apps", "statefulsets";
    PersistentVolume, "", "persistentvolumes";
    PersistentVolumeClaim, "", "persistentvolumeclaims";
    StorageClass, "storage.k8s.io", "storageclasses";
    CSINode, "storage.k8s.io", "csinodes";
    CSIDriver, "storage.k8s.io", "csidrivers";
    CSIStorageCapacity, "storage.k8s.io", "csistoragecapacities";
    VolumeAttachment, "storage.k8s.io", "volumeattachments";
    PodDisruptionBudget, "policy", "poddisruptionbudgets";
    PriorityClass, "scheduling.k8s.io", "priorityclasses";
}
