//! The watched kinds: one `impl` each.

use std::fmt::Debug;

use muster_api::k8s::{
    CSIDriver, CSINode, CSIStorageCapacity, Namespace, Node, ObjectMeta, PersistentVolume,
    PersistentVolumeClaim, Pod, PodDisruptionBudget, PriorityClass, ReplicaSet,
    ReplicationController, Service, StatefulSet, StorageClass, VolumeAttachment,
};
use muster_core::io::{Change, Input, Kind, Object, ObjectKey};
use serde::de::DeserializeOwned;

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

    /// Metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// The input that says that the object changed.
    fn changed(change: Change<Self>) -> Input;

    /// The input that says that the object is gone.
    fn deleted(key: ObjectKey) -> Input {
        Self::changed(Change::Delete(key))
    }
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
}

/// A kind that the core keeps as it is: type, group, resource.
macro_rules! kept {
    ($($kind:ident, $group:literal, $plural:literal;)*) => {$(
        impl Watched for $kind {
            const KIND: Kind = Kind::$kind;
            const NAME: &'static str = stringify!($kind);
            const GROUP: &'static str = $group;
            const VERSION: &'static str = "v1";
            const PLURAL: &'static str = $plural;
            const FIELDS: Option<&'static str> = None;

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn changed(change: Change<Self>) -> Input {
                match change {
                    Change::Upsert(object) => Input::Object(Box::new(Object::$kind(*object))),
                    Change::Delete(key) => Input::ObjectGone(Self::KIND, key),
                }
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
