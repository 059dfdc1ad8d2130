//! Two thousand pods whose fate does not depend on where the others go.
//!
//! Every group that can run has a pool of nodes with room for all of it, or with
//! room for exactly all of it. Whatever must not fit into such a pool has a lower
//! priority than what fills it, and is tried after it. Pods that fill nodes by
//! more than that are bound before any scheduler starts.

use anyhow::Result;
use muster_control_plane::{create_nodes, create_objects, node};
use serde_json::{Value, json};

use super::objects;
use crate::support::Cluster;

pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const GPU: &str = "nvidia.com/gpu";

/// What must become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Runs,
    Waits,
    IsGated,
}

/// Pods that are alike.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) pods: usize,
    pub(super) fate: Fate,
    /// Priority class, or none.
    pub(super) class: &'static str,
    /// Requests beside the usual ones; limits are the same.
    pub(super) requests: Value,
    /// The rest of the spec.
    pub(super) spec: Value,
}

pub(super) fn pod_name(group: &Group, i: usize) -> String {
    format!("{}-{i:03}", group.name)
}

/// Pools of nodes: name, nodes, CPUs and pods of each.
const POOLS: [(&str, usize, &str, u32); 10] = [
    ("general", 60, "64", 110),
    ("dedicated", 10, "64", 110),
    ("gpu", 8, "64", 110),
    ("ports", 40, "64", 110),
    ("hosts", 30, "64", 110),
    ("guarded", 10, "64", 110),
    ("full", 10, "4", 110),
    ("half", 6, "4", 110),
    ("tiny", 5, "64", 2),
    ("cordoned", 5, "64", 110),
];

pub(super) async fn create(cluster: &Cluster, groups: &[Group], scheduler: &str) -> Result<()> {
    for (name, value, policy) in [
        ("lowest", -10, "PreemptLowerPriority"),
        ("mid", 100, "PreemptLowerPriority"),
        ("high", 1_000, "PreemptLowerPriority"),
        ("high-never", 1_000, "Never"),
    ] {
        cluster.priority_class(name, value, policy).await?;
    }
    for (pool, n, cpu, pods) in POOLS {
        create_nodes(&cluster.admin, n, |i| new_node(pool, i, cpu, pods)).await?;
    }
    for object in objects::volumes() {
        cluster.create(&object).await?;
    }
    for pod in objects::background() {
        cluster.create(&pod).await?;
    }
    for group in groups {
        let path = "/api/v1/namespaces/default/pods";
        let make = |i| new_pod(group, i, scheduler);
        create_objects(&cluster.admin, path, "pods", group.pods, make).await?;
    }
    let pods: usize = groups.iter().map(|g| g.pods).sum();
    cluster.say(&format!("{pods} pods created"));
    Ok(())
}

fn new_node(pool: &str, i: usize, cpu: &str, pods: u32) -> k8s_openapi::api::core::v1::Node {
    let mut node = node(&format!("{pool}-{i:03}"), cpu, "256Gi", pods);
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert("pool".to_owned(), pool.to_owned());
    if pool == "general" {
        labels.insert(ZONE.to_owned(), format!("z{}", i % 3));
    }
    let spec = node.spec.get_or_insert_default();
    spec.unschedulable = (pool == "cordoned").then_some(true);
    if matches!(pool, "dedicated" | "gpu") {
        spec.taints = Some(vec![k8s_openapi::api::core::v1::Taint {
            key: pool.to_owned(),
            value: Some("only".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        }]);
    }
    if pool == "gpu" {
        let status = node.status.get_or_insert_default();
        for list in [&mut status.capacity, &mut status.allocatable] {
            let eight = k8s_openapi::apimachinery::pkg::api::resource::Quantity("8".to_owned());
            list.get_or_insert_default().insert(GPU.to_owned(), eight);
        }
    }
    node
}

fn new_pod(group: &Group, i: usize, scheduler: &str) -> Value {
    let mut requests = json!({"cpu": "100m", "memory": "64Mi"});
    merge(&mut requests, &group.requests);
    let mut spec = json!({
        "schedulerName": scheduler,
        "automountServiceAccountToken": false,
        "priorityClassName": group.class,
        "containers": [{
            "name": "main", "image": "example.invalid/none",
            "resources": {"requests": requests, "limits": requests},
        }],
    });
    merge(&mut spec, &group.spec);
    if let Some(port) = spec.as_object_mut().and_then(|spec| spec.remove("hostPort")) {
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": port}]);
    }
    // One claim each where the name says so.
    if let Some(claim) = spec.pointer_mut("/volumes/0/persistentVolumeClaim/claimName")
        && let Some(name) = claim.as_str()
    {
        *claim = name.replace("{i}", &i.to_string()).into();
    }
    // Those over the limit are counted with those that fill it.
    let app = group.name.trim_end_matches("-over");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(group, i), "labels": {"app": app}}, "spec": spec,
    })
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.clone());
    }
}
