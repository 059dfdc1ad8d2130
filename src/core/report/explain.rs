//! The full answer for one pod: every node, every plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::fit_message;
use crate::cluster::{Cluster, NodeId};
use crate::cycle::Prepared;
use crate::framework::{Code, Normalize, Profile, Status, UNRANKED};
use crate::hash::scramble;
use crate::model::PodShape;

/// Why a pod goes where it goes, or nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// `namespace/name`.
    pub pod: String,
    /// The best node, or empty.
    pub suggested_host: String,
    /// Nodes that Filter looked at: none if PreFilter rejects, only those it
    /// allows if it narrows.
    pub evaluated_nodes: usize,
    /// Nodes that fit.
    pub feasible_nodes: usize,
    /// Per node.
    pub nodes: BTreeMap<String, NodeVerdict>,
    /// The message a person would see if no node fits.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What was said of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeVerdict {
    /// `ok`, `U`, `UU` or `E`.
    pub status: &'static str,
    /// The plugin that rejected it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub plugin: String,
    /// Its reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// Weighted scores per plugin.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<&'static str, i64>,
    /// Their sum; only of nodes that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}

fn short(code: Code) -> &'static str {
    match code {
        Code::Success | Code::Skip | Code::Wait => "ok",
        Code::Unschedulable | Code::Pending => "U",
        Code::UnschedulableAndUnresolvable => "UU",
        Code::Error => "E",
    }
}

fn rejected(plugin: &str, status: &Status) -> NodeVerdict {
    NodeVerdict {
        status: short(status.code),
        plugin: plugin.to_owned(),
        reasons: status.reasons.iter().map(ToString::to_string).collect(),
        ..NodeVerdict::default()
    }
}

/// Judges and rates every node afresh, without any cache. Among the best nodes the
/// cycle's own choice for `ties` is suggested, or without it the first by name:
/// the same one whatever the order in which the nodes became known.
#[must_use]
pub fn explain(
    pod: &str,
    profile: &Profile,
    shape: &PodShape,
    cluster: &Cluster,
    ties: Option<TieSeed>,
) -> Explanation {
    let prepared = Prepared::new(profile, shape, cluster);
    let name = |plugin: usize| profile.plugins()[plugin].plugin.name();
    let mut out = Explanation {
        pod: pod.to_owned(),
        suggested_host: String::new(),
        evaluated_nodes: 0,
        feasible_nodes: 0,
        nodes: BTreeMap::new(),
        message: String::new(),
    };
    if cluster.node_count() == 0 {
        out.message = crate::cycle::no_nodes().to_string();
        return out;
    }
    if let Some((plugin, status)) = &prepared.rejected {
        for node in cluster.nodes().iter() {
            out.nodes.insert(
                cluster.node(node).name.to_string(),
                rejected(plugin.map_or("", name), status),
            );
        }
        let (nodes, message) = (cluster.node_count(), status.message());
        out.message = match status.code {
            Code::Error => message,
            _ => format!("0/{nodes} nodes are available: {message}."),
        };
        return out;
    }
    let mut feasible: Vec<NodeId> = Vec::new();
    let mut reasons: Vec<(u32, Vec<Arc<str>>)> = Vec::new();
    let mut broken: Option<(Arc<str>, String)> = None;
    for node in cluster.nodes().iter() {
        let verdict = match &prepared.outside {
            Some(outside) if !prepared.allowed.as_ref().is_some_and(|a| a.contains(node)) => {
                Err((None, outside.clone()))
            }
            _ => {
                out.evaluated_nodes += 1;
                prepared
                    .judge(profile, shape, cluster.view(node))
                    .map_err(|(plugin, status)| (Some(plugin), status))
            }
        };
        match verdict {
            Ok(()) => feasible.push(node),
            Err((plugin, status)) => {
                let plugin = plugin.map_or("", name);
                let entry = rejected(plugin, &status);
                let node_name = &cluster.node(node).name;
                if status.code == Code::Error
                    && broken.as_ref().is_none_or(|(first, _)| node_name < first)
                {
                    broken = Some((Arc::clone(node_name), status.message()));
                }
                out.nodes.insert(cluster.node(node).name.to_string(), entry);
                reasons.push((1, status.reasons));
            }
        }
    }
    out.feasible_nodes = feasible.len();
    if let Some((_, message)) = broken {
        // One broken node ends the attempt; the first by name is reported.
        out.message = message;
        let fits = NodeVerdict { status: "ok", ..NodeVerdict::default() };
        let names = feasible.iter().map(|n| cluster.node(*n).name.to_string());
        out.nodes.extend(names.map(|name| (name, fits.clone())));
        return out;
    }
    if feasible.is_empty() {
        let reasons = reasons.iter().map(|(n, list)| (*n, list.as_slice()));
        out.message = fit_message(cluster.node_count(), reasons);
        return out;
    }
    if let Some((plugin, status)) = &prepared.score_error {
        out.message = format!("running PreScore plugin {:?}: {}", name(*plugin), status.message());
        let status = Status::error(out.message.as_str());
        for node in feasible {
            out.nodes.insert(cluster.node(node).name.to_string(), rejected("", &status));
        }
        return out;
    }
    let best = score(&mut out, &prepared, profile, shape, cluster, &feasible);
    let suggested = match ties {
        Some(seed) => best.iter().max_by_key(|node| seed.rank(**node)),
        None => best.iter().min_by_key(|node| &cluster.node(**node).name),
    };
    out.suggested_host = suggested.map_or_else(String::new, |n| cluster.node(*n).name.to_string());
    out
}

/// Which of equally good nodes the cycle takes for a shape.
#[derive(Clone, Copy, Debug)]
pub struct TieSeed(pub(crate) u32);

impl TieSeed {
    pub(crate) fn rank(self, node: NodeId) -> u32 {
        scramble(node.0, self.0)
    }
}

type PluginScores = Vec<(usize, i64, Normalize, i64)>;

/// Rates the feasible nodes; returns those with the greatest total.
fn score(
    out: &mut Explanation,
    prepared: &Prepared,
    profile: &Profile,
    shape: &PodShape,
    cluster: &Cluster,
    feasible: &[NodeId],
) -> Vec<NodeId> {
    let surveys = prepared.surveys(profile, cluster, feasible);
    let rows: Vec<(NodeId, PluginScores)> = feasible
        .iter()
        .map(|&n| (n, prepared.scores(profile, shape, cluster.view(n), &surveys).collect()))
        .collect();
    let columns = rows.first().map_or(0, |(_, scores)| scores.len());
    let extremes: Vec<(i64, i64)> = (0..columns)
        .map(|c| {
            let raw = rows.iter().map(|(_, scores)| scores[c].3).filter(|r| *r != UNRANKED);
            raw.fold((i64::MAX, i64::MIN), |(lo, hi), r| (lo.min(r), hi.max(r)))
        })
        .collect();
    let (mut most, mut best) = (i64::MIN, Vec::new());
    for (node, scores) in &rows {
        let mut verdict = NodeVerdict { status: "ok", ..NodeVerdict::default() };
        let mut total = 0;
        for ((plugin, weight, normalize, raw), (min, max)) in scores.iter().zip(&extremes) {
            let weighted = weight.saturating_mul(normalize.apply(*raw, *min, *max));
            verdict.scores.insert(profile.plugins()[*plugin].plugin.name(), weighted);
            total = i64::saturating_add(total, weighted);
        }
        verdict.total = Some(total);
        if total > most {
            (most, best) = (total, Vec::new());
        }
        if total == most {
            best.push(*node);
        }
        out.nodes.insert(cluster.node(*node).name.to_string(), verdict);
    }
    best
}
