//! From a document to an object the core knows.

use anyhow::{Result, anyhow, bail};
use muster_api::k8s;
use muster_core::gang::Api;
use muster_core::io::Object;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::file::Document;

/// What a document is.
#[derive(Clone)]
pub(crate) enum Decoded {
    Node(Box<k8s::Node>),
    Pod(Box<k8s::Pod>),
    Object(Box<Object>),
    /// Of a kind that no plugin reads.
    Unread(String),
}

/// Decodes a document; what has no namespace and needs one is in `default`.
pub(crate) fn decode(document: &Document) -> Result<Decoded> {
    let value = &document.value;
    let Some(kind) = value["kind"].as_str() else {
        bail!("{}: kind: Required value: every object needs apiVersion and kind", document.place());
    };
    let group = value["apiVersion"].as_str().unwrap_or_default();
    let known = match kind {
        "Node"
        | "Pod"
        | "Namespace"
        | "Service"
        | "ReplicationController"
        | "PersistentVolume"
        | "PersistentVolumeClaim" => group == "v1",
        "ReplicaSet" | "StatefulSet" => group == "apps/v1",
        "PodDisruptionBudget" => group == "policy/v1",
        "PriorityClass" => group == "scheduling.k8s.io/v1",
        "PodGroup" => POD_GROUPS.contains(&group),
        "ClusterTopology" | "SchedulingPolicy" | "NodeTopology" => group == "muster.dev/v1alpha1",
        "NodeResourceTopology" => group == "topology.node.k8s.io/v1alpha2",
        _ => group == "storage.k8s.io/v1",
    };
    let object = match kind {
        _ if !known => return Ok(Decoded::Unread(kind.to_owned())),
        "Node" => return Ok(Decoded::Node(Box::new(read(document, "nodes")?))),
        "Pod" => {
            let pod = placed(read(document, "pods")?, |pod: &mut k8s::Pod| &mut pod.metadata);
            return Ok(Decoded::Pod(Box::new(pod)));
        }
        "Namespace" => Object::Namespace(read(document, "namespaces")?),
        "Service" => Object::Service(placed(read(document, "services")?, |o| &mut o.metadata)),
        "ReplicationController" => {
            Object::ReplicationController(placed(read(document, "replicationcontrollers")?, |o| {
                &mut o.metadata
            }))
        }
        "ReplicaSet" => {
            Object::ReplicaSet(placed(read(document, "replicasets")?, |o| &mut o.metadata))
        }
        "StatefulSet" => {
            Object::StatefulSet(placed(read(document, "statefulsets")?, |o| &mut o.metadata))
        }
        "PersistentVolume" => Object::PersistentVolume(read(document, "persistentvolumes")?),
        "PersistentVolumeClaim" => {
            Object::PersistentVolumeClaim(placed(read(document, "persistentvolumeclaims")?, |o| {
                &mut o.metadata
            }))
        }
        "StorageClass" => Object::StorageClass(read(document, "storageclasses")?),
        "CSINode" => Object::CSINode(read(document, "csinodes")?),
        "CSIDriver" => Object::CSIDriver(read(document, "csidrivers")?),
        "CSIStorageCapacity" => Object::CSIStorageCapacity(read(document, "csistoragecapacities")?),
        "PodDisruptionBudget" => {
            Object::PodDisruptionBudget(placed(read(document, "poddisruptionbudgets")?, |o| {
                &mut o.metadata
            }))
        }
        "PriorityClass" => Object::PriorityClass(read(document, "priorityclasses")?),
        "PodGroup" => pod_group(document, group)?,
        "ClusterTopology" => Object::ClusterTopology(read(document, "clustertopologies")?),
        "NodeTopology" => Object::NodeTopology(read(document, "nodetopologies")?),
        "NodeResourceTopology" => {
            Object::NodeResourceTopology(read(document, "noderesourcetopologies")?)
        }
        "SchedulingPolicy" => Object::SchedulingPolicy(read(document, "schedulingpolicies")?),
        "VolumeAttachment" => Object::VolumeAttachment(read(document, "volumeattachments")?),
        other => return Ok(Decoded::Unread(other.to_owned())),
    };
    Ok(Decoded::Object(Box::new(object)))
}

/// APIs that have a kind `PodGroup`, in the order of [`Api`].
const POD_GROUPS: [&str; Api::COUNT] =
    ["muster.dev/v1alpha1", "scheduling.k8s.io/v1beta1", "scheduling.x-k8s.io/v1alpha1"];

fn pod_group(document: &Document, group: &str) -> Result<Object> {
    let resource = "podgroups";
    Ok(match POD_GROUPS.iter().position(|known| *known == group) {
        Some(1) => Object::NativePodGroup(placed(read(document, resource)?, |o| &mut o.metadata)),
        Some(2) => {
            Object::CoschedulingPodGroup(placed(read(document, resource)?, |o| &mut o.metadata))
        }
        _ => Object::PodGroup(placed(read(document, resource)?, |o| &mut o.metadata)),
    })
}

fn placed<T>(mut object: T, metadata: impl Fn(&mut T) -> &mut k8s::ObjectMeta) -> T {
    let meta = metadata(&mut object);
    if meta.namespace.is_empty() {
        meta.namespace = "default".into();
    }
    object
}

fn read<T: DeserializeOwned>(document: &Document, resource: &str) -> Result<T> {
    let name = document.value["metadata"]["name"].as_str().unwrap_or_default();
    let place = document.place();
    if name.is_empty() {
        bail!("{resource} ({place}): metadata.name: Required value: give the object a name");
    }
    T::deserialize(&document.value).map_err(|error| {
        let wrong = find_wrong::<T>(&document.value, &error.to_string());
        let (path, problem) = wrong.unwrap_or_else(|| (String::new(), error.to_string()));
        let at = if path.is_empty() { String::new() } else { format!("{path}: ") };
        anyhow!("{resource} {name:?} ({place}): {at}{problem}")
    })
}

/// The path of the value at fault: the smallest one without which the error is
/// no longer the same. serde itself does not say where it is.
fn find_wrong<T: DeserializeOwned>(whole: &Value, error: &str) -> Option<(String, String)> {
    let same = |candidate: &Value| {
        T::deserialize(candidate).err().is_some_and(|found| found.to_string() == error)
    };
    let mut path: Vec<String> = Vec::new();
    'deeper: loop {
        let current = at(whole, &path)?;
        let children: Vec<String> = match current {
            Value::Object(map) => map.keys().cloned().collect(),
            Value::Array(list) => (0..list.len()).map(|i| i.to_string()).collect(),
            _ => break,
        };
        for child in children {
            let mut without = whole.clone();
            match at_mut(&mut without, &path)? {
                Value::Object(map) => drop(map.remove(&child)),
                Value::Array(list) => drop(list.remove(child.parse().ok()?)),
                _ => {}
            }
            // No field must be there, so leaving one out is no error of its own.
            if !same(&without) {
                path.push(child);
                continue 'deeper;
            }
        }
        break;
    }
    if path.is_empty() {
        return None;
    }
    let value = at(whole, &path)?;
    Some((spell(whole, &path), describe(value, error)))
}

fn describe(value: &Value, error: &str) -> String {
    match value {
        Value::String(text) if error.starts_with("quantity ") => format!(
            "invalid quantity {text:?}; write a number with an optional unit, such as 500m, 2 or 4Gi"
        ),
        Value::String(text) if error.starts_with("invalid time") => {
            format!("invalid time {text:?}; write it as 2026-01-31T12:00:00Z")
        }
        _ => format!("{}; correct the value or leave the field out", error.trim_end_matches('.')),
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, step| match value {
        Value::Object(map) => map.get(step),
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

fn at_mut<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| match value {
        Value::Object(map) => map.get_mut(step),
        Value::Array(list) => list.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// `spec.containers[0].resources`: positions in brackets.
fn spell(whole: &Value, path: &[String]) -> String {
    let mut text = String::new();
    for (i, step) in path.iter().enumerate() {
        match at(whole, &path[..i]) {
            Some(Value::Array(_)) => text += &format!("[{step}]"),
            _ if text.is_empty() => text += step,
            _ => text += &format!(".{step}"),
        }
    }
    text
}
