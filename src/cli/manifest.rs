//! `muster simulate -f`: whether a manifest would run on this cluster, now.
//!
//! Owns the flags, the terminal and the exit code: 0 if everything would run, 3 if not.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use muster_core::Profile;
use serde::Serialize;
use serde_json::Value;

use super::explain::read;
use super::print::{bold, print};
use super::source::{NamespaceArgs, ProfileArgs, SourceArgs};
use crate::explain::{Document, read_documents};
use crate::plugin::Registry;
use crate::whatif::why::{About, Why, text, why};
use crate::whatif::{Column, Key, Stage, Table, World, expand};

/// Something of the manifest would wait.
const WOULD_WAIT: u8 = 3;
/// Pods that are listed; more are counted by node.
const LISTED: usize = 40;

/// Arguments of `muster simulate -f`.
#[derive(Debug, clap::Args)]
pub(super) struct ManifestArgs {
    /// Instead of a scenario, a manifest: would it run on this cluster, now? Pods, Jobs,
    /// Deployments, JobSets, LeaderWorkerSets, jobs of Kubeflow and Ray, and pod groups; -
    /// is standard input
    #[arg(short = 'f', long = "filename", value_name = "FILE", help_heading = "On a cluster")]
    pub(super) file: Option<PathBuf>,

    #[command(flatten, next_help_heading = "On a cluster")]
    namespace: NamespaceArgs,

    #[command(flatten, next_help_heading = "On a cluster")]
    source: SourceArgs,

    #[command(flatten, next_help_heading = "On a cluster")]
    profile: ProfileArgs,
}

/// The answer.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    /// Whether everything would run now.
    runs: bool,
    /// The pods of the manifest.
    pods: Vec<Placed>,
    /// Pods that would have to leave for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    victims: Vec<String>,
    /// Why not, of what does not run: the first pod or group of each kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<Why>,
}

#[derive(Clone, Debug, Serialize)]
struct Placed {
    /// `namespace/name`.
    pod: String,
    /// Where it would go; none if it would wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

/// Answers.
///
/// # Errors
///
/// If the manifest or the objects cannot be read, or the manifest has no pods.
pub(super) fn run(args: &ManifestArgs, json: bool, registry: &Registry) -> Result<ExitCode> {
    let file = args.file.clone().unwrap_or_default();
    let profiles = args.profile.profiles(registry)?;
    let manifest = read(&file)?;
    let namespace = args.namespace.name(&args.source);
    let mut world = args.source.world()?;
    let (pods, notes) =
        add(&mut world, &manifest, &namespace).with_context(|| file.display().to_string())?;
    for note in notes {
        eprintln!("muster: note: {note}");
    }
    let answer = answer(&world, profiles, &pods)?;
    print(&match json {
        true => serde_json::to_string_pretty(&answer)? + "\n",
        false => shown(&answer, &bold()),
    })?;
    Ok(if answer.runs { ExitCode::SUCCESS } else { ExitCode::from(WOULD_WAIT) })
}

/// Adds what a manifest leads to. Returns its pods, and notes on what is passed over.
fn add(world: &mut World, manifest: &str, namespace: &str) -> Result<(Vec<Key>, Vec<String>)> {
    let mut objects: Vec<Value> = Vec::new();
    for document in read_documents(manifest)? {
        let mut object = document.value;
        if object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
            object["metadata"]["namespace"] = namespace.into();
        }
        objects.push(object);
    }
    let expanded = expand(&objects);
    let (mut pods, notes) = (Vec::new(), expanded.notes);
    for (i, object) in expanded.others.into_iter().chain(expanded.pods).enumerate() {
        if object["kind"] == "Pod" {
            pods.extend(Key::of(&object));
        }
        world.put(Document::of((i, object)))?;
    }
    if pods.is_empty() {
        bail!("it has no pods, and nothing that leads to pods");
    }
    Ok((pods, notes))
}

fn answer(world: &World, profiles: Vec<Profile>, pods: &[Key]) -> Result<Answer> {
    let stage = Stage::new(world, profiles);
    let ran = stage.try_out(&[], pods, false).context("the pods cannot be tried")?;
    let placed = |pod: &Key| Placed { pod: pod.to_string(), node: ran.placed.get(pod).cloned() };
    let all: Vec<Placed> = pods.iter().map(placed).collect();
    let mut asked: Vec<String> = Vec::new();
    let mut reasons = Vec::new();
    for pod in pods.iter().filter(|pod| !ran.placed.contains_key(*pod)) {
        // One of those that are alike speaks for all.
        let group = world.pod(pod).and_then(muster_core::gang::Api::of);
        let alike = match group {
            Some((_, name)) => format!("podgroup/{name}"),
            None => pod.name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
        };
        if asked.contains(&alike) || asked.len() >= MAX_REASONS {
            continue;
        }
        let name = if group.is_some() { alike.clone() } else { format!("pod/{}", pod.name) };
        asked.push(alike);
        reasons.push(why(&stage, &About::find(&stage, &pod.namespace, &name)?));
    }
    let victims = ran.victims.iter().map(Key::to_string).collect();
    let runs = all.iter().all(|placed| placed.node.is_some());
    Ok(Answer { runs, pods: all, victims, why: reasons })
}

/// Kinds of pods of which it is said why they wait.
const MAX_REASONS: usize = 4;

fn shown(answer: &Answer, bold: &dyn Fn(&str) -> String) -> String {
    let total = answer.pods.len();
    let would = answer.pods.iter().filter(|placed| placed.node.is_some()).count();
    let verdict = match answer.runs {
        true => "It would run now",
        false => "It would not run now",
    };
    let mut out = format!("{}: {would} of {total} pods find a node\n", bold(verdict));
    if !answer.victims.is_empty() {
        out += &format!("after these leave: {}\n", answer.victims.join(", "));
    }
    let mut table = Table::new(&[Column::new("POD"), Column::new("NODE")]);
    for placed in answer.pods.iter().take(LISTED) {
        let node = placed.node.clone().unwrap_or_default();
        table.row(vec![placed.pod.clone(), node]);
    }
    out += &format!("\n{}", table.text(false, true, 0));
    if total > LISTED {
        out += &format!("and {} more\n", total - LISTED);
    }
    for why in &answer.why {
        out += &format!("\n{}", text(why, false, bold));
    }
    out
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
