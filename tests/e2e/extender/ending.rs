//! A bind that an extender was asked for is a write: the end waits for it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::server::{Answer, Server};
use super::{counted, end, extender, new_pod, start};
use crate::support::{Cluster, SOON, eventually};

/// How long the extender takes to bind.
const SLOW: Duration = Duration::from_secs(2);

pub(super) async fn at_the_end(cluster: &Cluster) -> Result<()> {
    let script = |_: &str, _: &str, _: &Value| Answer::Late(SLOW, Box::new(Answer::Bind));
    let server = Server::start("127.0.0.1:0", None, cluster.admin.clone(), script).await?;
    let url = format!("http://{}", server.address);
    let scheduler = start(cluster, "ending", vec![extender(&url, &["bind"])]).await?;
    new_pod(cluster, "ending", "last", &json!({})).await?;
    let asked = || async { Ok(server.asked("bind", "last").len() == 1) };
    eventually("asked to bind", SOON, asked).await?;
    let (metrics, begin) = (scheduler.metrics().clone(), Instant::now());
    end(scheduler).await?;
    let took = begin.elapsed();
    let node = cluster.get_pod("last").await?.spec.node_name;
    ensure!(!node.is_empty(), "it ended after {took:?}, before the extender had bound the pod");
    let labels = format!("extender=\"{url}\",result=\"success\",verb=\"bind\"");
    let binds = counted(&metrics, &format!("muster_extender_calls_total{{{labels}}}"));
    ensure!(binds == 1.0, "{binds} binds were answered");
    cluster.say(&format!("the end waited {took:.1?} for an extender's bind"));
    Ok(())
}
