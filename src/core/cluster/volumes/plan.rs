//! What a placement takes of volumes, from the decision to the write.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::k8s::{self, annotations};

use super::{Volume, Volumes, claim_key};
use crate::model::PodId;

/// What a placement takes of volumes.
#[derive(Clone, Debug, Default)]
pub struct VolumePlan {
    /// The node's name.
    pub node: Arc<str>,
    /// Existing volumes for claims.
    pub bindings: Vec<VolumeBindingPlan>,
    /// Claims whose volumes shall be made for the node.
    pub provisions: Vec<Arc<k8s::PersistentVolumeClaim>>,
    /// Versions that our writes made, by name of volume and claim.
    pub written: BTreeMap<Box<str>, Box<str>>,
}

/// An existing volume for a claim.
#[derive(Clone, Debug)]
pub struct VolumeBindingPlan {
    /// The claim.
    pub claim: Arc<k8s::PersistentVolumeClaim>,
    /// The volume, as it was found.
    pub volume: Arc<Volume>,
}

impl VolumePlan {
    /// The version that our write of an object made.
    #[must_use]
    pub fn version_of(&self, object: &str) -> Option<&str> {
        self.written.get(object).map(|v| &**v)
    }
}

impl VolumeBindingPlan {
    /// Whether the volume names the claim already, by an administrator's hand
    /// or ours.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        is_bound_to(&self.volume.object, &self.claim)
    }
}

/// Upstream's `IsVolumeBoundToClaim`.
pub(crate) fn is_bound_to(
    volume: &k8s::PersistentVolume,
    claim: &k8s::PersistentVolumeClaim,
) -> bool {
    volume.spec.claim_ref.as_ref().is_some_and(|r| {
        r.name == claim.metadata.name
            && r.namespace == claim.metadata.namespace
            && (r.uid.is_empty() || r.uid == claim.metadata.uid)
    })
}

fn is(claim: &k8s::PersistentVolumeClaim, key: &str) -> bool {
    let meta = &claim.metadata;
    key.split_once('/') == Some((&meta.namespace, &meta.name))
}

fn key_of(claim: &k8s::PersistentVolumeClaim) -> String {
    claim_key(&claim.metadata.namespace, &claim.metadata.name)
}

impl Volumes {
    /// What a pod on its way to a node takes.
    #[must_use]
    pub fn plan(&self, pod: PodId) -> Option<&VolumePlan> {
        self.plans.get(&pod)
    }

    /// Pods whose plans name a volume, or a claim by `namespace/name`.
    pub(crate) fn waiting_for(&self, key: &str) -> impl Iterator<Item = PodId> {
        let names = move |plan: &VolumePlan| {
            plan.bindings.iter().any(|b| b.volume.object.metadata.name == key || is(&b.claim, key))
                || plan.provisions.iter().any(|c| is(c, key))
        };
        self.plans.iter().filter(move |(_, plan)| names(plan)).map(|(pod, _)| *pod)
    }

    /// Counts what a placement takes as taken. An error names an object that has
    /// changed since; nothing is taken then.
    pub(crate) fn assume(&mut self, pod: PodId, plan: VolumePlan) -> Result<(), String> {
        for binding in &plan.bindings {
            let meta = &binding.volume.object.metadata;
            let shown = self.volumes.get(&meta.name).map(|v| &v.object.metadata);
            in_sync(&meta.name, "persistentvolumes", shown, meta)?;
        }
        for claim in &plan.provisions {
            let shown = self.claims.get(&key_of(claim)).map(|c| &c.metadata);
            in_sync(&key_of(claim), "persistentvolumeclaims", shown, &claim.metadata)?;
        }
        for binding in &plan.bindings {
            if let Some(bound) = bound_volume(binding) {
                let name = bound.object.metadata.name.as_str().into();
                self.assumed_volumes.insert(name, Arc::new(bound));
            }
        }
        for claim in &plan.provisions {
            let mut selected = (**claim).clone();
            let selected_node = annotations::SELECTED_NODE.to_owned();
            selected.metadata.annotations.insert(selected_node, plan.node.to_string());
            self.assumed_claims.insert(key_of(claim).into(), Arc::new(selected));
        }
        self.plans.insert(pod, plan);
        self.generation += 1;
        Ok(())
    }

    /// The pod is not placed after all: what it took is free again, except what
    /// was written already (the watch will show it) and what others took too.
    pub(crate) fn revert(&mut self, pod: PodId) {
        let Some(plan) = self.plans.remove(&pod) else {
            return;
        };
        for binding in &plan.bindings {
            let meta = &binding.volume.object.metadata;
            let shared = self.plans.values().flat_map(|p| &p.bindings);
            let shared = shared.into_iter().any(|b| b.volume.object.metadata.name == meta.name);
            let ours =
                |a: &Arc<Volume>| a.object.metadata.resource_version == meta.resource_version;
            if !shared
                && !plan.written.contains_key(meta.name.as_str())
                && self.assumed_volumes.get(meta.name.as_str()).is_some_and(ours)
            {
                self.assumed_volumes.remove(meta.name.as_str());
            }
        }
        for claim in &plan.provisions {
            let key = key_of(claim);
            let shared = self.plans.values().flat_map(|p| &p.provisions);
            let shared = shared.into_iter().any(|c| key_of(c) == key);
            let version = &claim.metadata.resource_version;
            let ours =
                |a: &Arc<k8s::PersistentVolumeClaim>| a.metadata.resource_version == *version;
            if !shared
                && !plan.written.contains_key(key.as_str())
                && self.assumed_claims.get(key.as_str()).is_some_and(ours)
            {
                self.assumed_claims.remove(key.as_str());
            }
        }
        self.generation += 1;
    }

    /// The pod is bound: the watch shows, or will show, what it took.
    pub(crate) fn settle(&mut self, pod: PodId) {
        self.plans.remove(&pod);
    }

    /// Remembers the versions that our writes made.
    pub(crate) fn written(&mut self, pod: PodId, versions: BTreeMap<Box<str>, Box<str>>) {
        if let Some(plan) = self.plans.get_mut(&pod) {
            plan.written = versions;
        }
    }
}

fn in_sync(
    key: &str,
    resource: &str,
    shown: Option<&k8s::ObjectMeta>,
    ours: &k8s::ObjectMeta,
) -> Result<(), String> {
    let Some(shown) = shown else {
        return Err(format!("{resource} {key:?} not found"));
    };
    if shown.resource_version != ours.resource_version {
        return Err(format!(
            "{key:?} is out of sync (stored: {}, assume: {})",
            shown.resource_version, ours.resource_version
        ));
    }
    Ok(())
}

/// The volume bound to the claim; `None` if it is already.
fn bound_volume(binding: &VolumeBindingPlan) -> Option<Volume> {
    let (volume, claim) = (&binding.volume, &binding.claim.metadata);
    let wanted = k8s::ClaimRef {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
    };
    let annotation = annotations::BOUND_BY_CONTROLLER;
    let annotate =
        !binding.is_reserved() && !volume.object.metadata.annotations.contains_key(annotation);
    if volume.object.spec.claim_ref.as_ref() == Some(&wanted) && !annotate {
        return None;
    }
    let mut bound = (**volume).clone();
    bound.object.spec.claim_ref = Some(wanted);
    if annotate {
        bound.object.metadata.annotations.insert(annotation.to_owned(), "yes".to_owned());
    }
    Some(bound)
}
