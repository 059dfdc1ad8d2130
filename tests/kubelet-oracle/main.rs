//! Predicted admissions against the kubelet's own, on random machines.
//!
//! The Go program beside this file runs the kubelet's managers; [`generate`] makes
//! machines and pods; each pod is predicted from what the kubelet holds at that moment,
//! and verdict, reason, message and everything given must be equal. A disagreement is
//! shrunk and printed.
//!
//! - `MUSTER_KUBELET_PODS` — how many pods (3,000; the long form is 50,000).
//! - `MUSTER_ORACLE_SEED` — repeats a run; each run prints its own.
//! - `MUSTER_ORACLE_ONLY` — the number of one machine of that run.
//! - `MUSTER_ORACLE_VERBOSE` — prints how often each verdict occurred.

#[path = "../oracle/binary.rs"]
mod binary;
#[allow(dead_code, reason = "streams of pods read what containers have")]
mod driver;
mod generate;
mod judge;
#[path = "../oracle/rng.rs"]
#[allow(dead_code, reason = "shared with the oracle of kube-scheduler")]
mod rng;
#[path = "../oracle/settings.rs"]
mod settings;
mod shrink;

use std::env;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use binary::say;
use driver::Kubelet;
use generate::{Case, case};
use judge::{Seen, judge};
use rng::Rng;
use settings::{number, seed};
use shrink::shrink;

/// Processes that run the kubelet's code at the same time.
const WORKERS: usize = 2;
/// Machines after which a process is replaced: the CPU Manager never lets go of one.
const MACHINES_PER_PROCESS: usize = 300;
/// Pods from which on every kind of refusal must have occurred, and how many times as many
/// may be judged until then.
const LEAST: usize = 3_000;
const MORE: usize = 10;
/// Disagreements that are shrunk and shown.
const SHOWN: usize = 3;

/// What pods are refused with, as it begins: each must have occurred.
const REFUSALS: &[&str] = &[
    "TopologyAffinityError Resources cannot be allocated with Topology locality",
    "TopologyAffinityError Pod Scope pod with pod-level resources failed admission under pod-scope",
    "TopologyAffinityError Pod Scope pod with pod-level resources failed admission with a container",
    "SMTAlignmentError SMT Alignment Error: requested",
    "SMTAlignmentError SMT Alignment Error: not enough free physical CPUs",
    "EmptyPodSharedPoolError pod rejected, sum of exclusive container cpu requests",
    "UnexpectedAdmissionError Allocate failed due to not enough cpus available",
    "UnexpectedAdmissionError Allocate failed due to no healthy devices present",
    "UnexpectedAdmissionError Allocate failed due to requested number of devices unavailable",
    "UnexpectedAdmissionError Allocate failed due to [memorymanager] failed to find NUMA nodes to",
    "UnexpectedAdmissionError Allocate failed due to [memorymanager] failed to get the default",
    "UnexpectedAdmissionError Allocate failed due to [memorymanager] preferred hint violates",
];

/// A machine on which the two sides disagree.
struct Failure {
    number: usize,
    case: Case,
    text: String,
}

#[test]
fn predicts_what_the_kubelet_does() -> Result<()> {
    let seed = seed()?;
    let pods = number("MUSTER_KUBELET_PODS")?.unwrap_or(LEAST);
    let only: Option<usize> = number("MUSTER_ORACLE_ONLY")?;
    // Built once, before anybody waits for it.
    drop(Kubelet::start(false)?);
    let begin = Instant::now();
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Seen::default(), Vec::new()));
    thread::scope(|scope| -> Result<()> {
        let work = || work(seed, only, pods, &next, &total);
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(done) => done?,
                Err(_) => bail!("a worker panicked"),
            }
        }
        Ok(())
    })?;
    let (seen, mut failures) = total.into_inner().ok().context("a worker panicked")?;
    say(&format!(
        "judged {} pods on {} machines in {:.1} s: {} left to chance, {} not followed to the end, \
         {} passed over (seed {seed})",
        seen.pods,
        next.into_inner(),
        begin.elapsed().as_secs_f64(),
        seen.depends,
        seen.incomplete,
        seen.passed_over,
    ));
    if env::var_os("MUSTER_ORACLE_VERBOSE").is_some() {
        say(&format!("{:#?}", seen.verdicts));
    }
    failures.sort_by_key(|failure: &Failure| failure.number);
    report(seed, &failures)?;
    let missing = missing(&seen);
    let complete = only.is_some() || pods < LEAST || missing.is_empty();
    ensure!(complete, "the machines no longer provoke: {missing:#?}");
    Ok(())
}

/// Judges machine after machine until enough pods were judged.
fn work(
    seed: u64,
    only: Option<usize>,
    pods: usize,
    next: &AtomicUsize,
    total: &Mutex<(Seen, Vec<Failure>)>,
) -> Result<()> {
    let mut kubelets = Kubelets::default();
    loop {
        let mut number = next.fetch_add(1, Ordering::Relaxed);
        if let Some(only) = only {
            if number > 0 {
                return Ok(());
            }
            number = only;
        }
        let case = case(&mut Rng::new(seed, number as u64));
        let mut seen = Seen::default();
        let found = judge(kubelets.of(case.machine.pod_level)?, &case, &mut seen)
            .with_context(|| format!("machine {number} of seed {seed}"))?;
        let Ok(mut total) = total.lock() else { bail!("another worker panicked") };
        total.0.add(seen);
        total.1.extend(found.map(|text| Failure { number, case, text }));
        // By chance something rare may not have occurred yet: then some machines more.
        let rare = pods >= LEAST && total.0.pods < MORE * pods && !missing(&total.0).is_empty();
        if total.0.pods >= pods && !rare {
            return Ok(());
        }
    }
}

/// One process per setting of the feature gate, replaced now and then.
#[derive(Default)]
struct Kubelets {
    running: [Option<(Kubelet, usize)>; 2],
}

impl Kubelets {
    fn of(&mut self, pod_level: bool) -> Result<&mut Kubelet> {
        let place = &mut self.running[usize::from(pod_level)];
        if place.as_ref().is_none_or(|(_, machines)| *machines >= MACHINES_PER_PROCESS) {
            *place = Some((Kubelet::start(pod_level)?, 0));
        }
        let (kubelet, machines) = place.as_mut().context("just started")?;
        *machines += 1;
        Ok(kubelet)
    }
}

/// Fails with the smallest machines that still show the first disagreements.
fn report(seed: u64, failures: &[Failure]) -> Result<()> {
    if failures.is_empty() {
        return Ok(());
    }
    let mut kubelets = Kubelets::default();
    let mut text = format!("{} machines disagree (MUSTER_ORACLE_SEED={seed})\n", failures.len());
    for Failure { number, case, text: found } in failures.iter().take(SHOWN) {
        let mut last = found.clone();
        let small = shrink(case, |case| {
            // Chance among devices may hide it once.
            (0..3).any(|_| {
                let mut ask = || -> Result<_> {
                    judge(kubelets.of(case.machine.pod_level)?, case, &mut Seen::default())
                };
                match ask() {
                    Ok(Some(found)) => {
                        last = found;
                        true
                    }
                    _ => false,
                }
            })
        });
        let json = serde_json::to_string(&small)?;
        writeln!(
            text,
            "\nMUSTER_ORACLE_ONLY={number}: {last}\npod-level: {}\n{json}",
            small.machine.pod_level
        )?;
    }
    panic!("{text}")
}

/// Refusals that have not occurred.
fn missing(seen: &Seen) -> Vec<&'static str> {
    let occurred = |words: &&&str| seen.verdicts.keys().any(|verdict| verdict.starts_with(**words));
    REFUSALS.iter().filter(|words| !occurred(words)).copied().collect()
}
