//! Where the members of a group shall be, relative to each other.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::labels;
use super::schema::{KEY, MAX_KEY};
use crate::k8s::nullable;

/// Most levels of segments in one request.
pub const MAX_SEGMENTS: usize = 3;

/// Where members shall be, relative to each other. Levels are named as in a
/// ClusterTopology (`rack`), or by a node label (`topology.kubernetes.io/zone`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.required) || has(self.preferred) || (has(self.segments) && self.segments.size() > 0)",
        "reason": "FieldValueRequired",
        "message": "must have at least one of required, preferred and segments",
    },
    {
        "rule": "!has(self.required) || !has(self.preferred) || self.required != self.preferred",
        "fieldPath": ".preferred",
        "reason": "FieldValueInvalid",
        "message": "must differ from required: name a narrower level, or leave it out",
    },
    {
        "rule": "!has(self.exclusive) || !self.exclusive || has(self.required)",
        "fieldPath": ".required",
        "reason": "FieldValueRequired",
        "message": "must be set when exclusive is true: it says which domain is not shared",
    },
    {
        "rule": "!has(self.segments) || self.segments.size() < 2 || self.segments[0].size % self.segments[1].size == 0",
        "fieldPath": ".segments",
        "reason": "FieldValueInvalid",
        "message": "must go from large to small, each size a multiple of the next",
    },
    {
        "rule": "!has(self.segments) || self.segments.size() < 3 || self.segments[1].size % self.segments[2].size == 0",
        "fieldPath": ".segments",
        "reason": "FieldValueInvalid",
        "message": "must go from large to small, each size a multiple of the next",
    },
]))]
pub struct TopologyRequest {
    /// All members must be in one domain of this level; until one has room for
    /// them, they wait. The name of a level, or a node label's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub required: Option<String>,
    /// Members should be in one domain of this level, or in as few and as near
    /// domains as possible. The name of a level, or a node label's key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub preferred: Option<String>,
    /// No other gang may be in the domain that `required` leads to: the gang enters
    /// none where members of others are, and none of them enters its own until its
    /// last member is gone. Pods of no gang are not concerned. Needs `required`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Members of consecutive ranks that are kept together, at most 3 levels of
    /// them, from large to small: each size must be a multiple of the next.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_SEGMENTS), extend("x-kubernetes-list-type" = "atomic"))]
    pub segments: Vec<Segment>,
    /// The pod label that holds a member's rank, a number from 0. Without it:
    /// batch.kubernetes.io/job-completion-index. Members with ranks are seated in
    /// their order along the tree of domains, segments or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub rank_label: Option<String>,
}

impl TopologyRequest {
    /// The pod label that holds a member's rank.
    #[must_use]
    pub fn rank_label(&self) -> &str {
        self.rank_label.as_deref().unwrap_or(labels::DEFAULT_RANK)
    }
}

/// Members of consecutive ranks, kept in one domain: with size 8, ranks 0 to 7 are
/// one segment, 8 to 15 the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
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
pub struct Segment {
    /// How many consecutive ranks form a segment.
    #[schemars(range(min = 1, max = 10_000))]
    pub size: i32,
    /// Each segment must be in one domain of this level. The name of a level, or a
    /// node label's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub required: Option<String>,
    /// Each segment should be in one domain of this level. The name of a level, or a
    /// node label's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_KEY), regex(pattern = KEY))]
    pub preferred: Option<String>,
}
