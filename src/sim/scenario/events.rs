//! The `events` section.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::k8s::{ResourceList, Taint};
use muster_api::muster::{ClusterTopology, SchedulingPolicy};

use super::ScenarioError;
use super::cursor::Cursor;
use super::nodes::{NodeGroup, decode_taint};
use super::scheduler::ReloadSpec;
use super::tree::Value;
use crate::limits::{MAX_EVENT_TARGETS, MAX_TAINTS};
use crate::time::Micros;

/// Something that happens to the cluster.
#[derive(Clone, Debug)]
pub struct ClusterEvent {
    /// When.
    pub at: Micros,
    /// What.
    pub action: Action,
}

/// What happens to the cluster.
#[derive(Clone, Debug)]
pub enum Action {
    /// These nodes take no more pods.
    Cordon(Vec<String>),
    /// These nodes take pods again.
    Uncordon(Vec<String>),
    /// These nodes are lost, and the pods on them.
    Remove(Vec<String>),
    /// These removed nodes come back, empty.
    Restore(Vec<String>),
    /// New nodes join.
    Add(NodeGroup),
    /// The kubelets of these nodes fall silent; the nodes are tainted.
    NotReady(Vec<String>),
    /// The kubelets of these nodes are back.
    Ready(Vec<String>),
    /// A node changes under way.
    Change(NodeChange),
    /// A user deletes a pod, `namespace/name`.
    Delete(String),
    /// Somebody evicts a pod, `namespace/name`, through the Eviction API.
    Evict(String),
    /// A user deletes a pod group, `namespace/name`; its pods stay.
    DeleteGroup(String),
    /// The scheduling gates of a workload's pods are removed.
    Ungate(String),
    /// Somebody else binds a pod, `namespace/name`.
    Bind {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// The schedulers' configuration changes while they run.
    Reload(ReloadSpec),
    /// Somebody creates a scheduling policy, or changes it.
    Policy(Box<SchedulingPolicy>),
    /// Somebody deletes a scheduling policy.
    DeletePolicy(String),
    /// Somebody creates a cluster topology, or changes it.
    Topology(Box<ClusterTopology>),
    /// Somebody deletes a cluster topology.
    DeleteTopology(String),
}

/// What changes of a node; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChange {
    /// The node.
    pub node: String,
    /// All its labels, but for its host name.
    pub labels: Option<BTreeMap<String, String>>,
    /// All its taints.
    pub taints: Option<Vec<Taint>>,
    /// What pods may use of it.
    pub allocatable: Option<ResourceList>,
}

const ACTIONS: [&str; 17] = [
    "cordon",
    "uncordon",
    "remove",
    "add",
    "notReady",
    "ready",
    "change",
    "delete",
    "evict",
    "deleteGroup",
    "ungate",
    "bind",
    "reload",
    "policy",
    "deletePolicy",
    "topology",
    "deleteTopology",
];

pub(super) fn decode(
    at: &Cursor<'_>,
    nodes: &[NodeGroup],
    most: usize,
) -> Result<Vec<ClusterEvent>, ScenarioError> {
    let mut decoded = Vec::new();
    for item in at.list(most)? {
        decoded.push((decode_one(&item)?, item));
    }
    decoded.sort_by_key(|(event, _)| event.at); // stable: the file's order within an instant
    check_targets(&decoded, nodes)?;
    Ok(decoded.into_iter().map(|(event, _)| event).collect())
}

fn decode_one(at: &Cursor<'_>) -> Result<ClusterEvent, ScenarioError> {
    let known: Vec<&str> = ["at"].iter().chain(&ACTIONS).copied().collect();
    let fields = at.fields(&known)?;
    let when = fields.need("at", "when it happens, e.g. 5m")?.duration(0)?;
    let mut actions = ACTIONS.iter().filter_map(|name| Some((*name, fields.get(name)?)));
    let (Some((name, target)), None) = (actions.next(), actions.next()) else {
        return Err(at.error(format!("name exactly one of {}", ACTIONS.join(", "))));
    };
    let action = match (name, &target.tree.value) {
        ("add", Value::Map(_)) => Action::Add(NodeGroup::decode(&target)?),
        ("add", _) => Action::Restore(targets(&target)?),
        ("cordon", _) => Action::Cordon(targets(&target)?),
        ("uncordon", _) => Action::Uncordon(targets(&target)?),
        ("notReady", _) => Action::NotReady(targets(&target)?),
        ("ready", _) => Action::Ready(targets(&target)?),
        ("change", _) => Action::Change(decode_change(&target)?),
        ("delete", _) => Action::Delete(pod_name(&target)?),
        ("evict", _) => Action::Evict(pod_name(&target)?),
        ("deleteGroup", _) => Action::DeleteGroup(pod_name(&target)?),
        ("reload", _) => Action::Reload(ReloadSpec::decode(&target)?),
        ("policy", _) => Action::Policy(Box::new(super::policies::decode(&target)?)),
        ("deletePolicy", _) => Action::DeletePolicy(target.name()?.to_owned()),
        ("topology", _) => Action::Topology(Box::new(super::policies::decode_topology(&target)?)),
        ("deleteTopology", _) => Action::DeleteTopology(target.name()?.to_owned()),
        ("ungate", _) => Action::Ungate(target.name()?.to_owned()),
        ("bind", _) => {
            let fields = target.fields(&["pod", "node"])?;
            let node = fields.need("node", "the node")?.name()?.to_owned();
            Action::Bind { pod: pod_name(&fields.need("pod", "namespace/name")?)?, node }
        }
        _ => Action::Remove(targets(&target)?),
    };
    Ok(ClusterEvent { at: when, action })
}

/// `namespace/name`; without a namespace it is `default`.
fn pod_name(at: &Cursor<'_>) -> Result<String, ScenarioError> {
    let name = at.name()?;
    Ok(if name.contains('/') { name.to_owned() } else { format!("default/{name}") })
}

fn decode_change(at: &Cursor<'_>) -> Result<NodeChange, ScenarioError> {
    let fields = at.fields(&["node", "labels", "taints", "allocatable"])?;
    let taints = match fields.get("taints") {
        Some(list) => {
            Some(list.list(MAX_TAINTS)?.iter().map(decode_taint).collect::<Result<Vec<_>, _>>()?)
        }
        None => None,
    };
    Ok(NodeChange {
        node: fields.need("node", "the node that changes")?.name()?.to_owned(),
        labels: fields.get("labels").map(|l| l.labels()).transpose()?,
        taints,
        allocatable: fields.get("allocatable").map(|a| a.resources()).transpose()?,
    })
}

fn targets(at: &Cursor<'_>) -> Result<Vec<String>, ScenarioError> {
    if let Value::Text(_) = at.tree.value {
        return Ok(vec![at.name()?.to_owned()]);
    }
    at.list(MAX_EVENT_TARGETS)?.iter().map(|item| Ok(item.name()?.to_owned())).collect()
}

/// Every event finds its nodes as it expects them.
fn check_targets(
    events: &[(ClusterEvent, Cursor<'_>)],
    nodes: &[NodeGroup],
) -> Result<(), ScenarioError> {
    let mut present: BTreeSet<String> = nodes.iter().flat_map(NodeGroup::names).collect();
    let mut removed: BTreeSet<String> = BTreeSet::new();
    for (event, at) in events {
        match &event.action {
            Action::Add(group) => present.extend(group.names()),
            Action::Cordon(names)
            | Action::Uncordon(names)
            | Action::NotReady(names)
            | Action::Ready(names) => {
                for name in names {
                    needs(&present, name, at, "there is no node of this name at that time")?;
                }
            }
            Action::Change(NodeChange { node, .. }) => {
                needs(&present, node, at, "there is no node of this name at that time")?;
            }
            // What becomes of pods is not known beforehand.
            Action::Delete(_)
            | Action::Evict(_)
            | Action::DeleteGroup(_)
            | Action::Ungate(_)
            | Action::Bind { .. }
            | Action::Reload(_)
            | Action::Policy(_)
            | Action::DeletePolicy(_)
            | Action::Topology(_)
            | Action::DeleteTopology(_) => {}
            Action::Remove(names) => {
                for name in names {
                    needs(&present, name, at, "there is no node of this name at that time")?;
                    present.remove(name);
                    removed.insert(name.clone());
                }
            }
            Action::Restore(names) => {
                for name in names {
                    needs(
                        &removed,
                        name,
                        at,
                        "only a node removed before can come back by its name; \
                         for a new one write {name: …, allocatable: …}",
                    )?;
                    removed.remove(name);
                    present.insert(name.clone());
                }
            }
        }
    }
    Ok(())
}

fn needs(
    set: &BTreeSet<String>,
    name: &str,
    at: &Cursor<'_>,
    otherwise: &str,
) -> Result<(), ScenarioError> {
    if set.contains(name) { Ok(()) } else { Err(at.error(format!("{name:?}: {otherwise}"))) }
}
