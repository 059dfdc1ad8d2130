//! Storms: more that wants room than there is, victims that come back at once, zones that
//! fail. Evictions stay within what policies allow, and the cluster comes to rest.
//!
//! `MUSTER_LONG=1` runs the large ones at their full size: 1,000 nodes and 10,000 pods that wait.

use std::collections::BTreeSet;
use std::fmt::Write;

use muster_sim::record::{Evicted, PodRecord, PodState};
use muster_sim::{Ended, Outcome, Scenario};

use super::{number, parse, run};

/// Evictions in any stretch of so many seconds, at most.
fn busiest(evictions: &[Evicted], seconds: i64) -> usize {
    let within = |(i, first): (usize, &Evicted)| {
        let end = first.at.after_secs(seconds);
        evictions[i..].iter().take_while(|one| one.at < end).count()
    };
    evictions.iter().enumerate().map(within).max().unwrap_or(0)
}

fn of<'a>(
    scenario: &'a Scenario,
    outcome: &'a Outcome,
    name: &'a str,
) -> impl Iterator<Item = &'a PodRecord> {
    let index = scenario.workloads.iter().position(|w| w.name == name).expect("a workload");
    outcome.record.pods.iter().filter(move |pod| pod.workload as usize == index)
}

fn running(scenario: &Scenario, outcome: &Outcome, name: &str) -> usize {
    of(scenario, outcome, name).filter(|pod| pod.state == PodState::Running).count()
}

/// Runs to the end, where nothing was wrong.
fn settle(yaml: &str) -> (Scenario, Outcome) {
    let scenario = parse(yaml);
    let outcome = run(&scenario, None);
    assert_eq!(outcome.ended, Ended::Quiet);
    assert!(outcome.verdict.violations.is_empty(), "{:?}", outcome.verdict.violations);
    (scenario, outcome)
}

/// So many nodes of 10 CPUs, and evictions a minute: in the long form 1,000 and 2,000.
fn size() -> (usize, usize) {
    if number("MUSTER_LONG", 0) > 0 { (1_000, 2_000) } else { (40, 100) }
}

/// Evictions stay within a bucket, whenever one looks, and nobody goes twice for the same pod.
fn is_calm(outcome: &Outcome, rate: usize) {
    let evictions = &outcome.record.evictions;
    // Plans are charged when they begin; a second more or less until their victims go.
    let most = busiest(evictions, 60);
    assert!(most <= 2 * rate + rate / 20, "a full bucket and a minute's worth: {most}");
    assert!(busiest(evictions, 1) <= rate + rate / 30, "{}", busiest(evictions, 1));
    let twice: BTreeSet<(&str, &str)> =
        evictions.iter().map(|one| (one.victim.as_str(), &*one.preemptor)).collect();
    assert_eq!(twice.len(), evictions.len(), "nobody goes twice for the same pod");
}

#[test]
fn ten_thousand_urgent_pods_on_a_full_cluster_stay_within_the_bucket() {
    let (nodes, rate) = size();
    let pods = nodes * 10;
    // Victims are made anew at once, and start within a second or three.
    let yaml = format!(
        "nodes: [{{name: 'n{{i}}', count: {nodes}, allocatable: {{cpu: 10, memory: 100Gi}}}}]\n\
         workloads:\n\
         - {{name: low, kind: ReplicaSet, replicas: {pods}, requests: {{cpu: 1}}}}\n\
         - {{name: high, kind: Pod, replicas: {pods}, at: 1m, priority: 100, requests: {{cpu: 1}}}}\n\
         events:\n\
         - {{at: 0s, policy: {{name: calm, spec: {{priority: 1, \
            preemption: {{victimsPerMinute: {rate}}}}}}}}}\n"
    );
    let (scenario, outcome) = settle(&yaml);
    assert_eq!(running(&scenario, &outcome, "high"), pods);
    let evictions = &outcome.record.evictions;
    assert_eq!(evictions.len(), pods, "as many go as are needed");
    is_calm(&outcome, rate);
    let (first, last) = (&evictions[0], &evictions[pods - 1]);
    let took = last.at.secs() - first.at.secs();
    let least = i64::try_from((pods - rate) * 60 / rate).unwrap();
    assert!((least - 2..least + 120).contains(&took), "{took}s, {least}s by the bucket");
}

#[test]
fn equal_gangs_never_push_out_each_other() {
    let mut yaml = "nodes: [{name: 'n{i}', count: 4, allocatable: {cpu: 4, memory: 16Gi}}]\n\
                    workloads:\n\
                    - {name: low, kind: ReplicaSet, replicas: 16, requests: {cpu: 1}}\n"
        .to_owned();
    for (name, at) in [("one", 60), ("two", 61), ("three", 200)] {
        let _ = writeln!(
            yaml,
            "- {{name: {name}, kind: StatefulSet, replicas: 10, at: {at}s, priority: 100, \
             requests: {{cpu: 1}}, podGroup: {{minMember: 10}}}}"
        );
    }
    let (scenario, outcome) = settle(&yaml);
    let count = |name: &str| running(&scenario, &outcome, name);
    assert_eq!(count("one") + count("two") + count("three"), 10, "one of them runs");
    let among: Vec<&Evicted> =
        outcome.record.evictions.iter().filter(|one| !one.victim.contains("low")).collect();
    assert!(among.is_empty(), "{among:?}");
    assert_eq!(outcome.record.evictions.len(), 10);
}

#[test]
fn a_zone_that_fails_is_left_alone() {
    // Eight of twelve nodes of a zone fall silent, and urgent work comes.
    let run = |policy: &str| {
        let lost: Vec<String> = (0..8).map(|i| format!("a{i}")).collect();
        let lost = lost.join(", ");
        let yaml = format!(
            "nodes:\n\
             - {{name: 'a{{i}}', count: 12, zone: a, allocatable: {{cpu: 4, memory: 16Gi}}}}\n\
             - {{name: 'b{{i}}', count: 12, zone: b, allocatable: {{cpu: 4, memory: 16Gi}}}}\n\
             workloads:\n\
             - {{name: low, kind: ReplicaSet, replicas: 96, requests: {{cpu: 1}}}}\n\
             - {{name: high, kind: Pod, replicas: 60, at: 3m, priority: 100, requests: {{cpu: 1}}}}\n\
             events:\n\
             - {{at: 0s, policy: {{name: calm, spec: {{priority: 1{policy}}}}}}}\n\
             - {{at: 2m, notReady: [{lost}]}}\n\
             - {{at: 20m, ready: [{lost}]}}\n"
        );
        let (scenario, outcome) = settle(&yaml);
        assert_eq!(running(&scenario, &outcome, "high"), 60);
        let outage = |one: &&Evicted| one.at.secs() < outcome_start(&outcome) + 20 * 60;
        let in_zone = |one: &&Evicted| one.node.starts_with('a');
        let evictions = outcome.record.evictions.iter();
        evictions.filter(outage).filter(in_zone).count()
    };
    assert!(run("") > 0, "without a policy its nodes are as good as others");
    assert_eq!(run(", preemption: {unhealthyZonePercent: 55}"), 0);
}

/// When the run began, in seconds.
fn outcome_start(outcome: &Outcome) -> i64 {
    let created = outcome.record.pods.iter().map(|pod| pod.created.secs());
    created.min().unwrap_or(0)
}

#[test]
fn an_autoscaled_pool_comes_before_victims_have_to_go() {
    let evictions = |delay: u32| {
        let yaml = format!(
            "nodes: [{{name: 'n{{i}}', count: 4, allocatable: {{cpu: 4, memory: 16Gi}}}}]\n\
             workloads:\n\
             - {{name: low, kind: ReplicaSet, replicas: 16, requests: {{cpu: 1}}}}\n\
             - {{name: high, kind: StatefulSet, replicas: 8, at: 1m, priority: 100, \
                requests: {{cpu: 1}}, podGroup: {{minMember: 8}}}}\n\
             - {{name: alone, kind: Pod, replicas: 8, at: 1m, priority: 100, requests: {{cpu: 1}}}}\n\
             events:\n\
             - {{at: 0s, policy: {{name: calm, spec: {{priority: 1, \
                preemption: {{delaySeconds: {delay}}}}}}}}}\n\
             - {{at: 2m, add: {{name: 'new{{i}}', count: 4, allocatable: {{cpu: 4, memory: 16Gi}}}}}}\n"
        );
        let (scenario, outcome) = settle(&yaml);
        assert_eq!(running(&scenario, &outcome, "high"), 8);
        assert_eq!(running(&scenario, &outcome, "alone"), 8);
        outcome.record.evictions.len()
    };
    assert_eq!(evictions(0), 16);
    assert_eq!(evictions(90), 0);
}

#[test]
fn a_cold_start_is_paced() {
    // Pods take half a second to three to start; all come at once.
    let run = |pacing: &str| {
        let yaml = format!(
            "nodes: [{{name: 'n{{i}}', count: 10, allocatable: {{cpu: 64, memory: 256Gi}}}}]\n\
             workloads:\n\
             - {{name: many, kind: ReplicaSet, replicas: 200, at: 10s, requests: {{cpu: 1}}}}\n\
             - {{name: gang, kind: StatefulSet, replicas: 16, at: 10s, requests: {{cpu: 1}}, \
                podGroup: {{minMember: 16}}}}\n\
             events:\n\
             - {{at: 0s, policy: {{name: calm, spec: {{priority: 1{pacing}}}}}}}\n"
        );
        let (scenario, outcome) = settle(&yaml);
        assert_eq!(running(&scenario, &outcome, "many"), 200);
        assert_eq!(running(&scenario, &outcome, "gang"), 16);
        let alone: Vec<&PodRecord> = of(&scenario, &outcome, "many").collect();
        let on = |pod: &PodRecord| pod.node.zip(pod.bound).zip(pod.started);
        let most = alone.iter().filter_map(|pod| on(pod)).map(|((node, bound), _)| {
            let starts = |other: &&&PodRecord| {
                on(other).is_some_and(|((n, b), s)| n == node && b <= bound && bound < s)
            };
            alone.iter().filter(starts).count()
        });
        let mut binds: Vec<i64> =
            outcome.record.pods.iter().filter_map(|pod| Some(pod.bound?.0)).collect();
        binds.sort_unstable();
        let within =
            |i: usize| binds[i..].iter().take_while(|at| **at < binds[i] + 1_000_000).count();
        (most.max().unwrap_or(0), (0..binds.len()).map(within).max().unwrap_or(0))
    };
    let (starting, binds) = run("");
    assert!(starting > 4 && binds > 100, "{starting} {binds}");
    let (starting, _) = run(", pacing: {startingPodsPerNode: 3}");
    assert!(starting <= 3, "{starting}");
    let (_, binds) = run(", pacing: {bindsPerSecond: 20}");
    assert!(binds <= 40 + 16, "a second's worth, what fills it, and a gang: {binds}");
}

#[test]
fn a_zone_outage_under_load_settles() {
    // A third of all nodes falls silent for a quarter of an hour while urgent work waits: what
    // ran there comes back elsewhere, and wants room too.
    let (nodes, rate) = size();
    let (zone, high) = (nodes / 3, nodes * 5);
    let lost: Vec<String> = (0..zone * 3 / 4).map(|i| format!("a{i}")).collect();
    let lost = lost.join(", ");
    let (low, rest) = (nodes * 10, nodes - zone);
    let yaml = format!(
        "nodes:\n\
         - {{name: 'a{{i}}', count: {zone}, zone: a, allocatable: {{cpu: 10, memory: 100Gi}}}}\n\
         - {{name: 'b{{i}}', count: {rest}, zone: b, allocatable: {{cpu: 10, memory: 100Gi}}}}\n\
         workloads:\n\
         - {{name: low, kind: ReplicaSet, replicas: {low}, requests: {{cpu: 1}}}}\n\
         - {{name: high, kind: ReplicaSet, replicas: {high}, at: 4m, priority: 100, \
            requests: {{cpu: 1}}}}\n\
         events:\n\
         - {{at: 0s, policy: {{name: calm, spec: {{priority: 1, preemption: \
            {{victimsPerMinute: {rate}, unhealthyZonePercent: 55}}}}}}}}\n\
         - {{at: 3m, notReady: [{lost}]}}\n\
         - {{at: 18m, ready: [{lost}]}}\n"
    );
    let (scenario, outcome) = settle(&yaml);
    assert_eq!(running(&scenario, &outcome, "high"), high);
    assert_eq!(running(&scenario, &outcome, "low"), low - high);
    is_calm(&outcome, rate);
    let start = outcome_start(&outcome);
    let outage = |one: &&Evicted| (180..1_080).contains(&(one.at.secs() - start));
    let during = || outcome.record.evictions.iter().filter(outage);
    assert!(during().count() > 0, "urgent work finds room in the other zone");
    // The zone counts as failing when the taints are there, moments after the nodes fell silent.
    let there = during().filter(|one| one.node.starts_with('a')).count();
    let may = if zone > 50 { 900 / 100 + 1 } else { 0 };
    assert!(there <= may, "one in 100 seconds in a large zone that fails, else nobody: {there}");
    // The first time each urgent pod makes room; once more where it was lost with a node.
    assert!(
        outcome.record.evictions.len() <= high + zone * 10,
        "{}",
        outcome.record.evictions.len()
    );
}

#[test]
fn a_pool_that_takes_minutes_to_come_saves_most_victims() {
    // Ten urgent gangs and as many pods; a pool for half of them comes after three minutes.
    let (nodes, rate) = size();
    let (each, pods) = (nodes / 4, nodes * 10 / 4);
    let mut yaml = format!(
        "nodes: [{{name: 'n{{i}}', count: {nodes}, allocatable: {{cpu: 10, memory: 100Gi}}}}]\n\
         workloads:\n\
         - {{name: low, kind: ReplicaSet, replicas: {}, requests: {{cpu: 1}}}}\n\
         - {{name: alone, kind: Pod, replicas: {pods}, at: 1m, priority: 100, \
            requests: {{cpu: 1}}}}\n",
        nodes * 10
    );
    for i in 0..10 {
        let _ = writeln!(
            yaml,
            "- {{name: gang{i}, kind: StatefulSet, replicas: {each}, at: 1m, priority: 100, \
             requests: {{cpu: 1}}, podGroup: {{minMember: {each}}}}}"
        );
    }
    let new = nodes / 4;
    let _ = write!(
        yaml,
        "events:\n\
         - {{at: 0s, policy: {{name: calm, spec: {{priority: 1, preemption: \
            {{victimsPerMinute: {rate}, delaySeconds: 300}}}}}}}}\n\
         - {{at: 4m, add: {{name: 'new{{i}}', count: {new}, \
            allocatable: {{cpu: 10, memory: 100Gi}}}}}}\n"
    );
    let (scenario, outcome) = settle(&yaml);
    assert_eq!(running(&scenario, &outcome, "alone"), pods);
    for i in 0..10 {
        assert_eq!(running(&scenario, &outcome, &format!("gang{i}")), each, "gang{i}");
    }
    is_calm(&outcome, rate);
    let evictions = &outcome.record.evictions;
    let start = outcome_start(&outcome);
    let first = evictions.first().map_or(0, |one| one.at.secs() - start);
    assert!(first >= 60 + 300, "nobody goes before the delay is over: {first}s");
    let needed = pods + 10 * each - new * 10;
    assert_eq!(evictions.len(), needed, "as many go as find no room in the pool");
}

#[test]
fn victims_save_their_work_before_they_go_whoever_leads() {
    let world = |faults: &str| {
        let yaml = format!(
            "nodes: [{{name: 'n{{i}}', count: 4, allocatable: {{cpu: 4, memory: 16Gi}}}}]\n\
             workloads:\n\
             - {{name: answers, kind: Pod, replicas: 8, requests: {{cpu: 1}}, \
                checkpoint: {{wait: 2m, takes: 20s}}}}\n\
             - {{name: silent, kind: Pod, replicas: 8, requests: {{cpu: 1}}, \
                checkpoint: {{wait: 50s}}}}\n\
             - {{name: gang, kind: StatefulSet, replicas: 8, at: 3m, priority: 100, \
                requests: {{cpu: 1}}, podGroup: {{minMember: 8}}}}\n\
             - {{name: alone, kind: Pod, replicas: 8, at: 3m, priority: 100, \
                requests: {{cpu: 1}}}}\n{faults}"
        );
        let scenario = parse(&yaml);
        let outcome = run(&scenario, None);
        assert!(outcome.verdict.violations.is_empty(), "{:?}", outcome.verdict.violations);
        for name in ["gang", "alone"] {
            assert_eq!(running(&scenario, &outcome, name), 8, "{name} {faults}");
        }
        let evictions = &outcome.record.evictions;
        assert_eq!(evictions.len(), 16, "{faults}");
        let start = outcome_start(&outcome) + 180;
        for one in evictions {
            let (after, answers) = (one.at.secs() - start, one.victim.contains("answers"));
            let least = if answers { 19 } else { 49 };
            assert!(after >= least, "{} went after {after}s {faults}", one.victim);
            assert!(after <= 180, "{} went after {after}s {faults}", one.victim);
        }
        assert_eq!(outcome.faults.asked_to_save, 16, "each is asked once {faults}");
    };
    world("");
    // The process dies while they save their work; the next one asks nobody again.
    world("faults: {until: 4m, events: [{at: 190s, kill: 0, back: 5s}]}\n");
    world(
        "faults: {until: 5m, events: [{at: 181s, kill: 0, back: 1s}, {at: 215s, kill: 0, back: 9s}]}\n",
    );
}
