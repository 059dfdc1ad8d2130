//! What agents report, as the program takes it in: what it costs, and what a wrong object does.
//!
//! `MUSTER_LONG=1` runs the long form: 5,000 nodes instead of 200, watched for a minute, and the updates have to come
//! as fast as they should. It means what it says with optimisation and on an idle machine only.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use muster_control_plane::{ControlPlane, Process, create_nodes, create_objects, node};
use serde_json::{Value, json};

use crate::gang::form;
use crate::pod_group::{ask, install};
use crate::support::{Cluster, SOON};

pub(crate) const TOPOLOGIES: &str = "/apis/muster.dev/v1alpha1/nodetopologies";
/// Updates in a second.
const RATE: u32 = 100;
/// What taking them in may cost, in parts of a core: with optimisation, and without.
const MAX_CPU: f64 = if cfg!(debug_assertions) { 0.30 } else { 0.05 };
/// Updates on their way at a time.
const IN_FLIGHT: usize = 16;

pub(crate) fn name(i: usize) -> String {
    format!("node-{i:04}")
}

/// The UUID of a GPU.
pub(crate) fn uuid(node: usize, gpu: usize) -> String {
    format!("GPU-{node:08x}-0000-0000-0000-{gpu:012x}")
}

/// A node with eight GPUs behind switches, as its agent reports it: as large as a real one.
pub(crate) fn report(node: usize) -> Value {
    let uuid = |gpu: usize| uuid(node, gpu);
    let half = |gpu: usize| gpu / 4;
    let numa = |id: usize| {
        let cores: Vec<String> =
            (0..56).map(|core| format!("{},{}", id * 56 + core, 112 + id * 56 + core)).collect();
        json!({
            "id": id, "kind": "Cpu", "socket": id, "cores": cores, "memoryBytes": 1_u64 << 40,
            "cpus": format!("{}-{},{}-{}", id * 56, id * 56 + 55, 112 + id * 56, 167 + id * 56),
            "distances": if id == 0 { [10, 21] } else { [21, 10] },
        })
    };
    let gpu = |i: usize| {
        json!({
            "uuid": uuid(i), "index": i, "minor": i, "pci": format!("0000:{:02x}:00.0", 0x1b + 16 * i),
            "pciId": "10de:2330", "model": "NVIDIA H100 80GB HBM3", "architecture": "Hopper",
            "computeCapability": "9.0", "memoryBytes": 85_520_809_984_u64, "numa": half(i),
            "numaSource": "Sysfs", "cpus": "0-55,112-167", "root": format!("pci0000:{:02x}", 0x15 + i),
            "switch": format!("0000:{:02x}:00.0", 0x17 + 16 * i), "module": i + 1,
            "nvlinks": {"total": 18, "active": 18, "toSwitch": 18, "megabytesPerSecond": 26_562},
            "fabric": {"clique": 0, "state": "Completed", "health": "Healthy"},
        })
    };
    let links: Vec<Value> = (0..8)
        .flat_map(|a| (a + 1..8).map(move |b| (a, b)))
        .map(|(a, b)| {
            let path = if half(a) == half(b) { "NODE" } else { "SYS" };
            json!({"a": a, "b": b, "path": path, "nvlinks": 18, "via": "Switch",
                "megabytesPerSecond": 370_800})
        })
        .collect();
    let nic = |i: usize| {
        json!({
            "name": format!("mlx5_{i}"), "pci": format!("0000:{:02x}:00.0", 0x18 + 16 * i),
            "pciId": "15b3:1021", "numa": half(i), "root": format!("pci0000:{:02x}", 0x15 + i),
            "switch": format!("0000:{:02x}:00.0", 0x17 + 16 * i), "interfaces": [format!("ibp{i}s0")],
            "rdma": true, "linkLayer": "InfiniBand", "state": "Active", "gigabitsPerSecond": 400,
            "gpuPaths": (0..8).map(|g| if g == i { "PXB" } else { "SYS" }).collect::<Vec<_>>(),
        })
    };
    let list = |make: &dyn Fn(usize) -> Value| (0..8).map(make).collect::<Vec<_>>();
    json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "NodeTopology", "metadata": {"name": name(node)},
        "hardware": {
            "hash": format!("fnv1a:{node:032x}"),
            "source": {"agent": "0.1.0", "driver": "580.82.07", "nvml": "13.580.82"},
            "numa": [numa(0), numa(1)], "gpus": list(&gpu), "links": links, "nics": list(&nic),
        },
        "kubelet": {
            "confidence": "File", "version": "v1.37.1",
            "topologyManager": {"policy": "Restricted", "scope": "Container"},
            "cpuManager": {"static": true, "options": ["full-pcpus-only"], "reservedCpus": "0-1"},
            "memoryManager": {"static": true},
        },
        "status": status(node, 0),
    })
}

/// What changes with the pods: the first GPUs are taken, and their CPUs.
fn status(node: usize, taken: usize) -> Value {
    let uuid = |gpu: usize| uuid(node, gpu);
    let pod = |i: usize| json!({"namespace": "team", "name": format!("p-{i}"), "uid": format!("{node}-{i}")});
    let device = |i: usize| {
        let mut device = json!({"resource": "nvidia.com/gpu", "id": uuid(i), "numa": [i / 4],
            "via": "DevicePlugin", "state": "Free"});
        if i < taken {
            device["state"] = json!("Allocated");
            device["pod"] = pod(i);
            device["container"] = json!("main");
        }
        device
    };
    let holder = |i: usize| {
        let mut holder = pod(i);
        holder["cpus"] = json!(format!("{}-{}", 2 + 6 * i, 7 + 6 * i));
        holder
    };
    let gpu = |i: usize| {
        let activity = if i < taken { "Busy" } else { "Idle" };
        json!({"uuid": uuid(i), "pci": "0000:1b:00.0", "health": "Healthy", "recovery": "None",
            "activity": activity, "processes": u32::from(i < taken)})
    };
    json!({
        "sequence": taken, "podSet": {"hash": format!("fnv1a:{taken}"), "count": taken},
        "numa": [
            {"id": 0, "cpusFree": format!("{}-55,112-167", 2 + 6 * taken)},
            {"id": 1, "cpusFree": "56-111,168-223"},
        ],
        "devices": (0..8).map(device).collect::<Vec<_>>(),
        "pods": (0..taken).map(holder).collect::<Vec<_>>(),
        "gpus": (0..8).map(gpu).collect::<Vec<_>>(),
    })
}

async fn patch(cluster: &Cluster, node: usize, patch: &Value) -> Result<()> {
    let path = format!("{TOPOLOGIES}/{}", name(node));
    let answer = ask(&cluster.admin, Method::PATCH, &path, patch).await;
    answer.map(drop).map_err(anyhow::Error::msg)
}

/// CPU time of a program, and when it was read.
fn spent(process: &Process) -> Result<(f64, Instant)> {
    Ok((process.cpu_seconds()?, Instant::now()))
}

/// Changes nodes' reports in turn, so many a second if the API server can; says how many.
async fn update(cluster: &Cluster, nodes: usize, during: Duration) -> Result<usize> {
    let count = (during.as_secs_f64() * f64::from(RATE)) as usize;
    let began = tokio::time::Instant::now();
    let updates = stream::iter(0..count).map(|i| async move {
        tokio::time::sleep_until(began + Duration::from_secs(1) / RATE * i as u32).await;
        let round = 1 + i / nodes;
        patch(cluster, i % nodes, &json!({"status": status(i % nodes, 1 + round % 7)})).await
    });
    updates.buffered(IN_FLIGHT).try_collect::<Vec<()>>().await?;
    Ok(count)
}

pub(crate) fn wait_for(muster: &Process, what: &str, words: &[&str]) -> Result<()> {
    muster.wait_until(what, SOON, || {
        let log = muster.log_tail(1 << 20);
        log.lines().any(|line| words.iter().all(|word| line.contains(word)))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reports_a_second_cost_next_to_nothing() -> Result<()> {
    let cluster = Cluster::start(ControlPlane::builder().priority_and_fairness(false)).await?;
    install(&cluster).await?;
    let nodes = form(200, 5_000);
    create_nodes(&cluster.admin, nodes, |i| node(&name(i), "224", "2Ti", 110)).await?;
    create_objects(&cluster.admin, TOPOLOGIES, "reports", nodes, report).await?;
    cluster.say(&format!("{nodes} reports of {} bytes", report(0).to_string().len()));

    let muster = cluster.muster("muster", &[])?;
    wait_for(&muster, "listing reports", &["listed", "NodeTopology"])?;
    // Watched for a while, not waited for: there is nothing that would tell that nothing happens.
    let (before, began) = spent(&muster)?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (cpu, ended) = spent(&muster)?;
    let idle = (cpu - before) / (ended - began).as_secs_f64();

    let (before, began) = spent(&muster)?;
    let count = update(&cluster, nodes, Duration::from_secs(form(10, 60) as u64)).await?;
    // Reports arrive in order: when this one is told of, all before were taken in.
    let wrong = json!({"hardware": {"hash": "fnv1a:0", "links": [{"a": 0, "b": 31}]}});
    patch(&cluster, nodes - 1, &wrong).await?;
    let last = name(nodes - 1);
    wait_for(&muster, "told of the wrong report", &["malformed", &last, "hardware.links"])?;
    let (cpu, ended) = spent(&muster)?;
    let took = (ended - began).as_secs_f64();
    let came = count as f64 / took;
    let share = (cpu - before) / took;
    // An API server that is too slow for so many a second does not make them cheap: by the update, then, less what it
    // costs to do nothing.
    let each = (cpu - before - idle * took) / count as f64;
    let prompt = came >= 0.95 * f64::from(RATE);
    cluster.say(&format!(
        "{came:.0} updates a second came: {:.2} % of a core in all, {:.0} us an update; idle {:.2} %; {} MiB at most",
        share * 100.0,
        each * 1e6,
        idle * 100.0,
        muster.peak_rss_bytes()? >> 20
    ));
    ensure!(
        prompt || form(1, 0) == 1,
        "only {came:.0} updates a second came: is the machine busy?"
    );
    let share = if prompt { share } else { each * f64::from(RATE) };
    ensure!(share <= MAX_CPU, "{:.2} % of a core", share * 100.0);
    ensure!(muster.is_running(), "it has ended");
    Ok(())
}
