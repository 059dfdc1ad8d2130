//! The report for people: what can be seen is drawn, the rest is said.

use std::fmt::Write;

use super::summary::{Summary, WaitingRow, WorkloadRow};
use super::words::{self, count, plural};
use super::{chart, map};
use crate::outcome::Ended;
use crate::record::{Ask, PodState};
use crate::time::{show_duration, since_epoch};

/// Rows of a table; more are counted.
const MAX_ROWS: usize = 40;
/// Characters of a line.
const WIDTH: usize = 92;
/// Characters of a list of nodes.
const NODES_WIDTH: usize = 20;
/// Lines of a chart.
const CHART_HEIGHT: usize = 4;

/// The report as text.
#[must_use]
pub fn to_text(summary: &Summary<'_>) -> String {
    let sections = [
        heading(summary),
        placed(summary),
        waiting(summary),
        charts(summary),
        map::draw(summary),
        verdict(summary),
    ];
    let mut text = String::new();
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        for line in section {
            let _ = writeln!(text, "{}", line.trim_end()); // a String takes everything
        }
    }
    text
}

fn heading(summary: &Summary<'_>) -> Vec<String> {
    let outcome = summary.outcome;
    let nodes = outcome.record.nodes.len() as u64;
    let span = show_duration(since_epoch(outcome.end));
    let mut offers = Vec::new();
    if summary.gpu.offered > 0 {
        offers.push(plural(summary.gpu.offered.unsigned_abs(), "GPU"));
    }
    offers.push(format!("{} CPUs", words::cpus(summary.cpu.offered)));
    let state = |state: PodState| summary.states[state as usize];
    let mut pods = vec![format!("{} succeeded", count(state(PodState::Succeeded)))];
    for (name, n) in [
        ("failed", state(PodState::Failed)),
        ("running", state(PodState::Running)),
        ("waiting", state(PodState::Waiting)),
        ("evicted or lost", state(PodState::Lost)),
    ] {
        if n > 0 {
            pods.push(format!("{} {name}", count(n)));
        }
    }
    let end = match outcome.ended {
        Ended::Quiet => "then nothing more could happen",
        Ended::Until => "as far as was asked",
    };
    vec![
        format!("{} · seed {}", summary.scenario.name, outcome.seed),
        format!("  cluster  {}: {}", plural(nodes, "node"), offers.join(", ")),
        format!("  pods     {}: {}", count(summary.states.iter().sum::<u64>()), pods.join(", ")),
        format!("  time     {span} of cluster time, {end}"),
    ]
}

fn placed(summary: &Summary<'_>) -> Vec<String> {
    let titles = [
        "WORKLOAD",
        "KIND",
        "EACH POD ASKS",
        "PODS",
        "DONE",
        "RUN",
        "WAIT",
        "WAITED p50",
        "MAX",
        "NODES",
    ];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    rows.extend(summary.workloads.iter().take(MAX_ROWS).map(|row| workload(summary, row)));
    let right = [false, false, false, true, true, true, true, true, true, false];
    let mut lines = vec!["Who went where".to_owned()];
    lines.extend(words::columns(&rows, &right).into_iter().map(|line| format!("  {line}")));
    lines.extend(more(summary.workloads.len(), "workload"));
    lines
}

fn workload(summary: &Summary<'_>, row: &WorkloadRow) -> Vec<String> {
    let workload = &summary.scenario.workloads[row.workload];
    let record = &summary.outcome.record;
    let kind = workload.shape.kind();
    let kind =
        if workload.repeat > 1 { format!("{kind} ×{}", workload.repeat) } else { kind.to_owned() };
    let wait = |micros| {
        if row.waits.placed == 0 { "–".to_owned() } else { show_duration(micros) }
    };
    let names = row.nodes.iter().map(|node| record.nodes[*node as usize].name.as_str());
    let state = |state: PodState| count(row.states[state as usize]);
    vec![
        workload.name.clone(),
        kind,
        ask(&record.asks[row.workload]),
        count(row.states.iter().sum::<u64>()),
        state(PodState::Succeeded),
        state(PodState::Running),
        state(PodState::Waiting),
        wait(row.waits.median),
        wait(row.waits.max),
        words::node_list(names, NODES_WIDTH),
    ]
}

fn ask(ask: &Ask) -> String {
    let mut parts = Vec::new();
    if ask.gpus > 0 {
        parts.push(format!("{} GPU", ask.gpus));
    }
    if ask.cpu > 0 {
        parts.push(format!("{} CPU", words::cpus(ask.cpu)));
    }
    parts.extend(ask.all.get("memory").filter(|n| **n > 0).map(|n| words::bytes(*n)));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(" ") }
}

fn waiting(summary: &Summary<'_>) -> Vec<String> {
    if summary.waiting.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["What waits, and why".to_owned()];
    for row in summary.waiting.iter().take(MAX_ROWS) {
        lines.extend(waiting_row(summary, row));
    }
    lines.extend(more(summary.waiting.len(), "reason"));
    lines
}

fn waiting_row(summary: &Summary<'_>, row: &WaitingRow) -> Vec<String> {
    let pods = &summary.outcome.record.pods;
    let first = &pods[row.pods[0]];
    let who = match row.pods.len() {
        1 => first.name.clone(),
        n => format!("{} and {} more", first.name, count((n - 1) as u64)),
    };
    let for_how_long = show_duration(summary.outcome.end.0 - row.since.0);
    let tried = match row.attempts {
        0 => "not tried yet".to_owned(),
        n => format!("tried {}", plural(u64::from(n), "time")),
    };
    let mut lines = vec![format!("  {who}, for {for_how_long}, {tried}")];
    let why = match &row.why {
        Some(why) if !why.message.is_empty() => &why.message,
        Some(why) => why.reason,
        None if summary.scenario.workloads[row.workload].template.spec.scheduler_name
            != crate::scenario::SCHEDULER_NAME =>
        {
            "it asks for another scheduler, and none is simulated"
        }
        None => "the scheduler has not said",
    };
    lines.extend(words::wrap(why, WIDTH - 6).into_iter().map(|line| format!("      {line}")));
    lines
}

fn charts(summary: &Summary<'_>) -> Vec<String> {
    let span = since_epoch(summary.outcome.end);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut lines = Vec::new();
    let resources = [("GPUs", &summary.gpu, 1), ("CPUs", &summary.cpu, 1000)];
    for (name, usage, unit) in resources.into_iter().filter(|(_, usage, _)| usage.offered > 0) {
        let (at, most) = usage.peak;
        let peak = if most == 0 {
            "never in use".to_owned()
        } else {
            format!(
                "at most {} of {} at {}",
                count(most / unit),
                count(usage.offered / unit),
                show_duration(since_epoch(at))
            )
        };
        lines.push(format!("{name} in use: {} on average, {peak}", percent(usage.mean)));
        lines.extend(chart::area(&usage.shares, CHART_HEIGHT, span));
        lines.push(String::new());
    }
    let (at, most) = summary.queue_peak;
    if most > 0 {
        let when = show_duration(since_epoch(at));
        lines.push(format!("Pods waiting: at most {} at {when}", count(most)));
        // Drawn against its highest part: a burst of a second would flatten the rest.
        let highest = summary.queue.iter().copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let shares: Vec<f64> = summary.queue.iter().map(|n| n / highest).collect();
        lines.push(format!("       {}", chart::sparkline(&shares)));
        lines.push(chart::time_axis(shares.len(), span));
    }
    lines
}

fn verdict(summary: &Summary<'_>) -> Vec<String> {
    let (outcome, verdict) = (summary.outcome, &summary.outcome.verdict);
    let mut lines = Vec::new();
    if verdict.is_clean() {
        let late = match verdict.late_binds {
            0 => String::new(),
            n => format!(" ({} reached a node that was just gone)", count(n)),
        };
        lines.push(format!(
            "Checked: {}{late}, none twice, no node overcommitted; {}, {} refused",
            plural(verdict.binds, "bind"),
            plural(outcome.attempts, "decision"),
            count(outcome.refused),
        ));
    } else {
        let n = verdict.violations.len() as u64 + verdict.more_violations;
        lines.push(format!("CHECK FAILED: {}", plural(n, "violation")));
        lines.extend(verdict.violations.iter().take(MAX_ROWS).map(|what| format!("  {what}")));
        lines.extend(more(usize::try_from(n).unwrap_or(usize::MAX), "violation"));
    }
    lines.extend(outcome.warnings.iter().map(|warning| format!("Warning: {warning}")));
    lines
}

fn more(n: usize, what: &str) -> Option<String> {
    let rest = n.checked_sub(MAX_ROWS).filter(|rest| *rest > 0)?;
    Some(format!("  … and {} (all of them: -o json)", plural(rest as u64, &format!("more {what}"))))
}
