//! How long the core takes to take in what happens, while extenders sleep.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use muster::run::{Message, Question, Scheduler};
use muster_control_plane::{create_nodes, create_pods, node, pod};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::server::{Answer, Server, pass};
use super::{bound, end, extender, new_pod, start};
use crate::support::Cluster;

/// How long each call of the extender takes.
const SLOW: Duration = Duration::from_secs(3);
/// More pods than may be parked at a time.
const PODS: usize = 24;
/// Changes whose way into the core is measured.
const CHANGES: usize = 100;
/// Every change is taken in within this.
const LIMIT: Duration = Duration::from_millis(100);

pub(super) async fn ingestion(cluster: &Cluster) -> Result<()> {
    let script = |_: &str, _: &str, question: &Value| Answer::Late(SLOW, Box::new(pass(question)));
    let server = Server::start("127.0.0.1:0", None, cluster.admin.clone(), script).await?;
    let url = format!("http://{}", server.address);
    let scheduler = start(cluster, "slow", vec![extender(&url, &["filter"])]).await?;
    for i in 0..PODS {
        new_pod(cluster, "slow", &format!("slow-{i:02}"), &json!({})).await?;
    }
    parked(&scheduler).await?;
    let mut lags = Vec::new();
    let (mut busy, begin) = (0, Instant::now());
    for i in 0..CHANGES {
        let name = format!("lag-{i:02}");
        let seen = if i % 2 == 0 {
            create_nodes(&cluster.admin, 1, |_| node(&name, "1", "1Gi", 110)).await?;
            Seen::Node(name)
        } else {
            create_pods(&cluster.admin, "default", 1, |_| bound_pod(&name)).await?;
            Seen::Pod(format!("default/{name}"))
        };
        let written = Instant::now();
        while !seen.by(&scheduler).await? {
            ensure!(written.elapsed() < Duration::from_secs(30), "{seen:?} is never taken in");
        }
        lags.push(written.elapsed());
        busy += usize::from(asking(&scheduler).await? > 0);
    }
    let took = begin.elapsed();
    lags.sort_unstable();
    let (middle, most, worst) = (lags[CHANGES / 2], lags[CHANGES * 19 / 20], lags[CHANGES - 1]);
    cluster.say(&format!(
        "lag of {CHANGES} changes in {took:?}, extenders busy at {busy} of them: median \
         {middle:?}, 95 % {most:?}, worst {worst:?}"
    ));
    ensure!(busy > CHANGES / 4, "the extender was asked nothing meanwhile");
    ensure!(worst < LIMIT, "a change took {worst:?} to be taken in");
    for i in 0..PODS {
        bound(cluster, &format!("slow-{i:02}")).await?;
    }
    end(scheduler).await?;
    Ok(())
}

/// A pod that takes no room and is bound from the start.
fn bound_pod(name: &str) -> Pod {
    let mut pod = pod(name, "nobody", "0", "0");
    pod.spec.get_or_insert_default().node_name = Some("node-0".to_owned());
    pod
}

#[derive(Debug)]
enum Seen {
    Node(String),
    Pod(String),
}

impl Seen {
    /// Whether the core knows of it.
    async fn by(&self, scheduler: &Scheduler) -> Result<bool> {
        let (answer, heard) = oneshot::channel();
        scheduler.mailbox().send(Message::Ask(Question::Cache(answer))).await.context("ended")?;
        let cache = heard.await?;
        Ok(match self {
            Self::Node(name) => cache.nodes.iter().any(|n| n.name == *name),
            Self::Pod(name) => cache.nodes.iter().any(|n| n.pods.contains(name)),
        })
    }
}

/// How many cycles wait for an extender.
async fn asking(scheduler: &Scheduler) -> Result<usize> {
    let (answer, heard) = oneshot::channel();
    scheduler.mailbox().send(Message::Ask(Question::Queue(answer))).await.context("ended")?;
    Ok(heard.await?.pods.iter().filter(|p| p.queue == "asking").count())
}

async fn parked(scheduler: &Scheduler) -> Result<()> {
    let begin = Instant::now();
    while asking(scheduler).await? < 8 {
        ensure!(begin.elapsed() < Duration::from_secs(30), "no cycle is parked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
