//! What two answers about the preemption of the same pod disagree on.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::ties::Ties;
use crate::compare::{self, Difference};

/// Everything that differs: the verdicts on all nodes, and what evictions
/// could do. `objects` are those of the state.
pub(super) fn differences(objects: &[Value], ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut found = compare::differences(ours, theirs);
    let mut add = |what: &str, text: String| {
        found.push(Difference { kind: format!("preemption.{what}"), text });
    };
    let (our, their) = (&ours["preemption"], &theirs["preemption"]);
    if their.is_null() && !our.is_null() {
        add("absent", format!("no preemption is to be considered, Muster says {our}"));
        return found;
    }
    if their.is_null() {
        return found;
    }
    if our.is_null() {
        add("present", format!("preemption: kube-scheduler says {their}, Muster says nothing"));
        return found;
    }
    let nodes = |plan: &Value| -> BTreeSet<String> {
        plan["candidates"].as_object().into_iter().flat_map(|c| c.keys().cloned()).collect()
    };
    for node in nodes(our).union(&nodes(their)) {
        let (our, their) = (&our["candidates"][node], &their["candidates"][node]);
        let what = match (our.is_null(), their.is_null()) {
            (true, false) => "candidate.missing",
            (false, true) => "candidate.extra",
            _ if sorted(&our["pods"]) != sorted(&their["pods"]) => "victims",
            _ if our["pdbViolations"] != their["pdbViolations"] => "violations",
            _ => continue,
        };
        add(what, format!("{node}: kube-scheduler says {their}, Muster says {our}"));
    }
    // Any of the best will do, for either side; without a candidate the name is empty.
    let mut best = Ties::of(objects, their).nodes;
    if best.is_empty() {
        best.push(String::new());
    }
    let is_best = |plan: &Value| best.iter().any(|node| plan["node"] == *node);
    if !is_best(their) {
        add("ties", format!("kube-scheduler takes {}, which is none of {best:?}", their["node"]));
    }
    if !is_best(our) {
        add("choice", format!("Muster takes {}, which is none of {best:?}", our["node"]));
    }
    found
}

/// The order in which victims are listed is nobody's promise.
fn sorted(pods: &Value) -> Vec<String> {
    let list = pods.as_array().into_iter().flatten();
    let mut list: Vec<String> =
        list.map(|p| p.as_str().map_or_else(|| p.to_string(), str::to_owned)).collect();
    list.sort();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(node: &str, candidates: &Value) -> Value {
        json!({"feasibleNodes": 0, "preemption": {"node": node, "candidates": candidates}})
    }

    fn check(ours: &Value, theirs: &Value, kinds: &[&str]) {
        let pod = |name: &str, priority: i64| {
            json!({
                "kind": "Pod",
                "metadata": {"namespace": "n", "name": name},
                "spec": {"priority": priority},
            })
        };
        let objects = [pod("p", 1), pod("q", 1), pod("r", 7)];
        let found = differences(&objects, ours, theirs);
        let found: Vec<&str> = found.iter().map(|d| d.kind.as_str()).collect();
        assert_eq!(found, kinds, "{ours} against {theirs}");
    }

    fn of(pods: &[&str], violations: i64) -> Value {
        json!({"pods": pods, "pdbViolations": violations})
    }

    #[test]
    fn finds_what_differs_and_nothing_else() {
        let theirs = plan("a", &json!({"a": of(&["n/p", "n/q"], 0), "b": of(&["n/r"], 0)}));
        check(&theirs, &theirs, &[]);
        let other = plan("a", &json!({"a": of(&["n/q", "n/p"], 0), "b": of(&["n/r"], 0)}));
        check(&other, &theirs, &[]);
        let other = plan("a", &json!({"a": of(&["n/p"], 0), "b": of(&["n/r"], 1)}));
        check(&other, &theirs, &["preemption.victims", "preemption.violations"]);
        let other = plan("a", &json!({"a": of(&["n/p", "n/q"], 0), "c": of(&["n/r"], 0)}));
        let kinds = ["preemption.candidate.missing", "preemption.candidate.extra"];
        check(&other, &theirs, &kinds);
        let other = plan("b", &json!({"a": of(&["n/p", "n/q"], 0), "b": of(&["n/r"], 0)}));
        check(&other, &theirs, &["preemption.choice"]);
        // The harness must not be wrong about ties either.
        check(&theirs, &other, &["preemption.ties"]);
    }

    #[test]
    fn a_tie_may_go_either_way() {
        let both = json!({"a": of(&["n/p"], 0), "b": of(&["n/q"], 0)});
        check(&plan("a", &both), &plan("b", &both), &[]);
        check(&plan("", &both), &plan("b", &both), &["preemption.choice"]);
    }

    #[test]
    fn a_pod_that_fits_has_no_plan() {
        let fits = json!({"feasibleNodes": 1});
        let nothing = plan("", &json!({}));
        check(&fits, &fits, &[]);
        check(&nothing, &nothing, &[]);
        let wrong = json!({"feasibleNodes": 1, "preemption": nothing["preemption"]});
        check(&wrong, &fits, &["preemption.absent"]);
        check(&json!({"feasibleNodes": 0}), &nothing, &["preemption.present"]);
    }
}
