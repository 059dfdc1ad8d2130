//! Muster's plugins against kube-scheduler's own, on random states.
//!
//! The Go program beside this file runs upstream's plugins; [`generate`] makes
//! states; both sides explain the same pod, and everything in their answers
//! must be equal. A disagreement is shrunk and printed as JSON that either
//! side can be asked about again.
//!
//! - `MUSTER_ORACLE_STATES` — how many states (3,000; the long form is 100,000).
//! - `MUSTER_ORACLE_SEQUENCES` — how many lists of 50 pods placed one after the
//!   other (500).
//! - `MUSTER_ORACLE_PREEMPTIONS` — how many states in which a pod may preempt
//!   others (1,500).
//! - `MUSTER_ORACLE_SEED` — repeats a run; each run prints its own.
//! - `MUSTER_ORACLE_ONLY` — the number of one state of that run.
//! - `MUSTER_ORACLE_VERBOSE` — prints how often each verdict occurred.

mod binary;
mod compare;
mod coverage;
mod driver;
mod failures;
mod generate;
mod preemption;
mod rng;
mod run;
mod settings;
mod shrink;

use std::env;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use muster::explain::Session;
use serde_json::Value;

use binary::say;
use compare::{Difference, differences};
use coverage::Coverage;
use driver::{Oracle, sequence_question};
use failures::Failures;
use generate::State;
use rng::Rng;
use run::Run;
use settings::{number, seed};

/// The plugins that Muster has, in upstream's order, with upstream's weights
/// (0: it does not score). Only these are compared.
const PLUGINS: &[(&str, u32)] = &[
    ("PrioritySort", 0),
    ("NodeName", 0),
    ("NodeUnschedulable", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 1),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
];

/// Verdicts that the states must provoke.
const REASONS: &[&str] = &[
    "E -: running PreScore plugin \"NodeAffinity\": ",
    "E PodTopologySpread: running PreFilter plugin \"PodTopologySpread\": ",
    "U InterPodAffinity: node(s) didn't match pod anti-affinity rules",
    "U InterPodAffinity: node(s) didn't satisfy existing pods anti-affinity rules",
    "U NodePorts: node(s) didn't have free ports for the requested pod ports",
    "U NodeResourcesFit: Insufficient cpu",
    "U NodeResourcesFit: Insufficient ephemeral-storage",
    "U NodeResourcesFit: Insufficient hugepages-2Mi",
    "U NodeResourcesFit: Insufficient memory",
    "U NodeResourcesFit: Insufficient nvidia.com/gpu",
    "U NodeResourcesFit: Too many pods",
    "U PodTopologySpread: node(s) didn't match pod topology spread constraints",
    "UU -: node(s) didn't satisfy plugin(s) [NodeAffinity NodeName]",
    "UU -: node(s) didn't satisfy plugin(s) [NodeAffinity]",
    "UU -: node(s) didn't satisfy plugin(s) [NodeName]",
    "UU InterPodAffinity: node(s) didn't match pod affinity rules",
    "UU InterPodAffinity: parsing pod: ",
    "U NodeVolumeLimits: csi.example.com CSI driver is not installed on the node",
    "U NodeVolumeLimits: node(s) exceed max volume count",
    "U VolumeRestrictions: node(s) had no available disk",
    "U VolumeRestrictions: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod",
    "UU NodeDeclaredFeatures: node(s) didn't match Pod's required features",
    "UU VolumeBinding: PVC team/pending-0",
    "UU VolumeBinding: node(s) did not have enough free storage",
    "UU VolumeBinding: node(s) didn't find available persistent volumes to bind",
    "UU VolumeBinding: node(s) didn't match PersistentVolume's node affinity",
    "UU VolumeBinding: persistentvolumeclaim \"claim-",
    "UU VolumeBinding: pod has unbound immediate PersistentVolumeClaims",
    "UU VolumeBinding: waiting for ephemeral volume controller to create",
    "UU VolumeRestrictions: persistentvolumeclaim \"no-such-claim\" not found",
    "UU VolumeZone: node(s) had no available volume zone",
    "UU VolumeZone: persistentvolume \"pv-gone\" not found",
    "E VolumeBinding: running PreFilter plugin \"VolumeBinding\": VolumeBindingMode not set",
    "UU NodeAffinity: node(s) didn't match Pod's node affinity/selector",
    "UU NodeAffinity: node(s) didn't match scheduler-enforced node affinity",
    "UU NodeAffinity: pod affinity terms conflict",
    "UU NodeResourcesFit: Insufficient cpu",
    "UU NodeResourcesFit: Insufficient ephemeral-storage",
    "UU NodeResourcesFit: Insufficient example.com/foo",
    "UU NodeResourcesFit: Insufficient hugepages-1Gi",
    "UU NodeResourcesFit: Insufficient memory",
    "UU NodeResourcesFit: Insufficient sub.kubernetes.io/native",
    "UU NodeResourcesFit: Too many pods",
    "UU NodeUnschedulable: node(s) were unschedulable",
    "UU PodTopologySpread: node(s) didn't match pod topology spread constraints (missing",
    "UU TaintToleration: node(s) had untolerated taint(s)",
];

const SEQUENCE_LENGTH: usize = 50;
/// How many states more are compared, and how often, where something did not occur.
const MORE_STATES: usize = 1_000;
const MORE_ROUNDS: usize = 6;

#[test]
fn agrees_with_kube_scheduler() -> Result<()> {
    let first = numbers(number("MUSTER_ORACLE_STATES")?.unwrap_or(3_000))?;
    let seed = seed()?;
    let compare = |coverage: Coverage, numbers: &[usize]| {
        let run = Run {
            seed,
            turn: 0,
            numbers,
            what: "states",
            make: &|rng| generate::single(rng, PLUGINS),
            judge: &|_, ours, theirs| differences(ours, theirs),
        };
        let see = |coverage: &mut Coverage, _: &State, theirs: &Value| coverage.add(theirs);
        run.compare(coverage, see, |coverage| {
            if env::var_os("MUSTER_ORACLE_VERBOSE").is_some() {
                say(&coverage.report());
            }
        })
    };
    let mut coverage = compare(Coverage::default(), &first)?;
    if first.len() < 3_000 {
        return Ok(());
    }
    let scorers: Vec<&str> = PLUGINS.iter().filter(|p| p.1 > 0).map(|p| p.0).collect();
    // By chance something rare may not have occurred yet: then a few states more.
    for round in 0..MORE_ROUNDS {
        if coverage.missing(REASONS, &scorers).is_empty() {
            return Ok(());
        }
        let from = first.len() + round * MORE_STATES;
        let more: Vec<usize> = (from..from + MORE_STATES).collect();
        coverage = compare(coverage, &more)?;
    }
    let missing = coverage.missing(REASONS, &scorers);
    ensure!(missing.is_empty(), "the states no longer provoke: {missing:#?}");
    Ok(())
}

#[test]
fn agrees_over_sequences() -> Result<()> {
    let seed = seed()?;
    let lists: usize = number("MUSTER_ORACLE_SEQUENCES")?.unwrap_or(500);
    let numbers = numbers(lists)?;
    let mut oracle = Oracle::start()?;
    let begin = Instant::now();
    let mut failures = Failures::default();
    for number in &numbers {
        let state =
            generate::sequence(&mut Rng::new(!seed, *number as u64), PLUGINS, SEQUENCE_LENGTH);
        let found = compare_sequence(&mut oracle, &state)
            .with_context(|| format!("sequence {number} of seed {seed}"))?;
        failures.add(*number, &state, found);
    }
    say(&format!(
        "compared {} sequences in {:.1} s (seed {seed})",
        numbers.len(),
        begin.elapsed().as_secs_f64()
    ));
    failures.report(seed, |state| compare_sequence(&mut oracle, state))
}

/// Places the pods of a state where Muster would, and compares each step.
fn compare_sequence(oracle: &mut Oracle, state: &State) -> Result<Vec<Difference>> {
    let mut session = Session::from_objects(&state.objects, Some(&state.config))?;
    let mut ours = Vec::new();
    let mut assumed = Vec::new();
    for pod in &state.pods {
        let answer = session.explain(pod).and_then(|e| Ok(serde_json::to_value(e)?));
        let node = answer.as_ref().ok().and_then(best_node).unwrap_or_default();
        if !node.is_empty() {
            session.place(pod, &node)?;
        }
        ours.push(answer);
        assumed.push(node);
    }
    let theirs = oracle.ask_one(sequence_question(0, state, &assumed))?;
    ensure!(theirs["error"].is_null(), "no question: {}", theirs["error"]);
    let theirs = theirs["results"].as_array().context("no results")?;
    let found = ours.iter().zip(theirs).enumerate().map(|(step, (ours, theirs))| {
        let mut found = match ours {
            Ok(ours) => differences(ours, theirs),
            Err(error) => vec![Difference::failure(error)],
        };
        for difference in &mut found {
            difference.text = format!("step {step}: {}", difference.text);
        }
        found
    });
    // What follows the first disagreement follows from it.
    let mut found = found;
    Ok(found.find(|found| !found.is_empty()).unwrap_or_default())
}

/// The node with the best total; the first by name among equals.
fn best_node(answer: &Value) -> Option<String> {
    let mut best: Option<(i64, &String)> = None;
    for (name, node) in answer["nodes"].as_object()? {
        let Some(total) = node["total"].as_i64() else {
            continue;
        };
        if best.is_none_or(|(most, _)| total > most) {
            best = Some((total, name));
        }
    }
    best.map(|(_, name)| name.clone())
}

/// The numbers of the states to compare: all, or the one that is asked for.
fn numbers(count: usize) -> Result<Vec<usize>> {
    let only: Option<usize> = number("MUSTER_ORACLE_ONLY")?;
    Ok(only.map_or_else(|| (0..count).collect(), |one| vec![one]))
}
