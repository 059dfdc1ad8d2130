//! `muster why`: what keeps a pod or a pod group, and what would let it run.
//!
//! Owns the flags and the terminal; the answer is the library's.

use std::process::ExitCode;

use anyhow::Result;
use muster_core::Profile;

use super::print::{Output, bold, print};
use super::source::{NamespaceArgs, ProfileArgs, SourceArgs};
use crate::plugin::Registry;
use crate::whatif::why::{About, text, why};
use crate::whatif::{Stage, World};

const EXAMPLES: &str = "\
Examples:
  muster why train-3 -n team                   # a pod, or a pod group of that name
  muster why podgroup/train -n team -o wide    # with where its members would go
  muster why pod/train-3 --cluster cluster.json -o json";

/// Arguments of `muster why`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WhyArgs {
    /// A pod or a pod group: NAME, pod/NAME or podgroup/NAME
    #[arg(value_name = "POD|PODGROUP")]
    name: String,

    #[command(flatten)]
    namespace: NamespaceArgs,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    profile: ProfileArgs,
}

/// Answers. Something that waits is an answer; what is not there is a failure.
///
/// # Errors
///
/// If the objects cannot be read, or there is no such pod or group.
pub(super) fn run(args: &WhyArgs, registry: &Registry) -> Result<ExitCode> {
    let profiles = args.profile.profiles(registry)?;
    let world = args.source.world()?;
    let namespace = args.namespace.name(&args.source);
    print(&answer(&world, profiles, &namespace, args, &bold())?)?;
    Ok(ExitCode::SUCCESS)
}

fn answer(
    world: &World,
    profiles: Vec<Profile>,
    namespace: &str,
    args: &WhyArgs,
    bold: &dyn Fn(&str) -> String,
) -> Result<String> {
    let stage = Stage::new(world, profiles);
    let about = About::find(&stage, namespace, &args.name)?;
    let why = why(&stage, &about);
    let data = args.output.data(&why)?;
    Ok(data.unwrap_or_else(|| text(&why, args.output.is_wide(), bold)))
}

#[cfg(test)]
#[path = "why_tests.rs"]
mod tests;
