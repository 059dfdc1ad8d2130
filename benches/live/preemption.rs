//! What is there before the pods that preempt: full nodes.

use anyhow::Result;
use kube::Client;
use muster_control_plane::{KUBE_SCHEDULER, create_objects};
use serde_json::{Value, json};

/// Pods that preempt, at most.
pub(crate) const PREEMPTORS: usize = 2_000;
/// Pods of lower priority on each node, in a namespace of their own.
const LOW: usize = 4;
pub(crate) const LOW_PODS: &str = "/api/v1/namespaces/low/pods";

/// The class of those who preempt, a namespace for the others, and the right to evict,
/// which the role of kube-scheduler lacks: it deletes.
pub(crate) async fn prepare(client: &Client) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "evict"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
            {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"],
             "verbs": ["get", "list", "watch"]},
        ],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "evict"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "evict"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": KUBE_SCHEDULER}],
    });
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high"}, "value": 1_000,
    });
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "low"},
    });
    for (path, object) in [
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", role),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", class),
        ("/api/v1/namespaces", namespace),
    ] {
        create_objects(client, path, "objects", 1, |_| object.clone()).await?;
    }
    Ok(())
}

/// Fills every node.
pub(crate) async fn fill(client: &Client, nodes: usize) -> Result<()> {
    create_objects(client, LOW_PODS, "pods of low priority", nodes * LOW, low_pod).await
}

/// One of the pods that fill a node. It goes the moment it is deleted or evicted: what
/// is measured is the scheduler, not a kubelet.
fn low_pod(i: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("low-{i:05}")},
        "spec": {
            "nodeName": format!("node-{:05}", i / LOW),
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "example.invalid/none",
                "resources": {"requests": {"cpu": "900m", "memory": "1Gi"}},
            }],
        },
    })
}
