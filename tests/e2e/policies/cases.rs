//! Policies that the API server takes, and policies that it refuses, with its words.

use anyhow::Result;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::{POLICIES, policy};
use crate::pod_group::ask;

/// What the server adds to a complaint about a type: rules come after types.
const REST: &str = ", <nil>: Invalid value: null: some validation rules were not checked because \
    the object was invalid; correct the existing errors to complete validation]";

/// What each spec is told; empty if it is taken.
pub(super) async fn check(admin: &Client) -> Result<()> {
    let mut wrong = Vec::new();
    for (spec, words) in specs() {
        let path = format!("{POLICIES}?dryRun=All&fieldValidation=Strict");
        let told = ask(admin, Method::POST, &path, &policy("case", &spec)).await;
        let told = told.err().unwrap_or_default();
        let told = told.replace("SchedulingPolicy.muster.dev \"case\" is invalid: ", "");
        let told = match told.strip_suffix(REST) {
            Some(told) => told.trim_start_matches('['),
            None => &told,
        };
        if told != words {
            wrong.push(format!("{spec}\n  told:     {told}\n  expected: {words}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn placing(placement: &Value) -> Value {
    json!({"priority": 1, "placement": placement})
}

fn specs() -> Vec<(Value, &'static str)> {
    let by_load = |below: i32, above: i32| {
        placing(&json!({"strategy": "PackAtLowLoad", "packBelowPercent": below,
            "spreadAbovePercent": above}))
    };
    vec![
        (json!({"priority": 0}), ""),
        (json!({}), "spec.priority: Required value"),
        (
            json!({"priority": 1_000_001}),
            "spec.priority: Invalid value: 1000001: spec.priority in body should be less than or equal to 1000000",
        ),
        (
            json!({"priority": 1, "namespaceSelector": {"matchLabels": {"team": "ml"}},
                "podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                "scoreWeights": [{"plugin": "ImageLocality", "weight": 0},
                    {"plugin": "example.com/Mine", "weight": 100}],
                "topology": {"required": "block", "preferred": "rack"},
                "gang": {"scheduleTimeoutSeconds": 60, "whenHalfBound": "Wait"}}),
            "",
        ),
        (
            json!({"priority": 1, "podSelector": {}}),
            "spec.podSelector: Required value: must select by matchLabels or matchExpressions: leave the selector out to select everything",
        ),
        (
            json!({"priority": 1, "scoreWeights": [{"plugin": "ImageLocality", "weight": 101}]}),
            "spec.scoreWeights[0].weight: Invalid value: 101: spec.scoreWeights[0].weight in body should be less than or equal to 100",
        ),
        (
            json!({"priority": 1, "scoreWeights": [{"plugin": "A", "weight": 1},
                {"plugin": "A", "weight": 2}]}),
            r#"spec.scoreWeights[1]: Duplicate value: {"plugin":"A"}"#,
        ),
        (by_load(30, 60), ""),
        (
            by_load(60, 60),
            "spec.placement.packBelowPercent: Invalid value: must be below spreadAbovePercent: between the two nothing changes",
        ),
        (
            placing(&json!({"strategy": "PackAtLowLoad", "packBelowPercent": 30})),
            "spec.placement.spreadAbovePercent: Required value: must be set when strategy is PackAtLowLoad",
        ),
        (
            placing(&json!({"strategy": "PackAtLowLoad", "spreadAbovePercent": 30})),
            "spec.placement.packBelowPercent: Required value: must be set when strategy is PackAtLowLoad",
        ),
        (
            placing(&json!({"strategy": "Pack", "packBelowPercent": 30})),
            "spec.placement.strategy: Invalid value: must be PackAtLowLoad when packBelowPercent, spreadAbovePercent or loadResource is set",
        ),
        (
            placing(&json!({"strategy": "Random"})),
            r#"spec.placement.strategy: Unsupported value: "Random": supported values: "Pack", "Spread", "Balanced", "PackAtLowLoad""#,
        ),
        (
            json!({"priority": 1, "topology": {}}),
            "spec.topology: Required value: must have at least one of required and preferred",
        ),
        (
            json!({"priority": 1, "topology": {"required": "rack", "preferred": "rack"}}),
            "spec.topology.preferred: Invalid value: must differ from required: name a narrower level, or leave it out",
        ),
        (
            json!({"priority": 1, "gang": {"starvationSeconds": 0}}),
            "spec.gang.starvationSeconds: Invalid value: 0: spec.gang.starvationSeconds in body should be greater than or equal to 1",
        ),
        (
            json!({"priority": 1, "filters": []}),
            r#"SchedulingPolicy in version "v1alpha1" cannot be handled as a SchedulingPolicy: strict decoding error: unknown field "spec.filters""#,
        ),
    ]
}
