//! What the scheduler's choice of nodes leaves whole of machines with eight GPUs.
//!
//! Traces are drawn after public ones: sizes with the weights that Joulie's workload generator
//! derives from SenseTime's Helios (one GPU in four of five pods), runtimes and CPUs with the
//! percentiles of the pods with whole GPUs in Alibaba's openb trace (cluster-trace-gpu-v2023), on
//! that cluster's most frequent machine: eight GPUs, 96 CPUs, 384 GiB.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use muster_api::k8s::Quantity;
use muster_sim::Scenario;
use muster_sim::rng::Rng;
use muster_sim::scenario::Runtime;

use super::{number, parse, run};

/// Machines.
const NODES: i64 = 200;
/// How many pods of a hundred ask for one, two, four and eight GPUs.
const MIX: [i64; 4] = [80, 10, 7, 3];
const SIZES: [i64; 4] = [1, 2, 4, 8];
/// At which percentiles the tables below are.
const AT: [i64; 15] = [0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 100];
/// Seconds that a pod with one GPU runs (3,911 pods).
const ONE_RUNS: [i64; 15] = [
    1, 49, 67, 128, 202, 313, 587, 1_011, 1_677, 3_057, 5_394, 12_089, 50_251, 170_469, 12_537_496,
];
/// Seconds that a pod with more GPUs runs (75 pods).
const MORE_RUN: [i64; 15] = [
    22, 36, 40, 140, 255, 497, 573, 1_557, 3_599, 14_526, 68_494, 175_089, 977_323, 977_323,
    1_332_357,
];
/// Thousandths of a CPU that a pod with one GPU asks for.
const ONE_CPU: [i64; 15] = [
    1_000, 3_152, 3_152, 8_000, 11_300, 11_300, 11_400, 11_400, 11_908, 14_200, 16_000, 18_708,
    24_200, 24_200, 24_200,
];
/// Thousandths of a CPU that a pod with more GPUs asks for, for each.
const MORE_CPU: [i64; 15] = [
    3_000, 8_000, 8_000, 8_025, 8_025, 8_050, 8_100, 8_700, 11_000, 11_000, 15_025, 15_050, 15_100,
    15_100, 15_100,
];
/// Memory that goes with a CPU on that machine.
const MEMORY_PER_CPU: i64 = 4 << 30;

/// What is drawn, and whoever runs the test may choose.
struct Trace {
    seed: u64,
    hours: i64,
    /// Of all GPU hours of the trace how many are asked for, in percent.
    load: i64,
    mix: [i64; 4],
}

impl Trace {
    fn new(seed: u64) -> Self {
        let mix: Option<Vec<i64>> = std::env::var("MUSTER_TRACE_MIX")
            .ok()
            .map(|mix| mix.split(',').map(|part| part.parse().expect("a number")).collect());
        Self {
            seed,
            hours: number("MUSTER_TRACE_HOURS", 48).cast_signed(),
            load: number("MUSTER_TRACE_LOAD", 100).cast_signed(),
            mix: mix.map_or(MIX, |mix| mix.try_into().expect("four numbers")),
        }
    }

    /// Pods that arrive at random until the load is reached. What runs beyond the end counts up
    /// to the length of the trace.
    fn scenario(&self, scheduler: &str, events: &str) -> Scenario {
        let mut scenario = parse(&format!(
            "name: fragmentation\nuntil: {}h\nscheduler: {scheduler}\nevents: {events}\nnodes:\n\
             - {{name: \"g-{{i}}\", count: {NODES}, machine: hgx, \
             allocatable: {{cpu: 96, memory: 384Gi, nvidia.com/gpu: 8}}}}\n\
             workloads:\n- {{name: p, kind: Pod, requests: {{nvidia.com/gpu: 1}}}}\n",
            self.hours
        ));
        let kind = scenario.workloads.remove(0);
        let (rng, span) = (Rng::new(self.seed), self.hours * 3600);
        let mut left = NODES * 8 * span / 100 * self.load;
        let of: i64 = self.mix.iter().sum();
        for number in 0.. {
            let mut own = rng.split("pod", number);
            let mut dice = own.between(1, of);
            let size = self.mix.iter().position(|share| {
                dice -= share;
                dice <= 0
            });
            let gpus = SIZES[size.expect("shares add up")];
            let (runs, cpus) =
                if gpus == 1 { (&ONE_RUNS, &ONE_CPU) } else { (&MORE_RUN, &MORE_CPU) };
            let (runtime, cpu) = (percentile(&mut own, runs), percentile(&mut own, cpus) * gpus);
            left -= gpus * runtime.min(span);
            if left < 0 {
                break;
            }
            let mut pod = kind.clone();
            pod.name = format!("p{number}");
            pod.at = own.between(0, span * 1000) * 1000;
            pod.runtime = Some(Runtime { min: runtime * 1_000_000, max: runtime * 1_000_000 });
            let spec = &mut Arc::make_mut(&mut pod.template).spec;
            let requests = &mut spec.containers[0].resources.requests;
            let memory = Quantity::from_units(cpu * MEMORY_PER_CPU / 1000);
            requests.insert("cpu".into(), Quantity::from_millis(cpu));
            requests.insert("memory".into(), memory);
            requests.insert("nvidia.com/gpu".into(), Quantity::from_units(gpus));
            scenario.workloads.push(pod);
        }
        scenario
    }
}

/// A value drawn from a table of percentiles; between two of them evenly.
fn percentile(rng: &mut Rng, table: &[i64; 15]) -> i64 {
    let dice = rng.between(0, 100_000);
    let at = AT.iter().rposition(|at| at * 1000 <= dice).unwrap_or(0).min(AT.len() - 2);
    let (low, high) = (AT[at] * 1000, AT[at + 1] * 1000);
    table[at] + (table[at + 1] - table[at]) * (dice - low) / (high - low)
}

/// Requests for four and eight GPUs.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    /// That got a set that could not have been better.
    aligned: u64,
    /// That got any.
    all: u64,
    /// Pods that got just what was expected, and all for which something was.
    expected: (u64, u64),
}

fn served(trace: &Trace, (_, scheduler, events): (&str, &str, &str)) -> Served {
    let outcome = run(&trace.scenario(scheduler, events), Some(trace.seed));
    assert!(outcome.verdict.violations.is_empty(), "{:?}", outcome.verdict.violations);
    let of = |size: usize| outcome.gpus.served.get(&size).copied().unwrap_or_default();
    let (fours, eights) = (of(4), of(8));
    let counts = &outcome.gpus;
    Served {
        aligned: fours.1 + eights.1,
        all: fours.0 + eights.0,
        expected: (counts.expected, counts.expected + counts.unexpected),
    }
}

/// Who is compared: by name, configuration and events. The third counts GPUs too, as packing by
/// kube-scheduler does if `nvidia.com/gpu` is among its resources.
const SCHEDULERS: [(&str, &str, &str); 4] = [
    ("LeastAllocated", "{strategy: LeastAllocated}", "[]"),
    ("MostAllocated", "{strategy: MostAllocated}", "[]"),
    (
        "MostAllocated of GPUs",
        "{strategy: MostAllocated}",
        "[{at: 0s, policy: {name: pack, spec: {priority: 1, placement: {strategy: Pack}}}}]",
    ),
    ("GpuLinks", "{strategy: MostAllocated, with: {GpuLinks: 10}}", "[]"),
];

/// What each scheduler makes of each trace, on two threads; in order of seed.
fn all_served(seeds: std::ops::Range<u64>) -> Vec<(u64, [Served; SCHEDULERS.len()])> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return done;
            }
            let trace = Trace::new(seed);
            done.push((seed, SCHEDULERS.map(|scheduler| served(&trace, scheduler))));
        }
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let handles = [scope.spawn(work), scope.spawn(work)];
        handles.into_iter().flat_map(|h| h.join().expect("no panic")).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    all
}

/// On three traces, ten with `MUSTER_TRACES=10`, others with `MUSTER_TRACE_FROM`: requests for four
/// and eight GPUs that are served with a set on as few sides as it can be are a tenth more than
/// with any other scheduler. `MUSTER_TRACE_LOAD`, `_HOURS` and `_MIX` draw other traces; then nothing
/// is asserted but that GpuLinks aligns no fewer.
#[test]
fn more_whole_sets_are_served() {
    let first = number("MUSTER_TRACE_FROM", 0);
    let mut sums = [Served::default(); SCHEDULERS.len()];
    eprintln!("aligned fours and eights served, of all that were served");
    for (seed, all) in all_served(first..first + number("MUSTER_TRACES", 3)) {
        let mut line = format!("seed {seed}:");
        for ((scheduler, sum), own) in SCHEDULERS.iter().zip(&mut sums).zip(all) {
            sum.aligned += own.aligned;
            sum.all += own.all;
            sum.expected = (sum.expected.0 + own.expected.0, sum.expected.1 + own.expected.1);
            let _ = write!(line, " {} {}/{}", scheduler.0, own.aligned, own.all);
        }
        eprintln!("{line}");
    }
    eprintln!("sums: {sums:?}");
    let links = sums[SCHEDULERS.len() - 1];
    let as_drawn = ["LOAD", "HOURS", "MIX"]
        .iter()
        .all(|name| std::env::var_os(format!("MUSTER_TRACE_{name}")).is_none());
    let wanted = if as_drawn { 110 } else { 100 };
    for ((name, ..), other) in SCHEDULERS.iter().zip(&sums[..SCHEDULERS.len() - 1]) {
        let more = links.aligned * 1000 / other.aligned.max(1);
        eprintln!("{}.{} % of {name}", more / 10, more % 10);
        assert!(links.aligned * 100 >= other.aligned * wanted, "{wanted} % of {name}");
    }
    assert!(!as_drawn || links.aligned * 100 >= links.all * 98, "{links:?}");
}
