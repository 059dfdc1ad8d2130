//! The volumes of a pod by which scheduling can tell it apart.

use muster_api::k8s;

/// A pod's volumes that some plugin reads, in the order of the pod.
///
/// Pods that use the same claims are one shape. What belongs to one pod alone
/// (its name, for claims that are named after it) is held only where such a
/// claim exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodVolumes {
    /// The pod's namespace: claims are looked up in it.
    pub namespace: Box<str>,
    /// The pod's name and UID, if a volume is ephemeral.
    pub owner: Option<(Box<str>, Box<str>)>,
    /// The volumes.
    pub list: Box<[PodVolume]>,
}

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PodVolume {
    /// A claim by name.
    Claim(Box<str>),
    /// A claim made for the pod: the claim's name.
    Ephemeral(Box<str>),
    /// A disk of a kind that was once built in, named in the pod itself.
    Inline {
        /// Name of the volume, for messages.
        name: Box<str>,
        /// The disk.
        disk: Disk,
    },
    /// An inline CSI volume: its driver.
    Csi(Box<str>),
}

/// A disk of a kind that was once built in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Disk {
    /// GCE persistent disk.
    Gce(k8s::GceDisk),
    /// AWS elastic block store.
    Ebs(k8s::DiskId),
    /// iSCSI.
    Iscsi(k8s::Iscsi),
    /// Ceph RBD.
    Rbd(k8s::Rbd),
    /// Azure disk.
    Azure(k8s::AzureDisk),
    /// OpenStack Cinder.
    Cinder(k8s::DiskId),
    /// Portworx.
    Portworx(k8s::DiskId),
}

impl Disk {
    /// Whether two pods on one node may not both use them as they want to.
    #[must_use]
    pub fn conflicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Gce(a), Self::Gce(b)) => a.pd_name == b.pd_name && !(a.read_only && b.read_only),
            (Self::Ebs(a), Self::Ebs(b)) => a.volume_id == b.volume_id,
            (Self::Iscsi(a), Self::Iscsi(b)) => a.iqn == b.iqn && !(a.read_only && b.read_only),
            (Self::Rbd(a), Self::Rbd(b)) => {
                a.monitors.iter().any(|m| b.monitors.contains(m))
                    && a.pool == b.pool
                    && a.image == b.image
                    && !(a.read_only && b.read_only)
            }
            _ => false,
        }
    }

    /// Whether [`Disk::conflicts`] can ever be true of it.
    #[must_use]
    pub const fn is_restricted(&self) -> bool {
        matches!(self, Self::Gce(_) | Self::Ebs(_) | Self::Iscsi(_) | Self::Rbd(_))
    }
}

impl PodVolumes {
    /// Names of the claims that the pod names itself.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.list.iter().filter_map(|v| match v {
            PodVolume::Claim(name) => Some(&**name),
            _ => None,
        })
    }

    /// Names of all claims, those made for the pod too; true for the latter.
    pub fn all_claims(&self) -> impl Iterator<Item = (&str, bool)> {
        self.list.iter().filter_map(|v| match v {
            PodVolume::Claim(name) => Some((&**name, false)),
            PodVolume::Ephemeral(name) => Some((&**name, true)),
            _ => None,
        })
    }

    /// Disks named in the pod itself.
    pub fn disks(&self) -> impl Iterator<Item = &Disk> {
        self.list.iter().filter_map(|v| match v {
            PodVolume::Inline { disk, .. } => Some(disk),
            _ => None,
        })
    }

    /// Whether verdicts depend on other objects: claims, drivers.
    #[must_use]
    pub fn reads_objects(&self) -> bool {
        self.list.iter().any(|v| !matches!(v, PodVolume::Csi(_)))
    }
}

/// The volumes of a pod; `None` if no plugin reads any of them.
pub(super) fn compile_volumes(pod: &k8s::Pod) -> Option<Box<PodVolumes>> {
    let meta = &pod.metadata;
    let list: Box<[PodVolume]> =
        pod.spec.volumes.iter().flat_map(|v| compile_volume(v, &meta.name)).collect();
    if list.is_empty() {
        return None;
    }
    let owned = list.iter().any(|v| matches!(v, PodVolume::Ephemeral(_)));
    Some(Box::new(PodVolumes {
        namespace: meta.namespace.as_str().into(),
        owner: owned.then(|| (meta.name.as_str().into(), meta.uid.as_str().into())),
        list,
    }))
}

/// A volume has one source in life; the API server sees to it. A claim beats
/// the others, as it does in every plugin of upstream.
fn compile_volume(volume: &k8s::Volume, pod: &str) -> Vec<PodVolume> {
    let name = volume.name.as_str();
    let mut out: Vec<PodVolume> = Vec::new();
    if let Some(claim) = &volume.persistent_volume_claim {
        out.push(PodVolume::Claim(claim.claim_name.as_str().into()));
    } else if volume.ephemeral.is_some() {
        out.push(PodVolume::Ephemeral(format!("{pod}-{name}").into()));
    }
    let disks = [
        volume.gce_persistent_disk.clone().map(Disk::Gce),
        volume.aws_elastic_block_store.clone().map(Disk::Ebs),
        volume.iscsi.clone().map(Disk::Iscsi),
        volume.rbd.clone().map(Disk::Rbd),
        volume.azure_disk.clone().map(Disk::Azure),
        volume.cinder.clone().map(Disk::Cinder),
        volume.portworx_volume.clone().map(Disk::Portworx),
    ];
    let inline = disks.into_iter().flatten();
    out.extend(inline.map(|disk| PodVolume::Inline { name: name.into(), disk }));
    out.extend(volume.csi.as_ref().map(|csi| PodVolume::Csi(csi.driver.as_str().into())));
    out
}
