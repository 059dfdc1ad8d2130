//! The chart: what it renders, what it refuses, and what it does on a real API server.
//!
//! `UPDATE_GOLDEN=1 cargo test --test chart` rewrites golden files; generated files (the
//! chart's kinds, README and schema descriptions, roles used by other tests) are rewritten by the
//! test that finds them out of date, which then fails.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod files;
mod images;
mod install;
mod metrics;
mod pods;
mod refused;
mod render;
mod rights;
mod support;
mod values;
