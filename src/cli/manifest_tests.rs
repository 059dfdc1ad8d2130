//! Transcripts of `muster simulate -f`, on a captured cluster.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use super::super::print::golden;
use super::*;

const JOB: &str = "
apiVersion: muster.dev/v1alpha1
kind: PodGroup
metadata: {name: new}
spec: {minMember: MEMBERS}
---
apiVersion: batch/v1
kind: Job
metadata: {name: new}
spec:
  parallelism: MEMBERS
  completions: MEMBERS
  completionMode: Indexed
  template:
    metadata: {labels: {muster.dev/pod-group: new}}
    spec:
      schedulerName: muster
      containers: [{name: main, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]
";

fn tried(manifest: &str) -> Result<Answer> {
    let text = include_str!("golden/cluster.yaml");
    let mut world = World::new(read_documents(text)?, None)?;
    let (pods, notes) = add(&mut world, manifest, "team")?;
    assert_eq!(notes, [""; 0]);
    answer(&world, vec![Profile::default_named("muster")], &pods)
}

#[test]
fn a_manifest_runs_or_is_told_why_not() {
    let runs = tried(&JOB.replace("MEMBERS", "3")).unwrap();
    assert!(runs.runs, "{runs:?}");
    golden("manifest-runs.txt", &shown(&runs, &str::to_owned));
    let waits = tried(&JOB.replace("MEMBERS", "9")).unwrap();
    assert!(!waits.runs, "{waits:?}");
    golden("manifest-waits.txt", &shown(&waits, &str::to_owned));
}

#[test]
fn what_leads_to_no_pods_is_refused() {
    let group = JOB.split("---").next().unwrap().replace("MEMBERS", "3");
    let error = tried(&group).unwrap_err().to_string();
    assert_eq!(error, "it has no pods, and nothing that leads to pods");
}
