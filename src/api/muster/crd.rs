//! Definitions of Muster's kinds, as they are applied to a cluster.
//!
//! Owns everything of a definition that is not in the types: names, columns and
//! the rules that need the whole object.

use serde_json::{Value, json};

use super::node_topology::{Hardware, KubeletSettings, NodeTopologyStatus};
use super::schema;
use super::{
    ClusterTopology, ClusterTopologySpec, ClusterTopologyStatus, GROUP, NodeTopology, PodGroup,
    PodGroupSpec, PodGroupStatus, SchedulingPolicy, SchedulingPolicySpec, SchedulingPolicyStatus,
    VERSION,
};

/// Every definition, in the order in which they are printed.
#[must_use]
pub fn crds() -> Vec<Value> {
    vec![pod_group(), cluster_topology(), scheduling_policy(), node_topology()]
}

/// Longest name: members name their group in a label.
const MAX_NAME: usize = 63;
/// Longest name of a cluster-scoped kind: as the API server has it.
const MAX_CLUSTER_NAME: usize = 253;
/// What holds while a member is placed.
const TOPOLOGY: &str = "!has(self.status) || !has(self.status.members) \
    || !has(self.status.members.scheduled) || self.status.members.scheduled == 0 \
    || (has(self.spec.topology) == has(oldSelf.spec.topology) \
    && (!has(self.spec.topology) || self.spec.topology == oldSelf.spec.topology))";
/// The same of roles that were there before.
const ROLE_TOPOLOGY: &str = "!has(self.status) || !has(self.status.members) \
    || !has(self.status.members.scheduled) || self.status.members.scheduled == 0 \
    || !has(self.spec.roles) || !has(oldSelf.spec.roles) \
    || self.spec.roles.all(r, oldSelf.spec.roles.all(o, o.name != r.name \
    || (has(r.topology) == has(o.topology) && (!has(r.topology) || r.topology == o.topology))))";

fn pod_group() -> Value {
    let columns = json!([
        column("Min", "integer", ".status.minMember", "How many must be placed together."),
        column("Ready", "integer", ".status.members.ready", "Members that run or have succeeded."),
        column("Phase", "string", ".status.phase", "Where the group is on its way."),
        column("Reason", "string", ".status.reason", "Why it is in this phase."),
        column("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
    ]);
    let rules = json!([
        {
            "rule": TOPOLOGY,
            "fieldPath": ".spec.topology",
            "reason": "FieldValueForbidden",
            "message": "may be changed only while no member is placed",
        },
        {
            "rule": ROLE_TOPOLOGY,
            "fieldPath": ".spec.roles",
            "reason": "FieldValueForbidden",
            "message": "topology of a role may be changed only while no member is placed",
        },
    ]);
    Definition {
        kind: PodGroup::KIND,
        plural: PodGroup::PLURAL,
        singular: "podgroup",
        short: "mpg",
        scope: "Namespaced",
        description: "A gang: pods that start together or not at all. A pod is a member if its \
            label muster.dev/pod-group has the group's name.",
        max_name: MAX_NAME,
        columns,
        parts: vec![
            ("spec", schema::of::<PodGroupSpec>()),
            ("status", schema::of::<PodGroupStatus>()),
        ],
        rules: Some(rules),
    }
    .into_value()
}

fn cluster_topology() -> Value {
    let accepted = ".status.conditions[?(@.type==\"Accepted\")].status";
    let columns = json!([
        column("Levels", "string", ".spec.levels[*].name", "The levels, widest first."),
        column("Domains", "string", ".status.levels[*].domains", "Domains of each level."),
        column("Accepted", "string", accepted, "Whether groups may ask for its levels."),
        column("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
    ]);
    Definition {
        kind: ClusterTopology::KIND,
        plural: ClusterTopology::PLURAL,
        singular: "clustertopology",
        short: "mct",
        scope: "Cluster",
        description: "The levels of the network between nodes, widest first, each told by a node \
            label. Pod groups ask for levels by name.",
        max_name: MAX_CLUSTER_NAME,
        columns,
        parts: vec![
            ("spec", schema::of::<ClusterTopologySpec>()),
            ("status", schema::of::<ClusterTopologyStatus>()),
        ],
        rules: None,
    }
    .into_value()
}

fn scheduling_policy() -> Value {
    let accepted = ".status.conditions[?(@.type==\"Accepted\")]";
    let columns = json!([
        column("Priority", "integer", ".spec.priority", "Which policy wins."),
        column("Pods", "integer", ".status.governedPods", "Pods that it governs."),
        column("Accepted", "string", &format!("{accepted}.status"), "Whether it is in force."),
        column("Reason", "string", &format!("{accepted}.reason"), "Why it is, or is not."),
        column("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
    ]);
    Definition {
        kind: SchedulingPolicy::KIND,
        plural: SchedulingPolicy::PLURAL,
        singular: "schedulingpolicy",
        short: "msp",
        scope: "Cluster",
        description: "How the pods it governs are placed: weights of scores, full or empty nodes \
            first, what holds for gangs that leave it out. A change acts on the next pod that is \
            placed, without a restart.",
        max_name: MAX_CLUSTER_NAME,
        columns,
        parts: vec![
            ("spec", schema::of::<SchedulingPolicySpec>()),
            ("status", schema::of::<SchedulingPolicyStatus>()),
        ],
        rules: None,
    }
    .into_value()
}

fn node_topology() -> Value {
    let condition = |kind: &str| format!(".status.conditions[?(@.type==\"{kind}\")].status");
    let columns = json!([
        column("Model", "string", ".hardware.gpus[0].model", "The model of its first GPU."),
        column("Policy", "string", ".kubelet.topologyManager.policy", "What the kubelet aligns."),
        column("Healthy", "string", &condition("GpusHealthy"), "Whether no GPU is lost or broken."),
        column("Fabric", "string", &condition("FabricReady"), "Whether NVLink is whole."),
        column("Seen", "date", ".status.observedAt", "Time since the last change."),
        column("Age", "date", ".metadata.creationTimestamp", "Time since it was created."),
    ]);
    Definition {
        kind: NodeTopology::KIND,
        plural: NodeTopology::PLURAL,
        singular: "nodetopology",
        short: "mnt",
        scope: "Cluster",
        description: "What a node is inside: NUMA nodes, GPUs, links and NICs, the settings of its \
            kubelet, and what of it is in use. Written by the node agent; its name is the node's.",
        max_name: MAX_CLUSTER_NAME,
        columns,
        parts: vec![
            ("hardware", schema::of::<Hardware>()),
            ("kubelet", schema::of::<KubeletSettings>()),
            ("status", schema::of::<NodeTopologyStatus>()),
        ],
        rules: None,
    }
    .into_value()
}

/// What differs from kind to kind.
struct Definition {
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static str,
    scope: &'static str,
    description: &'static str,
    max_name: usize,
    columns: Value,
    /// The object's own fields. One with a spec needs it, and has its status written apart
    /// from it; one without is written whole.
    parts: Vec<(&'static str, Value)>,
    /// Rules that need the whole object.
    rules: Option<Value>,
}

impl Definition {
    fn into_value(self) -> Value {
        let Self { kind, plural, .. } = self;
        let mut schema = json!({
            "type": "object",
            "description": self.description,
            "properties": {
                "apiVersion": {"type": "string", "description": format!(
                    "The version of the API, {GROUP}/{VERSION}."
                )},
                "kind": {"type": "string", "description": format!("The kind, {kind}.")},
                "metadata": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": self.max_name}},
                },
            },
        });
        let mut version = json!({
            "name": VERSION,
            "served": true,
            "storage": true,
            "additionalPrinterColumns": self.columns,
        });
        if self.parts.iter().any(|(name, _)| *name == "spec") {
            schema["required"] = json!(["spec"]);
            version["subresources"] = json!({"status": {}});
        }
        for (name, part) in self.parts {
            schema["properties"][name] = part;
        }
        if let Some(rules) = self.rules {
            schema["x-kubernetes-validations"] = rules;
        }
        version["schema"] = json!({"openAPIV3Schema": schema});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{GROUP}")},
            "spec": {
                "group": GROUP,
                "scope": self.scope,
                "names": {
                    "kind": kind,
                    "listKind": format!("{kind}List"),
                    "plural": plural,
                    "singular": self.singular,
                    "shortNames": [self.short],
                    "categories": ["muster"],
                },
                "versions": [version],
            },
        })
    }
}

/// A column of `kubectl get`.
fn column(name: &str, kind: &str, path: &str, description: &str) -> Value {
    json!({"name": name, "type": kind, "jsonPath": path, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `visit` with the path and schema of every property.
    fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
        visit(path, schema);
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, visit);
        }
        for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if schema[key].is_object() {
                walk(&format!("{path}{suffix}"), &schema[key], visit);
            }
        }
    }

    fn each_property(mut visit: impl FnMut(&str, &Value)) {
        for crd in crds() {
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let name = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
            let parts = schema["properties"].as_object().unwrap();
            for (part, schema) in parts {
                if !["apiVersion", "kind", "metadata"].contains(&part.as_str()) {
                    walk(&format!("{name}.{part}"), schema, &mut visit);
                }
            }
        }
    }

    #[test]
    fn every_property_is_described_in_one_line_per_paragraph() {
        each_property(|path, schema| {
            if path.ends_with("{}") || (path.ends_with("[]") && schema["type"] != "object") {
                return; // values of a map or list: the map or list is described
            }
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(text.len() > 8, "{path} has no description: {schema}");
            assert!(!text.replace("\n\n", "").contains('\n'), "{path}: {text:?}");
        });
    }

    #[test]
    fn every_property_has_one_type_and_nothing_that_a_structural_schema_forbids() {
        let forbidden =
            ["$ref", "$schema", "definitions", "$defs", "anyOf", "oneOf", "title", "const"];
        each_property(|path, schema| {
            assert!(schema["type"].is_string(), "{path}: {schema}");
            let mut names = schema["enum"].as_array().into_iter().flatten();
            assert!(names.all(Value::is_string), "{path}: {schema}");
            for key in forbidden {
                assert!(schema.get(key).is_none(), "{path} has {key}: {schema}");
            }
        });
    }

    #[test]
    fn every_field_outside_of_a_status_has_a_limit() {
        each_property(|path, schema| {
            if path.contains(".status") {
                return;
            }
            let limits: &[&str] = match schema["type"].as_str().unwrap() {
                "integer" => &["minimum", "maximum"],
                "string" if schema["enum"].is_array() => &[],
                "string" => &["maxLength", "pattern"],
                "array" => &["maxItems", "x-kubernetes-list-type"],
                "object" if schema["additionalProperties"].is_object() => &["maxProperties"],
                _ => &[],
            };
            for limit in limits {
                assert!(schema.get(*limit).is_some(), "{path} has no {limit}: {schema}");
            }
        });
    }

    #[test]
    fn only_what_the_api_defaults_has_a_default() {
        let mut found = Vec::new();
        each_property(|path, schema| {
            if let Some(default) = schema.get("default") {
                found.push(format!("{path}={default}"));
            }
        });
        assert_eq!(
            found,
            [
                r#"PodGroup.spec.disruption.mode="SurplusFirst""#,
                r#"PodGroup.spec.reservation="Atomic""#
            ]
        );
    }
}
