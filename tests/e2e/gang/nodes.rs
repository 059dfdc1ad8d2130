//! Nodes are lost under gangs that wait, and under gangs that run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, create_nodes, create_pods, node};
use serde_json::json;

use super::permit::{config, decide, gang};
use super::record::Record;
use super::{GROUPS, PODS, all_say, delete, end, make, member, patch, planned, reads};
use crate::pod_group::install;
use crate::support::{Cluster, SOON, eventually};

const MIN: usize = 3;
/// One more than a gang needs.
const NODES: usize = 4;
/// By then a gang that waits has been planned again.
const AGAIN: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_survive_lost_nodes() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().kwok(true)).await?;
    install(&cluster).await?;
    cluster.nodes(NODES).await?;
    let file = cluster.cp.dir().join("config.yaml");
    std::fs::write(&file, config())?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "3", "--config", &file.display().to_string()])?;
    let played = async {
        for how in ["cordoned", "tainted", "deleted"] {
            waiting(&cluster, &record, how).await.with_context(|| how)?;
        }
        running(&cluster, &record).await.context("running")
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

/// A gang that waits for an approval has room on three of four nodes; one of them is
/// lost, and it waits on the others.
async fn waiting(cluster: &Cluster, record: &Record, how: &str) -> Result<()> {
    gang(cluster, how, "approved", "3", &json!({"minMember": MIN})).await?;
    all_say(cluster, how, "WaitingOnPermit: ").await?;
    eventually("planned", SOON, || async { Ok(planned(cluster, how).await?.len() == MIN) }).await?;
    let before = planned(cluster, how).await?;
    let lost = before.first().context("no node")?.clone();
    let path = format!("/api/v1/nodes/{lost}");
    let begin = Instant::now();
    match how {
        "cordoned" => drop(patch(cluster, &path, &json!({"spec": {"unschedulable": true}})).await?),
        "tainted" => {
            // As the controllers of nodes do; pods tolerate the second for five minutes.
            let key = "node.kubernetes.io/not-ready";
            let taints = ["NoSchedule", "NoExecute"].map(|e| json!({"key": key, "effect": e}));
            patch(cluster, &path, &json!({"spec": {"taints": taints}})).await?;
        }
        _ => delete(cluster, &path).await?,
    }
    let again = eventually("planned again", AGAIN, || async {
        let now = planned(cluster, how).await?;
        Ok(now.len() == MIN && !now.contains(&lost))
    });
    again.await.with_context(|| format!("{lost} of {before:?} was {how}"))?;
    cluster.say(&format!("{how}: planned again after {:?}", begin.elapsed()));
    ensure!(record.bound(how) == 0, "{} are bound", record.bound(how));
    for i in 0..MIN {
        decide(cluster, &format!("{how}-{i}"), "True").await?;
    }
    record.wait_bound(how, MIN, SOON).await?;
    record.check(how, MIN, None)?;
    for i in 0..MIN {
        delete(cluster, &format!("{PODS}/{how}-{i}")).await?;
    }
    delete(cluster, &format!("{GROUPS}/{how}")).await?;
    // As before.
    match how {
        "cordoned" => drop(patch(cluster, &path, &json!({"spec": {"unschedulable": null}})).await?),
        "tainted" => drop(patch(cluster, &path, &json!({"spec": {"taints": null}})).await?),
        _ => create_nodes(&cluster.admin, 1, |_| node(&lost, "4", "16Gi", 110)).await?,
    }
    record.wait("tidied", SOON, |r| r.bound(how) == 0).await
}

/// A gang that runs loses a node: the group says so, its replacement joins the others.
async fn running(cluster: &Cluster, record: &Record) -> Result<()> {
    make(cluster, "run", &json!({"minMember": MIN})).await?;
    create_pods(&cluster.admin, "default", MIN, |i| member(&format!("run-{i}"), "run", "3"))
        .await?;
    record.wait_bound("run", MIN, SOON).await?;
    reads(cluster, "run", "Running/Running").await?;
    let lost = cluster.get_pod("run-0").await?.spec.node_name;
    delete(cluster, &format!("/api/v1/nodes/{lost}")).await?;
    let seen = reads(cluster, "run", "Degraded/NodeLost").await?;
    let message = seen.message.unwrap_or_default();
    ensure!(message.contains(&lost), "{message}");
    // As a controller would.
    delete(cluster, &format!("{PODS}/run-0")).await?;
    let begin = Instant::now();
    create_pods(&cluster.admin, "default", 1, |_| member("run-3", "run", "3")).await?;
    record.wait_bound("run", MIN, Duration::from_secs(10)).await?;
    cluster.say(&format!("the replacement was bound after {:?}", begin.elapsed()));
    reads(cluster, "run", "Running/Running").await?;
    cluster.check_room().await
}
