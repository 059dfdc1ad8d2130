//! `muster explain`: why a pod goes where it goes, from a file of objects.
//!
//! Owns the file, the terminal and the exit code; the answer is the library's.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use muster_core::Profile;
use muster_core::framework::Registry as Plugins;

use crate::config::Configuration;
use crate::explain::{Session, read_documents, table};
use crate::plugin::Registry;

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 30;

/// Arguments of `muster explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// File of Kubernetes objects (JSON or YAML: a List, or several documents), or
    /// - for standard input
    #[arg(long, value_name = "FILE")]
    pub cluster: PathBuf,

    /// The pod, as NAMESPACE/NAME; a bare name is in the namespace default
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub pod: String,

    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,

    /// KubeSchedulerConfiguration with the profiles to choose from
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// The profile by its schedulerName; the first one without it
    #[arg(long, value_name = "NAME", requires = "config")]
    pub profile: Option<String>,
}

/// How to print the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// For programs; stable
    Json,
}

/// Answers. A pod that fits nowhere is an answer; a file that cannot be read is
/// a failure.
///
/// # Errors
///
/// If a file cannot be read, or the pod is not in it.
pub fn run(args: &ExplainArgs, registry: &Registry) -> Result<ExitCode> {
    let text = read(&args.cluster)?;
    let profile = args
        .config
        .as_deref()
        .map(|path| choose(path, args.profile.as_deref(), registry.plugins()));
    let (answer, skipped) = answer(&text, &args.pod, profile.transpose()?, args.output)
        .with_context(|| args.cluster.display().to_string())?;
    for note in skipped {
        eprintln!("muster: note: {note}");
    }
    match io::stdout().write_all(answer.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // `| head` has seen enough
        result => result.context("cannot write the answer")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer, and notes on what was passed over.
fn answer(
    text: &str,
    pod: &str,
    profile: Option<Profile>,
    output: Output,
) -> Result<(String, Vec<String>)> {
    let mut session = Session::new(&read_documents(text)?, profile)?;
    let pod = if pod.contains('/') { pod.to_owned() } else { format!("default/{pod}") };
    let explanation = session.explain(&pod)?;
    let skipped = session.skipped.iter();
    let notes = skipped.map(|(kind, n)| format!("skipped {n} of kind {kind}: no plugin reads it"));
    let answer = match output {
        Output::Table => table(&explanation),
        Output::Json => serde_json::to_string_pretty(&explanation)? + "\n",
    };
    Ok((answer, notes.collect()))
}

/// Reads a file of objects, or standard input.
pub(super) fn read(path: &Path) -> Result<String> {
    let origin = path.display();
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|f| f.take(MAX_BYTES + 1).read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {origin}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!(
            "{origin} is longer than {MAX_BYTES} bytes: leave out what the question is not about"
        );
    }
    String::from_utf8(bytes).with_context(|| format!("{origin} is not UTF-8 text"))
}

/// The profile of that name, or the first one.
fn choose(path: &Path, name: Option<&str>, plugins: &Plugins) -> Result<Profile> {
    let configuration = Configuration::parse_with(path, &read(path)?, plugins)?;
    let mut profiles = configuration.core_profiles(plugins)?.into_iter();
    let chosen = match name {
        Some(name) => profiles.find(|profile| **profile.scheduler_name() == *name),
        None => profiles.next(),
    };
    chosen.with_context(|| {
        let (wanted, known) = (name.unwrap_or_default(), configuration.scheduler_names());
        format!("--profile {wanted:?}: {} has {}", path.display(), known.join(", "))
    })
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
