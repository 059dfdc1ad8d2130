//! Eight pods: seven wait, eight go.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, create_pods};
use serde_json::json;

use super::record::Record;
use super::{all_say, end, is_bound, make, member, members, reads};
use crate::pod_group::install;
use crate::support::{Cluster, SOON, eventually};

const MIN: usize = 8;

/// Below the minimum nothing is bound and every pod says why; with it all are bound, and
/// the group says so. A pod that joins later goes alone; one that names a group that is
/// not there waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_go_together() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    cluster.nodes(4).await?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &["-v", "3"])?;
    let played = play(&cluster, &record).await;
    played.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

async fn play(cluster: &Cluster, record: &Record) -> Result<()> {
    make(cluster, "train", &json!({"minMember": MIN})).await?;
    create_pods(&cluster.admin, "default", MIN - 1, |i| {
        member(&format!("train-{i}"), "train", "100m")
    })
    .await?;
    create_pods(&cluster.admin, "default", 1, |_| member("stray-0", "stray", "100m")).await?;
    all_say(cluster, "train", "GangIncomplete: 7 of 8 members exist").await?;
    let words = "GangIncomplete: waiting for pod group default/stray to exist";
    all_say(cluster, "stray", words).await?;
    reads(cluster, "train", "Pending/GangIncomplete").await?;
    // A pod of no gang passes them: the scheduler has had its turn.
    cluster.pods("other", 1, "muster", "100m").await?;
    eventually("other bound", SOON, || async {
        Ok(!cluster.get_pod("other-0000").await?.spec.node_name.is_empty())
    })
    .await?;
    ensure!(record.bound("train") == 0, "{} of 7 are bound", record.bound("train"));
    cluster.say("seven wait");

    let begin = Instant::now();
    create_pods(&cluster.admin, "default", 1, |_| member("train-7", "train", "100m")).await?;
    record.wait_bound("train", MIN, Duration::from_secs(10)).await?;
    cluster.say(&format!("eight bound after {:?}", begin.elapsed()));
    let span = record.check("train", MIN, None)?;
    cluster.say(&format!("the first to the last bind took {span:?}"));
    reads(cluster, "train", "Scheduled/Starting").await?;
    all_say(cluster, "train", ": ").await?;

    create_pods(&cluster.admin, "default", 1, |_| member("train-8", "train", "100m")).await?;
    record.wait_bound("train", MIN + 1, SOON).await?;
    make(cluster, "stray", &json!({"minMember": 1})).await?;
    record.wait_bound("stray", 1, SOON).await?;
    let pods = members(cluster, "train").await?;
    ensure!(pods.len() == MIN + 1 && pods.iter().all(is_bound), "{pods:?}");
    cluster.check_room().await
}
