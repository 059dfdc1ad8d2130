//! How long people wait for an answer of `muster why` on a large cluster.
//!
//! `cargo bench --bench why` writes a captured cluster to a file, runs the program on it as a person
//! does, once per question, and prints how long that took in all, reading the file included, and how many
//! changes were tried for the answer. `-- --nodes N --pods M` are 5,000 and 40,000 unless told otherwise;
//! `--keep FILE` leaves the file there, for `muster why --cluster FILE`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

/// A block of racks of nodes.
const NODES_PER_RACK: usize = 16;
const RACKS_PER_BLOCK: usize = 39;
const GPUS: usize = 8;
/// One node of so many has half of its GPUs free.
const HALF_FREE: usize = 10;
/// One node of so many is cordoned.
const CORDONED: usize = 50;

fn main() {
    let mut nodes = 5_000;
    let mut pods = 40_000;
    let mut keep = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.parse().ok()).expect("a number");
        match argument.as_str() {
            "--nodes" => nodes = number(),
            "--pods" => pods = number(),
            "--keep" => keep = arguments.next().map(PathBuf::from),
            // Cargo adds flags of its own.
            _ => {}
        }
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = keep.unwrap_or_else(|| dir.path().join("cluster.json"));
    write(&path, nodes, pods).expect("the file can be written");
    let size = fs::metadata(&path).map_or(0, |file| file.len());
    println!("{nodes} nodes, {pods} pods with a node, {} MiB", size >> 20);
    println!("{:<28} {:>8} {:>7} {:>6}", "question", "seconds", "tried", "cures");
    for question in ["pod/whole", "pod/nowhere", "podgroup/rack", "podgroup/block", "podgroup/all"]
    {
        ask(&path, question);
    }
}

/// Asks, and says what it took.
fn ask(file: &Path, question: &str) {
    let begin = Instant::now();
    let child = Command::new(env!("CARGO_BIN_EXE_muster"))
        .args(["why", question, "-n", "team", "-o", "json", "--cluster"])
        .arg(file)
        .output()
        .expect("the program runs");
    let seconds = begin.elapsed().as_secs_f64();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    let answer: Value = serde_json::from_slice(&child.stdout).expect("JSON");
    let cures = answer["cures"].as_array().map_or(0, Vec::len);
    println!("{question:<28} {seconds:>8.2} {:>7} {cures:>6}", answer["tried"]);
    for cure in answer["cures"].as_array().into_iter().flatten() {
        println!("    {}", cure["what"].as_str().unwrap_or_default());
    }
}

/// A cluster as `muster capture` has it: full but for half of every tenth node, some nodes cordoned,
/// and whoever is asked about.
fn write(path: &Path, nodes: usize, pods: usize) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut first = true;
    let mut put = |object: &Value| {
        let begin =
            if first { "{\"kind\":\"List\",\"apiVersion\":\"v1\",\"items\":[\n" } else { ",\n" };
        first = false;
        file.write_all(begin.as_bytes())?;
        serde_json::to_writer(&mut file, object).map_err(std::io::Error::from)
    };
    put(&json!({"apiVersion": "muster.dev/v1alpha1", "kind": "ClusterTopology",
        "metadata": {"name": "fabric"}, "spec": {"levels": [
            {"name": "block", "nodeLabel": "example.com/block"},
            {"name": "rack", "nodeLabel": "example.com/rack"}]}}))?;
    for i in 0..nodes {
        put(&node(i))?;
    }
    let (mut made, mut at, mut gpu) = (0, 0, 0);
    while made < pods && at < nodes {
        let most = if at.is_multiple_of(HALF_FREE) { GPUS / 2 } else { GPUS };
        if gpu < most {
            put(&bound(made, at, 1))?;
            (made, gpu) = (made + 1, gpu + 1);
        } else {
            (at, gpu) = (at + 1, 0);
        }
    }
    // The rest are pods without a GPU.
    for number in made..pods {
        put(&bound(number, number % nodes, 0))?;
    }
    put(&waiting("whole", GPUS, &json!({}), &json!({})))?;
    put(&waiting("nowhere", 1, &json!({}), &json!({"example.com/gpu": "h300"})))?;
    let gangs = [("rack", 8, Some("rack")), ("block", 256, Some("block")), ("all", 512, None)];
    for (name, members, required) in gangs {
        let mut group = json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "team", "uid": name},
            "spec": {"minMember": members}});
        if let Some(required) = required {
            group["spec"]["topology"] = json!({"required": required});
        }
        put(&group)?;
        for i in 0..members {
            let label = json!({"muster.dev/pod-group": name});
            put(&waiting(&format!("{name}-{i}"), GPUS, &label, &json!({})))?;
        }
    }
    file.write_all(b"\n]}\n")?;
    file.flush()
}

fn node(i: usize) -> Value {
    let (name, rack) = (format!("node-{i:04}"), i / NODES_PER_RACK);
    let amounts = json!({"cpu": "192", "memory": "2113000000Ki", "pods": "110",
        "ephemeral-storage": "3700000000Ki", "nvidia.com/gpu": GPUS.to_string()});
    let mut node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "example.com/gpu": "h100",
            "topology.kubernetes.io/zone": format!("zone-{}", i % 3),
            "example.com/block": format!("b{}", rack / RACKS_PER_BLOCK),
            "example.com/rack": format!("r{rack:03}")}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    if i % CORDONED == CORDONED - 1 {
        node["spec"]["unschedulable"] = true.into();
        node["spec"]["taints"] =
            json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
    }
    node
}

fn pod(namespace: &str, name: &str, gpus: usize, labels: &Value) -> Value {
    let mut amounts = json!({"cpu": "1", "memory": "1Gi"});
    if gpus > 0 {
        amounts = json!({"cpu": (gpus * 20).to_string(), "memory": format!("{}Gi", gpus * 200),
            "nvidia.com/gpu": gpus.to_string()});
    }
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": format!("uid-{namespace}-{name}"),
            "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"schedulerName": "muster", "priority": 0,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300}],
            "containers": [{"name": "main", "image": "registry.example.com/team/train:v1",
                "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": "Pending"}})
}

fn bound(number: usize, node: usize, gpus: usize) -> Value {
    let job = number / 64;
    let labels = json!({"job-name": format!("job-{job}"),
        "batch.kubernetes.io/job-completion-index": (number % 64).to_string()});
    let mut pod = pod(&format!("team-{}", job % 40), &format!("job-{job}-{number}"), gpus, &labels);
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job",
        "name": format!("job-{job}"), "uid": format!("uid-job-{job}"), "controller": true}]);
    pod["spec"]["nodeName"] = format!("node-{node:04}").into();
    pod["status"] = json!({"phase": "Running", "startTime": "2026-01-01T00:05:00Z",
        "conditions": [{"type": "PodScheduled", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:10Z"}]});
    pod
}

fn waiting(name: &str, gpus: usize, labels: &Value, selector: &Value) -> Value {
    let mut pod = pod("team", name, gpus, labels);
    pod["spec"]["nodeSelector"] = selector.clone();
    pod
}
