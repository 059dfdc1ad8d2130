//! Preemption against a disruption budget, where the configuration allows it: with the
//! real disruption controller, whose budget stays as it is.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_control_plane::{ControlPlane, create_nodes, node};
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, USER, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "schedulerName": "muster", "automountServiceAccountToken": false,
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
async fn where_it_is_allowed_a_victim_is_deleted_against_its_budget() -> Result<()> {
    let builder = ControlPlane::builder().controllers(&["disruption-controller"]);
    let cluster = Cluster::start(builder.kwok(true).audit_log(true)).await?;
    cluster.priority_class("high", 1_000, "PreemptLowerPriority").await?;
    create_nodes(&cluster.admin, 1, |_| node("node-000", "1", "16Gi", 110)).await?;
    let mut low = pod("low", &json!({"nodeName": "node-000"}));
    // Kept for a look at it.
    low["metadata"]["finalizers"] = json!(["example.com/look"]);
    cluster.create(&low).await?;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "low"}}},
    });
    cluster.create(&budget).await?;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(cluster.admin.clone());
    eventually("counted", SOON, || async {
        let status = budgets.get("keep").await?.status;
        Ok(status.is_some_and(|s| s.current_healthy == 1 && s.disruptions_allowed == 0))
    })
    .await?;

    let file = cluster.cp.dir().join("ruthless.yaml");
    let args = json!({"allowBudgetViolations": true});
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "profiles": [{
            "schedulerName": "muster",
            "pluginConfig": [{"name": "DefaultPreemption", "args": args}],
        }],
    });
    std::fs::write(&file, config.to_string())?;
    let config = file.display().to_string();
    let powerless = cluster.muster("powerless", &["--config", &config])?;
    cluster.create(&pod("high", &json!({"priorityClassName": "high"}))).await?;
    let told = lacks_the_right(&cluster).await;
    told.with_context(|| powerless.log_tail(4_000))?;
    powerless.kill()?;
    allow_deletion(&cluster).await?;
    let muster = cluster.muster("muster", &["--config", &config])?;
    let played = play(&cluster).await;
    played.with_context(|| muster.log_tail(4_000))
}

/// Without the right the pod says what is missing, and nothing is written on the victim.
async fn lacks_the_right(cluster: &Cluster) -> Result<()> {
    let last = std::sync::Mutex::new(String::new());
    let said = eventually("told which right is missing", SOON, || async {
        let high = cluster.list::<Value>(PODS).await?;
        let high = high.iter().find(|p| p["metadata"]["name"] == "high").context("no high")?;
        let words = crate::gang::scheduled(high);
        let told =
            words.contains("default/low, which was refused") && words.contains("rbac.deletePods");
        *last.lock().unwrap() = words;
        Ok(told)
    })
    .await;
    said.with_context(|| last.lock().unwrap().clone())?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.admin.clone());
    let low = pods.get("low").await?;
    ensure!(low.metadata.deletion_timestamp.is_none(), "it goes");
    let conditions = low.status.and_then(|s| s.conditions).unwrap_or_default();
    ensure!(conditions.iter().all(|c| c.type_ != "DisruptionTarget"), "{conditions:?}");
    Ok(())
}

/// The verb that the role has only where budgets may be broken.
async fn allow_deletion(cluster: &Cluster) -> Result<()> {
    let (group, name) = ("rbac.authorization.k8s.io", "muster-deletes-victims");
    cluster
        .create(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["delete"]}],
        }))
        .await?;
    cluster
        .create(&json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
        }))
        .await
}

async fn play(cluster: &Cluster) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.admin.clone());
    eventually("being deleted", SOON, || async {
        Ok(pods.get("low").await?.metadata.deletion_timestamp.is_some())
    })
    .await?;
    let low = pods.get("low").await?;
    let conditions = low.status.and_then(|s| s.conditions).unwrap_or_default();
    let why = conditions.iter().find(|c| c.type_ == "DisruptionTarget").context("no condition")?;
    ensure!(why.reason.as_deref() == Some("PreemptionByScheduler"), "{why:?}");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("low", &PatchParams::default(), &free).await?;
    eventually("bound", SOON, || async {
        let spec = pods.get("high").await?.spec;
        Ok(spec.and_then(|s| s.node_name).as_deref() == Some("node-000"))
    })
    .await?;
    let left: Vec<Value> = cluster.list(PODS).await?;
    ensure!(left.len() == 1, "{left:?}");
    let ours = |event: &Value| event["user"]["username"] == USER;
    let evictions = cluster.cp.audit_events()?;
    let asked = evictions.iter().filter(|e| ours(e) && e["objectRef"]["subresource"] == "eviction");
    ensure!(asked.count() == 0, "nobody had to be asked");
    cluster.check_room().await
}
