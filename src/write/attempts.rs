//! One write from its first attempt to its end.
//!
//! Owns: what is tried again, how often, and what the core is told. Every
//! attempt is fenced: it starts only while we may write, and its deadline ends
//! before somebody else may.

use std::time::Duration;

use muster_core::io::WriteError;
pub use muster_core::outbox::{BIND_ATTEMPTS, CALL_DEADLINE, EVICTION_ATTEMPTS, PATCH_ATTEMPTS};
use muster_core::outbox::{
    BIND_PAUSE, EVICTION_DEADLINE, Failure, NOT_LEADING, REST_PAUSE, judge, judge_eviction,
    write_error,
};
use tokio::time::Instant;

use crate::client::{Call, Wire};
use crate::elect::Leadership;

/// Attempts of an event.
pub const EVENT_ATTEMPTS: u32 = 3;

/// The wire, while we may write.
pub(crate) struct Fenced {
    pub(crate) wire: Wire,
    pub(crate) leadership: Leadership,
}

impl Fenced {
    async fn attempt(&self, call: Call) -> Result<(), Failure> {
        self.attempt_within(call, CALL_DEADLINE).await
    }

    async fn attempt_within(&self, call: Call, patience: Duration) -> Result<(), Failure> {
        let now = Instant::now();
        let until = self.leadership.may_write_until();
        let Some(until) = until.filter(|until| *until > now) else {
            return Err(Failure::NotSent(NOT_LEADING.to_owned()));
        };
        self.wire.call(call, until.min(now + patience)).await
    }

    /// Makes a call once and returns the body of its answer.
    pub(crate) async fn once(&self, call: Call) -> Result<Vec<u8>, Failure> {
        let now = Instant::now();
        let until = self.leadership.may_write_until();
        let Some(until) = until.filter(|until| *until > now) else {
            return Err(Failure::NotSent(NOT_LEADING.to_owned()));
        };
        self.wire.fetch(call, until.min(now + CALL_DEADLINE)).await
    }

    /// Binds, or says as exactly as can be known what became of it.
    pub(super) async fn bind(&self, call: Call) -> Result<(), WriteError> {
        let mut doubt = false;
        let mut pause = BIND_PAUSE;
        let mut attempt = 1;
        loop {
            let Err(failure) = self.attempt(call.clone()).await else {
                return Ok(());
            };
            let verdict = judge(&failure);
            doubt |= verdict.doubt;
            if !verdict.again || attempt == BIND_ATTEMPTS || !self.may_write() {
                return Err(write_error(&failure, doubt));
            }
            tokio::time::sleep(jittered(pause.max(verdict.pause))).await;
            pause *= 5;
            attempt += 1;
        }
    }

    /// Evicts, or says what kept the server from it.
    pub(super) async fn evict(&self, call: Call) -> Result<(), Failure> {
        let mut pause = REST_PAUSE;
        let mut attempt = 1;
        loop {
            let Err(failure) = self.attempt_within(call.clone(), EVICTION_DEADLINE).await else {
                return Ok(());
            };
            let verdict = judge_eviction(&failure);
            if !verdict.again || attempt == EVICTION_ATTEMPTS || !self.may_write() {
                return Err(failure);
            }
            tokio::time::sleep(jittered(pause.max(verdict.pause))).await;
            pause *= 2;
            attempt += 1;
        }
    }

    /// Makes a call that may be repeated without harm.
    pub(super) async fn repeat(&self, call: Call, attempts: u32) -> Result<(), Failure> {
        let mut pause = REST_PAUSE;
        let mut attempt = 1;
        loop {
            let Err(failure) = self.attempt(call.clone()).await else {
                return Ok(());
            };
            let verdict = judge(&failure);
            let again = verdict.again || verdict.doubt;
            if !again || attempt == attempts || !self.may_write() {
                return Err(failure);
            }
            tokio::time::sleep(jittered(pause.max(verdict.pause))).await;
            pause *= 2;
            attempt += 1;
        }
    }

    fn may_write(&self) -> bool {
        self.leadership.may_write_until().is_some()
    }
}

/// Up to a tenth longer, so that a crowd does not come back as one.
fn jittered(pause: Duration) -> Duration {
    let tenths = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 100;
    pause + pause * tenths / 1000
}
