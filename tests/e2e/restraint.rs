//! What holds preemption back, changed while it holds: mode, delay, minimum runtime, bucket.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use muster_control_plane::{ControlPlane, create_nodes, create_objects, node};
use serde_json::{Value, json};

use crate::gang::end;
use crate::pod_group::{ask, install};
use crate::policies::{POLICIES, policy};
use crate::support::{Cluster, SOON, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Pods that fill the node, and pods that want their places.
const PODS_EACH: usize = 6;

fn pod(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "muster", "priorityClassName": class,
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.invalid/none",
                "resources": {"requests": {"cpu": "1", "memory": "16Mi"}}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_policy_says_of_preemption_acts_while_pods_wait() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true)).await?;
    install(&cluster).await?;
    cluster.priority_class("high", 1_000, "PreemptLowerPriority").await?;
    eventually("served", SOON, || async {
        Ok(ask(&cluster.admin, Method::GET, POLICIES, &Value::Null).await.is_ok())
    })
    .await?;
    let cpus = PODS_EACH.to_string();
    create_nodes(&cluster.admin, 1, |_| node("node-000", &cpus, "16Gi", 110)).await?;
    create_objects(&cluster.admin, PODS, "pods", PODS_EACH, |i| {
        let mut low = pod(&format!("low-{i}"), "");
        low["spec"]["nodeName"] = "node-000".into();
        low
    })
    .await?;
    eventually("running", SOON, || async {
        let pods: Vec<Value> = cluster.list(PODS).await?;
        Ok(pods.len() == PODS_EACH && pods.iter().all(|p| p["status"]["phase"] == "Running"))
    })
    .await?;
    // In force before anybody comes.
    says(&cluster, Method::POST, &json!({"mode": "Simulate"})).await?;
    let muster = cluster.muster("muster", &["--leader-elect=false", "-v", "2"])?;
    let played = play(&cluster).await;
    played.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

/// The policy now says this of preemption, and nothing else.
async fn says(cluster: &Cluster, method: Method, preemption: &Value) -> Result<()> {
    let mut whole = json!({"mode": null, "delaySeconds": null, "minRuntimeSeconds": null,
        "victimsPerMinute": null});
    for (field, value) in preemption.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    if method == Method::POST {
        whole.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    let path =
        if method == Method::POST { POLICIES.to_owned() } else { format!("{POLICIES}/calm") };
    let object = policy("calm", &json!({"priority": 1, "preemption": whole}));
    ask(&cluster.admin, method, &path, &object).await.map_err(anyhow::Error::msg)?;
    Ok(())
}

/// Conditions of all that wait; how many run in place of others, and how many were there first.
async fn look(cluster: &Cluster) -> Result<(Vec<String>, usize, usize)> {
    let pods: Vec<Value> = cluster.list(PODS).await?;
    let named = |prefix: &str| {
        let of = |p: &&Value| p["metadata"]["name"].as_str().is_some_and(|n| n.starts_with(prefix));
        pods.iter().filter(of).collect::<Vec<_>>()
    };
    let (high, low) = (named("high-"), named("low-"));
    let waits = high.iter().filter(|p| !p["spec"]["nodeName"].is_string());
    let waits: Vec<String> = waits.map(|p| crate::gang::scheduled(p)).collect();
    let runs = high.len() - waits.len();
    Ok((waits, runs, low.len()))
}

/// All that wait say so, and so many have been pushed out.
async fn held(cluster: &Cluster, why: &str, gone: usize) -> Result<()> {
    let last = std::sync::Mutex::new(String::new());
    let waited = eventually(why, SOON, || async {
        let (waits, runs, low) = look(cluster).await?;
        *last.lock().unwrap() = format!("{runs} run, {low} are left; {waits:#?}");
        ensure!(low >= PODS_EACH - gone, "{} went", PODS_EACH - low);
        let told = !waits.is_empty() && waits.iter().all(|said| said.contains(why));
        Ok(told && runs == gone && low == PODS_EACH - gone)
    })
    .await;
    waited.with_context(|| last.lock().unwrap().clone())?;
    cluster.say(&format!("{gone} went: {why}"));
    Ok(())
}

async fn play(cluster: &Cluster) -> Result<()> {
    create_objects(&cluster.admin, PODS, "pods", PODS_EACH, |i| pod(&format!("high-{i}"), "high"))
        .await?;
    held(cluster, "would evict 1 pods from node node-000 (Simulate)", 0).await?;
    says(cluster, Method::PATCH, &json!({"mode": "Never"})).await?;
    held(cluster, "mode Never", 0).await?;
    says(cluster, Method::PATCH, &json!({"delaySeconds": 3600})).await?;
    held(cluster, "(delaySeconds)", 0).await?;
    says(cluster, Method::PATCH, &json!({"minRuntimeSeconds": 3600})).await?;
    held(cluster, "protected victims (minRuntimeSeconds)", 0).await?;
    // A bucket of one: one goes, and the next in a minute.
    says(cluster, Method::PATCH, &json!({"victimsPerMinute": 1})).await?;
    held(cluster, "SchedulingPolicy calm allows 1 evictions a minute", 1).await?;
    // With more allowed the rest goes at once: it would have taken five minutes.
    says(cluster, Method::PATCH, &json!({"victimsPerMinute": 600})).await?;
    eventually("all run", Duration::from_secs(30), || async {
        let (waits, runs, low) = look(cluster).await?;
        Ok(waits.is_empty() && runs == PODS_EACH && low == 0)
    })
    .await?;
    cluster.check_room().await
}
