//! `muster simulate`: reads a scenario, draws progress, prints the result.
//!
//! Owns the file, the terminal and the exit code; everything else is in the crate
//! `muster-sim`, which touches none of them.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use muster_sim::limits::MAX_SCENARIO_BYTES;
use muster_sim::report::{Summary, to_json, to_text};
use muster_sim::time::{Micros, parse_duration};
use muster_sim::{Meter, Options, Scenario};

use super::fuzz::Fuzz;
use super::manifest::{self, ManifestArgs};
use crate::plugin::Registry;

const EXAMPLES: &str = "\
Examples:
  muster simulate examples/simulate/gangs.yaml           # a scenario on a simulated cluster
  muster simulate -f job.yaml -n team                    # would this run on my cluster, now?
  muster simulate -f job.yaml --cluster cluster.json     # the same, on a captured one";

/// Arguments of `muster simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Scenario file (YAML), or - for standard input; see examples/simulate/
    #[arg(required_unless_present_any = ["fuzz", "file"], conflicts_with_all = ["fuzz", "file"])]
    pub scenario: Option<PathBuf>,

    #[command(flatten)]
    pub(super) manifest: ManifestArgs,

    /// Instead of a scenario, run random worlds under random faults and check every
    /// invariant; see docs/simulation-testing.md
    #[arg(long, conflicts_with = "file")]
    pub fuzz: bool,

    /// With --fuzz: how many seeds
    #[arg(long, requires = "fuzz", default_value_t = 1_000)]
    pub seeds: u64,

    /// With --fuzz: the first seed
    #[arg(long, requires = "fuzz", default_value_t = 0)]
    pub from: u64,

    /// With --fuzz: stop after this many minutes
    #[arg(long, requires = "fuzz", value_parser = parse_minutes)]
    pub minutes: Option<f64>,

    /// With --fuzz: threads; 0 is one per core
    #[arg(long, requires = "fuzz", default_value_t = 0)]
    pub threads: usize,

    /// Seed of all chance, instead of the scenario's
    #[arg(long)]
    pub seed: Option<u64>,

    /// How to print the result
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub output: Output,

    /// Stop after this much cluster time, e.g. 90s or 1h30m, instead of when the
    /// scenario says or when nothing more can happen
    #[arg(long, value_parser = parse_until)]
    pub until: Option<Micros>,
}

/// How to print the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs; stable
    Json,
}

fn parse_minutes(text: &str) -> Result<f64, String> {
    let minutes: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    let sound = minutes.is_finite() && minutes > 0.0 && minutes <= 60.0 * 24.0 * 365.0;
    if sound { Ok(minutes) } else { Err("must be more than 0 and at most a year".to_owned()) }
}

fn parse_until(text: &str) -> Result<Micros, String> {
    match parse_duration(text)? {
        0 => Err("must be more than 0".to_owned()),
        micros => Ok(micros.min(muster_sim::limits::MAX_DURATION)),
    }
}

/// Runs it. Pods that wait are a result; a broken invariant is a failure.
///
/// # Errors
///
/// If the scenario cannot be read or does not settle.
pub fn run(args: SimulateArgs, registry: &Registry) -> anyhow::Result<ExitCode> {
    let SimulateArgs { scenario, seed, output, until, fuzz, seeds, from, minutes, threads, .. } =
        args;
    if args.manifest.file.is_some() {
        return manifest::run(&args.manifest, output == Output::Json, registry);
    }
    if fuzz {
        return super::fuzz::run(Fuzz { seeds, from, minutes, threads });
    }
    let path = scenario.unwrap_or_default();
    let origin = path.display().to_string();
    let text = read(&path).with_context(|| format!("cannot read scenario {origin}"))?;
    let scenario = Scenario::parse(&text, &origin)?;

    let mut stderr = io::stderr();
    let mut meter = Meter::new(stderr.is_terminal());
    let options = Options { seed, until };
    let outcome = muster_sim::run(&scenario, options, &mut |progress| {
        if let Some(drawn) = meter.update(progress) {
            let _ = stderr.write_all(drawn.as_bytes()); // a bar nobody can see is no error
        }
    });
    if let Some(erased) = meter.finish() {
        let _ = stderr.write_all(erased.as_bytes());
    }
    let outcome = outcome?;

    let summary = Summary::new(&scenario, &outcome);
    let report = match output {
        Output::Text => to_text(&summary),
        Output::Json => to_json(&summary)?,
    };
    match io::stdout().write_all(report.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // `| head` has seen enough
        result => result.context("cannot write the report")?,
    }
    Ok(if outcome.verdict.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// At most one byte more than the simulator accepts, so that it can say what is wrong.
fn read(path: &Path) -> anyhow::Result<String> {
    let limit = MAX_SCENARIO_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => bail!("it is not UTF-8 text"),
    }
}
