//! Scheduling policies on a real API server: what it refuses, how soon a change acts, and
//! what the status says.

mod cases;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::{Method, Request};
use muster::config::Configuration;
use muster_control_plane::{ControlPlane, create_nodes, node};
use muster_core::Profile;
use serde_json::{Value, json};

use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON, end, eventually};

pub(crate) const POLICIES: &str = "/apis/muster.dev/v1alpha1/schedulingpolicies";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// After so long a change must have acted.
const ACTS: Duration = Duration::from_secs(1);

pub(crate) fn policy(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "SchedulingPolicy",
        "metadata": {"name": name}, "spec": spec,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_are_checked_act_within_a_second_and_say_what_they_govern() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    eventually("served", SOON, || async {
        Ok(ask(&cluster.admin, Method::GET, POLICIES, &Value::Null).await.is_ok())
    })
    .await?;
    cases::check(&cluster.admin).await?;
    cluster.say("rules are kept");

    // Pods like node `liked`, which has less room than `empty`.
    create_nodes(&cluster.admin, 2, |i| {
        let mut node = node(["empty", "liked"][i], "16", "64Gi", 1000);
        node.metadata.labels.get_or_insert_default().insert("liked".into(), (i == 1).to_string());
        node
    })
    .await?;
    cluster.create(&pod("filler", &json!({"nodeName": "liked"}), "8")).await?;
    let scheduler =
        cluster.in_process(Configuration::default(), Profile::default_named("muster")).await?;
    weights_act(&cluster).await?;
    conditions_say_why(&cluster).await?;
    selectors_and_counts(&cluster).await?;
    columns(&cluster).await?;
    end(scheduler).await?;
    cluster.say("done");
    Ok(())
}

/// A pod that prefers node `liked`.
fn pod(name: &str, more: &Value, cpu: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "muster",
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "i",
                "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 1,
                "preference": {"matchExpressions":
                    [{"key": "liked", "operator": "In", "values": ["true"]}]},
            }]}},
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// Where a new pod goes.
async fn goes(cluster: &Cluster, name: &str) -> Result<String> {
    cluster.create(&pod(name, &Value::Null, "10m")).await?;
    eventually("bound", SOON, || async {
        Ok(!cluster.get_pod(name).await?.spec.node_name.is_empty())
    })
    .await?;
    Ok(cluster.get_pod(name).await?.spec.node_name)
}

async fn put(cluster: &Cluster, method: Method, name: &str, spec: &Value) -> Result<()> {
    let path =
        if method == Method::POST { POLICIES.to_owned() } else { format!("{POLICIES}/{name}") };
    let made = ask(&cluster.admin, method, &path, &policy(name, spec)).await;
    made.map_err(anyhow::Error::msg)?;
    Ok(())
}

/// Whoever is created a second after a change obeys it.
async fn acts(cluster: &Cluster, what: &str, expected: &str) -> Result<()> {
    let since = Instant::now();
    let mut last = Duration::ZERO;
    for i in 0.. {
        let created = since.elapsed();
        if goes(cluster, &format!("{what}-{i}")).await? == expected {
            let soon = created.as_secs_f64();
            cluster.say(&format!("{what}: a pod created {soon:.3} s after the change obeys"));
            return Ok(());
        }
        last = last.max(created);
        ensure!(last < ACTS, "{what}: a pod created {last:?} after the change went elsewhere");
    }
    Ok(())
}

async fn weights_act(cluster: &Cluster) -> Result<()> {
    ensure!(goes(cluster, "before").await? == "liked", "NodeAffinity counts twice by default");
    let weigh = |weight: i32| json!({"priority": 10, "scoreWeights": [{"plugin": "NodeAffinity", "weight": weight}]});
    put(cluster, Method::POST, "weights", &weigh(0)).await?;
    acts(cluster, "without-affinity", "empty").await?;
    put(cluster, Method::PATCH, "weights", &weigh(50)).await?;
    acts(cluster, "with-affinity", "liked").await?;
    put(cluster, Method::PATCH, "weights", &weigh(0)).await?;
    acts(cluster, "without-again", "empty").await?;
    // Full nodes first: the one with the filler.
    put(cluster, Method::POST, "pack", &json!({"priority": 5, "placement": {"strategy": "Pack"}}))
        .await?;
    acts(cluster, "packed", "liked").await?;
    let gone = ask(&cluster.admin, Method::DELETE, &format!("{POLICIES}/pack"), &Value::Null).await;
    gone.map_err(anyhow::Error::msg)?;
    acts(cluster, "unpacked", "empty").await
}

/// The condition Accepted: status, reason, message; and the pods governed.
async fn said(cluster: &Cluster, name: &str) -> Result<(String, i64)> {
    let path = format!("{POLICIES}/{name}");
    let found = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
    let found = found.map_err(anyhow::Error::msg)?;
    let status = &found["status"];
    let conditions = status["conditions"].as_array();
    let accepted = conditions.into_iter().flatten().find(|c| c["type"] == "Accepted");
    let observed = status["observedGeneration"] == found["metadata"]["generation"];
    let text = accepted.filter(|_| observed).map_or_else(String::new, |c| {
        let word = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
        format!("{} {}: {}", word("status"), word("reason"), word("message"))
    });
    Ok((text, status["governedPods"].as_i64().unwrap_or(-1)))
}

async fn says(cluster: &Cluster, name: &str, expected: &str) -> Result<()> {
    let what = format!("{name} says {expected:?}");
    let result =
        eventually(&what, SOON, || async { Ok(said(cluster, name).await?.0 == expected) }).await;
    ensure!(result.is_ok(), "{result:?}; it says {:?}", said(cluster, name).await?);
    Ok(())
}

async fn conditions_say_why(cluster: &Cluster) -> Result<()> {
    says(cluster, "weights", "True Accepted: in force").await?;
    // Younger by a second at least: times of creation are in seconds.
    put(cluster, Method::POST, "younger", &json!({"priority": 10})).await?;
    let taken = "False PriorityTaken: SchedulingPolicy \"weights\" is older and has priority 10 \
                 too: give this one another priority";
    says(cluster, "younger", taken).await?;
    put(cluster, Method::PATCH, "younger", &json!({"priority": 11})).await?;
    says(cluster, "younger", "True Accepted: in force").await?;
    let nobody = json!({"priority": 12, "scoreWeights": [{"plugin": "Nobody", "weight": 1}]});
    put(cluster, Method::POST, "invalid", &nobody).await?;
    let unknown = "False Invalid: spec.scoreWeights: no profile has a Score plugin \"Nobody\": \
                   name one of ImageLocality, InterPodAffinity, NodeAffinity, \
                   NodeResourcesBalancedAllocation, NodeResourcesFit, PodTopologySpread, \
                   TaintToleration, VolumeBinding";
    says(cluster, "invalid", unknown).await?;
    cluster.say("conditions say why");
    Ok(())
}

async fn selectors_and_counts(cluster: &Cluster) -> Result<()> {
    let spec = json!({"priority": 20, "namespaceSelector": {"matchLabels": {"team": "ml"}},
        "podSelector": {"matchLabels": {"app": "train"}}});
    put(cluster, Method::POST, "counted", &spec).await?;
    let governs = |pods: i64| async move {
        eventually(&format!("{pods} pods governed"), SOON, || async {
            Ok(said(cluster, "counted").await? == ("True Accepted: in force".to_owned(), pods))
        })
        .await
    };
    governs(0).await?;
    for i in 0..3 {
        let mut pod = pod(&format!("train-{i}"), &Value::Null, "10m");
        pod["metadata"]["labels"] = json!({"app": "train"});
        cluster.create(&pod).await?;
    }
    let label = json!({"metadata": {"labels": {"team": "ml"}}});
    let path = "/api/v1/namespaces/default";
    ask(&cluster.admin, Method::PATCH, path, &label).await.map_err(anyhow::Error::msg)?;
    governs(3).await?;
    let path = "/api/v1/namespaces/default/pods/train-0?gracePeriodSeconds=0";
    ask(&cluster.admin, Method::DELETE, path, &Value::Null).await.map_err(anyhow::Error::msg)?;
    governs(2).await?;
    cluster.say("governed pods are counted");
    Ok(())
}

/// What `kubectl get msp` shows.
async fn columns(cluster: &Cluster) -> Result<()> {
    let request = Request::get(format!("{POLICIES}/invalid")).header("Accept", TABLE);
    let text = cluster.admin.request_text(request.body(Vec::new())?).await?;
    let table: Value = serde_json::from_str(&text)?;
    let columns = table["columnDefinitions"].as_array().unwrap().iter();
    let columns: Vec<&str> = columns.map(|c| c["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(columns, ["Name", "Priority", "Pods", "Accepted", "Reason", "Age"]);
    let mut cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    cells.pop();
    assert_eq!(json!(cells), json!(["invalid", 12, 0, "False", "Invalid"]));
    Ok(())
}
