//! `muster gang`: a gang with its members, their nodes, ranks and domain.
//!
//! Owns the flags and the terminal; what is shown is the library's.

use std::process::ExitCode;

use anyhow::{Result, bail};
use muster_core::Profile;
use serde_json::json;

use super::print::{Output, print};
use super::source::{ListingArgs, NamespaceArgs};
use crate::whatif::{Stage, World, gang_table, gangs_named};

const EXAMPLES: &str = "\
Examples:
  muster gang train -n team
  muster gang train -n team -o json";

/// Arguments of `muster gang`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct GangArgs {
    /// The pod group
    name: String,

    #[command(flatten)]
    namespace: NamespaceArgs,

    #[command(flatten)]
    listing: ListingArgs,
}

/// Prints it.
///
/// # Errors
///
/// If the objects cannot be read, or there is no such group.
pub(super) fn run(args: &GangArgs) -> Result<ExitCode> {
    let world = args.listing.source.world()?;
    let namespace = args.namespace.name(&args.listing.source);
    let (output, headings) = (args.listing.output, args.listing.headings());
    print(&answer(&world, &namespace, &args.name, output, headings)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn answer(
    world: &World,
    namespace: &str,
    name: &str,
    output: Output,
    headings: bool,
) -> Result<String> {
    let stage = Stage::new(world, vec![Profile::default_named("muster")]);
    let gangs = gangs_named(&stage, namespace, name);
    if gangs.is_empty() {
        bail!("there is no pod group {name:?} in namespace {namespace:?} (-n NAMESPACE)");
    }
    if let [gang] = gangs.as_slice()
        && let Some(data) = output.data(gang)?
    {
        return Ok(data);
    }
    if let Some(data) = output.data(&json!({ "items": gangs }))? {
        return Ok(data);
    }
    let tables: Vec<String> =
        gangs.iter().map(|gang| gang_table(gang, output.is_wide(), headings)).collect();
    Ok(tables.join("\n"))
}
