//! Arguments of plugins: `pluginConfig`.
//!
//! Owns: which fields each plugin of kube-scheduler takes, and their defaults. What
//! is kept is the form in which kube-scheduler writes them. Rules are in `rules`,
//! the way to the core in `typed`. Must never know which plugins are enabled.

mod objects;
mod rules;
mod typed;

use serde_json::{Map, Value, json};

pub(super) use rules::check;
pub(super) use typed::to_core;

use super::API_VERSION;
use super::decode::Object;
use super::error::FieldError;

/// Muster's own argument of DefaultPreemption.
pub(super) const ALLOW_BUDGET_VIOLATIONS: &str = "allowBudgetViolations";

type Fields = Map<String, Value>;
type Reader = fn(&mut Object<'_>, &mut Fields);

/// The plugins with arguments of a known form.
const READERS: [(&str, Reader); 8] = [
    ("DefaultPreemption", default_preemption),
    ("DynamicResources", dynamic_resources),
    ("InterPodAffinity", inter_pod_affinity),
    ("NodeAffinity", node_affinity),
    ("NodeResourcesBalancedAllocation", balanced_allocation),
    ("NodeResourcesFit", fit),
    ("PodTopologySpread", pod_topology_spread),
    ("VolumeBinding", volume_binding),
];

fn reader(plugin: &str) -> Option<Reader> {
    READERS.iter().find(|(name, _)| *name == plugin).map(|(_, reader)| *reader)
}

/// Whether the form of a plugin's arguments is known.
pub(super) fn has_form(plugin: &str) -> bool {
    reader(plugin).is_some()
}

/// The arguments of a plugin with all defaults; none if their form is not known.
pub(super) fn read(plugin: &str, mut file: Object<'_>) -> Option<Value> {
    let reader = reader(plugin)?;
    let kind = format!("{plugin}Args");
    check_type(plugin, &kind, &mut file);
    let mut fields = Map::new();
    fields.insert("apiVersion".to_owned(), json!(API_VERSION));
    fields.insert("kind".to_owned(), json!(kind));
    reader(&mut file, &mut fields);
    Some(Value::Object(fields))
}

/// The arguments of a plugin that got none.
pub(super) fn defaults(plugin: &str) -> Option<Value> {
    let errors = Default::default();
    read(plugin, Object::empty(&errors))
}

fn check_type(plugin: &str, kind: &str, file: &mut Object<'_>) {
    let (version, own_kind) = (file.string("apiVersion"), file.string("kind"));
    if let Some(other) = version.filter(|version| version != API_VERSION) {
        let words = format!(
            "decoding args for plugin {plugin}: no kind {kind:?} is registered for version {other:?}"
        );
        let error = FieldError::said(file.place(), words);
        file.report(error.remedy(format!("write {API_VERSION}, or remove apiVersion")));
    }
    if let Some(other) = own_kind.filter(|other| other != kind) {
        let group = "kubescheduler.config.k8s.io";
        let words = format!(
            "args for plugin {plugin} were not of type {kind}.{group}, got {other}.{group}"
        );
        let error = FieldError::said(file.place(), words);
        file.report(error.remedy(format!("write {kind}, or remove kind")));
    }
}

/// Sets a field.
fn put(fields: &mut Fields, key: &str, value: impl Into<Value>) {
    fields.insert(key.to_owned(), value.into());
}

/// Sets a list, unless it is empty.
fn put_list(fields: &mut Fields, key: &str, list: Vec<impl Into<Value>>) {
    if !list.is_empty() {
        put(fields, key, list);
    }
}

fn default_preemption(file: &mut Object<'_>, fields: &mut Fields) {
    for (key, default) in [("minCandidateNodesPercentage", 10), ("minCandidateNodesAbsolute", 100)]
    {
        put(fields, key, file.i32(key).unwrap_or(default));
    }
    if file.bool(ALLOW_BUDGET_VIOLATIONS) == Some(true) {
        put(fields, ALLOW_BUDGET_VIOLATIONS, true);
    }
}

fn dynamic_resources(file: &mut Object<'_>, fields: &mut Fields) {
    for (key, default) in [("filterTimeout", "10s"), ("bindingTimeout", "10m0s")] {
        let duration = file.duration(key).map(|duration| duration.to_string());
        put(fields, key, duration.unwrap_or_else(|| default.to_owned()));
    }
}

fn inter_pod_affinity(file: &mut Object<'_>, fields: &mut Fields) {
    put(fields, "hardPodAffinityWeight", file.i32("hardPodAffinityWeight").unwrap_or(1));
    let key = "ignorePreferredTermsOfExistingPods";
    put(fields, key, file.bool(key).unwrap_or(false));
}

fn node_affinity(file: &mut Object<'_>, fields: &mut Fields) {
    if let Some(affinity) = file.object("addedAffinity") {
        put(fields, "addedAffinity", objects::node_affinity(affinity));
    }
}

fn balanced_allocation(file: &mut Object<'_>, fields: &mut Fields) {
    put(fields, "resources", resources(file));
}

fn fit(file: &mut Object<'_>, fields: &mut Fields) {
    for key in ["ignoredResources", "ignoredResourceGroups"] {
        put_list(fields, key, file.strings(key));
    }
    let strategy = match file.object("scoringStrategy") {
        Some(mut file) => scoring_strategy(&mut file),
        None => json!({"type": "LeastAllocated", "resources": default_resources()}),
    };
    put(fields, "scoringStrategy", strategy);
}

fn scoring_strategy(file: &mut Object<'_>) -> Value {
    let mut fields = Map::new();
    if let Some(kind) = file.text("type") {
        put(&mut fields, "type", kind);
    }
    put(&mut fields, "resources", resources(file));
    if let Some(mut ratio) = file.object("requestedToCapacityRatio") {
        let mut own = Map::new();
        put_list(&mut own, "shape", shape(&mut ratio));
        put(&mut fields, "requestedToCapacityRatio", own);
    }
    Value::Object(fields)
}

/// `resources`; a weight of zero is one.
fn resources(file: &mut Object<'_>) -> Vec<Value> {
    let resource = |mut file: Object<'_>| {
        let name = file.string("name").unwrap_or_default();
        let weight = file.i64("weight").filter(|weight| *weight != 0).unwrap_or(1);
        json!({"name": name, "weight": weight})
    };
    let list: Vec<Value> = file.objects("resources").into_iter().map(resource).collect();
    if list.is_empty() { default_resources() } else { list }
}

fn default_resources() -> Vec<Value> {
    vec![json!({"name": "cpu", "weight": 1}), json!({"name": "memory", "weight": 1})]
}

/// `shape`: points of a curve.
fn shape(file: &mut Object<'_>) -> Vec<Value> {
    let point = |mut file: Object<'_>| {
        let utilization = file.i32("utilization").unwrap_or(0);
        let score = file.i32("score").unwrap_or(0);
        json!({"utilization": utilization, "score": score})
    };
    file.objects("shape").into_iter().map(point).collect()
}

fn pod_topology_spread(file: &mut Object<'_>, fields: &mut Fields) {
    let constraints = file.objects("defaultConstraints").into_iter();
    put_list(fields, "defaultConstraints", constraints.map(objects::spread_constraint).collect());
    let kind = file.text("defaultingType").unwrap_or_else(|| "System".to_owned());
    put(fields, "defaultingType", kind);
}

fn volume_binding(file: &mut Object<'_>, fields: &mut Fields) {
    put(fields, "bindTimeoutSeconds", file.i64("bindTimeoutSeconds").unwrap_or(600));
    let mut points = shape(file);
    if points.is_empty() {
        points =
            vec![json!({"utilization": 0, "score": 10}), json!({"utilization": 100, "score": 0})];
    }
    put(fields, "shape", points);
}
