//! Volumes: sources as pods and persistent volumes name them, persistent
//! volumes and claims.

use serde::Deserialize;

use super::{LabelSelector, NodeSelector, ObjectMeta, ResourceList, nullable};

/// A volume of a pod. Sources that scheduling cannot tell apart are not decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// Name within the pod.
    pub name: String,
    /// An OCI image as a volume.
    pub image: Option<ImageVolume>,
    /// A claim by name.
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// A claim made for this pod, named after pod and volume.
    pub ephemeral: Option<Present>,
    /// An inline CSI volume.
    pub csi: Option<CsiVolume>,
    /// GCE persistent disk.
    pub gce_persistent_disk: Option<GceDisk>,
    /// AWS elastic block store.
    pub aws_elastic_block_store: Option<DiskId>,
    /// OpenStack Cinder.
    pub cinder: Option<DiskId>,
    /// Portworx.
    pub portworx_volume: Option<DiskId>,
    /// Azure disk.
    pub azure_disk: Option<AzureDisk>,
    /// iSCSI.
    pub iscsi: Option<Iscsi>,
    /// Ceph RBD.
    pub rbd: Option<Rbd>,
}

/// A member that is there, whatever it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Present {}

/// An OCI image mounted as a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImageVolume {
    /// Image reference.
    #[serde(deserialize_with = "nullable")]
    pub reference: String,
}

/// A reference to a claim in the pod's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// Name of the claim.
    #[serde(deserialize_with = "nullable")]
    pub claim_name: String,
}

/// An inline CSI volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CsiVolume {
    /// Driver.
    #[serde(deserialize_with = "nullable")]
    pub driver: String,
}

/// A GCE persistent disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GceDisk {
    /// Name of the disk.
    #[serde(deserialize_with = "nullable")]
    pub pd_name: String,
    /// Mounted read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// A disk named by one id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct DiskId {
    /// Id of the volume.
    #[serde(rename = "volumeID", deserialize_with = "nullable")]
    pub volume_id: String,
}

/// An Azure disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub struct AzureDisk {
    /// URI of the disk.
    #[serde(rename = "diskURI", deserialize_with = "nullable")]
    pub disk_uri: String,
    /// `Managed`, `Dedicated` or `Shared`.
    pub kind: Option<String>,
}

/// An iSCSI volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Iscsi {
    /// Qualified name of the target.
    #[serde(deserialize_with = "nullable")]
    pub iqn: String,
    /// Mounted read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// A Ceph RBD image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rbd {
    /// Monitors.
    #[serde(deserialize_with = "nullable")]
    pub monitors: Vec<String>,
    /// Pool.
    #[serde(deserialize_with = "nullable")]
    pub pool: String,
    /// Image.
    #[serde(deserialize_with = "nullable")]
    pub image: String,
    /// Mounted read-only.
    #[serde(deserialize_with = "nullable")]
    pub read_only: bool,
}

/// A persistent volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What it is.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeSpec,
    /// What has become of it.
    #[serde(deserialize_with = "nullable")]
    pub status: Phase,
}

/// The fields of a persistent volume that the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// Capacity.
    #[serde(deserialize_with = "nullable")]
    pub capacity: ResourceList,
    /// Access modes it can be mounted with.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// The claim it is bound to, or reserved for.
    pub claim_ref: Option<ClaimRef>,
    /// Storage class; empty for none.
    #[serde(deserialize_with = "nullable")]
    pub storage_class_name: String,
    /// `Filesystem` (default) or `Block`.
    pub volume_mode: Option<String>,
    /// Volume attributes class.
    pub volume_attributes_class_name: Option<String>,
    /// Where it can be reached from.
    pub node_affinity: Option<VolumeNodeAffinity>,
    /// A CSI volume.
    pub csi: Option<CsiSource>,
    /// GCE persistent disk.
    pub gce_persistent_disk: Option<GceDisk>,
    /// AWS elastic block store.
    pub aws_elastic_block_store: Option<DiskId>,
    /// OpenStack Cinder.
    pub cinder: Option<DiskId>,
    /// Portworx.
    pub portworx_volume: Option<DiskId>,
    /// Azure disk.
    pub azure_disk: Option<AzureDisk>,
}

/// Where a persistent volume can be reached from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct VolumeNodeAffinity {
    /// Terms of which one must match.
    pub required: Option<NodeSelector>,
}

/// A CSI volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// Driver.
    #[serde(deserialize_with = "nullable")]
    pub driver: String,
    /// The driver's name of the volume.
    #[serde(deserialize_with = "nullable")]
    pub volume_handle: String,
}

/// A reference from a volume to its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    /// Namespace.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Incarnation; empty if an administrator reserved the volume by name.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
}

/// A status of which only the phase matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// For instance `Available`, `Bound` or `Lost`.
    #[serde(deserialize_with = "nullable")]
    pub phase: String,
}

/// A persistent volume claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeClaim {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: PersistentVolumeClaimSpec,
    /// What has become of it.
    #[serde(deserialize_with = "nullable")]
    pub status: Phase,
}

/// The fields of a claim that the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaimSpec {
    /// Access modes asked for.
    #[serde(deserialize_with = "nullable")]
    pub access_modes: Vec<String>,
    /// Labels the volume must have.
    pub selector: Option<LabelSelector>,
    /// Size asked for.
    #[serde(deserialize_with = "nullable")]
    pub resources: super::ResourceRequirements,
    /// The volume it is bound to.
    #[serde(deserialize_with = "nullable")]
    pub volume_name: String,
    /// Storage class; empty means none, absent means the default one.
    pub storage_class_name: Option<String>,
    /// `Filesystem` (default) or `Block`.
    pub volume_mode: Option<String>,
    /// Volume attributes class.
    pub volume_attributes_class_name: Option<String>,
}
