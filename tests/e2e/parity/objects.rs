//! What is there before the pods: volumes, and pods that nobody schedules.

use serde_json::{Value, json};

use super::workload::{HOST, ZONE};

/// Claims that are bound, that nobody can bind, or that one pod uses alone.
pub(super) fn volumes() -> Vec<Value> {
    let class = |name: &str, provisioner: &str, mode: &str| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode,
        })
    };
    let mut objects = vec![
        class("now", "example.com/provisioner", "Immediate"),
        class("late", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        claim("unbound", "ReadWriteMany", json!({"storageClassName": "now"})),
        claim("late", "ReadWriteMany", json!({"storageClassName": "late"})),
    ];
    objects.extend(bound("shared", "ReadWriteMany", Some((ZONE, "z0"))));
    objects.extend(bound("far", "ReadWriteMany", Some((HOST, "nowhere"))));
    objects.extend(bound("single", "ReadWriteOncePod", None));
    objects
}

fn claim(name: &str, mode: &str, spec: Value) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    });
    if let (Some(into), Value::Object(from)) = (claim["spec"].as_object_mut(), spec) {
        into.extend(from);
    }
    claim
}

/// A claim and its volume, bound as the volume controller leaves them.
fn bound(name: &str, mode: &str, on: Option<(&str, &str)>) -> [Value; 2] {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": [mode],
            "csi": {"driver": "example.com", "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": name},
        },
    });
    if let Some((key, value)) = on {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}});
    }
    let mut claim = claim(name, mode, json!({"storageClassName": "", "volumeName": name}));
    claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    [volume, claim]
}

/// Pods that are bound from the beginning, so that what they leave is certain.
pub(super) fn background() -> Vec<Value> {
    let mut pods = Vec::new();
    let mut add = |name: String, node: String, class: &str, cpu: &str, spec: Value| {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "kube-public", "labels": {"app": "background"}},
            "spec": {
                "nodeName": node, "priorityClassName": class,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.invalid/none",
                    "resources": {"requests": {"cpu": cpu}}}],
            },
        });
        if let (Some(into), Value::Object(from)) = (pod["spec"].as_object_mut(), spec) {
            into.extend(from);
        }
        pods.push(pod);
    };
    let none = || json!({});
    let guard = json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": HOST, "namespaces": ["default"],
            "labelSelector": {"matchLabels": {"app": "intruder"}}}]}}});
    for i in 0..10 {
        add(format!("guard-{i}"), format!("guarded-{i:03}"), "high", "100m", guard.clone());
        add(format!("full-{i}"), format!("full-{i:03}"), "mid", "4", none());
        add(format!("tiny-{i}"), format!("tiny-{:03}", i / 2), "mid", "100m", none());
    }
    for i in 0..6 {
        // Taking the lower one away is not enough.
        add(format!("half-low-{i}"), format!("half-{i:03}"), "lowest", "1", none());
        add(format!("half-high-{i}"), format!("half-{i:03}"), "high", "3", none());
    }
    let user = json!({"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "single"}}]});
    add("single".into(), "general-000".into(), "high", "100m", user);
    for pod in pods.iter_mut().filter(|p| p["metadata"]["name"] == "single") {
        // Claims are looked up in the namespace of the pod.
        pod["metadata"]["namespace"] = "default".into();
    }
    pods
}
