//! The controller: what pod groups and their members do, and what topologies have
//! left, written as status.
//!
//! Owns: the [`Board`] on which watches note pod groups, members, topologies and nodes,
//! when a status is written ([`pace`]), and the writes. What a status says is arithmetic
//! of others (`muster_core::gang::status`, [`crate::topology`]). Must never write when the
//! lease might be lost, write more often than its pace allows, or hold up a
//! watch.

mod board;
mod domains;
mod forms;
mod ground;
mod nodes;
mod pace;
mod patch;
mod roll;
mod state;
#[cfg(test)]
mod tests;
mod topologies;

pub use board::Board;
pub use muster_core::gang::Api;

use std::sync::Arc;
use std::time::Duration;

use muster_api::k8s::Time;
use muster_core::outbox::Failure;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{debug, warn};

use self::board::{Outcome, Write};
use self::topologies::TopologyWrite;
use crate::client::{ClientError, Wire};
use crate::elect::Leadership;
use crate::metrics::Metrics;
use crate::run::Shutdown;
use crate::write::{Fenced, version_in};

/// Status writes on their way at a time.
pub const LANES: usize = 8;

/// What a watch tells.
#[derive(Clone, Copy, Debug)]
pub enum Note<T> {
    /// A list begins.
    Listing,
    /// An object is there, or has changed.
    Changed(T),
    /// An object is gone.
    Gone(T),
    /// The list is complete: what it did not name is gone.
    Listed,
}

impl<T> Note<T> {
    /// The same of something else.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Note<U> {
        match self {
            Self::Listing => Note::Listing,
            Self::Changed(object) => Note::Changed(f(object)),
            Self::Gone(object) => Note::Gone(f(object)),
            Self::Listed => Note::Listed,
        }
    }
}

/// Starts the controller. The handle ends only by a panic, or at the end.
pub(crate) fn start(
    config: &kube::Config,
    board: Arc<Board>,
    leadership: Leadership,
    metrics: Metrics,
    end: Shutdown,
) -> Result<tokio::task::JoinHandle<()>, ClientError> {
    let wire = Wire::new(config, LANES)?;
    let fenced = Arc::new(Fenced { wire, leadership: leadership.clone() });
    Ok(tokio::spawn(async move {
        tokio::select! {
            () = control(board, fenced, leadership, metrics) => {}
            () = end.wait() => {}
        }
    }))
}

/// Writes what has changed, for ever.
async fn control(
    board: Arc<Board>,
    fenced: Arc<Fenced>,
    mut leadership: Leadership,
    metrics: Metrics,
) {
    let mut flights = JoinSet::new();
    loop {
        let mut wake = None;
        if leadership.is_leader() {
            let due = board.due(Instant::now(), now(), LANES - flights.len());
            wake = due.wake;
            let groups = due.writes.into_iter().map(Box::new).map(Sent::Group);
            for write in groups.chain(due.topologies.into_iter().map(Sent::Topology)) {
                flights.spawn(send(fenced.clone(), write));
            }
        }
        tokio::select! {
            () = board.changed() => {}
            () = tokio::time::sleep_until(wake.unwrap_or_else(far)), if wake.is_some() => {}
            () = leadership.changed() => {
                // What others wrote meanwhile is held against the truth.
                board.look_at_all(Instant::now());
            }
            Some(flight) = flights.join_next() => match flight {
                Ok((write, outcome)) => settle(&board, &metrics, write, outcome),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            },
        }
    }
}

/// A write on its way.
enum Sent {
    Group(Box<Write>),
    Topology(TopologyWrite),
}

fn settle(board: &Board, metrics: &Metrics, sent: Sent, outcome: Outcome) {
    match sent {
        Sent::Group(write) => settle_group(board, metrics, *write, outcome),
        Sent::Topology(write) => {
            metrics.topology_status(outcome.word());
            let topology = write.name.clone();
            let failures = board.topology_settled(write, outcome.clone(), Instant::now());
            match outcome {
                Outcome::Failed(error) if failures == 1 => {
                    warn!(%topology, "status not written, it is tried again: {error}");
                }
                other => debug!(%topology, failures, "status: {}", other.word()),
            }
        }
    }
}

fn settle_group(board: &Board, metrics: &Metrics, write: Write, outcome: Outcome) {
    let lag = write.since.elapsed();
    metrics.pod_group_status(outcome.word(), lag.as_secs_f64());
    let group = write.key.clone();
    let failures = board.settled(write, outcome.clone(), Instant::now());
    match outcome {
        Outcome::Written(_) => debug!(%group, ?lag, "status written"),
        // Once per trouble: there may be thousands of groups.
        Outcome::Failed(error) if failures == 1 => {
            warn!(%group, "status not written, it is tried again: {error}");
        }
        other => debug!(%group, failures, "status not written: {}", other.word()),
    }
}

/// Makes one write and says what became of it.
async fn send(fenced: Arc<Fenced>, write: Sent) -> (Sent, Outcome) {
    let call = match &write {
        Sent::Group(write) => patch::call(write),
        Sent::Topology(write) => patch::topology(write),
    };
    let outcome = match fenced.once(call).await {
        Ok(body) => Outcome::Written(version_in(&body)),
        Err(Failure::Status { code: 409, .. }) => Outcome::Conflict,
        Err(Failure::Status { code: 404, .. }) => Outcome::Gone,
        Err(Failure::NotSent(_)) if !fenced.leadership.is_leader() => Outcome::NotLeading,
        Err(failure) => Outcome::Failed(failure.to_string()),
    };
    (write, outcome)
}

fn now() -> Time {
    Time(jiff::Timestamp::now().as_microsecond())
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
