//! The status of pod groups follows what their pods really do, in few writes.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use kube_runtime::watcher::{self, Event, watcher};
use muster::watch::Guarded;
use muster_api::muster::{PodGroup, PodGroupStatus, condition};
use muster_control_plane::{ControlPlane, Process, RUN_SECONDS, create_pods, pod};
use serde_json::{Value, json};

use super::{GROUPS, ask, group, install};
use crate::support::{Cluster, SOON, eventually};

const BIG: usize = 1000;

/// A member of a group that muster schedules and kwok runs.
fn member(name: &str, group: &str, run_seconds: Option<u32>) -> Pod {
    let mut pod = pod(name, "muster", "10m", "16Mi");
    let labels = [("muster.dev/pod-group".to_owned(), group.to_owned())];
    pod.metadata.labels = Some(labels.into());
    if let Some(seconds) = run_seconds {
        pod.metadata.annotations = Some([(RUN_SECONDS.to_owned(), seconds.to_string())].into());
    }
    pod
}

/// Counts what is written to pod groups, and remembers the phases of one.
struct Scribe {
    changes: Arc<AtomicUsize>,
    phases: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Scribe {
    fn start(client: Client, name: &'static str) -> Self {
        let changes = Arc::new(AtomicUsize::new(0));
        let phases = Arc::new(Mutex::new(Vec::new()));
        let (count, seen) = (changes.clone(), phases.clone());
        let task = tokio::spawn(async move {
            let api = Api::<Guarded<PodGroup>>::all(client);
            let mut events = pin!(watcher(api, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let Ok(Event::Apply(found)) = event else { continue };
                let Ok(found) = found.object else { continue };
                if found.metadata.name != name {
                    continue;
                }
                count.fetch_add(1, Ordering::Relaxed);
                let phase = found.status.phase.map(|p| p.to_string()).unwrap_or_default();
                let mut seen = seen.lock().unwrap();
                if seen.last() != Some(&phase) {
                    seen.push(phase);
                }
            }
        });
        Self { changes, phases, task }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn status(cluster: &Cluster, name: &str) -> Result<PodGroupStatus> {
    let path = format!("{GROUPS}/{name}");
    let found = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
    let found = found.map_err(anyhow::Error::msg)?;
    Ok(serde_json::from_value::<PodGroup>(found)?.status)
}

/// `Phase/Reason ready/min`.
fn line(status: &PodGroupStatus) -> String {
    let phase = status.phase.map(|p| p.to_string()).unwrap_or_default();
    let reason = status.reason.clone().unwrap_or_default();
    let ready = status.members.unwrap_or_default().ready;
    format!("{phase}/{reason} {ready}/{}", status.min_member.unwrap_or_default())
}

/// Waits until a group's status reads like this.
async fn reads(cluster: &Cluster, name: &str, expected: &str) -> Result<PodGroupStatus> {
    let last = Mutex::new(String::new());
    let waited = eventually(&format!("{name}: {expected}"), SOON, || async {
        let now = line(&status(cluster, name).await?);
        let same = now == expected;
        *last.lock().unwrap() = now;
        Ok(same)
    })
    .await;
    let last = last.lock().unwrap().clone();
    waited.with_context(|| format!("the last status of {name} was {last}"))?;
    cluster.say(&format!("{name}: {expected}"));
    status(cluster, name).await
}

async fn make(cluster: &Cluster, name: &str, spec: &Value) -> Result<()> {
    let made = ask(&cluster.admin, Method::POST, GROUPS, &group(name, spec)).await;
    made.map(drop).map_err(anyhow::Error::msg)
}

async fn members(cluster: &Cluster, group: &str, names: &[&str]) -> Result<()> {
    create_pods(&cluster.admin, "default", names.len(), |i| member(names[i], group, None)).await
}

async fn patch(cluster: &Cluster, path: &str, change: &Value) -> Result<Value> {
    ask(&cluster.admin, Method::PATCH, path, change).await.map_err(anyhow::Error::msg)
}

async fn delete(cluster: &Cluster, path: &str) -> Result<()> {
    let now = json!({"gracePeriodSeconds": 0});
    ask(&cluster.admin, Method::DELETE, path, &now).await.map(drop).map_err(anyhow::Error::msg)
}

#[tokio::test]
async fn the_status_of_a_group_follows_its_pods_in_few_writes() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true)).await?;
    cluster.nodes(20).await?;
    // The kind comes later than the scheduler, which notices.
    let muster = cluster.muster("muster", &[])?;
    create_pods(&cluster.admin, "default", 1, |_| member("early", "small", None)).await?;
    let words = "waiting for pod group default/small to exist";
    eventually("early told", SOON, || async {
        let early = cluster.get_pod("early").await?;
        ensure!(early.spec.node_name.is_empty(), "bound without its group");
        Ok(early.status.conditions.iter().any(|c| c.message == words))
    })
    .await?;
    install(&cluster).await?;
    cluster.say("kinds installed");

    small(&cluster).await?;
    broken(&cluster).await?;
    lost(&cluster).await?;
    let standby = cluster.muster("standby", &[])?;
    big(&cluster, &muster).await?;
    standby.terminate()?;
    ensure!(standby.wait_exit(SOON)? == 0, "exit code after SIGTERM");
    Ok(())
}

/// Late pods, changed minimums, deleted and re-created groups.
async fn small(cluster: &Cluster) -> Result<()> {
    make(cluster, "small", &json!({"minMember": 2})).await?;
    let seen = reads(cluster, "small", "Pending/GangIncomplete 0/2").await?;
    assert_eq!(seen.message.as_deref(), Some("1 of 2 members exist"));
    assert_eq!(seen.observed_generation, Some(1));
    members(cluster, "small", &["late"]).await?;
    let seen = reads(cluster, "small", "Running/Running 2/2").await?;
    ensure!(seen.is_true(condition::SCHEDULED) && seen.is_true(condition::STARTED), "{seen:?}");
    ensure!(seen.scheduled_time.is_some() && seen.start_time.is_some(), "{seen:?}");

    let path = format!("{GROUPS}/small");
    patch(cluster, &path, &json!({"spec": {"minMember": 3}})).await?;
    let seen = reads(cluster, "small", "Degraded/MembersLost 2/3").await?;
    assert_eq!(seen.observed_generation, Some(2));
    patch(cluster, &path, &json!({"spec": {"minMember": 1}})).await?;
    reads(cluster, "small", "Running/Running 2/1").await?;

    delete(cluster, "/api/v1/namespaces/default/pods/early").await?;
    reads(cluster, "small", "Running/Running 1/1").await?;
    delete(cluster, &path).await?;
    make(cluster, "small", &json!({"minMember": 1})).await?;
    reads(cluster, "small", "Running/Running 1/1").await?;
    Ok(())
}

/// Members that end, well or not, and one that does not start.
async fn broken(cluster: &Cluster) -> Result<()> {
    make(cluster, "broken", &json!({"minMember": 3, "startTimeoutSeconds": 2})).await?;
    members(cluster, "broken", &["x0", "x1", "x2"]).await?;
    reads(cluster, "broken", "Running/Running 3/3").await?;

    let set = |name: &'static str, status: Value| async move {
        let path = format!("/api/v1/namespaces/default/pods/{name}/status");
        patch(cluster, &path, &json!({"status": status})).await.map(drop)
    };
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    set(
        "x1",
        json!({"containerStatuses": [{"name": "main", "image": "i", "imageID": "",
        "ready": false, "restartCount": 3, "state": waiting}]}),
    )
    .await?;
    let seen = reads(cluster, "broken", "Scheduled/StartTimeout 2/3").await?;
    let message = seen.message.unwrap_or_default();
    let why = "does not run: CrashLoopBackOff: back-off 10s";
    ensure!(message.contains("member x1 on node") && message.ends_with(why), "{message}");

    set(
        "x1",
        json!({"phase": "Failed", "reason": "UnexpectedAdmissionError",
        "message": "no GPU left"}),
    )
    .await?;
    let seen = reads(cluster, "broken", "Degraded/MembersLost 2/3").await?;
    let message = seen.message.unwrap_or_default();
    ensure!(message.ends_with("failed: UnexpectedAdmissionError: no GPU left"), "{message}");

    // A replacement, and the end.
    members(cluster, "broken", &["x3"]).await?;
    let seen = reads(cluster, "broken", "Running/Running 3/3").await?;
    assert_eq!(seen.members.unwrap().failed, 1);
    for name in ["x0", "x2", "x3"] {
        set(name, json!({"phase": "Succeeded"})).await?;
    }
    let seen = reads(cluster, "broken", "Succeeded/Succeeded 3/3").await?;
    ensure!(seen.is_true(condition::FINISHED) && seen.completion_time.is_some(), "{seen:?}");
    Ok(())
}

/// A node that does not answer is named, and its members count again when it is back.
async fn lost(cluster: &Cluster) -> Result<()> {
    make(cluster, "lost", &json!({"minMember": 1})).await?;
    members(cluster, "lost", &["l0"]).await?;
    reads(cluster, "lost", "Running/Running 1/1").await?;
    let node = cluster.get_pod("l0").await?.spec.node_name;
    let path = format!("/api/v1/nodes/{node}");
    let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
    patch(cluster, &path, &json!({"spec": {"taints": [taint]}})).await?;
    let seen = reads(cluster, "lost", "Degraded/NodeLost 0/1").await?;
    assert_eq!(seen.message, Some(format!("node {node} is not ready: lost l0")));
    patch(cluster, &path, &json!({"spec": {"taints": null}})).await?;
    reads(cluster, "lost", "Running/Running 1/1").await?;
    Ok(())
}

/// A thousand members come, are bound, run and end; the leader is killed while they
/// run.
async fn big(cluster: &Cluster, leader: &Process) -> Result<()> {
    make(cluster, "big", &json!({"minMember": BIG})).await?;
    let scribe = Scribe::start(cluster.admin.clone(), "big");
    create_pods(&cluster.admin, "default", BIG, |i| member(&format!("b{i:04}"), "big", Some(10)))
        .await?;
    let path = format!("{GROUPS}/big");
    eventually("the big gang bound", Duration::from_secs(120), || async {
        Ok(status(cluster, "big").await?.is_true(condition::SCHEDULED))
    })
    .await?;
    leader.kill()?;
    cluster.say("leader killed");
    eventually("the big gang ended", Duration::from_secs(180), || async {
        let found = ask(&cluster.admin, Method::GET, &path, &Value::Null).await;
        Ok(found.map_err(anyhow::Error::msg)?["status"]["phase"] == "Succeeded")
    })
    .await?;
    reads(cluster, "big", "Succeeded/Succeeded 1000/1000").await?;
    let writes = scribe.changes.load(Ordering::Relaxed);
    let phases = scribe.phases.lock().unwrap().clone();
    cluster.say(&format!("{writes} status writes for {BIG} members: {phases:?}"));
    ensure!(writes < 60, "{writes} writes: {phases:?}");
    Ok(())
}
