//! `muster simulate --fuzz`: seed after seed of the simulator's swarm.
//!
//! Owns the threads, the wall clock, the bar and the exit code; what a seed means
//! is the simulator's. Seeds are run in parallel and reported in order, so that the
//! output is the same bytes on any number of threads.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use muster_sim::faults::Counts;
use muster_sim::swarm::{SeedReport, Tweak, draw, replay_line, run_seed, shrink};
use rayon::prelude::*;

/// Seeds that are handed to the threads together.
const BATCH: u64 = 256;
/// Failing seeds that are made small and shown in full; the rest are named.
const SHOWN: usize = 3;
/// Failing seeds after which no more are looked for.
const MAX_FAILURES: usize = 100;
const BAR: usize = 30;

/// What `--fuzz` asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fuzz {
    pub(super) seeds: u64,
    pub(super) from: u64,
    pub(super) minutes: Option<f64>,
    pub(super) threads: usize,
}

/// Sums over all seeds.
#[derive(Default)]
struct Totals {
    seeds: u64,
    steps: u64,
    binds: u64,
    micros: i64,
    faults: Counts,
    digest: u64,
    failures: Vec<SeedReport>,
}

impl Totals {
    fn add(&mut self, report: SeedReport) {
        self.seeds += 1;
        self.steps += report.steps;
        self.binds += report.binds;
        self.micros += report.time;
        self.faults.add(&report.faults);
        self.digest = self.digest.rotate_left(5) ^ report.digest;
        if !report.is_clean() {
            self.failures.push(report);
        }
    }

    fn summary(&self) -> String {
        let mut text = format!(
            "{} seeds, {} events, {} binds, {} h of cluster time, {} seeds with violations, digest {:016x}\nfaults:",
            self.seeds,
            self.steps,
            self.binds,
            self.micros / 3_600_000_000,
            self.failures.len(),
            self.digest
        );
        for (name, count) in self.faults.rows().filter(|(_, count)| *count > 0) {
            let _ = write!(text, " {name} {count}");
        }
        text.push('\n');
        text
    }
}

/// Draws one line on a terminal; in a log, a line per quarter.
struct Bar {
    terminal: bool,
    last: Option<u64>,
}

impl Bar {
    fn update(&mut self, done: u64, all: u64, failures: usize) {
        let percent = (done * 100).checked_div(all).unwrap_or(100);
        let step = if self.terminal { percent } else { percent / 25 };
        if self.last == Some(step) || (!self.terminal && step == 0) {
            return;
        }
        self.last = Some(step);
        let counts = format!("{done} of {all} seeds, {failures} with violations");
        let drawn = if self.terminal {
            let full = BAR * usize::try_from(percent.min(100)).unwrap_or(0) / 100;
            let bar = "█".repeat(full) + &"░".repeat(BAR - full);
            format!("\r{bar} {percent:>3} %  {counts}\x1b[K")
        } else {
            format!("{percent:>3} %  {counts}\n")
        };
        let _ = io::stderr().write_all(drawn.as_bytes()); // a bar nobody can see is no error
    }

    fn clear(&mut self) {
        if self.terminal && self.last.take().is_some() {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }
}

/// Runs the seeds; a violation is a failure.
///
/// # Errors
///
/// If threads cannot be started or the report cannot be written.
pub(super) fn run(fuzz: Fuzz) -> anyhow::Result<ExitCode> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(fuzz.threads)
        .build()
        .context("cannot start threads")?;
    let deadline = fuzz.minutes.map(|m| Instant::now() + Duration::from_secs_f64(m * 60.0));
    let mut bar = Bar { terminal: io::stderr().is_terminal(), last: None };
    let mut totals = Totals::default();
    let tweak = Tweak::default();
    let end = fuzz.from.saturating_add(fuzz.seeds);
    let mut next = fuzz.from;
    while next < end && totals.failures.len() < MAX_FAILURES {
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        let batch = next..end.min(next.saturating_add(BATCH));
        next = batch.end;
        let reports: Vec<SeedReport> =
            pool.install(|| batch.into_par_iter().map(|seed| run_seed(seed, &tweak)).collect());
        let known = totals.failures.len();
        reports.into_iter().for_each(|report| totals.add(report));
        // At once: whoever watches a long run need not wait for its end.
        for (index, report) in totals.failures.iter().enumerate().skip(known) {
            bar.clear();
            say(&describe(report, index < SHOWN, &tweak))?;
        }
        bar.update(next - fuzz.from, fuzz.seeds, totals.failures.len());
    }
    bar.clear();
    say(&totals.summary())?;
    Ok(if totals.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the report"),
    }
}

/// How to see it again, what was wrong, and the smallest such world.
fn describe(report: &SeedReport, in_full: bool, tweak: &Tweak) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", replay_line(report.seed));
    for violation in report.violations.iter().take(if in_full { 10 } else { 1 }) {
        let _ = writeln!(text, "  {violation}");
    }
    if let Some(invariant) = report.broken.first().filter(|_| in_full) {
        let (small, runs) = shrink(&draw(report.seed), invariant, tweak);
        let _ = writeln!(text, "# {invariant}, made small in {runs} runs; save it and run");
        let _ = writeln!(text, "# muster simulate FILE\n{}", small.to_yaml());
    }
    text
}
