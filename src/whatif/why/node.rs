//! Cures in the nodes: one that is opened, comes back, or is added.

use std::collections::BTreeMap;

use muster_api::k8s::{Node, Taint};
use serde_json::Value;

use super::cure::Finder;
use super::room;
use crate::whatif::{Change, Key, Op};

/// Taints by which Kubernetes keeps pods off a node that is not well.
const UNWELL: [&str; 7] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/out-of-service",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/network-unavailable",
];
const CORDONED: &str = "node.kubernetes.io/unschedulable";
/// Nodes that are tried one by one before all are tried together.
const ALONE: usize = 8;
/// Most nodes that are added.
const MAX_NEW: i64 = 64;
/// Kinds of nodes of which one more is tried.
const MODELS: usize = 3;

/// Whether a taint goes by itself when the node is well or is uncordoned.
pub(super) fn is_lifecycle(taint: &Taint) -> bool {
    taint.key == CORDONED || UNWELL.contains(&taint.key.as_str())
}

/// Nodes that are cordoned, and nodes that are not well.
pub(super) fn reopen(finder: &mut Finder<'_>) {
    let cordoned =
        |node: &Node| node.spec.unschedulable || node.spec.taints.iter().any(|t| t.key == CORDONED);
    let unwell = |node: &Node| node.spec.taints.iter().any(|t| UNWELL.contains(&t.key.as_str()));
    let of = |is: &dyn Fn(&Node) -> bool| -> Vec<String> {
        let nodes = finder.stage.world().nodes().filter(|node| is(node));
        nodes.map(|node| node.metadata.name.clone()).collect()
    };
    let (closed, ill) = (of(&|node| cordoned(node) && !unwell(node)), of(&unwell));
    if let Some((nodes, changes, ran)) = fewest(finder, &closed) {
        let names = nodes.join(" ");
        let plural = if nodes.len() == 1 { "node" } else { "nodes" };
        let what = format!("uncordon {plural} {}", nodes.join(", "));
        let command = Some(format!("kubectl uncordon {names}"));
        finder.keep("NodeUnschedulable", what, changes, command, &ran);
    }
    if let Some((nodes, changes, ran)) = fewest(finder, &ill) {
        let plural = if nodes.len() == 1 { "node" } else { "nodes" };
        let what = format!(
            "bring {plural} {} back: {}",
            nodes.join(", "),
            nodes.iter().find_map(|node| ailment(finder, node)).unwrap_or_default()
        );
        finder.keep("TaintToleration", what, changes, None, &ran);
    }
}

/// What a node has, by its taint.
fn ailment(finder: &Finder<'_>, node: &str) -> Option<String> {
    let node = finder.stage.world().nodes().find(|n| n.metadata.name == node)?;
    let taint = node.spec.taints.iter().find(|t| UNWELL.contains(&t.key.as_str()))?;
    Some(format!("it has the taint {}:{}", taint.key, taint.effect))
}

/// The fewest of these nodes that have to be open for it to run: one that suffices, else all
/// of them without those that are not needed.
fn fewest(
    finder: &mut Finder<'_>,
    nodes: &[String],
) -> Option<(Vec<String>, Vec<Change>, crate::whatif::Ran)> {
    let open: BTreeMap<&String, Change> =
        nodes.iter().filter_map(|node| Some((node, opened(finder, node)?))).collect();
    let changes = |names: &[&String]| -> Vec<Change> {
        names.iter().filter_map(|name| open.get(*name).cloned()).collect()
    };
    let all: Vec<&String> = open.keys().copied().collect();
    for one in all.iter().take(ALONE) {
        let tried = changes(&[one]);
        if let Some(ran) = finder.works(&tried) {
            return Some((vec![(*one).clone()], tried, ran));
        }
    }
    let mut left = all.clone();
    let mut best = finder.works(&changes(&left))?;
    for name in &all {
        let without: Vec<&String> = left.iter().copied().filter(|other| other != name).collect();
        if let Some(ran) = finder.works(&changes(&without)) {
            (left, best) = (without, ran);
        }
    }
    let names = left.iter().map(|name| (*name).clone()).collect();
    Some((names, changes(&left), best))
}

/// A node without what keeps everybody off it.
fn opened(finder: &Finder<'_>, name: &str) -> Option<Change> {
    let key = Key::node(name);
    let node = finder.stage.world().get(&key)?;
    let mut ops = Vec::new();
    if node["spec"]["unschedulable"] == true {
        ops.push(Op::remove("/spec/unschedulable"));
    }
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stays = |taint: &&Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        key != CORDONED && !UNWELL.contains(&key)
    };
    let left: Vec<Value> = taints.iter().filter(stays).cloned().collect();
    if left.len() < taints.len() {
        ops.push(Op::set("/spec/taints", left));
    }
    (!ops.is_empty()).then(|| Change::patch(&key, ops))
}

/// As few more nodes as will do, like one that is there.
pub(super) fn more(finder: &mut Finder<'_>) {
    let resources = room::insufficient(finder.reasons());
    let scarce = resources.first().cloned().unwrap_or_default();
    let mut models: Vec<(i64, String)> = finder
        .stage
        .world()
        .nodes()
        .map(|node| {
            let amount = node.status.allocatable.get(&scarce).map_or(0, |a| a.value());
            (amount, node.metadata.name.clone())
        })
        .collect();
    models.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    // Nodes of one size are one model.
    models.dedup_by_key(|(amount, _)| *amount);
    let most = i64::try_from(finder.pods.len()).unwrap_or(MAX_NEW).clamp(1, MAX_NEW);
    for (amount, model) in models.into_iter().take(MODELS) {
        let Some(node) = finder.stage.world().get(&Key::node(&model)).cloned() else { continue };
        // The greatest number that can be left out is the least that is needed.
        let changes = |out: i64| (0..most - out).filter_map(|i| alike(&node, &model, i)).collect();
        let Some((out, changes, ran)) = finder.greatest(0, most - 1, changes) else { continue };
        let of = match scarce.as_str() {
            "" => String::new(),
            scarce => format!(" ({} {scarce})", room::quantity_of_whole(scarce, amount)),
        };
        let count = most - out;
        let nodes =
            if count == 1 { "one more node".to_owned() } else { format!("{count} more nodes") };
        let what = format!("add {nodes} like {model}{of}");
        finder.keep("NodeResourcesFit", what, changes, None, &ran);
        return;
    }
}

/// Another node like this one, empty and open.
fn alike(node: &Value, model: &str, number: i64) -> Option<Change> {
    let mut new = node.clone();
    let name = format!("{model}-more-{number}");
    let meta = new["metadata"].as_object_mut()?;
    meta.insert("uid".to_owned(), format!("new-{name}").into());
    meta.remove("resourceVersion");
    if let Some(host) = meta.get_mut("labels").and_then(|l| l.get_mut("kubernetes.io/hostname")) {
        *host = name.as_str().into();
    }
    meta.insert("name".to_owned(), name.into());
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("unschedulable");
        if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| {
                let key = taint["key"].as_str().unwrap_or_default();
                key != CORDONED && !UNWELL.contains(&key)
            });
        }
    }
    Change::create(new)
}
