//! Guarded decoding: one malformed object costs that object, not the stream.
//!
//! An object is first cut out of the stream as it stands, then decoded; if that
//! fails, its name and version are still read, so that the log can name it, a
//! deletion still counts and the watch goes on from the right place.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use muster_core::io::ObjectKey;
use serde::de::Deserializer;
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use super::Watched;

/// An object as far as it could be understood.
#[derive(Clone, Debug)]
pub struct Guarded<T> {
    /// The object, or what is known of it and why it is not the object.
    pub object: Result<Box<T>, Outline>,
    /// What kube's watcher reads of an object: the resource version.
    meta: ObjectMeta,
}

/// A malformed object.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Which object.
    pub key: ObjectKey,
    /// What is wrong with it.
    pub error: String,
}

impl<T: Watched> Guarded<T> {
    /// Decodes an object from its JSON text.
    fn decode(text: &str) -> Self {
        let (object, version) = match serde_json::from_str::<Box<T>>(text) {
            Ok(object) => {
                let version = object.metadata().resource_version.clone();
                (Ok(object), version)
            }
            Err(error) => {
                let (outline, version) = outline(text, &error);
                (Err(outline), version)
            }
        };
        let meta = ObjectMeta { resource_version: Some(version), ..ObjectMeta::default() };
        Self { object, meta }
    }

    /// Which object this is.
    pub fn key(self) -> ObjectKey {
        match self.object {
            Err(outline) => outline.key,
            Ok(object) => {
                let meta = object.metadata();
                ObjectKey {
                    namespace: meta.namespace.clone(),
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                }
            }
        }
    }
}

/// Reads name and version of an object of which only those may be sound.
fn outline(text: &str, error: &serde_json::Error) -> (Outline, String) {
    let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let field = |name: &str| {
        let text = value["metadata"][name].as_str();
        text.unwrap_or_default().to_owned()
    };
    let key = ObjectKey { namespace: field("namespace"), name: field("name"), uid: field("uid") };
    let error = error.to_string();
    (Outline { key, error }, field("resourceVersion"))
}

impl<'de, T: Watched> Deserialize<'de> for Guarded<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        // Borrowed where the whole text is in memory, which is what kube does.
        let raw = <&'de RawValue>::deserialize(d).map_err(de::Error::custom)?;
        Ok(Self::decode(raw.get()))
    }
}

impl<T: Watched> Resource for Guarded<T> {
    type DynamicType = ();
    type Scope = kube::core::DynamicResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        T::NAME.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        T::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        T::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        T::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{ObjectList, WatchEvent};
    use muster_api::k8s::Pod;

    use super::*;

    #[test]
    fn a_sound_object_is_decoded_in_a_watch() {
        let line = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a",
            "namespace":"n","uid":"u","resourceVersion":"7"},"spec":{"nodeName":"x"}}}"#;
        let event: WatchEvent<Guarded<Pod>> = serde_json::from_str(line).unwrap();
        let WatchEvent::Added(guarded) = event else { panic!("{event:?}") };
        assert_eq!(guarded.meta.resource_version.as_deref(), Some("7"));
        let pod = guarded.object.unwrap();
        assert_eq!((pod.metadata.name.as_str(), pod.spec.node_name.as_str()), ("a", "x"));
    }

    #[test]
    fn one_malformed_object_does_not_spoil_a_list() {
        let page = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[
            {"metadata":{"name":"good","namespace":"n","uid":"1","resourceVersion":"3"}},
            {"metadata":{"name":"bad","namespace":"n","uid":"2","resourceVersion":"4"},
             "spec":{"priority":"high"}}]}"#;
        let list: ObjectList<Guarded<Pod>> = serde_json::from_str(page).unwrap();
        let [good, bad] = <[_; 2]>::try_from(list.items).unwrap();
        assert!(good.object.is_ok());
        assert_eq!(bad.meta.resource_version.as_deref(), Some("4"));
        let outline = bad.object.unwrap_err();
        assert_eq!(outline.key.name, "bad");
        assert!(outline.error.contains("invalid type"), "{}", outline.error);
    }

    #[test]
    fn a_malformed_object_still_has_a_key() {
        let text = r#"{"metadata":{"name":"a","namespace":"n","uid":"u","labels":[1]}}"#;
        let key = Guarded::<Pod>::decode(text).key();
        assert_eq!((key.name.as_str(), key.uid.as_str()), ("a", "u"));
    }
}
