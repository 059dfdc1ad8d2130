//! Statuses, in upstream's words.

use std::sync::Arc;

/// Upstream's status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// All is well.
    Success,
    /// Something is broken; the attempt ends.
    Error,
    /// Not now; evicting other pods might help.
    Unschedulable,
    /// Not here, whatever is evicted.
    UnschedulableAndUnresolvable,
    /// Wait at Permit.
    Wait,
    /// Nothing to do for this pod.
    Skip,
    /// Waiting for something that will surely come.
    Pending,
}

impl Code {
    /// Upstream's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Error => "Error",
            Self::Unschedulable => "Unschedulable",
            Self::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
            Self::Wait => "Wait",
            Self::Skip => "Skip",
            Self::Pending => "Pending",
        }
    }

    /// Whether the pod was rejected, as opposed to an error.
    #[must_use]
    pub const fn is_rejected(self) -> bool {
        matches!(self, Self::Unschedulable | Self::UnschedulableAndUnresolvable | Self::Pending)
    }
}

/// A code with reasons for people.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status {
    /// The code.
    pub code: Code,
    /// Reasons, in order.
    pub reasons: Vec<Arc<str>>,
}

impl Status {
    /// A status with one reason.
    #[must_use]
    pub fn new(code: Code, reason: impl Into<Arc<str>>) -> Self {
        Self { code, reasons: vec![reason.into()] }
    }

    /// `Unschedulable`.
    #[must_use]
    pub fn unschedulable(reason: impl Into<Arc<str>>) -> Self {
        Self::new(Code::Unschedulable, reason)
    }

    /// `UnschedulableAndUnresolvable`.
    #[must_use]
    pub fn unresolvable(reason: impl Into<Arc<str>>) -> Self {
        Self::new(Code::UnschedulableAndUnresolvable, reason)
    }

    /// `Error`.
    #[must_use]
    pub fn error(reason: impl Into<Arc<str>>) -> Self {
        Self::new(Code::Error, reason)
    }

    /// Reasons joined as upstream's `Status.Message`.
    #[must_use]
    pub fn message(&self) -> String {
        self.reasons.join(", ")
    }
}
