//! What a watch shows, in the core's words, as the live watch translates it.
//!
//! Owns what can be decoded: what cannot is skipped, but a deletion still counts. Must
//! never look at the store.

use std::sync::Arc;

use muster_api::k8s::{self, Node, ObjectMeta, Pod};
use muster_api::muster::{ClusterTopology, NodeTopology, PodGroup, SchedulingPolicy};
use muster_core::io::{Change, Input, Kind, Object, ObjectKey};

use crate::model::api::Notice;
use crate::model::objects::is_terminal;

fn key(meta: &ObjectMeta) -> ObjectKey {
    ObjectKey { namespace: meta.namespace.clone(), name: meta.name.clone(), uid: meta.uid.clone() }
}

/// An event of the watch of a kind.
pub(crate) fn read(kind: Kind, notice: &Notice) -> Option<Input> {
    match notice {
        Notice::Node { object, deleted: true, .. } => {
            Some(Input::Node(Change::Delete(key(&object.metadata))))
        }
        Notice::Node { object, broken, .. } => read_node(object, *broken),
        Notice::Pod { object, deleted: true, .. } if kind == Kind::EndedMember => {
            Some(Input::Ended(kind, Change::Delete(key(&object.metadata))))
        }
        Notice::Pod { object, deleted, .. }
            if kind == Kind::Pod && (*deleted || is_terminal(object)) =>
        {
            // By the field selector a pod that ended is as good as deleted.
            Some(Input::Pod(Change::Delete(key(&object.metadata))))
        }
        Notice::Pod { object, broken, .. } => read_pod(kind, object, *broken),
        Notice::Object { object, deleted: true, .. } => {
            Some(Input::ObjectGone(kind, key(object.metadata())))
        }
        Notice::Object { object, broken, .. } => read_object(object, *broken),
    }
}

/// A node of a list or a watch.
pub(crate) fn read_node(node: &Arc<Node>, broken: bool) -> Option<Input> {
    let node = if broken { garbled(&node.metadata.name, "taints")? } else { Node::clone(node) };
    Some(Input::Node(Change::Upsert(Box::new(node))))
}

/// A pod of a list or a watch: of pods that have not ended, or of members that have.
pub(crate) fn read_pod(kind: Kind, pod: &Arc<Pod>, broken: bool) -> Option<Input> {
    let pod = if broken { garbled(&pod.metadata.name, "priority")? } else { Pod::clone(pod) };
    let change = Change::Upsert(Box::new(pod));
    Some(if kind == Kind::EndedMember { Input::Ended(kind, change) } else { Input::Pod(change) })
}

/// An object of another kind.
pub(crate) fn read_object(object: &Object, broken: bool) -> Option<Input> {
    let name = &object.metadata().name;
    let object = match object {
        Object::PriorityClass(_) if broken => {
            let text = r#"{"value":"garbled"}"#;
            Object::PriorityClass(serde_json::from_str::<k8s::PriorityClass>(text).ok()?)
        }
        Object::PodGroup(_) if broken => Object::PodGroup(garbled::<PodGroup>(name, "roles")?),
        Object::SchedulingPolicy(_) if broken => {
            Object::SchedulingPolicy(garbled::<SchedulingPolicy>(name, "scoreWeights")?)
        }
        Object::ClusterTopology(_) if broken => {
            Object::ClusterTopology(garbled::<ClusterTopology>(name, "levels")?)
        }
        Object::NodeTopology(_) if broken => {
            let text = r#"{"status":{"devices":"garbled"}}"#;
            Object::NodeTopology(serde_json::from_str::<NodeTopology>(text).ok()?)
        }
        _ if broken => Object::PodDisruptionBudget(garbled(name, "selector")?),
        whole => whole.clone(),
    };
    Some(Input::Object(Box::new(object)))
}

/// An object with a field of the wrong type, through the decoder of the live watch.
fn garbled<T: serde::de::DeserializeOwned>(name: &str, field: &str) -> Option<T> {
    let text = format!(r#"{{"metadata":{{"name":"{name}"}},"spec":{{"{field}":"garbled"}}}}"#);
    serde_json::from_str(&text).ok()
}
