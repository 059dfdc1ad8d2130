//! Object metadata.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{Time, nullable};

/// The metadata fields the core reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name, unique within namespace and kind.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(deserialize_with = "nullable")]
    pub namespace: String,
    /// Unique id of this incarnation of the object.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// Opaque version, compared for equality only.
    #[serde(deserialize_with = "nullable")]
    pub resource_version: String,
    /// Spec generation.
    pub generation: Option<i64>,
    /// When the server created the object.
    pub creation_timestamp: Option<Time>,
    /// When the object will be gone; set means terminating.
    pub deletion_timestamp: Option<Time>,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// Annotations under `muster.dev/` and those of Kubernetes that a plugin
    /// reads; all others are dropped while decoding.
    #[serde(deserialize_with = "own_annotations")]
    pub annotations: BTreeMap<String, String>,
    /// Owners.
    #[serde(deserialize_with = "nullable")]
    pub owner_references: Vec<OwnerReference>,
}

/// A reference to an owning object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    /// Group and version of the owner.
    #[serde(deserialize_with = "nullable")]
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner.
    pub name: String,
    /// Incarnation of the owner.
    #[serde(deserialize_with = "nullable")]
    pub uid: String,
    /// Whether this owner is the managing controller.
    #[serde(deserialize_with = "nullable")]
    pub controller: bool,
}

const OWN_PREFIX: &str = "muster.dev/";

/// On a PriorityClass, as scheduler-plugins' PreemptionToleration has it: pods of the class
/// stay for a while unless who would push them out has at least this priority.
pub const MINIMUM_PREEMPTABLE_PRIORITY: &str =
    "preemption-toleration.scheduling.x-k8s.io/minimum-preemptable-priority";
/// On a PriorityClass: for how many seconds; less than 0 is for ever.
pub const TOLERATION_SECONDS: &str = "preemption-toleration.scheduling.x-k8s.io/toleration-seconds";

/// On a claim: the volume controller has finished binding it.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a volume: its claim was chosen by a controller, not by an administrator.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node its volume shall be made for.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume or claim: its class, before the field existed.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a CSINode: built-in volume plugins that the node has migrated to CSI.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

const READ: [&str; 7] = [
    BIND_COMPLETED,
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    BETA_STORAGE_CLASS,
    MIGRATED_PLUGINS,
    MINIMUM_PREEMPTABLE_PRIORITY,
    TOLERATION_SECONDS,
];

fn own_annotations<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Own;
    impl<'de> Visitor<'de> for Own {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map of annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut kept = BTreeMap::new();
            while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                if key.starts_with(OWN_PREFIX) || READ.contains(&&*key) {
                    kept.insert(key.into_owned(), map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(kept)
        }
    }
    d.deserialize_any(Own)
}
