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
use crate::lint::lint;
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
enum Output {
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
    let text = match args.output {
        Output::Json => serde_json::to_string_pretty(&json!({ "items": reports }))? + "\n",
        Output::Text => {
            let mut text = String::new();
            for report in &reports {
                for finding in &report.findings {
                    text += &format!("{}: {finding}\n", report.file);
                }
                if report.findings.is_empty() {
                    let (checked, skipped) = (report.checked, report.skipped);
                    let rest = match skipped {
                        0 => String::new(),
                        n => format!(", {n} of other kinds"),
                    };
                    text += &format!("{}: nothing wrong ({checked} checked{rest})\n", report.file);
                }
            }
            text
        }
    };
    print(&text)?;
    let wrong = reports.iter().any(|report| report.findings.iter().any(|f| f.error));
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
