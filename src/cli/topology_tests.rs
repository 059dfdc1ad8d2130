//! Answers and errors of `muster topology`, word for word.
#![allow(clippy::unwrap_used, reason = "a test may fail by a panic")]

use std::path::Path;

use clap::Parser;

use super::*;

/// Two blocks with racks that are named alike; a node is cordoned, one is not ready, one
/// lacks a rack and one has no label at all.
const CLUSTER: &str = include_str!("../topology/golden/cluster.yaml");
const OTHER: &str = "
---
apiVersion: muster.dev/v1alpha1
kind: ClusterTopology
metadata: {name: zones}
spec: {levels: [{name: zone, nodeLabel: topology.kubernetes.io/zone}]}
";

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    args: TopologyArgs,
}

fn ask(text: &str, line: &[&str]) -> Result<(String, Vec<String>)> {
    let cli = Cli::try_parse_from(std::iter::once("topology").chain(line.iter().copied()))?;
    answer(&Seen::in_file(text)?, &cli.args)
}

fn told(text: &str, line: &[&str]) -> String {
    ask(text, line).unwrap().0
}

fn refused(text: &str, line: &[&str]) -> String {
    format!("{:#}", ask(text, line).unwrap_err())
}

/// With `UPDATE_GOLDEN=1` the file is written, otherwise compared.
fn golden(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topology/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "{file} is not what is printed; look at it after UPDATE_GOLDEN=1 cargo test -p muster \
         --lib topology:\n{text}"
    );
}

#[test]
fn the_table_counts_what_each_domain_has_left() {
    golden("table.txt", &told(CLUSTER, &[]));
}

#[test]
fn wide_tables_have_nodes() {
    golden("wide.txt", &told(CLUSTER, &["gpu-fabric", "-o", "wide"]));
}

#[test]
fn json_is_the_documented_form() {
    golden("tree.json", &told(CLUSTER, &["gpu-fabric", "-o", "json"]));
    // As kubectl: one is an object, all are a list.
    let one: serde_json::Value =
        serde_json::from_str(&told(CLUSTER, &["gpu-fabric", "-o", "json"])).unwrap();
    let all: serde_json::Value = serde_json::from_str(&told(CLUSTER, &["-o", "json"])).unwrap();
    assert_eq!(all, serde_json::json!({ "items": [one] }));
}

#[test]
fn the_picture_is_the_same_every_time() {
    golden("small.svg", &told(CLUSTER, &["-o", "svg"]));
}

#[test]
fn several_topologies_follow_each_other() {
    let text = told(&format!("{CLUSTER}{OTHER}"), &[]);
    let second = "zones: zone\n10 nodes, 48 GPUs: 20 used, 20 free, 8 on nodes that take no pods\n\n\
                  No node has a label of this topology.\n\n\
                  10 nodes without the label topology.kubernetes.io/zone (zone): \
                  cpu-1, cpu-2, gpu-1, gpu-2, gpu-3, …\n";
    assert_eq!(text, format!("{}\n{second}", told(CLUSTER, &[])));
    assert_eq!(
        refused(&format!("{CLUSTER}{OTHER}"), &["-o", "svg"]),
        "a picture shows one topology: name one of gpu-fabric, zones"
    );
}

#[test]
fn levels_may_be_named_on_the_command_line() {
    let levels = ["--level", "row=example.com/rack"];
    let expected = "\
row
10 nodes, 48 GPUs: 20 used, 20 free, 8 on nodes that take no pods

DOMAIN    LEVEL   NODES   IDLE   GPUS   USED   FREE
rack-1    row         4      0     24     12      8
rack-2    row         2      1     16      4      8
rack-10   row         2      1      4      0      4

2 nodes without the label example.com/rack (row): cpu-2, gpu-12
";
    assert_eq!(told(CLUSTER, &levels), expected);
    let wrong = refused(CLUSTER, &["--level", "rack"]);
    assert!(wrong.contains("write NAME=LABEL, for example rack="), "{wrong}");
}

#[test]
fn without_a_topology_there_is_advice() {
    const NONE: &str = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n";
    let advice = "no ClusterTopology found; name levels by --level, widest first (--level \
                  zone=topology.kubernetes.io/zone --level host=kubernetes.io/hostname), or \
                  create one";
    assert_eq!(ask(NONE, &[]).unwrap(), (String::new(), vec![advice.to_owned()]));
    assert_eq!(told(NONE, &["-o", "json"]), "{\n  \"items\": []\n}\n");
    let picture = refused(NONE, &["-o", "svg"]);
    assert_eq!(picture, format!("there is nothing to draw: {advice}"));
    assert_eq!(
        refused(CLUSTER, &["fabric"]),
        "clustertopologies.muster.dev \"fabric\" not found: there is gpu-fabric"
    );
    let away = Seen { served: false, ..Seen::default() };
    assert!(nothing(&away).contains("muster crds | kubectl apply"), "{}", nothing(&away));
}
