//! Scheduling policies in events.

use muster_api::muster::{SchedulingPolicy, SchedulingPolicySpec};

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
    let written = json(spec_at.tree);
    let spec: SchedulingPolicySpec = serde_json::from_value(written.clone())
        .map_err(|error| spec_at.error(format!("{error}; see docs/policies.md")))?;
    // What is not read is not written again.
    if serde_json::to_value(&spec).ok().as_ref() != Some(&written) {
        let text = "a field is not known, or is empty; `kubectl explain msp.spec` lists them";
        return Err(spec_at.error(text));
    }
    let mut policy = SchedulingPolicy { spec, ..SchedulingPolicy::default() };
    name_at.name()?.clone_into(&mut policy.metadata.name);
    Ok(policy)
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
