//! Which volumes a node offers to a pod's claims.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::k8s::{self, Quantity, annotations};

use super::super::{Claim, selector};
use super::Claims;
use crate::cluster::{
    NodeView, Volume, VolumeBindingPlan, Volumes, claim_class, claim_key, is_bound_to,
};
use crate::framework::{Code, Status};
use crate::model::{NodeMatcher, NodeTerms};

const NODE_CONFLICT: &str = "node(s) didn't match PersistentVolume's node affinity";
const BIND_CONFLICT: &str = "node(s) didn't find available persistent volumes to bind";
const NOT_ENOUGH_SPACE: &str = "node(s) did not have enough free storage";
const VOLUME_GONE: &str =
    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What a node offers.
#[derive(Default)]
pub(super) struct Found {
    pub(super) bindings: Vec<VolumeBindingPlan>,
    /// Claims to make volumes for, and the room that was found for them.
    pub(super) provisions: Vec<(Claim, Option<Arc<k8s::CSIStorageCapacity>>)>,
}

/// What stands against a node, in the order in which it is said.
#[derive(Default)]
struct Conflicts {
    node: bool,
    bind: bool,
    space: bool,
    gone: bool,
}

impl Conflicts {
    fn status(&self) -> Result<(), Status> {
        let all = [
            (self.node, NODE_CONFLICT),
            (self.bind, BIND_CONFLICT),
            (self.space, NOT_ENOUGH_SPACE),
            (self.gone, VOLUME_GONE),
        ];
        let reasons: Vec<Arc<str>> =
            all.iter().filter(|(said, _)| *said).map(|(_, text)| (*text).into()).collect();
        if reasons.is_empty() {
            return Ok(());
        }
        Err(Status { code: Code::UnschedulableAndUnresolvable, reasons })
    }
}

/// Storage a claim asks for.
pub(super) fn requested(claim: &k8s::PersistentVolumeClaim) -> Quantity {
    claim.spec.resources.requests.get("storage").copied().unwrap_or_default()
}

/// Storage a volume has.
pub(super) fn capacity(volume: &k8s::PersistentVolume) -> Quantity {
    volume.spec.capacity.get("storage").copied().unwrap_or_default()
}

/// Looks for a volume for every claim. The status says why there is none.
pub(super) fn find(claims: &Claims, node: NodeView<'_>) -> Result<Found, Status> {
    let mut conflicts = Conflicts::default();
    check_bound(claims, node, &mut conflicts).map_err(Status::error)?;
    let mut found = Found::default();
    let name = &*node.info().name;
    let selected = |c: &Claim| c.metadata.annotations.get(annotations::SELECTED_NODE).cloned();
    let (chosen, mut open): (Vec<Claim>, Vec<Claim>) =
        claims.delayed.iter().cloned().partition(|c| selected(c).is_some());
    if chosen.iter().any(|c| selected(c).as_deref() != Some(name)) {
        conflicts.bind = true;
        conflicts.status()?;
    }
    // Smallest first, so that small claims do not take large volumes.
    open.sort_by_key(|c| requested(c));
    let mut provide = chosen;
    let mut taken = BTreeSet::new();
    for claim in open {
        let volumes = claims.volumes.get(claim_class(&claim)).map_or(&[][..], Vec::as_slice);
        match matching(&claim, volumes, node, &taken).map_err(Status::error)? {
            Some(volume) => {
                taken.insert(volume.object.metadata.name.clone());
                found.bindings.push(VolumeBindingPlan { claim, volume: Arc::clone(volume) });
            }
            None => provide.push(claim),
        }
    }
    for claim in provide {
        let room = room_for(&claim, node, &mut conflicts).map_err(Status::error)?;
        if conflicts.bind || conflicts.space {
            break;
        }
        found.provisions.push((claim, room));
    }
    conflicts.status()?;
    Ok(found)
}

/// Whether the volume can be reached from the node.
fn reaches(terms: Option<&NodeTerms>, node: NodeView<'_>) -> bool {
    terms.is_none_or(|t| t.matches(&node.labels()))
}

/// As `reaches`, for the CSI volume that a built-in one has become on the node.
pub(super) fn reaches_migrated(
    volume: &Volume,
    objects: &Volumes,
    node: NodeView<'_>,
) -> Result<bool, String> {
    let csi_node = objects.csi_node(&node.info().name);
    let list = csi_node.and_then(|n| n.metadata.annotations.get(annotations::MIGRATED_PLUGINS));
    let migrated = volume.migrated.as_ref().filter(|m| {
        list.is_some_and(|list| list.split(',').any(|plugin| plugin == m.plugin.plugin()))
    });
    match migrated.map(|m| &m.csi) {
        None => Ok(reaches(volume.terms.as_ref(), node)),
        Some(Ok((_, terms))) => Ok(reaches(terms.as_ref(), node)),
        Some(Err(error)) => Err(format!("could not translate pv: {error}")),
    }
}

fn check_bound(
    claims: &Claims,
    node: NodeView<'_>,
    conflicts: &mut Conflicts,
) -> Result<(), String> {
    let objects = node.cluster().volumes();
    for claim in &claims.bound {
        let Some(volume) = objects.assumed_volume(&claim.spec.volume_name) else {
            conflicts.gone = true;
            return Ok(());
        };
        if !reaches_migrated(volume, objects, node)? {
            conflicts.node = true;
            return Ok(());
        }
    }
    Ok(())
}

/// Upstream's `FindMatchingVolume`: the volume reserved for the claim, else the
/// smallest that will do. Equal sizes go by name; upstream takes any.
fn matching<'a>(
    claim: &Claim,
    volumes: &'a [Arc<Volume>],
    node: NodeView<'_>,
    taken: &BTreeSet<String>,
) -> Result<Option<&'a Arc<Volume>>, String> {
    if let Some(wanted) = &claim.spec.selector {
        selector::check(wanted).map_err(|error| {
            let key = claim_key(&claim.metadata.namespace, &claim.metadata.name);
            format!("error creating internal label selector for claim: {key}: {error}")
        })?;
    }
    let mut smallest: Option<(Quantity, &Arc<Volume>)> = None;
    for volume in volumes {
        let object = &volume.object;
        let reserved = is_bound_to(object, claim);
        if taken.contains(&object.metadata.name)
            || object.spec.claim_ref.is_some() && !reserved
            || !could_hold(object, claim)
        {
            continue;
        }
        let reachable = reaches(volume.terms.as_ref(), node);
        if reserved {
            return Ok(reachable.then_some(volume));
        }
        let size = capacity(object);
        let fits = reachable && is_free_for(volume, claim);
        if fits && smallest.as_ref().is_none_or(|(least, _)| size.cmp(least) == Ordering::Less) {
            smallest = Some((size, volume));
        }
    }
    Ok(smallest.map(|(_, volume)| volume))
}

/// What must hold even of a volume reserved for the claim.
fn could_hold(volume: &k8s::PersistentVolume, claim: &Claim) -> bool {
    let mode = |m: &Option<String>| m.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let attributes = |c: &Option<String>| c.clone().unwrap_or_default();
    capacity(volume) >= requested(claim)
        && mode(&volume.spec.volume_mode) == mode(&claim.spec.volume_mode)
        && attributes(&volume.spec.volume_attributes_class_name)
            == attributes(&claim.spec.volume_attributes_class_name)
        && volume.metadata.deletion_timestamp.is_none()
}

/// What must hold of a volume that nobody reserved.
fn is_free_for(volume: &Volume, claim: &Claim) -> bool {
    let object = &volume.object;
    let label = |key: &str| object.metadata.labels.get(key).map(String::as_str);
    object.status.phase == "Available"
        && claim.spec.selector.as_ref().is_none_or(|s| selector::matches(s, label))
        && volume.class() == claim_class(claim)
        && claim.spec.access_modes.iter().all(|mode| object.spec.access_modes.contains(mode))
}

/// Whether a volume can be made for a claim where the node can reach it, and
/// what the driver says of its room.
fn room_for(
    claim: &Claim,
    node: NodeView<'_>,
    conflicts: &mut Conflicts,
) -> Result<Option<Arc<k8s::CSIStorageCapacity>>, String> {
    let objects = node.cluster().volumes();
    let name = claim_class(claim);
    if name.is_empty() {
        let key = claim_key(&claim.metadata.namespace, &claim.metadata.name);
        return Err(format!("no class for claim {key:?}"));
    }
    let class = objects.class(name);
    let class = class.ok_or_else(|| format!("failed to find storage class {name:?}"))?;
    let labels = node.labels();
    if class.provisioner.is_empty()
        || class.provisioner == NO_PROVISIONER
        || !selector::matches_topology(&class.allowed_topologies, |key| labels.label(key))
    {
        conflicts.bind = true;
        return Ok(None);
    }
    let Some(size) = claim.spec.resources.requests.get("storage") else {
        return Ok(None);
    };
    let driver = objects.driver(&class.provisioner);
    if driver.is_none_or(|d| d.spec.storage_capacity != Some(true)) {
        return Ok(None);
    }
    let enough = |c: &&Arc<k8s::CSIStorageCapacity>| {
        c.storage_class_name == class.metadata.name
            && volume_limit(c).is_some_and(|limit| limit.value() >= size.value())
            && c.node_topology.as_ref().is_some_and(|s| {
                selector::check(s).is_ok() && selector::matches(s, |key| labels.label(key))
            })
    };
    let found = objects.capacities().find(enough);
    conflicts.space |= found.is_none();
    Ok(found.cloned())
}

/// The largest volume that can be made.
pub(super) fn volume_limit(capacity: &k8s::CSIStorageCapacity) -> Option<Quantity> {
    capacity.maximum_volume_size.or(capacity.capacity)
}
