//! Alerts and the dashboard speak of metrics that exist, by labels that these have.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::{objects, of_kind, render, root};

/// Labels that Prometheus adds when it scrapes.
const ADDED: [&str; 3] = ["le", "pod", "node"];

/// Metrics by name, with their labels, from the pages of the book that are made from code.
fn known() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut known = BTreeMap::new();
    for page in ["docs/metrics.md", "docs/node-metrics.md"] {
        for line in fs::read_to_string(root().join(page))?.lines() {
            let mut cells = line.split('|').map(str::trim).skip(1);
            let (Some(name), Some(kind), Some(labels)) = (cells.next(), cells.next(), cells.next())
            else {
                continue;
            };
            let Some(name) = name.strip_prefix('`').and_then(|n| n.strip_suffix('`')) else {
                continue;
            };
            let labels: BTreeSet<String> =
                labels.split(", ").filter(|l| !l.is_empty()).map(str::to_owned).collect();
            if kind == "histogram" {
                for part in ["bucket", "sum", "count"] {
                    known.insert(format!("{name}_{part}"), labels.clone());
                }
            } else {
                known.insert(name.to_owned(), labels);
            }
        }
    }
    for name in ["process_resident_memory_bytes", "process_cpu_seconds_total"] {
        known.insert(name.to_owned(), BTreeSet::new());
    }
    ensure!(known.len() > 40, "{} metrics found in docs", known.len());
    Ok(known)
}

/// Names and labels that an expression of PromQL uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Used {
    metrics: BTreeSet<String>,
    labels: BTreeSet<String>,
}

/// Reads as much of PromQL as is needed to tell metrics from functions and labels.
fn used(expression: &str) -> Used {
    const WORDS: [&str; 6] = ["and", "or", "unless", "bool", "offset", "ignoring"];
    let (mut used, mut rest) = (Used::default(), expression);
    // Of what is between braces, or in the list after `by`, names are labels.
    let (mut braces, mut list) = (false, false);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let end = rest[1..].find('"').map_or(rest.len(), |at| at + 2);
            rest = &rest[end..];
        } else if first == '[' || first.is_ascii_digit() {
            let stop = |c: char| if first == '[' { c == ']' } else { !c.is_alphanumeric() };
            rest = &rest[rest[1..].find(stop).map_or(rest.len(), |at| at + 1)..];
        } else if first.is_ascii_alphabetic() || first == '_' || first == '$' {
            let name = |c: char| c.is_ascii_alphanumeric() || "_:$".contains(c);
            let end = rest.find(|c| !name(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after;
            if braces || list {
                used.labels.insert(word.to_owned());
            } else if matches!(word, "by" | "on" | "without") {
                list = true;
            } else if !after.trim_start().starts_with('(') && !WORDS.contains(&word) {
                // `sum by (x) (…)`: a function whose list comes first.
                if !after.trim_start().starts_with("by ") {
                    used.metrics.insert(word.to_owned());
                }
            }
        } else {
            match first {
                '{' => braces = true,
                '}' => braces = false,
                ')' => list = false,
                _ => {}
            }
            rest = &rest[first.len_utf8()..];
        }
    }
    used
}

#[test]
fn metrics_are_told_from_functions_and_labels() {
    let used = used(
        "histogram_quantile(0.99, sum by (le, x) (rate(a_bucket{y=\"z w\"}[10m]))) > 1 and on (pod) b_total",
    );
    assert_eq!(used.metrics.into_iter().collect::<Vec<_>>(), ["a_bucket", "b_total"]);
    assert_eq!(used.labels.into_iter().collect::<Vec<_>>(), ["le", "pod", "x", "y"]);
}

fn check(what: &str, expression: &str, known: &BTreeMap<String, BTreeSet<String>>) -> Result<()> {
    let used = used(expression);
    ensure!(!used.metrics.is_empty(), "{what}: no metric in {expression}");
    let mut labels: BTreeSet<&str> = ADDED.into();
    for name in &used.metrics {
        let of = known.get(name).with_context(|| format!("{what}: {name} does not exist"))?;
        labels.extend(of.iter().map(String::as_str));
    }
    for label in &used.labels {
        ensure!(labels.contains(label.as_str()), "{what}: no metric has the label {label}");
    }
    Ok(())
}

#[test]
fn alerts_are_about_metrics_that_exist_and_say_what_to_do() -> Result<()> {
    let known = known()?;
    let all = objects(&render(&["--set", "metrics.prometheusRule.enabled=true"])?)?;
    let rule = of_kind(&all, "PrometheusRule");
    let groups = rule.first().context("no rule")?["spec"]["groups"].as_array().context("groups")?;
    let help = fs::read_to_string(root().join("docs/troubleshooting.md"))?;
    let mut alerts = 0;
    for rule in groups.iter().filter_map(|g| g["rules"].as_array()).flatten() {
        let text =
            |pointer: &str| rule.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let name = text("/alert");
        check(name, text("/expr"), &known)?;
        ensure!(!text("/expr").contains("LEASE"), "{name}: {}", text("/expr"));
        ensure!(["critical", "warning", "info"].contains(&text("/labels/severity")), "{name}");
        ensure!(!text("/annotations/summary").is_empty(), "{name}: no summary");
        ensure!(!text("/annotations/description").is_empty(), "{name}: no description");
        ensure!(help.contains(&format!("`{name}`")), "docs/troubleshooting.md: nothing on {name}");
        alerts += 1;
    }
    ensure!(alerts >= 10, "{alerts} alerts");
    Ok(())
}

#[test]
fn the_dashboard_shows_metrics_that_exist() -> Result<()> {
    let known = known()?;
    let only = ["--show-only", "templates/monitoring/dashboard.yaml"];
    let all = objects(&render(&["--set", "metrics.dashboard.enabled=true", only[0], only[1]])?)?;
    let text = all[0]["data"]["muster.json"].as_str().context("no dashboard")?;
    let dashboard: Value = serde_json::from_str(text)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let mut ids = BTreeSet::new();
    for panel in panels {
        ensure!(ids.insert(panel["id"].to_string()), "two panels {}", panel["id"]);
        let title = panel["title"].as_str().context("title")?;
        for target in panel["targets"].as_array().into_iter().flatten() {
            check(title, target["expr"].as_str().context("expr")?, &known)?;
        }
    }
    ensure!(panels.len() >= 20, "{} panels", panels.len());
    Ok(())
}
