//! One scheduler on one workload.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use kube::Client;
use muster_control_plane::{ControlPlane, KUBE_SCHEDULER, Process, cpu_seconds};
use serde_json::Value;

use crate::observe::{Observer, Seen};
use crate::preemption::LOW_PODS;
use crate::report::{Done, Outcome};
use crate::topology;
use crate::workload::{OWN_NAME, Workload};

const EVENTS: &str = "/apis/events.k8s.io/v1/events";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    #[value(name = "kube-scheduler")]
    Upstream,
    Muster,
    Floor,
}

impl Scheduler {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Upstream => "kube-scheduler",
            Self::Muster => "muster",
            Self::Floor => "floor",
        }
    }

    /// What the pods say.
    fn scheduler_name(self) -> &'static str {
        match self {
            Self::Muster => OWN_NAME,
            Self::Upstream | Self::Floor => "default-scheduler",
        }
    }

    /// Whether there is anything to compare.
    pub(crate) fn makes_sense(self, workload: Workload) -> bool {
        self != Self::Floor || workload.has_floor()
    }

    fn command(self, cp: &ControlPlane, workload: Workload) -> Result<Command> {
        // One user for all, so that the API server treats them alike.
        let kubeconfig = cp.kubeconfig(KUBE_SCHEDULER, &[])?;
        let mut command;
        match self {
            Self::Upstream => return cp.kube_scheduler(workload.feature_gates()),
            Self::Muster => {
                command = Command::new(env!("CARGO_BIN_EXE_muster"));
                command
                    .args(["run", "--leader-elect=false", "--secure-port=0", "--kubeconfig"])
                    .arg(kubeconfig);
            }
            Self::Floor => {
                command = Command::new(std::env::current_exe()?);
                command.args(["floor", "--kubeconfig"]).arg(kubeconfig);
            }
        }
        Ok(command)
    }
}

pub(crate) async fn run(
    workload: Workload,
    scheduler: Scheduler,
    (nodes, rack): (usize, usize),
    pods: usize,
    limit: Duration,
) -> Result<Outcome> {
    let label = format!("{}: {}", workload.name(), scheduler.name());
    let pods = workload.pods(pods, nodes);
    eprintln!("{label}: starting a control plane, then {nodes} nodes and {pods} pods");
    let cp = ControlPlane::builder()
        .feature_gates(workload.feature_gates())
        .runtime_config(workload.runtime_config())
        .start()?;
    let command = scheduler.command(&cp, workload)?;
    let client = cp.admin()?;
    workload.create(&client, nodes, pods, rack, scheduler.scheduler_name()).await?;
    let observer = Observer::start(&client).await?;
    let servers: Vec<u32> = cp.pids().into_iter().map(|(_, pid)| pid).collect();
    quiet(|| servers.iter().map(|pid| cpu_seconds(*pid)).sum(), 0.1).await?;

    let before = count(&client, LOW_PODS).await?;
    let begin = Instant::now();
    let process = cp.spawn(scheduler.name(), &command)?;
    let seen = watch(&label, &observer, &process, pods, begin + limit).await?;
    let (Some(first), Some(last), true) = (seen.first, seen.last, seen.bound >= pods) else {
        return Ok(Outcome::DidNotFinish { bound: seen.bound, pods, limit });
    };
    let events = all_events(&client, pods as u64).await?;
    quiet(|| process.cpu_seconds(), 0.03).await?;
    let thousands = pods as f64 / 1_000.0;
    let done = Done {
        bound: seen.bound,
        pods_per_second: pods as f64 / (last - first).as_secs_f64().max(0.001),
        first_bind_seconds: (first - begin).as_secs_f64(),
        cpu_seconds_per_1000: process.cpu_seconds()? / thousands,
        peak_rss_mib: process.peak_rss_bytes()? as f64 / f64::from(1 << 20),
        events,
        evicted: before - count(&client, LOW_PODS).await?,
    };
    topology::check(&client, workload).await?;
    Ok(Outcome::Done(done))
}

/// Follows the binds to the last one or to the deadline.
async fn watch(
    label: &str,
    observer: &Observer,
    process: &Process,
    pods: usize,
    deadline: Instant,
) -> Result<Seen> {
    let begin = Instant::now();
    let mut tick = Duration::from_secs(5);
    loop {
        let seen = observer.seen();
        if let Some(lost) = &seen.lost {
            bail!("{lost}");
        }
        if let Some(code) = process.exit_code()? {
            let tail = process.log_tail(2_000);
            bail!("ended with code {code} after {} binds; its log ends with:\n{tail}", seen.bound);
        }
        if seen.bound >= pods || Instant::now() >= deadline {
            return Ok(seen);
        }
        if begin.elapsed() >= tick {
            tick += Duration::from_secs(5);
            let seconds = begin.elapsed().as_secs();
            eprintln!("{label}: {} of {pods} bound after {seconds} s", seen.bound);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until each of `pods` has an Event. They are part of the work: whoever writes fewer
/// has done less, and is no match.
async fn all_events(client: &Client, pods: u64) -> Result<u64> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let events = count(client, EVENTS).await?;
        if events >= pods {
            return Ok(events);
        }
        if Instant::now() >= deadline {
            bail!("wrote {events} Events for {pods} pods");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until `cpu` grows by less than `share` of a core, at most 30 s.
async fn quiet(cpu: impl Fn() -> Result<f64>, share: f64) -> Result<()> {
    let mut before = cpu()?;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = cpu()?;
        if now - before < share {
            break;
        }
        before = now;
    }
    Ok(())
}

/// How many objects a collection has.
async fn count(client: &Client, path: &str) -> Result<u64> {
    let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
    let list: Value = client.request(request).await?;
    let first = list["items"].as_array().map_or(0, Vec::len) as u64;
    Ok(first + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
}
