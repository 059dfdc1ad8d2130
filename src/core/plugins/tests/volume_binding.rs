//! VolumeBinding and NodeDeclaredFeatures.

use serde_json::{Value, json};

use super::volumes::{add, bound, uses, with};
use super::{hint, judge, on_update, rate};
use crate::cluster::Cluster;
use crate::framework::{Actions, Hint, Resource};
use crate::io::Object;
use crate::plugins::{NodeDeclaredFeatures, ShapePoint, VolumeBinding, VolumeBindingArgs};
use crate::testing::{NodeExt, PodExt, cluster, node, pod, wire};

fn plugin() -> VolumeBinding {
    VolumeBinding::new(&VolumeBindingArgs::default()).expect("valid arguments")
}

fn hosts(names: &[&str]) -> Cluster {
    let mut nodes = cluster(names.iter().map(|n| node(n).label("host", n)));
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({"kind": "StorageClass", "metadata": {"name": name}, "provisioner": provisioner,
            "volumeBindingMode": mode})
    };
    add(
        &mut nodes,
        json!([
            class("local", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
            class("made", "csi.x", "WaitForFirstConsumer"),
            class("now", "csi.x", "Immediate"),
        ]),
    );
    nodes
}

/// A free disk of a host.
fn disk(name: &str, host: &str, size: &str) -> Value {
    json!({"kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
            "storageClassName": "local", "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "host", "operator": "In", "values": [host]}]}]}}},
        "status": {"phase": "Available"}})
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "uid": "u"}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}}}})
}

const BIND: &str = "UU: node(s) didn't find available persistent volumes to bind";
const AFFINITY: &str = "UU: node(s) didn't match PersistentVolume's node affinity";
const SPACE: &str = "UU: node(s) did not have enough free storage";

#[test]
fn claims_that_no_node_can_help_are_told_so() {
    let lost = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"volumeName": "v"}, "status": {"phase": "Lost"}});
    let mut going = claim("c", "local", "1Gi");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let prebound = json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"volumeName": "v", "storageClassName": "local"}});
    let table = [
        (json!([]), "rejected UU: persistentvolumeclaim \"c\" not found"),
        (
            json!([lost]),
            "rejected UU: persistentvolumeclaim \"c\" bound to non-existent persistentvolume \"v\"",
        ),
        (json!([going]), "rejected UU: persistentvolumeclaim \"c\" is being deleted"),
        (
            json!([claim("c", "now", "1Gi")]),
            "rejected UU: pod has unbound immediate PersistentVolumeClaims",
        ),
        (json!([prebound]), "rejected UU: pod has unbound immediate PersistentVolumeClaims"),
        (
            json!([bound("c", "v")]),
            "UU: node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
    ];
    for (objects, expected) in table {
        let mut nodes = hosts(&["n1"]);
        add(&mut nodes, objects.clone());
        assert_eq!(judge(&plugin(), &mut nodes, &uses("c")), [expected], "{objects}");
    }
    assert_eq!(judge(&plugin(), &mut hosts(&["n1"]), &pod("p")), ["skip"]);
}

#[test]
fn a_claim_made_for_a_pod_must_be_its_own() {
    let asks = with("p", json!([{"name": "v", "ephemeral": {}}]));
    let mut nodes = hosts(&["n1"]);
    let waits = "rejected UU: waiting for ephemeral volume controller to create the \
                 persistentvolumeclaim \"p-v\"";
    assert_eq!(judge(&plugin(), &mut nodes, &asks), [waits]);
    add(&mut nodes, json!([claim("p-v", "made", "1Gi")]));
    let foreign = "rejected UU: PVC default/p-v was not created for pod default/p (pod is not \
                   owner)";
    assert_eq!(judge(&plugin(), &mut nodes, &asks), [foreign]);
    let mut own = claim("p-v", "made", "1Gi");
    own["metadata"]["ownerReferences"] =
        json!([{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": true}]);
    add(&mut nodes, json!([own]));
    assert_eq!(judge(&plugin(), &mut nodes, &asks), ["ok"]);
}

#[test]
fn a_free_volume_must_fit_in_every_way() {
    type Change = fn(&mut Value);
    let table: [(&str, Change, &str); 9] = [
        ("it fits", |_| {}, "ok"),
        ("too small", |v| v["spec"]["capacity"]["storage"] = json!("4Gi"), BIND),
        ("not available", |v| v["status"]["phase"] = json!("Released"), BIND),
        ("another class", |v| v["spec"]["storageClassName"] = json!("x"), BIND),
        ("another mode", |v| v["spec"]["volumeMode"] = json!("Block"), BIND),
        ("not all access modes", |v| v["spec"]["accessModes"] = json!(["ReadOnlyMany"]), BIND),
        ("taken by another", |v| v["spec"]["claimRef"] = json!({"name": "x"}), BIND),
        (
            "reserved for the claim, whatever its phase",
            |v| {
                v["spec"]["claimRef"] = json!({"namespace": "default", "name": "c"});
                v["status"]["phase"] = json!("Pending");
            },
            "ok",
        ),
        (
            "going away",
            |v| v["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            BIND,
        ),
    ];
    for (row, change, expected) in table {
        let mut nodes = hosts(&["n1", "n2"]);
        let mut volume = disk("v", "n1", "5Gi");
        change(&mut volume);
        add(&mut nodes, json!([volume, claim("c", "local", "5Gi")]));
        assert_eq!(judge(&plugin(), &mut nodes, &uses("c")), [expected, BIND], "{row}");
    }
}

#[test]
fn a_selector_chooses_among_volumes() {
    let mut nodes = hosts(&["n1", "n2"]);
    let mut gold = disk("gold", "n2", "5Gi");
    gold["metadata"]["labels"] = json!({"tier": "gold"});
    let mut asks = claim("c", "local", "1Gi");
    asks["spec"]["selector"] = json!({"matchLabels": {"tier": "gold"}});
    add(&mut nodes, json!([disk("plain", "n1", "5Gi"), gold, asks]));
    assert_eq!(judge(&plugin(), &mut nodes, &uses("c")), [BIND, "ok"]);
}

#[test]
fn two_claims_need_two_volumes() {
    let two = with(
        "p",
        json!([{"persistentVolumeClaim": {"claimName": "a"}},
            {"persistentVolumeClaim": {"claimName": "b"}}]),
    );
    let mut nodes = hosts(&["n1"]);
    // The small claim comes second and must not take the large volume.
    add(&mut nodes, json!([claim("a", "local", "5Gi"), claim("b", "local", "1Gi")]));
    add(&mut nodes, json!([disk("large", "n1", "6Gi")]));
    assert_eq!(judge(&plugin(), &mut nodes, &two), [BIND]);
    add(&mut nodes, json!([disk("small", "n1", "2Gi")]));
    assert_eq!(judge(&plugin(), &mut nodes, &two), ["ok"]);
}

#[test]
fn a_bound_volume_ties_the_pod_to_where_it_can_be_reached() {
    let mut nodes = hosts(&["n1", "n2"]);
    add(&mut nodes, json!([disk("v", "n2", "5Gi"), bound("c", "v")]));
    assert_eq!(judge(&plugin(), &mut nodes, &uses("c")), [AFFINITY, "ok"]);
}

#[test]
fn a_volume_is_made_where_the_class_the_driver_and_the_choice_allow() {
    let mut nodes = hosts(&["n1", "n2"]);
    add(&mut nodes, json!([claim("c", "made", "5Gi")]));
    let judged = |nodes: &mut Cluster| judge(&plugin(), nodes, &uses("c"));
    assert_eq!(judged(&mut nodes), ["ok", "ok"]);
    let class = json!({"kind": "StorageClass", "metadata": {"name": "made"},
        "provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "host", "values": ["n2"]}]}]});
    add(&mut nodes, json!([class]));
    assert_eq!(judged(&mut nodes), [BIND, "ok"]);
    let driver = json!({"kind": "CSIDriver", "metadata": {"name": "csi.x"},
        "spec": {"storageCapacity": true}});
    add(&mut nodes, json!([driver]));
    assert_eq!(judged(&mut nodes), [BIND, SPACE]);
    let room = |size: &str, most: Value| {
        json!({"kind": "CSIStorageCapacity", "metadata": {"name": "r", "namespace": "s"},
            "storageClassName": "made", "capacity": size, "maximumVolumeSize": most,
            "nodeTopology": {"matchLabels": {"host": "n2"}}})
    };
    add(&mut nodes, json!([room("10Gi", json!("4Gi"))]));
    assert_eq!(judged(&mut nodes), [BIND, SPACE], "no volume of that size");
    add(&mut nodes, json!([room("10Gi", json!(null))]));
    assert_eq!(judged(&mut nodes), [BIND, "ok"]);
    let mut chosen = claim("c", "made", "5Gi");
    chosen["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n1"});
    add(&mut nodes, json!([chosen]));
    assert_eq!(judged(&mut nodes), [BIND, BIND], "chosen for another node");
}

/// Default points: 0% is 100, 100% is 0, straight between.
#[test]
fn emptier_storage_scores_higher() {
    let mut nodes = hosts(&["n1", "n2", "n3"]);
    add(&mut nodes, json!([claim("c", "local", "5Gi"), claim("open", "made", "5Gi")]));
    add(&mut nodes, json!([disk("a", "n1", "10Gi"), disk("b", "n2", "20Gi")]));
    // n1: 5 of 10 is 50% -> 50. n2: 5 of 20 is 25% -> 75. n3 has none -> 0.
    assert_eq!(rate(&plugin(), &mut nodes, &uses("c")), Ok(vec![50, 75, 0]));
    // No driver says how much room it has: nothing to rate.
    assert_eq!(rate(&plugin(), &mut nodes, &uses("open")), Ok(vec![0, 0, 0]));
    assert_eq!(rate(&plugin(), &mut nodes, &pod("p")), Ok(vec![0, 0, 0]), "rated all the same");
    let points = [(0, 0), (40, 10)].map(|(utilization, score)| ShapePoint { utilization, score });
    let args = VolumeBindingArgs { shape: points.to_vec(), ..VolumeBindingArgs::default() };
    let packing = VolumeBinding::new(&args).expect("valid arguments");
    // 50% is beyond the last point: 100. 25% is 100*25/40 = 62.
    assert_eq!(rate(&packing, &mut nodes, &uses("c")), Ok(vec![100, 62, 0]));
}

#[test]
fn wrong_arguments_are_refused() {
    let table = [
        (-1, vec![], "bindTimeoutSeconds"),
        (0, vec![(101, 0)], "shape[0].utilization"),
        (0, vec![(5, 0), (5, 1)], "shape[1].utilization"),
        (0, vec![(5, 11)], "shape[0].score"),
    ];
    for (bind_timeout_seconds, shape, field) in table {
        let shape = shape
            .into_iter()
            .map(|(utilization, score)| ShapePoint { utilization, score })
            .collect();
        let args = VolumeBindingArgs { bind_timeout_seconds, shape };
        let error = VolumeBinding::new(&args).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with(&format!("VolumeBinding: {field}: ")), "{error}");
    }
}

#[test]
fn changes_that_can_help_wake_a_pod() {
    let about = |resource| (resource, Actions::UPDATE);
    let mut nodes = hosts(&["n1"]);
    let mut ask = |object: Value, kind: &str, resource| {
        let object = match kind {
            "class" => Object::StorageClass(wire(object)),
            "capacity" => Object::CSIStorageCapacity(wire(object)),
            "claim" => Object::PersistentVolumeClaim(wire(object)),
            _ => Object::CSINode(wire(object)),
        };
        let event = nodes.volumes_mut().upsert(object, 0).expect("a change");
        hint(&plugin(), &mut nodes, &uses("c"), about(resource), event.subject)
    };
    let class = |topologies: Value, version: &str| {
        json!({"metadata": {"name": "made", "resourceVersion": version}, "provisioner": "csi.x",
            "allowedTopologies": topologies})
    };
    let term = json!([{"matchLabelExpressions": [{"key": "k", "values": ["v"]}]}]);
    let classes = Resource::StorageClass;
    assert_eq!(ask(class(term.clone(), "2"), "class", classes), Hint::Queue);
    assert_eq!(ask(class(term, "3"), "class", classes), Hint::Skip, "nothing that matters");
    let room = |size: &str| json!({"metadata": {"name": "r"}, "capacity": size});
    let capacities = Resource::CsiStorageCapacity;
    assert_eq!(ask(room("5Gi"), "capacity", capacities), Hint::Queue, "new");
    assert_eq!(ask(room("4Gi"), "capacity", capacities), Hint::Skip, "less");
    assert_eq!(ask(room("6Gi"), "capacity", capacities), Hint::Queue, "more");
    let claim = |name: &str| json!({"metadata": {"name": name, "namespace": "default"}});
    let claims = Resource::PersistentVolumeClaim;
    assert_eq!(ask(claim("c"), "claim", claims), Hint::Queue);
    assert_eq!(ask(claim("d"), "claim", claims), Hint::Skip, "another claim");
    let csi = |list: &str| {
        json!({"metadata": {"name": "n1", "annotations":
            {"storage.alpha.kubernetes.io/migrated-plugins": list}}})
    };
    assert_eq!(ask(csi("a"), "csi", Resource::CsiNode), Hint::Queue, "new");
    assert_eq!(ask(csi("a,b"), "csi", Resource::CsiNode), Hint::Queue, "migrated");
}

#[test]
fn a_pod_goes_where_the_kubelet_declares_what_it_needs() {
    const NO: &str = "UU: node(s) didn't match Pod's required features";
    let declares = |name: &str, list: &[&str]| {
        let list: Vec<String> = list.iter().map(ToString::to_string).collect();
        node(name).edit(|n| n.status.declared_features = list)
    };
    let (restart, network) =
        ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport");
    let mut nodes = cluster([
        declares("all", &[restart, network, "FromTheFuture"]),
        declares("one", &[restart]),
        declares("none", &[]),
    ]);
    let restarts = pod("p").with_container(
        json!({"name": "c", "restartPolicyRules": [{"action": "RestartAllContainers"}]}),
    );
    let both = restarts.clone().edit(|p| {
        p.spec.host_network = true;
        p.spec.host_users = Some(false);
    });
    let judged =
        |nodes: &mut Cluster, pod: &muster_api::k8s::Pod| judge(&NodeDeclaredFeatures, nodes, pod);
    assert_eq!(judged(&mut nodes, &pod("p")), ["skip"]);
    assert_eq!(judged(&mut nodes, &restarts), ["ok", "ok", NO]);
    assert_eq!(judged(&mut nodes, &both), ["ok", NO, NO]);
    let (before, after) = (declares("n", &[]), declares("n", &[restart]));
    assert_eq!(on_update(&NodeDeclaredFeatures, &restarts, &before, &after), Hint::Queue);
}
