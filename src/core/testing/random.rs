//! Random nodes and pods: few values each, so that they meet.

use muster_api::{k8s, muster};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{NodeExt, PodExt, node, pod, quantity};
use crate::io::Object;

/// Names of random nodes.
pub(crate) const NODES: [&str; 6] = ["n0", "n1", "n2", "n3", "n4", "n5"];
const IMAGES: [&str; 3] = ["app:1", "tool:latest", "gcr.io/base:latest"];
const GI: i64 = 1 << 30;

fn taint() -> impl Strategy<Value = k8s::Taint> {
    let effect = select(vec!["NoSchedule", "NoExecute", "PreferNoSchedule", "Odd"]);
    (select(vec!["gpu", "spot"]), select(vec!["", "x"]), effect).prop_map(|(key, value, effect)| {
        k8s::Taint { key: key.into(), value: value.into(), effect: effect.into() }
    })
}

/// A node of that name.
pub(crate) fn any_node(name: &'static str) -> impl Strategy<Value = k8s::Node> {
    let labels = (
        option::of(select(vec!["a", "b"])),
        option::of(select(vec!["1", "7", "x", "-3"])),
        prop::bool::weighted(0.2),
    );
    let room = (0..5i64, 0..5i64, option::of(0..3i64), select(vec!["0", "1", "2", "110"]));
    let images = vec((select(IMAGES.to_vec()), 0..4 * GI), 0..3);
    (labels, vec(taint(), 0..3), room, images).prop_map(
        move |((zone, size, cordoned), taints, (cpu, memory, gpus, pods), images)| {
            let mut node = node(name)
                .cpu(&cpu.to_string())
                .memory(&format!("{memory}Gi"))
                .max_pods(pods)
                .label("host", name)
                .label("kubernetes.io/hostname", name);
            if let Some(gpus) = gpus {
                node = node.alloc("example.com/gpu", &gpus.to_string());
            }
            if let Some(zone) = zone {
                node = node.label("zone", zone);
            }
            if let Some(size) = size {
                node = node.label("size", size);
            }
            node.spec.unschedulable = cordoned;
            node.spec.taints = taints;
            images.into_iter().fold(node, |node, (name, size)| node.image(name, size))
        },
    )
}

fn requirement() -> impl Strategy<Value = Value> {
    let set = vec(select(vec!["a", "b", "7", ""]), 0..3);
    let operator = select(vec!["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"]);
    (select(vec!["zone", "size", "host", "no key!"]), operator, set).prop_map(
        |(key, operator, values)| {
            // Mostly well formed, so that terms match something.
            let values = match operator {
                "Exists" | "DoesNotExist" if !values.contains(&"") => json!([]),
                "Gt" | "Lt" => json!(["3"]),
                _ => json!(values),
            };
            json!({"key": key, "operator": operator, "values": values})
        },
    )
}

fn field() -> impl Strategy<Value = Value> {
    let name = select(vec!["metadata.name", "metadata.name", "metadata.name", "spec.x"]);
    let values = vec(select(NODES.to_vec()), 1..2);
    (name, select(vec!["In", "NotIn"]), values).prop_map(
        |(key, operator, values)| json!({"key": key, "operator": operator, "values": values}),
    )
}

fn term() -> impl Strategy<Value = Value> {
    let fields = prop_oneof![4 => Just(Vec::new()), 1 => vec(field(), 1..3)];
    (vec(requirement(), 0..3), fields).prop_map(
        |(expressions, fields)| json!({"matchExpressions": expressions, "matchFields": fields}),
    )
}

fn well_formed_term() -> impl Strategy<Value = Value> {
    select(vec!["a", "b"]).prop_map(
        |zone| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}),
    )
}

fn affinity() -> impl Strategy<Value = Value> {
    let wish = prop_oneof![8 => well_formed_term().boxed(), 1 => term().boxed()];
    let preferred = vec((0..5, wish), 0..3);
    (option::of(vec(term(), 0..3)), option::of(preferred)).prop_map(|(required, preferred)| {
        let mut all = serde_json::Map::new();
        if let Some(terms) = required {
            let terms = json!({"nodeSelectorTerms": terms});
            all.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), terms);
        }
        if let Some(list) = preferred {
            let list: Vec<Value> =
                list.iter().map(|(w, t)| json!({"weight": w, "preference": t})).collect();
            all.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), json!(list));
        }
        Value::Object(all)
    })
}

fn toleration() -> impl Strategy<Value = k8s::Toleration> {
    let key = select(vec!["", "gpu", "spot", "node.kubernetes.io/unschedulable"]);
    let effect = select(vec!["", "NoSchedule", "PreferNoSchedule"]);
    (key, select(vec!["", "Equal", "Exists"]), select(vec!["", "x"]), effect).prop_map(
        |(key, operator, value, effect)| k8s::Toleration {
            key: key.into(),
            operator: operator.into(),
            value: value.into(),
            effect: effect.into(),
        },
    )
}

fn labels() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    vec((select(vec!["app", "tier"]), select(vec!["x", "y"])), 0..3)
}

fn label_selector() -> impl Strategy<Value = Value> {
    let label = (select(vec!["app", "tier"]), select(vec!["x", "y"]));
    let operator = select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let expression = (label.clone(), operator).prop_map(|((key, value), operator)| {
        let values = if operator.ends_with("In") { vec![value] } else { Vec::new() };
        json!({"key": key, "operator": operator, "values": values})
    });
    (vec(label, 0..2), vec(expression, 0..2)).prop_map(|(labels, expressions)| {
        let labels: serde_json::Map<String, Value> =
            labels.into_iter().map(|(k, v)| (k.to_owned(), json!(v))).collect();
        json!({"matchLabels": labels, "matchExpressions": expressions})
    })
}

const TOPOLOGY: [&str; 4] = ["zone", "size", "kubernetes.io/hostname", "none"];

fn spread() -> impl Strategy<Value = Value> {
    let key = select(vec!["zone", "size", "kubernetes.io/hostname", "kubernetes.io/hostname"]);
    let policy = || option::of(select(vec!["Honor", "Ignore"]));
    (
        (1..3, key, any::<bool>(), label_selector()),
        (option::of(1..4), policy(), policy(), any::<bool>()),
    )
        .prop_map(|((skew, key, hard, selector), (domains, affinity, taints, keys))| {
            json!({
                "maxSkew": skew,
                "topologyKey": key,
                "whenUnsatisfiable": if hard { "DoNotSchedule" } else { "ScheduleAnyway" },
                "labelSelector": selector,
                "minDomains": domains.filter(|_| hard),
                "nodeAffinityPolicy": affinity,
                "nodeTaintsPolicy": taints,
                "matchLabelKeys": if keys { vec!["app"] } else { Vec::new() },
            })
        })
}

fn pod_term() -> impl Strategy<Value = Value> {
    let namespaces = vec(select(vec!["default", "other"]), 0..2);
    let by_label = option::weighted(0.3, label_selector());
    (option::weighted(0.9, label_selector()), select(TOPOLOGY.to_vec()), namespaces, by_label)
        .prop_map(|(selector, key, namespaces, by_label)| {
            json!({
                "labelSelector": selector,
                "topologyKey": key,
                "namespaces": namespaces,
                "namespaceSelector": by_label,
            })
        })
}

fn pod_affinity() -> impl Strategy<Value = Value> {
    let wish = (1..100, pod_term())
        .prop_map(|(weight, term)| json!({"weight": weight, "podAffinityTerm": term}));
    (vec(pod_term(), 0..2), vec(wish, 0..2)).prop_map(|(required, preferred)| {
        json!({
            "requiredDuringSchedulingIgnoredDuringExecution": required,
            "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        })
    })
}

/// What a pod asks for, with affinity to other pods, but no constraints on nodes.
pub(crate) fn any_load() -> impl Strategy<Value = k8s::Pod> {
    let namespace = select(vec!["default", "default", "other"]);
    let affinity = || option::weighted(0.2, pod_affinity());
    (any_requests(), labels(), namespace, affinity(), affinity()).prop_map(
        |(mut pod, labels, namespace, near, apart)| {
            pod.metadata.namespace = namespace.to_owned();
            for (key, value) in labels {
                pod = pod.pod_label(key, value);
            }
            for (side, near) in [(near, true), (apart, false)] {
                let Some(side) = side else { continue };
                let affinity = pod.spec.affinity.get_or_insert_default();
                let slot =
                    if near { &mut affinity.pod_affinity } else { &mut affinity.pod_anti_affinity };
                *slot = Some(super::wire(side));
            }
            pod
        },
    )
}

/// What a pod asks for.
fn any_requests() -> impl Strategy<Value = k8s::Pod> {
    let cpu = option::of(select(vec!["100m", "1", "1500m"]));
    let memory = option::of(select(vec!["1Gi", "64Mi", "0"]));
    let gpu = option::weighted(0.3, select(vec!["1", "0"]));
    let port = option::weighted(
        0.3,
        (select(vec![80, 443]), select(vec!["", "UDP"]), select(vec!["", "10.0.0.1"])),
    );
    (cpu, memory, gpu, port, option::weighted(0.3, volumes())).prop_map(
        |(cpu, memory, gpu, port, volumes)| {
            let mut pod = pod("p").req(&[]);
            if let Some(volumes) = volumes {
                pod.spec.volumes = super::wire(volumes);
            }
            let requests = &mut pod.spec.containers[0].resources.requests;
            let named = [("cpu", cpu), ("memory", memory), ("example.com/gpu", gpu)];
            for (name, amount) in named.into_iter().filter_map(|(n, a)| Some((n, a?))) {
                requests.insert(name.to_owned(), quantity(amount));
            }
            match port {
                Some((port, protocol, ip)) => pod.host_port(port, protocol, ip),
                None => pod,
            }
        },
    )
}

/// Names of claims that random pods use.
const CLAIMS: [&str; 3] = ["c0", "c1", "c2"];

/// Volumes of a pod.
fn volumes() -> impl Strategy<Value = Value> {
    let claim = select(CLAIMS.to_vec())
        .prop_map(|name| json!({"name": "v", "persistentVolumeClaim": {"claimName": name}}));
    let disk = (select(vec!["a", "b"]), any::<bool>()).prop_map(
        |(name, ro)| json!({"name": "v", "gcePersistentDisk": {"pdName": name, "readOnly": ro}}),
    );
    vec(prop_oneof![3 => claim.boxed(), 2 => disk.boxed()], 1..3).prop_map(|list| json!(list))
}

/// A volume, claim, class, driver or node's drivers: few of each, so that they
/// meet.
pub(crate) fn any_object() -> impl Strategy<Value = Object> {
    let volume = (
        0..4usize,
        select(NODES.to_vec()),
        select(vec!["1Gi", "5Gi", "9Gi"]),
        select(vec!["Available", "Available", "Bound"]),
        option::weighted(0.3, select(CLAIMS.to_vec())),
        option::weighted(0.3, select(vec!["a", "b", "a__b"])),
    )
        .prop_map(|(i, host, size, phase, claim, zone)| {
            let labels = zone.map(|z| json!({"topology.kubernetes.io/zone": z}));
            let claim = claim.map(|c| json!({"namespace": "default", "name": c}));
            super::wire(json!({"metadata": {"name": format!("v{i}"), "labels": labels},
                "spec": {"capacity": {"storage": size}, "storageClassName": "local",
                    "claimRef": claim, "csi": {"driver": "csi.x", "volumeHandle": i.to_string()},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                        {"key": "host", "operator": "In", "values": [host, "n0"]}]}]}}},
                "status": {"phase": phase}}))
        })
        .prop_map(Object::PersistentVolume);
    let claim = (
        select(CLAIMS.to_vec()),
        option::weighted(0.5, 0..4usize),
        select(vec!["local", "made"]),
        select(vec!["1Gi", "5Gi"]),
        select(vec!["ReadWriteOnce", "ReadWriteOncePod"]),
    )
        .prop_map(|(name, volume, class, size, mode)| {
            let done = volume.map(|_| json!({"pv.kubernetes.io/bind-completed": "yes"}));
            super::wire(json!({
                "metadata": {"name": name, "namespace": "default", "annotations": done},
                "spec": {"storageClassName": class, "volumeName": volume.map(|v| format!("v{v}")),
                    "accessModes": [mode], "resources": {"requests": {"storage": size}}}}))
        })
        .prop_map(Object::PersistentVolumeClaim);
    let class = (select(vec![("local", "kubernetes.io/no-provisioner"), ("made", "csi.x")]))
        .prop_map(|(name, provisioner)| {
            super::wire(json!({"metadata": {"name": name}, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer"}))
        })
        .prop_map(Object::StorageClass);
    let drivers = (select(NODES.to_vec()), 0..3i32)
        .prop_map(|(node, count)| {
            super::wire(json!({"metadata": {"name": node}, "spec": {"drivers": [
                {"name": "csi.x", "allocatable": {"count": count}},
                {"name": "pd.csi.storage.gke.io", "allocatable": {"count": count}}]}}))
        })
        .prop_map(Object::CSINode);
    prop_oneof![4 => volume, 4 => claim, 2 => class, 2 => drivers]
}

/// A pod with constraints.
pub(crate) fn any_pod() -> impl Strategy<Value = k8s::Pod> {
    let selector = option::weighted(0.2, select(vec!["a", "b", "c"]));
    let target = option::weighted(0.1, select(vec!["n0", "n1", "gone"]));
    (
        any_load(),
        option::weighted(0.6, affinity()),
        selector,
        vec(toleration(), 0..3),
        vec(select(IMAGES.to_vec()), 0..3),
        target,
        vec(spread(), 0..3),
    )
        .prop_map(|(mut pod, affinity, zone, tolerations, images, target, spread)| {
            pod.spec.topology_spread_constraints = spread.into_iter().map(super::wire).collect();
            let mut pod = images.into_iter().fold(pod, PodExt::container);
            pod.spec.tolerations = tolerations;
            if let Some(affinity) = affinity {
                pod = pod.node_affinity(affinity);
            }
            if let Some(zone) = zone {
                pod = pod.node_selector("zone", zone);
            }
            pod.on(target.unwrap_or_default())
        })
}

/// Names of random policies.
pub(crate) const POLICIES: [&str; 3] = ["high", "low", "mid"];

/// A policy, mostly one that makes sense.
pub(crate) fn any_policy() -> impl Strategy<Value = muster::SchedulingPolicy> {
    let plugin = select(vec![
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "ImageLocality",
        "NodeAffinity",
        "TaintToleration",
        "PodTopologySpread",
        "InterPodAffinity",
    ]);
    let weights = vec((plugin, select(vec![0, 1, 3, 100])), 0..4);
    let placement = option::of(select(vec![
        json!({"strategy": "Pack"}),
        json!({"strategy": "Spread"}),
        json!({"strategy": "Balanced"}),
        json!({"strategy": "PackAtLowLoad", "packBelowPercent": 20, "spreadAbovePercent": 50}),
        json!({"strategy": "PackAtLowLoad", "packBelowPercent": 40, "spreadAbovePercent": 60,
            "loadResource": "example.com/gpu"}),
    ]));
    let pods = option::of(label_selector());
    (select(POLICIES.to_vec()), 0..3, weights, placement, pods).prop_map(
        |(name, priority, weights, placement, pods)| {
            let weights = weights.iter().map(|(p, w)| json!({"plugin": p, "weight": w}));
            let mut spec = json!({
                "priority": priority, "scoreWeights": weights.collect::<Vec<_>>(),
            });
            if let Some(placement) = placement {
                spec["placement"] = placement;
            }
            if let Some(pods) = pods {
                spec["podSelector"] = pods;
            }
            super::wire(json!({"metadata": {"name": name, "uid": name}, "spec": spec}))
        },
    )
}
