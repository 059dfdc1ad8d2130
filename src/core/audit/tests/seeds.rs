//! Many random histories: none is wrong as it is, each mistake is found.
//!
//! `MUSTER_AUDIT_SEEDS` of them instead, from `MUSTER_AUDIT_FROM` on; with
//! `MUSTER_AUDIT_BUG` only mistakes whose names begin so.

use super::driver::run;
use crate::bugs::Bug;

const SEEDS: u64 = 480;
/// Seeds within which a mistake must be found.
const WITHIN: u64 = 200;
/// What one process cannot see of itself, and what needs gangs that push others out or
/// policies that hold preemption back, which few histories have: the swarm finds them.
const UNSEEN: &[Bug] = &[
    Bug::GangEventLost,
    Bug::GangVictimSuperfluous,
    Bug::GangBudgetIgnored,
    Bug::GangPlansTwice,
    Bug::ShieldIgnored,
    Bug::RateIgnored,
    Bug::DelayIgnored,
    Bug::SimulateIgnored,
    Bug::CheckpointSkipped,
];

#[allow(clippy::disallowed_methods, reason = "how long a test runs is up to whoever runs it")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[allow(clippy::disallowed_methods, reason = "what a test looks for is up to whoever runs it")]
fn chosen() -> String {
    std::env::var("MUSTER_AUDIT_BUG").unwrap_or_default()
}

#[test]
#[allow(clippy::disallowed_macros, reason = "all findings of a long run, with --nocapture")]
fn nothing_is_wrong_whatever_happens() {
    let (from, count) = (number("MUSTER_AUDIT_FROM", 0), number("MUSTER_AUDIT_SEEDS", SEEDS));
    let (mut binds, mut wrong) = (0, Vec::new());
    for seed in from..from + count {
        let (violations, scheduled) = run(seed, |_| {});
        if let Some(first) = violations.into_iter().next() {
            println!("seed {seed}: {}: {}", first.invariant, first.what);
            wrong.push(seed);
        }
        binds += scheduled as u64;
    }
    assert!(wrong.is_empty(), "seeds with violations: {wrong:?}");
    assert!(binds > count * 6, "the histories are too quiet: {binds} binds");
}

#[test]
#[allow(clippy::disallowed_macros, reason = "a table for people, with --nocapture")]
fn every_seeded_bug_is_found() {
    let from = number("MUSTER_AUDIT_FROM", 0);
    let mut missed = Vec::new();
    let seen = |bug: &&Bug| !UNSEEN.contains(bug) && format!("{bug:?}").starts_with(&chosen());
    for &bug in Bug::ALL.iter().filter(seen) {
        let found = (from..from + WITHIN).find_map(|seed| {
            let (violations, _) = run(seed, |config| config.bug = Some(bug));
            violations.into_iter().next().map(|v| (seed, v))
        });
        match found {
            Some((seed, v)) => println!("{bug:?}: seed {seed}, {}: {}", v.invariant, v.what),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "not found within {WITHIN} seeds");
}
