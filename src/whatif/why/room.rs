//! Room: what is short of what, where the least is missing, and who holds it.

use std::collections::BTreeSet;

use muster_api::k8s::{Pod, Quantity};
use muster_core::CacheNode;
use muster_core::model::{PodRequests, ResourceTable};
use serde_json::Value;

use super::cause::named;
use super::cure::Finder;
use crate::whatif::{Change, Key, Op, Ran, Stage};

/// Higher than any pod's own.
const HIGHEST: i64 = 2_000_000_000;
/// Most amounts that are worth a try.
const MAX_AMOUNTS: usize = 64;

/// Resources that are said to be short, in order of what is asked for first.
pub(super) fn insufficient<'a>(reasons: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for reason in reasons {
        for part in reason.split("Insufficient ").skip(1) {
            let end = part.find(|c: char| !(c.is_alphanumeric() || "./-_".contains(c)));
            let name = part[..end.unwrap_or(part.len())].trim_end_matches('.');
            if !name.is_empty() && !found.iter().any(|known| known == name) {
                found.push(name.to_owned());
            }
        }
    }
    found
}

/// How much a pod asks for, in the core's units: thousandths of cpu, bytes, pieces.
pub(super) fn asked(pod: &Pod, resource: &str) -> Option<i64> {
    let mut table = ResourceTable::default();
    let charged = PodRequests::charged_of(pod, &mut table);
    let own = charged.iter().find(|(id, _)| **table.name(*id) == *resource);
    own.map(|(_, amount)| *amount)
}

/// An amount as a quantity: `1500m`, `12Gi`, `4`.
pub(super) fn quantity(resource: &str, amount: i64) -> String {
    const KI: i64 = 1 << 10;
    const MI: i64 = 1 << 20;
    const GI: i64 = 1 << 30;
    match resource {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" | "ephemeral-storage" if amount % GI == 0 => format!("{}Gi", amount / GI),
        "memory" | "ephemeral-storage" if amount >= MI => format!("{}Mi", amount / MI),
        "memory" | "ephemeral-storage" if amount % KI == 0 => format!("{}Ki", amount / KI),
        _ => amount.to_string(),
    }
}

/// The same of an amount in whole units.
pub(super) fn quantity_of_whole(resource: &str, amount: i64) -> String {
    if resource == "cpu" { amount.to_string() } else { quantity(resource, amount) }
}

/// A quantity in the core's units.
pub(super) fn parse(resource: &str, value: &Value) -> Option<i64> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let quantity = Quantity::parse(&text).ok()?;
    Some(if resource == "cpu" { quantity.milli_value() } else { quantity.value() })
}

fn free(node: &CacheNode, resource: &str) -> i64 {
    let of =
        |list: &std::collections::BTreeMap<String, i64>| list.get(resource).copied().unwrap_or(0);
    of(&node.allocatable) - of(&node.requested)
}

/// Amounts less than what is asked that some node has free, for one pod or several on it, from
/// the least.
pub(super) fn amounts(stage: &Stage<'_>, resource: &str, asked: i64, pods: usize) -> Vec<i64> {
    let mut found: BTreeSet<i64> = BTreeSet::new();
    for node in &stage.room().nodes {
        let free = free(node, resource);
        for each in 1..=i64::try_from(pods).unwrap_or(1).clamp(1, 8) {
            let mut amount = free / each;
            if matches!(resource, "memory" | "ephemeral-storage") {
                amount -= amount % (1 << 20);
            }
            if amount > 0 && amount < asked {
                found.insert(amount);
            }
        }
    }
    let skip = found.len().saturating_sub(MAX_AMOUNTS);
    found.into_iter().skip(skip).collect()
}

/// The domain that lacks least, of a gang that has to be in one.
pub(super) fn nearest_domain(ran: &Ran) -> Option<String> {
    let gang = ran.explanation.as_ref()?.gang.as_ref()?;
    let best = gang.domains.first()?;
    let missing = gang.needs.saturating_sub(gang.have);
    let why = match best.blocker.as_str() {
        "" => String::new(),
        blocker => format!("; {blocker}"),
    };
    let (domain, fits, nodes) = (&best.domain, best.fits, best.nodes);
    let plural = if nodes == 1 { "node" } else { "nodes" };
    Some(format!("{domain}: room for {fits} of {missing} members on {nodes} {plural}{why}"))
}

/// Label and value of the domains that its gang may be in, the one that lacks least first; none
/// if it may be anywhere.
pub(super) fn domains(finder: &Finder<'_>) -> Vec<(String, String)> {
    let gang = finder.ran.explanation.as_ref().and_then(|e| e.gang.as_ref());
    let domains = gang.map(|gang| gang.domains.as_slice()).unwrap_or_default();
    let topologies: Vec<&Value> =
        finder.stage.world().of_kind("ClusterTopology").map(|(_, topology)| topology).collect();
    let levels = || topologies.iter().filter_map(|t| t["spec"]["levels"].as_array()).flatten();
    let of = |domain: &muster_core::report::DomainView| {
        let (name, value) = domain.domain.split_once(' ')?;
        let level = levels().find(|level| level["name"] == name);
        let label = level.and_then(|level| level["nodeLabel"].as_str()).unwrap_or(name);
        Some((label.to_owned(), value.to_owned()))
    };
    domains.iter().filter_map(of).collect()
}

/// The node that lacks least: of those that are large enough, else of all.
pub(super) fn nearest_node(stage: &Stage<'_>, key: &Key, ran: &Ran) -> Option<String> {
    let explanation = ran.explanation.as_ref()?;
    let pod = stage.world().pod(key)?;
    let reasons = explanation.nodes.values().flat_map(|verdict| verdict.reasons.iter());
    let short = insufficient(reasons.map(String::as_str));
    let mut best: Option<((bool, i64), String)> = None;
    for node in &stage.room().nodes {
        let verdict = explanation.nodes.get(&node.name);
        if verdict.is_none_or(|v| v.plugin != "NodeResourcesFit") {
            continue;
        }
        for resource in &short {
            let (Some(asked), free) = (asked(pod, resource), free(node, resource)) else {
                continue;
            };
            let missing = asked - free;
            if missing <= 0 {
                continue;
            }
            let too_small = node.allocatable.get(resource).copied().unwrap_or(0) < asked;
            // Resources are compared by the part of what is asked that is missing.
            let lacks = (too_small, missing.saturating_mul(10_000) / asked.max(1));
            if best.as_ref().is_none_or(|(least, _)| lacks < *least) {
                let (has, wants) = (quantity(resource, free.max(0)), quantity(resource, asked));
                let text = format!("node {} has {has} of {wants} {resource} free", node.name);
                best = Some((lacks, text));
            }
        }
    }
    best.map(|(_, text)| text)
}

/// Pods that are in the way, as few and as unimportant as can be.
pub(super) fn victims(finder: &mut Finder<'_>) {
    let raised = finder.for_all(|pod| {
        let mut ops = vec![Op::set("/spec/priority", HIGHEST)];
        if pod["spec"]["preemptionPolicy"].is_string() {
            ops.push(Op::remove("/spec/preemptionPolicy"));
        }
        ops
    });
    // Budgets are weighed by whoever decides: here they only say who is protected.
    let budgets = finder.stage.world().of_kind("PodDisruptionBudget");
    let changes: Vec<Change> =
        raised.into_iter().chain(budgets.map(|(key, _)| Change::delete(key))).collect();
    let Some(planned) = finder.stage.try_out(&changes, finder.pods, false) else { return };
    if planned.victims.is_empty() {
        return;
    }
    let changes: Vec<Change> = planned.victims.iter().map(Change::delete).collect();
    let count = planned.victims.len();
    let plural = if count == 1 { "pod" } else { "pods" };
    let names = format!("{count} {plural}: {}", named(&planned.victims));
    let priorities: BTreeSet<i32> = planned
        .victims
        .iter()
        .filter_map(|key| Some(finder.stage.world().pod(key)?.spec.priority.unwrap_or(0)))
        .collect();
    let priority = match (priorities.first(), priorities.last()) {
        (Some(low), Some(high)) if low == high => format!(" (priority {low})"),
        (Some(low), Some(high)) => format!(" (priority {low} to {high})"),
        _ => String::new(),
    };
    let what = format!("stop {names}{priority}");
    let mut namespaces: Vec<&str> = planned.victims.iter().map(|v| v.namespace.as_str()).collect();
    namespaces.dedup();
    let command = (namespaces.len() == 1 && planned.victims.len() <= 8).then(|| {
        let names: Vec<&str> = planned.victims.iter().map(|v| v.name.as_str()).collect();
        format!("kubectl delete pod -n {} {}", namespaces[0], names.join(" "))
    });
    finder.offer("NodeResourcesFit", what, changes, command);
}
