//! Tests of the simulator on the real core.
//!
//! They read files and one environment variable, which the simulator itself must not.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::disallowed_macros)]

mod bugs;
mod golden;
mod gpus;
mod properties;
mod scenarios;
mod storms;
mod swarm;

use muster_sim::report::{Summary, to_json, to_text};
use muster_sim::{Options, Outcome, Scenario};

/// A number that whoever runs a test may choose.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// A file of `examples/simulate`, as a user names it.
fn example(name: &str) -> (String, Scenario) {
    let path = format!("{}/../../examples/simulate/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the example exists");
    let scenario = parse(&text);
    (text, scenario)
}

fn parse(yaml: &str) -> Scenario {
    Scenario::parse(yaml, "scenario.yaml").unwrap_or_else(|e| panic!("{e}\n{yaml}"))
}

fn run(scenario: &Scenario, seed: Option<u64>) -> Outcome {
    let options = Options { seed, until: None };
    muster_sim::run(scenario, options, &mut |_| {}).expect("it settles")
}

/// Both reports of a run.
fn reports(scenario: &Scenario, seed: Option<u64>) -> (String, String) {
    let outcome = run(scenario, seed);
    let summary = Summary::new(scenario, &outcome);
    (to_text(&summary), to_json(&summary).expect("every key is a text"))
}
