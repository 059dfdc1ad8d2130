//! VolumeZone: volumes with zone labels are used in their zones.

use std::collections::BTreeSet;

use super::{about_own_claim, find_claim, not_found, object, stamp};
use crate::cluster::{Cluster, Kept, NodeView, Volume, claim_class};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult, Registration, Resource,
    State, Status,
};
use crate::model::{NodeMatcher, PodShape, PodVolumes};
use crate::plugins::names;

const REASON: &str = "node(s) had no available volume zone";

/// Labels of zones and regions, each with the one that replaced it.
const LABELS: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// Honours the zones of volumes.
pub struct VolumeZone;

/// A label that a volume has: its key, what replaced it, and the values.
type Topology = (&'static str, &'static str, BTreeSet<Box<str>>);

/// The zones and regions of a volume. A list with an empty item is ignored.
fn topologies(volume: &Volume) -> impl Iterator<Item = Topology> {
    LABELS.iter().filter_map(|&(key, newer)| {
        let label = volume.object.metadata.labels.get(key)?;
        let values: Vec<&str> = label.split("__").map(str::trim).collect();
        (!values.contains(&"")).then(|| (key, newer, values.into_iter().map(Into::into).collect()))
    })
}

fn of_pod(volumes: &PodVolumes, cluster: &Cluster) -> Result<Vec<Topology>, String> {
    let objects = cluster.volumes();
    let mut all = Vec::new();
    for name in volumes.claims() {
        if name.is_empty() {
            return Err("PersistentVolumeClaim had no name".to_owned());
        }
        let claim = find_claim(objects, volumes, name)?;
        let volume = claim.spec.volume_name.as_str();
        if volume.is_empty() {
            let class = claim_class(claim);
            if class.is_empty() {
                return Err("PersistentVolumeClaim had no pv name and storageClass name".to_owned());
            }
            let found = objects.class(class);
            let found = found.ok_or_else(|| not_found("storageclass.storage.k8s.io", class))?;
            match found.volume_binding_mode.as_deref() {
                None => {
                    return Err(format!("VolumeBindingMode not set for StorageClass {class:?}"));
                }
                Some("WaitForFirstConsumer") => continue,
                Some(_) => return Err("PersistentVolume had no name".to_owned()),
            }
        }
        let found = objects.volume(volume);
        let found = found.ok_or_else(|| not_found("persistentvolume", volume))?;
        all.extend(topologies(found));
    }
    Ok(all)
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        names::VOLUME_ZONE
    }

    fn events(&self) -> Vec<Registration> {
        let changed = Actions::ADD | Actions::UPDATE;
        vec![
            Registration { resource: Resource::StorageClass, actions: Actions::ADD },
            Registration {
                resource: Resource::Node,
                actions: Actions::ADD | Actions::UPDATE_NODE_LABEL,
            },
            Registration { resource: Resource::PersistentVolumeClaim, actions: changed },
            Registration { resource: Resource::PersistentVolume, actions: changed },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let helps = match object(cx.event) {
            (_, Some(Kept::Claim(_))) => {
                about_own_claim(cx.event, cx.shape.volumes.as_deref(), false)
            }
            (_, Some(Kept::Class(class))) => {
                class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
            }
            (Some(Kept::Volume(before)), Some(Kept::Volume(after))) => {
                !topologies(before).eq(topologies(after))
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn stamp(&self, shape: &PodShape, cluster: &Cluster) -> u64 {
        stamp(shape, cluster)
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for VolumeZone {
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult {
        let Some(volumes) = &shape.volumes else {
            return PreFilterResult::Skip;
        };
        match of_pod(volumes, cluster) {
            Err(reason) => PreFilterResult::Reject(Status::unresolvable(reason)),
            Ok(all) if all.is_empty() => PreFilterResult::Skip,
            Ok(all) => PreFilterResult::Go { state: Some(Box::new(all)), nodes: None },
        }
    }
}

impl Filter for VolumeZone {
    fn filter(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let labels = node.labels();
        // A cluster of one zone may not label its nodes at all.
        if !LABELS.iter().any(|(key, _)| labels.label(key).is_some()) {
            return Ok(());
        }
        let all = state.as_ref().and_then(|s| s.downcast_ref::<Vec<Topology>>());
        for (key, newer, values) in all.into_iter().flatten() {
            let value = labels.label(key).or_else(|| labels.label(newer));
            if !value.is_some_and(|v| values.contains(v)) {
                return Err(Status::unresolvable(REASON));
            }
        }
        Ok(())
    }
}
