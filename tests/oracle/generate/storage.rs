//! Classes, drivers and what nodes can attach.

use serde_json::{Value, json};

use super::Mood;
use crate::rng::Rng;

pub(super) const ZONES: &[&str] = &["zone-a", "zone-b", "zone-c"];
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const REGION: &str = "topology.kubernetes.io/region";
pub(super) const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
pub(super) const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
pub(super) const CSI: &str = "csi.example.com";
pub(super) const OTHER_CSI: &str = "other.example.com";
/// Class, provisioner, binding mode.
const CLASSES: &[(&str, &str, &str)] = &[
    ("fast", CSI, "WaitForFirstConsumer"),
    ("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
    ("ebs", "kubernetes.io/aws-ebs", "WaitForFirstConsumer"),
    ("vsphere", "kubernetes.io/vsphere-volume", "WaitForFirstConsumer"),
    ("other", OTHER_CSI, "WaitForFirstConsumer"),
    ("now", CSI, "Immediate"),
];
const MIGRATED: &[&str] = &[
    "kubernetes.io/aws-ebs",
    "kubernetes.io/gce-pd",
    "kubernetes.io/azure-disk",
    "kubernetes.io/cinder",
    "kubernetes.io/portworx-volume",
];
const DRIVERS: &[&str] = &[
    CSI,
    OTHER_CSI,
    "ebs.csi.aws.com",
    "pd.csi.storage.gke.io",
    "disk.csi.azure.com",
    "cinder.csi.openstack.org",
    "pxd.portworx.com",
];

pub(super) fn classes(rng: &mut Rng, mood: &Mood, objects: &mut Vec<Value>) {
    for (name, provisioner, mode) in CLASSES {
        let mut class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
        });
        if rng.chance(25) {
            class["allowedTopologies"] = topologies(rng, mood);
        }
        if rng.chance(mood.nasty) {
            class.as_object_mut().map(|c| c.remove("volumeBindingMode"));
        }
        if !rng.chance(mood.nasty) {
            objects.push(class);
        }
        if *name == "fast" || *name == "ebs" || *name == "other" {
            capacities(rng, name, objects);
        }
    }
}

fn topologies(rng: &mut Rng, mood: &Mood) -> Value {
    (0..rng.between(1, 2))
        .map(|_| {
            let least = usize::from(!rng.chance(8));
            let expressions: Value = (0..rng.between(least, 2))
                .map(|_| {
                    let (key, values) = if rng.chance(70) {
                        (ZONE, rng.some(ZONES, 50))
                    } else {
                        (REGION, rng.some(&["north", "south"], 60))
                    };
                    let values = if rng.chance(mood.nasty) {
                        vec!["zone-a", "not a value!"]
                    } else {
                        values
                    };
                    json!({"key": key, "values": values})
                })
                .collect();
            json!({"matchLabelExpressions": expressions})
        })
        .collect()
}

/// Room per zone, and some for nodes without one: no node sees two pools.
fn capacities(rng: &mut Rng, class: &str, objects: &mut Vec<Value>) {
    let selectors = ZONES
        .iter()
        .map(|zone| json!({"matchLabels": {ZONE: zone}}))
        .chain([json!({"matchExpressions": [{"key": ZONE, "operator": "DoesNotExist"}]})]);
    for (i, selector) in selectors.enumerate() {
        if rng.chance(12) {
            continue;
        }
        let mut capacity = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": {"name": format!("{class}-{i}"), "namespace": "storage"},
            "storageClassName": class, "capacity": format!("{}Gi", rng.below(40)),
        });
        if rng.chance(92) {
            capacity["nodeTopology"] = selector;
        }
        if rng.chance(30) {
            capacity["maximumVolumeSize"] = json!(format!("{}Gi", rng.below(20)));
        }
        objects.push(capacity);
    }
}

pub(super) fn drivers(rng: &mut Rng, objects: &mut Vec<Value>) {
    let insists = rng.chance(45).then(|| if rng.chance(60) { CSI } else { rng.pick(DRIVERS) });
    for name in DRIVERS {
        let mut spec = json!({});
        if rng.chance(85) {
            spec["storageCapacity"] = json!(rng.chance(75));
        }
        if insists == Some(name) {
            spec["preventPodSchedulingIfMissing"] = json!(true);
        } else if rng.chance(10) {
            spec["preventPodSchedulingIfMissing"] = json!(false);
        }
        if insists == Some(name) || rng.chance(85) {
            objects.push(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
                "metadata": {"name": name}, "spec": spec,
            }));
        }
    }
}

pub(super) fn csi_node(rng: &mut Rng, node: &str) -> Value {
    let drivers: Value = rng
        .some(DRIVERS, 60)
        .into_iter()
        .map(|name| {
            let mut driver = json!({"name": name, "nodeID": node, "topologyKeys": []});
            match rng.below(5) {
                0 => {}
                1 => driver["allocatable"] = json!({}),
                _ => driver["allocatable"] = json!({"count": rng.below(4)}),
            }
            driver
        })
        .collect();
    let mut annotations = json!({});
    if rng.chance(60) {
        annotations["storage.alpha.kubernetes.io/migrated-plugins"] =
            json!(rng.some(MIGRATED, 60).join(","));
    }
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {"name": node, "annotations": annotations}, "spec": {"drivers": drivers},
    })
}

pub(super) fn attachments(
    rng: &mut Rng,
    nodes: &[String],
    volumes: &[Value],
    objects: &mut Vec<Value>,
) {
    if nodes.is_empty() {
        return;
    }
    for i in 0..rng.below(4) {
        let node = &nodes[rng.below(nodes.len())];
        let volume = if volumes.is_empty() || rng.chance(10) {
            json!("pv-gone")
        } else {
            volumes[rng.below(volumes.len())]["metadata"]["name"].clone()
        };
        let mut source = json!({"persistentVolumeName": volume});
        if rng.chance(10) {
            source = json!({});
        }
        let attacher = if rng.chance(5) { "" } else { rng.pick(&[CSI, CSI, OTHER_CSI]) };
        objects.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": format!("attachment-{i}")},
            "spec": {"attacher": attacher, "nodeName": node, "source": source},
            "status": {"attached": true},
        }));
    }
}
