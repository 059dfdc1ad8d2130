//! Work that needs every right of the scheduler: gangs of three APIs, volumes of two sorts,
//! preemption, pods that wait, a topology, a policy, somebody who reads metrics.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use http::Method;
use muster_control_plane::{create_nodes, node};
use serde_json::{Value, json};

use super::cluster::{Cluster, SOON, eventually, read, surface};

const PODS: &str = "/api/v1/namespaces/ml/pods";
const RACK: &str = "example.com/rack";

/// A pod that names no scheduler: its namespace is one whose pods get the name.
fn pod(name: &str, labels: &Value, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "i",
            "resources": {"requests": {"cpu": cpu}}}]},
    })
}

pub(super) async fn play(cluster: &Cluster, port: u16) -> Result<()> {
    create_nodes(&cluster.admin, 6, |i| {
        let mut node = node(&format!("node-{i}"), "4", "16Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert(RACK.to_owned(), format!("r{}", i / 3));
        node
    })
    .await?;
    assigned(cluster).await?;
    for object in [
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "ClusterTopology",
            "metadata": {"name": "fabric"},
            "spec": {"levels": [{"name": "rack", "nodeLabel": RACK}]}}),
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "SchedulingPolicy",
            "metadata": {"name": "pack"},
            "spec": {"priority": 1, "placement": {"strategy": "Pack"}}}),
    ] {
        cluster.create(&object).await?;
    }
    gang(cluster, "train", 4).await?;
    others(cluster).await?;
    volumes(cluster).await?;
    preemption(cluster).await?;
    cluster.create(&pod("huge", &json!({}), "64")).await?;

    let prometheus = surface(port, Some(cluster.token("monitoring", "prometheus").await?))?;
    let metrics = read(&prometheus, "/metrics").await?;
    ensure!(metrics.contains("\nmuster_build_info{"), "{metrics}");
    let muster = surface(port, Some(cluster.token("muster-system", "muster").await?))?;
    ensure!(read(&muster, "/metrics").await.is_err(), "metrics are open to whom they are not");
    Ok(())
}

/// The admission policy of the chart is in force when it has given a pod the name.
async fn assigned(cluster: &Cluster) -> Result<()> {
    let probe = pod("probe", &json!({}), "1");
    let path = format!("{PODS}?dryRun=All");
    eventually("given a scheduler", SOON, async || {
        let made = cluster.call(Method::POST, &path, &probe).await?;
        Ok(made.is_ok_and(|made| made["spec"]["schedulerName"] == "muster"))
    })
    .await?;
    // Only what is chosen: another namespace, and there a pod with the label.
    for (labels, expected) in
        [(json!({}), "default-scheduler"), (json!({"muster.dev/schedule": "enabled"}), "muster")]
    {
        let mut probe = pod("probe", &labels, "1");
        probe["metadata"]["namespace"] = "default".into();
        let path = "/api/v1/namespaces/default/pods?dryRun=All";
        let made = cluster.call(Method::POST, path, &probe).await?.map_err(anyhow::Error::msg)?;
        ensure!(made["spec"]["schedulerName"] == expected, "{labels}: {}", made["spec"]);
    }
    cluster.say("pods are given the scheduler's name");
    Ok(())
}

/// Whether all pods of these names have a node.
async fn bound(cluster: &Cluster, names: &[String]) -> Result<bool> {
    for name in names {
        let pod = cluster.get(&format!("{PODS}/{name}")).await?;
        let pod = pod.with_context(|| format!("no pod {name}"))?;
        if pod["spec"]["nodeName"].is_null() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A gang in one rack is scheduled, and its status says so.
pub(super) async fn gang(cluster: &Cluster, name: &str, members: usize) -> Result<()> {
    cluster
        .create(&json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "ml"},
            "spec": {"minMember": members, "topology": {"required": "rack"}}}))
        .await?;
    let names: Vec<String> = (0..members).map(|i| format!("{name}-{i}")).collect();
    for member in &names {
        cluster.create(&pod(member, &json!({"muster.dev/pod-group": name}), "100m")).await?;
    }
    let path = format!("/apis/muster.dev/v1alpha1/namespaces/ml/podgroups/{name}");
    let scheduled = async || {
        let group = cluster.get(&path).await?.context("the group")?;
        let conditions = group["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let said = conditions.iter().any(|c| c["type"] == "Scheduled" && c["status"] == "True");
        Ok(said && bound(cluster, &names).await?)
    };
    eventually("scheduled", SOON, scheduled).await.with_context(|| format!("gang {name}"))?;
    cluster.say(&format!("gang {name} is scheduled"));
    Ok(())
}

/// Gangs of Kubernetes' own API and of scheduler-plugins.
async fn others(cluster: &Cluster) -> Result<()> {
    let groups = [
        json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": "native", "namespace": "ml"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}),
        json!({"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "plugin", "namespace": "ml"}, "spec": {"minMember": 2}}),
    ];
    for group in &groups {
        cluster.create(group).await?;
    }
    let mut names = Vec::new();
    for i in 0..2 {
        let mut native = pod(&format!("native-{i}"), &json!({}), "100m");
        native["spec"]["schedulingGroup"] = json!({"podGroupName": "native"});
        let label = json!({"scheduling.x-k8s.io/pod-group": "plugin"});
        for pod in [native, pod(&format!("plugin-{i}"), &label, "100m")] {
            names.push(pod["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            cluster.create(&pod).await?;
        }
    }
    eventually("bound", SOON, async || bound(cluster, &names).await).await?;
    cluster.say("gangs of other APIs are scheduled");
    Ok(())
}

/// A claim for a disk that exists, and one for a disk that is to be made. Nobody plays the
/// volume controller: that the scheduler writes is enough.
async fn volumes(cluster: &Cluster) -> Result<()> {
    for (class, provisioner) in
        [("local", "kubernetes.io/no-provisioner"), ("made", "example.com/provisioner")]
    {
        cluster
            .create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": class}, "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer"}))
            .await?;
        cluster
            .create(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": class, "namespace": "ml"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                    "resources": {"requests": {"storage": "1Gi"}}}}))
            .await?;
    }
    let disk = json!({"apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": "disk"}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "local": {"path": "/mnt/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]}}}});
    cluster.create(&disk).await?;
    let status = json!({"status": {"phase": "Available"}});
    let path = "/api/v1/persistentvolumes/disk/status";
    cluster.call(Method::PATCH, path, &status).await?.map_err(anyhow::Error::msg)?;
    for claim in ["local", "made"] {
        let mut pod = pod(&format!("with-{claim}"), &json!({}), "100m");
        pod["spec"]["volumes"] =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]);
        cluster.create(&pod).await?;
    }
    Ok(())
}

/// Somebody of the chart's higher classes pushes out somebody of a lower one.
async fn preemption(cluster: &Cluster) -> Result<()> {
    create_nodes(&cluster.admin, 1, |_| node("small", "2", "16Gi", 110)).await?;
    for (name, class) in [("low", "muster-batch"), ("high", "muster-serving")] {
        let mut pod = pod(name, &json!({}), "2");
        pod["spec"]["priorityClassName"] = class.into();
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "small"});
        // Admission learns of classes by a watch of its own.
        eventually("accepted", SOON, async || {
            Ok(cluster.call(Method::POST, PODS, &pod).await?.is_ok())
        })
        .await?;
        let names = [name.to_owned()];
        eventually("bound", SOON, async || bound(cluster, &names).await).await?;
    }
    cluster.say("a pod was pushed out by another");
    Ok(())
}

/// A node that is reserved for others grows: whoever waits for more than there is elsewhere is
/// tried again, in vain, and the event that says so is told again.
pub(super) async fn poke(cluster: &Cluster) -> Result<()> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    if n == 0 {
        let mut reserved = serde_json::to_value(node("reserved", "64", "16Gi", 110))?;
        reserved["spec"] = json!({"taints": [{"key": "reserved", "effect": "NoSchedule"}]});
        cluster.create(&reserved).await?;
    } else if n.is_multiple_of(20) {
        let size = json!({"cpu": (64 + n).to_string()});
        let grown = json!({"status": {"capacity": size, "allocatable": size}});
        let path = "/api/v1/nodes/reserved/status";
        cluster.call(Method::PATCH, path, &grown).await?.map_err(anyhow::Error::msg)?;
    }
    Ok(())
}
