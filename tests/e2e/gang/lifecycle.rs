//! Nodes whose kubelets fall silent, as the real node lifecycle controller tells it: under
//! gangs that wait, that are being bound, and that run.
//!
//! The test plays the kubelets: it renews their leases, runs pods, and ends deleted ones.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use jiff::Timestamp;
use muster_control_plane::ControlPlane;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::permit::{config, decide, gang};
use super::record::Record;
use super::{
    GROUPS, LABEL, PODS, all_say, delete, end, is_bound, make, members, patch, planned, reads,
};
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON, eventually};

const MIN: usize = 3;
/// One more than a gang needs.
const NODES: usize = 4;
/// How long a kubelet may be silent: longer than a turn of all of them on a busy machine.
const GRACE: u64 = 10;
/// By then it is known that a node is lost, and its pods are planned elsewhere.
const AGAIN: Duration = Duration::from_secs(GRACE + 10);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_survive_silent_nodes() -> Result<()> {
    let grace = format!("--node-monitor-grace-period={GRACE}s");
    let builder = ControlPlane::builder()
        .controllers(&["node-lifecycle-controller", "taint-eviction-controller", "job-controller"])
        .controller_manager_args(&[&grace, "--node-monitor-period=1s"]);
    let cluster = Cluster::start(builder).await?;
    install(&cluster).await?;
    let lease_namespace = json!({"metadata": {"name": "kube-node-lease"}});
    // The API server makes it too, sooner or later.
    let _ = ask(&cluster.admin, Method::POST, "/api/v1/namespaces", &lease_namespace).await;
    cluster.nodes(NODES).await?;
    let kubelets = Kubelets::start(&cluster).await?;
    let file = cluster.cp.dir().join("config.yaml");
    std::fs::write(&file, config())?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "3", "--config", &file.display().to_string()])?;
    let played = async {
        all_ready(&cluster).await?;
        waiting(&cluster, &record, &kubelets).await.context("waiting")?;
        binding(&cluster, &record, &kubelets).await.context("binding")?;
        running(&cluster, &record, &kubelets).await.context("running")
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

fn name(node: usize) -> String {
    format!("node-{node:03}")
}

/// What kubelets do of which the control plane hears.
struct Kubelets {
    silent: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Kubelets {
    async fn start(cluster: &Cluster) -> Result<Self> {
        for node in 0..NODES {
            let lease = json!({"metadata": {"name": name(node)},
                "spec": {"holderIdentity": name(node), "leaseDurationSeconds": GRACE}});
            let made = ask(&cluster.admin, Method::POST, LEASES, &lease).await;
            made.map_err(anyhow::Error::msg)?;
        }
        let silent = Arc::<Mutex<BTreeSet<String>>>::default();
        let (client, mute) = (cluster.admin.clone(), Arc::clone(&silent));
        let task = tokio::spawn(async move {
            loop {
                let mute = mute.lock().unwrap().clone();
                for node in (0..NODES).map(name).filter(|node| !mute.contains(node)) {
                    // What fails is tried again in the next turn.
                    let _ = beat(&client, &node).await;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(Self { silent, task })
    }

    fn silence(&self, node: &str) {
        self.silent.lock().unwrap().insert(node.to_owned());
    }

    /// The kubelet speaks again, and says that its node is ready.
    async fn revive(&self, cluster: &Cluster, node: &str) -> Result<()> {
        self.silent.lock().unwrap().remove(node);
        let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady",
            "lastHeartbeatTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}]);
        let path = format!("/api/v1/nodes/{node}/status");
        patch(cluster, &path, &json!({"status": {"conditions": ready}})).await?;
        all_ready(cluster).await
    }
}

/// One turn of a kubelet: its lease is renewed, its pods run or end.
async fn beat(client: &kube::Client, node: &str) -> Result<(), String> {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let lease = format!("{LEASES}/{node}");
    ask(client, Method::PATCH, &lease, &json!({"spec": {"renewTime": now}})).await?;
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
    let pods = ask(client, Method::GET, &path, &Value::Null).await?;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap_or_default());
        if pod["metadata"]["deletionTimestamp"].is_string() {
            ask(client, Method::DELETE, &path, &json!({"gracePeriodSeconds": 0})).await?;
        } else if pod["status"]["phase"] == "Pending" {
            let ready = json!([{"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "True"}]);
            let status = json!({"status": {"phase": "Running", "conditions": ready}});
            ask(client, Method::PATCH, &format!("{path}/status"), &status).await?;
        }
    }
    Ok(())
}

/// No node is tainted any more.
async fn all_ready(cluster: &Cluster) -> Result<()> {
    eventually("ready", SOON, || async {
        let nodes: Vec<Value> = cluster.list("/api/v1/nodes").await?;
        Ok(nodes.len() == NODES && nodes.iter().all(|node| node["spec"]["taints"].is_null()))
    })
    .await
}

async fn forget(cluster: &Cluster, record: &Record, gang: &str) -> Result<()> {
    for i in 0..MIN {
        delete(cluster, &format!("{PODS}/{gang}-{i}")).await?;
    }
    delete(cluster, &format!("{GROUPS}/{gang}")).await?;
    record.wait("tidied", SOON, |r| r.bound(gang) == 0).await
}

/// A gang that waits for an approval is planned again without the silent node.
async fn waiting(cluster: &Cluster, record: &Record, kubelets: &Kubelets) -> Result<()> {
    gang(cluster, "wait", "approved", "3", &json!({"minMember": MIN})).await?;
    all_say(cluster, "wait", "WaitingOnPermit: ").await?;
    eventually("planned", SOON, || async { Ok(planned(cluster, "wait").await?.len() == MIN) })
        .await?;
    let lost = planned(cluster, "wait").await?.first().context("no node")?.clone();
    kubelets.silence(&lost);
    let begin = Instant::now();
    eventually("planned again", AGAIN, || async {
        let now = planned(cluster, "wait").await?;
        Ok(now.len() == MIN && !now.contains(&lost))
    })
    .await?;
    cluster.say(&format!("waiting: planned again {:?} after the silence began", begin.elapsed()));
    ensure!(record.bound("wait") == 0, "{} are bound", record.bound("wait"));
    for i in 0..MIN {
        decide(cluster, &format!("wait-{i}"), "True").await?;
    }
    record.wait_bound("wait", MIN, SOON).await?;
    record.check("wait", MIN, None)?;
    forget(cluster, record, "wait").await?;
    kubelets.revive(cluster, &lost).await
}

/// A gang between the two barriers, where its volumes are being bound, moves away from the
/// silent node before a bind is sent.
async fn binding(cluster: &Cluster, record: &Record, kubelets: &Kubelets) -> Result<()> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    });
    let made = ask(&cluster.admin, Method::POST, "/apis/storage.k8s.io/v1/storageclasses", &class);
    made.await.map_err(anyhow::Error::msg)?;
    // So that it is known which nodes are taken.
    let (lost, spare) = (name(0), name(NODES - 1));
    let cordon = |on: Option<bool>| json!({"spec": {"unschedulable": on}});
    patch(cluster, &format!("/api/v1/nodes/{spare}"), &cordon(Some(true))).await?;
    make(cluster, "bind", &json!({"minMember": MIN})).await?;
    for i in 0..MIN {
        volume_and_claim(cluster, i).await?;
        let made = ask(&cluster.admin, Method::POST, PODS, &with_claim(i)).await;
        made.map_err(anyhow::Error::msg)?;
    }
    // The volumes are claimed: PreBind waits for their controller, which is not there.
    eventually("claimed", SOON, || async {
        let volumes: Vec<Value> = cluster.list(VOLUMES).await?;
        Ok(volumes.iter().all(|volume| volume["spec"]["claimRef"].is_object()))
    })
    .await?;
    patch(cluster, &format!("/api/v1/nodes/{spare}"), &cordon(None)).await?;
    kubelets.silence(&lost);
    let path = format!("/api/v1/nodes/{lost}");
    eventually("said to be lost", AGAIN, || async {
        let node = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
        let node = node.map_err(anyhow::Error::msg)?;
        Ok(node["spec"]["taints"].as_array().is_some_and(|taints| taints.len() == 2))
    })
    .await?;
    ensure!(record.bound("bind") == 0, "{} are bound", record.bound("bind"));
    let volumes: Vec<Value> = cluster.list(VOLUMES).await?;
    for volume in volumes {
        finish_claim(cluster, &volume).await?;
    }
    record.wait_bound("bind", MIN, SOON).await?;
    record.check("bind", MIN, None)?;
    let pods = members(cluster, "bind").await?;
    let on: BTreeSet<&str> =
        pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
    ensure!(on.len() == MIN && !on.contains(lost.as_str()), "{on:?}, {lost} is lost");
    cluster.say(&format!("being bound: moved from {lost} to {spare} before a bind was sent"));
    forget(cluster, record, "bind").await?;
    kubelets.revive(cluster, &lost).await
}

async fn volume_and_claim(cluster: &Cluster, i: usize) -> Result<()> {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("bind-{i}")},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late", "nfs": {"server": "example.invalid", "path": "/"}},
    });
    cluster.create(&volume).await?;
    let available = json!({"status": {"phase": "Available"}});
    patch(cluster, &format!("{VOLUMES}/bind-{i}/status"), &available).await?;
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("bind-{i}"), "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    cluster.create(&claim).await
}

fn with_claim(i: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("bind-{i}"), "labels": {LABEL: "bind"}},
        "spec": {"schedulerName": "muster", "automountServiceAccountToken": false,
            "volumes": [{"name": "data",
                "persistentVolumeClaim": {"claimName": format!("bind-{i}")}}],
            "containers": [{"name": "main", "image": "example.invalid/none",
                "resources": {"requests": {"cpu": "3", "memory": "16Mi"}}}]},
    })
}

/// As the controller of volumes does.
async fn finish_claim(cluster: &Cluster, volume: &Value) -> Result<()> {
    let claim = volume["spec"]["claimRef"]["name"].as_str().context("not claimed")?;
    let path = format!("{CLAIMS}/{claim}");
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume["metadata"]["name"]},
    });
    patch(cluster, &path, &bound).await?;
    patch(cluster, &format!("{path}/status"), &json!({"status": {"phase": "Bound"}})).await?;
    Ok(())
}

/// A Job that runs loses a node: the group says so, the pod there is deleted and stays, for
/// nobody ends it; its replacement is bound beside the others, and none counts twice.
async fn running(cluster: &Cluster, record: &Record, kubelets: &Kubelets) -> Result<()> {
    make(cluster, "run", &json!({"minMember": MIN})).await?;
    let tolerations: Vec<Value> = ["not-ready", "unreachable"]
        .map(|what| {
            json!({"key": format!("node.kubernetes.io/{what}"), "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 1})
        })
        .into();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "run"},
        "spec": {"completions": MIN, "parallelism": MIN, "template": {
            "metadata": {"labels": {LABEL: "run"}},
            "spec": {"schedulerName": "muster", "restartPolicy": "Never",
                "automountServiceAccountToken": false, "tolerations": tolerations,
                "containers": [{"name": "main", "image": "example.invalid/none",
                    "resources": {"requests": {"cpu": "3", "memory": "16Mi"}}}]},
        }},
    });
    ask(&cluster.admin, Method::POST, JOBS, &job).await.map_err(anyhow::Error::msg)?;
    record.wait_bound("run", MIN, SOON).await?;
    reads(cluster, "run", "Running/Running").await?;
    let pods = members(cluster, "run").await?;
    let lost = pods[0]["spec"]["nodeName"].as_str().context("no node")?.to_owned();
    kubelets.silence(&lost);
    let begin = Instant::now();
    let seen = reads(cluster, "run", "Degraded/NodeLost").await?;
    let message = seen.message.unwrap_or_default();
    ensure!(message.contains(&lost), "{message}");
    cluster.say(&format!("running: degraded {:?} after the silence began", begin.elapsed()));
    // The job controller replaces the pod that is being deleted.
    eventually("replaced", SOON, || async {
        let pods = members(cluster, "run").await?;
        let elsewhere = |pod: &&Value| is_bound(pod) && pod["spec"]["nodeName"] != *lost;
        Ok(pods.len() == MIN + 1 && pods.iter().filter(elsewhere).count() == MIN)
    })
    .await?;
    cluster.say(&format!("running: replaced {:?} after the silence began", begin.elapsed()));
    let seen = reads(cluster, "run", "Running/Running").await?;
    let counts = seen.members.unwrap_or_default();
    ensure!(counts.running == MIN as i32 && counts.terminating == 1, "{counts:?}");
    kubelets.revive(cluster, &lost).await?;
    eventually("ended", SOON, || async { Ok(members(cluster, "run").await?.len() == MIN) }).await?;
    reads(cluster, "run", "Running/Running").await?;
    cluster.check_room().await
}
