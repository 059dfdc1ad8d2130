//! Volumes, claims, classes and drivers: what the volume plugins read.
//!
//! Owns the objects, their indexes, which pods use which claim, and the volumes
//! and claims that placements have taken and the API does not show yet. Forks
//! share it as a whole. Must never decide which volume fits a claim.

mod kept;
mod plan;

pub(crate) use kept::object_key;
pub use kept::{Kept, Volume, claim_class, claim_key};
pub(crate) use plan::is_bound_to;
pub use plan::{VolumeBindingPlan, VolumePlan};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_api::k8s;

use super::objects::Objects;
use crate::framework::ClusterEvent;
use crate::io::{Kind, Object, ObjectKey};
use crate::model::{PodId, PodVolumes};
use kept::{Change, event, index, put, unindex};

/// Names by another name.
type Index = Arc<BTreeMap<Box<str>, BTreeSet<Box<str>>>>;

/// What the volume plugins read.
#[derive(Clone, Default)]
pub struct Volumes {
    volumes: Objects<Volume>,
    claims: Objects<k8s::PersistentVolumeClaim>,
    classes: Objects<k8s::StorageClass>,
    csi_nodes: Objects<k8s::CSINode>,
    drivers: Objects<k8s::CSIDriver>,
    capacities: Objects<k8s::CSIStorageCapacity>,
    attachments: Objects<k8s::VolumeAttachment>,
    volumes_by_class: Index,
    attachments_by_node: Index,
    /// Objects as they will be once what was decided is written. Each holds as
    /// long as the API shows the version it was derived from.
    assumed_volumes: BTreeMap<Box<str>, Arc<Volume>>,
    assumed_claims: BTreeMap<Box<str>, Arc<k8s::PersistentVolumeClaim>>,
    plans: BTreeMap<PodId, VolumePlan>,
    /// Pods on nodes, by the claims they name.
    users: Arc<BTreeMap<Box<str>, Vec<PodId>>>,
    generation: u64,
}

impl Volumes {
    /// Changes whenever a verdict on a pod with volumes might.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A persistent volume as the API shows it.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// A persistent volume as it will be.
    #[must_use]
    pub fn assumed_volume(&self, name: &str) -> Option<&Arc<Volume>> {
        let shown = self.volumes.get(name)?;
        let version = |v: &Volume| v.object.metadata.resource_version.clone();
        let assumed = self.assumed_volumes.get(name);
        assumed.filter(|a| version(a) == version(shown)).or(Some(shown))
    }

    /// Persistent volumes of a class as they will be, by name.
    pub fn volumes_of_class(&self, class: &str) -> impl Iterator<Item = &Arc<Volume>> {
        let names = self.volumes_by_class.get(class).into_iter().flatten();
        names.filter_map(|name| self.assumed_volume(name))
    }

    /// A claim as the API shows it, by `namespace/name`.
    #[must_use]
    pub fn claim(&self, key: &str) -> Option<&Arc<k8s::PersistentVolumeClaim>> {
        self.claims.get(key)
    }

    /// A claim as it will be.
    #[must_use]
    pub fn assumed_claim(&self, key: &str) -> Option<&Arc<k8s::PersistentVolumeClaim>> {
        let shown = self.claims.get(key)?;
        let assumed = self.assumed_claims.get(key);
        let same = |a: &&Arc<k8s::PersistentVolumeClaim>| {
            a.metadata.resource_version == shown.metadata.resource_version
        };
        assumed.filter(same).or(Some(shown))
    }

    /// A class.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&Arc<k8s::StorageClass>> {
        self.classes.get(name)
    }

    /// The CSI drivers of a node.
    #[must_use]
    pub fn csi_node(&self, node: &str) -> Option<&Arc<k8s::CSINode>> {
        self.csi_nodes.get(node)
    }

    /// A CSI driver.
    #[must_use]
    pub fn driver(&self, name: &str) -> Option<&Arc<k8s::CSIDriver>> {
        self.drivers.get(name)
    }

    /// What CSI drivers say of their room, by name.
    pub fn capacities(&self) -> impl Iterator<Item = &Arc<k8s::CSIStorageCapacity>> {
        self.capacities.iter().map(|(_, c)| c)
    }

    /// Volumes attached to a node, by name of the attachment.
    pub fn attachments(&self, node: &str) -> impl Iterator<Item = &Arc<k8s::VolumeAttachment>> {
        let names = self.attachments_by_node.get(node).into_iter().flatten();
        names.filter_map(|name| self.attachments.get(name))
    }

    /// Pods on nodes that name a claim; nodes that no longer exist too.
    pub(crate) fn users(&self, claim: &str) -> &[PodId] {
        self.users.get(claim).map_or(&[], Vec::as_slice)
    }

    /// A pod came to a node, or left it.
    pub(super) fn count(&mut self, pod: PodId, volumes: &PodVolumes, add: bool) {
        for name in volumes.claims() {
            let key = claim_key(&volumes.namespace, name).into_boxed_str();
            let users = Arc::make_mut(&mut self.users);
            let pods = users.entry(key.clone()).or_default();
            match pods.iter().position(|p| *p == pod) {
                Some(at) if !add => drop(pods.swap_remove(at)),
                None if add => pods.push(pod),
                _ => {}
            }
            if pods.is_empty() {
                users.remove(&key);
            }
        }
    }

    /// Takes in an object. The event it is, unless nothing changed.
    pub(crate) fn upsert(&mut self, object: Object, seen: u64) -> Option<ClusterEvent> {
        let meta = object.metadata();
        let kind = object.kind();
        let key = object_key(kind, &meta.namespace, &meta.name);
        let (before, after) = match object {
            Object::PersistentVolume(o) => self.put_volume(&key, Volume::new(o), seen),
            Object::PersistentVolumeClaim(o) => self.put_claim(&key, o, seen),
            Object::StorageClass(o) => put(&mut self.classes, &key, o, seen, Kept::Class),
            Object::CSINode(o) => put(&mut self.csi_nodes, &key, o, seen, Kept::CsiNode),
            Object::CSIDriver(o) => put(&mut self.drivers, &key, o, seen, Kept::Driver),
            Object::CSIStorageCapacity(o) => {
                put(&mut self.capacities, &key, o, seen, Kept::Capacity)
            }
            Object::VolumeAttachment(o) => self.put_attachment(&key, o, seen),
            _ => None,
        }?;
        self.generation += 1;
        event(kind, before, Some(after))
    }

    fn put_volume(&mut self, key: &str, volume: Volume, seen: u64) -> Change {
        let class: Box<str> = volume.class().into();
        let version = volume.object.metadata.resource_version.clone();
        let change = put(&mut self.volumes, key, volume, seen, Kept::Volume);
        let outdated = |a: &Arc<Volume>| a.object.metadata.resource_version != version;
        if self.assumed_volumes.get(key).is_some_and(outdated) {
            self.assumed_volumes.remove(key);
        }
        if let Some((Some(Kept::Volume(old)), _)) = &change
            && *old.class() != *class
        {
            unindex(&mut self.volumes_by_class, old.class(), key);
        }
        if change.is_some() {
            index(&mut self.volumes_by_class, &class, key);
        }
        change
    }

    fn put_claim(&mut self, key: &str, claim: k8s::PersistentVolumeClaim, seen: u64) -> Change {
        let version = &claim.metadata.resource_version;
        if self.assumed_claims.get(key).is_some_and(|a| a.metadata.resource_version != *version) {
            self.assumed_claims.remove(key);
        }
        put(&mut self.claims, key, claim, seen, Kept::Claim)
    }

    fn put_attachment(&mut self, key: &str, object: k8s::VolumeAttachment, seen: u64) -> Change {
        let node = object.spec.node_name.clone();
        let change = put(&mut self.attachments, key, object, seen, Kept::Attachment);
        if let Some((Some(Kept::Attachment(old)), _)) = &change {
            unindex(&mut self.attachments_by_node, &old.spec.node_name, key);
        }
        if change.is_some() {
            index(&mut self.attachments_by_node, &node, key);
        }
        change
    }

    /// Forgets an object. The event it is, if it was known.
    pub(crate) fn remove(&mut self, kind: Kind, key: &ObjectKey) -> Option<ClusterEvent> {
        self.remove_named(kind, &object_key(kind, &key.namespace, &key.name))
    }

    fn remove_named(&mut self, kind: Kind, name: &str) -> Option<ClusterEvent> {
        let before = match kind {
            Kind::PersistentVolume => {
                let gone = self.volumes.remove(name)?;
                self.assumed_volumes.remove(name);
                unindex(&mut self.volumes_by_class, gone.class(), name);
                Kept::Volume(gone)
            }
            Kind::PersistentVolumeClaim => {
                self.assumed_claims.remove(name);
                Kept::Claim(self.claims.remove(name)?)
            }
            Kind::StorageClass => Kept::Class(self.classes.remove(name)?),
            Kind::CSINode => Kept::CsiNode(self.csi_nodes.remove(name)?),
            Kind::CSIDriver => Kept::Driver(self.drivers.remove(name)?),
            Kind::CSIStorageCapacity => Kept::Capacity(self.capacities.remove(name)?),
            Kind::VolumeAttachment => {
                let gone = self.attachments.remove(name)?;
                unindex(&mut self.attachments_by_node, &gone.spec.node_name, name);
                Kept::Attachment(gone)
            }
            _ => return None,
        };
        self.generation += 1;
        event(kind, Some(before), None)
    }

    /// Forgets what relist `seen` did not show.
    pub(crate) fn sweep(&mut self, kind: Kind, seen: u64) -> Vec<ClusterEvent> {
        let stale = match kind {
            Kind::PersistentVolume => self.volumes.stale(seen),
            Kind::PersistentVolumeClaim => self.claims.stale(seen),
            Kind::StorageClass => self.classes.stale(seen),
            Kind::CSINode => self.csi_nodes.stale(seen),
            Kind::CSIDriver => self.drivers.stale(seen),
            Kind::CSIStorageCapacity => self.capacities.stale(seen),
            Kind::VolumeAttachment => self.attachments.stale(seen),
            _ => Vec::new(),
        };
        stale.iter().filter_map(|name| self.remove_named(kind, name)).collect()
    }
}
