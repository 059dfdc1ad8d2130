//! Claims that wait for their first consumer, bound by Muster's writes.

use anyhow::{Context, Result, ensure};
use muster_api::k8s::{PersistentVolume, PersistentVolumeClaim, annotations};
use muster_control_plane::{ControlPlane, create_nodes, node};
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, eventually};

const NODES: usize = 4;

/// A disk of one node.
fn disk(name: &str, node: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local", "local": {"path": "/mnt/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})
}

fn class(name: &str, provisioner: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": name}, "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer"})
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": {"requests": {"storage": size}}}})
}

fn pod(name: &str, claim: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"}, "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "i"}],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}})
}

async fn create(cluster: &Cluster, path: &str, object: &Value) -> Result<()> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(object)?)?;
    cluster.admin.request_text(request).await.with_context(|| object.to_string())?;
    Ok(())
}

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// The smallest disk that will do decides the node; a pod whose claim nobody can
/// satisfy says so, and is placed when a disk appears.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_are_bound_where_the_pod_goes() -> Result<()> {
    let builder = ControlPlane::builder().controllers(&["persistentvolume-binder-controller"]);
    let cluster = Cluster::start(builder).await?;
    create_nodes(&cluster.admin, NODES, |i| {
        let name = format!("node-{i}");
        let mut node = node(&name, "4", "16Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("kubernetes.io/hostname".to_owned(), name);
        node
    })
    .await?;
    create(&cluster, CLASSES, &class("local", "kubernetes.io/no-provisioner")).await?;
    create(&cluster, VOLUMES, &disk("big", "node-1", "100Gi")).await?;
    create(&cluster, VOLUMES, &disk("small", "node-2", "10Gi")).await?;
    create(&cluster, CLAIMS, &claim("data", "local", "5Gi")).await?;
    create(&cluster, CLAIMS, &claim("huge", "local", "1Ti")).await?;
    eventually("available", SOON, || async {
        let volumes: Vec<PersistentVolume> = cluster.list(VOLUMES).await?;
        Ok(volumes.iter().all(|v| v.status.phase == "Available"))
    })
    .await?;
    cluster.say("the volume controller works");

    let muster = cluster.muster("muster", &["-v", "4"])?;
    create(&cluster, PODS, &pod("reader", "data")).await?;
    create(&cluster, PODS, &pod("waiter", "huge")).await?;
    let bound = eventually("bound", SOON, || async {
        Ok(!cluster.get_pod("reader").await?.spec.node_name.is_empty())
    });
    bound.await.with_context(|| muster.log_tail(6_000))?;
    let claims: Vec<PersistentVolumeClaim> = cluster.list(CLAIMS).await?;
    let data = claims.iter().find(|c| c.metadata.name == "data").context("no claim")?;
    // Both disks would do: 5Gi of 10Gi rates 50, 5Gi of 100Gi rates 95.
    ensure!(data.spec.volume_name == "big", "bound to {:?}", data.spec.volume_name);
    let node = cluster.get_pod("reader").await?.spec.node_name;
    ensure!(node == "node-1", "the pod is on {node}, its disk on node-1");
    cluster.say("the claim and its pod are bound to the same node");

    let expected = format!(
        "0/{NODES} nodes are available: {NODES} node(s) didn't find available persistent volumes \
         to bind."
    );
    eventually("told why", SOON, || async {
        let pod = cluster.get_pod("waiter").await?;
        Ok(pod.status.conditions.iter().any(|c| c.message.starts_with(&expected)))
    })
    .await?;
    create(&cluster, VOLUMES, &disk("enormous", "node-3", "2Ti")).await?;
    let bound = eventually("bound once there is a disk", SOON, || async {
        Ok(cluster.get_pod("waiter").await?.spec.node_name == "node-3")
    });
    bound.await.with_context(|| muster.log_tail(6_000))?;
    cluster.say("a new disk let the other one go");
    made_on_demand(&cluster).await.with_context(|| muster.log_tail(6_000))?;
    muster.terminate()?;
    ensure!(muster.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    Ok(())
}

/// Muster names the node; the provisioner (played here) makes the volume; the
/// volume controller binds it; the pod follows.
async fn made_on_demand(cluster: &Cluster) -> Result<()> {
    create(cluster, CLASSES, &class("made", "example.com/provisioner")).await?;
    create(cluster, CLAIMS, &claim("scratch", "made", "1Gi")).await?;
    create(cluster, PODS, &pod("writer", "scratch")).await?;
    let find = || async {
        let claims: Vec<PersistentVolumeClaim> = cluster.list(CLAIMS).await?;
        claims.into_iter().find(|c| c.metadata.name == "scratch").context("no claim")
    };
    let chosen =
        |c: &PersistentVolumeClaim| c.metadata.annotations.get(annotations::SELECTED_NODE).cloned();
    eventually("given a node", SOON, || async { Ok(chosen(&find().await?).is_some()) }).await?;
    let claim = find().await?;
    let node = chosen(&claim).context("no node")?;
    ensure!(cluster.get_pod("writer").await?.spec.node_name.is_empty(), "bound too early");
    let mut volume = disk("provisioned", &node, "1Gi");
    volume["spec"]["storageClassName"] = json!("made");
    volume["spec"]["claimRef"] =
        json!({"namespace": "default", "name": "scratch", "uid": claim.metadata.uid});
    create(cluster, VOLUMES, &volume).await?;
    eventually("bound to the chosen node", SOON, || async {
        Ok(cluster.get_pod("writer").await?.spec.node_name == node)
    })
    .await?;
    cluster.say("a volume was made for the node that Muster chose");
    Ok(())
}
