//! Volumes: persistent volumes, claims, and pods that use them.
//!
//! Where upstream takes any of several (volumes of one size, pools with room,
//! missing drivers), a state has only one to take: sizes are all different, pools
//! do not overlap, one driver at most insists on being there.

use serde_json::{Value, json};

use super::storage::{
    BETA_REGION, BETA_ZONE, CSI, OTHER_CSI, REGION, ZONE, ZONES, attachments, classes, csi_node,
    drivers,
};
use super::{Mood, NAMESPACE, object};
use crate::rng::Rng;

const MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// The storage of one state.
#[derive(Default)]
pub(super) struct Storage {
    /// Names of claims that pods may use.
    claims: Vec<String>,
    chance: usize,
    nasty: usize,
}

impl Storage {
    /// Makes the storage of a state and adds it to the objects.
    pub(super) fn draw(rng: &mut Rng, mood: &Mood, objects: &mut Vec<Value>) -> Self {
        let mut storage = Self { claims: Vec::new(), chance: mood.volumes, nasty: mood.nasty };
        if mood.volumes == 0 {
            return storage;
        }
        let nodes: Vec<String> = objects
            .iter_mut()
            .filter(|o| o["kind"] == "Node")
            .filter_map(|node| {
                label_node(rng, node);
                node["metadata"]["name"].as_str().map(str::to_owned)
            })
            .collect();
        classes(rng, mood, objects);
        drivers(rng, objects);
        for node in &nodes {
            if rng.chance(80) {
                objects.push(csi_node(rng, node));
            }
        }
        let mut volumes: Vec<Value> =
            (0..rng.below(9)).map(|i| volume(rng, mood, i, &nodes)).collect();
        for (i, node) in nodes.iter().enumerate() {
            if rng.chance(65) {
                volumes.push(local_volume(rng, i, node));
            }
        }
        for i in 0..rng.between(1, 8) {
            let claim = claim(rng, mood, i, &nodes, &mut volumes);
            storage.claims.extend(claim["metadata"]["name"].as_str().map(str::to_owned));
            objects.push(claim);
        }
        attachments(rng, &nodes, &volumes, objects);
        objects.extend(volumes);
        storage
    }

    /// Gives a pod volumes; claims made for it are added to the objects.
    pub(super) fn give(&self, rng: &mut Rng, pod: &mut Value, objects: &mut Vec<Value>) {
        if !rng.chance(self.chance) {
            return;
        }
        let mut list = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
        for i in 0..[1, 1, 1, 2, 3][rng.below(5)] {
            let mut volume = self.pod_volume(rng);
            // For a claim named twice kube-scheduler takes two volumes, and whichever it then
            // finds first, in random order, is the claim's: there is no one right answer.
            let claim = &volume["persistentVolumeClaim"];
            if !claim.is_null() && list.iter().any(|v| v["persistentVolumeClaim"] == *claim) {
                continue;
            }
            volume["name"] = json!(format!("v{i}"));
            if !volume["ephemeral"].is_null() && rng.chance(90) {
                objects.push(ephemeral_claim(rng, pod, &format!("v{i}")));
            }
            list.push(volume);
        }
        pod["spec"]["volumes"] = json!(list);
    }

    fn pod_volume(&self, rng: &mut Rng) -> Value {
        if rng.chance(55) && !self.claims.is_empty() {
            let known = &self.claims[rng.below(self.claims.len())];
            let name = if rng.chance(self.nasty) { "no-such-claim" } else { known };
            return json!({"persistentVolumeClaim": {"claimName": name}});
        }
        let read_only = rng.chance(50);
        let id = rng.pick(&["a", "a", "b"]);
        match rng.below(14) {
            0 | 11 | 12 => json!({"gcePersistentDisk": {"pdName": id, "readOnly": read_only}}),
            1 => {
                let bad = if rng.chance(self.nasty) { "aws://zone/x/y" } else { "vol-a" };
                let id = rng.pick(&["vol-a", "vol-b", "aws://zone-a/vol-a", "aws:///vol-c", bad]);
                json!({"awsElasticBlockStore": {"volumeID": id}})
            }
            2 => json!({"iscsi": {"iqn": id, "readOnly": read_only, "targetPortal": "p"}}),
            3 => {
                let monitors = rng.some(&["m1", "m2", "m3"], 60);
                json!({"rbd": {"monitors": monitors, "pool": rng.pick(&["p", "q"]), "image": id,
                    "readOnly": read_only}})
            }
            4 => {
                let mut disk = json!({"diskURI": format!("/disks/{id}"), "diskName": id});
                if rng.chance(self.nasty) {
                    disk["kind"] = json!(rng.pick(&["Dedicated", "managed"]));
                }
                json!({"azureDisk": disk})
            }
            5 => json!({"cinder": {"volumeID": id}}),
            6 => json!({"portworxVolume": {"volumeID": id}}),
            7 => json!({"csi": {"driver": CSI}}),
            8 | 9 => json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
            _ => json!({"emptyDir": {}}),
        }
    }
}

/// Labels by which old clusters and CSI drivers name zones.
fn label_node(rng: &mut Rng, node: &mut Value) {
    let zone = rng.pick(ZONES);
    for (key, value) in [
        (BETA_ZONE, zone),
        (BETA_REGION, "north"),
        ("topology.ebs.csi.aws.com/zone", zone),
        ("topology.gke.io/zone", zone),
        ("topology.cinder.csi.openstack.org/zone", zone),
    ] {
        if rng.chance(35) {
            node["metadata"]["labels"][key] = json!(value);
        }
    }
}

fn size(rng: &mut Rng) -> usize {
    [1, 2, 5, 10, 20][rng.below(5)]
}

fn volume(rng: &mut Rng, mood: &Mood, i: usize, nodes: &[String]) -> Value {
    let mut labels = Vec::new();
    for (key, values) in [(ZONE, ZONES), (BETA_ZONE, ZONES), (REGION, &["north", "south"])] {
        if rng.chance(18) {
            let mut value = rng.some(values, 55).join("__");
            if rng.chance(20) {
                value = rng
                    .pick(&["us-a-1__us-a-2", "us-a-1__eu-b-2", "zone-a__", "zone-a__ x"])
                    .to_owned();
            }
            labels.push((key.to_owned(), json!(value)));
        }
    }
    if rng.chance(50) {
        labels.push(("tier".to_owned(), json!(rng.pick(&["gold", "silver"]))));
    }
    let class = rng.pick(&["fast", "local", "local", "ebs", "other", ""]);
    let mut spec = json!({
        // No two of one size: upstream takes any of those.
        "capacity": {"storage": format!("{}Mi", size(rng) * 1024 + i)},
        "accessModes": rng.some(MODES, 70),
        "storageClassName": class,
    });
    source(rng, mood, i, &mut spec);
    if rng.chance(45) {
        spec["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": affinity(rng, mood, nodes)}});
    }
    if rng.chance(8) {
        spec["volumeMode"] = json!(rng.pick(&["Block", "Filesystem"]));
    }
    if rng.chance(5) {
        spec["volumeAttributesClassName"] = json!("gold");
    }
    let phase = if rng.chance(80) { "Available" } else { rng.pick(&["Released", "Pending", ""]) };
    let mut metadata = json!({"name": format!("pv-{i}"), "labels": object(labels)});
    if rng.chance(4) {
        metadata["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "local"});
    }
    if rng.chance(4) {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec,
        "status": {"phase": phase}})
}

/// A disk of one node, free to be taken.
fn local_volume(rng: &mut Rng, i: usize, node: &str) -> Value {
    let terms = json!([{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]);
    json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": format!("local-{i}"), "labels": {"tier": "gold"}},
        "spec": {
            "capacity": {"storage": format!("{}Mi", size(rng) * 1024 + 100 + i)},
            "accessModes": MODES, "storageClassName": "local", "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
        "status": {"phase": "Available"}})
}

fn source(rng: &mut Rng, mood: &Mood, i: usize, spec: &mut Value) {
    match rng.below(9) {
        0..=2 => {
            let driver = if rng.chance(70) { CSI } else { OTHER_CSI };
            spec["csi"] = json!({"driver": driver, "volumeHandle": format!("h{}", i % 4)});
        }
        3 => {
            let id = if rng.chance(mood.nasty) { "aws://a/b/c" } else { "aws://zone-a/vol-a" };
            spec["awsElasticBlockStore"] = json!({"volumeID": rng.pick(&["vol-a", "vol-b", id])});
        }
        4 => spec["gcePersistentDisk"] = json!({"pdName": rng.pick(&["a", "b"])}),
        5 => {
            spec["azureDisk"] = json!({"diskURI": "/disks/a", "diskName": "a"});
            if rng.chance(mood.nasty * 2) {
                spec["azureDisk"]["kind"] = json!("Shared");
            }
        }
        6 => spec["cinder"] = json!({"volumeID": rng.pick(&["a", "b"])}),
        7 => spec["portworxVolume"] = json!({"volumeID": "a"}),
        _ => spec["local"] = json!({"path": "/mnt"}),
    }
}

fn affinity(rng: &mut Rng, mood: &Mood, nodes: &[String]) -> Value {
    (0..rng.between(1, 2))
        .map(|_| {
            let mut expressions = Vec::new();
            if rng.chance(60) {
                let key = rng.pick(&[ZONE, ZONE, BETA_ZONE]);
                expressions.push(
                    json!({"key": key, "operator": "In", "values": [rng.pick(ZONES), "zone-b"]}),
                );
            }
            if rng.chance(20) {
                let key = rng.pick(&[REGION, BETA_REGION]);
                expressions.push(json!({"key": key, "operator": "In", "values": ["north"]}));
            }
            if rng.chance(30) && !nodes.is_empty() {
                let name = &nodes[rng.below(nodes.len())];
                let key = "kubernetes.io/hostname";
                expressions.push(json!({"key": key, "operator": "In", "values": [name]}));
            }
            if rng.chance(mood.nasty) {
                expressions.push(json!({"key": "disk", "operator": "Near", "values": ["x"]}));
            }
            let mut term = json!({"matchExpressions": expressions});
            if rng.chance(8) {
                // Matched with labels alone: fields must parse and do not matter.
                let values = if rng.chance(80) { json!(["x"]) } else { json!(["x", "y"]) };
                term["matchFields"] =
                    json!([{"key": "metadata.name", "operator": "In", "values": values}]);
            }
            term
        })
        .collect()
}

fn claim_spec(rng: &mut Rng, mood: &Mood) -> Value {
    let modes = if rng.chance(10) { vec!["ReadWriteOncePod"] } else { rng.some(&MODES[..3], 35) };
    let mut spec = json!({"accessModes": modes});
    if !rng.chance(4) {
        let mut request = format!("{}Gi", size(rng));
        if rng.chance(10) {
            request = rng.pick(&["1", "100Gi", "0"]).to_owned();
        }
        spec["resources"] = json!({"requests": {"storage": request}});
    }
    let missing = if rng.chance(mood.nasty) { "ghost" } else { "fast" };
    let rare = rng.pick(&["vsphere", "other", missing]);
    let class = rng.pick(&["fast", "fast", "local", "local", "local", "ebs", "other", rare]);
    spec["storageClassName"] = json!(class);
    if rng.chance(15) {
        let operator = rng.pick(&["In", "NotIn"]);
        spec["selector"] = match rng.below(3) {
            0 => json!({"matchLabels": {"tier": "gold"}}),
            1 => json!({"matchExpressions": [
                {"key": "tier", "operator": operator, "values": ["silver"]}]}),
            _ => json!({"matchExpressions": [
                {"key": "tier", "operator": rng.pick(&["Exists", "DoesNotExist"])}]}),
        };
    }
    if rng.chance(6) {
        spec["volumeMode"] = json!(rng.pick(&["Block", "Filesystem"]));
    }
    if rng.chance(3) {
        spec["volumeAttributesClassName"] = json!(rng.pick(&["gold", ""]));
    }
    spec
}

fn claim(rng: &mut Rng, mood: &Mood, i: usize, nodes: &[String], volumes: &mut [Value]) -> Value {
    let name = format!("claim-{i}");
    let mut spec = claim_spec(rng, mood);
    let mut annotations = json!({});
    let mut phase = "Pending";
    match rng.below(20) {
        // Bound, mostly to a volume that says so too.
        0..=6 => {
            phase = "Bound";
            let volume = if volumes.is_empty() || rng.chance(3) {
                "pv-gone".to_owned()
            } else {
                let at = rng.below(volumes.len());
                bind(rng, &mut volumes[at], &name);
                volumes[at]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
            };
            spec["volumeName"] = json!(volume);
            if !rng.chance(4) {
                annotations["pv.kubernetes.io/bind-completed"] = json!("yes");
            }
        }
        9 if rng.chance(50) => spec["storageClassName"] = json!("now"),
        9 => {
            spec.as_object_mut().map(|s| s.remove("storageClassName"));
        }
        // A volume is reserved for it.
        10 | 11 if !volumes.is_empty() => {
            let at = rng.below(volumes.len());
            if volumes[at]["spec"]["claimRef"].is_null() {
                let uid = rng.pick(&["", "uid-claim", "uid-other"]);
                let uid = uid.replace("uid-claim", &format!("uid-{name}"));
                volumes[at]["spec"]["claimRef"] =
                    json!({"namespace": NAMESPACE, "name": name, "uid": uid});
            }
        }
        12 | 13 if !nodes.is_empty() => {
            let node = if rng.chance(10) { "elsewhere" } else { &nodes[rng.below(nodes.len())] };
            annotations["volume.kubernetes.io/selected-node"] = json!(node);
        }
        _ => {}
    }
    if rng.chance(mood.nasty / 2) {
        phase = "Lost";
        spec["volumeName"] = json!("pv-lost");
    }
    let mut metadata = json!({"name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"),
        "annotations": annotations});
    if rng.chance(3) {
        // Upstream reads the field too, and falls over if it is not there.
        let class = rng.pick(&["fast", "local"]);
        metadata["annotations"]["volume.beta.kubernetes.io/storage-class"] = json!(class);
        spec["storageClassName"] = json!("other");
    }
    if rng.chance(mood.nasty / 2) {
        metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata,
        "spec": spec, "status": {"phase": phase}})
}

fn bind(rng: &mut Rng, volume: &mut Value, claim: &str) {
    if volume["spec"]["claimRef"].is_null() && rng.chance(90) {
        volume["spec"]["claimRef"] =
            json!({"namespace": NAMESPACE, "name": claim, "uid": format!("uid-{claim}")});
        volume["status"]["phase"] = json!("Bound");
    }
}

/// The claim that is made for a volume of a pod, mostly the pod's own.
fn ephemeral_claim(rng: &mut Rng, pod: &Value, volume: &str) -> Value {
    let pod_name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let name = format!("{pod_name}-{volume}");
    let uid = if rng.chance(4) { json!("uid-other") } else { pod["metadata"]["uid"].clone() };
    let mut claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": format!("uid-{name}"),
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod_name,
                "uid": uid, "controller": true}]},
        "spec": {"storageClassName": rng.pick(&["fast", "fast", "other"]),
            "resources": {"requests": {"storage": format!("{}Gi", size(rng))}}},
        "status": {"phase": "Pending"}});
    if rng.chance(5) {
        claim["metadata"].as_object_mut().map(|m| m.remove("ownerReferences"));
    }
    claim
}
