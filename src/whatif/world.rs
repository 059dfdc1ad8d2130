//! The objects of a cluster as somebody saw them at one moment.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::Result;
use muster_api::k8s::{Node, Pod, Time};
use muster_core::gang::Api;
use serde::Serialize;
use serde_json::Value;

use crate::explain::{Decoded, Document, decode};

/// Which object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Kinds without a namespace, of those that are read.
const CLUSTER_WIDE: [&str; 12] = [
    "Node",
    "Namespace",
    "PersistentVolume",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "VolumeAttachment",
    "PriorityClass",
    "ClusterTopology",
    "SchedulingPolicy",
    "NodeTopology",
    "NodeResourceTopology",
];

/// Versions of the kinds of pod groups, in the order of [`Api::ALL`].
const POD_GROUPS: [&str; Api::COUNT] =
    ["muster.dev/v1alpha1", "scheduling.k8s.io/v1beta1", "scheduling.x-k8s.io/v1alpha1"];

impl Key {
    /// The key of an object; nothing if it has no kind or name.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        let mut namespace = text(&object["metadata"]["namespace"]);
        if namespace.is_empty() && !CLUSTER_WIDE.contains(&kind.as_str()) {
            "default".clone_into(&mut namespace);
        }
        let named = !kind.is_empty() && !name.is_empty();
        named.then_some(Self { api_version, kind, namespace, name })
    }

    /// The key of a pod.
    #[must_use]
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::new("v1", "Pod", namespace, name)
    }

    /// The key of a node.
    #[must_use]
    pub fn node(name: &str) -> Self {
        Self::new("v1", "Node", "", name)
    }

    /// The key of a pod group.
    #[must_use]
    pub fn group(api: Api, namespace: &str, name: &str) -> Self {
        Self::new(POD_GROUPS[api as usize], "PodGroup", namespace, name)
    }

    fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// `namespace/name`, or the name of what has no namespace.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// An object as it came, and as the core knows it.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) value: Value,
    pub(super) decoded: Decoded,
}

/// All objects that were seen.
#[derive(Clone, Default)]
pub struct World {
    pub(super) items: BTreeMap<Key, Item>,
    /// Kinds that nothing reads, and how many objects of each there are.
    pub skipped: BTreeMap<String, usize>,
    now: Time,
}

impl World {
    /// The objects of a file or a list. It is as late as the newest time that is named, unless
    /// `now` is said.
    ///
    /// # Errors
    ///
    /// If an object cannot be decoded: it is named, with the field and the remedy.
    pub fn new(documents: Vec<Document>, now: Option<Time>) -> Result<Self> {
        let mut world = Self::default();
        let mut newest = Time::default();
        for document in documents {
            if now.is_none() {
                newest = newest.max(newest_in(&document.value));
            }
            world.put(document)?;
        }
        world.now = now.unwrap_or(newest);
        Ok(world)
    }

    /// Adds an object, or puts it in place of an older one.
    ///
    /// # Errors
    ///
    /// If it cannot be decoded.
    pub fn put(&mut self, document: Document) -> Result<()> {
        match decode(&document)? {
            Decoded::Unread(kind) => *self.skipped.entry(kind).or_default() += 1,
            decoded => {
                let value = document.value;
                if let Some(key) = Key::of(&value) {
                    self.items.insert(key, Item { value, decoded });
                }
            }
        }
        Ok(())
    }

    /// Takes an object away.
    pub fn remove(&mut self, key: &Key) {
        self.items.remove(key);
    }

    /// The moment.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// An object as it came.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Value> {
        self.items.get(key).map(|item| &item.value)
    }

    /// Objects of a kind as they came, whatever its group.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = (&Key, &Value)> {
        let of = self.items.iter().filter(move |(key, _)| key.kind == kind);
        of.map(|(key, item)| (key, &item.value))
    }

    /// A pod.
    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&Pod> {
        match self.items.get(key).map(|item| &item.decoded) {
            Some(Decoded::Pod(pod)) => Some(pod),
            _ => None,
        }
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = (&Key, &Pod)> {
        self.items.iter().filter_map(|(key, item)| match &item.decoded {
            Decoded::Pod(pod) => Some((key, &**pod)),
            _ => None,
        })
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.items.values().filter_map(|item| match &item.decoded {
            Decoded::Node(node) => Some(&**node),
            _ => None,
        })
    }

    /// Members of a pod group that have not ended, in order of names.
    #[must_use]
    pub fn members(&self, api: Api, namespace: &str, name: &str) -> Vec<(&Key, &Pod)> {
        let of = |(key, pod): &(&Key, &Pod)| {
            key.namespace == namespace && Api::of(pod) == Some((api, name)) && !ended(pod)
        };
        self.pods().filter(of).collect()
    }
}

/// Whether a pod has ended.
#[must_use]
pub fn ended(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

/// The newest time in the status of an object, or that of its creation.
fn newest_in(object: &Value) -> Time {
    let created = time(&object["metadata"]["creationTimestamp"]);
    created.max(newest_below(&object["status"]))
}

fn newest_below(value: &Value) -> Time {
    match value {
        Value::Object(map) => {
            map.iter()
                .map(|(name, value)| match name.as_str() {
                    "lastTransitionTime" | "startTime" | "startedAt" | "finishedAt"
                    | "observedAt" => time(value),
                    _ => newest_below(value),
                })
                .max()
                .unwrap_or_default()
        }
        Value::Array(list) => list.iter().map(newest_below).max().unwrap_or_default(),
        _ => Time::default(),
    }
}

fn time(value: &Value) -> Time {
    value.as_str().and_then(|text| Time::parse(text).ok()).unwrap_or_default()
}
