//! The same pods run, and the others are told the same.
//!
//! kube-scheduler and Muster, one after the other, on clusters that are alike.
//! Where a pod goes may differ; whether it goes, and every word about why it does
//! not, may not. The workload is made so that neither depends on where the
//! others went (see [`workload`]).

mod groups;
mod objects;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use muster_control_plane::{ControlPlane, Process};
use serde_json::Value;

use crate::support::Cluster;
use workload::{Fate, Group};

/// For all of the work, on a slow machine.
const LIMIT: Duration = Duration::from_secs(240);
/// Between two looks that must agree.
const LOOK: Duration = Duration::from_secs(2);
/// Differences that are printed.
const SHOWN: usize = 20;

/// What became of a pod, as its owner sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Told {
    runs: bool,
    nominated: String,
    /// Each condition in one line.
    conditions: Vec<String>,
    /// Each distinct event in one line, without the node.
    events: BTreeSet<String>,
}

impl Told {
    /// As kube-scheduler means it. When a PreFilter plugin turns a pod away for
    /// good, DynamicResources' PreFilter has not run, and its PostFilter ends the
    /// attempt with `not found` in place of what preemption would say.
    fn without_slip(&self) -> Self {
        let mend = |text: &String| {
            let meant = text.strip_suffix(" not found");
            let nodes = text.split_once(" 0/").and_then(|(_, rest)| rest.split(' ').next());
            match meant.zip(nodes) {
                Some((meant, n)) => format!(
                    "{meant} preemption: 0/{n} nodes are available: {n} Preemption is not helpful \
                     for scheduling."
                ),
                None => text.clone(),
            }
        };
        Self {
            conditions: self.conditions.iter().map(mend).collect(),
            events: self.events.iter().map(mend).collect(),
            ..self.clone()
        }
    }
}

type Picture = BTreeMap<String, Told>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_pods_run_and_the_others_are_told_the_same() -> Result<()> {
    let groups = groups::groups();
    let theirs = picture(&groups, "default-scheduler").await.context("kube-scheduler")?;
    let ours = picture(&groups, "muster").await.context("Muster")?;
    let mut differences: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (pod, told) in &theirs {
        let (told, other) = (told.without_slip(), ours.get(pod));
        if other != Some(&told) {
            let text = format!("kube-scheduler: {told:?}\n  Muster: {other:?}");
            differences.entry(text).or_default().push(pod);
        }
    }
    let shown = differences.iter().take(SHOWN);
    let shown: Vec<String> = shown.map(|(text, pods)| format!("{pods:?}\n  {text}")).collect();
    ensure!(differences.is_empty(), "they differ:\n{}", shown.join("\n"));
    ensure!(ours.len() == theirs.len(), "{} and {} pods", theirs.len(), ours.len());
    let words: BTreeSet<&String> = ours.values().flat_map(|t| &t.conditions).collect();
    eprintln!("e2e {} pods, {} distinct conditions, all alike", ours.len(), words.len());
    Ok(())
}

/// Lets one scheduler do the work on a fresh cluster.
async fn picture(groups: &[Group], scheduler: &str) -> Result<Picture> {
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    workload::create(&cluster, groups, scheduler).await?;
    let process = if scheduler == "muster" {
        cluster.muster("muster", &["--leader-elect=false"])?
    } else {
        cluster.cp.spawn("kube-scheduler", &cluster.cp.kube_scheduler(&[])?)?
    };
    let picture = settled(&cluster, groups, &process).await;
    let picture = picture.with_context(|| process.log_tail(4_000))?;
    cluster.say(&format!(
        "{scheduler}: settled, {} of {} pods run, {:.1} CPU s",
        picture.values().filter(|t| t.runs).count(),
        picture.len(),
        process.cpu_seconds()?
    ));
    cluster.check_room().await?;
    Ok(picture)
}

/// The picture once every pod has met its fate and nothing changes any more.
async fn settled(cluster: &Cluster, groups: &[Group], process: &Process) -> Result<Picture> {
    let begin = Instant::now();
    let mut before = Picture::new();
    loop {
        let now = look(cluster).await?;
        let undone = undone(groups, &now);
        if undone.is_none() && now == before {
            return Ok(now);
        }
        ensure!(process.is_running(), "the scheduler has ended");
        ensure!(begin.elapsed() < LIMIT, "after {LIMIT:?}: {}", undone.unwrap_or_default());
        before = now;
        tokio::time::sleep(LOOK).await;
    }
}

/// The first pod that has not met its fate, and how it is.
fn undone(groups: &[Group], picture: &Picture) -> Option<String> {
    let names = groups.iter().flat_map(|g| (0..g.pods).map(move |i| (g, workload::pod_name(g, i))));
    for (group, name) in names {
        let done = picture.get(&name).is_some_and(|told| match group.fate {
            Fate::Runs => told.runs && !told.events.is_empty(),
            Fate::Waits => !told.runs && !told.conditions.is_empty() && !told.events.is_empty(),
            Fate::IsGated => !told.runs && !told.conditions.is_empty(),
        });
        if !done {
            return Some(format!("{name} should meet {:?}: {:?}", group.fate, picture.get(&name)));
        }
    }
    None
}

async fn look(cluster: &Cluster) -> Result<Picture> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut picture = Picture::new();
    for pod in cluster.list::<Value>("/api/v1/namespaces/default/pods").await? {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let line = |c: &Value| {
            format!(
                "{}={} {} of {}: {}",
                text(&c["type"]),
                text(&c["status"]),
                text(&c["reason"]),
                c["observedGeneration"],
                text(&c["message"])
            )
        };
        let told = Told {
            runs: !text(&pod["spec"]["nodeName"]).is_empty(),
            nominated: text(&pod["status"]["nominatedNodeName"]),
            conditions: conditions.iter().map(line).collect(),
            events: BTreeSet::new(),
        };
        picture.insert(text(&pod["metadata"]["name"]), told);
    }
    for event in cluster.list::<Value>("/apis/events.k8s.io/v1/events").await? {
        let note = text(&event["note"]);
        // A node is not to be compared, an explanation is.
        let note = match note.rsplit_once(" to ") {
            Some((assigned, _)) if text(&event["reason"]) == "Scheduled" => assigned.to_owned(),
            _ => note,
        };
        let [kind, reason, action] = ["type", "reason", "action"].map(|field| text(&event[field]));
        if let Some(told) = picture.get_mut(&text(&event["regarding"]["name"])) {
            told.events.insert(format!("{kind} {reason} {action}: {note}"));
        }
    }
    Ok(picture)
}
