//! Refusals of the model API server, as a real one words them.

use std::time::Duration;

use muster_core::io::PodRef;
use muster_core::outbox::{Details, Failure};

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
    /// `details.kind`; empty if it is about no object in particular.
    pub kind: String,
    /// Type of the first of `details.causes`, e.g. `DisruptionBudget`.
    pub cause: Option<&'static str>,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

impl ApiError {
    pub(crate) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, reason, message, kind: String::new(), cause: None, retry_after: None }
    }

    /// 404.
    pub(crate) fn not_found(resource: &str, name: &str) -> Self {
        let message = format!("{resource} \"{name}\" not found");
        Self { kind: resource.to_owned(), ..Self::new(404, "NotFound", message) }
    }

    /// 409 of an update, a bind or a precondition.
    pub(crate) fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self { kind: resource.to_owned(), ..Self::new(409, "Conflict", message) }
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
            details: Details {
                reason: self.reason.to_owned(),
                kind: self.kind,
                causes: self.cause.map(str::to_owned).into_iter().collect(),
            },
        }
    }
}

/// A bind that means another incarnation.
pub(crate) fn bind_uid(pod: &PodRef, found: &str) -> ApiError {
    let PodRef { namespace, name, uid } = pod;
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, \
         ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, \
         UID in object meta: {found}"
    );
    ApiError::conflict("pods", name, &why)
}

/// A patch that means another incarnation would change the UID.
pub(crate) fn patch_uid(pod: &PodRef) -> ApiError {
    let PodRef { name, uid, .. } = pod;
    let message = format!(
        "Pod \"{name}\" is invalid: metadata.uid: Invalid value: \"{uid}\": field is immutable"
    );
    ApiError { cause: Some("FieldValueInvalid"), ..ApiError::new(422, "Invalid", message) }
}

/// A deletion that means another incarnation.
pub(crate) fn delete_uid(name: &str, wanted: &str, found: &str) -> ApiError {
    let why = format!(
        "the UID in the precondition ({wanted}) does not match the UID in record ({found}). The \
         object might have been deleted and then recreated"
    );
    ApiError::conflict("Pod", name, &why)
}

/// A deletion that means another version.
pub(crate) fn delete_version(name: &str, wanted: &str, found: &str) -> ApiError {
    let why = format!(
        "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in \
         record ({found}). The object might have been modified"
    );
    ApiError::conflict("Pod", name, &why)
}

/// The precondition of an update: the version must be the current one.
pub(crate) fn stale(resource: &str, name: &str) -> ApiError {
    let why = "the object has been modified; please apply your changes to the latest version and \
               try again";
    ApiError::conflict(resource, name, why)
}
