//! Nodes as those see them who place GPU work: what is free, how it is linked, how it is.

use std::collections::BTreeMap;

use muster_api::muster::NodeTopology;
use muster_api::muster::node_topology::{GpuHealth, NumaKind};
use muster_core::io::Object;
use serde::Serialize;

use super::{Column, Key, Table, World, age, ended};
use crate::explain::Decoded;
use crate::topology::{Gpus, idle_because, natural, of_node};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// `Ready`, `NotReady` or `Unknown`, and `SchedulingDisabled` if it takes no pods.
    pub status: String,
    /// GPUs that it offers.
    pub gpus: i64,
    /// GPUs that no pod has.
    pub free: i64,
    /// Model of its GPUs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// NVLinks that are up and that there are, of the GPU with the fewest.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub links: String,
    /// NUMA nodes with CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<usize>,
    /// The kubelet's topology policy and scope.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub policy: String,
    /// `Healthy`, or how many GPUs are not and what they are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub health: String,
    /// What is wrong, GPU by GPU.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// How old the agent's report is, in seconds; none without a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_seconds: Option<i64>,
}

/// All nodes, in order of names; those with these names, if any are given.
///
/// # Errors
///
/// The first name that no node has.
pub fn node_views(world: &World, names: &[String]) -> Result<Vec<NodeView>, String> {
    let mut gpus = Gpus::default();
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    for (_, pod) in world.pods().filter(|(_, pod)| !ended(pod)) {
        if !pod.spec.node_name.is_empty() {
            *used.entry(&pod.spec.node_name).or_default() += gpus.of_pod(pod);
        }
    }
    let mut views = Vec::new();
    for node in world.nodes() {
        let name = &node.metadata.name;
        if !names.is_empty() && !names.contains(name) {
            continue;
        }
        let (total, used) = (of_node(node), used.get(name.as_str()).copied().unwrap_or(0));
        let plain = NodeView {
            name: name.clone(),
            status: status(world, name, idle_because(node)),
            gpus: total,
            free: (total - used).max(0),
            ..NodeView::default()
        };
        views.push(match report(world, name) {
            Some(report) => inside(plain, report, world.now().0),
            None => plain,
        });
    }
    if let Some(missing) = names.iter().find(|name| !views.iter().any(|v| v.name == **name)) {
        return Err(missing.clone());
    }
    views.sort_by(|a, b| natural(&a.name, &b.name));
    Ok(views)
}

fn status(world: &World, name: &str, closed: Option<&'static str>) -> String {
    let node = world.get(&Key::node(name));
    let conditions = node.and_then(|node| node["status"]["conditions"].as_array());
    let mut all = conditions.map(Vec::as_slice).unwrap_or_default().iter();
    let ready = match all.find(|c| c["type"] == "Ready").and_then(|c| c["status"].as_str()) {
        Some("True") => "Ready",
        Some("False") => "NotReady",
        _ => "Unknown",
    };
    let closed = if closed == Some("cordoned") { ",SchedulingDisabled" } else { "" };
    format!("{ready}{closed}")
}

fn report<'a>(world: &'a World, node: &str) -> Option<&'a NodeTopology> {
    let key = Key {
        api_version: "muster.dev/v1alpha1".to_owned(),
        kind: NodeTopology::KIND.to_owned(),
        namespace: String::new(),
        name: node.to_owned(),
    };
    match world.items.get(&key).map(|item| &item.decoded) {
        Some(Decoded::Object(object)) => match &**object {
            Object::NodeTopology(report) => Some(report),
            _ => None,
        },
        _ => None,
    }
}

/// What the agent says of the inside of a node.
fn inside(view: NodeView, report: &NodeTopology, now: i64) -> NodeView {
    let hardware = report.hardware.as_ref();
    let gpus = hardware.map(|h| h.gpus.as_slice()).unwrap_or_default();
    let mut models: Vec<&str> = gpus.iter().filter_map(|gpu| gpu.model.as_deref()).collect();
    models.dedup();
    let links = gpus.iter().filter_map(|gpu| gpu.nvlinks.as_ref());
    let worst = links.min_by_key(|links| (links.active, links.total));
    let numa = hardware.map(|h| h.numa.iter().filter(|n| n.kind == NumaKind::Cpu).count());
    let policy = report.kubelet.as_ref().map(|kubelet| {
        let manager = &kubelet.topology_manager;
        format!("{}/{}", manager.policy, manager.scope)
    });
    let observed = report.status.observed_at;
    let (health, problems) = health(report);
    NodeView {
        model: models.join(", "),
        links: worst.map(|l| format!("{}/{}", l.active, l.total)).unwrap_or_default(),
        numa,
        policy: policy.unwrap_or_default(),
        health,
        problems,
        report_seconds: observed.map(|at| (now - at.0).max(0) / 1_000_000),
        ..view
    }
}

fn health(report: &NodeTopology) -> (String, Vec<String>) {
    let states = &report.status.gpus;
    if states.is_empty() {
        return (String::new(), Vec::new());
    }
    let mut counts: BTreeMap<GpuHealth, usize> = BTreeMap::new();
    let mut problems = Vec::new();
    for state in states {
        *counts.entry(state.health).or_default() += 1;
        if !matches!(state.health, GpuHealth::Healthy | GpuHealth::Unknown) {
            let reasons =
                if state.reasons.is_empty() { "no reason" } else { &state.reasons.join(", ") };
            problems.push(format!("GPU {}: {}: {reasons}", state.pci, state.health));
        }
    }
    if counts.len() == 1 && counts.contains_key(&GpuHealth::Healthy) {
        return ("Healthy".to_owned(), problems);
    }
    let bad = counts.iter().filter(|(health, _)| **health != GpuHealth::Healthy);
    let text: Vec<String> = bad.map(|(health, n)| format!("{n} {health}")).collect();
    (text.join(", "), problems)
}

/// Nodes as a table.
#[must_use]
pub fn node_table(views: &[NodeView]) -> Table {
    let mut table = Table::new(&[
        Column::new("NAME"),
        Column::new("STATUS"),
        Column::new("GPUS"),
        Column::new("FREE"),
        Column::new("MODEL"),
        Column::new("NVLINKS"),
        Column::new("NUMA"),
        Column::new("HEALTH"),
        Column::wide("TOPOLOGY POLICY"),
        Column::wide("REPORTED"),
        Column::wide("PROBLEMS"),
    ]);
    for view in views {
        table.row(vec![
            view.name.clone(),
            view.status.clone(),
            view.gpus.to_string(),
            view.free.to_string(),
            view.model.clone(),
            view.links.clone(),
            view.numa.map(|n| n.to_string()).unwrap_or_default(),
            view.health.clone(),
            view.policy.clone(),
            view.report_seconds.map(age).unwrap_or_default(),
            view.problems.join("; "),
        ]);
    }
    table
}
