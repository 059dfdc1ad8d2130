//! Which candidates of a preemption are equally good.
//!
//! Written from the description of kube-scheduler's criteria, not from Muster's
//! code, so that neither can hide a mistake of the other.

use std::collections::BTreeMap;

use serde_json::Value;

/// How many criteria there are before any of the candidates will do.
pub(super) const CRITERIA: usize = 5;

/// The candidates that no criterion tells apart from the best.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ties {
    pub(super) nodes: Vec<String>,
    /// Which criterion left one alone, from 0; [`CRITERIA`] if none has.
    pub(super) criterion: usize,
}

/// What a pod that has to leave weighs.
struct Victim<'a> {
    priority: i64,
    /// None: not started yet, which is later than any time.
    start: Option<&'a str>,
}

/// How bad a candidate is, by criterion; less is better.
type Badness<'a> = [Key<'a>; CRITERIA];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Number(i64),
    /// The later the better.
    Start(std::cmp::Reverse<(bool, &'a str)>),
}

impl Ties {
    /// Of a `preemption` whose candidates are pods among `objects`.
    pub(super) fn of(objects: &[Value], preemption: &Value) -> Self {
        let pods: BTreeMap<String, &Value> =
            objects.iter().filter(|o| o["kind"] == "Pod").map(|pod| (name(pod), pod)).collect();
        let candidates = preemption["candidates"].as_object().into_iter().flatten();
        let mut left: Vec<(&String, Badness)> =
            candidates.map(|(node, candidate)| (node, badness(&pods, candidate))).collect();
        let mut criterion = 0;
        while left.len() > 1 && criterion < CRITERIA {
            let best = left.iter().map(|(_, keys)| keys[criterion].clone()).min();
            left.retain(|(_, keys)| Some(&keys[criterion]) == best.as_ref());
            if left.len() > 1 {
                criterion += 1;
            }
        }
        Self { nodes: left.into_iter().map(|(node, _)| node.clone()).collect(), criterion }
    }
}

fn badness<'a>(pods: &BTreeMap<String, &'a Value>, candidate: &Value) -> Badness<'a> {
    let names = candidate["pods"].as_array().into_iter().flatten();
    let victims: Vec<Victim> = names
        .filter_map(|name| pods.get(name.as_str()?))
        .map(|pod| Victim {
            priority: pod["spec"]["priority"].as_i64().unwrap_or(0),
            start: pod["status"]["startTime"].as_str(),
        })
        .collect();
    let highest = victims.iter().map(|v| v.priority).max().unwrap_or(i64::MIN);
    let sum = victims.iter().map(|v| v.priority + (1 << 31)).sum();
    let of_highest = victims.iter().filter(|v| v.priority == highest);
    let earliest = of_highest.map(|v| (v.start.is_none(), v.start.unwrap_or_default())).min();
    [
        Key::Number(candidate["pdbViolations"].as_i64().unwrap_or(0)),
        Key::Number(highest),
        Key::Number(sum),
        Key::Number(i64::try_from(victims.len()).unwrap_or(i64::MAX)),
        Key::Start(std::cmp::Reverse(earliest.unwrap_or_default())),
    ]
}

/// `namespace/name` of an object.
pub(super) fn name(object: &Value) -> String {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, priority: Option<i64>, start: Option<&str>) -> Value {
        json!({
            "kind": "Pod",
            "metadata": {"namespace": "n", "name": name},
            "spec": {"priority": priority},
            "status": {"startTime": start},
        })
    }

    fn check(candidates: &Value, nodes: &[&str], criterion: usize) {
        let early = Some("2020-01-01T00:00:00Z");
        let late = Some("2020-01-01T00:01:00Z");
        let objects = [
            pod("low", Some(-10), early),
            pod("zero", Some(0), early),
            pod("none", None, late),
            pod("ten", Some(10), early),
            pod("new", Some(10), None),
        ];
        let found = Ties::of(&objects, &json!({"candidates": candidates}));
        let nodes = nodes.iter().map(|n| (*n).to_owned()).collect();
        assert_eq!(found, Ties { nodes, criterion });
    }

    #[test]
    fn each_criterion_decides_before_the_next() {
        let one = |pods: &[&str], violations: i64| {
            let pods: Vec<String> = pods.iter().map(|p| format!("n/{p}")).collect();
            json!({"pods": pods, "pdbViolations": violations})
        };
        check(&json!({"a": one(&["low"], 1), "b": one(&["ten"], 0)}), &["b"], 0);
        check(&json!({"a": one(&["zero"], 0), "b": one(&["ten"], 0)}), &["a"], 1);
        // The highest is the same; the sum is what the others add.
        check(&json!({"a": one(&["ten", "low"], 0), "b": one(&["ten", "zero"], 0)}), &["a"], 2);
        // Absent is zero; the one that started later goes.
        check(&json!({"a": one(&["zero"], 0), "b": one(&["none"], 0)}), &["b"], 4);
        check(&json!({"a": one(&["ten"], 0), "b": one(&["new"], 0)}), &["b"], 4);
        check(&json!({"a": one(&["new"], 0), "b": one(&["new"], 0)}), &["a", "b"], CRITERIA);
        check(&json!({"a": one(&["ten"], 0)}), &["a"], 0);
        check(&json!({}), &[], 0);
    }
}
