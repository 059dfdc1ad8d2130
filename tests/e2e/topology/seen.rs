//! What people see: the status of the topology, and `muster topology`.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use muster::topology::{Census, Tree, counted};
use muster_api::k8s::{Node, Pod};
use muster_api::muster::{ClusterTopology, ClusterTopologyStatus};
use muster_control_plane::ControlPlane;
use serde_json::{Value, json};

use super::{TOPOLOGIES, create, get, topology};
use crate::pod_group::install;
use crate::support::{Cluster, eventually};

/// Counts may be that old: they are written ever more rarely while they change.
const STALE: Duration = Duration::from_secs(90);

async fn fabric(cluster: &Cluster) -> Result<ClusterTopology> {
    Ok(serde_json::from_value(get(cluster, &format!("{TOPOLOGIES}/fabric")).await?)?)
}

/// The tree as the API server's own lists have it.
async fn truth(cluster: &Cluster, topology: &ClusterTopology) -> Result<Tree> {
    let mut census = Census::default();
    cluster.list::<Node>("/api/v1/nodes").await?.iter().for_each(|node| census.node(node));
    cluster.list::<Pod>("/api/v1/pods").await?.iter().for_each(|pod| census.pod(pod));
    Ok(census.tree(topology.spec.levels.clone()))
}

fn muster(kubeconfig: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
    command.arg("topology").args(arguments).arg("--kubeconfig").arg(kubeconfig);
    command.output().context("muster topology")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The status agrees with the truth, and so does `muster topology`.
pub(super) async fn check(cluster: &Cluster, nodes: usize) -> Result<()> {
    eventually("the status of the topology is true", STALE, || async {
        let topology = fabric(cluster).await?;
        let accepted = topology.status.conditions.first();
        ensure!(accepted.is_none_or(|c| c.kind == "Accepted" && c.is_true()), "{accepted:?}");
        let counts = ClusterTopologyStatus {
            observed_generation: None,
            conditions: Vec::new(),
            ..topology.status.clone()
        };
        Ok(counts == counted(&truth(cluster, &topology).await?))
    })
    .await?;
    let status = fabric(cluster).await?.status;
    cluster.say(&format!("status: {:?}", status.levels));
    let tree = truth(cluster, &fabric(cluster).await?).await?;

    let printed = muster(&cluster.kubeconfig, &["fabric", "-o", "json"])?;
    ensure!(printed.status.success(), "{}", text(&printed.stderr));
    let json: Value = serde_json::from_slice(&printed.stdout)?;
    ensure!(json["nodes"]["total"] == nodes, "{}", json["nodes"]);
    ensure!(json["gpus"]["free"] == tree.sums().free, "{}", json["gpus"]);
    ensure!(json["gpus"]["used"] == tree.sums().used, "{}", json["gpus"]);

    let table = muster(&cluster.kubeconfig, &[])?;
    ensure!(table.status.success(), "{}", text(&table.stderr));
    let table = text(&table.stdout);
    ensure!(table.starts_with("fabric: block > rack > host\n"), "{table}");
    let blocks = table.lines().filter(|line| line.starts_with("block-")).count() as i64;
    ensure!(blocks == tree.domains_of(0), "{table}");
    cluster.say(table.lines().nth(1).unwrap_or_default());

    let picture = muster(&cluster.kubeconfig, &["-o", "svg"])?;
    ensure!(text(&picture.stdout).starts_with("<svg "), "{}", text(&picture.stderr));
    Ok(())
}

/// Without a topology, without the kind, without rights: words and exit codes.
#[tokio::test]
async fn what_is_not_there_is_told_with_advice() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    cluster.nodes(2).await?;
    let bare = muster(&cluster.kubeconfig, &[])?;
    ensure!(bare.status.success() && bare.stdout.is_empty(), "{bare:?}");
    let told = text(&bare.stderr);
    ensure!(told.contains("does not know ClusterTopologies"), "{told}");
    ensure!(told.contains("--level zone=topology.kubernetes.io/zone"), "{told}");
    let hosts = muster(&cluster.kubeconfig, &["--level", "host=kubernetes.io/hostname"])?;
    ensure!(text(&hosts.stdout).contains("\nnode-001   host        1"), "{hosts:?}");

    install(&cluster).await?;
    let levels = json!({"levels": [{"name": "rack", "nodeLabel": "example.com/rack"}]});
    create(&cluster, TOPOLOGIES, &topology("rows", &levels)).await?;
    let other = muster(&cluster.kubeconfig, &["fabric"])?;
    ensure!(other.status.code() == Some(1), "{other:?}");
    let told = text(&other.stderr);
    let words = "clustertopologies.muster.dev \"fabric\" not found: there is rows";
    ensure!(told.contains(words), "{told}");
    let stranger = cluster.cp.kubeconfig("stranger", &[])?;
    let refused = muster(&stranger, &[])?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    let told = text(&refused.stderr);
    ensure!(told.contains("cannot list clustertopologies"), "{told}");
    ensure!(told.contains("is forbidden: User \"stranger\" cannot list resource"), "{told}");
    Ok(())
}
