//! `kubectl muster why` on a real API server, with the rights of somebody who may only look: in each of many
//! situations it names who keeps the pod, and each cure, when it is applied there, lets the pod run.

mod situations;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Node;
use muster_control_plane::{ControlPlane, create_nodes, node};
use serde_json::{Value, json};

use crate::gang::end;
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON, eventually};
use situations::{Situation, situations};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const GROUPS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";
const TOPOLOGIES: &str = "/apis/muster.dev/v1alpha1/clustertopologies";

/// What may be looked at, and nothing else.
const ROLE: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: looks}
rules:
- {apiGroups: [''], resources: [nodes, pods], verbs: [list]}
- {apiGroups: [muster.dev], resources: [podgroups, clustertopologies], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: looks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: looks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cure_lets_the_pod_run() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true)).await?;
    install(&cluster).await?;
    cluster.apply(ROLE).await?;
    let jane = cluster.cp.kubeconfig("jane", &[])?;
    let muster = cluster.muster("muster", &[])?;
    let topology = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": "fabric"}, "spec": {"levels": [
            {"name": "block", "nodeLabel": "block"}, {"name": "rack", "nodeLabel": "rack"}]}});
    create(&cluster, TOPOLOGIES, &topology).await?;
    let all = situations();
    ensure!(all.len() >= 12, "{} situations", all.len());
    let played = async {
        let mut applied = 0;
        for situation in all {
            let mut cures = situation.cures;
            let mut number = 0;
            while number < cures {
                let tried = play(&cluster, &jane, &situation, number).await;
                cures = tried.with_context(|| format!("{}, cure {number}", situation.name))?;
                number += 1;
            }
            applied += number;
        }
        cluster.say(&format!("{applied} cures applied"));
        anyhow::Ok(())
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

async fn create(cluster: &Cluster, path: &str, object: &Value) -> Result<()> {
    let made = ask(&cluster.admin, Method::POST, path, object).await;
    made.map(drop).map_err(anyhow::Error::msg).with_context(|| object.to_string())
}

/// The first two nodes are in one rack, the third in the next.
fn a_node(i: usize, change: Option<fn(&mut Value)>) -> Result<Node> {
    let mut node = serde_json::to_value(node(&format!("node-{i}"), "4", "16Gi", 110))?;
    for (label, value) in [
        ("gpu", "h100".to_owned()),
        ("zone", format!("zone-{i}")),
        ("block", "b1".to_owned()),
        ("rack", format!("r{}", i / 2)),
    ] {
        node["metadata"]["labels"][label] = value.into();
    }
    if let Some(change) = change {
        change(&mut node);
    }
    Ok(serde_json::from_value(node)?)
}

/// Brings a situation about, asks, applies one cure, waits until it works, and tidies up; how many
/// cures there are.
async fn play(cluster: &Cluster, jane: &Path, of: &Situation, number: usize) -> Result<usize> {
    let two = [a_node(0, None)?, a_node(1, None)?];
    create_nodes(&cluster.admin, 2, |i| two[i].clone()).await?;
    // Whoever holds room is there first.
    for pod in &of.holds {
        cluster.create(pod).await?;
    }
    placed(cluster, "holds-", of.holds.len()).await?;
    if let Some(third) = of.third {
        let third = a_node(2, Some(third))?;
        create_nodes(&cluster.admin, 1, |_| third.clone()).await?;
    }
    for (path, object) in &of.others {
        create(cluster, path, object).await?;
    }
    for pod in &of.waits {
        cluster.create(pod).await?;
    }
    // Nobody says anything of pods of others.
    if of.blocker != "SchedulerName" {
        told(cluster, of.waits.len()).await?;
    }
    let why = why(jane, of.ask)?;
    ensure!(why["blocker"] == of.blocker, "{why:#}");
    let cures = why["cures"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(cures.len() >= of.cures, "{why:#}");
    let cure = cures.get(number).with_context(|| format!("no such cure: {why:#}"))?;
    cluster.say(&format!("{}: {}", of.name, cure["what"].as_str().unwrap_or_default()));
    for change in cure["changes"].as_array().context("changes")? {
        apply(cluster, change).await.with_context(|| change.to_string())?;
    }
    let places = cure["places"].as_object().context("places")?.len();
    ensure!(places > 0, "{cure:#}");
    placed(cluster, "wait-", places).await.with_context(|| format!("{cure:#}"))?;
    tidy(cluster).await?;
    Ok(cures.len())
}

/// Asks as a person does.
fn why(kubeconfig: &Path, name: &str) -> Result<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["why", name, "-o", "json", "--kubeconfig"])
        .arg(kubeconfig)
        .output()?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{complaint}");
    ensure!(complaint.contains("are left out, you may not list them"), "{complaint}");
    serde_json::from_slice(&output.stdout).context(complaint)
}

async fn pods(cluster: &Cluster) -> Result<Vec<Value>> {
    cluster.list(&format!("{NAMESPACE}/pods")).await
}

/// Waits until so many pods have a node.
async fn placed(cluster: &Cluster, prefix: &str, count: usize) -> Result<()> {
    eventually("placed", SOON, || async {
        let own = |pod: &&Value| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with(prefix) && pod["spec"]["nodeName"].is_string()
        };
        Ok(pods(cluster).await?.iter().filter(own).count() >= count)
    })
    .await
}

/// Waits until the scheduler has said of so many pods that they wait.
async fn told(cluster: &Cluster, count: usize) -> Result<()> {
    eventually("told", SOON, || async {
        let waits = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice);
            let mut all = conditions.unwrap_or_default().iter();
            all.any(|c| c["type"] == "PodScheduled" && c["status"] == "False")
        };
        Ok(pods(cluster).await?.iter().filter(waits).count() >= count)
    })
    .await
}

fn path(change: &Value) -> Result<String> {
    let name = change["name"].as_str().context("a name")?;
    Ok(match change["kind"].as_str() {
        Some("Node") => format!("/api/v1/nodes/{name}"),
        Some("Pod") => format!("{NAMESPACE}/pods/{name}"),
        Some("PodGroup") => format!("{GROUPS}/{name}"),
        other => bail!("a change of {other:?}"),
    })
}

/// Applies a change; pods are made anew.
async fn apply(cluster: &Cluster, change: &Value) -> Result<()> {
    let path = path(change)?;
    let collection = path.rsplit_once('/').context("a collection")?.0.to_owned();
    let call = async |method: Method, path: &str, body: &Value| {
        ask(&cluster.admin, method, path, body).await.map_err(anyhow::Error::msg)
    };
    let now = json!({"gracePeriodSeconds": 0});
    if change["delete"] == true {
        return call(Method::DELETE, &path, &now).await.map(drop);
    }
    if change["create"].is_object() {
        return call(Method::POST, &collection, &bare(&change["create"])).await.map(drop);
    }
    let ops = change["patch"].as_array().context("a patch")?;
    if change["kind"] != "Pod" {
        let request = Request::patch(&path)
            .header("Content-Type", "application/json-patch+json")
            .body(serde_json::to_vec(ops)?)?;
        cluster.admin.request_text(request).await?;
        return Ok(());
    }
    let mut pod = bare(&call(Method::GET, &path, &Value::Null).await?);
    ops.iter().try_for_each(|op| step(&mut pod, op))?;
    call(Method::DELETE, &path, &now).await?;
    eventually("gone", SOON, || async {
        Ok(ask(&cluster.admin, Method::GET, &path, &Value::Null).await.is_err())
    })
    .await?;
    call(Method::POST, &collection, &pod).await.map(drop)
}

/// An object as one would write it.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    let meta = &object["metadata"];
    let mut kept = json!({"name": meta["name"]});
    for field in ["namespace", "labels", "annotations"] {
        if !meta[field].is_null() {
            kept[field] = meta[field].clone();
        }
    }
    object["metadata"] = kept;
    if object["kind"] != "Node"
        && let Some(object) = object.as_object_mut()
    {
        object.remove("status");
    }
    object
}

/// A step of a JSON Patch on a field of an object, or an element of a list that goes.
fn step(object: &mut Value, op: &Value) -> Result<()> {
    let path = op["path"].as_str().context("a path")?;
    let (parent, last) = path.rsplit_once('/').context("a field")?;
    let last = last.replace("~1", "/");
    match (object.pointer_mut(parent).with_context(|| path.to_owned())?, op["op"].as_str()) {
        (Value::Object(map), Some("add")) => drop(map.insert(last, op["value"].clone())),
        (Value::Object(map), Some("remove")) => {
            drop(map.remove(&last).context("nothing to remove")?);
        }
        (Value::Array(list), Some("remove")) => drop(list.remove(last.parse()?)),
        (_, other) => bail!("{other:?} of {path}"),
    }
    Ok(())
}

/// Nothing is left for the next one.
async fn tidy(cluster: &Cluster) -> Result<()> {
    let now = json!({"gracePeriodSeconds": 0});
    for path in [GROUPS.to_owned(), format!("{NAMESPACE}/pods"), "/api/v1/nodes".to_owned()] {
        let gone = ask(&cluster.admin, Method::DELETE, &path, &now).await;
        gone.map_err(anyhow::Error::msg)?;
        eventually("gone", SOON, || async {
            let left: Vec<Value> = cluster.list(&path).await?;
            Ok(left.is_empty())
        })
        .await?;
    }
    Ok(())
}
