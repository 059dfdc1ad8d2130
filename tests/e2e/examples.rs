//! Every example on a real API server: applied as it is, its pods made by the real controllers
//! or, for kinds of others, by the test in their place, and bound by Muster.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use muster::explain::read_documents;
use muster::plugin::Registry;
use muster::whatif::expand;
use muster_control_plane::{ControlPlane, create_nodes, node};
use serde_json::{Value, json};

use crate::extender::server::{Answer, Server, nodes_of};
use crate::gang::end;
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON, end as end_scheduler, eventually};

/// Kinds of others, as far as a server has to know them: group, version, kind, plural.
const OTHERS: [(&str, &str, &str, &str); 7] = [
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
    ("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes"),
    ("ray.io", "v1", "RayJob", "rayjobs"),
];
/// Kinds whose pods the real controllers make.
const REAL: [&str; 4] = ["Pod", "Job", "Deployment", "ReplicaSet"];
/// Two blocks of two racks of so many nodes with eight GPUs each.
const NODES: usize = 20;

fn definition(&(group, version, kind, plural): &(&str, &str, &str, &str)) -> Value {
    let cluster_wide = kind.starts_with("Cluster");
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")}, "spec": {
            "group": group, "scope": if cluster_wide { "Cluster" } else { "Namespaced" },
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(),
                "listKind": format!("{kind}List")},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object",
                    "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn gpu_node(i: usize) -> Result<k8s_openapi::api::core::v1::Node> {
    let mut node = serde_json::to_value(node(&format!("gpu-{i:02}"), "64", "512Gi", 110))?;
    node["metadata"]["labels"]["network.topology.nvidia.com/spine"] =
        format!("b{}", i / (2 * NODES)).into();
    node["metadata"]["labels"]["network.topology.nvidia.com/block"] =
        format!("r{}", i / NODES).into();
    for list in ["capacity", "allocatable"] {
        node["status"][list]["nvidia.com/gpu"] = "8".into();
    }
    Ok(serde_json::from_value(node)?)
}

fn files() -> Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["examples/topology", "examples/workloads"] {
        for entry in fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

async fn post(cluster: &Cluster, object: &Value) -> Result<()> {
    cluster.create(object).await.with_context(|| object["kind"].to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_example_is_applied_and_bound() -> Result<()> {
    let builder = ControlPlane::builder()
        .kwok(true)
        .controllers(&["job-controller", "replicaset-controller", "deployment-controller"])
        .feature_gates(&["GenericWorkload=true"])
        .runtime_config(&["scheduling.k8s.io/v1beta1=true"]);
    let cluster = Cluster::start(builder).await?;
    install(&cluster).await?;
    cluster.apply(include_str!("pod_group/coscheduling.yaml")).await?;
    for kind in &OTHERS {
        cluster.create(&definition(kind)).await?;
    }
    for (group, version, _, plural) in &OTHERS {
        let path = format!("/apis/{group}/{version}/{plural}");
        eventually("served", SOON, || async {
            Ok(ask(&cluster.admin, Method::GET, &path, &Value::Null).await.is_ok())
        })
        .await?;
    }
    // As the chart makes it.
    cluster.priority_class("muster-placeholder", -1_000, "Never").await?;
    let nodes: Vec<_> = (0..4 * NODES).map(gpu_node).collect::<Result<_>>()?;
    create_nodes(&cluster.admin, nodes.len(), |i| nodes[i].clone()).await?;
    let muster = cluster.muster("muster", &[])?;
    let played = async {
        let mut bound = 0;
        for file in files()? {
            bound += example(&cluster, &file).await.with_context(|| file.display().to_string())?;
        }
        ensure!(bound >= 60, "{bound} pods of examples");
        anyhow::Ok(())
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)?;
    extender(&cluster).await.context("examples/extender")
}

/// Applies an example in a namespace of its own, and waits until all its pods are bound; how
/// many they were.
async fn example(cluster: &Cluster, file: &Path) -> Result<usize> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).context("a name")?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stem}});
    post(cluster, &namespace).await?;
    let mut objects: Vec<Value> = Vec::new();
    for document in read_documents(&fs::read_to_string(file)?)? {
        let mut object = document.value;
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = stem.into();
        }
        objects.push(object);
    }
    let mut played = Vec::new();
    for object in &objects {
        create(cluster, object).await?;
        if !REAL.contains(&object["kind"].as_str().unwrap_or_default()) {
            played.push(object.clone());
        }
    }
    // What the controllers of others would make.
    let made = expand(&played);
    ensure!(made.notes.is_empty(), "{:?}", made.notes);
    let new = made.others.iter().filter(|object| !objects.contains(object));
    for object in new.chain(&made.pods) {
        let mut object = object.clone();
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("uid");
        }
        create(cluster, &object).await?;
    }
    let expected = expand(&objects).pods.len();
    let path = format!("/api/v1/namespaces/{stem}/pods");
    let last = std::sync::Mutex::new(String::new());
    let bound = eventually("bound", SOON, || async {
        let pods: Vec<Value> = cluster.list(&path).await?;
        let placed = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
        let waits = pods.iter().find(|pod| !pod["spec"]["nodeName"].is_string());
        *last.lock().unwrap() = waits.map(|pod| pod["status"].to_string()).unwrap_or_default();
        Ok(pods.len() >= expected && placed >= expected)
    })
    .await;
    bound.with_context(|| last.lock().unwrap().clone())?;
    cluster.say(&format!("{stem}: {expected} pods bound"));
    tidy(cluster, stem).await?;
    Ok(expected)
}

/// As `cluster.create`, with every plural that is not a plain one.
async fn create(cluster: &Cluster, object: &Value) -> Result<()> {
    let kind = object["kind"].as_str().context("a kind")?;
    let version = object["apiVersion"].as_str().context("a version")?;
    let plural = match kind.to_lowercase() {
        kind if kind.ends_with('y') => format!("{}ies", &kind[..kind.len() - 1]),
        kind => format!("{kind}s"),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    let path = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    };
    let path = format!("{path}?fieldValidation=Strict");
    let made = ask(&cluster.admin, Method::POST, &path, object).await;
    made.map(drop).map_err(|refusal| anyhow::anyhow!("{object}: {refusal}"))
}

/// Takes away what an example made, so that the next one has the whole cluster.
async fn tidy(cluster: &Cluster, namespace: &str) -> Result<()> {
    let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    for path in ["apis/apps/v1", "apis/batch/v1", "api/v1"] {
        let plurals: &[&str] = match path {
            "apis/apps/v1" => &["deployments", "replicasets"],
            "apis/batch/v1" => &["jobs"],
            _ => &["pods"],
        };
        for plural in plurals {
            let path = format!("/{path}/namespaces/{namespace}/{plural}");
            let gone = ask(&cluster.admin, Method::DELETE, &path, &now).await;
            gone.map_err(anyhow::Error::msg)?;
        }
    }
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    eventually("gone", SOON, || async {
        let left: Vec<Value> = cluster.list(&pods).await?;
        if !left.is_empty() {
            // A controller may have made one more before it heard of its own end.
            ask(&cluster.admin, Method::DELETE, &pods, &now).await.map_err(anyhow::Error::msg)?;
        }
        Ok(left.is_empty())
    })
    .await
}

/// The configuration with an extender, asked about its pod.
async fn extender(cluster: &Cluster) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/extender");
    let only = "gpu-07";
    let script = move |verb: &str, _: &str, question: &Value| match verb {
        "filter" => Answer::Json(json!({"NodeNames": [only]})),
        _ => {
            let score = |node: String| json!({"Host": node, "Score": 1});
            Answer::Json(nodes_of(question).into_iter().map(score).collect())
        }
    };
    let server = Server::start("127.0.0.1:0", None, cluster.admin.clone(), script).await?;
    let text = fs::read_to_string(root.join("config.yaml"))?;
    ensure!(text.contains("127.0.0.1:8888"), "the example names another server");
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("config.yaml");
    fs::write(&file, text.replace("127.0.0.1:8888", &server.address.to_string()))?;
    let scheduler = cluster.following(&file, &Registry::default(), Duration::from_secs(60)).await?;
    cluster.apply(&fs::read_to_string(root.join("pod.yaml"))?).await?;
    eventually("bound", SOON, || async {
        Ok(cluster.get_pod("licensed").await?.spec.node_name == only)
    })
    .await?;
    ensure!(!server.asked("filter", "licensed").is_empty(), "the extender was not asked");
    cluster.say("the pod went where the extender said");
    end_scheduler(scheduler).await
}
