//! Which events may let a pod's claims be bound.

use super::super::{about_own_claim, object};
use super::find::volume_limit;
use crate::cluster::Kept;
use crate::framework::HintCx;
use crate::model::PodVolume;
use muster_api::k8s::annotations::MIGRATED_PLUGINS;

pub(super) fn helps(cx: &HintCx<'_>) -> bool {
    let own = cx.shape.volumes.as_deref();
    match object(cx.event) {
        (_, Some(Kept::Claim(_))) => about_own_claim(cx.event, own, true),
        (Some(Kept::Class(before)), Some(Kept::Class(after))) => {
            before.allowed_topologies != after.allowed_topologies
        }
        (Some(Kept::CsiNode(before)), Some(Kept::CsiNode(after))) => {
            let list = |n: &muster_api::k8s::CSINode| {
                n.metadata.annotations.get(MIGRATED_PLUGINS).cloned().unwrap_or_default()
            };
            list(before) != list(after)
        }
        (Some(Kept::Driver(before)), Some(Kept::Driver(after))) => {
            let uses = |v: &PodVolume| matches!(v, PodVolume::Csi(driver) if **driver == *after.metadata.name);
            before.spec.storage_capacity == Some(true)
                && after.spec.storage_capacity != Some(true)
                && own.is_some_and(|own| own.list.iter().any(uses))
        }
        (Some(Kept::Capacity(before)), Some(Kept::Capacity(after))) => {
            match (volume_limit(before), volume_limit(after)) {
                (Some(old), Some(new)) => new.value() > old.value(),
                (old, new) => old.is_none() && new.is_some(),
            }
        }
        _ => true,
    }
}
