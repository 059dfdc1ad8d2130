//! The result of a run, for people and for programs.
//!
//! `summary` computes once what both forms say; `text` draws it, `json`
//! writes it. Must never change with the terminal, the locale or the machine:
//! the same run gives the same bytes.

mod chart;
mod json;
mod map;
mod summary;
mod text;
mod usage;
mod words;

pub use json::to_json;
pub use summary::{BUCKETS, Summary, Usage, WaitingRow, Waits, WorkloadRow};
pub use text::to_text;
