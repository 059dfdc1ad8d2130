//! The GPUs that a pod is expected to get, on a real API server: they arrive with the bind.

use std::collections::BTreeMap;
use std::pin::pin;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube_runtime::watcher::{self, Event, watcher};
use muster_api::muster::annotations::PREDICTED_DEVICES;
use muster_control_plane::{ControlPlane, Process};
use serde_json::{Value, json};

use crate::node_topology::{TOPOLOGIES, name, report, uuid, wait_for};
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON};

const GPU: &str = "nvidia.com/gpu";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, gpus: u32) -> Value {
    let amounts = json!({GPU: gpus.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"own": "stays"}},
        "spec": {
            "schedulerName": "muster", "schedulingGates": [{"name": "test/wait"}],
            "containers": [{"name": "main", "image": "i",
                "resources": {"requests": amounts, "limits": amounts}}],
        },
    })
}

/// Lets a pod be scheduled that is seen waiting, and has the annotations of the first version
/// of it that has a node: what is there has come with the bind.
async fn first_bound(cluster: &Cluster, name: &str) -> Result<BTreeMap<String, String>> {
    let api: Api<Pod> = Api::namespaced(cluster.admin.clone(), "default");
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(api, config));
    let mut waited = false;
    let seen = async {
        while let Some(event) = events.next().await {
            let (Event::Apply(pod) | Event::InitApply(pod)) = event? else { continue };
            if pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
                ensure!(waited, "{name} was bound although it is gated");
                return Ok(pod.metadata.annotations.unwrap_or_default());
            }
            let annotations = pod.metadata.annotations.unwrap_or_default();
            ensure!(!annotations.contains_key(PREDICTED_DEVICES), "{name} has it before the bind");
            if !std::mem::replace(&mut waited, true) {
                let path = format!("{PODS}/{name}");
                let open = json!({"spec": {"schedulingGates": []}});
                let answer = ask(&cluster.admin, Method::PATCH, &path, &open).await;
                answer.map_err(anyhow::Error::msg)?;
            }
        }
        anyhow::bail!("the watch has ended")
    };
    tokio::time::timeout(SOON, seen).await.context("it is not bound")?
}

/// Starts the program; `name` is its log's.
fn start(cluster: &Cluster, name: &str) -> Result<Process> {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "profiles": [{
            "schedulerName": "muster",
            "plugins": {"multiPoint": {"enabled": [{"name": "GpuLinks", "weight": 5}]}},
            "pluginConfig": [{"name": "GpuLinks", "args": {"damagePoints": 30}}],
        }],
    });
    let file = cluster.cp.dir().join("gpu-links.yaml");
    std::fs::write(&file, config.to_string())?;
    let file = file.display().to_string();
    let muster = cluster.muster(name, &["--config", &file])?;
    wait_for(&muster, "listing reports", &["listed", "NodeTopology"])?;
    Ok(muster)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_expected_gpus_arrive_with_the_bind() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    let room = json!({"cpu": "224", "memory": "2Ti", "pods": "110", GPU: "8"});
    cluster
        .create(&json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(0)},
            "status": {"capacity": room, "allocatable": room,
                "conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .await?;
    let told = ask(&cluster.admin, Method::POST, TOPOLOGIES, &report(0)).await;
    told.map_err(anyhow::Error::msg)?;
    let muster = start(&cluster, "first")?;
    // Four of a side, a pair of the other, and what is left.
    let expected: [(&str, &[usize]); 3] =
        [("four", &[0, 1, 2, 3]), ("two", &[4, 5]), ("rest", &[6, 7])];
    for (name, gpus) in expected {
        expect(&cluster, name, gpus).await?;
    }
    // After a restart what is expected of pods that the agent has not seen still counts.
    drop(muster);
    let (two, now) = (format!("{PODS}/two"), json!({"gracePeriodSeconds": 0}));
    ask(&cluster.admin, Method::DELETE, &two, &now).await.map_err(anyhow::Error::msg)?;
    let muster = start(&cluster, "second")?;
    expect(&cluster, "again", &[4, 5]).await?;
    ensure!(muster.is_running(), "it has ended");
    Ok(())
}

/// Creates a pod that is bound with these GPUs.
async fn expect(cluster: &Cluster, name: &str, gpus: &[usize]) -> Result<()> {
    cluster.create(&pod(name, gpus.len() as u32)).await?;
    let annotations = first_bound(cluster, name).await?;
    let text = annotations.get(PREDICTED_DEVICES).context("no annotation")?;
    let ids: Vec<String> = gpus.iter().map(|gpu| uuid(0, *gpu)).collect();
    ensure!(serde_json::from_str::<Value>(text)? == json!({GPU: ids}), "{name}: {text}");
    ensure!(annotations.get("own").map(String::as_str) == Some("stays"), "{annotations:?}");
    cluster.say(&format!("{name}: {text}"));
    Ok(())
}
