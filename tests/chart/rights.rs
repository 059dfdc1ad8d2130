//! What each identity may do. Every addition is seen in a golden file.

use anyhow::{Context, Result, ensure};
use muster_control_plane::rights;
use serde_json::Value;

use crate::support::{NAMESPACE, generated, golden, objects, render, root};

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// No wildcard, no Secret, nothing that gives more rights than one has; also with all that can be
/// switched on.
#[test]
fn no_role_is_wider_than_it_must_be() -> Result<()> {
    let everything = crate::support::here("cases/everything.yaml");
    let everything = everything.to_str().context("a path")?;
    for arguments in [&[][..], &["--values", everything]] {
        for role in objects(&render(arguments)?)? {
            for rule in role["rules"].as_array().into_iter().flatten() {
                let what = format!("{}: {rule}", role["metadata"]["name"]);
                for field in ["apiGroups", "resources", "verbs", "nonResourceURLs"] {
                    ensure!(!strings(&rule[field]).iter().any(|s| s.contains('*')), "{what}");
                }
                for verb in ["escalate", "bind", "impersonate"] {
                    ensure!(!strings(&rule["verbs"]).contains(&verb), "{what}");
                }
                let secret = |r: &&str| r.starts_with("secrets") || r.contains("/proxy");
                ensure!(!strings(&rule["resources"]).iter().any(secret), "{what}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_each_account_may_do_is_written_down() -> Result<()> {
    let all = objects(&render(&[])?)?;
    let mut text = String::new();
    for account in ["muster", "muster-node-agent"] {
        text += &format!("{account}\n");
        for right in rights(&all, NAMESPACE, account) {
            text += &format!("  {right}\n");
        }
    }
    golden("rights.txt", &text)
}

const HEADER: &str = "# Rendered from charts/muster by `cargo test --test chart`; do not edit.\n\
    apiVersion: v1\nkind: Namespace\nmetadata:\n  name: muster-system\n";

/// Tests that need the rights and not helm use files that are rendered here.
#[test]
fn other_tests_use_the_rights_of_the_chart() -> Result<()> {
    let extenders = r#"configuration={"extenders":[{"urlPrefix":"http://extender"}]}"#;
    let only = ["--show-only", "templates/operator/rbac.yaml"];
    let text = render(&["--set-json", extenders, only[0], only[1]])?;
    generated(&root().join("tests/e2e/rbac.yaml"), &format!("{HEADER}{text}"))?;

    let mut arguments = vec!["--set", "agent.nodeResourceTopology=true"];
    for file in [
        "templates/agent/serviceaccount.yaml",
        "templates/agent/rbac.yaml",
        "templates/admission/node-agent.yaml",
    ] {
        arguments.extend(["--show-only", file]);
    }
    let text = render(&arguments)?;
    generated(&root().join("node-agent/tests/cluster/rights.yaml"), &format!("{HEADER}{text}"))
}
