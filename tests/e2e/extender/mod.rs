//! Extenders: real HTTP servers of the test's own, over TLS and without, that answer
//! well, late, wrongly or not at all. Pods run, or wait and say why; and whatever
//! extenders do, what happens in the cluster is taken in at once.

mod cases;
mod ending;
mod lag;
pub(crate) mod server;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster::config::{Configuration, Extender};
use muster::run::Scheduler;
use muster_control_plane::{ControlPlane, create_nodes, node};
use muster_core::Profile;
use muster_core::framework::{PluginArgs, Registry};
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, counted, end, eventually};

/// What the configuration says of an extender with these verbs.
fn extender(url: &str, verbs: &[&str]) -> Extender {
    let verb = |name: &str| if verbs.contains(&name) { name.to_owned() } else { String::new() };
    Extender {
        url_prefix: url.to_owned(),
        filter_verb: verb("filter"),
        prioritize_verb: verb("prioritize"),
        preempt_verb: verb("preempt"),
        bind_verb: verb("bind"),
        weight: 1,
        http_timeout: Some(Duration::from_secs(30)),
        node_cache_capable: true,
        ..Extender::default()
    }
}

/// A scheduler of this name with these extenders.
async fn start(cluster: &Cluster, name: &str, extenders: Vec<Extender>) -> Result<Scheduler> {
    let mut args = PluginArgs::default();
    args.fit.ignored_resources = muster::extend::ignored_resources(&extenders);
    let plugins = Profile::defaults().iter().copied();
    let profile = Profile::build(name, plugins, &args, &Registry::in_tree())?;
    let configuration = Configuration { extenders, ..Configuration::default() };
    cluster.in_process(configuration, profile).await
}

async fn new_pod(cluster: &Cluster, scheduler: &str, name: &str, more: &Value) -> Result<()> {
    let requests = &more["requests"];
    let requests = if requests.is_null() { json!({"cpu": "100m"}) } else { requests.clone() };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {"told": "all"}},
        "spec": {
            "schedulerName": scheduler,
            // There is no kubelet to wait for.
            "terminationGracePeriodSeconds": 0,
            "priorityClassName": more["class"].as_str().unwrap_or_default(),
            "containers": [{"name": "main", "image": "i", "command": ["sleep"],
                "resources": {"requests": requests, "limits": more["limits"]}}],
        },
    });
    cluster.create(&pod).await
}

/// Waits until the pod is bound and says where.
async fn bound(cluster: &Cluster, name: &str) -> Result<String> {
    let find = || async { anyhow::Ok(cluster.get_pod(name).await?.spec.node_name) };
    let bound = eventually("bound", SOON, || async { Ok(!find().await?.is_empty()) }).await;
    bound.with_context(|| name.to_owned())?;
    find().await
}

/// Waits until condition and event of the pod say so, and it has no node.
async fn waits(cluster: &Cluster, name: &str, reason: &str, message: &str) -> Result<()> {
    let path = format!(
        "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3D{name}"
    );
    let said = eventually("said", SOON, || async {
        let pod = cluster.get_pod(name).await?;
        let condition =
            pod.status.conditions.iter().any(|c| {
                c.kind == "PodScheduled" && c.reason == reason && c.message.contains(message)
            });
        let events: Vec<Value> = cluster.list(&path).await?;
        let note = |e: &Value| e["note"].as_str().unwrap_or_default().contains(message);
        Ok(condition && events.iter().any(|e| e["reason"] == "FailedScheduling" && note(e)))
    })
    .await;
    let pod = cluster.get_pod(name).await?;
    said.with_context(|| format!("{name}: {message}: {:?}", pod.status.conditions))?;
    ensure!(pod.spec.node_name.is_empty(), "{name} is bound");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extenders_take_part_and_whatever_they_do_pods_run_or_say_why() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    cluster.priority_class("high", 1_000, "PreemptLowerPriority").await?;
    create_nodes(&cluster.admin, 3, |i| node(&format!("node-{i}"), "8", "16Gi", 110)).await?;
    cases::over_tls(&cluster).await.context("over TLS, with whole objects")?;
    cases::dead_and_alive(&cluster).await.context("an extender that is down")?;
    cases::managed(&cluster).await.context("an extender with resources of its own")?;
    cases::preempts(&cluster).await.context("an extender with a say in preemption")?;
    ending::at_the_end(&cluster).await.context("the end of a scheduler")?;
    lag::ingestion(&cluster).await.context("ingestion beside a slow extender")?;
    cluster.check_room().await?;
    cluster.say("done");
    Ok(())
}
