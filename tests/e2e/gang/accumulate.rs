//! A gang that accumulates keeps what it has found: until the rest is there, or its deadline.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, create_nodes, create_pods, node, pod};
use serde_json::{Value, json};

use super::record::Record;
use super::{GROUPS, PODS, delete, end, make, member, reads, scheduled};
use crate::pod_group::install;
use crate::support::{Cluster, SOON, eventually};

/// One more than a node of four CPUs has room for.
const MIN: usize = 3;
const DEADLINE: u64 = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_found_is_kept_until_the_rest_is_there_or_the_deadline() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    cluster.nodes(1).await?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "3"])?;
    let played = async {
        given_back(&cluster, &record).await.context("given back")?;
        completed(&cluster, &record).await.context("completed")
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

async fn gang(cluster: &Cluster, name: &str, seconds: u64) -> Result<()> {
    let spec = json!({
        "minMember": MIN, "reservation": "Accumulate", "scheduleTimeoutSeconds": seconds,
    });
    make(cluster, name, &spec).await?;
    create_pods(&cluster.admin, "default", MIN, |i| member(&format!("{name}-{i}"), name, "2"))
        .await?;
    let seen = reads(cluster, name, "Waiting/Accumulating").await?;
    let message = seen.message.unwrap_or_default();
    ensure!(message.starts_with("room for 2 of 3 members; member "), "{message}");
    Ok(())
}

async fn forget(cluster: &Cluster, name: &str) -> Result<()> {
    for i in 0..MIN {
        delete(cluster, &format!("{PODS}/{name}-{i}")).await?;
    }
    delete(cluster, &format!("{GROUPS}/{name}")).await
}

async fn small(cluster: &Cluster) -> Result<Value> {
    let pods = cluster.list(&format!("{PODS}?fieldSelector=metadata.name%3Dsmall")).await?;
    pods.into_iter().next().context("no pod")
}

/// A small pod finds no room while the gang keeps it, and has it after the deadline.
async fn given_back(cluster: &Cluster, record: &Record) -> Result<()> {
    gang(cluster, "short", DEADLINE).await?;
    let begin = Instant::now();
    create_pods(&cluster.admin, "default", 1, |_| pod("small", "muster", "1", "16Mi")).await?;
    eventually("said to have no room", SOON, || async {
        Ok(scheduled(&small(cluster).await?).starts_with("Unschedulable: "))
    })
    .await?;
    ensure!(begin.elapsed() < Duration::from_secs(DEADLINE), "too slow to tell");
    eventually("given room", SOON, || async { Ok(super::is_bound(&small(cluster).await?)) })
        .await?;
    let took = begin.elapsed();
    cluster.say(&format!("what was kept was given back after {took:?}"));
    ensure!(took >= Duration::from_millis(DEADLINE * 1_000 - 2_500), "{took:?}");
    ensure!(took <= Duration::from_secs(DEADLINE + 6), "{took:?}");
    ensure!(record.bound("short") == 0, "{} are bound", record.bound("short"));
    delete(cluster, &format!("{PODS}/small")).await?;
    forget(cluster, "short").await
}

/// Another node comes: all are bound together.
async fn completed(cluster: &Cluster, record: &Record) -> Result<()> {
    gang(cluster, "long", 300).await?;
    ensure!(record.bound("long") == 0, "{} are bound", record.bound("long"));
    let begin = Instant::now();
    create_nodes(&cluster.admin, 1, |_| node("another", "4", "16Gi", 110)).await?;
    record.wait_bound("long", MIN, SOON).await?;
    cluster.say(&format!("bound {:?} after the last room came", begin.elapsed()));
    record.check("long", MIN, None)?;
    reads(cluster, "long", "Scheduled/Starting").await?;
    cluster.check_room().await
}
