//! The command line: a tree of commands, each a thin call into the library.
//!
//! Owns: names, help and defaults of flags, and what wrong ones are told. Must
//! never hold logic of its own beyond turning flags into options.

mod fuzz;
mod run;
pub mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Try a scenario on a simulated cluster.
    Simulate(simulate::SimulateArgs),
}

/// Runs what the command line asks for.
#[must_use]
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::main(*args),
        Command::Simulate(args) => simulate::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("muster: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
