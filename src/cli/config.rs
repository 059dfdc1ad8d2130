//! `muster config`: a configuration as it would be in force.
//!
//! Owns the terminal and the exit code; what is shown and what is refused is the
//! library's.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::config::Configuration;
use crate::plugin::Registry;

/// Arguments of `muster config`.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show a configuration with all defaults, as it would be in force.
    View(ViewArgs),
}

#[derive(Debug, clap::Args)]
struct ViewArgs {
    /// A KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1). Without one,
    /// what Muster does without one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Show who is called where instead: by profile and extension point, in call order.
    #[arg(long)]
    plugins: bool,

    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = Output::Yaml)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Yaml,
    Json,
}

/// Prints; a file that is refused is a failure.
///
/// # Errors
///
/// If the file cannot be read or is refused.
pub(super) fn run(args: &ConfigArgs, registry: &Registry) -> Result<ExitCode> {
    let Command::View(args) = &args.command;
    let configuration = Configuration::load_with(args.config.as_deref(), registry.plugins())?;
    for warning in &configuration.warnings {
        eprintln!("muster: warning: {warning}");
    }
    let shown = if args.plugins { configuration.called_to_json() } else { configuration.to_json() };
    match io::stdout().write_all(print(&shown, args.output)?.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // `| head` has seen enough
        result => result.context("cannot write the configuration")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn print(shown: &Value, output: Output) -> Result<String> {
    Ok(match output {
        Output::Yaml => serde_saphyr::to_string(shown)?,
        Output::Json => serde_json::to_string_pretty(shown)? + "\n",
    })
}
