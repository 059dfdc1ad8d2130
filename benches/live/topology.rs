//! Gangs that must be in one rack or block: as PodGroups of Kubernetes for others, as
//! Muster's own for Muster. Whoever places them, where they are is looked at afterwards.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use kube::Client;
use muster_api::muster;
use muster_control_plane::{KUBE_SCHEDULER, create_objects};
use serde_json::{Value, json};

use crate::workload::{BLOCK_LABEL, HOST_LABEL, RACK_LABEL, Workload};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Where Muster's own groups are.
pub(crate) const OWN_GROUPS: &str = "/apis/muster.dev/v1alpha1/namespaces/default/podgroups";
const TOPOLOGIES: &str = "/apis/muster.dev/v1alpha1/clustertopologies";

/// Muster's kinds, the right to use them, which the role of kube-scheduler lacks, and the
/// topology.
pub(crate) async fn prepare(client: &Client) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "own"},
        "rules": [
            {"apiGroups": [muster::GROUP], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": [muster::GROUP], "resources": ["*/status"], "verbs": ["patch"]},
        ],
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "own"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "own"},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": KUBE_SCHEDULER}],
    });
    let rbac = format!("/apis/{rbac}/v1");
    for (path, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        create_objects(client, &format!("{rbac}/{path}"), "objects", 1, |_| object.clone()).await?;
    }
    let crds = muster::crds();
    create_objects(client, CRDS, "definitions", crds.len(), |i| crds[i].clone()).await?;
    served(client, TOPOLOGIES).await?;
    served(client, OWN_GROUPS).await?;
    let topology = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": "bench"},
        "spec": {"levels": [
            {"name": "block", "nodeLabel": BLOCK_LABEL},
            {"name": "rack", "nodeLabel": RACK_LABEL},
            {"name": "host", "nodeLabel": HOST_LABEL},
        ]},
    });
    create_objects(client, TOPOLOGIES, "topologies", 1, |_| topology.clone()).await
}

async fn served(client: &Client, path: &str) -> Result<()> {
    for _ in 0..600 {
        let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
        if client.request_text(request).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    anyhow::bail!("{path} is not served after a minute")
}

/// A group of Muster's own.
pub(crate) fn own_group(name: &str, min: usize, level: &str) -> Value {
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": min, "topology": {"required": level}},
    })
}

/// Every gang is within one domain.
pub(crate) async fn check(client: &Client, workload: Workload) -> Result<()> {
    let Some((_, label)) = workload.level() else { return Ok(()) };
    let domains: BTreeMap<String, String> = items(client, "/api/v1/nodes")
        .await?
        .iter()
        .map(|node| (text(&node["metadata"]["name"]), text(&node["metadata"]["labels"][label])))
        .collect();
    let mut gangs: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for pod in items(client, "/api/v1/namespaces/default/pods").await? {
        let domain = domains.get(&text(&pod["spec"]["nodeName"]));
        gangs.entry(text(&pod["metadata"]["labels"]["gang"])).or_default().extend(domain);
    }
    for (gang, domains) in gangs {
        ensure!(domains.len() == 1, "{gang} is in {domains:?}, and had to be in one");
    }
    Ok(())
}

async fn items(client: &Client, path: &str) -> Result<Vec<Value>> {
    let request = http::Request::get(path).body(Vec::new())?;
    let mut list: Value = client.request(request).await?;
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
