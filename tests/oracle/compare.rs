//! What two explanations of the same pod disagree on.

use std::collections::BTreeSet;

use serde_json::Value;

/// One disagreement: its kind, without the names of this state, and its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Difference {
    /// For instance `scores.NodeResourcesFit`: what to look at.
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Difference {
    /// Muster has given no answer at all.
    pub(crate) fn failure(error: &anyhow::Error) -> Self {
        Self { kind: "error".to_owned(), text: format!("Muster fails: {error:#}") }
    }
}

/// Everything that differs between Muster's answer and the oracle's. Members
/// that are absent, null or empty are the same.
pub(crate) fn differences(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut found = verdicts(ours, theirs);
    check(&mut found, "message", "message", &ours["message"], &theirs["message"]);
    found.extend(host(ours));
    found
}

/// What differs in the verdicts and scores of the nodes.
pub(crate) fn verdicts(ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    for key in ["pod", "evaluatedNodes", "feasibleNodes"] {
        check(&mut found, key, key, &ours[key], &theirs[key]);
    }
    let empty = serde_json::Map::new();
    let our_nodes = ours["nodes"].as_object().unwrap_or(&empty);
    let their_nodes = theirs["nodes"].as_object().unwrap_or(&empty);
    let names: BTreeSet<&String> = our_nodes.keys().chain(their_nodes.keys()).collect();
    for name in names {
        let (our, their) = (&ours["nodes"][name], &theirs["nodes"][name]);
        for key in ["status", "plugin", "reasons", "total"] {
            // Who rejects tells more than that somebody does.
            let kind = match [&their["plugin"], &our["plugin"]].iter().find_map(|p| p.as_str()) {
                Some(plugin) if key != "total" => format!("{key}.{plugin}"),
                _ => key.to_owned(),
            };
            check(&mut found, &kind, &format!("{name}: {key}"), &our[key], &their[key]);
        }
        let plugins: BTreeSet<&String> = [our, their]
            .iter()
            .filter_map(|v| v["scores"].as_object())
            .flat_map(|m| m.keys())
            .collect();
        for plugin in plugins {
            let (our, their) = (&our["scores"][plugin], &their["scores"][plugin]);
            // Here absence matters: the plugin has skipped itself.
            if our != their {
                found.push(difference(
                    &format!("scores.{plugin}"),
                    &format!("{name}: score of {plugin}"),
                    our,
                    their,
                ));
            }
        }
    }
    found
}

/// The suggested host, if there is one, must have the best total.
pub(crate) fn host(ours: &Value) -> Option<Difference> {
    let host = ours["suggestedHost"].as_str().filter(|h| !h.is_empty())?;
    let total = |node: &Value| node["total"].as_i64();
    let best = ours["nodes"].as_object()?.values().filter_map(total).max();
    let its = total(&ours["nodes"][host]);
    (its.is_none() || its != best).then(|| Difference {
        kind: "suggestedHost".to_owned(),
        text: format!("suggestedHost {host} has total {its:?}, the best is {best:?}"),
    })
}

fn check(found: &mut Vec<Difference>, kind: &str, what: &str, ours: &Value, theirs: &Value) {
    if ours != theirs && !(is_empty(ours) && is_empty(theirs)) {
        found.push(difference(kind, what, ours, theirs));
    }
}

fn difference(kind: &str, what: &str, ours: &Value, theirs: &Value) -> Difference {
    let text = format!("{what}: kube-scheduler says {theirs}, Muster says {ours}");
    Difference { kind: kind.to_owned(), text }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
