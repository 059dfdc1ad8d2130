//! Streams of pods that ask for 1, 2, 4 and 8 GPUs: no kubelet refuses one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use muster::config::Configuration;
use muster::plugin::Registry;
use muster::run::{Options, Scheduler};
use serde_json::{Value, json};

use crate::machine::{Host, Settings};
use crate::support::{Cluster, GPU, SOON, call, eventually};

/// Machines with two and eight NUMA nodes, with and without hyperthreads.
const MACHINES: [(&str, Settings); 5] = [
    ("dgx-h100", Settings { policy: "restricted", scope: "container" }),
    ("b200", Settings { policy: "single-numa-node", scope: "pod" }),
    ("dgx-a100", Settings { policy: "restricted", scope: "pod" }),
    ("l40s", Settings { policy: "single-numa-node", scope: "container" }),
    ("dgx-1v", Settings { policy: "restricted", scope: "container" }),
];
const PODS: usize = 120;
/// How long the streams may take.
const LIMIT: Duration = Duration::from_secs(480);
/// How many pods may be on their way at a time.
const CROWD: usize = 24;
const CONFIG: &str = "
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: muster
  plugins:
    multiPoint: {enabled: [{name: NodeNumaFit, weight: 2}]}
  pluginConfig:
  - name: NodeNumaFit
    args: {unknownNodes: Wait, waitSeconds: 600}
";

/// Chance, from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap_or(0)
    }
}

/// What has happened so far.
#[derive(Default)]
struct Seen {
    made: usize,
    /// Pods that a kubelet has admitted, with their nodes.
    running: BTreeMap<String, String>,
    /// Admitted pods by the number of their GPUs.
    admitted: BTreeMap<u64, usize>,
    nodes: BTreeSet<String>,
    ended: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_is_refused() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut hosts = Vec::new();
    for (machine, settings) in MACHINES {
        let host = Host::start(&cluster, machine, settings).await?;
        let status = json!({"status": {"allocatable": host.allocatable(),
            "capacity": host.allocatable(), "conditions": [{"type": "Ready", "status": "True"}]}});
        patch(&cluster, &format!("/api/v1/nodes/{machine}/status"), &status).await?;
        hosts.push(host);
    }
    let read = Configuration::parse_with("test".as_ref(), CONFIG, Registry::default().plugins())?;
    let options = Options {
        node_selector: None,
        configuration: read,
        kubeconfig: None,
        serve: None,
        seed: 0,
        max_in_unschedulable_secs: 30,
        follow: None,
    };
    let config = cluster.cp.config("muster-test", &["system:masters"])?;
    let mut scheduler = Scheduler::configured(options, &Registry::default(), &config).await?;
    let played = play(&cluster, &mut hosts).await;
    scheduler.end().await;
    let seen = played.with_context(|| {
        hosts[0].node.agent().map_or_else(|error| error.to_string(), |agent| agent.log_tail(2_000))
    })?;
    eprintln!("admitted by number of GPUs: {:?}; ended {}", seen.admitted, seen.ended);
    for gpus in [1, 2, 4, 8] {
        ensure!(seen.admitted.get(&gpus).is_some_and(|count| *count >= 5), "{gpus}: too few");
    }
    ensure!(seen.nodes.len() == MACHINES.len(), "not all machines were used: {:?}", seen.nodes);
    let text = scheduler.metrics().encode();
    let refusals = text.lines().find(|line| line.starts_with("muster_kubelet_refusals_total{"));
    ensure!(refusals.is_none(), "{refusals:?}");
    Ok(())
}

/// Makes pods, has kubelets look at those that are bound, in any order, and ends some.
async fn play(cluster: &Cluster, hosts: &mut [Host]) -> Result<Seen> {
    for host in hosts.iter() {
        let known = |object: &Value| !object["status"]["podSet"].is_null();
        host.node.until(cluster, "reported", SOON, known).await?;
    }
    let (mut seen, mut dice, begin) = (Seen::default(), Dice(0x5eed), Instant::now());
    while seen.ended < PODS {
        ensure!(
            begin.elapsed() < LIMIT,
            "{} of {PODS} pods ended: {}",
            seen.ended,
            waiting(cluster).await?
        );
        let pods = pods(cluster).await?;
        if seen.made < PODS && pods.len() < CROWD {
            cluster.create(&pod(&mut dice, seen.made)).await?;
            seen.made += 1;
        }
        let mut bound: Vec<&Value> = pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"].is_string())
            .filter(|pod| !seen.running.contains_key(name(pod)))
            .collect();
        while !bound.is_empty() {
            let pod = bound.swap_remove(dice.below(bound.len()));
            // Some kubelets take their time.
            if dice.below(3) > 0 {
                admit(cluster, hosts, pod, &mut seen).await?;
            }
        }
        for pod in &pods {
            let Some(node) = seen.running.get(name(pod)).cloned() else { continue };
            if dice.below(8) == 0 || seen.made == PODS && dice.below(3) == 0 {
                let path = format!("/api/v1/namespaces/default/pods/{}", name(pod));
                cluster.delete(&format!("{path}?gracePeriodSeconds=0")).await?;
                host(hosts, &node)?.remove(pod)?;
                seen.running.remove(name(pod));
                seen.ended += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(seen)
}

async fn admit(cluster: &Cluster, hosts: &mut [Host], pod: &Value, seen: &mut Seen) -> Result<()> {
    let node = pod["spec"]["nodeName"].as_str().context("a node")?;
    let host = host(hosts, node)?;
    let Settings { policy, scope } = host.settings;
    if let Some(why) = host.admit(pod)? {
        let report = cluster.topology(node).await?;
        anyhow::bail!("{node} ({policy}, {scope}) refuses {pod:#}: {why}\n{:#}", report["status"]);
    }
    let status = json!({"status": {"phase": "Running"}});
    patch(cluster, &format!("/api/v1/namespaces/default/pods/{}/status", name(pod)), &status)
        .await?;
    seen.running.insert(name(pod).to_owned(), node.to_owned());
    *seen.admitted.entry(gpus(pod)).or_default() += 1;
    seen.nodes.insert(node.to_owned());
    Ok(())
}

fn host<'a>(hosts: &'a mut [Host], node: &str) -> Result<&'a mut Host> {
    hosts.iter_mut().find(|host| host.node.name == node).context("no such machine")
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn gpus(pod: &Value) -> u64 {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let own = |c: &Value| c["resources"]["requests"][GPU].as_str()?.parse::<u64>().ok();
    let gpus = containers.filter_map(own);
    gpus.sum::<u64>()
}

/// A pod of the streams. Eight GPUs are on two NUMA nodes or more: they go with so many CPUs and
/// so much memory that these are, too, or with requests that are nobody's own.
fn pod(dice: &mut Dice, number: usize) -> Value {
    let gpus = [1, 2, 4, 8, 1, 2, 4, 1][dice.below(8)];
    let (cpu, memory) = match gpus {
        8 => ("120".to_owned(), "1100Gi"),
        few => ((few * [1, 2, 3][dice.below(3)]).to_string(), "2Gi"),
    };
    let burstable = gpus == 8 && dice.below(4) > 0;
    // Two containers share what is asked for now and then.
    let split = gpus > 1 && gpus < 8 && dice.below(4) == 0;
    let container = |name: &str, cpu: &str, gpus: usize| {
        let amounts = match burstable {
            true => json!({"cpu": "16", "memory": "8Gi", GPU: gpus.to_string()}),
            false => json!({"cpu": cpu, "memory": memory, GPU: gpus.to_string()}),
        };
        let limits = if burstable { json!({GPU: gpus.to_string()}) } else { amounts.clone() };
        json!({"name": name, "image": "i", "resources": {"requests": amounts, "limits": limits}})
    };
    let containers = match split {
        true => json!([container("a", "2", gpus / 2), container("b", "2", gpus / 2)]),
        false => json!([container("a", &cpu, gpus)]),
    };
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("p{number}"), "namespace": "default"},
        "spec": {"schedulerName": "muster", "containers": containers},
    })
}

async fn pods(cluster: &Cluster) -> Result<Vec<Value>> {
    let list = cluster.get("/api/v1/namespaces/default/pods").await?.context("a list")?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// What is said of pods that wait.
async fn waiting(cluster: &Cluster) -> Result<String> {
    let said = pods(cluster)
        .await?
        .iter()
        .map(|pod| {
            let message = &pod["status"]["conditions"][0]["message"];
            format!("\n{} {} {message}", name(pod), pod["spec"]["nodeName"])
        })
        .collect();
    Ok(said)
}

async fn patch(cluster: &Cluster, path: &str, body: &Value) -> Result<()> {
    // A watch of the API server's own may not have seen the object yet.
    eventually("patched", SOON, async || {
        let kind = "application/merge-patch+json";
        Ok(call(&cluster.admin, Method::PATCH, path, kind, body).await?.0 == 200)
    })
    .await
}
