//! Gangs on a real API server: whole or not at all.
//!
//! `MUSTER_LONG=1` runs the long form: more gangs, more rounds, more crashes.

mod accumulate;
mod contend;
mod crash;
mod first;
mod forms;
mod jobs;
mod lifecycle;
mod nodes;
mod permit;
mod preempt;
mod record;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use muster_api::muster::{PodGroup, PodGroupStatus};
use muster_control_plane::{Process, pod};
use serde_json::{Value, json};

use crate::pod_group::ask;
use crate::support::{Cluster, SOON, eventually};

pub(crate) const GROUPS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const LABEL: &str = "muster.dev/pod-group";

/// The first number, or with `MUSTER_LONG=1` the second.
pub(crate) fn form(short: usize, long: usize) -> usize {
    if std::env::var_os("MUSTER_LONG").is_some_and(|v| v == "1") { long } else { short }
}

/// Between the first and the last bind of a minimum lie at most two seconds for each
/// hundred members.
fn window(min: usize) -> Duration {
    Duration::from_secs(2 * min.div_ceil(100) as u64)
}

/// A pod group of Muster's own.
fn group(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

async fn make(cluster: &Cluster, name: &str, spec: &Value) -> Result<()> {
    let made = ask(&cluster.admin, Method::POST, GROUPS, &group(name, spec)).await;
    made.map(drop).map_err(anyhow::Error::msg)
}

/// A member that asks for so much CPU.
fn member(name: &str, group: &str, cpu: &str) -> Pod {
    let mut pod = pod(name, "muster", cpu, "16Mi");
    pod.metadata.labels = Some([(LABEL.to_owned(), group.to_owned())].into());
    pod
}

async fn patch(cluster: &Cluster, path: &str, change: &Value) -> Result<Value> {
    ask(&cluster.admin, Method::PATCH, path, change).await.map_err(anyhow::Error::msg)
}

/// Deletes at once, if it is there.
async fn delete(cluster: &Cluster, path: &str) -> Result<()> {
    let now = json!({"gracePeriodSeconds": 0});
    match ask(&cluster.admin, Method::DELETE, path, &now).await {
        Ok(_) => Ok(()),
        Err(words) if words.contains("not found") => Ok(()),
        Err(words) => Err(anyhow::Error::msg(words)),
    }
}

async fn status(cluster: &Cluster, name: &str) -> Result<PodGroupStatus> {
    let path = format!("{GROUPS}/{name}");
    let found = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
    let found = found.map_err(anyhow::Error::msg)?;
    Ok(serde_json::from_value::<PodGroup>(found)?.status)
}

/// Waits until a group's status has this phase and reason; the status.
async fn reads(cluster: &Cluster, name: &str, expected: &str) -> Result<PodGroupStatus> {
    let last = std::sync::Mutex::new(String::new());
    let waited = eventually(&format!("{name}: {expected}"), SOON, || async {
        let now = status(cluster, name).await?;
        let phase = now.phase.map(|p| p.to_string()).unwrap_or_default();
        let line = format!("{phase}/{}", now.reason.clone().unwrap_or_default());
        let same = line == expected;
        *last.lock().unwrap() = format!("{line}: {}", now.message.unwrap_or_default());
        Ok(same)
    })
    .await;
    let last = last.lock().unwrap().clone();
    waited.with_context(|| format!("the last status of {name} was {last}"))?;
    status(cluster, name).await
}

/// Pods of a group, as they are.
async fn members(cluster: &Cluster, group: &str) -> Result<Vec<Value>> {
    cluster.list(&format!("{PODS}?labelSelector={LABEL}%3D{group}")).await
}

/// Where the members of a gang are expected.
async fn planned(cluster: &Cluster, gang: &str) -> Result<BTreeSet<String>> {
    let pods = members(cluster, gang).await?;
    let node = |pod: &Value| pod["status"]["nominatedNodeName"].as_str().map(str::to_owned);
    Ok(pods.iter().filter_map(node).collect())
}

/// The condition PodScheduled, `Reason: message`.
pub(crate) fn scheduled(pod: &Value) -> String {
    let conditions = pod["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|c| c["type"] == "PodScheduled");
    let text = |field: &str| found.map(|c| c[field].as_str().unwrap_or_default().to_owned());
    format!("{}: {}", text("reason").unwrap_or_default(), text("message").unwrap_or_default())
}

fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

/// Waits until all members say why they wait, in words that begin like this.
async fn all_say(cluster: &Cluster, group: &str, words: &str) -> Result<()> {
    let last = std::sync::Mutex::new(Vec::new());
    let said = eventually(&format!("{group} says {words}"), SOON, || async {
        let pods = members(cluster, group).await?;
        let says: Vec<String> = pods.iter().map(scheduled).collect();
        let all = !says.is_empty() && says.iter().all(|said| said.starts_with(words));
        *last.lock().unwrap() = says;
        Ok(all)
    })
    .await;
    said.with_context(|| format!("{group} said {:?}", last.lock().unwrap()))
}

/// Ends a scheduler whose checker has found nothing wrong.
pub(crate) fn end(muster: &Process) -> Result<()> {
    check(muster)?;
    muster.terminate()?;
    ensure!(muster.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    check(muster)
}

/// The checker has found nothing wrong, and nothing has panicked.
fn check(muster: &Process) -> Result<()> {
    let log = std::fs::read_to_string(muster.log())?;
    let bad = |line: &&str| {
        line.contains("audit: ") || line.contains("panic") || line.contains("quarantined")
    };
    let wrong: Vec<&str> = log.lines().filter(bad).take(10).collect();
    ensure!(wrong.is_empty(), "{}: {wrong:#?}", muster.name());
    Ok(())
}
