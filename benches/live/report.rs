//! The results as a table and as JSON.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::run::Scheduler;
use crate::workload::Workload;

#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) bound: usize,
    pub(crate) pods_per_second: f64,
    pub(crate) first_bind_seconds: f64,
    pub(crate) cpu_seconds_per_1000: f64,
    pub(crate) peak_rss_mib: f64,
    pub(crate) events: u64,
    /// Pods that had to go.
    pub(crate) evicted: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Done(Done),
    DidNotFinish { bound: usize, pods: usize, limit: Duration },
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(done) => {
                write!(
                    f,
                    "{} bound, {:.0} pods/s, first after {:.2} s, {:.2} CPU s per 1,000, {:.0} MiB, {} events",
                    done.bound,
                    done.pods_per_second,
                    done.first_bind_seconds,
                    done.cpu_seconds_per_1000,
                    done.peak_rss_mib,
                    done.events
                )?;
                if done.evicted > 0 {
                    write!(f, ", {} evicted", done.evicted)?;
                }
                Ok(())
            }
            Self::DidNotFinish { bound, pods, limit } => {
                write!(f, "did not finish ({bound} of {pods} bound in {} s)", limit.as_secs())
            }
            Self::Failed(why) => write!(f, "failed: {why}"),
        }
    }
}

pub(crate) struct Report {
    nodes: usize,
    pods: usize,
    rows: Vec<(Workload, Scheduler, Outcome)>,
}

impl Report {
    pub(crate) fn new(nodes: usize, pods: usize) -> Self {
        Self { nodes, pods, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, workload: Workload, scheduler: Scheduler, outcome: Outcome) {
        self.rows.push((workload, scheduler, outcome));
    }

    /// kube-scheduler on the same workload, if it finished.
    fn peer(&self, workload: Workload) -> Option<&Done> {
        self.rows.iter().find_map(|row| match row {
            (w, Scheduler::Upstream, Outcome::Done(done)) if *w == workload => Some(done),
            _ => None,
        })
    }

    /// Of kube-scheduler's: CPU, pods per second, memory. None without a peer
    /// that finished.
    fn ratios(&self, workload: Workload, scheduler: Scheduler, done: &Done) -> Option<[f64; 3]> {
        let peer = self.peer(workload).filter(|_| scheduler != Scheduler::Upstream)?;
        Some([
            done.cpu_seconds_per_1000 / peer.cpu_seconds_per_1000,
            done.pods_per_second / peer.pods_per_second,
            done.peak_rss_mib / peer.peak_rss_mib,
        ])
    }

    pub(crate) fn json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|(w, s, o)| self.row(*w, *s, o)).collect();
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        json!({"nodes": self.nodes, "pods": self.pods, "cores": cores, "results": rows})
    }

    fn row(&self, workload: Workload, scheduler: Scheduler, outcome: &Outcome) -> Value {
        let mut row = match outcome {
            Outcome::Done(done) => json!({
                "outcome": "done",
                "bound": done.bound,
                "podsPerSecond": done.pods_per_second,
                "firstBindSeconds": done.first_bind_seconds,
                "cpuSecondsPer1000Pods": done.cpu_seconds_per_1000,
                "peakRssMiB": done.peak_rss_mib,
                "events": done.events,
                "evicted": done.evicted,
            }),
            Outcome::DidNotFinish { bound, limit, .. } => json!({
                "outcome": "did not finish", "bound": bound, "limitSeconds": limit.as_secs(),
            }),
            Outcome::Failed(why) => json!({"outcome": "failed", "reason": why}),
        };
        row["workload"] = workload.name().into();
        row["scheduler"] = scheduler.name().into();
        if let Outcome::Done(done) = outcome
            && let Some([cpu, speed, memory]) = self.ratios(workload, scheduler, done)
        {
            row["ofKubeScheduler"] = json!({"cpu": cpu, "podsPerSecond": speed, "memory": memory});
        }
        row
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        writeln!(f, "{} nodes, {} pods, {cores} cores", self.nodes, self.pods)?;
        writeln!(
            f,
            "{:<15} {:<15} {:>6} {:>8} {:>9} {:>10} {:>9} {:>7}   of kube-scheduler's CPU, pods/s, memory",
            "workload",
            "scheduler",
            "bound",
            "pods/s",
            "first, s",
            "CPU s/1000",
            "peak MiB",
            "events",
        )?;
        for (workload, scheduler, outcome) in &self.rows {
            write!(f, "{:<15} {:<15} ", workload.name(), scheduler.name())?;
            match outcome {
                Outcome::Done(d) => {
                    write!(
                        f,
                        "{:>6} {:>8.0} {:>9.2} {:>10.2} {:>9.0} {:>7}",
                        d.bound,
                        d.pods_per_second,
                        d.first_bind_seconds,
                        d.cpu_seconds_per_1000,
                        d.peak_rss_mib,
                        d.events,
                    )?;
                    if let Some([cpu, speed, memory]) = self.ratios(*workload, *scheduler, d) {
                        write!(f, "   1/{:.1}, {speed:.2}x, {memory:.2}x", 1.0 / cpu)?;
                    }
                    writeln!(f)?;
                }
                other => {
                    let text = other.to_string();
                    writeln!(f, "{}", text.lines().next().unwrap_or_default())?;
                }
            }
        }
        Ok(())
    }
}
