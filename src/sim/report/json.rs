//! The report for programs.
//!
//! Stable: within `version: 1` fields may be added, never renamed or removed.
//! Times are seconds of cluster time since the beginning of the run, with three
//! decimals; shares are from 0 to 1, with four; amounts are thousandths for `cpu`
//! and whole units for every other resource.
//!
//! | field | meaning |
//! |---|---|
//! | `version` | 1 |
//! | `scenario`, `seed` | what was run |
//! | `end.seconds`, `end.reason` | when it ended; `quiet` (nothing more could happen) or `until` |
//! | `totals` | `nodes`, `gpus`, `cpus` (most there ever were), `pods`, `succeeded`, `failed`, `running`, `waiting`, `lost`, `decisions`, `refusedBinds` |
//! | `wait` | `placed`, and `p50`, `p99`, `max` seconds from creation to bind of the pods placed |
//! | `utilisation` | `bucketSeconds`; per bucket `gpu`, `cpu` (share in use) and `waiting` (pods, on average); `gpuMean`, `cpuMean` |
//! | `workloads[]` | `name`, `namespace`, `kind`, `requests`, `pods` by state, `wait`, `nodes` |
//! | `waiting[]` | `workload`, `pods`, `sinceSeconds`, `attempts`, `reason`, `message` |
//! | `nodes[]` | `name`, `allocatable`, `present[]` and `cordoned[]` as `[from, to or null]` |
//! | `pods[]` | `namespace`, `name`, `workload`, `round`, `state`, `node`, `createdSeconds`, `boundSeconds`, `startedSeconds`, `endedSeconds`, `attempts`, `reason`, `message` (why it waits, or last waited) |
//! | `check` | `clean`, `binds`, `lateBinds`, `violations[]`, `moreViolations` |
//! | `warnings[]` | what else a person should know |

use muster_core::io::Tick;
use serde_json::{Value, json};

use super::summary::{BUCKETS, Summary, Waits};
use crate::outcome::Ended;
use crate::record::{PodRecord, PodState};
use crate::time::{MILLISECOND, Micros, since_epoch};

const STATES: [(&str, PodState); 5] = [
    ("succeeded", PodState::Succeeded),
    ("failed", PodState::Failed),
    ("running", PodState::Running),
    ("waiting", PodState::Waiting),
    ("lost", PodState::Lost),
];

/// The report as JSON, with a line end.
///
/// # Errors
///
/// None in practice: every key is a text.
pub fn to_json(summary: &Summary<'_>) -> serde_json::Result<String> {
    let outcome = summary.outcome;
    let record = &outcome.record;
    let verdict = &outcome.verdict;
    let mut totals = json!({
        "nodes": record.nodes.len(),
        "gpus": summary.gpu.offered,
        "cpus": summary.cpu.offered as f64 / 1000.0,
        "pods": record.pods.len(),
        "decisions": outcome.attempts,
        "refusedBinds": outcome.refused,
    });
    for (name, state) in STATES {
        totals[name] = summary.states[state as usize].into();
    }
    let report = json!({
        "version": 1,
        "scenario": summary.scenario.name,
        "seed": outcome.seed,
        "end": {
            "seconds": at(outcome.end),
            "reason": match outcome.ended { Ended::Quiet => "quiet", Ended::Until => "until" },
        },
        "totals": totals,
        "wait": wait(summary.waits),
        "utilisation": {
            "bucketSeconds": seconds(since_epoch(outcome.end) / BUCKETS as i64),
            "gpu": shares(&summary.gpu.shares),
            "cpu": shares(&summary.cpu.shares),
            "waiting": shares(&summary.queue),
            "gpuMean": share(summary.gpu.mean),
            "cpuMean": share(summary.cpu.mean),
        },
        "workloads": workloads(summary),
        "waiting": waiting(summary),
        "nodes": nodes(summary),
        "pods": record.pods.iter().map(|p| pod(summary, p)).collect::<Vec<_>>(),
        "check": {
            "clean": verdict.is_clean(),
            "binds": verdict.binds,
            "lateBinds": verdict.late_binds,
            "violations": verdict.violations,
            "moreViolations": verdict.more_violations,
        },
        "warnings": outcome.warnings,
    });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn seconds(micros: Micros) -> f64 {
    (micros / MILLISECOND) as f64 / 1000.0
}

fn at(tick: Tick) -> f64 {
    seconds(since_epoch(tick))
}

fn share(share: f64) -> f64 {
    (share * 10_000.0).round() / 10_000.0
}

fn shares(all: &[f64]) -> Vec<f64> {
    all.iter().copied().map(share).collect()
}

fn wait(waits: Waits) -> Value {
    json!({
        "placed": waits.placed,
        "p50": seconds(waits.median),
        "p99": seconds(waits.p99),
        "max": seconds(waits.max),
    })
}

fn workloads(summary: &Summary<'_>) -> Vec<Value> {
    let record = &summary.outcome.record;
    let row = |row: &super::summary::WorkloadRow| {
        let workload = &summary.scenario.workloads[row.workload];
        let mut pods = json!({ "total": row.states.iter().sum::<u64>() });
        for (name, state) in STATES {
            pods[name] = row.states[state as usize].into();
        }
        let nodes = row.nodes.iter().map(|node| record.nodes[*node as usize].name.as_str());
        json!({
            "name": workload.name,
            "namespace": workload.namespace,
            "kind": workload.shape.kind(),
            "requests": record.asks[row.workload].all,
            "pods": pods,
            "wait": wait(row.waits),
            "nodes": nodes.collect::<Vec<_>>(),
        })
    };
    summary.workloads.iter().map(row).collect()
}

fn waiting(summary: &Summary<'_>) -> Vec<Value> {
    let record = &summary.outcome.record;
    let row = |row: &super::summary::WaitingRow| {
        let names = row.pods.iter().map(|pod| record.pods[*pod].name.as_str());
        json!({
            "workload": summary.scenario.workloads[row.workload].name,
            "pods": names.collect::<Vec<_>>(),
            "sinceSeconds": at(row.since),
            "attempts": row.attempts,
            "reason": row.why.as_ref().map(|why| why.reason),
            "message": row.why.as_ref().map(|why| &why.message),
        })
    };
    summary.waiting.iter().map(row).collect()
}

fn nodes(summary: &Summary<'_>) -> Vec<Value> {
    let intervals = |all: &[(Tick, Option<Tick>)]| -> Vec<Value> {
        all.iter().map(|(from, to)| json!([at(*from), to.map(at)])).collect()
    };
    let node = |node: &crate::record::NodeRecord| {
        json!({
            "name": node.name,
            "allocatable": node.offers.all,
            "present": intervals(&node.present),
            "cordoned": intervals(&node.cordoned),
        })
    };
    summary.outcome.record.nodes.iter().map(node).collect()
}

fn pod(summary: &Summary<'_>, pod: &PodRecord) -> Value {
    let node = pod.node.map(|node| summary.outcome.record.nodes[node as usize].name.as_str());
    let state = STATES.iter().find(|(_, state)| *state == pod.state).map(|(name, _)| *name);
    json!({
        "namespace": pod.namespace,
        "name": pod.name,
        "workload": summary.scenario.workloads[pod.workload as usize].name,
        "round": pod.round,
        "state": state,
        "node": node,
        "createdSeconds": at(pod.created),
        "boundSeconds": pod.bound.map(at),
        "startedSeconds": pod.started.map(at),
        "endedSeconds": pod.ended.map(at),
        "attempts": pod.attempts,
        "reason": pod.why.as_ref().map(|why| why.reason),
        "message": pod.why.as_ref().map(|why| &why.message),
    })
}
