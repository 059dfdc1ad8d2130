//! Volumes of kinds that were once built in, as their CSI drivers see them.
//!
//! Owns upstream's csi-translation-lib as far as scheduling reads it: which
//! driver takes over, under which handle, reachable from where.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s;

use super::{Disk, NodeTerms};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const UNSPECIFIED: &str = "UNSPECIFIED";

/// A volume plugin that was once built in and is now a CSI driver.
///
/// Azure File and vSphere are translated upstream too, but their migration is
/// never on in the scheduler's plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltIn {
    /// AWS elastic block store.
    Ebs,
    /// GCE persistent disk.
    Gce,
    /// Azure disk.
    Azure,
    /// OpenStack Cinder.
    Cinder,
    /// Portworx.
    Portworx,
}

/// Provisioners that upstream knows to be migratable but never migrates here.
const NEVER_ON: [&str; 2] = ["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];

impl BuiltIn {
    const ALL: [Self; 5] = [Self::Ebs, Self::Gce, Self::Azure, Self::Cinder, Self::Portworx];

    /// Name of the built-in plugin.
    #[must_use]
    pub const fn plugin(self) -> &'static str {
        match self {
            Self::Ebs => "kubernetes.io/aws-ebs",
            Self::Gce => "kubernetes.io/gce-pd",
            Self::Azure => "kubernetes.io/azure-disk",
            Self::Cinder => "kubernetes.io/cinder",
            Self::Portworx => "kubernetes.io/portworx-volume",
        }
    }

    /// Name of the CSI driver.
    #[must_use]
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Ebs => "ebs.csi.aws.com",
            Self::Gce => "pd.csi.storage.gke.io",
            Self::Azure => "disk.csi.azure.com",
            Self::Cinder => "cinder.csi.openstack.org",
            Self::Portworx => "pxd.portworx.com",
        }
    }

    /// The node label by which the driver names zones, if volumes are zonal.
    const fn topology_key(self) -> Option<&'static str> {
        match self {
            Self::Ebs => Some("topology.ebs.csi.aws.com/zone"),
            Self::Gce => Some("topology.gke.io/zone"),
            Self::Cinder => Some("topology.cinder.csi.openstack.org/zone"),
            Self::Azure | Self::Portworx => None,
        }
    }
}

/// Who provisions for a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioner<'a> {
    /// A built-in plugin that CSI has taken over.
    BuiltIn(BuiltIn),
    /// A built-in plugin whose volumes are not counted.
    Uncounted,
    /// A CSI driver, or anything else.
    Driver(&'a str),
}

impl<'a> Provisioner<'a> {
    /// By the name a class gives.
    #[must_use]
    pub fn of(name: &'a str) -> Self {
        match BuiltIn::ALL.into_iter().find(|b| b.plugin() == name) {
            Some(built_in) => Self::BuiltIn(built_in),
            None if NEVER_ON.contains(&name) => Self::Uncounted,
            None => Self::Driver(name),
        }
    }
}

impl Disk {
    /// The plugin that CSI has taken over, and the handle under which its
    /// driver knows a disk that a pod names itself.
    #[must_use]
    pub fn migrated(&self) -> Option<(BuiltIn, Result<String, String>)> {
        Some(match self {
            Self::Ebs(disk) => (BuiltIn::Ebs, ebs_id(&disk.volume_id)),
            Self::Gce(disk) => (BuiltIn::Gce, Ok(gce_zonal(UNSPECIFIED, &disk.pd_name))),
            Self::Azure(disk) => (BuiltIn::Azure, azure_handle(disk)),
            Self::Cinder(disk) => (BuiltIn::Cinder, Ok(disk.volume_id.clone())),
            Self::Portworx(disk) => (BuiltIn::Portworx, Ok(disk.volume_id.clone())),
            Self::Iscsi(_) | Self::Rbd(_) => return None,
        })
    }
}

/// A persistent volume of a built-in kind as its CSI driver sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The plugin taken over.
    pub plugin: BuiltIn,
    /// The driver's handle and where the volume can be reached from, or why it
    /// cannot be translated.
    pub csi: Result<(String, Option<NodeTerms>), String>,
}

/// Translates a persistent volume; `None` if it is not of such a kind.
#[must_use]
pub fn migrate(volume: &k8s::PersistentVolume) -> Option<Migrated> {
    let spec = &volume.spec;
    let (plugin, handle) = if let Some(disk) = &spec.aws_elastic_block_store {
        (BuiltIn::Ebs, ebs_id(&disk.volume_id))
    } else if let Some(disk) = &spec.gce_persistent_disk {
        (BuiltIn::Gce, gce_handle(&disk.pd_name, &volume.metadata.labels))
    } else if let Some(disk) = &spec.azure_disk {
        (BuiltIn::Azure, azure_handle(disk))
    } else if let Some(disk) = &spec.cinder {
        (BuiltIn::Cinder, Ok(disk.volume_id.clone()))
    } else if let Some(disk) = &spec.portworx_volume {
        (BuiltIn::Portworx, Ok(disk.volume_id.clone()))
    } else {
        return None;
    };
    let csi = handle.map(|handle| {
        let mut required = spec.node_affinity.as_ref().and_then(|a| a.required.clone());
        if let Some(key) = plugin.topology_key() {
            translate_topology(&mut required, &volume.metadata.labels, key);
        }
        (handle, required.map(|r| NodeTerms::compile_labels(&r.node_selector_terms)))
    });
    Some(Migrated { plugin, csi })
}

fn gce_zonal(zone: &str, disk: &str) -> String {
    format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{disk}")
}

fn gce_handle(disk: &str, labels: &BTreeMap<String, String>) -> Result<String, String> {
    let beta = labels.get(BETA_ZONE).filter(|v| !v.is_empty());
    let zones = beta.or_else(|| labels.get(ZONE)).map_or("", String::as_str);
    let zones: Vec<&str> = zones.split("__").collect();
    match zones.as_slice() {
        [""] | [] => Ok(gce_zonal(UNSPECIFIED, disk)),
        [one] => Ok(gce_zonal(one, disk)),
        many => {
            let region = gce_region(many)
                .map_err(|error| format!("failed to get region from zones: {error}"))?;
            Ok(format!("projects/{UNSPECIFIED}/regions/{region}/disks/{disk}"))
        }
    }
}

fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts.as_slice() else {
            return Err(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    match (regions.len(), regions.first()) {
        (1, Some(region)) => Ok(region.clone()),
        _ => {
            let list: Vec<String> = regions.iter().map(|r| format!("{r}:{{}}")).collect();
            Err(format!("multiple or no regions gotten from zones, got: map[{}]", list.join(" ")))
        }
    }
}

/// `aws://zone/vol-1`, `aws:///vol-1` and `vol-1` are the same disk.
fn ebs_id(id: &str) -> Result<String, String> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id.to_owned());
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    let volume = path.trim_matches('/');
    if volume.starts_with("vol-") && !volume.contains('/') {
        return Ok(volume.to_owned());
    }
    Err(format!(
        "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"
    ))
}

fn azure_handle(disk: &k8s::AzureDisk) -> Result<String, String> {
    match &disk.kind {
        Some(kind) if !kind.eq_ignore_ascii_case("Managed") => {
            Err(format!("kind({kind}) is not supported in csi migration"))
        }
        _ => Ok(disk.disk_uri.clone()),
    }
}

/// Upstream's `translateTopologyFromInTreeToCSI`.
fn translate_topology(
    required: &mut Option<k8s::NodeSelector>,
    labels: &BTreeMap<String, String>,
    csi_key: &str,
) {
    let beta = if has_key(required.as_ref(), ZONE) {
        false
    } else if has_key(required.as_ref(), BETA_ZONE) {
        true
    } else {
        !labels.contains_key(ZONE) && labels.contains_key(BETA_ZONE)
    };
    let (zone, region) = if beta { (BETA_ZONE, BETA_REGION) } else { (ZONE, REGION) };
    if has_values(required.as_ref(), zone) {
        replace_key(required, zone, csi_key);
    } else if let Some(label) = labels.get(zone) {
        add_zones(required, csi_key, label);
    }
    if beta && has_values(required.as_ref(), region) {
        replace_key(required, region, REGION);
    }
}

fn expressions(
    required: Option<&k8s::NodeSelector>,
) -> impl Iterator<Item = &k8s::NodeSelectorRequirement> {
    let terms = required.into_iter().flat_map(|r| &r.node_selector_terms);
    terms.flat_map(|t| &t.match_expressions)
}

fn has_key(required: Option<&k8s::NodeSelector>, key: &str) -> bool {
    expressions(required).any(|r| r.key == key)
}

fn has_values(required: Option<&k8s::NodeSelector>, key: &str) -> bool {
    expressions(required).any(|r| r.key == key && !r.values.is_empty())
}

fn replace_key(required: &mut Option<k8s::NodeSelector>, old: &str, new: &str) {
    let terms = required.iter_mut().flat_map(|r| &mut r.node_selector_terms);
    for requirement in terms.flat_map(|t| &mut t.match_expressions).filter(|r| r.key == old) {
        requirement.key = new.to_owned();
    }
}

fn add_zones(required: &mut Option<k8s::NodeSelector>, key: &str, label: &str) {
    let zones: BTreeSet<&str> =
        label.split("__").map(str::trim).filter(|z| !z.is_empty()).collect();
    if zones.is_empty() {
        return;
    }
    let terms = &mut required.get_or_insert_default().node_selector_terms;
    if terms.is_empty() {
        terms.push(k8s::NodeSelectorTerm::default());
    }
    for term in terms {
        term.match_expressions.push(k8s::NodeSelectorRequirement {
            key: key.to_owned(),
            operator: "In".to_owned(),
            values: zones.iter().map(|z| (*z).to_owned()).collect(),
        });
    }
}
