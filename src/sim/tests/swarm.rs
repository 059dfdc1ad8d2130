//! The swarm: ten thousand worlds per run, `MUSTER_SIM_SEEDS` for more, from
//! `MUSTER_SIM_FROM` on.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use muster_sim::Scenario;
use muster_sim::faults::Counts;
use muster_sim::swarm::{SeedReport, Tweak, draw, replay_line, run_scenario, run_seed, shrink};

use super::number;

/// Runs seeds on two threads; reports in order of seed.
fn run_all(seeds: std::ops::Range<u64>, threads: usize) -> Vec<SeedReport> {
    let next = AtomicU64::new(seeds.start);
    let begin = Instant::now();
    let mut reports: Vec<SeedReport> = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return done;
                }
                if (seed - seeds.start) % 2_500 == 2_499 {
                    eprintln!("{} seeds, {:.1?}", seed - seeds.start + 1, begin.elapsed());
                }
                done.push(run_seed(seed, &Tweak::default()));
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles.into_iter().flat_map(|h| h.join().expect("no panic")).collect()
    });
    reports.sort_by_key(|report| report.seed);
    reports
}

fn totals(reports: &[SeedReport]) -> Counts {
    let mut sum = Counts::default();
    reports.iter().for_each(|report| sum.add(&report.faults));
    sum
}

/// What was wrong with a seed, how to see it again, and the smallest such world.
fn describe(report: &SeedReport) -> String {
    let mut text = format!("{}\n", replay_line(report.seed));
    for violation in report.violations.iter().take(5) {
        let _ = writeln!(text, "  {violation}");
    }
    let (small, runs) = shrink(&draw(report.seed), report.broken[0], &Tweak::default());
    let _ = writeln!(text, "shrunk in {runs} runs:\n{}", small.to_yaml());
    text
}

#[test]
fn ten_thousand_worlds_hold() {
    let from = number("MUSTER_SIM_FROM", 0);
    let count = number("MUSTER_SIM_SEEDS", 10_000);
    let begin = Instant::now();
    let reports = run_all(from..from + count, 2);
    let took = begin.elapsed();
    let steps: u64 = reports.iter().map(|r| r.steps).sum();
    let hours = reports.iter().map(|r| r.time).sum::<i64>() / 3_600_000_000;
    eprintln!("{count} seeds in {took:.1?}: {steps} events, {hours} h of cluster time");
    for (name, n) in totals(&reports).rows() {
        eprintln!("{name:>20} {n}");
    }
    let failed: Vec<&SeedReport> = reports.iter().filter(|r| !r.is_clean()).collect();
    let mut text = String::new();
    for report in failed.iter().take(3) {
        text += &describe(report);
    }
    for report in failed.iter().take(40) {
        let _ = writeln!(text, "{}: {}", report.seed, report.violations[0]);
    }
    assert!(failed.is_empty(), "{} of {count} seeds fail\n{text}", failed.len());
}

/// Every kind of fault really happens, so that none is promised in vain.
#[test]
fn every_fault_happens() {
    let reports = run_all(1_000_000..1_001_500, 2);
    let never: Vec<&str> =
        totals(&reports).rows().filter(|(_, n)| *n == 0).map(|(name, _)| name).collect();
    assert!(never.is_empty(), "never happened: {never:?}");
    let binds: u64 = reports.iter().map(|r| r.binds).sum();
    assert!(binds > 5_000, "only {binds} binds: hardly anything is scheduled");
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    let (one, two) = (run_all(0..200, 1), run_all(0..200, 2));
    assert_eq!(one, two);
    let digests: std::collections::BTreeSet<u64> = one.iter().map(|r| r.digest).collect();
    assert_eq!(digests.len(), one.len(), "different seeds are different worlds");
}

/// A drawn world, written and read, is the same world.
#[test]
fn a_world_survives_being_written() {
    for seed in 0..100 {
        let drawn = draw(seed);
        let yaml = drawn.to_yaml();
        let read = Scenario::parse(&yaml, "case.yaml").unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        let tweak = Tweak::default();
        assert_eq!(run_scenario(&drawn, &tweak), run_scenario(&read, &tweak), "{yaml}");
    }
}

/// Worlds that once went wrong; the first lines of each say how.
#[test]
fn what_once_went_wrong_stays_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder exists")
        .map(|entry| entry.expect("it can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it can be read");
        let name = file.display().to_string();
        assert!(text.starts_with("# "), "{name}: say what was wrong");
        let scenario = Scenario::parse(&text, &name).unwrap_or_else(|e| panic!("{e}"));
        let report = run_scenario(&scenario, &Tweak::default());
        assert!(report.is_clean(), "{name}: {:?}", report.violations);
    }
}
