//! Full pods for the wire, read from the API server when they are asked for.
//!
//! The watches decode what scheduling reads and throw the rest away; an extender gets
//! the whole object. Owns a short memory, so that the calls of one attempt read the pod
//! once. Must never grow: it is bounded, and the oldest goes first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use muster_core::io::{NodeVictims, PodRef};
use muster_core::outbox::Failure;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::client::{Call, ClientError, Wire};

/// Pods remembered.
const REMEMBERED: usize = 64;
/// Objects read at a time for one question.
const READS: usize = 16;

/// An attempt by number, and the pod as it was read for it.
type Memory = VecDeque<(u64, Arc<RawValue>)>;

/// See the module's text.
pub(super) struct FullPods {
    wire: Wire,
    memory: Mutex<Memory>,
}

impl FullPods {
    pub(super) fn new(config: &kube::Config) -> Result<Self, ClientError> {
        Ok(Self { wire: Wire::new(config, READS)?, memory: Mutex::default() })
    }

    /// The pod of an attempt.
    pub(super) async fn of_attempt(
        &self,
        pod: &PodRef,
        attempt: u64,
        until: Instant,
    ) -> Result<Arc<RawValue>, String> {
        let known =
            self.memory.lock().iter().find(|(of, _)| *of == attempt).map(|(_, p)| p.clone());
        if let Some(known) = known {
            return Ok(known);
        }
        let read = self.read(pod, until).await?;
        let read = read.ok_or_else(|| format!("pod {pod} with UID {} is gone", pod.uid))?;
        let mut memory = self.memory.lock();
        memory.truncate(REMEMBERED - 1);
        memory.push_front((attempt, Arc::clone(&read)));
        Ok(read)
    }

    /// The victims of each candidate; those that are gone are left out.
    pub(super) async fn of_candidates(
        &self,
        candidates: &[NodeVictims],
        until: Instant,
    ) -> Result<Vec<Vec<Arc<RawValue>>>, String> {
        let each = candidates.iter().enumerate();
        let wanted: Vec<(usize, PodRef)> =
            each.flat_map(|(i, c)| c.pods.iter().map(move |p| (i, p.clone()))).collect();
        let reads = wanted
            .into_iter()
            .map(|(i, pod)| async move { Ok((i, self.read(&pod, until).await?)) });
        let read: Vec<(usize, Option<Arc<RawValue>>)> = stream::iter(reads)
            .buffered(READS)
            .try_collect::<Vec<_>>()
            .await
            .map_err(|e: String| e)?;
        let mut pods = vec![Vec::new(); candidates.len()];
        for (i, pod) in read {
            pods[i].extend(pod);
        }
        Ok(pods)
    }

    /// One pod; `None` if it is gone, or another has its name.
    async fn read(&self, pod: &PodRef, until: Instant) -> Result<Option<Arc<RawValue>>, String> {
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let Some((object, uid)) = self.object(path, until).await? else {
            return Ok(None);
        };
        Ok((uid == *pod.uid).then_some(object))
    }

    /// One node; `None` if there is none.
    pub(super) async fn node(
        &self,
        name: &str,
        until: Instant,
    ) -> Result<Option<Arc<RawValue>>, String> {
        let found = self.object(format!("/api/v1/nodes/{name}"), until).await?;
        Ok(found.map(|(object, _)| object))
    }

    async fn object(
        &self,
        path: String,
        until: Instant,
    ) -> Result<Option<(Arc<RawValue>, String)>, String> {
        let what = format!("read {path} for an extender");
        let content_type = "application/json";
        let call = Call { method: Method::GET, path, content_type, body: Bytes::new() };
        match self.wire.fetch(call, until).await {
            Ok(body) => trimmed(&body).map(Some).map_err(|e| format!("{what}: {e}")),
            Err(Failure::Status { code: 404, .. }) => Ok(None),
            Err(failure) => Err(format!("{what}: {failure}")),
        }
    }
}

/// An object without what upstream's informers throw away, and its UID.
pub(super) fn trimmed(body: &[u8]) -> Result<(Arc<RawValue>, String), serde_json::Error> {
    type Object<'a> = BTreeMap<String, &'a RawValue>;
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Id {
        uid: String,
    }
    let mut object: Object<'_> = serde_json::from_slice(body)?;
    let Some(meta) = object.get("metadata").copied() else {
        return Ok((to_raw_value(&object)?.into(), String::new()));
    };
    let id: Id = serde_json::from_str(meta.get())?;
    let mut fields: Object<'_> = serde_json::from_str(meta.get())?;
    fields.remove("managedFields");
    let meta = to_raw_value(&fields)?;
    object.insert("metadata".to_owned(), &meta);
    Ok((to_raw_value(&object)?.into(), id.uid))
}
