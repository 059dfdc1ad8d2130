//! The swarm finds mistakes: each one that can be switched on, within 200 seeds, from
//! `MUSTER_SIM_FROM` on; with `MUSTER_SIM_BUG` only those whose names begin so.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::Bug;
use muster_core::audit::{PointLog, Witness};
use muster_sim::swarm::{Tweak, run_seed};

use super::number;

/// Seeds within which a mistake must be found.
const WITHIN: u64 = 200;
/// Need a label or a policy to change while a gang waits, or ranks that scores would put
/// apart, or one that is expected somewhere to be gone just before others look there, or a
/// preemptor to be tried just while its plan is carried out, which few worlds have: the core's
/// own histories find them.
const RARE: &[Bug] = &[
    Bug::TopologyNotRechecked,
    Bug::SegmentsIgnored,
    Bug::PolicyStale,
    Bug::NominationLeaked,
    Bug::PlanNotHeld,
];
const PLUGINS: [&str; 2] = ["First", "Second"];

/// A world with test plugins that reserve, wait, park and refuse, and perhaps a mistake in
/// every core. In every third the plugins are absent: nothing but an event brings back
/// whoever waits there.
fn tweak(seed: u64, bug: Option<Bug>) -> Tweak {
    let log = PointLog::default();
    let calls = Some(Arc::clone(&log));
    let config = move |config: &mut muster_core::Config| {
        config.bug = bug;
        if seed % 3 == 2 {
            config.max_in_unschedulable_secs = 3600;
            return;
        }
        // What a test plugin refused no event brings back.
        config.max_in_unschedulable_secs = config.max_in_unschedulable_secs.min(30);
        // Only reloads bring such a backoff: versions differ in their plugins then.
        let less = usize::from(config.backoff.initial_secs == 3);
        for profile in &mut config.profiles {
            for name in &PLUGINS[less..] {
                let witness = Arc::new(Witness::new(name, seed, &log));
                *profile = profile.clone().with_plugin(witness, 1);
            }
        }
    };
    let eager = PLUGINS.to_vec();
    Tweak { calls, eager, trace: seed % 2 == 1, ..Tweak::config(config) }
}

#[test]
fn every_seeded_bug_is_found_by_the_swarm() {
    let from = number("MUSTER_SIM_FROM", 0);
    let mut clean: BTreeMap<u64, bool> = BTreeMap::new();
    let mut missed = Vec::new();
    let chosen = std::env::var("MUSTER_SIM_BUG").unwrap_or_default();
    let all = Bug::ALL.iter().filter(|bug| !RARE.contains(bug));
    for &bug in all.chain(Bug::DEVICES) {
        if !format!("{bug:?}").starts_with(&chosen) {
            continue;
        }
        let found = (from..from + WITHIN).find_map(|seed| {
            // Only a world that is clean without the mistake says something.
            let alone = || {
                let report = run_seed(seed, &tweak(seed, None));
                for why in &report.violations {
                    eprintln!("no bug: seed {seed}: {why}");
                }
                report.is_clean()
            };
            let fine = *clean.entry(seed).or_insert_with(alone);
            let report = run_seed(seed, &tweak(seed, Some(bug)));
            (fine && !report.is_clean()).then_some((seed, report))
        });
        match found {
            Some((seed, report)) => {
                let why = report.violations.first().map_or("", String::as_str);
                eprintln!("{bug:?}: seed {seed}: {why}");
            }
            None => missed.push(bug),
        }
    }
    let fine = clean.values().filter(|fine| **fine).count();
    eprintln!("{fine} of {} worlds are clean without a mistake", clean.len());
    // The plugins may keep a pod waiting beyond the end of a run, no more.
    assert!(fine * 10 >= clean.len() * 8, "worlds that are wrong by themselves: {clean:?}");
    assert_eq!(missed, [], "not found within {WITHIN} seeds");
}
