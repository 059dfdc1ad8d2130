//! What two answers about the preemption of the same pod disagree on.

use std::collections::BTreeSet;

use serde_json::Value;

use super::ties::{Ties, name};
use crate::compare::{self, Difference};

/// Everything that differs: the verdicts on all nodes, what is said of them, and
/// what evictions could do. `asked` is the pod, one of the `objects` of the state.
pub(super) fn differences(
    objects: &[Value],
    asked: &str,
    ours: &Value,
    theirs: &Value,
) -> Vec<Difference> {
    let mut found = compare::verdicts(ours, theirs);
    found.extend(host(objects, asked, ours));
    found.extend(message(objects, ours, theirs));
    found.extend(plans(objects, ours, theirs));
    found
}

/// A pod that fits where it is expected goes there; else the best total decides.
fn host(objects: &[Value], asked: &str, ours: &Value) -> Option<Difference> {
    let pod = objects.iter().find(|o| o["kind"] == "Pod" && name(o) == asked)?;
    let expected = pod["status"]["nominatedNodeName"].as_str().unwrap_or_default();
    if ours["nodes"][expected]["total"].is_null() {
        return compare::host(ours);
    }
    let host = &ours["suggestedHost"];
    (host != expected).then(|| Difference {
        kind: "suggestedHost.expected".to_owned(),
        text: format!("the pod fits {expected}, where it is expected; Muster suggests {host}"),
    })
}

/// What the filters say, followed by what the preemption says. Where there are
/// budgets Muster may take another candidate, or none: it breaks no budget, and
/// says which one stands in the way.
fn message(objects: &[Value], ours: &Value, theirs: &Value) -> Option<Difference> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (our, their) = (text(&ours["message"]), text(&theirs["message"]));
    let plan = &theirs["preemption"];
    let placed = |node: &String| {
        let victims = plan["candidates"][node]["pods"].as_array().map_or(0, Vec::len);
        our == format!(
            "{their} preemption: found a potential placement for pod on node {node}, \
             preempting {victims} victims"
        )
    };
    let right = if plan.is_null() {
        our == their
    } else if plan["node"] == "" {
        our == format!("{their} {}", text(&plan["message"]))
    } else if objects.iter().any(|o| o["kind"] == "PodDisruptionBudget") {
        let candidates = plan["candidates"].as_object();
        candidates.is_some_and(|c| c.keys().any(placed))
            || our.starts_with(&format!("{their} preemption: 0/"))
                && our.contains("PodDisruptionBudget")
    } else {
        Ties::of(objects, plan).nodes.iter().any(placed)
    };
    (!right).then(|| Difference {
        kind: "preemption.message".to_owned(),
        text: format!(
            "message: kube-scheduler says {their:?} and {}, Muster says {our:?}",
            plan["message"]
        ),
    })
}

/// What differs in candidates, victims, violations and the choice.
fn plans(objects: &[Value], ours: &Value, theirs: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
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
    use serde_json::json;

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
        let found = plans(&objects, ours, theirs);
        let found: Vec<&str> = found.iter().map(|d| d.kind.as_str()).collect();
        assert_eq!(found, kinds, "{ours} against {theirs}");
    }

    #[test]
    fn a_message_is_that_of_both_steps() {
        let budget = json!({"kind": "PodDisruptionBudget"});
        let right = |ours: &str, node: &str, objects: &[Value]| {
            let candidates = json!({node: of(&["n/p"], 0)});
            let candidates = if node.is_empty() { json!({}) } else { candidates };
            let theirs = json!({"message": "0/1.", "preemption": {
                "node": node, "candidates": candidates, "message": "preemption: no.",
            }});
            message(objects, &json!({"message": ours}), &theirs).is_none()
        };
        assert!(right("0/1. preemption: no.", "", &[]));
        assert!(!right("0/1.", "", &[]));
        let placed = "0/1. preemption: found a potential placement for pod on node a, \
                      preempting 1 victims";
        assert!(right(placed, "a", &[]));
        assert!(!right(placed, "b", &[]));
        let refused = "0/1. preemption: 0/1: PodDisruptionBudget x forbids";
        assert!(!right(refused, "a", &[]));
        assert!(right(refused, "a", &[budget]));
        let broken = json!({"message": "broken"});
        assert!(message(&[], &broken, &broken).is_none());
    }

    #[test]
    fn a_pod_goes_where_it_is_expected() {
        let pod = json!({
            "kind": "Pod",
            "metadata": {"namespace": "n", "name": "p"},
            "status": {"nominatedNodeName": "b"},
        });
        let nodes = json!({"a": {"total": 9}, "b": {"total": 3}});
        let kind = |host: &str, nodes: &Value| {
            let ours = json!({"suggestedHost": host, "nodes": nodes});
            super::host(std::slice::from_ref(&pod), "n/p", &ours).map(|d| d.kind)
        };
        assert_eq!(kind("b", &nodes), None);
        assert_eq!(kind("a", &nodes).as_deref(), Some("suggestedHost.expected"));
        assert_eq!(kind("a", &json!({"a": {"total": 9}})), None);
        assert_eq!(kind("c", &json!({"a": {"total": 9}})).as_deref(), Some("suggestedHost"));
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
