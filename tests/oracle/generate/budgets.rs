//! PodDisruptionBudgets, and pods that hold on to them.
//!
//! A pod under two budgets is counted against the first, and against the second
//! only if the first allows it; kube-scheduler takes them in no particular order.
//! So either no two budgets of a state select the same pod, or each of them
//! allows nothing or more than there is.

use serde_json::{Value, json};

use super::affinity::label_selector;
use super::{NAMESPACE, object};
use crate::rng::Rng;

/// Values of the label `app`, by which budgets tell pods apart.
pub(super) const APPS: &[&str] = &["web", "db", "train"];

/// The budgets of a state over the given pods.
pub(super) fn budgets(rng: &mut Rng, pods: &[Value]) -> Vec<Value> {
    let mut list = Vec::new();
    let overlap = rng.chance(20);
    for namespace in [NAMESPACE, "other"] {
        let likely = if namespace == NAMESPACE { 90 } else { 45 };
        for app in APPS {
            if !rng.chance(likely) {
                continue;
            }
            let selector = if overlap { label_selector(rng, 3) } else { of_app(rng, app) };
            let allowed =
                if overlap { [0, 0, 100][rng.below(3)] } else { [0, 0, 0, 0, 1, 2][rng.below(6)] };
            list.push(budget(namespace, list.len(), Some(selector), allowed));
        }
    }
    if rng.chance(20) {
        // Neither selects anything for the scheduler, whatever the API says.
        let selector = rng.chance(50).then(|| json!({}));
        list.push(budget(NAMESPACE, list.len(), selector, 0));
    }
    for budget in &mut list {
        if rng.chance(25) {
            let disrupted = pods.iter().filter_map(|p| p["metadata"]["name"].as_str());
            let disrupted: Vec<&str> = disrupted.filter(|_| rng.chance(20)).collect();
            let times =
                disrupted.iter().map(|name| ((*name).to_owned(), json!("2020-01-02T00:00:00Z")));
            budget["status"]["disruptedPods"] = object(times);
        }
    }
    list
}

/// A selector that no pod of another app matches.
fn of_app(rng: &mut Rng, app: &str) -> Value {
    let tier = json!({"key": "tier", "operator": rng.pick(&["Exists", "DoesNotExist"])});
    let listed = json!({"key": "app", "operator": "In", "values": [app]});
    match rng.below(10) {
        0..=4 => json!({"matchLabels": {"app": app}}),
        5 | 6 => json!({"matchExpressions": [listed]}),
        7 => json!({"matchLabels": {"app": app}, "matchExpressions": [tier]}),
        8 => {
            let others: Vec<&&str> = APPS.iter().filter(|other| **other != app).collect();
            json!({"matchExpressions": [
                {"key": "app", "operator": "Exists"},
                {"key": "app", "operator": "NotIn", "values": others},
            ]})
        }
        // Does not parse, and so selects nothing.
        _ => json!({"matchExpressions": [{"key": "app", "operator": "Near", "values": [app]}]}),
    }
}

fn budget(namespace: &str, number: usize, selector: Option<Value>, allowed: usize) -> Value {
    let mut budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": namespace, "name": format!("budget-{number}")},
        "spec": {"maxUnavailable": 1},
        "status": {"disruptionsAllowed": allowed},
    });
    if let Some(selector) = selector {
        budget["spec"]["selector"] = selector;
    }
    budget
}
