//! The node agent's program: parses arguments and calls the library.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use muster_node_agent::reader::Reader;
use muster_node_agent::{Sources, agent, print};

/// Reports what a node really is: NUMA nodes, devices and GPUs.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print what is found on this node; needs no cluster
    Print(PrintArgs),
    /// Keep this node's NodeTopology in the cluster as the node is
    Run(agent::cli::RunArgs),
}

#[derive(Args)]
struct PrintArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: print::Format,

    /// Where the node's sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sysfs_root: PathBuf,

    /// Where the node's procfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc_root: PathBuf,

    /// NVML library to load instead of the system's libnvidia-ml.so.1
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Print(args) => print(args),
        Command::Run(args) => agent::cli::main(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(args: PrintArgs) -> anyhow::Result<()> {
    let reading = Reader::once(Sources {
        sysfs_root: args.sysfs_root,
        proc_root: args.proc_root,
        nvml_library: args.nvml_library,
    })?;
    let text = print::render(&reading, args.output)?;
    match io::stdout().write_all(text.as_bytes()) {
        // `print | head` is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("standard output"),
    }
}
