//! What is wrong with a configuration file: where, why, and what to do.
//!
//! Owns the wording, which follows upstream's field errors
//! (`path: Invalid value: …: must be …`) with a remedy in parentheses.

use std::fmt;
use std::path::PathBuf;

/// A file that is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("{file}: cannot be read: {source}", file = .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is longer than a configuration can be.
    #[error("{file}: is longer than {limit} bytes", file = .file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// It is not YAML, or a key is there twice.
    #[error("{file}: {message}", file = .file.display())]
    Yaml {
        /// The file.
        file: PathBuf,
        /// Where and why.
        message: String,
    },
    /// Some fields are wrong; all of them are listed.
    #[error("{file}: {errors}", file = .file.display(), errors = Lines(.errors))]
    Invalid {
        /// The file.
        file: PathBuf,
        /// One for each field.
        errors: Vec<FieldError>,
    },
}

/// One error on the same line, several on one line each.
struct Lines<'a>(&'a [FieldError]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0 {
            return only.fmt(f);
        }
        write!(f, "{} errors:", self.0.len())?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where: `profiles[0].schedulerName`.
    pub path: String,
    /// Upstream's class of error, with the value if it says something.
    pub problem: Problem,
    /// What must be the case.
    pub detail: String,
    /// What to do.
    pub remedy: String,
}

/// Upstream's classes of field errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The value, as JSON.
    Invalid(String),
    /// Must be set.
    Required,
    /// The value, as JSON, is there before.
    Duplicate(String),
    /// The value, as JSON, is none of those that exist.
    Unsupported(String),
    /// Must not be set here.
    Forbidden,
    /// There is no such field.
    Unknown,
    /// What upstream says that is none of the above, whole.
    Said(String),
}

impl FieldError {
    fn new(path: impl Into<String>, problem: Problem, detail: impl Into<String>) -> Self {
        let (path, detail) = (path.into(), detail.into());
        Self { path, problem, detail, remedy: String::new() }
    }

    /// A value that breaks a rule.
    pub(super) fn invalid(
        path: impl Into<String>,
        value: &impl serde::Serialize,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(path, Problem::Invalid(json(value)), detail)
    }

    /// A value that must be there.
    pub(super) fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Required, detail)
    }

    /// A value that was there before.
    pub(super) fn duplicate(path: impl Into<String>, value: &impl serde::Serialize) -> Self {
        Self::new(path, Problem::Duplicate(json(value)), "")
    }

    /// A value that is none of a list.
    pub(super) fn unsupported(
        path: impl Into<String>,
        value: &impl serde::Serialize,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(path, Problem::Unsupported(json(value)), detail)
    }

    /// A value that must not be there.
    pub(super) fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Forbidden, detail)
    }

    /// What upstream says of a field, whole.
    pub(super) fn said(path: impl Into<String>, words: impl Into<String>) -> Self {
        Self::new(path, Problem::Said(words.into()), "")
    }

    /// A field that does not exist.
    pub(super) fn unknown(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, Problem::Unknown, detail)
    }

    /// Adds what to do about it.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() && self.problem != Problem::Unknown {
            write!(f, "{}: ", self.path)?;
        }
        match &self.problem {
            Problem::Invalid(value) => write!(f, "Invalid value: {value}")?,
            Problem::Required => f.write_str("Required value")?,
            Problem::Duplicate(value) => write!(f, "Duplicate value: {value}")?,
            Problem::Unsupported(value) => write!(f, "Unsupported value: {value}")?,
            Problem::Forbidden => f.write_str("Forbidden")?,
            Problem::Unknown => write!(f, "strict decoding error: unknown field {:?}", self.path)?,
            Problem::Said(words) => f.write_str(words)?,
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}

/// How much of a value an error shows.
const MAX_SHOWN: usize = 120;

fn json(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
