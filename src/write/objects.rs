//! Writes of objects other than pods, on behalf of plugins that wait for them.
//!
//! Owns: their order (one after the other, up to the first error) and their
//! guard: each is valid for one version of its object, so nothing is tried
//! again here; the pod is.

use std::sync::atomic::Ordering;

use muster_core::io::{Input, ObjectPatch, PodRef, Reply, Token};
use tracing::{debug, warn};

use super::{Shared, bodies};
use crate::run::Message;

/// Objects to write for a pod whose plugin waits.
#[derive(Clone, Debug)]
pub(super) struct ObjectWrites {
    pub(super) token: Token,
    pub(super) pod: PodRef,
    pub(super) patches: std::sync::Arc<[ObjectPatch]>,
}

impl Shared {
    /// Writes the objects and answers the core.
    pub(super) async fn write_objects(&self, writes: ObjectWrites) -> bool {
        let mut versions = Vec::with_capacity(writes.patches.len());
        let mut error = None;
        for patch in writes.patches.iter() {
            match self.fenced.once(bodies::object(patch)).await {
                Ok(body) => {
                    let name = bodies::object_name(patch);
                    debug!(pod = %writes.pod, object = name, "written");
                    versions.push((name.into(), version_in(&body)));
                }
                Err(failure) => {
                    warn!(pod = %writes.pod, "{}: {failure}", bodies::object_name(patch));
                    error = Some(failure.to_string().into());
                    break;
                }
            }
        }
        let ok = error.is_none();
        self.unanswered.fetch_sub(1, Ordering::Relaxed);
        let reply = Reply::Written { versions, error };
        let answer = Input::Reply { token: writes.token, reply };
        // Fails only when the owner has ended, and then the process does.
        let _ = self.answers.send(Message::Input(answer)).await;
        ok
    }
}

/// The version that a write has made.
pub(crate) fn version_in(body: &[u8]) -> Box<str> {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Written {
        metadata: Meta,
    }
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Meta {
        resource_version: Box<str>,
    }
    serde_json::from_slice::<Written>(body).unwrap_or_default().metadata.resource_version
}
