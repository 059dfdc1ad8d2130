//! Counts what the oracle has said, so that a generator that no longer
//! provokes some verdict is noticed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

#[derive(Default)]
pub(crate) struct Coverage {
    states: usize,
    unschedulable: usize,
    nodes: usize,
    /// Nodes per "status plugin: reason".
    reasons: BTreeMap<String, usize>,
    /// States in which a plugin's scores differ between nodes.
    telling: BTreeMap<String, usize>,
    /// States in which a plugin has scored at all.
    scored: BTreeMap<String, usize>,
}

impl Coverage {
    pub(crate) fn add(&mut self, answer: &Value) {
        self.states += 1;
        self.unschedulable += usize::from(answer["feasibleNodes"] == 0);
        let mut scores: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for node in answer["nodes"].as_object().into_iter().flat_map(|nodes| nodes.values()) {
            self.nodes += 1;
            let status = node["status"].as_str().unwrap_or("?");
            let plugin = node["plugin"].as_str().unwrap_or("-");
            for reason in node["reasons"].as_array().into_iter().flatten() {
                let reason = reason.as_str().unwrap_or_default();
                *self.reasons.entry(format!("{status} {plugin}: {reason}")).or_default() += 1;
            }
            for (plugin, score) in node["scores"].as_object().into_iter().flatten() {
                scores.entry(plugin).or_default().insert(score.as_i64().unwrap_or_default());
            }
        }
        for (plugin, values) in scores {
            *self.scored.entry(plugin.to_owned()).or_default() += 1;
            *self.telling.entry(plugin.to_owned()).or_default() += usize::from(values.len() > 1);
        }
    }

    /// What should have occurred and has not: reasons (by their beginning, with code
    /// and plugin), and scores that differ.
    pub(crate) fn missing(&self, reasons: &[&str], scores: &[&str]) -> Vec<String> {
        let count = |start: &&str| -> usize {
            let matching = self.reasons.iter().filter(|(reason, _)| reason.starts_with(start));
            matching.map(|(_, n)| n).sum()
        };
        let mut missing: Vec<String> =
            reasons.iter().filter(|r| count(r) == 0).map(|r| format!("reason {r:?}")).collect();
        for plugin in scores {
            if self.telling.get(*plugin).is_none_or(|n| *n == 0) {
                missing.push(format!("differing scores of {plugin}"));
            }
        }
        missing
    }

    pub(crate) fn report(&self) -> String {
        let mut text = format!(
            "{} states, {} nodes, no feasible node in {} states\nrejections by node:\n",
            self.states, self.nodes, self.unschedulable
        );
        for (reason, count) in &self.reasons {
            text += &format!("  {count:7}  {reason}\n");
        }
        text += "states in which scores differ between nodes, of those scored:\n";
        for (plugin, count) in &self.scored {
            let telling = self.telling.get(plugin).copied().unwrap_or_default();
            text += &format!("  {telling:7} of {count:7}  {plugin}\n");
        }
        text
    }
}
