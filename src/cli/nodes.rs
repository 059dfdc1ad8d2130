//! `muster nodes`: GPUs, links, NUMA nodes and health of nodes.
//!
//! Owns the flags and the terminal; what is shown is the library's.

use std::process::ExitCode;

use anyhow::{Result, anyhow};
use serde_json::json;

use super::print::{Output, print};
use super::source::ListingArgs;
use crate::whatif::{World, node_table, node_views};

const EXAMPLES: &str = "\
Examples:
  muster nodes                # GPUs in all and free, links, health
  muster nodes gpu-7 -o wide  # with what is wrong with which GPU";

/// Arguments of `muster nodes`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct NodesArgs {
    /// Nodes by name; all of them without one
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    #[command(flatten)]
    listing: ListingArgs,
}

/// Prints them.
///
/// # Errors
///
/// If the objects cannot be read, or a node that is named is not there.
pub(super) fn run(args: &NodesArgs) -> Result<ExitCode> {
    let world = args.listing.source.world()?;
    let text = answer(&world, &args.names, args.listing.output, args.listing.headings())?;
    if text.is_empty() {
        eprintln!("No nodes found.");
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What is printed; empty if there is no node and people read it.
pub(super) fn answer(
    world: &World,
    names: &[String],
    output: Output,
    headings: bool,
) -> Result<String> {
    let views =
        node_views(world, names).map_err(|missing| anyhow!("nodes {missing:?} not found"))?;
    if let Some(data) = output.data(&json!({ "items": views }))? {
        return Ok(data);
    }
    let table = node_table(&views);
    Ok(if table.is_empty() { String::new() } else { table.text(output.is_wide(), headings, 0) })
}
