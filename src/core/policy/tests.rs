//! What policies come to: tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::muster::SchedulingPolicy;
use serde_json::{Value, json};

use super::{Active, Policy, Preference, decides, gang_terms, judge, scoring};

fn policy(name: &str, age: i64, spec: &Value) -> Arc<Policy> {
    let mut wire: SchedulingPolicy =
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec}))
            .unwrap();
    wire.metadata.creation_timestamp = Some(muster_api::k8s::Time(100 - age));
    Arc::new(Policy::of(&wire))
}

/// Who is in force, in order, and what is said of the others.
fn check(policies: &[Arc<Policy>], in_force: &[&str], others: &[(&str, &str, &str)]) {
    let plugins: BTreeSet<&'static str> = ["ImageLocality", "NodeResourcesFit"].into();
    for order in [false, true] {
        let mut all: Vec<&Arc<Policy>> = policies.iter().collect();
        if order {
            all.reverse();
        }
        let judged = judge(all.into_iter(), Some(&plugins));
        let names: Vec<&str> = judged.in_force.iter().map(|p| &*p.name).collect();
        assert_eq!(names, in_force);
        let refused = judged.verdicts.iter().filter(|(_, v)| !v.accepted);
        let refused: Vec<(&str, &str, &str)> =
            refused.map(|(name, v)| (&**name, v.reason, &*v.message)).collect();
        assert_eq!(refused, others);
        assert_eq!(judged.verdicts.len(), policies.len());
    }
}

#[test]
fn the_highest_priority_comes_first_and_of_equal_ones_only_the_oldest_counts() {
    let at = |name, age, priority: i32| policy(name, age, &json!({"priority": priority}));
    check(
        &[at("a", 1, 0), at("b", 2, 9), at("c", 3, 0), at("d", 3, 0)],
        &["b", "c"],
        &[
            (
                "a",
                "PriorityTaken",
                "SchedulingPolicy \"c\" is older and has priority 0 too: give this one another priority",
            ),
            (
                "d",
                "PriorityTaken",
                "SchedulingPolicy \"c\" is older and has priority 0 too: give this one another priority",
            ),
        ],
    );
}

#[test]
fn one_that_makes_no_sense_says_why_and_takes_nobodys_priority() {
    let of = |spec: Value| policy("bad", 9, &spec);
    let cases = [
        (
            json!({"scoreWeights": [{"plugin": "Nobody", "weight": 1}]}),
            "spec.scoreWeights: no profile has a Score plugin \"Nobody\": name one of \
             ImageLocality, NodeResourcesFit",
        ),
        (
            json!({"scoreWeights": [{"plugin": "ImageLocality", "weight": 101}]}),
            "spec.scoreWeights[ImageLocality].weight: 101 must be between 0 and 100",
        ),
        (
            json!({"placement": {"strategy": "PackAtLowLoad", "packBelowPercent": 3}}),
            "spec.placement.spreadAbovePercent: must be set when strategy is PackAtLowLoad",
        ),
        (
            json!({"placement": {"strategy": "PackAtLowLoad", "packBelowPercent": 60,
                "spreadAbovePercent": 60}}),
            "spec.placement.packBelowPercent: 60 must be below spreadAbovePercent, 60",
        ),
        (
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
            "spec.podSelector: \"Is\" is not a valid label selector operator",
        ),
        (
            json!({"gang": {"starvationSeconds": 0}}),
            "spec.gang.starvationSeconds: 0 must be between 1 and 604800",
        ),
        (
            json!({"topology": {"required": "rack", "preferred": "rack"}}),
            "spec.topology.preferred: must differ from required",
        ),
        (
            json!({"topology": {}}),
            "spec.topology: must have at least one of required and preferred",
        ),
    ];
    for (spec, message) in cases {
        let good = policy("good", 1, &json!({"priority": 0}));
        check(&[of(spec), good], &["good"], &[("bad", "Invalid", message)]);
    }
}

#[test]
fn more_policies_than_can_be_in_force_leave_the_lowest_out() {
    let many: Vec<Arc<Policy>> =
        (0..66).map(|i| policy(&format!("p{i:02}"), 0, &json!({"priority": i}))).collect();
    let judged = judge(many.iter(), None);
    assert_eq!(judged.in_force.len(), super::MAX_POLICIES);
    let refused: Vec<&str> =
        judged.verdicts.iter().filter(|(_, v)| !v.accepted).map(|(name, _)| &**name).collect();
    assert_eq!(refused, ["p00", "p01"]);
    assert_eq!(judged.verdicts["p00"].reason, "TooManyPolicies");
}

#[test]
fn policies_are_merged_field_by_field() {
    let high = policy(
        "high",
        0,
        &json!({
            "priority": 2,
            "scoreWeights": [{"plugin": "ImageLocality", "weight": 7}],
            "gang": {"starvationSeconds": 60, "whenHalfBound": "Wait"},
        }),
    );
    let low = policy(
        "low",
        0,
        &json!({
            "priority": 1,
            "scoreWeights": [{"plugin": "ImageLocality", "weight": 1},
                             {"plugin": "NodeResourcesFit", "weight": 0}],
            "placement": {"strategy": "Pack"},
            "topology": {"preferred": "rack"},
            "gang": {"starvationSeconds": 9, "scheduleTimeoutSeconds": 30,
                "startTimeoutSeconds": 40},
        }),
    );
    let last = policy("last", 0, &json!({"placement": {"strategy": "Balanced"}}));
    let all = [&high, &low, &last];
    let active = || all.iter().map(|policy| Active { policy, packs: true });
    let merged = scoring(active()).unwrap();
    assert_eq!(merged.weight("ImageLocality"), Some(7));
    assert_eq!(merged.weight("NodeResourcesFit"), Some(0));
    assert_eq!(merged.weight("TaintToleration"), None);
    assert_eq!(merged.prefers, Some(Preference::Full));
    let terms = gang_terms(all.iter().map(|p| &***p));
    assert_eq!(terms.starvation_seconds, Some(60));
    assert_eq!(terms.timeout_seconds, Some(30));
    assert_eq!(terms.start_seconds, Some(40));
    assert_eq!(terms.release, Some(false));
    assert_eq!(terms.topology.unwrap().preferred.as_deref(), Some("rack"));
    assert_eq!(
        decides(active()),
        [
            vec!["scoreWeights[ImageLocality]=7"],
            vec!["scoreWeights[NodeResourcesFit]=0", "placement=Pack", "topology=preferred rack",],
            vec![],
        ]
    );
}

#[test]
fn policies_that_leave_scores_alone_are_no_part_of_a_shape() {
    let gangs = policy("gangs", 0, &json!({"gang": {"starvationSeconds": 60}}));
    assert_eq!(scoring([Active { policy: &gangs, packs: true }].into_iter()), None);
}
