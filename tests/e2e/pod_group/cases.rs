//! Specs that the API server takes, and specs that it refuses, with its words.

use anyhow::Result;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::{GROUPS, ask, group};

/// What the server adds to a complaint about a type: rules come after types.
const REST: &str = ", <nil>: Invalid value: null: some validation rules were not checked because \
    the object was invalid; correct the existing errors to complete validation]";

/// What each spec is told; empty if it is taken.
pub(super) async fn check(admin: &Client) -> Result<()> {
    let mut wrong = Vec::new();
    for (spec, words) in specs() {
        tell(admin, "case", &group("case", &spec), words, &mut wrong).await;
    }
    let long = "n".repeat(64);
    for (object, words) in [
        (
            group(&long, &json!({"minMember": 1})),
            "metadata.name: Too long: may not be more than 63 bytes",
        ),
        (group(&long[1..], &json!({"minMember": 1})), ""),
        (
            json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "case"}}),
            "spec: Required value",
        ),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        tell(admin, &name, &object, words, &mut wrong).await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

async fn tell(admin: &Client, name: &str, object: &Value, words: &str, wrong: &mut Vec<String>) {
    let path = format!("{GROUPS}?dryRun=All&fieldValidation=Strict");
    let told = ask(admin, Method::POST, &path, object).await.err().unwrap_or_default();
    let told = told.replace(&format!("PodGroup.muster.dev \"{name}\" is invalid: "), "");
    let told = match told.strip_suffix(REST) {
        Some(told) => told.trim_start_matches('['),
        None => &told,
    };
    if told != words {
        wrong.push(format!("{}\n  told:     {told}\n  expected: {words}", object["spec"]));
    }
}

fn role(name: &str, min: i64) -> Value {
    json!({"name": name, "minMember": min, "selector": {"matchLabels": {"role": name}}})
}

fn selecting(selector: &Value) -> Value {
    json!({"roles": [{"name": "a", "minMember": 1, "selector": selector}]})
}

fn specs() -> Vec<(Value, &'static str)> {
    let mut all = minimums();
    all.extend(times_and_names());
    all.extend(topologies());
    all.extend(selectors());
    all
}

fn minimums() -> Vec<(Value, &'static str)> {
    let many: Vec<Value> = (0..17).map(|i| role(&format!("r{i}"), 1)).collect();
    vec![
        (json!({"minMember": 1}), ""),
        (json!({"minMember": 10_000}), ""),
        (
            json!({"minMember": 0}),
            "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1",
        ),
        (
            json!({"minMember": 10_001}),
            "spec.minMember: Invalid value: 10001: spec.minMember in body should be less than or equal to 10000",
        ),
        (
            json!({"minMember": "8"}),
            r#"spec.minMember: Invalid value: "string": spec.minMember in body must be of type integer: "string""#,
        ),
        (
            json!({"minMember": 8.5}),
            r#"spec.minMember: Invalid value: "float64": spec.minMember in body must be of type int32: "float64", <nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.minMember"#,
        ),
        (
            json!({}),
            "spec.minMember: Required value: must be set unless a role has a minMember above 0",
        ),
        (
            json!({"minMembers": 8}),
            r#"PodGroup in version "v1alpha1" cannot be handled as a PodGroup: strict decoding error: unknown field "spec.minMembers""#,
        ),
        (json!({"roles": [role("launcher", 1), role("worker", 8)]}), ""),
        (json!({"minMember": 9, "roles": [role("launcher", 1), role("worker", 8)]}), ""),
        (
            json!({"minMember": 8, "roles": [role("launcher", 1), role("worker", 8)]}),
            "spec.minMember: Invalid value: must be at least the sum of the roles' minMember",
        ),
        (
            json!({"roles": [role("launcher", 0)]}),
            "spec.minMember: Required value: must be set unless a role has a minMember above 0",
        ),
        (
            json!({"roles": []}),
            "spec.minMember: Required value: must be set unless a role has a minMember above 0",
        ),
        (json!({"minMember": 3, "roles": [role("launcher", 0)]}), ""),
        (
            json!({"roles": [role("launcher", -1)]}),
            "[spec.roles[0].minMember: Invalid value: -1: spec.roles[0].minMember in body should be greater than or equal to 0, spec.minMember: Required value: must be set unless a role has a minMember above 0]",
        ),
        (
            json!({"roles": [role("a", 6_000), role("b", 6_000)]}),
            "spec.roles: Invalid value: the sum of minMember must be at most 10000",
        ),
        (
            json!({"roles": [role("a", 1), role("a", 2)]}),
            r#"spec.roles[1]: Duplicate value: {"name":"a"}"#,
        ),
        (
            json!({"roles": [role("Worker", 1)]}),
            r#"spec.roles[0].name: Invalid value: "Worker": spec.roles[0].name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"#,
        ),
        (
            json!({"roles": [{"minMember": 1, "selector": {"matchLabels": {"a": "b"}}}]}),
            "spec.roles[0].name: Required value",
        ),
        (
            json!({"minMember": 1, "roles": [{"name": "a", "selector": {"matchLabels": {"a": "b"}}}]}),
            "spec.roles[0].minMember: Required value",
        ),
        (
            json!({"roles": [{"name": "a", "minMember": 1}]}),
            "spec.roles[0].selector: Required value",
        ),
        (json!({"roles": many}), "spec.roles: Too many: 17: must have at most 16 items"),
    ]
}

fn times_and_names() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({"minMember": 1, "scheduleTimeoutSeconds": 604_800, "startTimeoutSeconds": 1,
            "starvationSeconds": 3_600, "whenHalfBound": "Wait", "priorityClassName": "high",
            "disruption": {"mode": "Whole", "minRuntimeSeconds": 0}}),
            "",
        ),
        (
            json!({"minMember": 1, "scheduleTimeoutSeconds": 604_801}),
            "spec.scheduleTimeoutSeconds: Invalid value: 604801: spec.scheduleTimeoutSeconds in body should be less than or equal to 604800",
        ),
        (
            json!({"minMember": 1, "startTimeoutSeconds": 0}),
            "spec.startTimeoutSeconds: Invalid value: 0: spec.startTimeoutSeconds in body should be greater than or equal to 1",
        ),
        (
            json!({"minMember": 1, "starvationSeconds": -5}),
            "spec.starvationSeconds: Invalid value: -5: spec.starvationSeconds in body should be greater than or equal to 1",
        ),
        (json!({"minMember": 1, "reservation": "Accumulate", "scheduleTimeoutSeconds": 60}), ""),
        (
            json!({"minMember": 1, "reservation": "Accumulate"}),
            "spec.scheduleTimeoutSeconds: Required value: must be set when reservation is Accumulate: room must not be held for ever",
        ),
        (
            json!({"minMember": 1, "reservation": "Partial"}),
            r#"spec.reservation: Unsupported value: "Partial": supported values: "Atomic", "Accumulate""#,
        ),
        (
            json!({"minMember": 1, "whenHalfBound": "Delete"}),
            r#"spec.whenHalfBound: Unsupported value: "Delete": supported values: "Release", "Wait""#,
        ),
        (
            json!({"minMember": 1, "priorityClassName": "High"}),
            r#"spec.priorityClassName: Invalid value: "High": spec.priorityClassName in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'"#,
        ),
        (
            json!({"minMember": 1, "priorityClassName": ""}),
            r#"spec.priorityClassName: Invalid value: "": spec.priorityClassName in body should be at least 1 chars long"#,
        ),
        (
            json!({"minMember": 1, "disruption": {"mode": "Single"}}),
            r#"spec.disruption.mode: Unsupported value: "Single": supported values: "SurplusFirst", "Whole""#,
        ),
        (
            json!({"minMember": 1, "disruption": {"minRuntimeSeconds": -1}}),
            "spec.disruption.minRuntimeSeconds: Invalid value: -1: spec.disruption.minRuntimeSeconds in body should be greater than or equal to 0",
        ),
    ]
}

fn topologies() -> Vec<(Value, &'static str)> {
    let asking = |topology: Value| json!({"minMember": 8, "topology": topology});
    vec![
        (
            asking(json!({"required": "block", "preferred": "rack", "exclusive": true,
            "rankLabel": "example.com/rank",
            "segments": [{"size": 16, "required": "rack"}, {"size": 8, "preferred": "nvlink"}]})),
            "",
        ),
        (asking(json!({"preferred": "topology.kubernetes.io/zone"})), ""),
        (asking(json!({"segments": [{"size": 8, "required": "rack", "preferred": "nvlink"}]})), ""),
        (
            asking(json!({})),
            "spec.topology: Required value: must have at least one of required, preferred and segments",
        ),
        (
            asking(json!({"exclusive": true, "preferred": "rack"})),
            "spec.topology.required: Required value: must be set when exclusive is true: it says which domain is not shared",
        ),
        (
            asking(json!({"required": "rack", "preferred": "rack"})),
            "spec.topology.preferred: Invalid value: must differ from required: name a narrower level, or leave it out",
        ),
        (
            asking(json!({"required": "a/b/c"})),
            r#"spec.topology.required: Invalid value: "a/b/c": spec.topology.required in body should match '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"#,
        ),
        (
            asking(json!({"required": ""})),
            r#"spec.topology.required: Invalid value: "": spec.topology.required in body should be at least 1 chars long"#,
        ),
        (
            asking(json!({"required": "rack", "rankLabel": "no blanks"})),
            r#"spec.topology.rankLabel: Invalid value: "no blanks": spec.topology.rankLabel in body should match '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"#,
        ),
        (
            asking(json!({"segments": [{"size": 8}]})),
            "spec.topology.segments[0]: Required value: must have at least one of required and preferred",
        ),
        (
            asking(json!({"segments": [{"required": "rack"}]})),
            "spec.topology.segments[0].size: Required value",
        ),
        (
            asking(json!({"segments": [{"size": 0, "required": "rack"}]})),
            "spec.topology.segments[0].size: Invalid value: 0: spec.topology.segments[0].size in body should be greater than or equal to 1",
        ),
        (
            asking(
                json!({"segments": [{"size": 8, "required": "rack"}, {"size": 3, "required": "nvlink"}]}),
            ),
            "spec.topology.segments: Invalid value: must go from large to small, each size a multiple of the next",
        ),
        (
            asking(
                json!({"segments": [{"size": 8, "required": "rack"}, {"size": 16, "required": "block"}]}),
            ),
            "spec.topology.segments: Invalid value: must go from large to small, each size a multiple of the next",
        ),
        (
            asking(
                json!({"segments": [{"size": 12, "required": "a"}, {"size": 6, "required": "b"},
            {"size": 4, "required": "c"}]}),
            ),
            "spec.topology.segments: Invalid value: must go from large to small, each size a multiple of the next",
        ),
        (
            asking(json!({"segments": vec![json!({"size": 8, "required": "rack"}); 4]})),
            "spec.topology.segments: Too many: 4: must have at most 3 items",
        ),
        (
            json!({"roles": [{"name": "a", "minMember": 2, "selector": {"matchLabels": {"a": "b"}},
            "topology": {"required": "nvlink"}}]}),
            "",
        ),
        (
            json!({"roles": [{"name": "a", "minMember": 2, "selector": {"matchLabels": {"a": "b"}},
            "topology": {"exclusive": false}}]}),
            "spec.roles[0].topology: Required value: must have at least one of required, preferred and segments",
        ),
    ]
}

fn selectors() -> Vec<(Value, &'static str)> {
    let expression = |e: Value| selecting(&json!({"matchExpressions": [e]}));
    vec![
        (expression(json!({"key": "a", "operator": "In", "values": ["x", ""]})), ""),
        (expression(json!({"key": "a.example.com/b", "operator": "Exists"})), ""),
        (
            selecting(&json!({})),
            "spec.roles[0].selector: Required value: must select by matchLabels or matchExpressions: an empty selector would take every member",
        ),
        (
            selecting(&json!({"matchLabels": {}})),
            "spec.roles[0].selector: Required value: must select by matchLabels or matchExpressions: an empty selector would take every member",
        ),
        (
            selecting(&json!({"matchLabels": {"a": "no blanks"}})),
            r#"spec.roles[0].selector.matchLabels.a: Invalid value: "no blanks": spec.roles[0].selector.matchLabels.a in body should match '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$'"#,
        ),
        (
            expression(json!({"key": "a", "operator": "In"})),
            "spec.roles[0].selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            expression(json!({"key": "a", "operator": "NotIn", "values": []})),
            "spec.roles[0].selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
        ),
        (
            expression(json!({"key": "a", "operator": "Exists", "values": ["x"]})),
            "spec.roles[0].selector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
        (
            expression(json!({"key": "a", "operator": "Equals", "values": ["x"]})),
            r#"spec.roles[0].selector.matchExpressions[0].operator: Unsupported value: "Equals": supported values: "In", "NotIn", "Exists", "DoesNotExist""#,
        ),
        (
            expression(json!({"key": "-a", "operator": "Exists"})),
            r#"spec.roles[0].selector.matchExpressions[0].key: Invalid value: "-a": spec.roles[0].selector.matchExpressions[0].key in body should match '^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'"#,
        ),
    ]
}
