//! Refusals of the model API server, as a real one words them.

use std::time::Duration;

use muster_core::outbox::Failure;

/// A `Status` with `status: Failure`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status.
    pub code: u16,
    /// `reason`, CamelCase; empty if the server gives none.
    pub reason: &'static str,
    /// `message`.
    pub message: String,
    /// Type of the first of `details.causes`, e.g. `DisruptionBudget`.
    pub cause: Option<&'static str>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), cause: None, retry_after: None }
    }

    /// 404.
    pub(crate) fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"))
    }

    /// 409 of an update, a bind or a precondition.
    pub(crate) fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message)
    }

    /// 409 of a create.
    pub(crate) fn already_exists(resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
    }

    /// 410: the version asked for is compacted.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// As a client sees it.
    pub(crate) fn failure(self) -> Failure {
        Failure::Status {
            code: self.code,
            message: self.message,
            retry_after: self.retry_after.map(|s| Duration::from_secs(s.into())),
        }
    }
}

/// The precondition of an update: the version must be the current one.
pub(crate) fn stale(resource: &str, name: &str) -> ApiError {
    let why = "the object has been modified; please apply your changes to the latest version and \
               try again";
    ApiError::conflict(resource, name, why)
}

/// The precondition of a write by UID.
pub(crate) fn other_uid(resource: &str, name: &str, wanted: &str, found: &str) -> ApiError {
    let why =
        format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
    ApiError::conflict(resource, name, &why)
}
