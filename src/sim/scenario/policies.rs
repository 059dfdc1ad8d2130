//! Scheduling policies and cluster topologies in events, and what groups ask of topology.

use muster_api::muster::{
    ClusterTopology, ClusterTopologySpec, SchedulingPolicy, SchedulingPolicySpec, TopologyRequest,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ScenarioError;
use super::cursor::Cursor;
use super::nodes::check_dns;
use super::tree::{Tree, Value};

/// `policy: {name: …, spec: …}`: the spec as in a manifest.
pub(super) fn decode(at: &Cursor<'_>) -> Result<SchedulingPolicy, ScenarioError> {
    let fields = at.fields(&["name", "spec"])?;
    let name_at = fields.need("name", "e.g. pack")?;
    check_dns(&name_at, name_at.name()?)?;
    let spec_at = fields.need("spec", "e.g. {priority: 1, placement: {strategy: Pack}}")?;
    let spec: SchedulingPolicySpec = manifest(&spec_at, "docs/policies.md", "msp.spec")?;
    let mut policy = SchedulingPolicy { spec, ..SchedulingPolicy::default() };
    name_at.name()?.clone_into(&mut policy.metadata.name);
    Ok(policy)
}

/// `topology: {name: …, spec: …}`: the spec as in a manifest.
pub(super) fn decode_topology(at: &Cursor<'_>) -> Result<ClusterTopology, ScenarioError> {
    let fields = at.fields(&["name", "spec"])?;
    let name_at = fields.need("name", "e.g. network")?;
    check_dns(&name_at, name_at.name()?)?;
    let spec_at = fields.need("spec", "e.g. {levels: [{name: rack, nodeLabel: rack}]}")?;
    let spec: ClusterTopologySpec = manifest(&spec_at, "docs/topology.md", "mct.spec")?;
    let mut topology = ClusterTopology { spec, ..ClusterTopology::default() };
    name_at.name()?.clone_into(&mut topology.metadata.name);
    Ok(topology)
}

/// What a group asks of topology, as in a manifest.
pub(super) fn decode_request(at: &Cursor<'_>) -> Result<TopologyRequest, ScenarioError> {
    let request: TopologyRequest = manifest(at, "docs/topology.md", "mpg.spec.topology")?;
    if request.required.is_none() && request.preferred.is_none() && request.segments.is_empty() {
        return Err(at.error(
            "write required, preferred or segments: a level, or a node label, e.g. \
             example.com/rack",
        ));
    }
    Ok(request)
}

/// A part of an object, as in a manifest.
fn manifest<T: DeserializeOwned + Serialize>(
    at: &Cursor<'_>,
    docs: &str,
    explain: &str,
) -> Result<T, ScenarioError> {
    let written = json(at.tree);
    let read: T = serde_json::from_value(written.clone())
        .map_err(|error| at.error(format!("{error}; see {docs}")))?;
    // What is not read is not written again.
    if serde_json::to_value(&read).ok().as_ref() != Some(&written) {
        let text =
            format!("a field is not known, or is empty; `kubectl explain {explain}` lists them");
        return Err(at.error(text));
    }
    Ok(read)
}

fn json(tree: &Tree) -> serde_json::Value {
    match &tree.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(yes) => (*yes).into(),
        Value::Int(number) => (*number).into(),
        Value::Number(text) | Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.name.clone(), json(value)));
            serde_json::Value::Object(fields.collect())
        }
    }
}
