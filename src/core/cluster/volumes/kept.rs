//! Objects as they are kept, and the events their changes are.

use std::sync::Arc;

use muster_api::k8s::{self, annotations};

use super::Index;
use crate::cluster::Objects;
use crate::framework::{Actions, ClusterEvent, Resource, Subject};
use crate::io::Kind;
use crate::model::{Migrated, NodeTerms, migrate};

/// A persistent volume with what is derived from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The object.
    pub object: k8s::PersistentVolume,
    /// Where it can be reached from; `None` is everywhere.
    pub terms: Option<NodeTerms>,
    /// As its CSI driver sees it, if it is of a kind that was once built in.
    pub migrated: Option<Migrated>,
}

impl Volume {
    pub(super) fn new(object: k8s::PersistentVolume) -> Self {
        let affinity = object.spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
        let terms = affinity.map(|r| NodeTerms::compile_labels(&r.node_selector_terms));
        Self { terms, migrated: migrate(&object), object }
    }

    /// Its class; the annotation of old beats the field.
    #[must_use]
    pub fn class(&self) -> &str {
        let old = self.object.metadata.annotations.get(annotations::BETA_STORAGE_CLASS);
        old.unwrap_or(&self.object.spec.storage_class_name)
    }
}

/// The class of a claim; the annotation of old beats the field.
#[must_use]
pub fn claim_class(claim: &k8s::PersistentVolumeClaim) -> &str {
    let old = claim.metadata.annotations.get(annotations::BETA_STORAGE_CLASS);
    old.or(claim.spec.storage_class_name.as_ref()).map_or("", String::as_str)
}

/// `namespace/name`.
#[must_use]
pub fn claim_key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// The key of an object among those of its kind.
pub(crate) fn object_key(kind: Kind, namespace: &str, name: &str) -> String {
    match kind {
        Kind::PersistentVolumeClaim | Kind::CSIStorageCapacity => claim_key(namespace, name),
        _ => name.to_owned(),
    }
}

/// An object that a hint is asked about.
#[derive(Clone, Debug)]
pub enum Kept {
    /// A persistent volume.
    Volume(Arc<Volume>),
    /// A claim.
    Claim(Arc<k8s::PersistentVolumeClaim>),
    /// A class.
    Class(Arc<k8s::StorageClass>),
    /// The drivers of a node.
    CsiNode(Arc<k8s::CSINode>),
    /// A driver.
    Driver(Arc<k8s::CSIDriver>),
    /// Room of a driver.
    Capacity(Arc<k8s::CSIStorageCapacity>),
    /// An attached volume.
    Attachment(Arc<k8s::VolumeAttachment>),
}

/// Before and after; nothing if they are the same.
pub(super) type Change = Option<(Option<Kept>, Kept)>;

pub(super) fn put<T: PartialEq>(
    objects: &mut Objects<T>,
    key: &str,
    object: T,
    seen: u64,
    kept: fn(Arc<T>) -> Kept,
) -> Change {
    let object = Arc::new(object);
    let before = objects.insert(key, Arc::clone(&object), seen);
    if before.as_ref().is_some_and(|b| **b == *object) {
        return None;
    }
    Some((before.map(kept), kept(object)))
}

pub(super) fn index(index: &mut Index, by: &str, name: &str) {
    Arc::make_mut(index).entry(by.into()).or_default().insert(name.into());
}

pub(super) fn unindex(index: &mut Index, by: &str, name: &str) {
    let index = Arc::make_mut(index);
    if let Some(names) = index.get_mut(by) {
        names.remove(name);
        if names.is_empty() {
            index.remove(by);
        }
    }
}

pub(super) fn event(kind: Kind, before: Option<Kept>, after: Option<Kept>) -> Option<ClusterEvent> {
    let (resource, labels) = match kind {
        Kind::PersistentVolume => (Resource::PersistentVolume, ["PvAdd", "PvUpdate", "PvDelete"]),
        Kind::PersistentVolumeClaim => {
            (Resource::PersistentVolumeClaim, ["PvcAdd", "PvcUpdate", "PvcDelete"])
        }
        Kind::StorageClass => (
            Resource::StorageClass,
            ["StorageClassAdd", "StorageClassUpdate", "StorageClassDelete"],
        ),
        Kind::CSINode => (Resource::CsiNode, ["CSINodeAdd", "CSINodeUpdate", "CSINodeDelete"]),
        Kind::CSIDriver => {
            (Resource::CsiDriver, ["CSIDriverAdd", "CSIDriverUpdate", "CSIDriverDelete"])
        }
        Kind::CSIStorageCapacity => (
            Resource::CsiStorageCapacity,
            ["CSIStorageCapacityAdd", "CSIStorageCapacityUpdate", "CSIStorageCapacityDelete"],
        ),
        Kind::VolumeAttachment => (
            Resource::VolumeAttachment,
            ["VolumeAttachmentAdd", "VolumeAttachmentUpdate", "VolumeAttachmentDelete"],
        ),
        _ => return None,
    };
    let (actions, label) = match (&before, &after) {
        (None, _) => (Actions::ADD, labels[0]),
        (Some(_), Some(_)) => (Actions::UPDATE, labels[1]),
        (Some(_), None) => (Actions::DELETE, labels[2]),
    };
    Some(ClusterEvent { resource, actions, label, subject: Subject::Object { before, after } })
}
