//! VolumeRestrictions: disks that only one pod of a node may use, and claims
//! that only one pod of the cluster may use.

use std::collections::BTreeSet;

use super::{about_own_claim, find_claim, stamp};
use crate::cluster::{Cluster, NodeView, claim_key};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult, Registration, Resource,
    State, Status, Subject,
};
use crate::model::{Disk, Pod, PodShape, PodVolumes};
use crate::plugins::names;

const CONFLICT: &str = "node(s) had no available disk";
const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod \
                      access mode already in-use by another pod";

/// Honours what volumes can be shared.
pub struct VolumeRestrictions;

/// The pod's claims of mode ReadWriteOncePod, and how many of them are in use.
struct InUse {
    claims: BTreeSet<Box<str>>,
    conflicts: i64,
}

impl InUse {
    fn by(&self, pod: Option<&PodVolumes>) -> i64 {
        let names = pod.into_iter().flat_map(PodVolumes::claims);
        names.filter(|name| self.claims.contains(*name)).map(|_| 1).sum()
    }
}

/// Whether any pod on a node that exists names the claim.
fn is_used(cluster: &Cluster, claim: &str) -> bool {
    cluster.volumes().users(claim).iter().any(|pod| {
        let node = cluster.pod(*pod).and_then(|p| p.stage.node());
        node.is_some_and(|node| cluster.nodes().contains(node))
    })
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        names::VOLUME_RESTRICTIONS
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration { resource: Resource::AssignedPod, actions: Actions::DELETE },
            Registration { resource: Resource::Node, actions: Actions::ADD },
            Registration { resource: Resource::PersistentVolumeClaim, actions: Actions::ADD },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let own = cx.shape.volumes.as_deref();
        let helps = match &cx.event.subject {
            Subject::Pod { shape: gone, .. } => {
                own.zip(gone.volumes.as_deref()).is_some_and(|(own, gone)| {
                    own.namespace == gone.namespace
                        && (own.disks().any(|a| gone.disks().any(|b| a.conflicts(b)))
                            || own.claims().any(|a| gone.claims().any(|b| a == b)))
                })
            }
            Subject::Object { .. } => about_own_claim(cx.event, own, false),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }

    fn stamp(&self, shape: &PodShape, cluster: &Cluster) -> u64 {
        let Some(volumes) = &shape.volumes else {
            return 0;
        };
        let used = |name: &&str| is_used(cluster, &claim_key(&volumes.namespace, name));
        let in_use = volumes.claims().filter(used).count() as u64;
        stamp(shape, cluster).rotate_left(16) ^ in_use
    }

    fn as_pre_filter(&self) -> Option<&dyn PreFilter> {
        Some(self)
    }

    fn as_filter(&self) -> Option<&dyn Filter> {
        Some(self)
    }
}

impl PreFilter for VolumeRestrictions {
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult {
        let Some(volumes) = &shape.volumes else {
            return PreFilterResult::Skip;
        };
        let mut state = InUse { claims: BTreeSet::new(), conflicts: 0 };
        for name in volumes.claims() {
            match find_claim(cluster.volumes(), volumes, name) {
                Err(missing) => return PreFilterResult::Reject(Status::unresolvable(missing)),
                Ok(claim) => {
                    if claim.spec.access_modes.iter().any(|m| m == "ReadWriteOncePod") {
                        state.claims.insert(name.into());
                    }
                }
            }
        }
        for name in &state.claims {
            state.conflicts += i64::from(is_used(cluster, &claim_key(&volumes.namespace, name)));
        }
        if state.conflicts == 0 && !volumes.disks().any(Disk::is_restricted) {
            return PreFilterResult::Skip;
        }
        PreFilterResult::Go { state: Some(Box::new(state)), nodes: None }
    }

    fn add_pod(&self, state: &mut State, _: &PodShape, pod: &Pod, node: NodeView<'_>) {
        if let Some(state) = state.as_mut().and_then(|s| s.downcast_mut::<InUse>()) {
            let shape = node.cluster().shape(pod.shape);
            state.conflicts += state.by(shape.volumes.as_deref());
        }
    }

    fn remove_pod(&self, state: &mut State, _: &PodShape, pod: &Pod, node: NodeView<'_>) {
        if let Some(state) = state.as_mut().and_then(|s| s.downcast_mut::<InUse>()) {
            let shape = node.cluster().shape(pod.shape);
            state.conflicts -= state.by(shape.volumes.as_deref());
        }
    }
}

impl Filter for VolumeRestrictions {
    fn filter(&self, state: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let own = shape.volumes.as_deref();
        let restricted = || own.into_iter().flat_map(PodVolumes::disks);
        if restricted().any(Disk::is_restricted) {
            let others = node.pod_volumes().flat_map(PodVolumes::disks);
            if others.into_iter().any(|other| restricted().any(|own| own.conflicts(other))) {
                return Err(Status::unschedulable(CONFLICT));
            }
        }
        let state = state.as_ref().and_then(|s| s.downcast_ref::<InUse>());
        if state.is_some_and(|s| s.conflicts > 0) {
            return Err(Status::unschedulable(IN_USE));
        }
        Ok(())
    }
}
