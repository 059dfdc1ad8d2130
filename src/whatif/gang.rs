//! A gang with its members: who is where, with which rank, and who does not run.

use std::fmt::Write as _;

use muster_api::k8s::Pod;
use muster_api::muster::labels;
use muster_core::gang::{Api, GangSpec};
use muster_core::model::LabelSet;
use serde::Serialize;
use serde_json::Value;

use super::queue::group_spec;
use super::{Column, Key, Stage, Table, age};
use crate::topology::natural;

/// A gang.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangView {
    /// Its pod group.
    #[serde(flatten)]
    pub group: Key,
    /// Members that have to be placed together; none without its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_member: Option<usize>,
    /// What its status says, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Why, in its status' words.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The level that it has to be in one domain of.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub required: String,
    /// Members that have a node.
    pub placed: usize,
    /// Members, by rank and name.
    pub members: Vec<MemberView>,
}

/// A member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    /// Its name.
    pub pod: String,
    /// Its role.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// Its rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Where that is: values of the levels, widest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub domain: Vec<String>,
    /// Its phase.
    pub phase: String,
    /// How long it has been there, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

/// Groups of that name, of whatever API; a group that only its members know is one too.
#[must_use]
pub fn gangs_named(stage: &Stage<'_>, namespace: &str, name: &str) -> Vec<GangView> {
    let all = Api::ALL.into_iter();
    all.filter_map(|api| gang(stage, api, &Key::group(api, namespace, name))).collect()
}

fn gang(stage: &Stage<'_>, api: Api, key: &Key) -> Option<GangView> {
    let world = stage.world();
    let object = world.get(key);
    let of = |(of, pod): &(&Key, &Pod)| {
        of.namespace == key.namespace && Api::of(pod) == Some((api, key.name.as_str()))
    };
    let pods: Vec<(&Key, &Pod)> = world.pods().filter(of).collect();
    if object.is_none() && pods.is_empty() {
        return None;
    }
    let spec = group_spec(world, key);
    let levels = levels(stage, object);
    let mut members: Vec<MemberView> =
        pods.iter().map(|(key, pod)| member(stage, spec.as_ref(), &levels, key, pod)).collect();
    members.sort_by(|a, b| {
        let rank = |m: &MemberView| m.rank.unwrap_or(u32::MAX);
        (&a.role, rank(a)).cmp(&(&b.role, rank(b))).then_with(|| natural(&a.pod, &b.pod))
    });
    let text = |pointer: &str| {
        let value = object.and_then(|object| object.pointer(pointer));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    Some(GangView {
        group: key.clone(),
        min_member: spec.map(|spec| spec.min),
        phase: text("/status/phase"),
        message: text("/status/message"),
        required: text("/spec/topology/required"),
        placed: members.iter().filter(|m| !m.node.is_empty()).count(),
        members,
    })
}

/// Labels of the levels that say where its members are: of the topology that it names a level
/// of, else of the first there is.
fn levels(stage: &Stage<'_>, group: Option<&Value>) -> Vec<String> {
    let topology = group.map(|group| &group["spec"]["topology"]);
    let asked = topology.and_then(|t| t["required"].as_str().or(t["preferred"].as_str()));
    let of = |topology: &Value| -> Vec<(String, String)> {
        let levels = topology["spec"]["levels"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        levels.iter().map(|level| (text(&level["name"]), text(&level["nodeLabel"]))).collect()
    };
    let mut all: Vec<Vec<(String, String)>> =
        stage.world().of_kind("ClusterTopology").map(|(_, value)| of(value)).collect();
    let names = |levels: &[(String, String)]| {
        asked
            .is_some_and(|asked| levels.iter().any(|(name, label)| name == asked || label == asked))
    };
    all.sort_by_key(|levels| !names(levels));
    match (all.into_iter().next(), asked) {
        (Some(levels), _) => levels.into_iter().map(|(_, label)| label).collect(),
        (None, Some(label)) => vec![label.to_owned()],
        (None, None) => Vec::new(),
    }
}

fn member(
    stage: &Stage<'_>,
    spec: Option<&GangSpec>,
    levels: &[String],
    key: &Key,
    pod: &Pod,
) -> MemberView {
    let world = stage.world();
    let role =
        spec.and_then(|spec| Some((spec.role_of(&LabelSet::of(&pod.metadata.labels))?, spec)));
    let rank = spec.map_or(labels::DEFAULT_RANK, |spec| spec.rank_label(role.map(|(i, _)| i)));
    let node = &pod.spec.node_name;
    let found = world.nodes().find(|n| n.metadata.name == *node);
    let value = |label: &String| found?.metadata.labels.get(label).cloned();
    let created = pod.metadata.creation_timestamp;
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let phase = if pod.status.phase.is_empty() { "Pending" } else { &pod.status.phase };
    MemberView {
        pod: key.name.clone(),
        role: role.map(|(i, spec)| spec.roles[i].name.to_string()).unwrap_or_default(),
        rank: pod.metadata.labels.get(rank).and_then(|rank| rank.parse().ok()),
        node: node.clone(),
        domain: levels.iter().filter_map(value).collect(),
        phase: if leaving { "Terminating".to_owned() } else { phase.to_owned() },
        seconds: created.map(|t| (world.now().0 - t.0).max(0) / 1_000_000),
    }
}

/// A gang for people.
#[must_use]
pub fn gang_table(view: &GangView, wide: bool, headings: bool) -> String {
    let mut out = String::new();
    if headings {
        let needs = match view.min_member {
            Some(min) => format!("needs {min}"),
            None => "has no pod group".to_owned(),
        };
        let _ = write!(out, "{}: {needs}, {} placed", view.group, view.placed);
        for (before, text) in
            [(", in one ", &view.required), (", ", &view.phase), (": ", &view.message)]
        {
            if !text.is_empty() {
                let _ = write!(out, "{before}{text}");
            }
        }
        out += "\n\n";
    }
    let mut table = Table::new(&[
        Column::new("POD"),
        Column::new("ROLE"),
        Column::new("RANK"),
        Column::new("NODE"),
        Column::new("DOMAIN"),
        Column::new("PHASE"),
        Column::wide("AGE"),
    ]);
    for member in &view.members {
        table.row(vec![
            member.pod.clone(),
            member.role.clone(),
            member.rank.map(|rank| rank.to_string()).unwrap_or_default(),
            member.node.clone(),
            member.domain.join("/"),
            member.phase.clone(),
            member.seconds.map(age).unwrap_or_default(),
        ]);
    }
    if table.is_empty() { out + "no member exists\n" } else { out + &table.text(wide, headings, 0) }
}
