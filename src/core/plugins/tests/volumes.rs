//! VolumeRestrictions, NodeVolumeLimits, VolumeZone.

use muster_api::k8s;
use serde_json::{Value, json};

use super::{hint, judge, on_delete};
use crate::cluster::Cluster;
use crate::framework::{Actions, Hint, Plugin, Resource};
use crate::io::Object;
use crate::plugins::{NodeVolumeLimits, VolumeRestrictions, VolumeZone};
use crate::testing::{ClusterExt, NodeExt, PodExt, cluster, node, pod, wire};

/// A pod with these volumes, in `default`.
pub(super) fn with(name: &str, volumes: Value) -> k8s::Pod {
    pod(name).edit(|p| p.spec.volumes = wire(volumes))
}

/// A pod with one claim.
pub(super) fn uses(claim: &str) -> k8s::Pod {
    with("p", json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]))
}

/// Adds objects by kind; claims are in `default`.
#[allow(clippy::needless_pass_by_value, reason = "callers make it on the spot")]
pub(super) fn add(cluster: &mut Cluster, objects: Value) {
    for mut object in objects.as_array().expect("a list").clone() {
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        if kind == "PersistentVolumeClaim" {
            object["metadata"]["namespace"] = json!("default");
        }
        let object = match kind.as_str() {
            "PersistentVolume" => Object::PersistentVolume(wire(object)),
            "PersistentVolumeClaim" => Object::PersistentVolumeClaim(wire(object)),
            "StorageClass" => Object::StorageClass(wire(object)),
            "CSINode" => Object::CSINode(wire(object)),
            "CSIDriver" => Object::CSIDriver(wire(object)),
            "CSIStorageCapacity" => Object::CSIStorageCapacity(wire(object)),
            "VolumeAttachment" => Object::VolumeAttachment(wire(object)),
            other => panic!("{other}"),
        };
        cluster.volumes_mut().upsert(object, 0);
    }
}

/// A claim bound to a volume.
pub(super) fn bound(name: &str, volume: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume}})
}

#[test]
fn disks_that_cannot_be_shared_are_not() {
    const NO: &str = "U: node(s) had no available disk";
    let gce = |name: &str, ro: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": ro}});
    let ebs = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
    let iscsi = |iqn: &str, ro: bool| json!({"iscsi": {"iqn": iqn, "readOnly": ro}});
    let rbd = |monitors: Value, image: &str, ro: bool| json!({"rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": ro}});
    let table = [
        ("the same disk, written to", gce("a", false), gce("a", true), NO),
        ("the same disk, only read", gce("a", true), gce("a", true), "ok"),
        ("another disk", gce("a", false), gce("b", false), "ok"),
        ("a block store has one user", ebs("a"), ebs("a"), NO),
        ("another block store", ebs("a"), ebs("b"), "ok"),
        ("the same target, written to", iscsi("q", false), iscsi("q", true), NO),
        ("the same target, only read", iscsi("q", true), iscsi("q", true), "ok"),
        (
            "one monitor in common",
            rbd(json!(["m", "n"]), "i", false),
            rbd(json!(["n"]), "i", true),
            NO,
        ),
        (
            "no monitor in common",
            rbd(json!(["m"]), "i", false),
            rbd(json!(["n"]), "i", false),
            "ok",
        ),
        ("another image", rbd(json!(["m"]), "i", false), rbd(json!(["m"]), "j", false), "ok"),
        ("a volume of another kind", json!({"emptyDir": {}}), ebs("a"), "skip"),
    ];
    for (row, asks, has, expected) in table {
        let mut nodes = cluster([node("n")]);
        nodes.add_wire_pod(&with("x", json!([has])).on("n"));
        let verdict = judge(&VolumeRestrictions, &mut nodes, &with("p", json!([asks])));
        assert_eq!(verdict, [expected], "{row}");
    }
}

#[test]
fn a_claim_for_one_pod_has_one_pod_in_the_whole_cluster() {
    let mut nodes = cluster([node("n1"), node("n2")]);
    let plugin = VolumeRestrictions;
    let missing = "rejected UU: persistentvolumeclaim \"c\" not found";
    assert_eq!(judge(&plugin, &mut nodes, &uses("c")), [missing]);
    add(
        &mut nodes,
        json!([{"kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOncePod"]}}]),
    );
    assert_eq!(judge(&plugin, &mut nodes, &uses("c")), ["skip"], "nobody uses it");
    let shape = nodes.shape_of(&uses("c"));
    let before = plugin.stamp(&shape, &nodes);
    let user = nodes.add_wire_pod(&uses("c").on("n1"));
    assert_ne!(plugin.stamp(&shape, &nodes), before, "kept verdicts are dropped");
    let no = "U: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access \
              mode already in-use by another pod";
    assert_eq!(judge(&plugin, &mut nodes, &uses("c")), [no, no]);
    nodes.remove_node("n1");
    assert_eq!(judge(&plugin, &mut nodes, &uses("c")), ["skip"], "its node is gone");
    nodes.drop_pod(user);
    assert_eq!(plugin.stamp(&shape, &nodes), before);
}

#[test]
fn pods_wait_for_what_shares_their_volumes() {
    let disk = json!([{"awsElasticBlockStore": {"volumeID": "a"}}]);
    let other = json!([{"awsElasticBlockStore": {"volumeID": "b"}}]);
    let plugin = VolumeRestrictions;
    let hint = |gone: &k8s::Pod| on_delete(&plugin, &with("p", disk.clone()), gone);
    assert_eq!(hint(&with("x", disk.clone())), Hint::Queue, "the same disk");
    assert_eq!(hint(&with("x", other)), Hint::Skip, "another disk");
    assert_eq!(hint(&pod("x")), Hint::Skip, "no disk at all");
    let foreign = with("x", disk.clone()).edit(|p| p.metadata.namespace = "other".into());
    assert_eq!(hint(&foreign), Hint::Skip, "another namespace, as upstream");
    assert_eq!(on_delete(&plugin, &uses("c"), &uses("c")), Hint::Queue, "the same claim");
    assert_eq!(on_delete(&plugin, &uses("c"), &uses("d")), Hint::Skip, "another claim");
}

/// Two nodes whose driver attaches at most two volumes; three volumes `v0…v2`
/// and claims `c0…c2` bound to them.
fn limited() -> Cluster {
    let mut nodes = cluster([node("n1"), node("n2")]);
    let driver = json!([{"name": "csi.x", "allocatable": {"count": 2}}]);
    add(
        &mut nodes,
        json!([
            {"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": driver}},
            {"kind": "StorageClass", "metadata": {"name": "later"}, "provisioner": "csi.x",
                "volumeBindingMode": "WaitForFirstConsumer"},
            {"kind": "PersistentVolumeClaim", "metadata": {"name": "open"},
                "spec": {"storageClassName": "later"}},
        ]),
    );
    for i in 0..3 {
        let volume = json!({"kind": "PersistentVolume", "metadata": {"name": format!("v{i}")},
            "spec": {"csi": {"driver": "csi.x", "volumeHandle": format!("h{i}")}}});
        add(&mut nodes, json!([volume, bound(&format!("c{i}"), &format!("v{i}"))]));
    }
    nodes
}

#[test]
fn a_node_attaches_no_more_volumes_than_its_driver_can() {
    const NO: &str = "U: node(s) exceed max volume count";
    let plugin = NodeVolumeLimits;
    let mut nodes = limited();
    assert_eq!(judge(&plugin, &mut nodes, &pod("p")), ["skip"]);
    assert_eq!(judge(&plugin, &mut nodes, &uses("c0")), ["ok", "ok"]);
    nodes.add_wire_pod(&uses("c0").on("n1"));
    nodes.add_wire_pod(&uses("c0").on("n1").edit(|p| p.metadata.name = "q".into()));
    assert_eq!(judge(&plugin, &mut nodes, &uses("c1")), ["ok", "ok"], "one volume is one");
    let attachment = json!({"kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": "csi.x", "nodeName": "n1",
            "source": {"persistentVolumeName": "v2"}}});
    add(&mut nodes, json!([attachment]));
    assert_eq!(judge(&plugin, &mut nodes, &uses("c1")), [NO, "ok"], "no limit is no limit");
    assert_eq!(judge(&plugin, &mut nodes, &uses("c0")), ["ok", "ok"], "it is there already");
    assert_eq!(judge(&plugin, &mut nodes, &uses("open")), [NO, "ok"], "still to be made");
    let none = "UU: looking up PVC default/x: persistentvolumeclaim \"x\" not found";
    assert_eq!(judge(&plugin, &mut nodes, &uses("x")), [none, none]);
}

#[test]
fn a_driver_may_insist_on_being_there() {
    let mut nodes = limited();
    add(
        &mut nodes,
        json!([{"kind": "CSIDriver", "metadata": {"name": "csi.x"},
            "spec": {"preventPodSchedulingIfMissing": true}}]),
    );
    let missing = "U: csi.x CSI driver is not installed on the node";
    assert_eq!(judge(&NodeVolumeLimits, &mut nodes, &uses("c0")), ["ok", missing]);
}

#[test]
fn a_disk_that_csi_has_taken_over_counts() {
    let mut nodes = cluster([node("n1")]);
    let drivers = json!([{"name": "ebs.csi.aws.com", "allocatable": {"count": 1}}]);
    add(
        &mut nodes,
        json!([{"kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": drivers}}]),
    );
    let disk = |id: &str| with("p", json!([{"awsElasticBlockStore": {"volumeID": id}}]));
    nodes.add_wire_pod(&disk("vol-a").on("n1"));
    let judge = |nodes: &mut Cluster, id: &str| judge(&NodeVolumeLimits, nodes, &disk(id));
    assert_eq!(judge(&mut nodes, "aws://zone/vol-a"), ["ok"], "the same disk by another name");
    assert_eq!(judge(&mut nodes, "vol-b"), ["U: node(s) exceed max volume count"]);
}

#[test]
fn only_a_limit_that_rose_wakes_a_pod() {
    let mut nodes = limited();
    let csi_node = |count: i32| -> Object {
        let drivers = json!([{"name": "csi.x", "allocatable": {"count": count}}]);
        Object::CSINode(wire(json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})))
    };
    for (count, expected) in [(1, Hint::Skip), (2, Hint::Queue), (1, Hint::Skip)] {
        let event = nodes.volumes_mut().upsert(csi_node(count), 0).expect("a change");
        let about = (Resource::CsiNode, Actions::UPDATE);
        let woken = hint(&NodeVolumeLimits, &mut nodes, &uses("c0"), about, event.subject);
        assert_eq!(woken, expected, "{count}");
    }
}

#[test]
fn a_volume_is_used_in_its_zone() {
    const NO: &str = "UU: node(s) had no available volume zone";
    const ZONE: &str = "topology.kubernetes.io/zone";
    const BETA: &str = "failure-domain.beta.kubernetes.io/zone";
    // Verdicts on a node in zone a, one in zone b by the old label, one without labels.
    let table = [
        ("no labels", json!({}), vec!["skip"]),
        ("one zone", json!({ZONE: "a"}), vec!["ok", NO, "ok"]),
        ("several zones", json!({ZONE: "a__c"}), vec!["ok", NO, "ok"]),
        ("the old label finds both", json!({BETA: "a__b"}), vec!["ok", "ok", "ok"]),
        ("the new label does not find the old", json!({ZONE: "a__b"}), vec!["ok", NO, "ok"]),
        ("a list with a hole is ignored", json!({ZONE: "a__"}), vec!["skip"]),
    ];
    for (row, labels, expected) in table {
        let mut nodes =
            cluster([node("a").label(ZONE, "a"), node("b").label(BETA, "b"), node("c")]);
        let volume = json!({"kind": "PersistentVolume",
            "metadata": {"name": "v", "labels": labels}});
        add(&mut nodes, json!([volume, bound("c", "v")]));
        assert_eq!(judge(&VolumeZone, &mut nodes, &uses("c")), expected, "{row}");
    }
}

#[test]
fn a_claim_without_a_zone_to_be_in_says_why() {
    let claim = |spec: Value| json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": spec});
    let class = |mode: Value| json!({"kind": "StorageClass", "metadata": {"name": "k"}, "volumeBindingMode": mode});
    let in_class = || claim(json!({"storageClassName": "k"}));
    let table = [
        (json!([]), "rejected UU: persistentvolumeclaim \"c\" not found"),
        (
            json!([claim(json!({}))]),
            "rejected UU: PersistentVolumeClaim had no pv name and storageClass name",
        ),
        (json!([in_class()]), "rejected UU: storageclass.storage.k8s.io \"k\" not found"),
        (
            json!([in_class(), class(json!(null))]),
            "rejected UU: VolumeBindingMode not set for StorageClass \"k\"",
        ),
        (
            json!([in_class(), class(json!("Immediate"))]),
            "rejected UU: PersistentVolume had no name",
        ),
        (json!([in_class(), class(json!("WaitForFirstConsumer"))]), "skip"),
        (
            json!([claim(json!({"volumeName": "v"}))]),
            "rejected UU: persistentvolume \"v\" not found",
        ),
    ];
    for (objects, expected) in table {
        let mut nodes = cluster([node("n")]);
        add(&mut nodes, objects.clone());
        assert_eq!(judge(&VolumeZone, &mut nodes, &uses("c")), [expected], "{objects}");
    }
}
