//! NodeVolumeLimits: no more volumes of a CSI driver than the node can attach.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;

use super::{about_own_claim, check_owner, find_claim, object, stamp};
use crate::cluster::{Cluster, Kept, NodeView, Volumes, claim_class, claim_key};
use crate::framework::{
    Actions, Filter, Hint, HintCx, Plugin, PreFilter, PreFilterResult, Registration, Resource,
    State, Status, Subject,
};
use crate::model::{PodShape, PodVolume, PodVolumes, Provisioner};
use crate::plugins::names;

const REASON: &str = "node(s) exceed max volume count";

/// Honours the limits of CSI drivers.
pub struct NodeVolumeLimits;

/// Volumes to attach: `driver/handle`, and the driver.
type Attached = BTreeMap<String, String>;

/// Why volumes cannot be counted: a claim is missing, or something is wrong.
enum Problem {
    Missing(String),
    Wrong(String),
}

/// Whether any volume of a pod may have to be counted.
fn is_counted(volumes: &PodVolumes) -> bool {
    volumes.list.iter().any(|v| match v {
        PodVolume::Claim(_) | PodVolume::Ephemeral(_) => true,
        PodVolume::Inline { disk, .. } => disk.migrated().is_some(),
        PodVolume::Csi(_) => false,
    })
}

struct Counter<'a> {
    objects: &'a Volumes,
    csi_node: Option<&'a k8s::CSINode>,
}

impl Counter<'_> {
    /// Adds the volumes of a pod. The claims of a pod that runs already may be
    /// gone; those of a new one must be there.
    fn add(&self, pod: &PodVolumes, new: bool, all: &mut Attached) -> Result<(), Problem> {
        for volume in &pod.list {
            let (name, made) = match volume {
                PodVolume::Claim(name) => (name, false),
                PodVolume::Ephemeral(name) => (name, true),
                PodVolume::Inline { .. } => {
                    self.add_inline(volume, all).map_err(Problem::Wrong)?;
                    continue;
                }
                PodVolume::Csi(_) => continue,
            };
            if name.is_empty() {
                return Err(Problem::Wrong("PersistentVolumeClaim had no name".to_owned()));
            }
            let claim = match find_claim(self.objects, pod, name) {
                Ok(claim) => claim,
                Err(error) if new => {
                    let key = claim_key(&pod.namespace, name);
                    return Err(Problem::Missing(format!("looking up PVC {key}: {error}")));
                }
                Err(_) => continue,
            };
            if made {
                check_owner(pod, claim).map_err(Problem::Wrong)?;
            }
            if let Some((driver, handle)) = self.csi_volume(claim)
                && !driver.is_empty()
                && !handle.is_empty()
            {
                all.insert(format!("{driver}/{handle}"), driver);
            }
        }
        Ok(())
    }

    fn add_inline(&self, volume: &PodVolume, all: &mut Attached) -> Result<(), String> {
        let PodVolume::Inline { name, disk } = volume else {
            return Ok(());
        };
        let Some((plugin, handle)) = disk.migrated() else {
            return Ok(());
        };
        if self.csi_node.is_none() {
            return Ok(());
        }
        let handle = handle
            .map_err(|error| format!("converting volume({name}) from inline to csi: {error}"))?;
        all.insert(format!("{}/{handle}", plugin.driver()), plugin.driver().to_owned());
        Ok(())
    }

    /// Driver and handle of a claim's volume.
    fn csi_volume(&self, claim: &k8s::PersistentVolumeClaim) -> Option<(String, String)> {
        let volume = match claim.spec.volume_name.as_str() {
            "" => None,
            name => self.objects.volume(name),
        };
        let Some(volume) = volume else {
            return self.future_volume(claim);
        };
        if let Some(csi) = &volume.object.spec.csi {
            return Some((csi.driver.clone(), csi.volume_handle.clone()));
        }
        let migrated = volume.migrated.as_ref()?;
        self.csi_node?;
        let (handle, _) = migrated.csi.as_ref().ok()?;
        Some((migrated.plugin.driver().to_owned(), handle.clone()))
    }

    /// As `csi_volume` for a volume that is still to be made: the claim's name
    /// stands for a handle that nobody knows yet.
    fn future_volume(&self, claim: &k8s::PersistentVolumeClaim) -> Option<(String, String)> {
        let class = self.objects.class(claim_class(claim))?;
        let handle = format!("\0{}/{}", claim.metadata.namespace, claim.metadata.name);
        match Provisioner::of(&class.provisioner) {
            Provisioner::BuiltIn(plugin) => {
                self.csi_node?;
                Some((plugin.driver().to_owned(), handle))
            }
            Provisioner::Uncounted => None,
            Provisioner::Driver(driver) => Some((driver.to_owned(), handle)),
        }
    }

    /// Whether a driver that insists on it is missing on the node.
    fn is_missing(&self, driver: &str) -> bool {
        let insists = self
            .objects
            .driver(driver)
            .is_some_and(|d| d.spec.prevent_pod_scheduling_if_missing == Some(true));
        let here = self.csi_node.is_some_and(|n| n.spec.drivers.iter().any(|d| d.name == driver));
        insists && !here
    }

    /// Volumes attached to a node, whoever uses them.
    fn attachments(&self, node: &str) -> Attached {
        let mut all = Attached::new();
        for attachment in self.objects.attachments(node) {
            let spec = &attachment.spec;
            let volume = spec.source.persistent_volume_name.as_deref();
            let csi = volume
                .and_then(|name| self.objects.volume(name))
                .and_then(|v| v.object.spec.csi.as_ref());
            if let Some(csi) = csi.filter(|_| !spec.attacher.is_empty()) {
                let name = format!("{}/{}", spec.attacher, csi.volume_handle);
                all.insert(name, spec.attacher.clone());
            }
        }
        all
    }
}

/// Most volumes per driver; drivers without a limit are left out.
fn limits(csi_node: Option<&k8s::CSINode>) -> BTreeMap<&str, i64> {
    let drivers = csi_node.into_iter().flat_map(|n| &n.spec.drivers);
    let count = |d: &k8s::CSINodeDriver| d.allocatable.as_ref().and_then(|a| a.count);
    drivers.filter_map(|d| Some((d.name.as_str(), i64::from(count(d)?)))).collect()
}

fn count_by_driver<'a>(drivers: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, i64> {
    let mut counts = BTreeMap::new();
    for driver in drivers {
        *counts.entry(driver.as_str()).or_default() += 1;
    }
    counts
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        names::NODE_VOLUME_LIMITS
    }

    fn events(&self) -> Vec<Registration> {
        vec![
            Registration { resource: Resource::CsiNode, actions: Actions::ADD | Actions::UPDATE },
            Registration { resource: Resource::AssignedPod, actions: Actions::DELETE },
            Registration { resource: Resource::PersistentVolumeClaim, actions: Actions::ADD },
            Registration { resource: Resource::VolumeAttachment, actions: Actions::DELETE },
        ]
    }

    fn hint(&self, cx: &HintCx<'_>) -> Hint {
        let own = cx.shape.volumes.as_deref();
        let helps = match (&cx.event.subject, object(cx.event)) {
            (Subject::Pod { shape: gone, .. }, _) => {
                gone.volumes.as_deref().is_some_and(is_counted)
            }
            (_, (_, Some(Kept::Claim(_)))) => about_own_claim(cx.event, own, true),
            (_, (Some(Kept::CsiNode(before)), Some(Kept::CsiNode(after)))) => {
                has_grown(before, after)
            }
            (_, (Some(Kept::Attachment(gone)), None)) => {
                own.is_some_and(|own| frees(own, &gone.spec.attacher))
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

/// Whether the limit of any driver rose; no limit counts as 0, as upstream.
fn has_grown(before: &k8s::CSINode, after: &k8s::CSINode) -> bool {
    let old = limits(Some(before));
    limits(Some(after)).iter().any(|(driver, now)| *now > old.get(driver).copied().unwrap_or(0))
}

/// Whether a detached volume of a driver may make room for a pod.
fn frees(own: &PodVolumes, attacher: &str) -> bool {
    own.list.iter().any(|v| match v {
        PodVolume::Claim(_) => true,
        PodVolume::Inline { disk, .. } => disk
            .migrated()
            .is_some_and(|(plugin, handle)| handle.is_err() || plugin.driver() == attacher),
        _ => false,
    })
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(&self, shape: &PodShape, _: &Cluster) -> PreFilterResult {
        if shape.volumes.as_deref().is_some_and(is_counted) {
            PreFilterResult::Go { state: None, nodes: None }
        } else {
            PreFilterResult::Skip
        }
    }
}

impl Filter for NodeVolumeLimits {
    fn filter(&self, _: &State, shape: &PodShape, node: NodeView<'_>) -> Result<(), Status> {
        let Some(pod) = &shape.volumes else {
            return Ok(());
        };
        let objects = node.cluster().volumes();
        let name = &node.info().name;
        let csi_node = objects.csi_node(name).map(|n| &**n);
        let counter = Counter { objects, csi_node };
        let mut new = Attached::new();
        counter.add(pod, true, &mut new).map_err(|problem| match problem {
            Problem::Missing(text) => Status::unresolvable(text),
            Problem::Wrong(text) => Status::error(text),
        })?;
        let drivers: BTreeSet<&String> = new.values().collect();
        if let Some(driver) = drivers.into_iter().find(|d| counter.is_missing(d)) {
            let reason = format!("{driver} CSI driver is not installed on the node");
            return Err(Status::unschedulable(reason));
        }
        let limits = limits(csi_node);
        if new.is_empty() || limits.is_empty() {
            return Ok(());
        }
        let mut attached = Attached::new();
        for other in node.pod_volumes() {
            counter.add(other, false, &mut attached).map_err(|problem| match problem {
                Problem::Missing(text) | Problem::Wrong(text) => Status::error(text),
            })?;
        }
        new.retain(|volume, _| !attached.contains_key(volume));
        let more = counter.attachments(name);
        let more = more.iter().filter(|(volume, _)| !attached.contains_key(*volume));
        let counts = count_by_driver(attached.values().chain(more.map(|(_, driver)| driver)));
        for (driver, count) in count_by_driver(new.values()) {
            let current = counts.get(driver).copied().unwrap_or(0);
            if limits.get(driver).is_some_and(|limit| current + count > *limit) {
                return Err(Status::unschedulable(REASON));
            }
        }
        Ok(())
    }
}
