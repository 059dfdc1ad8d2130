//! API types: what Muster reads from and writes to the Kubernetes API.
//!
//! Owns the wire form of every object Muster understands. [`k8s`] holds pruned
//! views of Kubernetes' own kinds: only the fields the core reads are decoded,
//! everything else is skipped by the parser. [`muster`] holds Muster's own kinds
//! and the schemas that the API server checks them by.
//!
//! Must never hold a client, a runtime, a clock or a scheduling decision.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod k8s;
pub mod muster;
