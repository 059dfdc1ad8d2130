//! Writing an object: only when it has changed, and never too often.
//!
//! Owns the pace of writes and what was written last. Must never write more than once in
//! [`GAP`], give up, or write what the server already has.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::client;
use super::metrics::Metrics;
use super::pause::Pause;

/// From the end of one write to the begin of the next.
pub const GAP: Duration = Duration::from_secs(1);

/// Keeps one object as it should be.
pub struct Publisher {
    client: kube::Client,
    metrics: Arc<Metrics>,
    kind: &'static str,
    path: String,
    /// What the server should have.
    wanted: Option<Value>,
    /// What it has, as far as is known.
    written: Option<Value>,
    /// The version of what we wrote.
    version: String,
    not_before: Instant,
    pause: Pause,
}

impl Publisher {
    pub fn new(
        client: kube::Client,
        metrics: Arc<Metrics>,
        kind: &'static str,
        path: String,
    ) -> Self {
        Self {
            client,
            metrics,
            kind,
            path,
            wanted: None,
            written: None,
            version: String::new(),
            not_before: Instant::now(),
            pause: Pause::default(),
        }
    }

    /// The next write is not before [`GAP`] from now: an earlier life may just have written.
    pub fn hold_off(&mut self) {
        self.not_before = Instant::now() + GAP;
    }

    /// What the server should have from now on.
    pub fn want(&mut self, object: Value) {
        self.wanted = Some(object);
    }

    /// The server has another version of the object (or none): ours has to be written again,
    /// unless that version is ours.
    pub fn seen(&mut self, version: Option<&str>) {
        // A watch may be behind our own writes.
        let number = |version: &str| version.parse::<u64>().ok();
        let older = number(&self.version)
            .zip(version.and_then(number))
            .is_some_and(|(ours, theirs)| theirs < ours);
        if self.written.is_some() && !older && version != Some(self.version.as_str()) {
            debug!(path = self.path, "somebody else has written or deleted the object");
            self.written = None;
        }
    }

    /// When to call [`Publisher::write`]; None if there is nothing to write.
    pub fn due(&self) -> Option<Instant> {
        let differs = self.wanted.is_some() && self.wanted != self.written;
        differs.then_some(self.not_before)
    }

    /// Writes what is wanted. Afterwards, [`Publisher::due`] says what is left to do.
    pub async fn write(&mut self) {
        let Some(object) = self.wanted.clone() else { return };
        let result = client::apply(&self.client, &self.path, &object).await;
        self.metrics.wrote(self.kind, result.is_ok());
        let now = Instant::now();
        match result {
            Ok(version) => {
                let first = self.version.is_empty();
                self.version = version;
                self.written = Some(object);
                self.pause.reset();
                self.not_before = now + GAP;
                if first {
                    info!(path = self.path, "written");
                } else {
                    debug!(path = self.path, version = self.version, "written");
                }
            }
            Err(error) => {
                // Whether it was written is not known; to write it again does no harm.
                self.written = None;
                let pause = self.pause.grow().max(GAP);
                self.not_before = now + pause;
                warn!(path = self.path, "not written, trying again in {pause:.1?}: {error}");
            }
        }
    }
}
