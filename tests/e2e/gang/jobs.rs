//! Jobs as gangs, through the real job controller, on nodes of kwok.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use muster_control_plane::{ControlPlane, RUN_SECONDS};
use serde_json::{Value, json};

use super::record::Record;
use super::{LABEL, end, form, make, window};
use crate::pod_group::{ask, install};
use crate::support::{Cluster, eventually};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
/// Nodes of 4 CPUs.
const NODES: usize = 20;
/// Gangs that contend, the members of each, and how many of them there is room for.
const MANY: usize = 50;
const MEMBERS: usize = 8;
const ROOM: usize = 20;

/// A Job whose pods are a gang and run for so many seconds.
fn job(name: &str, members: usize, cpu: &str, seconds: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": members, "parallelism": members, "backoffLimit": 0,
            "template": {
                "metadata": {
                    "labels": {LABEL: name},
                    "annotations": {RUN_SECONDS: seconds.to_string()},
                },
                "spec": {
                    "schedulerName": "muster", "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": "example.invalid/none",
                        "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}],
                },
            },
        },
    })
}

async fn submit(
    cluster: &Cluster,
    name: &str,
    members: usize,
    cpu: &str,
    seconds: u32,
) -> Result<()> {
    make(cluster, name, &json!({"minMember": members})).await?;
    let job = job(name, members, cpu, seconds);
    let made = ask(&cluster.admin, Method::POST, JOBS, &job).await;
    made.map(drop).map_err(anyhow::Error::msg)
}

/// Jobs that have completed.
async fn completed(cluster: &Cluster) -> Result<usize> {
    let jobs: Vec<Value> = cluster.list(JOBS).await?;
    let is_done = |job: &&Value| {
        let conditions = job["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|c| c["type"] == "Complete" && c["status"] == "True")
    };
    Ok(jobs.iter().filter(is_done).count())
}

/// Gangs of 2 to 1,000, and fifty that contend for room for twenty: each bound within its
/// window, none starves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_run_whole() -> Result<()> {
    let builder = ControlPlane::builder().kwok(true).controllers(&["job-controller"]);
    let cluster = Cluster::start(builder).await?;
    install(&cluster).await?;
    cluster.nodes(NODES).await?;
    let record = Record::start(cluster.admin.clone());
    let muster = cluster.muster("muster", &[])?;
    let played = async {
        sizes(&cluster, &record).await.context("sizes")?;
        contention(&cluster, &record).await.context("contention")
    };
    played.await.with_context(|| muster.log_tail(6_000))?;
    end(&muster)
}

async fn sizes(cluster: &Cluster, record: &Record) -> Result<()> {
    let sizes: &[usize] =
        if form(0, 1) == 0 { &[2, 16, 100, 1_000] } else { &[2, 3, 5, 16, 40, 100, 400, 1_000] };
    for &size in sizes {
        let name = format!("size-{size}");
        let begin = Instant::now();
        submit(cluster, &name, size, "10m", 2).await?;
        record.wait_bound(&name, size, Duration::from_secs(120)).await?;
        let span = record.span(&name, size).context("not bound")?;
        cluster.say(&format!(
            "a gang of {size} bound {:?} after the Job was made, first to last {span:?}",
            begin.elapsed()
        ));
        ensure!(span <= window(size), "{name}: {span:?} from the first to the last bind");
    }
    let all = sizes.len();
    eventually("completed", Duration::from_secs(120), || async {
        Ok(completed(cluster).await? == all)
    })
    .await
}

async fn contention(cluster: &Cluster, record: &Record) -> Result<()> {
    let before = completed(cluster).await?;
    // So many fill all nodes.
    let cpu = format!("{}m", NODES * 4_000 / ROOM / MEMBERS);
    let begin = Instant::now();
    for i in 0..MANY {
        submit(cluster, &format!("many-{i:02}"), MEMBERS, &cpu, 2).await?;
    }
    eventually("all completed", Duration::from_secs(180), || async {
        Ok(completed(cluster).await? == before + MANY)
    })
    .await?;
    for i in 0..MANY {
        let name = format!("many-{i:02}");
        ensure!(record.succeeded(&name) == MEMBERS, "{name}: {}", record.succeeded(&name));
    }
    let longest = record.check("many-", MEMBERS, None)?;
    cluster.say(&format!(
        "{MANY} gangs of {MEMBERS} in room for {ROOM} ended after {:?}, each bound within \
         {longest:?}",
        begin.elapsed()
    ));
    Ok(())
}
