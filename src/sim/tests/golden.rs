//! Reports, byte for byte.
//!
//! After a change that is meant to change them: `MUSTER_BLESS=1 cargo test -p muster-sim`,
//! then read the difference before it is committed.

use std::fmt::Write;
use std::path::Path;

use super::{example, parse, reports};

/// Compares with `tests/golden/<file>`, or writes it when blessing.
fn check(file: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if std::env::var_os("MUSTER_BLESS").is_some() {
        std::fs::write(&path, actual).expect("the golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{file} differs (if it should: MUSTER_BLESS=1 cargo test -p muster-sim)\n{}",
        difference(&expected, actual)
    );
}

/// The lines that differ, each with its number.
fn difference(expected: &str, actual: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (expected.lines().collect(), actual.lines().collect());
    let mut text = String::new();
    for i in 0..old.len().max(new.len()) {
        let (old, new) = (old.get(i), new.get(i));
        if old != new {
            for (sign, line) in [('-', old), ('+', new)] {
                if let Some(line) = line {
                    let _ = writeln!(text, "{:>4} {sign} {line}", i + 1);
                }
            }
        }
    }
    text
}

#[test]
fn quickstart() {
    let (_, scenario) = example("quickstart");
    check("quickstart.txt", &reports(&scenario, None).0);
}

#[test]
fn contention() {
    let (_, scenario) = example("contention");
    check("contention.txt", &reports(&scenario, None).0);
}

#[test]
fn gangs() {
    let (_, scenario) = example("gangs");
    check("gangs.txt", &reports(&scenario, None).0);
}

/// Everything a report can say, on two nodes.
const TINY: &str = "
name: tiny
nodes:
  - {name: 'n-{i}', count: 2, allocatable: {cpu: 4, memory: 8Gi}}
workloads:
  - {name: web, kind: Pod, replicas: 2, requests: {cpu: 1, memory: 1Gi}}
  - {name: job, kind: Job, at: 10s, parallelism: 2, completions: 3, runtime: 1m, requests: {cpu: 2, memory: 1Gi}}
  - {name: huge, kind: Pod, requests: {cpu: 5, memory: 1Gi}}
  - name: gated
    kind: Pod
    podTemplate: {spec: {schedulingGates: [{name: example.com/quota}], containers: [{name: main}]}}
  - name: theirs
    kind: Pod
    podTemplate: {spec: {schedulerName: default-scheduler, containers: [{name: main}]}}
events:
  - {at: 30s, remove: n-1}
  - {at: 2m, add: n-1}
";

#[test]
fn tiny_text_without_gpus() {
    check("tiny.txt", &reports(&parse(TINY), None).0);
}

#[test]
fn tiny_json() {
    check("tiny.json", &reports(&parse(TINY), None).1);
}
