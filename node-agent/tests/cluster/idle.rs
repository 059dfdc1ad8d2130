//! What the agent costs when nothing happens.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::support::{Cluster, Node, SOON, condition, eventually};

/// Limits with optimisation, and without: then code is several times as slow and as large.
const MAX_RSS: u64 = if cfg!(debug_assertions) { 48 << 20 } else { 32 << 20 };
const MAX_CPU: f64 = if cfg!(debug_assertions) { 0.02 } else { 0.002 };
/// How long it is watched: where the limits are the true ones, longer than a minute, because each minute everything is
/// asked.
const WATCHED: Duration = Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 75 });

/// Resident memory now.
fn rss(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")).context("VmRSS")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

fn get(address: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_agent_costs_next_to_nothing() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut node = Node::new(&cluster, "dgx-h100").await?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    node.start(&cluster, &["--listen", &address])?;
    node.until(&cluster, "written", SOON, |o| condition(o, "PodResourcesAvailable") == "True")
        .await?;
    let ready = async || Ok(get(&address, "/readyz").is_ok_and(|a| a.starts_with("HTTP/1.1 200")));
    eventually("ready", SOON, ready).await?;
    ensure!(get(&address, "/livez")?.starts_with("HTTP/1.1 200"), "alive");
    let metrics = get(&address, "/metrics")?;
    for family in [
        "muster_node_gpu_health{gpu=\"0\"",
        "muster_node_gpu_power_watts{gpu=\"7\"",
        "muster_node_gpu_utilization_ratio",
        "muster_node_gpu_nvlinks_active",
        "muster_node_devices{resource=\"nvidia.com/gpu\",state=\"Free\"} 8",
        "muster_node_agent_writes_total{kind=\"NodeTopology\",result=\"success\"} 1",
        "muster_node_condition{type=\"PodResourcesAvailable\"} 1",
    ] {
        ensure!(metrics.contains(family), "{family} is not in\n{metrics}");
    }

    let agent = node.agent()?;
    let (begin, before) = (Instant::now(), agent.cpu_seconds()?);
    let written = cluster.writes("nodetopologies")?.len();
    let asked = node.kubelet.calls();
    // Watched for a while, not waited for: there is nothing that would tell that nothing happens.
    tokio::time::sleep(WATCHED).await;
    let share = (agent.cpu_seconds()? - before) / begin.elapsed().as_secs_f64();
    let (now, peak) = (rss(agent.pid())?, agent.peak_rss_bytes()?);
    eprintln!(
        "idle: {:.2} % of a core, {:.1} MiB resident, {:.1} MiB at most",
        share * 100.0,
        now as f64 / 1_048_576.0,
        peak as f64 / 1_048_576.0
    );
    ensure!(peak <= MAX_RSS, "{peak} bytes resident");
    ensure!(share <= MAX_CPU, "{share} of a core");
    // Two calls a reading, a reading every 15 seconds.
    let asked = node.kubelet.calls() - asked;
    let most = 2 * (1 + WATCHED.as_secs() / 15);
    ensure!(asked <= most, "the kubelet was asked {asked} times in {WATCHED:?}");
    let after = cluster.writes("nodetopologies")?.len();
    ensure!(after == written, "{} writes although nothing happened", after - written);
    Ok(())
}
