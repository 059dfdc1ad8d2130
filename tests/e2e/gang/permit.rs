//! ExternalApproval and gangs: one member's wait holds all of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, create_pods};
use serde_json::{Value, json};

use super::record::Record;
use super::{all_say, end, make, member, members, reads, status};
use crate::pod_group::install;
use crate::support::{Cluster, eventually};

const MIN: usize = 4;

/// Profiles whose pods need an approval; `soon` waits two seconds for it.
pub(super) fn config() -> String {
    let profile = |name: &str, args: Value| {
        json!({
            "schedulerName": name,
            "plugins": {"permit": {"enabled": [{"name": "ExternalApproval"}]}},
            "pluginConfig": [{"name": "ExternalApproval", "args": args}],
        })
    };
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "profiles": [
            profile("approved", json!({})),
            profile("soon", json!({"timeoutSeconds": 2})),
            {"schedulerName": "muster"},
        ],
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_waits_holds_all() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    cluster.nodes(2).await?;
    let file = cluster.cp.dir().join("config.yaml");
    std::fs::write(&file, config())?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "3", "--config", &file.display().to_string()])?;
    let played = async {
        allowed(&cluster, &record).await.context("allowed")?;
        rejected(&cluster, &record).await.context("rejected")?;
        timed_out(&cluster, &record).await.context("timed out")
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

/// A gang that waits for approvals.
pub(super) async fn gang(
    cluster: &Cluster,
    name: &str,
    scheduler: &str,
    cpu: &str,
    spec: &Value,
) -> Result<()> {
    make(cluster, name, spec).await?;
    let min = spec["minMember"].as_u64().context("no minimum")? as usize;
    create_pods(&cluster.admin, "default", min, |i| {
        let mut pod = member(&format!("{name}-{i}"), name, cpu);
        if let Some(spec) = &mut pod.spec {
            spec.scheduler_name = Some(scheduler.to_owned());
        }
        pod
    })
    .await
}

/// Sets the condition, as somebody who approves would.
pub(super) async fn decide(cluster: &Cluster, pod: &str, status: &str) -> Result<()> {
    let condition = json!({"type": "muster.dev/Approved", "status": status, "reason": "Board"});
    let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/strategic-merge-patch+json")
        .body(serde_json::to_vec(&json!({"status": {"conditions": [condition]}}))?)?;
    cluster.admin.request_text(request).await?;
    Ok(())
}

async fn forget(cluster: &Cluster, name: &str) -> Result<()> {
    for i in 0..MIN {
        super::delete(cluster, &format!("{}/{name}-{i}", super::PODS)).await?;
    }
    super::delete(cluster, &format!("{}/{name}", super::GROUPS)).await
}

/// Three are allowed and wait; with the fourth all go at once.
async fn allowed(cluster: &Cluster, record: &Record) -> Result<()> {
    gang(cluster, "held", "approved", "1", &json!({"minMember": MIN})).await?;
    let seen = reads(cluster, "held", "Waiting/WaitingForPermit").await?;
    let message = seen.message.unwrap_or_default();
    ensure!(message.starts_with("4 of 4 members wait at Permit, at most 300s"), "{message}");
    for i in 0..MIN - 1 {
        decide(cluster, &format!("held-{i}"), "True").await?;
    }
    all_say(cluster, "held", "WaitingOnPermit: ").await?;
    eventually("said who is waited for", super::SOON, || async {
        let message = status(cluster, "held").await?.message.unwrap_or_default();
        Ok(message.starts_with("1 of 4 members wait at Permit") && message.contains("held-3"))
    })
    .await?;
    ensure!(record.bound("held") == 0, "{} are bound", record.bound("held"));
    let begin = Instant::now();
    decide(cluster, "held-3", "True").await?;
    record.wait_bound("held", MIN, Duration::from_secs(5)).await?;
    cluster.say(&format!("all bound {:?} after the last approval", begin.elapsed()));
    record.check("held", MIN, None)?;
    reads(cluster, "held", "Scheduled/Starting").await?;
    forget(cluster, "held").await
}

/// One is refused: the room of all is given back at once, and somebody else takes it.
async fn rejected(cluster: &Cluster, record: &Record) -> Result<()> {
    // Both nodes are full with it.
    gang(cluster, "vetoed", "approved", "2", &json!({"minMember": MIN})).await?;
    reads(cluster, "vetoed", "Waiting/WaitingForPermit").await?;
    gang(cluster, "next", "muster", "2", &json!({"minMember": MIN})).await?;
    reads(cluster, "next", "Scheduling/Unschedulable").await?;
    let begin = Instant::now();
    decide(cluster, "vetoed-2", "False").await?;
    record.wait_bound("next", MIN, Duration::from_secs(10)).await?;
    cluster.say(&format!("the next gang was bound {:?} after the refusal", begin.elapsed()));
    ensure!(record.bound("vetoed") == 0, "{} are bound", record.bound("vetoed"));
    forget(cluster, "vetoed").await?;
    forget(cluster, "next").await
}

/// The plugin's deadline and the gang's own: whichever comes first.
async fn timed_out(cluster: &Cluster, record: &Record) -> Result<()> {
    for (name, scheduler, spec, seconds) in [
        ("late", "soon", json!({"minMember": MIN}), 2_u64),
        ("own", "approved", json!({"minMember": MIN, "scheduleTimeoutSeconds": 3}), 3),
    ] {
        gang(cluster, name, scheduler, "1", &spec).await?;
        all_say(cluster, name, "WaitingOnPermit: ").await?;
        let begin = Instant::now();
        let seen = reads(cluster, name, "Scheduling/ScheduleTimeout").await?;
        let took = begin.elapsed();
        cluster.say(&format!("{name}: gave up after {took:?}: {:?}", seen.message));
        let limit = Duration::from_secs(seconds + 3);
        ensure!(took <= limit, "{name}: gave up after {took:?}");
        ensure!(took >= Duration::from_millis(seconds * 1_000 - 1_500), "{name}: {took:?}");
        ensure!(record.bound(name) == 0, "{name}: {} are bound", record.bound(name));
        ensure!(members(cluster, name).await?.len() == MIN, "{name}: members are gone");
        forget(cluster, name).await?;
    }
    Ok(())
}
