//! The kubelet beside us: how it is set, and when it changes something.
//!
//! Owns: reading its settings from where they can be had, and following its directories. Must never
//! write below the kubelet's directory, and never take a guess for knowledge: settings say how
//! sure they are.

pub mod settings;
pub mod watch;
