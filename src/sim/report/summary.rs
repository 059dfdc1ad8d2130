//! What the report says, computed once.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::io::Tick;

use super::usage::{self, Steps, ratio, ratios};
use crate::outcome::Outcome;
use crate::record::{PodRecord, PodState, Record, Why};
use crate::scenario::Scenario;
use crate::time::{EPOCH, Micros};

/// Equal parts of the run in which utilisation is averaged.
pub const BUCKETS: usize = 60;

/// What the report says.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// What was asked.
    pub scenario: &'a Scenario,
    /// What came of it.
    pub outcome: &'a Outcome,
    /// Pods by state, in [`PodState`]'s order.
    pub states: [u64; 5],
    /// Waits of all pods that were placed.
    pub waits: Waits,
    /// One row per workload, in the scenario's order.
    pub workloads: Vec<WorkloadRow>,
    /// What waits at the end, and why.
    pub waiting: Vec<WaitingRow>,
    /// GPUs over time.
    pub gpu: Usage,
    /// CPUs over time.
    pub cpu: Usage,
    /// Pods that waited, on average, in each part of the run.
    pub queue: Vec<f64>,
    /// Most pods that ever waited, and when.
    pub queue_peak: (Tick, i64),
}

/// How long pods waited from creation to bind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// How many were placed.
    pub placed: u64,
    /// Half waited no longer.
    pub median: Micros,
    /// 99 in 100 waited no longer.
    pub p99: Micros,
    /// None waited longer.
    pub max: Micros,
}

/// What became of a workload.
#[derive(Clone, Debug)]
pub struct WorkloadRow {
    /// Index in the scenario.
    pub workload: usize,
    /// Pods by state, in [`PodState`]'s order.
    pub states: [u64; 5],
    /// Waits of its pods that were placed.
    pub waits: Waits,
    /// Where they went, as indexes into the record's nodes.
    pub nodes: BTreeSet<u32>,
}

/// Pods of one workload that wait for the same reason.
#[derive(Clone, Debug)]
pub struct WaitingRow {
    /// Index in the scenario.
    pub workload: usize,
    /// The pods, as indexes into the record's pods.
    pub pods: Vec<usize>,
    /// When the first of them was created.
    pub since: Tick,
    /// Most attempts of any of them.
    pub attempts: u32,
    /// Why they wait.
    pub why: Option<Why>,
}

/// A resource over time.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    /// The most that was offered at any time.
    pub offered: i64,
    /// Share in use in each part of the run.
    pub shares: Vec<f64>,
    /// Share in use over the whole run.
    pub mean: f64,
    /// Most in use, and when that was first so.
    pub peak: (Tick, i64),
}

impl<'a> Summary<'a> {
    /// Sums up a run.
    #[must_use]
    pub fn new(scenario: &'a Scenario, outcome: &'a Outcome) -> Self {
        let record = &outcome.record;
        let workloads: Vec<WorkloadRow> = workload_rows(scenario, record);
        let mut states = [0; 5];
        for row in &workloads {
            for (sum, n) in states.iter_mut().zip(row.states) {
                *sum += n;
            }
        }
        let queue = usage::waiting(record);
        let span = i128::from((outcome.end.0 - EPOCH.0).max(1));
        let bucket = (span / BUCKETS as i128).max(1);
        let queue_means = queue.integrals(EPOCH, outcome.end, BUCKETS);
        Self {
            scenario,
            outcome,
            states,
            waits: Waits::of(record.pods.iter()),
            workloads,
            waiting: waiting_rows(record),
            gpu: Usage::of(outcome, |record, pod| record.ask(pod).gpus, |node| node.offers.gpus),
            cpu: Usage::of(outcome, |record, pod| record.ask(pod).cpu, |node| node.offers.cpu),
            queue: queue_means.iter().map(|sum| ratio(*sum, bucket)).collect(),
            queue_peak: queue.peak(outcome.end),
        }
    }
}

impl Waits {
    fn of<'a>(pods: impl Iterator<Item = &'a PodRecord>) -> Self {
        let mut waits: Vec<Micros> =
            pods.filter_map(|pod| Some(pod.bound?.0 - pod.created.0)).collect();
        waits.sort_unstable();
        let Some(&max) = waits.last() else {
            return Self::default();
        };
        // The nearest rank: the smallest value that at least that share does not exceed.
        let rank = |share: usize| waits[(waits.len() * share).div_ceil(100).max(1) - 1];
        Self { placed: waits.len() as u64, median: rank(50), p99: rank(99), max }
    }
}

impl Usage {
    fn of(
        outcome: &Outcome,
        ask: impl Fn(&Record, &PodRecord) -> i64,
        offer: impl Fn(&crate::record::NodeRecord) -> i64,
    ) -> Self {
        let record = &outcome.record;
        let used = usage::held(record, record.pods.iter(), |pod| ask(record, pod));
        let offered = usage::offered(record.nodes.iter(), offer);
        let integrals = |steps: &Steps| steps.integrals(EPOCH, outcome.end, BUCKETS);
        let (part, whole) = (integrals(&used), integrals(&offered));
        Self {
            offered: offered.peak(outcome.end).1,
            shares: ratios(&part, &whole),
            mean: ratio(part.iter().sum(), whole.iter().sum()),
            peak: used.peak(outcome.end),
        }
    }
}

fn workload_rows(scenario: &Scenario, record: &Record) -> Vec<WorkloadRow> {
    let mut pods: Vec<Vec<&PodRecord>> = vec![Vec::new(); scenario.workloads.len()];
    for pod in &record.pods {
        pods[pod.workload as usize].push(pod);
    }
    let row = |(workload, pods): (usize, Vec<&PodRecord>)| {
        let mut states = [0; 5];
        for pod in &pods {
            states[pod.state as usize] += 1;
        }
        let nodes = pods.iter().filter_map(|pod| pod.node).collect();
        WorkloadRow { workload, states, waits: Waits::of(pods.iter().copied()), nodes }
    };
    pods.into_iter().enumerate().map(row).collect()
}

fn waiting_rows(record: &Record) -> Vec<WaitingRow> {
    let mut groups: BTreeMap<(u32, Option<&Why>), WaitingRow> = BTreeMap::new();
    for (index, pod) in record.pods.iter().enumerate() {
        if pod.state != PodState::Waiting {
            continue;
        }
        let row = groups.entry((pod.workload, pod.why.as_ref())).or_insert_with(|| WaitingRow {
            workload: pod.workload as usize,
            pods: Vec::new(),
            since: pod.created,
            attempts: 0,
            why: pod.why.clone(),
        });
        row.pods.push(index);
        row.since = row.since.min(pod.created);
        row.attempts = row.attempts.max(pod.attempts);
    }
    groups.into_values().collect()
}
