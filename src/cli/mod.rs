//! The command line: a tree of commands, each a thin call into the library.
//!
//! Owns: names, help and defaults of flags, and what wrong ones are told. Must
//! never hold logic of its own beyond turning flags into options.

#[cfg(test)]
mod answers_tests;
mod capture;
mod config;
mod crds;
pub mod explain;
mod fuzz;
mod gang;
mod lint;
mod live;
mod manifest;
mod nodes;
mod print;
mod queue;
#[cfg(test)]
mod reference_tests;
mod run;
mod shell;
pub mod simulate;
mod source;
pub mod topology;
mod why;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::plugin::Registry;

/// GPU- and topology-aware batch scheduler for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "muster", version, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Schedule pods of a cluster.
    Run(Box<run::Args>),
    /// Write what scheduling depends on to a file, for `explain` and `topology`.
    Capture(capture::CaptureArgs),
    /// Look at a configuration.
    Config(config::ConfigArgs),
    /// Print the definitions of Muster's kinds, for `kubectl apply -f -`.
    Crds(crds::CrdsArgs),
    /// Say why a pod goes where it goes, from a file of objects.
    Explain(explain::ExplainArgs),
    /// Show a gang: its members with their nodes and ranks.
    Gang(gang::GangArgs),
    /// Check files without a cluster: Muster's kinds, manifests with gangs, configurations.
    Lint(lint::LintArgs),
    /// Show nodes: GPUs, links, NUMA nodes, health.
    Nodes(nodes::NodesArgs),
    /// Show what waits, in the order in which it is tried.
    Queue(queue::QueueArgs),
    /// Try a scenario on a simulated cluster, or a manifest on this one.
    Simulate(Box<simulate::SimulateArgs>),
    /// Show the network between nodes: domains with free and used GPUs.
    Topology(topology::TopologyArgs),
    /// Say why a pod or a pod group waits, and what would let it run.
    Why(why::WhyArgs),
    /// Print a script by which a shell completes commands and flags.
    Completion(shell::CompletionArgs),
    /// Print pages of the manual.
    Man(shell::ManArgs),
    #[command(name = "__complete", hide = true)]
    Complete(shell::CompleteArgs),
}

/// Runs what the command line asks for, with these plugins.
#[must_use]
pub fn main(registry: &Registry) -> ExitCode {
    let program = std::env::args_os().next().unwrap_or_default();
    let matches = called(&program).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Run(args) => run::main(*args, registry),
        Command::Capture(args) => capture::run(&args),
        Command::Config(args) => config::run(&args, registry),
        Command::Crds(args) => crds::run(&args),
        Command::Explain(args) => explain::run(&args, registry),
        Command::Gang(args) => gang::run(&args),
        Command::Nodes(args) => nodes::run(&args),
        Command::Queue(args) => queue::run(&args, registry),
        Command::Simulate(args) => simulate::run(*args, registry),
        Command::Topology(args) => topology::run(&args),
        Command::Why(args) => why::run(&args, registry),
        Command::Lint(args) => lint::run(&args, registry),
        Command::Completion(args) => shell::completion(&args, &mut Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
        Command::Complete(args) => shell::complete(&args, &Cli::command()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("muster: {}", describe(&error));
        ExitCode::FAILURE
    })
}

/// The tree under the name it is called by: a program `kubectl-muster` in the PATH is
/// `kubectl muster`.
fn called(program: &OsStr) -> clap::Command {
    let command = Cli::command();
    let name = Path::new(program).file_stem().and_then(OsStr::to_str).unwrap_or_default();
    if name == "kubectl-muster" { command.bin_name("kubectl muster") } else { command }
}

/// An error with its causes, without those that it quotes.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_everything_once() {
        let cause = anyhow::anyhow!("no such file");
        assert_eq!(
            describe(&cause.context("x: no such file; give one")),
            "x: no such file; give one"
        );
        let cause = anyhow::anyhow!("no such file");
        assert_eq!(describe(&cause.context("read x")), "read x: no such file");
    }

    #[test]
    fn the_tree_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn as_a_plugin_of_kubectl_it_says_so() {
        let usage = |program: &str| {
            let refused =
                called(OsStr::new(program)).try_get_matches_from([program, "topology", "-x"]);
            refused.unwrap_err().to_string()
        };
        assert!(usage("/opt/bin/kubectl-muster").contains("kubectl muster topology"));
        assert!(usage("/usr/bin/muster").contains("Usage: muster topology"));
    }
}
