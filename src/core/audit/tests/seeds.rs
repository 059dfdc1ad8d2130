//! Many random histories: none is wrong as it is, each mistake is found.

use super::driver::run;
use crate::bugs::Bug;

const SEEDS: u64 = 120;
/// Seeds within which a mistake must be found.
const WITHIN: u64 = 400;
/// What one process cannot see of itself: the swarm finds it on the server's truth.
const UNSEEN: &[Bug] = &[Bug::GangEventLost];

#[test]
fn nothing_is_wrong_whatever_happens() {
    let mut binds = 0;
    for seed in 0..SEEDS {
        let (violations, scheduled) = run(seed, |_| {});
        assert_eq!(violations, [], "seed {seed}");
        binds += scheduled;
    }
    assert!(binds > SEEDS as usize * 6, "the histories are too quiet: {binds} binds");
}

#[test]
#[allow(clippy::disallowed_macros, reason = "a table for people, with --nocapture")]
fn every_seeded_bug_is_found() {
    let mut missed = Vec::new();
    for &bug in Bug::ALL.iter().filter(|bug| !UNSEEN.contains(bug)) {
        let found = (0..WITHIN).find_map(|seed| {
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
