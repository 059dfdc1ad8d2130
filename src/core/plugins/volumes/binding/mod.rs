//! VolumeBinding: claims get volumes that the node can reach, and the node is
//! chosen so that they can.
//!
//! Owns the match of claims and volumes (`find`), the score of what is left
//! free (`score`) and the way from a chosen node to bound claims (`commit`).
//! What a placement takes is held by the cluster, not here.

mod commit;
mod find;
mod hints;
mod score;

use muster_api::k8s::{self, annotations};

use super::{Claim, check_owner, find_claim, stamp};
use crate::cluster::{Cluster, NodeView, Volume, VolumePlan, claim_class, claim_key};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Placed, Plugin, PreBind, PreFilter, PreFilterResult,
    Registration, RegistryError, Reserve, Resource, Score, State, Status, Step,
};
use crate::model::{PodShape, PodVolumes};
use crate::plugins::{ShapePoint, names};

use std::collections::BTreeMap;
use std::sync::Arc;

/// Arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeBindingArgs {
    /// Seconds to wait for claims to be bound.
    pub bind_timeout_seconds: i64,
    /// How full storage is rated; empty is 0% → 10, 100% → 0.
    pub shape: Vec<ShapePoint>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        Self { bind_timeout_seconds: 600, shape: Vec::new() }
    }
}

/// Binds volumes.
pub struct VolumeBinding {
    bind_timeout_seconds: i64,
    shape: Vec<ShapePoint>,
}

impl VolumeBinding {
    /// Checks the arguments.
    pub fn new(args: &VolumeBindingArgs) -> Result<Self, RegistryError> {
        let wrong = |field: &str, problem: String| RegistryError::Args {
            plugin: names::VOLUME_BINDING,
            field: field.to_owned(),
            problem,
        };
        if args.bind_timeout_seconds < 0 {
            let problem = format!(
                "Invalid value: {}: invalid BindTimeoutSeconds, should not be a negative value",
                args.bind_timeout_seconds
            );
            return Err(wrong("bindTimeoutSeconds", problem));
        }
        let default = [(0, 10), (100, 0)];
        let shape = match args.shape.as_slice() {
            [] => default.map(|(utilization, score)| ShapePoint { utilization, score }).to_vec(),
            given => given.to_vec(),
        };
        score::check_shape(&shape).map_err(|(field, problem)| wrong(&field, problem))?;
        Ok(Self { bind_timeout_seconds: args.bind_timeout_seconds, shape })
    }
}

/// A pod's claims by what is to be done about them.
struct Claims {
    bound: Vec<Claim>,
    /// Without a volume until a pod that uses them has a node.
    delayed: Vec<Claim>,
    /// Volumes of the classes of `delayed`.
    volumes: BTreeMap<String, Vec<Arc<Volume>>>,
}

/// Whether the volume controller has finished with a claim.
fn is_bound(claim: &k8s::PersistentVolumeClaim) -> bool {
    !claim.spec.volume_name.is_empty()
        && claim.metadata.annotations.contains_key(annotations::BIND_COMPLETED)
}

/// Claims that cannot be used whatever the node; `None` if there are none at all.
fn check_claims(pod: &PodVolumes, cluster: &Cluster) -> Result<bool, String> {
    let objects = cluster.volumes();
    let mut any = false;
    for (name, made) in pod.all_claims() {
        any = true;
        let claim = find_claim(objects, pod, name).map_err(|error| {
            if made {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \
                     {name:?}"
                )
            } else {
                error
            }
        })?;
        if claim.status.phase == "Lost" {
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
                claim.spec.volume_name
            ));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if made {
            check_owner(pod, claim)?;
        }
    }
    Ok(any)
}

/// Sorts a pod's claims; `None` if one should be bound by now and is not.
fn sort_claims(pod: &PodVolumes, cluster: &Cluster) -> Result<Option<Claims>, String> {
    let objects = cluster.volumes();
    let mut claims = Claims { bound: vec![], delayed: vec![], volumes: BTreeMap::new() };
    let mut late = false;
    for (name, _) in pod.all_claims() {
        let Some(claim) = objects.assumed_claim(&claim_key(&pod.namespace, name)) else {
            continue;
        };
        if is_bound(claim) {
            claims.bound.push(Arc::clone(claim));
            continue;
        }
        let class = claim_class(claim);
        let mode = objects.class(class).map(|c| c.volume_binding_mode.as_deref());
        if mode == Some(None) {
            return Err(format!("VolumeBindingMode not set for StorageClass {class:?}"));
        }
        if mode == Some(Some("WaitForFirstConsumer")) && claim.spec.volume_name.is_empty() {
            let volumes = || objects.volumes_of_class(class).map(Arc::clone).collect();
            claims.volumes.entry(class.to_owned()).or_insert_with(volumes);
            claims.delayed.push(Arc::clone(claim));
        } else {
            late = true;
        }
    }
    Ok((!late).then_some(claims))
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        names::VOLUME_BINDING
    }

    fn events(&self) -> Vec<Registration> {
        let changed = Actions::ADD | Actions::UPDATE;
        vec![
            Registration { resource: Resource::StorageClass, actions: changed },
            Registration { resource: Resource::PersistentVolumeClaim, actions: changed },
            Registration { resource: Resource::PersistentVolume, actions: changed },
            Registration {
                resource: Resource::Node,
                actions: Actions::ADD | Actions::UPDATE_NODE_LABEL,
            },
            Registration { resource: Resource::CsiNode, actions: changed },
            Registration { resource: Resource::CsiDriver, actions: Actions::UPDATE },
            Registration { resource: Resource::CsiStorageCapacity, actions: changed },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        if hints::helps(cx) { Hint::Queue } else { Hint::Skip }
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

    fn as_score(&self) -> Option<&dyn Score> {
        Some(self)
    }

    fn as_reserve(&self) -> Option<&dyn Reserve> {
        Some(self)
    }

    fn as_pre_bind(&self) -> Option<&dyn PreBind> {
        Some(self)
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, shape: &PodShape, cluster: &Cluster) -> PreFilterResult {
        let Some(pod) = &shape.volumes else {
            return PreFilterResult::Skip;
        };
        match check_claims(pod, cluster) {
            Err(reason) => return PreFilterResult::Reject(Status::unresolvable(reason)),
            Ok(false) => return PreFilterResult::Skip,
            Ok(true) => {}
        }
        match sort_claims(pod, cluster) {
            Err(error) => PreFilterResult::Reject(Status::error(error)),
            Ok(None) => PreFilterResult::Reject(Status::unresolvable(
                "pod has unbound immediate PersistentVolumeClaims",
            )),
            Ok(Some(claims)) => PreFilterResult::Go { state: Some(Box::new(claims)), nodes: None },
        }
    }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &State, _: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        match state.as_ref().and_then(|s| s.downcast_ref::<Claims>()) {
            Some(claims) => find::find(claims, node).map(drop),
            None => Ok(()),
        }
    }
}

impl Reserve for VolumeBinding {
    fn reserve(&self, _: &Placed<'_>) -> Result<(), Status> {
        Ok(())
    }

    fn unreserve(&self, _: &Placed<'_>) {}

    fn volumes(&self, placed: &Placed<'_>) -> Result<Option<VolumePlan>, Status> {
        commit::plan(placed)
    }
}

impl PreBind for VolumeBinding {
    fn pre_bind(&self, placed: &Placed<'_>) -> Step {
        commit::write(placed)
    }

    fn settled(&self, placed: &Placed<'_>) -> Result<bool, Status> {
        commit::is_settled(placed)
    }

    fn patience(&self) -> (i64, Status) {
        let status = Status::error("binding volumes: context deadline exceeded");
        (self.bind_timeout_seconds, status)
    }
}
