//! Who leads: the decision, without a client and without a clock.
//!
//! Owns: the record last seen and the local time at which it was last seen to
//! *change*. A lease has expired when that is longer ago than the holder's own
//! lease duration. Must never: compare `renewTime` with any clock; clocks of
//! different machines are not to be compared.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use std::time::Duration;
use tokio::time::Instant;

/// The finest difference that a Lease can hold.
const TICK: SignedDuration = SignedDuration::from_micros(1);

/// The part of a Lease that says who leads. Two records are the same renewal
/// only if they are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) holder: String,
    pub(super) lease_seconds: i32,
    pub(super) acquired: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
    pub(super) transitions: i32,
}

impl From<&LeaseSpec> for Record {
    fn from(spec: &LeaseSpec) -> Self {
        Self {
            holder: spec.holder_identity.clone().unwrap_or_default(),
            lease_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time.as_ref().map(|time| time.0),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
            transitions: spec.lease_transitions.unwrap_or_default(),
        }
    }
}

impl From<&Record> for LeaseSpec {
    fn from(record: &Record) -> Self {
        Self {
            holder_identity: Some(record.holder.clone()),
            lease_duration_seconds: Some(record.lease_seconds),
            acquire_time: record.acquired.map(MicroTime),
            renew_time: record.renewed.map(MicroTime),
            lease_transitions: Some(record.transitions),
            ..Self::default()
        }
    }
}

/// What the API server is known to hold.
#[derive(Clone, Debug, Default, PartialEq)]
enum Seen {
    /// Not known, or not any more.
    #[default]
    Unknown,
    /// There is no Lease.
    Absent,
    /// This record, last seen to change then.
    Present { record: Record, changed: Instant },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Read the Lease.
    Fetch,
    /// Create the Lease with this record.
    Create(Record),
    /// Replace the record that was seen last by this one.
    Update(Record),
    /// Somebody leads; nothing to do before this unless the record changes.
    Wait(Instant),
}

/// The state of one candidate.
#[derive(Debug)]
pub(super) struct Machine {
    identity: String,
    lease_seconds: i32,
    seen: Seen,
}

impl Machine {
    pub(super) fn new(identity: &str, lease: Duration) -> Self {
        Self {
            identity: identity.to_owned(),
            lease_seconds: i32::try_from(lease.as_secs()).unwrap_or(i32::MAX).max(1),
            seen: Seen::Unknown,
        }
    }

    /// The API server holds this record, or none. True if that is news.
    pub(super) fn observe(&mut self, record: Option<Record>, now: Instant) -> bool {
        let seen = match record {
            None => Seen::Absent,
            Some(record) => {
                // The same record again says nothing: its time stays.
                if matches!(&self.seen, Seen::Present { record: known, .. } if *known == record) {
                    return false;
                }
                Seen::Present { record, changed: now }
            }
        };
        let news = self.seen != seen;
        self.seen = seen;
        news
    }

    /// A call ended so that it is not known what the API server holds. What was
    /// seen stays the measure of time until something else is seen.
    pub(super) fn forget_absence(&mut self) {
        if self.seen == Seen::Absent {
            self.seen = Seen::Unknown;
        }
    }

    /// Who leads, as far as is known.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.seen {
            Seen::Present { record, .. } if !record.holder.is_empty() => Some(&record.holder),
            _ => None,
        }
    }

    /// Whether somebody else leads, as far as is known.
    pub(super) fn led_by_other(&self) -> Option<&str> {
        self.holder().filter(|holder| *holder != self.identity)
    }

    /// What to do at this moment. `wall` is only ever written, never compared.
    pub(super) fn decide(&self, now: Instant, wall: Timestamp) -> Action {
        match &self.seen {
            Seen::Unknown => Action::Fetch,
            Seen::Absent => Action::Create(self.own(wall, wall, 0)),
            Seen::Present { record, .. } if record.holder == self.identity => {
                let acquired = record.acquired.unwrap_or(wall);
                // Others notice a renewal only if the record changes, even if
                // our clock stands still.
                let renewed = if record.renewed == Some(wall) { wall + TICK } else { wall };
                Action::Update(self.own(acquired, renewed, record.transitions))
            }
            Seen::Present { record, changed } => {
                let expiry = *changed + lease_of(record);
                if record.holder.is_empty() || now >= expiry {
                    Action::Update(self.own(wall, wall, record.transitions.saturating_add(1)))
                } else {
                    Action::Wait(expiry)
                }
            }
        }
    }

    /// The record that gives the lease up, if it is ours: as client-go, nobody
    /// holds it, for one second.
    pub(super) fn release(&self, wall: Timestamp) -> Option<Record> {
        match &self.seen {
            Seen::Present { record, .. } if record.holder == self.identity => Some(Record {
                holder: String::new(),
                lease_seconds: 1,
                acquired: Some(wall),
                renewed: Some(wall),
                transitions: record.transitions,
            }),
            _ => None,
        }
    }

    fn own(&self, acquired: Timestamp, renewed: Timestamp, transitions: i32) -> Record {
        Record {
            holder: self.identity.clone(),
            lease_seconds: self.lease_seconds,
            acquired: Some(acquired),
            renewed: Some(renewed),
            transitions,
        }
    }
}

/// The holder's own lease duration, not ours.
fn lease_of(record: &Record) -> Duration {
    Duration::from_secs(u64::try_from(record.lease_seconds).unwrap_or(0))
}
