//! One profile by itself: one item of `profiles` in a configuration file.
//!
//! Owns nothing but the way there: fields, defaults and rules are the
//! configuration's.

use std::path::Path;

use anyhow::{Context as _, Result};
use muster_core::Profile;
use muster_core::framework::Registry;
use serde_json::{Value, json};

use crate::config::{API_VERSION, Configuration, KIND};

/// The profile that one item of `profiles` describes.
///
/// # Errors
///
/// If kube-scheduler would refuse it.
pub fn profile_from_json(json: &Value) -> Result<Profile> {
    let file = json!({"apiVersion": API_VERSION, "kind": KIND, "profiles": [json]});
    let configuration = Configuration::parse(Path::new("profile"), &file.to_string())?;
    let profiles = configuration.core_profiles(&Registry::in_tree())?;
    profiles.into_iter().next().context("a configuration has a profile")
}
