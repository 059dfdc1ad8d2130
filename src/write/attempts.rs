//! One write from its first attempt to its end.
//!
//! Owns: what is tried again, how often, and what the core is told. Every
//! attempt is fenced: it starts only while we may write, and its deadline ends
//! before somebody else may.

use std::time::Duration;

use muster_core::io::WriteError;
use tokio::time::Instant;

use crate::client::{Call, Failure, Wire};
use crate::elect::Leadership;

/// Longest that one attempt may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Attempts of a bind, as upstream's DefaultBinder.
pub const BIND_ATTEMPTS: u32 = 4;
/// Pause after a bind's first failed attempt; five times longer each time.
const BIND_PAUSE: Duration = Duration::from_millis(10);
/// Attempts of a status patch.
pub const PATCH_ATTEMPTS: u32 = 4;
/// Attempts of an event.
pub const EVENT_ATTEMPTS: u32 = 3;
/// Pause after the first failed attempt of the rest; doubles.
const REST_PAUSE: Duration = Duration::from_millis(100);
/// A server that asks for a longer pause is asked again after this one.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The wire, while we may write.
pub(super) struct Fenced {
    pub(super) wire: Wire,
    pub(super) leadership: Leadership,
}

const NOT_LEADING: &str = "not the leader: nothing was written";

impl Fenced {
    async fn attempt(&self, call: Call) -> Result<(), Failure> {
        let now = Instant::now();
        let until = self.leadership.may_write_until();
        let Some(until) = until.filter(|until| *until > now) else {
            return Err(Failure::NotSent(NOT_LEADING.to_owned()));
        };
        self.wire.call(call, until.min(now + CALL_DEADLINE)).await
    }

    /// Makes a call once and returns the body of its answer.
    pub(super) async fn once(&self, call: Call) -> Result<Vec<u8>, Failure> {
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

/// What a failure means for the next step.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    /// Worth another attempt.
    again: bool,
    /// It may have been written all the same.
    doubt: bool,
    /// What the server asked us to wait.
    pause: Duration,
}

fn judge(failure: &Failure) -> Verdict {
    let (again, doubt) = match failure {
        Failure::Broken(_) | Failure::TimedOut => (false, true),
        // Never sent, or turned away before it was handled.
        Failure::NotSent(_)
        | Failure::Status { code: 429, .. }
        | Failure::Status { code: 503, retry_after: Some(_), .. } => (true, false),
        Failure::Status { code: 500 | 503, .. } => (true, true),
        Failure::Status { code, .. } => (false, *code >= 500),
    };
    let pause = match failure {
        Failure::Status { retry_after: Some(pause), .. } => (*pause).min(MAX_PAUSE),
        _ => Duration::ZERO,
    };
    Verdict { again, doubt, pause }
}

fn write_error(failure: &Failure, doubt: bool) -> WriteError {
    let text = failure.to_string();
    match failure {
        Failure::Status { code: 409, .. } => WriteError::Conflict(text),
        Failure::Status { code: 404, .. } => WriteError::NotFound(text),
        _ if doubt => WriteError::Unknown(text),
        _ => WriteError::Rejected(text),
    }
}

/// Up to a tenth longer, so that a crowd does not come back as one.
fn jittered(pause: Duration) -> Duration {
    let tenths = jiff::Timestamp::now().subsec_nanosecond().unsigned_abs() % 100;
    pause + pause * tenths / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, retry_after: Option<u64>) -> Failure {
        Failure::Status {
            code,
            message: "said".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[test]
    fn only_what_was_surely_not_written_is_rejected() {
        let said = |f: &Failure| write_error(f, judge(f).doubt);
        let rejected = |f: &Failure| matches!(said(f), WriteError::Rejected(_));
        let unknown = |f: &Failure| matches!(said(f), WriteError::Unknown(_));
        assert!(matches!(said(&status(409, None)), WriteError::Conflict(_)));
        assert!(matches!(said(&status(404, None)), WriteError::NotFound(_)));
        assert!(rejected(&status(400, None)) && rejected(&status(403, None)));
        assert!(rejected(&status(422, None)) && rejected(&status(429, Some(1))));
        assert!(rejected(&status(503, Some(1))) && unknown(&status(503, None)));
        assert!(unknown(&status(500, None)) && unknown(&status(504, None)));
        assert!(rejected(&Failure::NotSent("refused".into())));
        assert!(unknown(&Failure::Broken("cut".into())) && unknown(&Failure::TimedOut));
    }

    #[test]
    fn a_doubt_stays_whatever_comes_after() {
        let text = "said".to_owned();
        assert_eq!(write_error(&status(429, None), true), WriteError::Unknown(text.clone()));
        assert_eq!(write_error(&status(409, None), true), WriteError::Conflict(text));
    }

    #[test]
    fn what_upstream_tries_again_is_tried_again() {
        for failure in [status(500, None), status(503, None), status(429, Some(1))] {
            assert!(judge(&failure).again, "{failure:?}");
        }
        assert!(judge(&Failure::NotSent(String::new())).again);
        for failure in [status(409, None), status(504, None), Failure::TimedOut] {
            assert!(!judge(&failure).again, "{failure:?}");
        }
        assert_eq!(judge(&status(429, Some(3600))).pause, MAX_PAUSE);
    }
}
