//! The arguments of `muster-node-agent run`.
//!
//! Owns: names, defaults and what the environment may say. Must never start anything but the runtime.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use super::{Options, lease, run};
use crate::Sources;
use crate::kubelet::settings::Files;

/// Longest name of an object.
const MAX_NAME: usize = 253;

#[derive(Args, Debug)]
pub struct RunArgs {
    /// The Node that this machine is; $NODE_NAME if absent
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// Where the API server is; inside a pod it need not be said
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Where the node's sysfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,

    /// Where the node's procfs is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub proc_root: PathBuf,

    /// NVML library to load instead of the system's libnvidia-ml.so.1
    #[arg(long, value_name = "FILE")]
    pub nvml_library: Option<PathBuf>,

    /// Where the kubelet's directory is mounted
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_root: PathBuf,

    /// The kubelet's configuration file; config.yaml in its directory if absent
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,

    /// The kubelet's --config-dir, if it has one
    #[arg(long, value_name = "DIR")]
    pub kubelet_config_dir: Option<PathBuf>,

    /// Namespace of the Lease; $POD_NAMESPACE or muster-system if absent
    #[arg(long, value_name = "NAME")]
    pub lease_namespace: Option<String>,

    /// Address of /livez, /readyz and /metrics; "none" for none
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10262")]
    pub listen: String,

    /// Write a NodeResourceTopology (topology.node.k8s.io/v1alpha2) too
    #[arg(long)]
    pub node_resource_topology: bool,

    /// Seconds between two looks at work, power and memory of the GPUs when nothing seems to happen
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub poll: u64,

    /// Form of the log on standard error
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Log each write, each question and its answer
    #[arg(short, long)]
    pub verbose: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl RunArgs {
    fn options(self) -> anyhow::Result<Options> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let node = self.node_name.or_else(|| env("NODE_NAME"));
        let node = node.context("no node name: give --node-name or set NODE_NAME")?;
        ensure!(
            node.len() + lease::PREFIX.len() <= MAX_NAME && is_name(&node),
            "{node:?} is not the name of a Node"
        );
        let listen = match self.listen.as_str() {
            "none" => None,
            address => Some(address.parse::<SocketAddr>().with_context(|| {
                format!("--listen {address}: give an address and a port, or none")
            })?),
        };
        let namespace = self.lease_namespace.or_else(|| env("POD_NAMESPACE"));
        let config = self.kubelet_config.unwrap_or(self.kubelet_root.join("config.yaml"));
        Ok(Options {
            sources: Sources {
                sysfs_root: self.sysfs_root,
                proc_root: self.proc_root,
                nvml_library: self.nvml_library,
            },
            kubelet_root: self.kubelet_root,
            kubelet_files: Files { file: config, drop_ins: self.kubelet_config_dir },
            kubeconfig: self.kubeconfig,
            namespace: namespace.unwrap_or_else(|| "muster-system".to_owned()),
            identity: env("POD_NAME").unwrap_or_else(|| node.clone()),
            node,
            listen,
            node_resource_topology: self.node_resource_topology,
            poll: Duration::from_secs(self.poll),
        })
    }
}

/// What a name in a path may be made of.
fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    !name.is_empty() && name.bytes().all(inner)
}

/// Runs the agent until it is told to end.
pub fn main(args: RunArgs) -> anyhow::Result<()> {
    log(args.log_format, args.verbose);
    let options = args.options()?;
    // One thread: there is little to do, and each further one costs memory.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(options))
}

fn log(format: LogFormat, verbose: bool) {
    let own = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let filter = Targets::new().with_default(LevelFilter::WARN).with_target("muster", own);
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Text => layer.with_ansi(std::io::stderr().is_terminal()).boxed(),
    };
    let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: RunArgs,
    }

    fn options(args: &[&str]) -> anyhow::Result<Options> {
        Cli::try_parse_from([&["run"], args].concat())?.args.options()
    }

    #[test]
    fn arguments_become_options() {
        let options = options(&["--node-name", "gpu-1", "--kubelet-root", "/k"]).unwrap();
        assert_eq!(options.kubelet_files.file, PathBuf::from("/k/config.yaml"));
        assert_eq!(options.namespace, "muster-system");
        assert_eq!(options.identity, "gpu-1");
        assert_eq!(options.listen.unwrap().port(), 10262);
        assert_eq!(options.poll, Duration::from_secs(5));
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        let long = "n".repeat(MAX_NAME);
        let cases: [(&[&str], &str); 4] = [
            (&["--node-name", "../x"], "is not the name of a Node"),
            (&["--node-name", &long], "is not the name of a Node"),
            (&["--node-name", "n", "--listen", "here"], "--listen here"),
            (&["--node-name", "n", "--poll", "0"], "--poll"),
        ];
        for (args, expected) in cases {
            let error = format!("{:#}", options(args).unwrap_err());
            assert!(error.contains(expected), "{args:?}: {error}");
        }
    }
}
