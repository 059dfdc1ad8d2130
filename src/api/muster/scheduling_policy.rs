//! `SchedulingPolicy`: how the pods it governs are placed, changed while Muster runs.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::pacing_policy::PacingPolicy;
use super::pod_group::{HalfBound, MAX_SECONDS};
use super::preemption_policy::PreemptionPolicy;
use super::schema::{KEY, MAX_KEY, names, selector};
use super::status::{Condition, MAX_CONDITIONS};
use super::topology::TopologyRequest;
use crate::k8s::{LabelSelector, ObjectMeta, nullable};

/// Most plugins that one policy may weigh.
pub const MAX_WEIGHTS: usize = 64;
/// Greatest priority of a policy; the least is its negative.
pub const MAX_POLICY_PRIORITY: i32 = 1_000_000;
/// Greatest weight of a plugin.
pub const MAX_WEIGHT: i32 = 100;

/// Types of conditions of a `SchedulingPolicy`.
pub mod policy_condition {
    /// The policy is in force.
    pub const ACCEPTED: &str = "Accepted";
}

/// Reasons of conditions of a `SchedulingPolicy`.
pub mod policy_reason {
    /// It is in force.
    pub const ACCEPTED: &str = "Accepted";
    /// Something in it makes no sense; the message says what.
    pub const INVALID: &str = "Invalid";
    /// An older policy has the same priority.
    pub const PRIORITY_TAKEN: &str = "PriorityTaken";
    /// More policies exist than can be in force.
    pub const TOO_MANY: &str = "TooManyPolicies";
}

/// How the pods it governs are placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SchedulingPolicy {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: SchedulingPolicySpec,
    /// What is.
    #[serde(deserialize_with = "nullable")]
    pub status: SchedulingPolicyStatus,
}

impl SchedulingPolicy {
    /// The kind's name.
    pub const KIND: &'static str = "SchedulingPolicy";
    /// The kind's name in paths.
    pub const PLURAL: &'static str = "schedulingpolicies";
}

/// Which pods the policy governs, and how they are placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["priority"]))]
pub struct SchedulingPolicySpec {
    /// Which policy wins where several govern a pod: they are merged field by field,
    /// and of each field the value of the highest priority counts. Two policies must
    /// not have the same one: the younger of them changes nothing and says so in its
    /// condition Accepted.
    #[schemars(range(min = -MAX_POLICY_PRIORITY, max = MAX_POLICY_PRIORITY))]
    pub priority: i32,
    /// Pods of which namespaces are governed, by the labels of the Namespace. Without
    /// it: of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "governed")]
    pub namespace_selector: Option<LabelSelector>,
    /// Which pods of these namespaces are governed, by their labels. Without it: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "governed")]
    pub pod_selector: Option<LabelSelector>,
    /// Weights of Score plugins, in place of those of the scheduler's profile. Filters
    /// cannot be switched off.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_WEIGHTS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["plugin"])
    )]
    pub score_weights: Vec<ScoreWeight>,
    /// Whether full or empty nodes are preferred, in place of what the profile says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementPolicy>,
    /// Where the members of gangs shall be, relative to each other, if their PodGroup
    /// says nothing of it. Pods of no gang should be near those of the same controller,
    /// by the same levels: there none is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyDefault>,
    /// What holds for gangs whose PodGroup leaves it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangDefaults>,
    /// Whom governed pods push out and how fast, and when they are pushed out themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<PreemptionPolicy>,
    /// How fast governed pods are bound and started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing: Option<PacingPolicy>,
}

/// The weight of a Score plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScoreWeight {
    /// The plugin's name, as in the configuration of profiles: NodeResourcesFit,
    /// ImageLocality, or one of your own.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = "^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$")
    )]
    pub plugin: String,
    /// Its weight. 0: its score does not count.
    #[schemars(range(min = 0, max = MAX_WEIGHT))]
    pub weight: i32,
}

/// Whether full or empty nodes are preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.strategy != 'PackAtLowLoad' || has(self.packBelowPercent)",
        "fieldPath": ".packBelowPercent",
        "reason": "FieldValueRequired",
        "message": "must be set when strategy is PackAtLowLoad",
    },
    {
        "rule": "self.strategy != 'PackAtLowLoad' || has(self.spreadAbovePercent)",
        "fieldPath": ".spreadAbovePercent",
        "reason": "FieldValueRequired",
        "message": "must be set when strategy is PackAtLowLoad",
    },
    {
        "rule": "self.strategy == 'PackAtLowLoad' || (!has(self.packBelowPercent) && !has(self.spreadAbovePercent) && !has(self.loadResource))",
        "fieldPath": ".strategy",
        "reason": "FieldValueInvalid",
        "message": "must be PackAtLowLoad when packBelowPercent, spreadAbovePercent or loadResource is set",
    },
    {
        "rule": "!has(self.packBelowPercent) || !has(self.spreadAbovePercent) || self.packBelowPercent < self.spreadAbovePercent",
        "fieldPath": ".packBelowPercent",
        "reason": "FieldValueInvalid",
        "message": "must be below spreadAbovePercent: between the two nothing changes",
    },
]))]
pub struct PlacementPolicy {
    /// Pack: full nodes first, so that whole nodes stay free. Spread: empty nodes
    /// first. Balanced: neither counts, only that CPU and memory of a node are used
    /// evenly. PackAtLowLoad: Pack while the cluster is little used, so that nodes can
    /// sleep, Spread when it is busy. How full a node is goes by the resources that the
    /// profile's NodeResourcesFit names, else by CPU, memory and the extended resources
    /// that the pod asks for.
    pub strategy: PlacementStrategy,
    /// Of PackAtLowLoad: packing begins when less than this share of the cluster is
    /// requested, in percent. Between the two thresholds all stays as it was; at the
    /// beginning pods are packed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub pack_below_percent: Option<i32>,
    /// Of PackAtLowLoad: spreading begins when more than this share of the cluster is
    /// requested, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub spread_above_percent: Option<i32>,
    /// Of PackAtLowLoad: the resource whose use is the load, such as nvidia.com/gpu.
    /// Without it: the one of cpu, memory and the extended resources of which the
    /// greatest share is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub load_resource: Option<String>,
}

names! {
    /// Whether full or empty nodes are preferred.
    PlacementStrategy {
        /// Full nodes first.
        #[default]
        Pack,
        /// Empty nodes first.
        Spread,
        /// Neither.
        Balanced,
        /// Pack while the cluster is little used, else Spread.
        PackAtLowLoad,
    }
}

/// Where the members of gangs shall be that ask for nothing. Levels are named as in a
/// ClusterTopology (`rack`), or by a node label (`topology.kubernetes.io/zone`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.required) || has(self.preferred)",
        "reason": "FieldValueRequired",
        "message": "must have at least one of required and preferred",
    },
    {
        "rule": "!has(self.required) || !has(self.preferred) || self.required != self.preferred",
        "fieldPath": ".preferred",
        "reason": "FieldValueInvalid",
        "message": "must differ from required: name a narrower level, or leave it out",
    },
]))]
pub struct TopologyDefault {
    /// All members must be in one domain of this level. The name of a level, or a node
    /// label's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub required: Option<String>,
    /// Members should be in one domain of this level, or in as few and as near domains
    /// as possible. The name of a level, or a node label's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub preferred: Option<String>,
}

impl TopologyDefault {
    /// The same as a group would ask for it.
    #[must_use]
    pub fn request(&self) -> TopologyRequest {
        let (required, preferred) = (self.required.clone(), self.preferred.clone());
        TopologyRequest { required, preferred, ..TopologyRequest::default() }
    }
}

/// What holds for gangs whose PodGroup leaves it out. Each field is merged by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GangDefaults {
    /// How long room may be held before the minimum is bound. Without it: 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub schedule_timeout_seconds: Option<i32>,
    /// How long members may take from being bound to running, before the group's
    /// condition Started says StartTimeout. Without it: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub start_timeout_seconds: Option<i32>,
    /// How long a gang may be passed over by smaller work before room is held for it.
    /// Without it: no room is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub starvation_seconds: Option<i32>,
    /// What to do with a gang of which only a part is bound when its deadline has
    /// passed. Release: the bound members are evicted. Wait: they stay, and the rest is
    /// tried until there is room. Without it: Release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_half_bound: Option<HalfBound>,
}

/// What is, as Muster saw it last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingPolicyStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many pods it governs: pods of Muster's schedulers that wait or run and that
    /// its selectors match. 0 of a policy that is not accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governed_pods: Option<i64>,
    /// What is true of the policy. Accepted: it is in force; if it is not, the reason
    /// and the message say why, and it changes nothing.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = MAX_CONDITIONS),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
}

/// A selector of what is governed.
fn governed(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = selector(generator);
    if let Some(rules) = schema.get_mut("x-kubernetes-validations") {
        rules[0]["message"] = "must select by matchLabels or matchExpressions: leave the selector \
                               out to select everything"
            .into();
    }
    schema
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_written_again() {
        let spec = json!({
            "priority": -5,
            "namespaceSelector": {"matchLabels": {"team": "ml"}},
            "podSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
            "scoreWeights": [{"plugin": "ImageLocality", "weight": 0}],
            "placement": {"strategy": "PackAtLowLoad", "packBelowPercent": 30,
                "spreadAbovePercent": 60, "loadResource": "nvidia.com/gpu"},
            "topology": {"required": "block", "preferred": "rack"},
            "gang": {"scheduleTimeoutSeconds": 60, "startTimeoutSeconds": 90,
                "starvationSeconds": 120, "whenHalfBound": "Wait"},
            "preemption": {"victimsPerMinute": 60, "minRuntimeSeconds": 600},
            "pacing": {"bindsPerSecond": 50, "startingPodsPerNode": 4},
        });
        let read: SchedulingPolicySpec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), spec);
        let request = read.topology.unwrap().request();
        assert_eq!(request.required.as_deref(), Some("block"));
        assert_eq!(request.preferred.as_deref(), Some("rack"));
    }

    #[test]
    fn an_empty_spec_asks_for_nothing() {
        let none = json!({"metadata": {"name": "p"}, "spec": null, "status": null});
        let read: SchedulingPolicy = serde_json::from_value(none).unwrap();
        assert_eq!(read.spec, SchedulingPolicySpec::default());
        assert_eq!(read.status, SchedulingPolicyStatus::default());
    }
}
