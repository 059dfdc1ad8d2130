//! The Lease on the API server: read, create, replace, watch.
//!
//! Owns: the object last seen, with its version, so that a write replaces that
//! one and no other. Every call has a deadline. Must never: retry; the driver
//! decides about that.

use futures::stream::{BoxStream, StreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ObjectMeta, PostParams, WatchEvent, WatchParams};
use tokio::time::Instant;

use super::ElectConfig;
use super::machine::Record;

/// The annotation that says what the holder schedules.
pub(super) const SCHEDULES: &str = "muster.dev/schedules";

/// How long one watch lasts; the API server ends it.
const WATCH_SECONDS: u32 = 240;

/// Why a call did not do what was wanted.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// Somebody else wrote in between, or the object came or went.
    #[error("another candidate was faster")]
    Conflict,
    /// The object, or the namespace it should be in, is not there.
    #[error("not found; does the namespace exist?")]
    Gone,
    /// No answer in time: it may or may not have happened.
    #[error("no answer in time")]
    Deadline,
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            kube::Error::Api(status) => {
                Self::Other(format!("{} ({})", status.message, status.code))
            }
            other => Self::Other(chain(&other)),
        }
    }
}

/// What a watch says.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// The Lease is now this, or gone.
    Record(Option<Record>),
    /// Nothing of interest.
    Nothing,
    /// The watch has ended.
    Ended,
}

pub(super) type Watch = BoxStream<'static, kube::Result<WatchEvent<Lease>>>;

/// One Lease.
pub(super) struct LeaseLock {
    api: Api<Lease>,
    namespace: String,
    name: String,
    schedules: String,
    seen: Option<Lease>,
}

impl LeaseLock {
    pub(super) fn new(client: kube::Client, cfg: &ElectConfig) -> Self {
        Self {
            api: Api::namespaced(client, &cfg.namespace),
            namespace: cfg.namespace.clone(),
            name: cfg.name.clone(),
            schedules: cfg.schedules.clone(),
            seen: None,
        }
    }

    /// What the holder schedules, if that is something else than we do.
    pub(super) fn stranger(&self) -> Option<String> {
        self.seen.as_ref().and_then(|lease| stranger(lease, &self.schedules))
    }

    /// Says on the Lease what we schedule, if it becomes ours.
    fn sign(&self, lease: &mut Lease, wanted: &Record) {
        if !self.schedules.is_empty() && !wanted.holder.is_empty() {
            let said = format!("{} ({})", self.schedules, wanted.holder);
            let annotations = lease.metadata.annotations.get_or_insert_default();
            annotations.insert(SCHEDULES.to_owned(), said);
        }
    }

    /// Reads the Lease.
    pub(super) async fn fetch(&mut self, deadline: Instant) -> Result<Option<Record>, CallError> {
        self.seen = match within(deadline, self.api.get(&self.name)).await {
            Err(CallError::Gone) => None,
            answer => Some(answer?),
        };
        Ok(self.seen.as_ref().map(record))
    }

    /// Creates the Lease; a conflict if it exists.
    pub(super) async fn create(
        &mut self,
        wanted: &Record,
        deadline: Instant,
    ) -> Result<Record, CallError> {
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(wanted.into()),
        };
        self.sign(&mut lease, wanted);
        let made = within(deadline, self.api.create(&PostParams::default(), &lease)).await?;
        Ok(record(self.seen.insert(made)))
    }

    /// Replaces the Lease as it was seen last; a conflict if it is another now.
    pub(super) async fn replace(
        &mut self,
        wanted: &Record,
        deadline: Instant,
    ) -> Result<Record, CallError> {
        let Some(mut lease) = self.seen.clone() else {
            return Err(CallError::Conflict);
        };
        lease.spec = Some(wanted.into());
        self.sign(&mut lease, wanted);
        let params = PostParams::default();
        let call = self.api.replace(&self.name, &params, &lease);
        let made = match within(deadline, call).await {
            Err(CallError::Gone) => return Err(CallError::Conflict),
            answer => answer?,
        };
        Ok(record(self.seen.insert(made)))
    }

    /// Watches the Lease from the version seen last.
    pub(super) async fn watch(&self, deadline: Instant) -> Result<Watch, CallError> {
        let params = WatchParams::default()
            .fields(&format!("metadata.name={}", self.name))
            .timeout(WATCH_SECONDS);
        let seen = self.seen.as_ref().and_then(|lease| lease.metadata.resource_version.as_deref());
        // From the very beginning if there is none, which is the present.
        let stream = within(deadline, self.api.watch(&params, seen.unwrap_or("0"))).await?;
        Ok(stream.boxed())
    }

    /// Takes in what the watch says.
    pub(super) fn changed(&mut self, event: Option<kube::Result<WatchEvent<Lease>>>) -> Change {
        match event {
            Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                Change::Record(Some(record(self.seen.insert(lease))))
            }
            Some(Ok(WatchEvent::Deleted(_))) => {
                self.seen = None;
                Change::Record(None)
            }
            Some(Ok(WatchEvent::Bookmark(_))) => Change::Nothing,
            Some(Ok(WatchEvent::Error(status))) => {
                tracing::debug!(lease = %self.name, message = %status.message, "watch refused");
                Change::Ended
            }
            Some(Err(error)) => {
                tracing::debug!(lease = %self.name, %error, "watch broken");
                Change::Ended
            }
            None => Change::Ended,
        }
    }
}

/// What the holder of a Lease schedules, if it does not stand for the same as we do.
/// Other programs keep an annotation that they find, so it names who wrote it.
fn stranger(lease: &Lease, ours: &str) -> Option<String> {
    let holder = record(lease).holder;
    if holder.is_empty() || ours.is_empty() {
        return None;
    }
    let said = lease.metadata.annotations.as_ref().and_then(|all| all.get(SCHEDULES));
    let theirs = said.and_then(|said| said.strip_suffix(&format!(" ({holder})")));
    match theirs {
        Some(theirs) if theirs == ours => None,
        Some(theirs) => Some(theirs.to_owned()),
        None => Some("something it does not say, as a scheduler other than Muster".to_owned()),
    }
}

fn record(lease: &Lease) -> Record {
    lease.spec.as_ref().map(Record::from).unwrap_or_default()
}

async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, CallError> {
    match tokio::time::timeout_at(deadline, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(CallError::Deadline),
    }
}

/// An error with its causes: the last one usually says what to do.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat their cause.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::LeaseSpec;

    use super::*;

    #[test]
    fn a_holder_that_schedules_something_else_is_a_stranger() {
        let lease = |holder: &str, said: Option<&str>| Lease {
            metadata: ObjectMeta {
                annotations: said.map(|s| [(SCHEDULES.to_owned(), s.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                ..LeaseSpec::default()
            }),
        };
        let silent = Some("something it does not say, as a scheduler other than Muster");
        let table = [
            ("the same", "x", Some("pods of a on all nodes (x)"), None),
            (
                "other nodes",
                "x",
                Some("pods of a on nodes p=b (x)"),
                Some("pods of a on nodes p=b"),
            ),
            ("signed by one before it", "kube", Some("pods of a on all nodes (x)"), silent),
            ("not signed", "kube", None, silent),
            ("nobody holds it", "", Some("pods of b on all nodes (x)"), None),
        ];
        for (row, holder, said, expected) in table {
            let found = stranger(&lease(holder, said), "pods of a on all nodes");
            assert_eq!(found.as_deref(), expected, "{row}");
            assert_eq!(stranger(&lease(holder, said), ""), None, "{row}: we do not say");
        }
    }
}
