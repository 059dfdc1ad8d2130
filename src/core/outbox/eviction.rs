//! What an answer to an eviction means, and what the core is told.
//!
//! As [`super::verdict`], for the Eviction API. An eviction is bound to a UID, so one
//! that may have happened is asked for again without evicting another pod; but a server
//! that was given up on in between may have counted it against the budget and not
//! deleted the pod, hence the long deadline. Answers are told apart by code, reason, kind
//! and causes, never by their words.

use std::time::Duration;

use crate::io::{Eviction, PodRef, Removal, Token};

use super::verdict::{Failure, Verdict, judge};

/// Longest that one attempt of an eviction may take: the server itself tries for ten
/// seconds to update a budget that others update too.
pub const EVICTION_DEADLINE: Duration = Duration::from_secs(15);
/// Attempts of an eviction; the core asks again later than the last one.
pub const EVICTION_ATTEMPTS: u32 = 3;
/// The cause by which the API server says that a budget forbids an eviction.
const BUDGET_CAUSE: &str = "DisruptionBudget";

/// An eviction to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// Echoed in the answer.
    pub token: Token,
    /// On whose behalf.
    pub preemptor: PodRef,
    /// Who is to go.
    pub victim: PodRef,
    /// By what means.
    pub how: Removal,
}

fn is_refusal(failure: &Failure) -> bool {
    match failure {
        Failure::Status { details, .. } => details.causes.iter().any(|c| c == BUDGET_CAUSE),
        _ => false,
    }
}

/// What to do after an eviction's failure.
#[must_use]
pub fn judge_eviction(failure: &Failure) -> Verdict {
    let verdict = judge(failure);
    let again = match failure {
        _ if is_refusal(failure) => false,
        // Somebody wrote at the same time, or it is another pod, which stays so.
        Failure::Status { code: 409, .. } => true,
        Failure::Status { code: 500, details, .. } => !details.reason.is_empty(),
        _ => verdict.again || verdict.doubt,
    };
    Verdict { again, ..verdict }
}

/// What the core is told of an eviction whose last attempt failed so.
#[must_use]
pub fn eviction_error(failure: &Failure) -> Eviction {
    let text = || failure.to_string().into();
    match failure {
        _ if is_refusal(failure) => Eviction::Refused(text()),
        Failure::Status { code: 404, .. } => Eviction::Gone,
        // About the pod itself: by its UID it is another one. About anything else,
        // as the budget's counters: a race.
        Failure::Status { code: 409, details, .. } => match details.kind.as_str() {
            "Pod" | "pods" => Eviction::Gone,
            _ => Eviction::Unavailable(text()),
        },
        Failure::Status { code: 408 | 429, .. } => Eviction::Unavailable(text()),
        // Of a pod under two budgets the server says 500 and gives no reason.
        Failure::Status { code: 500, details, .. } if details.reason.is_empty() => {
            Eviction::Failed(text())
        }
        Failure::Status { code, .. } if *code < 500 => Eviction::Failed(text()),
        _ => Eviction::Unavailable(text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Details;

    fn status(code: u16, reason: &str, kind: &str, cause: &str) -> Failure {
        let causes = (!cause.is_empty()).then(|| cause.to_owned()).into_iter().collect();
        Failure::Status {
            code,
            message: "said".to_owned(),
            retry_after: None,
            details: Details { reason: reason.to_owned(), kind: kind.to_owned(), causes },
        }
    }

    #[test]
    fn answers_are_told_apart_by_what_programs_read() {
        let refused = Eviction::Refused("said".into());
        let unavailable = Eviction::Unavailable("said".into());
        let failed = Eviction::Failed("said".into());
        // code, reason, details.kind, cause; tried again, told
        let table = [
            (429, "TooManyRequests", "", BUDGET_CAUSE, false, &refused),
            // A budget whose count is off, or that has too many evictions under way.
            (403, "Forbidden", "poddisruptionbudget", BUDGET_CAUSE, false, &refused),
            (429, "TooManyRequests", "", "", true, &unavailable),
            (429, "TooManyRequests", "", "Other", true, &unavailable),
            (503, "ServiceUnavailable", "", "", true, &unavailable),
            (504, "Timeout", "", "", true, &unavailable),
            (500, "InternalError", "", "", true, &unavailable),
            (500, "", "", "", false, &failed),
            (409, "Conflict", "poddisruptionbudgets", "", true, &unavailable),
            (409, "Conflict", "Pod", "", true, &Eviction::Gone),
            (409, "Conflict", "pods", "", true, &Eviction::Gone),
            (404, "NotFound", "pods", "", false, &Eviction::Gone),
            (403, "Forbidden", "pods", "", false, &failed),
            (400, "BadRequest", "", "", false, &failed),
            (422, "Invalid", "Eviction", "", false, &failed),
        ];
        for (code, reason, kind, cause, again, told) in table {
            let failure = status(code, reason, kind, cause);
            assert_eq!(judge_eviction(&failure).again, again, "{failure:?}");
            assert_eq!(eviction_error(&failure), *told, "{failure:?}");
        }
    }

    #[test]
    fn what_never_came_back_is_asked_again() {
        for failure in
            [Failure::NotSent("refused".into()), Failure::Broken("cut".into()), Failure::TimedOut]
        {
            assert!(judge_eviction(&failure).again, "{failure:?}");
            assert!(matches!(eviction_error(&failure), Eviction::Unavailable(_)), "{failure:?}");
        }
    }
}
