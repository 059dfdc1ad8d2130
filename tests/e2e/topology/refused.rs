//! Topologies that the API server takes, and those that it refuses, with its words.

use anyhow::{Result, ensure};
use http::Method;
use muster_api::muster::ClusterTopology;
use muster_control_plane::ControlPlane;
use serde_json::{Value, json};

use super::{GROUPS, TOPOLOGIES, ask, example, topology};
use crate::pod_group::install;
use crate::support::Cluster;

fn level(name: &str, label: &str) -> Value {
    json!({"name": name, "nodeLabel": label})
}

/// What each spec is told, at its beginning; empty if it is taken.
fn specs() -> Vec<(Value, &'static str)> {
    let levels = |levels: &[Value]| json!({ "levels": levels });
    let many = |n: usize| {
        let level = |i: usize| level(&format!("l{i}"), &format!("example.com/l{i}"));
        json!({"levels": (0..n).map(level).collect::<Vec<_>>()})
    };
    vec![
        (levels(&[level("rack", "example.com/rack")]), ""),
        (
            levels(&[
                level("gpu", "nvidia.com/gpu.clique"),
                level("host", "kubernetes.io/hostname"),
            ]),
            "",
        ),
        (levels(&[level("tier-1", "fabric.topograph.run/tier-1")]), ""),
        (levels(&[level("rack", "rack")]), ""),
        (many(8), ""),
        (many(9), "spec.levels: Too many: 9: must have at most 8 items"),
        (json!({}), "spec.levels: Required value"),
        (
            levels(&[]),
            "spec.levels: Invalid value: 0: spec.levels in body should have at least 1 items",
        ),
        (
            levels(&[level("rack", "example.com/rack"), level("row", "example.com/rack")]),
            "every level needs a nodeLabel of its own",
        ),
        (
            levels(&[level("rack", "example.com/rack"), level("rack", "example.com/row")]),
            "spec.levels[1]: Duplicate value: {\"name\":\"rack\"}",
        ),
        (levels(&[json!({"name": "rack"})]), "spec.levels[0].nodeLabel: Required value"),
        (levels(&[level("", "example.com/rack")]), "spec.levels[0].name: Invalid value: \"\""),
        (
            levels(&[level("Rack", "example.com/rack")]),
            "spec.levels[0].name: Invalid value: \"Rack\"",
        ),
        (
            levels(&[level("rack", "example.com/a rack")]),
            "spec.levels[0].nodeLabel: Invalid value: \"example.com/a rack\"",
        ),
        (
            levels(&[json!({"name": "rack", "key": "x"})]),
            "strict decoding error: unknown field \"spec.levels[0].key\"",
        ),
    ]
}

#[tokio::test]
async fn the_api_server_refuses_bad_topologies_in_plain_words() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    let mut wrong = Vec::new();
    for (spec, words) in specs() {
        let path = format!("{TOPOLOGIES}?dryRun=All&fieldValidation=Strict");
        let told = ask(&cluster.admin, Method::POST, &path, &topology("case", &spec)).await;
        let told = told.err().unwrap_or_default();
        let told = told.replace("ClusterTopology.muster.dev \"case\" is invalid: ", "");
        let told = told.trim_start_matches('[');
        let fits = if words.is_empty() { told.is_empty() } else { told.contains(words) };
        if !fits {
            wrong.push(format!("{spec}\n  told:     {told}\n  expected: {words}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    examples(&cluster).await
}

/// What the examples say is taken, and read as it is written.
async fn examples(cluster: &Cluster) -> Result<()> {
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (text, paths) in [
        (include_str!("../../../examples/topology/cluster-topology.yaml"), &[TOPOLOGIES][..]),
        (include_str!("../../../examples/topology/one-rack.yaml"), &[GROUPS, jobs]),
        (include_str!("../../../examples/topology/near.yaml"), &[GROUPS]),
    ] {
        let documents = example(text)?;
        ensure!(documents.len() == paths.len(), "{text}");
        for (document, path) in documents.iter().zip(paths) {
            let path = format!("{path}?dryRun=All&fieldValidation=Strict");
            let made = ask(&cluster.admin, Method::POST, &path, document).await;
            let made = made.map_err(anyhow::Error::msg)?;
            if document["kind"] == ClusterTopology::KIND {
                let read: ClusterTopology = serde_json::from_value(made)?;
                let names: Vec<&str> = read.spec.levels.iter().map(|l| l.name.as_str()).collect();
                ensure!(names == ["block", "rack", "host"], "{names:?}");
            }
        }
    }
    Ok(())
}
