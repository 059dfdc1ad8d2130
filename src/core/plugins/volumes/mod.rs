//! The volume plugins: what each needs of the others' objects, in one place.

mod binding;
mod limits;
mod restrictions;
mod selector;
mod zone;

pub use binding::{VolumeBinding, VolumeBindingArgs};
pub use limits::NodeVolumeLimits;
pub use restrictions::VolumeRestrictions;
pub use zone::VolumeZone;

use std::sync::Arc;

use muster_api::k8s;

use crate::cluster::{Cluster, Kept, Volumes, claim_key};
use crate::framework::{ClusterEvent, Subject};
use crate::model::{PodShape, PodVolumes};

type Claim = Arc<k8s::PersistentVolumeClaim>;

/// What verdicts on a shape depend on beyond its nodes, if it has volumes.
fn stamp(shape: &PodShape, cluster: &Cluster) -> u64 {
    match &shape.volumes {
        Some(volumes) if volumes.reads_objects() => cluster.volumes().generation().wrapping_add(1),
        _ => 0,
    }
}

/// apimachinery's words for what is not there.
fn not_found(resource: &str, name: &str) -> String {
    format!("{resource} {name:?} not found")
}

/// A claim in the pod's namespace, as the API shows it.
fn find_claim<'a>(objects: &'a Volumes, pod: &PodVolumes, name: &str) -> Result<&'a Claim, String> {
    let found = objects.claim(&claim_key(&pod.namespace, name));
    found.ok_or_else(|| not_found("persistentvolumeclaim", name))
}

/// A claim made for a pod must be owned by it: another pod of that name may
/// have left its own behind.
fn check_owner(pod: &PodVolumes, claim: &k8s::PersistentVolumeClaim) -> Result<(), String> {
    let (name, uid) = pod.owner.as_ref().map_or(("", ""), |(name, uid)| (name, uid));
    let controller = claim.metadata.owner_references.iter().find(|o| o.controller);
    if controller.is_some_and(|o| o.uid == uid) {
        return Ok(());
    }
    let (namespace, claim) = (&pod.namespace, &claim.metadata.name);
    Err(format!(
        "PVC {namespace}/{claim} was not created for pod {namespace}/{name} (pod is not owner)"
    ))
}

/// The object of an event, before and after.
fn object(event: &ClusterEvent) -> (Option<&Kept>, Option<&Kept>) {
    match &event.subject {
        Subject::Object { before, after } => (before.as_ref(), after.as_ref()),
        _ => (None, None),
    }
}

/// Whether an event is about a claim of the pod; of those made for it only if
/// `ephemeral`.
fn about_own_claim(event: &ClusterEvent, pod: Option<&PodVolumes>, ephemeral: bool) -> bool {
    let (_, Some(Kept::Claim(claim))) = object(event) else {
        return false;
    };
    pod.is_some_and(|pod| {
        *pod.namespace == *claim.metadata.namespace
            && pod
                .all_claims()
                .any(|(name, made)| name == claim.metadata.name && (ephemeral || !made))
    })
}
