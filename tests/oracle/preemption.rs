//! Muster's preemption of a pod against kube-scheduler's DefaultPreemption.
//!
//! Both sides look at every node that evictions could help: they must name the
//! same candidates, with the same victims and violated budgets on each, and the
//! same choice, unless several candidates are equally good. Must never pass
//! because the states ask nothing: [`Seen`] counts what they were about.

mod compare;
mod ties;

use std::env;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::binary::say;
use crate::generate::{self, State};
use crate::run::Run;
use crate::{PLUGINS, number, numbers, seed};
use ties::{CRITERIA, Ties};

/// A sample smaller than this may miss something by chance.
const SAMPLE: usize = 1_000;

#[test]
fn agrees_on_preemption() -> Result<()> {
    let states: usize = number("MUSTER_ORACLE_PREEMPTIONS")?.unwrap_or(1_500);
    let numbers = numbers(states)?;
    let mut plugins = PLUGINS.to_vec();
    plugins.push(("DefaultPreemption", 0));
    let run = Run {
        seed: seed()?,
        turn: 32,
        numbers: &numbers,
        what: "preemptions",
        make: &|rng| generate::preemption(rng, &plugins),
        judge: &|state, ours, theirs| {
            compare::differences(&state.objects, &state.pods[0], ours, theirs)
        },
    };
    let seen = run.compare(Seen::default(), Seen::add, |seen| {
        if env::var_os("MUSTER_ORACLE_VERBOSE").is_some() {
            say(&seen.report());
        }
    })?;
    if numbers.len() >= SAMPLE {
        let missing = seen.missing();
        ensure!(missing.is_empty(), "the states no longer provoke: {missing:#?}");
    }
    Ok(())
}

/// How many states were about what, by the oracle's answers.
#[derive(Default)]
struct Seen {
    states: usize,
    /// The pod fits without evictions.
    fits: usize,
    candidate: usize,
    several: usize,
    violation: usize,
    /// The choice violates a budget.
    forced: usize,
    /// Another pod, of no lower priority, has been promised one of the nodes.
    nominated: usize,
    ineligible: usize,
    /// No candidate although the pod may preempt.
    hopeless: usize,
    /// Rejected nodes that have become candidates, per plugin.
    resolved: std::collections::BTreeMap<String, usize>,
    /// Choices made by each criterion; the last are ties.
    decided: [usize; CRITERIA + 1],
}

impl Seen {
    fn add(&mut self, state: &State, theirs: &Value) {
        self.states += 1;
        self.fits += usize::from(theirs["feasibleNodes"] != 0);
        self.nominated += usize::from(has_nominated(&state.objects, &state.pods));
        let Some(candidates) = theirs["preemption"]["candidates"].as_object() else { return };
        let eligible = theirs["preemption"]["eligible"] == true;
        self.ineligible += usize::from(!eligible);
        self.hopeless += usize::from(eligible && candidates.is_empty());
        if candidates.is_empty() {
            return;
        }
        self.candidate += 1;
        let violates = |c: &Value| c["pdbViolations"] != 0;
        self.violation += usize::from(candidates.values().any(violates));
        let choice = theirs["preemption"]["node"].as_str().unwrap_or_default();
        self.forced += usize::from(candidates.get(choice).is_some_and(violates));
        for node in candidates.keys() {
            let plugin = theirs["nodes"][node]["plugin"].as_str().unwrap_or("-");
            *self.resolved.entry(plugin.to_owned()).or_default() += 1;
        }
        if candidates.len() > 1 {
            self.several += 1;
            self.decided[Ties::of(&state.objects, &theirs["preemption"]).criterion] += 1;
        }
    }

    /// What occurred in too few states.
    fn missing(&self) -> Vec<String> {
        let percent = |least: usize| self.states * least / 100;
        let mut wanted = vec![
            ("a pod that fits", self.fits, percent(3)),
            ("a candidate", self.candidate, percent(40)),
            ("several candidates", self.several, percent(20)),
            ("a violated budget", self.violation, percent(20)),
            ("a choice that violates a budget", self.forced, percent(4)),
            ("nominated pods", self.nominated, percent(20)),
            ("a pod that must not preempt", self.ineligible, percent(3)),
            ("no candidate", self.hopeless, percent(5)),
        ];
        let names =
            ["budgets", "highest priority", "sum", "number of victims", "start time", "tie"];
        for (name, count) in names.iter().zip(self.decided) {
            // Fewer victims of the same sum: only of the lowest priority, which adds nothing.
            let rare = *name == "number of victims";
            wanted.push((name, count, if rare { self.states / 5_000 } else { 1 }));
        }
        for plugin in ["InterPodAffinity", "NodePorts", "NodeResourcesFit", "PodTopologySpread"] {
            let count = self.resolved.get(plugin).copied().unwrap_or_default();
            wanted.push((plugin, count, 1));
        }
        let missing = wanted.into_iter().filter(|(_, count, least)| count < least);
        missing.map(|(what, count, least)| format!("{what}: {count} of {least}")).collect()
    }

    fn report(&self) -> String {
        format!(
            "{} states: the pod fits in {}, has a candidate in {} (several in {}), must not preempt in {}, \
             cannot be helped in {}\nbudgets violated by a candidate in {}, by the choice in {}; nominated \
             pods in {}\nchosen by budgets, highest priority, sum, number, start time, not at all: {:?}\n\
             candidates by the plugin that rejected the node: {:?}",
            self.states,
            self.fits,
            self.candidate,
            self.several,
            self.ineligible,
            self.hopeless,
            self.violation,
            self.forced,
            self.nominated,
            self.decided,
            self.resolved,
        )
    }
}

/// Whether a pod other than `asked`, of the same scheduler and no less important,
/// has been promised a node that is there.
fn has_nominated(objects: &[Value], asked: &[String]) -> bool {
    let priority = |pod: &Value| pod["spec"]["priority"].as_i64().unwrap_or(0);
    let pods = || objects.iter().filter(|o| o["kind"] == "Pod");
    let is_asked = |pod: &&Value| asked.contains(&ties::name(pod));
    let Some(own) = pods().find(is_asked) else { return false };
    let counts = |pod: &&Value| {
        !is_asked(pod)
            && pod["spec"]["schedulerName"] == own["spec"]["schedulerName"]
            && priority(pod) >= priority(own)
    };
    pods().filter(counts).any(|pod| {
        let promised = &pod["status"]["nominatedNodeName"];
        objects.iter().any(|o| o["kind"] == "Node" && o["metadata"]["name"] == *promised)
    })
}
