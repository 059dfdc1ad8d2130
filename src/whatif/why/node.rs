//! Cures in the nodes: one that is opened, comes back, or is added.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::{Node, Taint};
use serde_json::Value;

use super::cure::Finder;
use super::room;
use crate::whatif::{Change, Key, Op, Ran};

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
/// Kinds of nodes of which more are tried.
const MODELS: usize = 4;
const ZONE: &str = "topology.kubernetes.io/zone";
/// Most nodes that a cure names.
const NAMED: usize = 8;

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
        let what = format!("uncordon {}", named(&nodes));
        let command = Some(format!("kubectl uncordon {}", nodes.join(" ")));
        finder.keep("NodeUnschedulable", what, changes, command, &ran);
    }
    if let Some((nodes, changes, ran)) = fewest(finder, &ill) {
        let what = format!(
            "bring {} back: {}",
            named(&nodes),
            nodes.iter().find_map(|node| ailment(finder, node)).unwrap_or_default()
        );
        finder.keep("TaintToleration", what, changes, None, &ran);
    }
}

/// `node a`, `nodes a, b and 7 more`.
fn named(nodes: &[String]) -> String {
    let (shown, more) = nodes.split_at(nodes.len().min(NAMED));
    let plural = if nodes.len() == 1 { "node" } else { "nodes" };
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{plural} {}{more}", shown.join(", "))
}

/// What a node has, by its taint.
fn ailment(finder: &Finder<'_>, node: &str) -> Option<String> {
    let node = finder.stage.world().nodes().find(|n| n.metadata.name == node)?;
    let taint = node.spec.taints.iter().find(|t| UNWELL.contains(&t.key.as_str()))?;
    Some(format!("it has the taint {}:{}", taint.key, taint.effect))
}

/// The fewest of these nodes that have to be open for it to run.
fn fewest(finder: &mut Finder<'_>, nodes: &[String]) -> Option<(Vec<String>, Vec<Change>, Ran)> {
    let open: BTreeMap<&String, Change> =
        nodes.iter().filter_map(|node| Some((node, opened(finder, node)?))).collect();
    let changes = |names: &[&String], more: &[&String]| -> Vec<Change> {
        names.iter().chain(more).filter_map(|name| open.get(*name).cloned()).collect()
    };
    let mut rest: Vec<&String> = open.keys().copied().collect();
    for one in rest.iter().take(ALONE) {
        let tried = changes(&[one], &[]);
        if let Some(ran) = finder.works(&tried) {
            return Some((vec![(*one).clone()], tried, ran));
        }
    }
    // The shortest beginning of the list that suffices ends with a node that is needed; what is
    // before it is looked at again, until those that are needed suffice alone.
    let mut needed: Vec<&String> = Vec::new();
    let mut best = None;
    loop {
        let length = i64::try_from(rest.len()).unwrap_or(0);
        let beginning = |n: i64| &rest[..usize::try_from(n).unwrap_or(0)];
        let found = finder.least(length, |n| changes(&needed, beginning(n)));
        // As few as could be found in time; nothing if not even all of them would do.
        let Some((n, tried, ran)) = found else { break };
        best = Some((needed.iter().chain(beginning(n)).copied().cloned().collect(), tried, ran));
        rest.truncate(usize::try_from(n).unwrap_or(0));
        needed.extend(rest.pop());
        let alone = changes(&needed, &[]);
        if let Some(ran) = finder.works(&alone) {
            best = Some((needed.into_iter().cloned().collect(), alone, ran));
            break;
        }
    }
    let (mut nodes, changes, ran): (Vec<String>, _, _) = best?;
    nodes.sort_unstable();
    Some((nodes, changes, ran))
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

/// As few more nodes as will do, like one that is there: the kind of which the fewest do.
pub(super) fn more(finder: &mut Finder<'_>) {
    let resources = room::insufficient(finder.reasons());
    let scarce = resources.first().cloned().unwrap_or_default();
    let mut most = i64::try_from(finder.pods.len()).unwrap_or(MAX_NEW).clamp(1, MAX_NEW);
    let mut best = None;
    for (amount, model) in models(finder, &scarce) {
        let Some(node) = finder.stage.world().get(&Key::node(&model)).cloned() else { continue };
        let changes = |count: i64| (0..count).filter_map(|i| alike(&node, &model, i)).collect();
        if let Some((count, changes, ran)) = finder.least(most, changes) {
            best = Some((count, amount, model, changes, ran));
            most = count - 1;
        }
        if most == 0 {
            break;
        }
    }
    let Some((count, amount, model, changes, ran)) = best else { return };
    let of = match scarce.as_str() {
        "" => String::new(),
        scarce => format!(" ({} {scarce})", room::quantity_of_whole(scarce, amount)),
    };
    let nodes = if count == 1 { "one more node".to_owned() } else { format!("{count} more nodes") };
    let what = format!("add {nodes} like {model}{of}");
    finder.keep("NodeResourcesFit", what, changes, None, &ran);
}

/// A node of each kind, and how much it has of what is scarce: in the domain that lacks least
/// first, then those that have the most, then those that fewer keep off.
fn models(finder: &Finder<'_>, scarce: &str) -> Vec<(i64, String)> {
    let domains = room::domains(finder);
    let far = domains.len();
    let mut kinds = BTreeMap::new();
    for node in finder.stage.world().nodes() {
        let labels = &node.metadata.labels;
        let is_in = |(label, value): &(String, String)| labels.get(label) == Some(value);
        let near = domains.iter().position(is_in).unwrap_or(far);
        let amount = node.status.allocatable.get(scarce).map_or(0, |a| a.value());
        let taints: BTreeSet<&Taint> =
            node.spec.taints.iter().filter(|taint| !is_lifecycle(taint)).collect();
        let kind = (near, Reverse(amount), taints, labels.get(ZONE));
        kinds.entry(kind).or_insert(&node.metadata.name);
    }
    let kinds = kinds.into_iter().take(MODELS);
    kinds.map(|((_, Reverse(amount), ..), name)| (amount, name.clone())).collect()
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
