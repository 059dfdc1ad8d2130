//! From a chosen node to bound claims: what to take, what to write, and when
//! the volume controller is done.

use muster_api::k8s::{self, annotations};

use super::find::{find, reaches_migrated};
use super::{check_claims, is_bound, sort_claims};
use crate::cluster::{VolumePlan, claim_key};
use crate::framework::{Placed, Status, Step};
use crate::io::{ObjectKey, ObjectPatch, Request};

/// What the placement takes; `None` if all claims are bound.
pub(super) fn plan(placed: &Placed<'_>) -> Result<Option<VolumePlan>, Status> {
    let cluster = placed.node.cluster();
    let Some(pod) = &placed.shape.volumes else {
        return Ok(None);
    };
    if !check_claims(pod, cluster).map_err(Status::error)? {
        return Ok(None);
    }
    let claims = sort_claims(pod, cluster).map_err(Status::error)?;
    let Some(claims) = claims.filter(|c| !c.delayed.is_empty()) else {
        return Ok(None);
    };
    let found = find(&claims, placed.node)?;
    Ok(Some(VolumePlan {
        node: placed.node.info().name.clone(),
        bindings: found.bindings,
        provisions: found.provisions.into_iter().map(|(claim, _)| claim).collect(),
        written: Default::default(),
    }))
}

fn key_of(meta: &k8s::ObjectMeta) -> ObjectKey {
    ObjectKey { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
}

/// Asks for the writes that the volume controller goes on from.
pub(super) fn write(placed: &Placed<'_>) -> Step {
    let objects = placed.node.cluster().volumes();
    let Some(plan) = objects.plan(placed.id) else {
        return Step::Skip;
    };
    let volumes = plan.bindings.iter().map(|binding| {
        let (volume, claim) = (&binding.volume.object.metadata, &binding.claim.metadata);
        ObjectPatch::BindVolume {
            volume: volume.name.as_str().into(),
            version: volume.resource_version.as_str().into(),
            claim: key_of(claim),
            claim_version: claim.resource_version.as_str().into(),
            by_controller: !binding.is_reserved()
                && !volume.annotations.contains_key(annotations::BOUND_BY_CONTROLLER),
        }
    });
    let claims = plan.provisions.iter().map(|claim| ObjectPatch::SelectNode {
        claim: key_of(&claim.metadata),
        version: claim.metadata.resource_version.as_str().into(),
        node: plan.node.clone(),
    });
    Step::Park { request: Request::Write(volumes.chain(claims).collect()) }
}

/// Whether the API shows all that was written and the volume controller has
/// bound every claim. An error if it never will.
pub(super) fn is_settled(placed: &Placed<'_>) -> Result<bool, Status> {
    let cluster = placed.node.cluster();
    let Some(plan) = cluster.volumes().plan(placed.id) else {
        return Ok(true);
    };
    let settled = if cluster.nodes().contains(placed.node.id()) {
        check(plan, placed)
    } else {
        let node = &plan.node;
        Err(format!("failed to get node {node:?}: node {node:?} not found"))
    };
    settled.map_err(|error| Status::error(format!("binding volumes: {error}")))
}

fn check(plan: &VolumePlan, placed: &Placed<'_>) -> Result<bool, String> {
    let objects = placed.node.cluster().volumes();
    let node = &plan.node;
    let reachable = |name: &str| -> Result<bool, String> {
        let Some(volume) = objects.volume(name) else {
            return Ok(false);
        };
        if !reaches_migrated(volume, objects, placed.node)? {
            return Err(format!(
                "pv {name:?} node affinity doesn't match node {node:?}: no matching \
                 NodeSelectorTerms"
            ));
        }
        Ok(true)
    };
    let missing = |key: &str| format!("failed to check binding: {key:?} not found");
    for binding in &plan.bindings {
        let name = &binding.volume.object.metadata.name;
        let volume = objects.volume(name).ok_or_else(|| missing(name))?;
        let key = claim_key(&binding.claim.metadata.namespace, &binding.claim.metadata.name);
        let claim = objects.claim(&key).ok_or_else(|| missing(&key))?;
        if is_older(&volume.object.metadata, plan.version_of(name)) {
            return Ok(false);
        }
        reachable(name)?;
        if volume.object.spec.claim_ref.as_ref().is_none_or(|r| r.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv {name:?}"));
        }
        if !is_bound(claim) {
            return Ok(false);
        }
    }
    for claim in &plan.provisions {
        let key = claim_key(&claim.metadata.namespace, &claim.metadata.name);
        let shown = objects.claim(&key);
        let shown =
            shown.ok_or_else(|| format!("failed to check provisioning pvc: {key:?} not found"))?;
        if is_older(&shown.metadata, plan.version_of(&key)) {
            return Ok(false);
        }
        let selected = shown.metadata.annotations.get(annotations::SELECTED_NODE);
        if selected.is_none_or(|s| **s != **node) {
            return Err(format!("provisioning failed for PVC {:?}", claim.metadata.name));
        }
        let volume = &shown.spec.volume_name;
        if !volume.is_empty() && !reachable(volume)? || !is_bound(shown) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the watch has yet to show what was written. Versions of one object
/// can be compared as numbers; what is no number is taken as current.
fn is_older(shown: &k8s::ObjectMeta, written: Option<&str>) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    written
        .and_then(number)
        .zip(number(&shown.resource_version))
        .is_some_and(|(written, shown)| shown < written)
}
