//! The agent needs every right that the chart gives it, and asks for none that it has not.

use anyhow::{Context, Result, ensure};
use muster_control_plane::{asked, rights, unused};
use serde_json::Value;

use crate::support::{Cluster, NAMESPACE, Node, SOON, condition, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_needs_all_its_rights_and_does_without_more() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut node = Node::new(&cluster, "dgx-h100").await?;
    node.start(&cluster, &["--node-resource-topology"])?;
    node.until(&cluster, "written", SOON, |o| condition(o, "PodResourcesAvailable") == "True")
        .await?;
    let mut objects: Vec<Value> = Vec::new();
    for document in include_str!("rights.yaml").split("\n---\n") {
        objects.push(serde_saphyr::from_str(document)?);
    }
    let granted = rights(&objects, NAMESPACE, "muster-node-agent");
    ensure!(granted.len() > 8, "{granted:?}");
    let user = format!("system:serviceaccount:{NAMESPACE}:muster-node-agent");
    let left = || {
        let asked = asked(&cluster.cp.audit_events()?, &user);
        ensure!(asked.forbidden.is_empty(), "refused: {:#?}", asked.forbidden);
        anyhow::Ok(unused(&granted, &asked))
    };
    let needed = eventually("every right needed", SOON, async || Ok(left()?.is_empty()));
    needed.await.with_context(|| format!("never needed: {:#?}", left()))
}
