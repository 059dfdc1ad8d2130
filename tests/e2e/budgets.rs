//! Preemption under disruption budgets, with the real disruption controller.
//!
//! Five hundred pods of low priority fill fifty nodes, ten apps with one pod on each.
//! A hundred pods of high priority arrive. Half of the apps may lose twelve pods each,
//! the others none: sixty can run, and the rest must say which budget stands in the
//! way. Then one budget gives way, and so does the rest.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_control_plane::{ControlPlane, Process, create_nodes, create_objects, node};
use serde_json::{Value, json};

use crate::healthy::{Healthy, app_of};
use crate::support::{Cluster, SOON, USER, eventually};

const NODES: usize = 50;
const APPS: usize = 10;
/// Apps that may lose pods, and how many each.
const GENEROUS: usize = 5;
const ALLOWED: usize = 12;
const HIGH: usize = 100;
const PODS: &str = "/api/v1/namespaces/default/pods";
/// For a hundred preemptions, on a slow machine. An eviction that the API server has
/// counted and then not carried out, because its client gave up waiting, is given back
/// to the budget by the disruption controller, after two minutes.
const LIMIT: Duration = Duration::from_secs(240);

/// How many pods of an app must stay.
fn minimum(app: usize) -> usize {
    if app < GENEROUS { NODES - ALLOWED } else { NODES }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preemption_breaks_no_budget_and_evicts_nobody_in_vain() -> Result<()> {
    let builder = ControlPlane::builder().controllers(&["disruption-controller"]);
    let cluster = Cluster::start(builder.kwok(true).audit_log(true)).await?;
    cluster.priority_class("high", 1_000, "PreemptLowerPriority").await?;
    fill(&cluster).await?;
    let minima = (0..APPS).map(|app| (format!("app-{app}"), minimum(app))).collect();
    let healthy = Healthy::watch(&cluster.admin, minima);
    let muster = cluster.muster("muster", &["--leader-elect=false", "-v", "2"])?;
    create_objects(&cluster.admin, PODS, "pods", HIGH, |i| {
        pod(&format!("high-{i:03}"), "", "high")
    })
    .await?;
    let played = play(&cluster, &healthy).await;
    played.with_context(|| muster.log_tail(8_000))?;
    healthy.check()?;
    audit(&cluster, &healthy, &muster)?;
    cluster.say("done");
    Ok(())
}

async fn play(cluster: &Cluster, healthy: &Healthy) -> Result<()> {
    let can = GENEROUS * ALLOWED;
    settled(cluster, can).await.context("as many run as the budgets allow")?;
    healthy.check()?;
    ensure!(healthy.went() == can, "{} went for {can} that run", healthy.went());
    nobody_in_vain(cluster, healthy).await?;
    cluster.say(&format!("{can} run, {} wait for a budget", HIGH - can));

    // One budget gives way: its pods go, and nobody else's.
    let generous = format!("app-{GENEROUS}");
    let left = NODES - (HIGH - can);
    healthy.set_minimum(&generous, left);
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(cluster.admin.clone());
    let patch = Patch::Merge(json!({"spec": {"minAvailable": left}}));
    budgets.patch(&generous, &PatchParams::default(), &patch).await?;
    settled(cluster, HIGH).await.context("all run once a budget has given way")?;
    ensure!(healthy.went() == HIGH, "{} went for {HIGH} that run", healthy.went());
    nobody_in_vain(cluster, healthy).await?;
    cluster.check_room().await
}

/// Nodes, pods bound to them, budgets; all healthy as the controller sees it.
async fn fill(cluster: &Cluster) -> Result<()> {
    create_nodes(&cluster.admin, NODES, |i| node(&format!("node-{i:03}"), "10", "64Gi", 110))
        .await?;
    create_objects(&cluster.admin, PODS, "pods", NODES * APPS, |i| {
        let (app, node) = (i % APPS, i / APPS);
        let mut pod = pod(&format!("low-{i:03}"), &format!("app-{app}"), "");
        pod["spec"]["nodeName"] = format!("node-{node:03}").into();
        pod
    })
    .await?;
    for app in 0..APPS {
        let name = format!("app-{app}");
        cluster
            .create(&json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"minAvailable": minimum(app), "selector": {"matchLabels": {"app": name}}},
            }))
            .await?;
    }
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(cluster.admin.clone());
    eventually("healthy", LIMIT, || async {
        let list = budgets.list(&kube::api::ListParams::default()).await?;
        let mut all = list.items.iter().filter_map(|b| b.status.as_ref());
        let whole = i32::try_from(NODES)?;
        Ok(list.items.len() == APPS && all.all(|status| status.current_healthy == whole))
    })
    .await?;
    cluster.say("all nodes are full, all pods healthy, all budgets counted");
    Ok(())
}

fn pod(name: &str, app: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "schedulerName": "muster", "priorityClassName": class,
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.invalid/none",
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        },
    })
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Waits until so many of high priority run, and each of the others says which budget
/// stands in its way.
async fn settled(cluster: &Cluster, run: usize) -> Result<()> {
    let seen = std::sync::Mutex::new(String::new());
    let done = eventually("settled", LIMIT, || async {
        let pods: Vec<Value> = cluster.list(PODS).await?;
        let high = || pods.iter().filter(|p| text(p, "/metadata/name").starts_with("high-"));
        let (bound, waiting): (Vec<_>, Vec<_>) =
            high().partition(|p| !text(p, "/spec/nodeName").is_empty());
        ensure!(bound.len() <= run, "{} run where {run} can", bound.len());
        let told = |pod: &&&Value| {
            let conditions = pod["status"]["conditions"].as_array();
            let message = conditions.and_then(|all| {
                all.iter().find(|c| c["type"] == "PodScheduled").map(|c| text(c, "/message"))
            });
            let names = |m: &str| m.contains("PodDisruptionBudget default/app-");
            message.is_some_and(names) && text(pod, "/status/nominatedNodeName").is_empty()
        };
        let told = waiting.iter().filter(told).count();
        *seen.lock().unwrap() = format!(
            "{} of {run} run, {told} of {} that wait name a budget; one of them: {}",
            bound.len(),
            waiting.len(),
            waiting.first().map_or_else(String::new, |pod| pod["status"].to_string())
        );
        let going = pods.iter().any(|p| !p["metadata"]["deletionTimestamp"].is_null());
        Ok(bound.len() == run && told == waiting.len() && !going)
    });
    let Err(late) = done.await else { return Ok(()) };
    let budgets: Vec<Value> =
        cluster.list("/apis/policy/v1/namespaces/default/poddisruptionbudgets").await?;
    let line = |b: &Value| format!("{}: {}", text(b, "/metadata/name"), b["status"]);
    let budgets: Vec<String> = budgets.iter().map(line).collect();
    Err(late.context(format!("{}\n{}", seen.lock().unwrap(), budgets.join("\n"))))
}

/// On every node, taking any one victim back would have left somebody without room:
/// all pods are of one size, and the nodes were full.
async fn nobody_in_vain(cluster: &Cluster, healthy: &Healthy) -> Result<()> {
    let pods: Vec<Value> = cluster.list(PODS).await?;
    let mut came: HashMap<&str, usize> = HashMap::new();
    for pod in pods.iter().filter(|p| text(p, "/metadata/name").starts_with("high-")) {
        *came.entry(text(pod, "/spec/nodeName")).or_default() += 1;
    }
    came.remove("");
    let went = healthy.went_by_node();
    for (node, went) in &went {
        let came = came.get(node.as_str()).copied().unwrap_or_default();
        ensure!(came == *went, "{node}: {went} went, {came} came");
    }
    ensure!(went.len() == came.len(), "{} nodes lost pods, {} won some", went.len(), came.len());
    // Nothing but the budgets' own apps went.
    let by_app = pods.iter().filter(|p| text(p, "/metadata/name").starts_with("low-"));
    let mut stay: BTreeMap<&str, usize> = BTreeMap::new();
    by_app.for_each(|p| *stay.entry(app_of(p)).or_default() += 1);
    for (app, least) in healthy.minima() {
        let stay = stay.get(app.as_str()).copied().unwrap_or_default();
        ensure!(stay >= least, "{stay} of {app} stay, {least} must");
    }
    Ok(())
}

/// As the API server saw it: we deleted no pod, and whoever went was evicted.
fn audit(cluster: &Cluster, healthy: &Healthy, muster: &Process) -> Result<()> {
    let mut evicted: BTreeSet<String> = BTreeSet::new();
    for event in cluster.cp.audit_events()? {
        let is_ours = text(&event, "/user/username") == USER;
        let subresource = text(&event, "/objectRef/subresource");
        let is_pod = text(&event, "/objectRef/resource") == "pods" && subresource.is_empty();
        let deletes = is_ours && is_pod && text(&event, "/verb") == "delete";
        ensure!(!deletes, "deleted a pod: {event}");
        let ok = event.pointer("/responseStatus/code").and_then(Value::as_u64) == Some(201);
        if ok && is_ours && subresource == "eviction" {
            evicted.insert(text(&event, "/objectRef/name").to_owned());
        }
    }
    for name in healthy.names() {
        ensure!(evicted.contains(&name), "{name} went and was not evicted");
    }
    muster.terminate()?;
    ensure!(muster.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    Ok(())
}
