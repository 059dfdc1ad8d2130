//! `kubectl muster why` on a real API server, with the rights of somebody who may only look: each
//! cure, when it is applied there, lets the pod run.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use http::{Method, Request};
use muster_control_plane::{ControlPlane, create_nodes, node};
use serde_json::{Value, json};

use crate::gang::end;
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON, eventually};

const NAMESPACE: &str = "/api/v1/namespaces/default";
const GROUPS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";

/// What may be looked at, and nothing else.
const ROLE: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: looks}
rules:
- {apiGroups: [''], resources: [nodes, pods], verbs: [list]}
- {apiGroups: [muster.dev], resources: [podgroups], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: looks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: looks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}]
";

/// A situation: closed nodes, pods that hold room, whoever waits, whom to ask about, who keeps
/// it, how many of the cures are applied.
struct Situation {
    name: &'static str,
    cordoned: bool,
    holds: usize,
    group: Option<i64>,
    pods: usize,
    change: fn(&mut Value),
    ask: &'static str,
    blocker: &'static str,
    cures: usize,
}

fn situations() -> Vec<Situation> {
    vec![
        Situation {
            name: "cordoned",
            cordoned: true,
            holds: 2,
            group: None,
            pods: 1,
            change: |_| {},
            ask: "pod/wait-0",
            blocker: "NodeUnschedulable",
            cures: 3,
        },
        Situation {
            name: "selector",
            cordoned: false,
            holds: 0,
            group: None,
            pods: 1,
            change: |pod| pod["spec"]["nodeSelector"] = json!({"gpu": "h300"}),
            ask: "wait-0",
            blocker: "NodeAffinity",
            cures: 2,
        },
        Situation {
            name: "gang",
            cordoned: false,
            holds: 1,
            group: Some(3),
            pods: 3,
            change: |pod| pod["metadata"]["labels"] = json!({"muster.dev/pod-group": "wait"}),
            ask: "podgroup/wait",
            blocker: "NodeResourcesFit",
            cures: 3,
        },
        Situation {
            name: "incomplete",
            cordoned: false,
            holds: 0,
            group: Some(3),
            pods: 2,
            change: |pod| {
                pod["metadata"]["labels"] = json!({"muster.dev/pod-group": "wait"});
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1".into();
            },
            ask: "podgroup/wait",
            blocker: "Gang",
            cures: 2,
        },
    ]
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "muster", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "i",
                "resources": {"requests": {"cpu": "3", "memory": "1Gi"}}}]}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cure_lets_the_pod_run() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true)).await?;
    install(&cluster).await?;
    cluster.apply(ROLE).await?;
    let jane = cluster.cp.kubeconfig("jane", &[])?;
    let muster = cluster.muster("muster", &[])?;
    let played = async {
        for situation in situations() {
            for cure in 0..situation.cures {
                let tried = play(&cluster, &jane, &situation, cure).await;
                tried.with_context(|| format!("{}, cure {cure}", situation.name))?;
            }
        }
        anyhow::Ok(())
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

/// Brings a situation about, asks, applies one cure, waits until it works, and tidies up.
async fn play(cluster: &Cluster, jane: &Path, of: &Situation, number: usize) -> Result<()> {
    create_nodes(&cluster.admin, 2, |i| {
        let mut node = node(&format!("node-{i}"), "4", "16Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("gpu".to_owned(), "h100".to_owned());
        node
    })
    .await?;
    // Whoever holds room is there first.
    for i in 0..of.holds {
        cluster.create(&pod(&format!("holds-{i}"))).await?;
    }
    placed(cluster, "holds-", of.holds).await?;
    if of.cordoned {
        // A third node that is closed.
        create_nodes(&cluster.admin, 1, |_| {
            let mut node = node("node-2", "4", "16Gi", 110);
            node.spec.get_or_insert_default().unschedulable = Some(true);
            node
        })
        .await?;
    }
    if let Some(min) = of.group {
        let group = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "wait", "namespace": "default"}, "spec": {"minMember": min}});
        let made = ask(&cluster.admin, Method::POST, GROUPS, &group).await;
        made.map_err(anyhow::Error::msg)?;
    }
    for i in 0..of.pods {
        let mut pod = pod(&format!("wait-{i}"));
        (of.change)(&mut pod);
        cluster.create(&pod).await?;
    }
    told(cluster, of.pods).await?;
    let why = why(jane, of.ask)?;
    ensure!(why["blocker"] == of.blocker, "{why:#}");
    let cure = why["cures"].get(number).with_context(|| format!("no such cure: {why:#}"))?;
    cluster.say(&format!("{}: {}", of.name, cure["what"].as_str().unwrap_or_default()));
    for change in cure["changes"].as_array().context("changes")? {
        apply(cluster, change).await.with_context(|| change.to_string())?;
    }
    let places = cure["places"].as_object().context("places")?.len();
    ensure!(places > 0, "{cure:#}");
    placed(cluster, "wait-", places).await.with_context(|| format!("{cure:#}"))?;
    tidy(cluster).await
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

/// A step of a JSON Patch on a field of an object.
fn step(object: &mut Value, op: &Value) -> Result<()> {
    let path = op["path"].as_str().context("a path")?;
    let (parent, last) = path.rsplit_once('/').context("a field")?;
    let parent = object.pointer_mut(parent).with_context(|| path.to_owned())?;
    let parent = parent.as_object_mut().context("an object")?;
    let last = last.replace("~1", "/");
    match op["op"].as_str() {
        Some("add") => drop(parent.insert(last, op["value"].clone())),
        Some("remove") => drop(parent.remove(&last).context("nothing to remove")?),
        other => bail!("{other:?}"),
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
