//! The decision table of a write: what a failure means, and what the core is told.
//!
//! No I/O, no clock: whoever drives the calls asks here after each attempt.

use std::time::Duration;

use crate::io::WriteError;

/// Longest that one attempt may take.
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Attempts of a bind, as upstream's DefaultBinder.
pub const BIND_ATTEMPTS: u32 = 4;
/// Pause after a bind's first failed attempt; five times longer each time.
pub const BIND_PAUSE: Duration = Duration::from_millis(10);
/// Attempts of a status patch.
pub const PATCH_ATTEMPTS: u32 = 4;
/// Pause after the first failed attempt of the rest; doubles.
pub const REST_PAUSE: Duration = Duration::from_millis(100);
/// A server that asks for a longer pause is asked again after this one.
pub const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Why nothing was sent when somebody else may lead.
pub const NOT_LEADING: &str = "not the leader: nothing was written";

/// What an answer's `metav1.Status` says beside its message, for programs to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// `reason`, CamelCase; empty if the server gives none.
    pub reason: String,
    /// `details.kind`: the kind or the resource that it is about.
    pub kind: String,
    /// `details.causes[].reason`.
    pub causes: Vec<String>,
}

/// How a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The server answered with an error.
    #[error("{message}")]
    Status {
        /// HTTP status.
        code: u16,
        /// What the server said.
        message: String,
        /// `Retry-After`: the request was turned away before it was handled.
        retry_after: Option<Duration>,
        /// What else it said.
        details: Details,
    },
    /// No connection: nothing was sent.
    #[error("cannot reach the API server: {0}")]
    NotSent(String),
    /// The connection broke, or the answer made no sense.
    #[error("the API server did not answer: {0}")]
    Broken(String),
    /// The deadline passed.
    #[error("the API server did not answer in time")]
    TimedOut,
}

/// What a failure means for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Worth another attempt.
    pub again: bool,
    /// It may have been written all the same.
    pub doubt: bool,
    /// What the server asked us to wait.
    pub pause: Duration,
}

/// What to do after a failure.
#[must_use]
pub fn judge(failure: &Failure) -> Verdict {
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

/// What the core is told; `doubt` if any attempt may have been written.
#[must_use]
pub fn write_error(failure: &Failure, doubt: bool) -> WriteError {
    let text = failure.to_string();
    match failure {
        Failure::Status { code: 409, .. } => WriteError::Conflict(text),
        Failure::Status { code: 404, .. } => WriteError::NotFound(text),
        _ if doubt => WriteError::Unknown(text),
        _ => WriteError::Rejected(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, retry_after: Option<u64>) -> Failure {
        Failure::Status {
            code,
            message: "said".to_owned(),
            retry_after: retry_after.map(Duration::from_secs),
            details: Details::default(),
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
