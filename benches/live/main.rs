//! Schedulers side by side on a real API server.
//!
//! For each workload and scheduler: a fresh etcd and API server, the same nodes
//! and pending pods, and only then the scheduler. Measured: pods per second from
//! the first to the last bind, CPU seconds of the scheduler process per 1,000
//! pods, its peak memory, and the Events that it wrote. `floor` is a client that
//! binds round robin without thinking and writes one Event per pod: what the
//! wire alone costs.
//!
//!     cargo bench --bench live
//!     cargo bench --bench live -- --workload plain,gpu --nodes 500 --pods 500
//!     cargo bench --bench live -- --workload preemption
//!     cargo bench --bench live -- --workload gangs-16,gangs-1000
//!     cargo bench --bench live -- --workload gangs-16-rack --nodes 2000 --pods 960 --rack 16
//!     cargo bench --bench live -- --workload gangs-16-rack,gangs-256-block --pods 3200

mod floor;
mod observe;
mod preemption;
mod report;
mod run;
mod topology;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use report::{Outcome, Report};
use run::Scheduler;
use workload::Workload;

#[derive(Parser)]
#[command(about = "Compares schedulers on a real API server")]
struct Cli {
    #[command(flatten)]
    compare: Compare,
    #[command(subcommand)]
    command: Option<Command>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Args)]
struct Compare {
    /// Workloads by name, or `all`.
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "kube-scheduler,muster,floor")]
    schedulers: Vec<Scheduler>,
    #[arg(long, default_value_t = 5_000)]
    nodes: usize,
    #[arg(long, default_value_t = 5_000)]
    pods: usize,
    /// Nodes in a rack; a block is 16 racks.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    rack: u16,
    /// Seconds that a scheduler has to bind all pods.
    #[arg(long, default_value_t = 300)]
    timeout: u64,
    /// Also writes the results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// The floor itself; the bench starts it to measure it alone.
    #[command(hide = true)]
    Floor(floor::Floor),
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    // One thread: what observes shares the cores with what is observed.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match cli.command {
        Some(Command::Floor(floor)) => runtime.block_on(floor.run()),
        None => runtime.block_on(compare(&cli.compare)),
    }
}

async fn compare(args: &Compare) -> anyhow::Result<()> {
    let workloads = Workload::choose(&args.workload)?;
    let mut report = Report::new(args.nodes, args.pods);
    for workload in workloads {
        for &scheduler in args.schedulers.iter().filter(|s| s.makes_sense(workload)) {
            let limit = Duration::from_secs(args.timeout);
            let nodes = (args.nodes, usize::from(args.rack));
            let run = run::run(workload, scheduler, nodes, args.pods, limit);
            let outcome = run.await.unwrap_or_else(|e| Outcome::Failed(format!("{e:#}")));
            eprintln!("{}: {}: {outcome}", workload.name(), scheduler.name());
            report.add(workload, scheduler, outcome);
        }
    }
    println!("{report}");
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report.json())?)?;
    }
    Ok(())
}
