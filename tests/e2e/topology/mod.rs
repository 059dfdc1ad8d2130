//! Topologies on a real API server: what the kind refuses, gangs within their domains,
//! and what people see of it.
//!
//! `MUSTER_LONG=1` runs the long form: 5,000 nodes instead of 200.

mod domains;
mod refused;
mod seen;

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};

use crate::pod_group::ask;
use crate::support::Cluster;

const TOPOLOGIES: &str = "/apis/muster.dev/v1alpha1/clustertopologies";
const GROUPS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// What examples/topology calls its levels.
const BLOCK: &str = "network.topology.nvidia.com/spine";
const RACK: &str = "network.topology.nvidia.com/block";

/// The first number, or with `MUSTER_LONG=1` the second.
fn form(short: usize, long: usize) -> usize {
    if std::env::var_os("MUSTER_LONG").is_some_and(|v| v == "1") { long } else { short }
}

fn topology(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": name}, "spec": spec,
    })
}

async fn create(cluster: &Cluster, path: &str, object: &Value) -> Result<Value> {
    let made = ask(&cluster.admin, Method::POST, path, object).await;
    made.map_err(anyhow::Error::msg).with_context(|| object.to_string())
}

async fn get(cluster: &Cluster, path: &str) -> Result<Value> {
    ask(&cluster.admin, Method::GET, path, &Value::Null).await.map_err(anyhow::Error::msg)
}

async fn delete(cluster: &Cluster, path: &str) -> Result<()> {
    let now = json!({"gracePeriodSeconds": 0});
    ask(&cluster.admin, Method::DELETE, path, &now).await.map(drop).map_err(anyhow::Error::msg)
}

/// The documents of an example.
fn example(text: &str) -> Result<Vec<Value>> {
    text.split("\n---\n").map(|document| Ok(serde_saphyr::from_str(document)?)).collect()
}
