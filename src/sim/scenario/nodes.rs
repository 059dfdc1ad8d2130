//! The `nodes` section.

use std::collections::BTreeSet;

use muster_api::k8s::{Quantity, ResourceList, Taint};

use super::cursor::Cursor;
use super::{Action, Machine, Scenario, ScenarioError, Template};
use crate::limits::{MAX_LABELS, MAX_NODES, MAX_TAINTS};

/// The label that `zone` is short for.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// What a kubelet allows unless told otherwise.
const DEFAULT_PODS: i64 = 110;

/// Nodes that are alike.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    /// Name of each.
    pub name: Template,
    /// How many.
    pub count: u32,
    /// Labels of each.
    pub labels: Vec<(String, Template)>,
    /// Taints of each.
    pub taints: Vec<Taint>,
    /// What pods may use of each.
    pub allocatable: ResourceList,
    /// Cordoned from the beginning.
    pub unschedulable: bool,
    /// What each is inside, if an agent says it.
    pub machine: Option<Machine>,
}

impl NodeGroup {
    pub(super) fn decode(at: &Cursor<'_>) -> Result<Self, ScenarioError> {
        let fields = at.fields(&[
            "name",
            "count",
            "zone",
            "labels",
            "taints",
            "allocatable",
            "unschedulable",
            "machine",
        ])?;
        let name_at = fields.need("name", "e.g. gpu-{i}")?;
        let name = template(&name_at)?;
        check_dns(&name_at, &name.expand(0))?;
        let count = match fields.get("count") {
            Some(count) => count.int(1, MAX_NODES as i64)?,
            None => 1,
        };
        if count > 1 && !name.is_injective() {
            return Err(name_at.error(format!(
                "{count} nodes would have the same name; put {{i}} into it, e.g. gpu-{{i}}"
            )));
        }
        let mut labels = Vec::new();
        if let Some(zone) = fields.get("zone") {
            labels.push((ZONE_LABEL.to_owned(), template(&zone)?));
        }
        if let Some(map) = fields.get("labels") {
            for (key, value) in map.map(MAX_LABELS)? {
                labels.push((key.to_owned(), template(&value)?));
            }
        }
        let mut taints = Vec::new();
        if let Some(list) = fields.get("taints") {
            for taint in list.list(MAX_TAINTS)? {
                taints.push(decode_taint(&taint)?);
            }
        }
        let allocatable_at =
            fields.need("allocatable", "e.g. {cpu: 96, memory: 1Ti, nvidia.com/gpu: 8}")?;
        let mut allocatable = allocatable_at.resources()?;
        for resource in ["cpu", "memory"] {
            if !allocatable.contains_key(resource) {
                return Err(
                    allocatable_at.error(format!("{resource:?} is missing: every node has some"))
                );
            }
        }
        whole_devices(&allocatable_at, &allocatable)?;
        allocatable.entry("pods".to_owned()).or_insert(Quantity::from_units(DEFAULT_PODS));
        let unschedulable = fields.get("unschedulable").map_or(Ok(false), |u| u.bool())?;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let machine = fields.get("machine").map(|m| Machine::decode(&m, &allocatable));
        let machine = machine.transpose()?;
        Ok(Self { name, count, labels, taints, allocatable, unschedulable, machine })
    }

    /// Names of all its nodes.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.count).map(|i| self.name.expand(i))
    }
}

fn template(at: &Cursor<'_>) -> Result<Template, ScenarioError> {
    Template::parse(at.name()?).map_err(|message| at.error(message))
}

pub(super) fn decode_taint(at: &Cursor<'_>) -> Result<Taint, ScenarioError> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let fields = at.fields(&["key", "value", "effect"])?;
    let effect_at = fields.need("effect", "NoSchedule, PreferNoSchedule or NoExecute")?;
    let effect = effect_at.text()?;
    if !EFFECTS.contains(&effect) {
        return Err(effect_at.error(format!("{effect:?}; write {}", EFFECTS.join(", "))));
    }
    Ok(Taint {
        key: fields.need("key", "e.g. nvidia.com/gpu")?.name()?.to_owned(),
        value: fields.get("value").map_or(Ok(""), |v| v.text())?.to_owned(),
        effect: effect.to_owned(),
    })
}

/// Devices and pods are counted, as the API server insists.
pub(super) fn whole_devices(at: &Cursor<'_>, list: &ResourceList) -> Result<(), ScenarioError> {
    for (name, quantity) in list {
        let counted = name == "pods" || name.contains('/');
        if counted && *quantity != Quantity::from_units(quantity.value()) {
            return Err(at.error(format!("{name:?} is counted in whole numbers, not {quantity}")));
        }
    }
    Ok(())
}

/// Lower case letters, digits, `-` and `.`, as Kubernetes insists.
pub(super) fn check_dns(at: &Cursor<'_>, name: &str) -> Result<(), ScenarioError> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if name.chars().all(inner) && edge(name.chars().next()) && edge(name.chars().next_back()) {
        return Ok(());
    }
    Err(at.error(format!(
        "{name:?} is not a Kubernetes name: use lower case letters, digits, \"-\" and \".\""
    )))
}

/// No two nodes have the same name.
pub(super) fn check_names(scenario: &Scenario, at: &Cursor<'_>) -> Result<(), ScenarioError> {
    let added = scenario.events.iter().filter_map(|event| match &event.action {
        Action::Add(group) => Some(group),
        _ => None,
    });
    let mut seen = BTreeSet::new();
    for name in scenario.nodes.iter().chain(added).flat_map(NodeGroup::names) {
        if seen.contains(&name) {
            return Err(at.error(format!("two nodes are named {name:?}; rename one group")));
        }
        seen.insert(name);
        if seen.len() as u64 > MAX_NODES {
            return Ok(()); // the caller refuses the number
        }
    }
    Ok(())
}
