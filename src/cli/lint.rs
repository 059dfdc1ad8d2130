//! `muster lint`: files checked without a cluster.
//!
//! Owns the files, the terminal and the exit code: 0 if nothing is wrong, 1 if something would
//! be refused.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::explain::read;
use super::print::print;
use crate::lint::{Report, lint};
use crate::plugin::Registry;

const EXAMPLES: &str = "\
Examples:
  muster lint -f train.yaml
  muster lint -f config.yaml -f policies/ml.yaml -o json
  helm template my-chart | muster lint -f -";

/// Arguments of `muster lint`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LintArgs {
    /// Objects of Muster's kinds, manifests with gangs, or a KubeSchedulerConfiguration; may be
    /// repeated; - is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// For people
    Text,
    /// For programs; stable
    Json,
}

/// Checks them all. Warnings are no failure.
///
/// # Errors
///
/// If a file cannot be read.
pub(super) fn run(args: &LintArgs, registry: &Registry) -> Result<ExitCode> {
    let mut reports = Vec::new();
    for file in &args.files {
        reports.push(lint(file, &read(file)?, registry.plugins()));
    }
    print(&answer(&reports, args.output)?)?;
    let wrong = reports.iter().any(|report| report.findings.iter().any(|f| f.error));
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What is printed: a line for each finding, and for each file without any.
pub(super) fn answer(reports: &[Report], output: Output) -> Result<String> {
    if output == Output::Json {
        return Ok(serde_json::to_string_pretty(&json!({ "items": reports }))? + "\n");
    }
    let mut text = String::new();
    for Report { file, checked, skipped, findings } in reports {
        for finding in findings {
            text += &format!("{file}: {finding}\n");
        }
        if findings.is_empty() {
            let rest =
                if *skipped == 0 { String::new() } else { format!(", {skipped} of other kinds") };
            text += &format!("{file}: nothing wrong ({checked} checked{rest})\n");
        }
    }
    Ok(text)
}
