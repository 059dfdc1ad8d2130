//! `explain` from Kubernetes objects, without a cluster.
//!
//! Owns the way from objects to an [`Explanation`]: which kinds are read, and
//! what is said of those that cannot be. Must never schedule: it asks the very
//! plugins that the scheduler runs.

mod decode;
mod file;
mod table;

pub(crate) use decode::{Decoded, decode};
pub use file::{Document, read_documents};
pub use table::table;

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use muster_api::k8s;
use muster_core::io::{Change, Input, Tick};
use muster_core::{Config, Core, Explanation, Profile};
use serde_json::Value;

use crate::profile::profile_from_json;

/// Everything happens at once.
const NOW: Tick = Tick(0);

/// A cluster made of objects, to ask about pods.
pub struct Session {
    core: Core,
    pods: BTreeMap<String, k8s::Pod>,
    /// Kinds that no plugin reads, and how many objects of each there are.
    pub skipped: BTreeMap<String, usize>,
}

impl Session {
    /// Reads objects: every kind that a plugin reads; others are counted. Without
    /// a profile the default plugins hold.
    ///
    /// # Errors
    ///
    /// If an object cannot be decoded: it is named, with the field and the remedy.
    pub fn new(documents: &[Document], profile: Option<Profile>) -> Result<Self> {
        let profile = profile.unwrap_or_else(|| Profile::default_named("muster"));
        let config = Config { profiles: vec![profile], ..Config::default() };
        let mut session =
            Self { core: Core::new(config), pods: BTreeMap::new(), skipped: BTreeMap::new() };
        for document in documents {
            match decode(document)? {
                Decoded::Node(node) => {
                    session.core.apply(NOW, Input::Node(Change::Upsert(node)));
                }
                Decoded::Pod(pod) => session.add_pod(*pod),
                Decoded::Object(object) => session.core.apply(NOW, Input::Object(object)),
                Decoded::Unread(kind) => *session.skipped.entry(kind).or_default() += 1,
            }
        }
        Ok(session)
    }

    /// As [`Session::new`], from objects in memory and one item of `profiles` in a
    /// `KubeSchedulerConfiguration`.
    ///
    /// # Errors
    ///
    /// If an object or the profile cannot be read.
    pub fn from_objects(objects: &[Value], profile: Option<&Value>) -> Result<Self> {
        let profile = profile.map(profile_from_json).transpose()?;
        let documents: Vec<Document> =
            objects.iter().cloned().enumerate().map(Document::of).collect();
        Self::new(&documents, profile)
    }

    fn add_pod(&mut self, pod: k8s::Pod) {
        let key = format!("{}/{}", pod.metadata.namespace, pod.metadata.name);
        self.core.apply(NOW, Input::Pod(Change::Upsert(Box::new(pod.clone()))));
        self.pods.insert(key, pod);
    }

    fn pod(&self, pod: &str) -> Result<k8s::Pod> {
        self.pods.get(pod).cloned().ok_or_else(|| {
            let count = self.pods.len();
            let known: Vec<&str> = self.pods.keys().take(5).map(String::as_str).collect();
            let more = if count > known.len() { ", …" } else { "" };
            let known = known.join(", ");
            anyhow!(
                "pod {pod:?} is not among the {count} pods ({known}{more}): name it as \
                 namespace/name"
            )
        })
    }

    /// Explains a pod (`namespace/name`) as if it were not placed yet.
    ///
    /// # Errors
    ///
    /// If there is no such pod.
    pub fn explain(&mut self, pod: &str) -> Result<Explanation> {
        let wire = self.pod(pod)?;
        Ok(self.core.explain_pod(NOW, &wire, 0))
    }

    /// Places a pod on a node; later questions see it there.
    ///
    /// # Errors
    ///
    /// If there is no such pod or node, or a plugin refuses at Reserve.
    pub fn place(&mut self, pod: &str, node: &str) -> Result<()> {
        let wire = self.pod(pod)?;
        self.core.place_pod(NOW, &wire, 0, node).map_err(|error| anyhow!("{pod}: {error}"))
    }
}

/// Explains a pod (`namespace/name`) among `objects`. `profile` is one item of
/// `profiles` in a `KubeSchedulerConfiguration`; without it the default holds.
///
/// # Errors
///
/// If an object or the profile cannot be read, or the pod is not there.
pub fn explain_objects(objects: &[Value], pod: &str, profile: Option<&Value>) -> Result<Value> {
    let explanation = Session::from_objects(objects, profile)?.explain(pod)?;
    Ok(serde_json::to_value(explanation)?)
}
