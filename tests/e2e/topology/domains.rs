//! Gangs within racks and blocks of a cluster with other load, before and after nodes
//! are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use muster_control_plane::{ControlPlane, Process, create_nodes, create_objects, node};
use serde_json::{Value, json};

use super::{BLOCK, GROUPS, PODS, RACK, TOPOLOGIES, create, delete, example, form, get, seen};
use crate::gang::end;
use crate::pod_group::{ask, install};
use crate::policies::{POLICIES, policy};
use crate::support::{Cluster, SOON, eventually};

const GPU: &str = "nvidia.com/gpu";
const RANK: &str = "batch.kubernetes.io/job-completion-index";
/// Nodes of a rack: room for two gangs of 16, and a little more.
const IN_RACK: usize = 20;
/// GPUs of a node, and of a member: two members fit, or one beside other load.
const GPUS: i64 = 8;
const MEMBER: i64 = 4;
/// Every third node has other load, of three GPUs.
const LOADED: usize = 3;
const LOAD: i64 = 3;
const RACK_GANG: usize = 16;

/// What there is.
pub(super) struct Plan {
    nodes: usize,
    racks_of_block: usize,
    rack_gangs: usize,
    block_gangs: usize,
    block_gang: usize,
}

impl Plan {
    fn of_form() -> Self {
        Self {
            nodes: form(200, 5_000),
            racks_of_block: form(5, 10),
            rack_gangs: form(6, 60),
            block_gangs: form(2, 8),
            block_gang: form(48, 256),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_are_in_one_domain_each() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    install(&cluster).await?;
    let plan = Plan::of_form();
    nodes(&cluster, &plan).await?;
    let fabric = &example(include_str!("../../../examples/topology/cluster-topology.yaml"))?[0];
    create(&cluster, TOPOLOGIES, fabric).await?;
    load(&cluster, &plan).await?;
    let muster = cluster.muster("muster", &["-v", "3"])?;
    let played = play(&cluster, &plan, &muster).await;
    played.with_context(|| muster.log_tail(6_000))?;
    // The checker of the core found nothing wrong either.
    end(&muster)
}

async fn play(cluster: &Cluster, plan: &Plan, muster: &Process) -> Result<()> {
    let places = places(cluster).await?;
    loses_nodes(cluster, &places).await.context("a rack that loses nodes")?;
    governed(cluster).await.context("a gang under a policy")?;
    segments(cluster, &places).await.context("segments")?;
    let begin = Instant::now();
    for i in 0..plan.rack_gangs {
        gang(cluster, &format!("rack-gang-{i}"), RACK_GANG, "rack").await?;
    }
    for i in 0..plan.rack_gangs {
        let name = format!("rack-gang-{i}");
        within(cluster, &places, &name, RACK_GANG, "rack").await?;
    }
    cluster.say(&format!("{} gangs in racks after {:?}", plan.rack_gangs, begin.elapsed()));
    let begin = Instant::now();
    for i in 0..plan.block_gangs {
        gang(cluster, &format!("block-gang-{i}"), plan.block_gang, "block").await?;
    }
    for i in 0..plan.block_gangs {
        let name = format!("block-gang-{i}");
        within(cluster, &places, &name, plan.block_gang, "block").await?;
    }
    cluster.say(&format!("{} gangs in blocks after {:?}", plan.block_gangs, begin.elapsed()));
    policy_changes(cluster, &places).await.context("a policy that changes")?;
    cluster.check_room().await?;
    ensure!(muster.is_running(), "it has ended");
    seen::check(cluster, plan.nodes - 3).await.context("what is seen")
}

async fn nodes(cluster: &Cluster, plan: &Plan) -> Result<()> {
    create_nodes(&cluster.admin, plan.nodes, |i| {
        let mut node = node(&format!("node-{i:04}"), "32", "256Gi", 110);
        let labels = node.metadata.labels.get_or_insert_default();
        let rack = i / IN_RACK;
        // Racks are numbered within their block.
        labels.insert(BLOCK.to_owned(), format!("block-{}", rack / plan.racks_of_block));
        labels.insert(RACK.to_owned(), format!("rack-{}", rack % plan.racks_of_block));
        let status = node.status.get_or_insert_default();
        for list in [&mut status.capacity, &mut status.allocatable] {
            list.get_or_insert_default().insert(GPU.to_owned(), Quantity(GPUS.to_string()));
        }
        node
    })
    .await?;
    cluster.say(&format!("{} nodes created", plan.nodes));
    Ok(())
}

/// Other pods, there before anybody asks.
async fn load(cluster: &Cluster, plan: &Plan) -> Result<()> {
    create_objects(&cluster.admin, PODS, "pods", plan.nodes.div_ceil(LOADED), |i| {
        let mut pod = pod(&format!("load-{i}"), LOAD);
        pod["spec"]["nodeName"] = format!("node-{:04}", i * LOADED).into();
        pod
    })
    .await
}

fn pod(name: &str, gpus: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {}},
        "spec": {
            "schedulerName": "muster", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "example.invalid/none", "resources": {
                "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {GPU: gpus.to_string()}}}],
        },
    })
}

fn member(gang: &str, name: &str, rank: usize) -> Value {
    let mut pod = pod(name, MEMBER);
    pod["metadata"]["labels"] = json!({"muster.dev/pod-group": gang, RANK: rank.to_string()});
    pod
}

async fn gang(cluster: &Cluster, name: &str, size: usize, level: &str) -> Result<()> {
    let group = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": size, "topology": {"required": level}},
    });
    create(cluster, GROUPS, &group).await?;
    let make = |i| member(name, &format!("{name}-{i}"), i);
    create_objects(&cluster.admin, PODS, "pods", size, make).await
}

/// Block and rack of every node.
type Places = BTreeMap<String, (String, String)>;

async fn places(cluster: &Cluster) -> Result<Places> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes: Vec<Value> = cluster.list("/api/v1/nodes").await?;
    let place = |node: &Value| {
        let labels = &node["metadata"]["labels"];
        (text(&node["metadata"]["name"]), (text(&labels[BLOCK]), text(&labels[RACK])))
    };
    Ok(nodes.iter().map(place).collect())
}

/// Nodes of the members that are bound, by rank.
async fn bound(cluster: &Cluster, gang: &str) -> Result<BTreeMap<String, String>> {
    let path = format!("{PODS}?labelSelector=muster.dev%2Fpod-group%3D{gang}");
    let pods: Vec<Value> = cluster.list(&path).await?;
    let bound = |pod: &Value| {
        let node = pod["spec"]["nodeName"].as_str()?.to_owned();
        Some((pod["metadata"]["labels"][RANK].as_str()?.to_owned(), node))
    };
    Ok(pods.iter().filter_map(bound).collect())
}

/// Waits until all of a gang is bound, and looks where; the group says the same.
async fn within(
    cluster: &Cluster,
    places: &Places,
    gang: &str,
    size: usize,
    level: &str,
) -> Result<(String, String)> {
    let limit = Duration::from_secs(120);
    let all =
        eventually("bound", limit, || async { Ok(bound(cluster, gang).await?.len() == size) });
    let group = format!("{GROUPS}/{gang}");
    if let Err(error) = all.await {
        let status = get(cluster, &group).await?["status"].clone();
        return Err(error.context(format!("{gang}: {status}")));
    }
    let domain = |node: &String| -> (String, String) {
        let (block, rack) = places.get(node).cloned().unwrap_or_default();
        if level == "rack" { (block, rack) } else { (block, String::new()) }
    };
    let nodes = bound(cluster, gang).await?;
    let domains: BTreeSet<(String, String)> = nodes.values().map(domain).collect();
    ensure!(domains.len() == 1, "{gang} is in {domains:?}");
    let found = domains.into_iter().next().unwrap_or_default();
    let (key, value) = if level == "rack" { (RACK, &found.1) } else { (BLOCK, &found.0) };
    let expected = json!({"level": level, "key": key, "value": value});
    eventually("said by its group", SOON, || async {
        Ok(get(cluster, &group).await?["status"]["domain"] == expected)
    })
    .await
    .with_context(|| format!("{gang}: {expected}"))?;
    Ok(found)
}

/// A rack loses three nodes with members: their replacements go to the same rack, with
/// the ranks that are missing.
async fn loses_nodes(cluster: &Cluster, places: &Places) -> Result<()> {
    gang(cluster, "hurt", RACK_GANG, "rack").await?;
    let before = within(cluster, places, "hurt", RACK_GANG, "rack").await?;
    let members = bound(cluster, "hurt").await?;
    let nodes: BTreeSet<&String> = members.values().collect();
    let lost: BTreeSet<&String> = nodes.into_iter().take(3).collect();
    for node in &lost {
        delete(cluster, &format!("/api/v1/nodes/{node}")).await?;
    }
    let ranks: Vec<usize> = members
        .iter()
        .filter(|(_, node)| lost.contains(node))
        .map(|(rank, _)| rank.parse())
        .collect::<Result<_, _>>()?;
    ensure!(ranks.len() >= 3, "{ranks:?}");
    // As the controllers of nodes and jobs do.
    let loads: Vec<Value> = cluster.list(PODS).await?;
    for pod in &loads {
        let on = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
        if lost.contains(&on) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            delete(cluster, &format!("{PODS}/{name}")).await?;
        }
    }
    let begin = Instant::now();
    create_objects(&cluster.admin, PODS, "pods", ranks.len(), |i| {
        member("hurt", &format!("hurt-again-{i}"), ranks[i])
    })
    .await?;
    let after = within(cluster, places, "hurt", RACK_GANG, "rack").await?;
    cluster.say(&format!("{} replacements bound after {:?}", ranks.len(), begin.elapsed()));
    ensure!(before == after, "it was in {before:?} and is in {after:?}");
    let again = bound(cluster, "hurt").await?;
    ensure!(again.keys().eq(members.keys()), "ranks {:?}", again.keys());
    let stayed = |(rank, node): &(&String, &String)| !lost.contains(node) && again[*rank] == **node;
    ensure!(members.iter().filter(stayed).count() == RACK_GANG - ranks.len(), "others have moved");
    Ok(())
}

/// Members of a gang that no rack has room for.
const TOO_MANY: usize = 2 * IN_RACK + 1;
/// Within what time a policy acts.
const ACTS: Duration = Duration::from_secs(1);

/// A policy wants gangs in racks: one that is too large for any waits, and says so.
async fn governed(cluster: &Cluster) -> Result<()> {
    create(
        cluster,
        POLICIES,
        &policy(
            "near",
            &json!({
                "priority": 1, "podSelector": {"matchLabels": {"muster.dev/pod-group": "governed"}},
                "topology": {"required": "rack"},
            }),
        ),
    )
    .await?;
    let begin = Instant::now();
    let group = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "governed", "namespace": "default"},
        "spec": {"minMember": TOO_MANY},
    });
    create(cluster, GROUPS, &group).await?;
    let make = |i| member("governed", &format!("governed-{i}"), i);
    create_objects(&cluster.admin, PODS, "pods", TOO_MANY, make).await?;
    eventually("told that no rack has room", SOON, || async {
        let group = get(cluster, &format!("{GROUPS}/governed")).await?;
        Ok(group["status"].to_string().contains("members in the best rack"))
    })
    .await?;
    cluster.say(&format!("a new policy acted within {:?}", begin.elapsed()));
    ensure!(bound(cluster, "governed").await?.is_empty(), "some are bound");
    Ok(())
}

/// The policy wants less: the gang that waits has room at once.
async fn policy_changes(cluster: &Cluster, places: &Places) -> Result<()> {
    ensure!(bound(cluster, "governed").await?.is_empty(), "some are bound");
    let path = format!("{POLICIES}/near");
    let mut policy = get(cluster, &path).await?;
    policy["spec"]["topology"] = json!({"required": "block"});
    ask(&cluster.admin, Method::PUT, &path, &policy).await.map_err(anyhow::Error::msg)?;
    let begin = Instant::now();
    eventually("tried anew", SOON, || async { Ok(!bound(cluster, "governed").await?.is_empty()) })
        .await?;
    let took = begin.elapsed();
    cluster.say(&format!("a changed policy acted within {took:?}"));
    ensure!(took < ACTS, "it took {took:?}");
    within(cluster, places, "governed", TOO_MANY, "block").await.map(drop)
}

/// Ranks 0 to 7 are in one rack, 8 to 15 in one, and so on.
async fn segments(cluster: &Cluster, places: &Places) -> Result<()> {
    let (size, count) = (8, 4);
    let group = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
        "metadata": {"name": "cut", "namespace": "default"},
        "spec": {"minMember": size * count, "topology": {
            "required": "block", "segments": [{"size": size, "required": "rack"}]}},
    });
    create(cluster, GROUPS, &group).await?;
    let make = |i| member("cut", &format!("cut-{i}"), i);
    create_objects(&cluster.admin, PODS, "pods", size * count, make).await?;
    within(cluster, places, "cut", size * count, "block").await?;
    let mut racks: BTreeMap<usize, BTreeSet<&(String, String)>> = BTreeMap::new();
    let nodes = bound(cluster, "cut").await?;
    for (rank, node) in &nodes {
        let place = places.get(node).context("a node without a rack")?;
        racks.entry(rank.parse::<usize>()? / size).or_default().insert(place);
    }
    ensure!(racks.len() == count, "{racks:?}");
    ensure!(racks.values().all(|racks| racks.len() == 1), "{racks:?}");
    Ok(())
}
