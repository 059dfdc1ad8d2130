//! The full answer for one pod: every node, every plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::fit_message;
use crate::cluster::{Cluster, NodeId};
use crate::cycle::{Prepared, Trial};
use crate::framework::{Code, Normalize, Profile, Status, UNRANKED};
use crate::hash::scramble;
use crate::model::PodShape;
use crate::preemption::Preemptor;

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
    /// If no node fits: what evictions could do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionView>,
    /// The gang that it goes with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangView>,
    /// The scheduling policies that govern it, the highest priority first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyInForce>,
}

/// A scheduling policy that governs a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyInForce {
    /// Its name.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// What it decides of how the pod is placed: what no higher one does.
    pub decides: Vec<String>,
}

/// How the gang of a pod stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GangView {
    /// `namespace/name` of its group.
    pub group: String,
    /// Members that must be placed together.
    pub needs: usize,
    /// Members that are bound, on their way, or have ended well.
    pub have: usize,
    /// Members that wait with it.
    pub wait: usize,
    /// What keeps it, or that nothing does.
    pub message: String,
    /// Where the members that are missing would go now, if all of them found room.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub placed: BTreeMap<String, String>,
    /// Domains of the level that is required, those with the most room first, as they were
    /// when the gang found none; at most [`MAX_DOMAINS_SHOWN`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainView>,
    /// Whom it would push out, if nobody had to stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<GangVictimsView>,
}

/// Most domains that an explanation shows.
pub const MAX_DOMAINS_SHOWN: usize = 32;

/// How much of a gang a domain could take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DomainView {
    /// Level and value: `rack r7`.
    pub domain: String,
    /// How many members could fit, of those that are missing.
    pub fits: u32,
    /// How many nodes it has.
    pub nodes: usize,
    /// What keeps most of its nodes from taking a member, and how many it keeps.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocker: String,
}

/// Which nodes could be made to fit by evicting pods, before any rule on budgets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PreemptionView {
    /// The best of them, or empty.
    pub node: String,
    /// All of them.
    pub candidates: BTreeMap<String, VictimsView>,
    /// Pods of lower priority on nodes that might be freed that may not go now, and what
    /// protects them; at most [`MAX_PROTECTED_SHOWN`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub protected: BTreeMap<String, String>,
    /// Why nobody goes now although somebody might: what policies say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub held: String,
}

/// Whom a gang would push out, as it was when it was last tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GangVictimsView {
    /// `namespace/name` of each, sorted; at most [`MAX_VICTIMS_SHOWN`].
    pub victims: Vec<String>,
    /// How many they are.
    pub count: usize,
    /// Why others of lower priority stay: how many, and what keeps them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stay: Vec<String>,
}

/// Most protected pods that an explanation shows.
pub const MAX_PROTECTED_SHOWN: usize = 64;
/// Most victims of a gang that an explanation shows.
pub const MAX_VICTIMS_SHOWN: usize = 64;

/// Who would have to leave a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VictimsView {
    /// `namespace/name` of each, sorted.
    pub pods: Vec<String>,
    /// How many of them a disruption budget protects.
    pub pdb_violations: u32,
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
    /// What plugins say of their scores in words, as which devices the pod would get.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<&'static str, String>,
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
pub(crate) fn explain(
    asked: &Asked<'_>,
    profile: &Profile,
    shape: &PodShape,
    cluster: &mut Cluster,
    ties: Option<TieSeed>,
) -> Explanation {
    let mut prepared = Prepared::new(profile, shape, cluster);
    let mut out = judge(asked, profile, shape, cluster, &mut prepared, ties);
    let possible = out.feasible_nodes == 0 && out.nodes.values().all(|v| v.status != "E");
    if possible && cluster.node_count() > 0 {
        super::preemption::explain(&mut out, asked, profile, shape, cluster, &mut prepared, ties);
    }
    out
}

/// Who is asked about.
pub(crate) struct Asked<'a> {
    /// `namespace/name`.
    pub(crate) pod: &'a str,
    /// The pod as a preemptor.
    pub(crate) preemptor: Preemptor<'a>,
}

impl<'a> Asked<'a> {
    /// A pod that nobody knows, which may preempt.
    #[cfg(test)]
    pub(crate) fn named(pod: &'a str) -> Self {
        let preemptor = Preemptor { id: None, priority: 0, may_preempt: true, nominated: None };
        Self { pod, preemptor }
    }
}

/// What is said of every node.
fn judge(
    asked: &Asked<'_>,
    profile: &Profile,
    shape: &PodShape,
    cluster: &mut Cluster,
    prepared: &mut Prepared,
    ties: Option<TieSeed>,
) -> Explanation {
    let name = |plugin: usize| profile.plugins()[plugin].plugin.name();
    let mut out = Explanation {
        pod: asked.pod.to_owned(),
        suggested_host: String::new(),
        evaluated_nodes: 0,
        feasible_nodes: 0,
        nodes: BTreeMap::new(),
        message: String::new(),
        preemption: None,
        gang: None,
        policies: Vec::new(),
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
    let nodes: Vec<NodeId> = cluster.nodes().iter().collect();
    for node in nodes {
        let verdict = match &prepared.outside {
            Some(outside) if !prepared.allowed.as_ref().is_some_and(|a| a.contains(node)) => {
                Err((None, outside.clone()))
            }
            _ => {
                out.evaluated_nodes += 1;
                let mut trial = Trial::begin(profile, shape, cluster, prepared);
                let verdict = trial.fits(node, asked.preemptor.id);
                verdict.map_err(|(plugin, status)| (Some(plugin), status))
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
    let best = score(&mut out, prepared, profile, shape, cluster, &feasible);
    // Where a pod is expected it goes, if it fits.
    let expected = asked.preemptor.nominated.and_then(|name| cluster.node_by_name(name));
    let expected = expected.filter(|node| feasible.contains(node));
    let suggested = expected.or_else(|| first_of(&best, cluster, ties));
    out.suggested_host = suggested.map_or_else(String::new, |n| cluster.node(n).name.to_string());
    out
}

/// Which of equally good nodes is named.
pub(super) fn first_of(
    nodes: &[NodeId],
    cluster: &Cluster,
    ties: Option<TieSeed>,
) -> Option<NodeId> {
    let first = match ties {
        Some(seed) => nodes.iter().max_by_key(|node| seed.rank(**node)),
        None => nodes.iter().min_by_key(|node| &cluster.node(**node).name),
    };
    first.copied()
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
        verdict.notes = prepared.notes(profile, shape, cluster.view(*node)).collect();
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
