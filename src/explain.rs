//! `explain` from a list of Kubernetes objects, without a cluster.
//!
//! Owns the way from objects to an [`Explanation`](muster_core::Explanation).
//! Must never schedule: it asks the very plugins that the scheduler runs.

use anyhow::{Context as _, Result, anyhow, bail};
use muster_api::k8s;
use muster_core::io::{Change, Input, Object, Tick};
use muster_core::{Config, Core, Profile};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::profile::profile_from_json;

/// Explains a pod (`namespace/name`) among `objects`: nodes, pods that occupy them,
/// namespaces, services and controllers. Kinds that no plugin reads are ignored. `profile` is one item of
/// `profiles` in a `KubeSchedulerConfiguration`; without it the default holds.
pub fn explain_objects(objects: &[Value], pod: &str, profile: Option<&Value>) -> Result<Value> {
    let profile = match profile {
        Some(json) => profile_from_json(json)?,
        None => Profile::default_named("muster"),
    };
    let config = Config { profiles: vec![profile], ..Config::default() };
    let mut core = Core::new(config);
    let now = Tick(0);
    let mut target = None;
    for (i, object) in objects.iter().enumerate() {
        match object["kind"].as_str() {
            Some("Node") => {
                let node: k8s::Node = decode(object, i)?;
                core.apply(now, Input::Node(Change::Upsert(Box::new(node))));
            }
            Some("Pod") => {
                let mut wire: k8s::Pod = decode(object, i)?;
                if wire.metadata.namespace.is_empty() {
                    wire.metadata.namespace = "default".into();
                }
                let name = format!("{}/{}", wire.metadata.namespace, wire.metadata.name);
                if name == pod {
                    target = Some(wire);
                } else {
                    core.apply(now, Input::Pod(Change::Upsert(Box::new(wire))));
                }
            }
            Some("Namespace") => related(&mut core, Object::Namespace(decode(object, i)?)),
            Some("Service") => related(&mut core, Object::Service(decode(object, i)?)),
            Some("ReplicationController") => {
                related(&mut core, Object::ReplicationController(decode(object, i)?));
            }
            Some("ReplicaSet") => related(&mut core, Object::ReplicaSet(decode(object, i)?)),
            Some("StatefulSet") => related(&mut core, Object::StatefulSet(decode(object, i)?)),
            Some(_) => {}
            None => {
                bail!("objects[{i}]: kind: Required value: every object needs apiVersion and kind")
            }
        }
    }
    let target = target.ok_or_else(|| {
        anyhow!("pod {pod:?} is not among the {} objects: name it as namespace/name", objects.len())
    })?;
    let explanation = core.explain_pod(now, &target, 0);
    serde_json::to_value(explanation).context("writing the explanation")
}

fn related(core: &mut Core, object: Object) {
    core.apply(Tick(0), Input::Object(Box::new(object)));
}

fn decode<T: DeserializeOwned>(object: &Value, i: usize) -> Result<T> {
    T::deserialize(object).map_err(|error| {
        let name = object["metadata"]["name"].as_str().unwrap_or("?");
        anyhow!("objects[{i}] ({} {name}): {error}", object["kind"].as_str().unwrap_or("?"))
    })
}
