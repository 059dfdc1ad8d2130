//! Victims that save their work before they go, with the rights that the chart gives: asked by a
//! note on the pod, evicted when they answer or when their time is over, by whoever leads then.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use muster_control_plane::{ControlPlane, Process, create_nodes, node};
use serde_json::{Value, json};

use crate::pod_group::ask;
use crate::support::{Cluster, SOON, USER, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ASKED: &str = "muster.dev/checkpoint-requested";
/// How long the one that does not answer is waited for.
const WAIT: Duration = Duration::from_secs(6);

fn pod(name: &str, node: usize, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "muster", "automountServiceAccountToken": false,
            "nodeSelector": {"kubernetes.io/hostname": format!("node-{node:03}")},
            "containers": [{"name": "main", "image": "example.invalid/none",
                "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victims_are_asked_to_save_their_work_and_go_when_they_have() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true).audit_log(true)).await?;
    cluster.priority_class("high", 1_000, "PreemptLowerPriority").await?;
    create_nodes(&cluster.admin, 2, |i| {
        let mut node = node(&format!("node-{i:03}"), "1", "16Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("kubernetes.io/hostname".into(), format!("node-{i:03}"));
        node
    })
    .await?;
    for (i, (name, wait)) in [("answers", 300), ("silent", WAIT.as_secs())].into_iter().enumerate()
    {
        let mut low = pod(name, i, &json!({"nodeName": format!("node-{i:03}")}));
        let notes = json!({"muster.dev/checkpoint-before-eviction": wait.to_string()});
        low["metadata"]["annotations"] = notes;
        cluster.create(&low).await?;
    }
    eventually("running", SOON, || async {
        let pods: Vec<Value> = cluster.list(PODS).await?;
        Ok(pods.len() == 2 && pods.iter().all(|pod| pod["status"]["phase"] == "Running"))
    })
    .await?;
    let first = cluster.muster("first", &["--leader-elect=false"])?;
    let played = play(&cluster, &first).await;
    played.with_context(|| first.log_tail(6_000))
}

async fn asked(cluster: &Cluster, name: &str) -> Result<Option<String>> {
    let found = ask(&cluster.admin, Method::GET, &format!("{PODS}/{name}"), &Value::Null).await;
    let found = found.map_err(anyhow::Error::msg)?;
    Ok(found["metadata"]["annotations"][ASKED].as_str().map(str::to_owned))
}

/// Waits until a pod takes the place of the one that was there, and that one was gone before.
async fn takes_over(cluster: &Cluster, high: &str, low: &str) -> Result<()> {
    eventually(&format!("{high} is bound"), SOON, || async {
        Ok(!cluster.get_pod(high).await?.spec.node_name.is_empty())
    })
    .await?;
    ensure!(cluster.get_pod(low).await.is_err(), "{low} is still there");
    Ok(())
}

async fn play(cluster: &Cluster, first: &Process) -> Result<()> {
    // One answers, and another process leads by then: it asks nobody again.
    cluster.create(&pod("for-answers", 0, &json!({"priorityClassName": "high"}))).await?;
    eventually("asked", SOON, || async { Ok(asked(cluster, "answers").await?.is_some()) }).await?;
    let note = asked(cluster, "answers").await?.context("no note")?;
    let time = muster_api::k8s::Time::parse(&note)?;
    ensure!(time == time.whole_seconds(), "{note}");
    first.kill()?;
    let second = cluster.muster("second", &["--leader-elect=false"])?;
    let result = after_failover(cluster, &note).await;
    result.with_context(|| second.log_tail(6_000))?;

    // The other one says nothing.
    let begin = Instant::now();
    cluster.create(&pod("for-silent", 1, &json!({"priorityClassName": "high"}))).await?;
    takes_over(cluster, "for-silent", "silent").await?;
    let took = begin.elapsed();
    // The note is in whole seconds: up to one is lost.
    ensure!(took >= WAIT - Duration::from_secs(1), "it was not waited for: {took:?}");
    cluster.say(&format!("the silent one went after {took:?}"));
    rights(cluster)
}

async fn after_failover(cluster: &Cluster, note: &str) -> Result<()> {
    let path = format!("{PODS}/answers");
    let saved = json!({"metadata": {"annotations": {"muster.dev/last-checkpoint": note}}});
    let begin = Instant::now();
    ask(&cluster.admin, Method::PATCH, &path, &saved).await.map_err(anyhow::Error::msg)?;
    takes_over(cluster, "for-answers", "answers").await?;
    cluster.say(&format!("the one that answered was replaced after {:?}", begin.elapsed()));
    Ok(())
}

/// Each was asked once, whoever led; nothing was forbidden.
fn rights(cluster: &Cluster) -> Result<()> {
    let events = cluster.cp.audit_events()?;
    let ours = || events.iter().filter(|e| e["user"]["username"] == USER);
    let forbidden: Vec<&Value> =
        ours().filter(|e| e["responseStatus"]["code"] == 403).take(3).collect();
    ensure!(forbidden.is_empty(), "{forbidden:?}");
    for name in ["answers", "silent"] {
        let about = |e: &&Value| {
            e["objectRef"]["name"] == name
                && e["objectRef"]["subresource"] == "status"
                && e["verb"] == "patch"
                && e["stage"] == "ResponseComplete"
        };
        let count = ours().filter(about).count();
        ensure!(count == 1, "{name} was asked {count} times");
    }
    Ok(())
}
