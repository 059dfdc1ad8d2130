//! The `events` section.

use std::collections::BTreeSet;

use super::ScenarioError;
use super::cursor::Cursor;
use super::nodes::NodeGroup;
use super::tree::Value;
use crate::limits::MAX_EVENT_TARGETS;
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
}

const ACTIONS: [&str; 4] = ["cordon", "uncordon", "remove", "add"];

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
    let fields = at.fields(&["at", "cordon", "uncordon", "remove", "add"])?;
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
        _ => Action::Remove(targets(&target)?),
    };
    Ok(ClusterEvent { at: when, action })
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
            Action::Cordon(names) | Action::Uncordon(names) => {
                for name in names {
                    needs(&present, name, at, "there is no node of this name at that time")?;
                }
            }
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
