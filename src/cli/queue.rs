//! `muster queue`: what waits, in the order in which it is tried.
//!
//! Owns the flags and the terminal; the order is the library's.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::print::{Output, print};
use super::source::{ListingArgs, NamespacesArgs, ProfileArgs};
use crate::plugin::Registry;
use crate::whatif::{Stage, queue_table, waiting};

const EXAMPLES: &str = "\
Examples:
  muster queue -A                 # everything that waits, in order
  muster queue -n team -o wide    # with what the scheduler said last";

/// Arguments of `muster queue`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct QueueArgs {
    #[command(flatten)]
    namespaces: NamespacesArgs,

    #[command(flatten)]
    listing: ListingArgs,

    #[command(flatten)]
    profile: ProfileArgs,
}

/// Prints it. That nothing waits is an answer.
///
/// # Errors
///
/// If the objects cannot be read.
pub(super) fn run(args: &QueueArgs, registry: &Registry) -> Result<ExitCode> {
    let profiles = args.profile.profiles(registry)?;
    let world = args.listing.source.world()?;
    let stage = Stage::new(&world, profiles);
    let of = args.namespaces.name(&args.listing.source);
    let text = answer(&stage, of.as_deref(), args.listing.output, args.listing.headings())?;
    if text.is_empty() {
        let place = of.map(|of| format!(" in {of} namespace")).unwrap_or_default();
        eprintln!("Nothing waits{place}.");
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed; empty if nothing waits and people read it.
pub(super) fn answer(
    stage: &Stage<'_>,
    namespace: Option<&str>,
    output: Output,
    headings: bool,
) -> Result<String> {
    let mut all = waiting(stage);
    all.retain(|entry| namespace.is_none_or(|of| entry.namespace == of));
    if let Some(data) = output.data(&json!({ "items": all }))? {
        return Ok(data);
    }
    let table = queue_table(&all, namespace.is_none());
    Ok(if table.is_empty() { String::new() } else { table.text(output.is_wide(), headings, 0) })
}
