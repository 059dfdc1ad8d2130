//! `muster topology`: the tree of domains with free and used GPUs, live or from a
//! file of objects.
//!
//! Owns the file, the lists, the terminal and the exit code; the tree and its forms
//! are the library's.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use muster_api::k8s::{Node, Pod};
use muster_api::muster::{ClusterTopology, MAX_LEVELS, TopologyLevel};
use muster_core::io::Object;
use serde_json::json;

use super::explain::read;
use super::live::{self, LiveArgs};
use crate::explain::{Decoded, decode, read_documents};
use crate::topology::{Census, Rows, View, natural, svg, table};

/// Pods that are on a node and have not ended.
const HOLDING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
const EXAMPLES: &str = "\
Examples:
  muster topology                                  # every ClusterTopology of the cluster
  muster topology gpu-fabric -o svg > fabric.svg   # a picture of one
  muster topology --level zone=topology.kubernetes.io/zone --level host=kubernetes.io/hostname
  kubectl get nodes,pods,clustertopologies -A -o json | muster topology --cluster -";

/// Arguments of `muster topology`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TopologyArgs {
    /// The ClusterTopology; all of them without it
    name: Option<String>,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,

    /// File of Kubernetes objects (JSON or YAML: a List, or several documents), or
    /// - for standard input, instead of a live cluster
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    cluster: Option<PathBuf>,

    /// A level and its node label, instead of a ClusterTopology; may be repeated, widest
    /// first
    #[arg(long = "level", value_name = "NAME=LABEL", value_parser = level, conflicts_with = "name")]
    levels: Vec<TopologyLevel>,

    #[command(flatten)]
    live: LiveArgs,
}

/// How to print the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Domains, for people
    Table,
    /// Domains and nodes, for people
    Wide,
    /// For programs; stable
    Json,
    /// A picture
    Svg,
}

/// `rack=example.com/rack`.
fn level(text: &str) -> Result<TopologyLevel, String> {
    match text.split_once('=') {
        Some((name, label)) if !name.is_empty() && !label.is_empty() => {
            Ok(TopologyLevel { name: name.to_owned(), node_label: label.to_owned() })
        }
        _ => Err("write NAME=LABEL, for example rack=topology.example.com/rack".to_owned()),
    }
}

/// Prints the tree. No ClusterTopology at all is an answer, as for kubectl; one that
/// was named and is not there is a failure.
///
/// # Errors
///
/// If the file or the cluster cannot be read, or there is no such topology.
pub fn run(args: &TopologyArgs) -> Result<ExitCode> {
    if args.levels.len() > MAX_LEVELS {
        bail!("--level: {} levels are too many: give at most {MAX_LEVELS}", args.levels.len());
    }
    let seen = match &args.cluster {
        Some(path) => {
            let text = read(path)?;
            Seen::in_file(&text).with_context(|| path.display().to_string())?
        }
        None => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(Seen::live(args))?
        }
    };
    let (text, notes) = answer(&seen, args)?;
    for note in notes {
        eprintln!("muster: note: {note}");
    }
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // `| head` has seen enough
        result => result.context("cannot write the answer")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What was found.
#[derive(Debug, Default)]
struct Seen {
    census: Census,
    topologies: Vec<ClusterTopology>,
    /// Whether the kind is served; a file holds what it holds.
    served: bool,
    malformed: usize,
}

impl Seen {
    fn in_file(text: &str) -> Result<Self> {
        let mut seen = Self { served: true, ..Self::default() };
        for document in &read_documents(text)? {
            match decode(document)? {
                Decoded::Node(node) => seen.census.node(&node),
                Decoded::Pod(pod) => seen.census.pod(&pod),
                Decoded::Object(object) => {
                    if let Object::ClusterTopology(topology) = *object {
                        seen.topologies.push(topology);
                    }
                }
                Decoded::Unread(_) => {}
            }
        }
        Ok(seen)
    }

    async fn live(args: &TopologyArgs) -> Result<Self> {
        let client = args.live.client().await?;
        let (mut census, mut topologies) = (Census::default(), Vec::new());
        let mut malformed = 0;
        let mut served = true;
        if args.levels.is_empty() {
            let add = |topology: &ClusterTopology| topologies.push(topology.clone());
            let listed = live::list::<ClusterTopology>(&client, None, add).await?;
            served = listed.is_some();
            malformed += listed.unwrap_or(0);
        }
        let nodes = live::list::<Node>(&client, None, |node| census.node(node)).await?;
        let pods = live::list::<Pod>(&client, Some(HOLDING), |pod| census.pod(pod)).await?;
        malformed += nodes.unwrap_or(0) + pods.unwrap_or(0);
        Ok(Self { census, topologies, served, malformed })
    }
}

/// What is printed, and notes beside it.
fn answer(seen: &Seen, args: &TopologyArgs) -> Result<(String, Vec<String>)> {
    let mut notes = Vec::new();
    if seen.malformed > 0 {
        notes.push(format!("{} objects could not be read and are not counted", seen.malformed));
    }
    let views = views(seen, args)?;
    if views.is_empty() {
        notes.push(nothing(seen));
    }
    let text = match args.output {
        Output::Svg => match views.as_slice() {
            [view] => svg(view),
            [] => bail!("there is nothing to draw: {}", nothing(seen)),
            views => {
                let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
                bail!("a picture shows one topology: name one of {}", names.join(", "))
            }
        },
        Output::Json if args.name.is_some() || !args.levels.is_empty() => {
            serde_json::to_string_pretty(&views[0])? + "\n"
        }
        Output::Json => serde_json::to_string_pretty(&json!({ "items": views }))? + "\n",
        Output::Table => tables(&views, Rows::Domains),
        Output::Wide => tables(&views, Rows::Nodes),
    };
    Ok((text, notes))
}

fn tables(views: &[View], rows: Rows) -> String {
    let tables: Vec<String> = views.iter().map(|view| table(view, rows)).collect();
    tables.join("\n")
}

/// The topologies that were asked for, by name.
fn views(seen: &Seen, args: &TopologyArgs) -> Result<Vec<View>> {
    if !args.levels.is_empty() {
        return Ok(vec![View::of("", &seen.census.tree(args.levels.clone()))]);
    }
    let mut all: Vec<&ClusterTopology> = seen.topologies.iter().collect();
    all.sort_by(|a, b| natural(&a.metadata.name, &b.metadata.name));
    if let Some(name) = &args.name {
        let known: Vec<&str> = all.iter().map(|t| t.metadata.name.as_str()).collect();
        if !known.contains(&name.as_str()) {
            let there = if known.is_empty() {
                nothing(seen)
            } else {
                format!("there is {}", known.join(", "))
            };
            bail!("clustertopologies.muster.dev {name:?} not found: {there}");
        }
        all.retain(|t| t.metadata.name == *name);
    }
    let view =
        |t: &&ClusterTopology| View::of(&t.metadata.name, &seen.census.tree(t.spec.levels.clone()));
    Ok(all.iter().map(view).collect())
}

/// What to do if there is no topology.
fn nothing(seen: &Seen) -> String {
    let levels = "name levels by --level, widest first \
         (--level zone=topology.kubernetes.io/zone --level host=kubernetes.io/hostname)";
    if seen.served {
        format!("no ClusterTopology found; {levels}, or create one")
    } else {
        format!(
            "the cluster does not know ClusterTopologies; {levels}, or install the kind by \
             `muster crds | kubectl apply --server-side -f -`"
        )
    }
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
