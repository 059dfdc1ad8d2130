//! Label and node selectors as written in the API.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nullable;

/// A label selector: `matchLabels` and `matchExpressions`, all ANDed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Equality requirements.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Set-based requirements.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// One set-based requirement of a label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// Label key.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// Node selector terms, ORed.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Terms, ORed.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// One term: all requirements ANDed; an empty term matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "nullable")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields; only `metadata.name` exists.
    #[serde(deserialize_with = "nullable")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// One requirement of a node selector term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct NodeSelectorRequirement {
    /// Label or field key.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<String>,
}

/// A weighted node selector term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(default)]
pub struct PreferredSchedulingTerm {
    /// Weight, 1 to 100.
    pub weight: i32,
    /// The term.
    #[serde(deserialize_with = "nullable")]
    pub preference: NodeSelectorTerm,
}
