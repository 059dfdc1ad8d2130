//! Leader election by Lease, client-go's way.
//!
//! Owns: the Lease, and the answer to "may I write now?". A standby watches the
//! Lease, so that it takes over at once when it is given up; a lease that is no
//! longer renewed is judged by locally observed change only (see `machine`).
//! Must never: say yes later than the renew deadline after the *start* of the
//! last renewal that succeeded, whatever the network, the API server or this
//! process' own slowness do.
//!
//! The lease lasts longer than the renew deadline (15 s and 10 s), so that the
//! old leader has stopped before a new one starts even if their clocks run at
//! different speeds, by up to half.

mod driver;
mod lock;
mod machine;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config::LeaderElection;
use crate::run::Shutdown;

/// Far enough away to be never.
const FOREVER: Duration = Duration::from_secs(60 * 60 * 24 * 365 * 30);

/// Which Lease, as whom, and how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Unique among all candidates, now and before.
    pub identity: String,
    /// How long others wait after the last renewal they saw.
    pub lease_duration: Duration,
    /// How long after the last renewal this process may still write.
    pub renew_deadline: Duration,
    /// Between two renewals, and between two attempts.
    pub retry_period: Duration,
    /// What the holder schedules: written on the Lease, because candidates that
    /// schedule something else can never stand in for one another. Empty: not said.
    pub schedules: String,
}

impl From<&LeaderElection> for ElectConfig {
    fn from(election: &LeaderElection) -> Self {
        Self {
            namespace: election.resource_namespace.clone(),
            name: election.resource_name.clone(),
            identity: identity(),
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
            schedules: String::new(),
        }
    }
}

/// Why this process must stop.
#[derive(Debug, thiserror::Error)]
pub enum ElectError {
    /// The Lease could not be renewed in time.
    #[error("lost lease {lease}: not renewed within {deadline:?}; last attempt: {reason}")]
    Lost {
        /// Namespace and name.
        lease: String,
        /// The renew deadline.
        deadline: Duration,
        /// What the last attempt ended with.
        reason: String,
    },
    /// Somebody else has it.
    #[error("lost lease {lease}: taken over by {by}")]
    TakenOver {
        /// Namespace and name.
        lease: String,
        /// The new holder.
        by: String,
    },
}

/// Whether this process leads, and until when for certain. Clones share it.
#[derive(Clone, Debug)]
pub struct Leadership {
    until: Source,
    /// What [`Leadership::changed`] has told last.
    told: bool,
}

#[derive(Clone, Debug)]
enum Source {
    /// Without election.
    Always(Instant),
    /// Until when writing is allowed.
    Elected(watch::Receiver<Option<Instant>>),
}

impl Leadership {
    /// Leads from the start and for ever: without election.
    #[must_use]
    pub fn always() -> Self {
        Self { until: Source::Always(Instant::now() + FOREVER), told: false }
    }

    /// Leads as long as a test says.
    #[cfg(test)]
    pub(crate) fn granted(until: watch::Receiver<Option<Instant>>) -> Self {
        Self { until: Source::Elected(until), told: false }
    }

    /// Whether this process leads at this moment.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.may_write_until().is_some_and(|until| Instant::now() < until)
    }

    /// When writing must stop unless the lease is renewed: the start of the last
    /// successful renewal plus the renew deadline. None if this process does not
    /// lead.
    #[must_use]
    pub fn may_write_until(&self) -> Option<Instant> {
        match &self.until {
            Source::Always(until) => Some(*until),
            Source::Elected(until) => *until.borrow(),
        }
    }

    /// Returns when [`Leadership::is_leader`] is other than when this was
    /// called before on this handle (false at first); renewals do not count.
    pub async fn changed(&mut self) {
        loop {
            let leads = self.is_leader();
            if leads != self.told {
                self.told = leads;
                return;
            }
            match &mut self.until {
                Source::Always(_) => std::future::pending().await,
                Source::Elected(until) => next(until, leads).await,
            }
        }
    }
}

/// Waits until the answer may be another.
async fn next(until: &mut watch::Receiver<Option<Instant>>, leads: bool) {
    let end = until.borrow_and_update().filter(|_| leads);
    tokio::select! {
        // Not renewed, and the driver too slow to say so.
        () = tokio::time::sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => {}
        changed = until.changed() => {
            // The driver is gone: what was granted runs out, and nothing comes.
            if changed.is_err() {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            }
        }
    }
}

/// Takes part in the election until the lease is lost (an error) or shutdown is
/// triggered (then it is given up, and a standby leads at once).
///
/// So trigger `shutdown` only when this process writes nothing any more. The
/// client should not retry by itself (`default_retry: false`); every call has a
/// deadline here.
#[must_use]
pub fn start(
    client: kube::Client,
    cfg: ElectConfig,
    shutdown: Shutdown,
) -> (Leadership, JoinHandle<Result<(), ElectError>>) {
    let (sender, receiver) = watch::channel(None);
    let driver = driver::Driver::new(client, cfg, shutdown, sender);
    let handle = tokio::spawn(driver.run());
    (Leadership { until: Source::Elected(receiver), told: false }, handle)
}

/// A name for this process that no other has or had: the host's (in a cluster
/// the pod's) and 128 random bits.
#[must_use]
pub fn identity() -> String {
    let host = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    let host = host.or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    let host = host.as_deref().map_or("unknown", str::trim);
    // The keys of a RandomState are random; the process and the time make sure.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let salt = (std::process::id(), now.unwrap_or_default());
    let [a, b] = [0_u8, 1].map(|part| RandomState::new().hash_one((part, salt)));
    let (a, b) = (a.to_be_bytes(), b.to_be_bytes());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&a[..4], &a[4..6], &a[6..], &b[..2], &b[2..]].map(hex);
    format!("{host}_{}", parts.join("-"))
}
