//! What all tests need: a cluster with Muster's role, and Muster itself.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Client;
use muster::config::Configuration;
use muster::metrics::Metrics;
use muster::plugin::Registry;
use muster::run::{Follow, Options, Scheduler};
use muster_api::k8s::{Node, Pod, Quantity, ResourceList};
use muster_control_plane::{Builder, ControlPlane, Process, create_nodes, create_pods, node, pod};
use muster_core::Profile;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

/// The identity that Muster's chart will give it.
pub(crate) const USER: &str = "system:serviceaccount:muster-system:muster";
pub(crate) const GROUPS: [&str; 2] =
    ["system:serviceaccounts", "system:serviceaccounts:muster-system"];
/// For whatever should happen soon, on a slow machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Two control planes at a time would make both slow.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

pub(crate) struct Cluster {
    pub(crate) cp: ControlPlane,
    pub(crate) admin: Client,
    pub(crate) kubeconfig: PathBuf,
    begin: Instant,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    /// Starts a control plane and gives Muster's identity its role.
    pub(crate) async fn start(builder: Builder) -> Result<Self> {
        let turn = ONE_AT_A_TIME.lock().await;
        let begin = Instant::now();
        let cp = builder.start()?;
        let admin = cp.admin()?;
        let kubeconfig = cp.kubeconfig(USER, &GROUPS)?;
        let cluster = Self { cp, admin, kubeconfig, begin, _turn: turn };
        cluster.apply(include_str!("rbac.yaml")).await?;
        cluster.say("control plane ready");
        Ok(cluster)
    }

    /// Prints where the test is.
    pub(crate) fn say(&self, what: &str) {
        eprintln!("e2e {:6.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    /// Creates the objects of a YAML file.
    pub(crate) async fn apply(&self, yaml: &str) -> Result<()> {
        for document in yaml.split("\n---\n") {
            self.create(&serde_saphyr::from_str(document)?).await?;
        }
        Ok(())
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: &Value) -> Result<()> {
        let request = http::Request::post(collection(object)?)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(object)?)?;
        let answer = self.admin.request_text(request).await;
        answer.with_context(|| format!("create {object}"))?;
        Ok(())
    }

    /// Creates a class of priority and waits until pods may name it: admission
    /// learns of classes by a watch of its own.
    pub(crate) async fn priority_class(&self, name: &str, value: i32, policy: &str) -> Result<()> {
        self.create(&json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "preemptionPolicy": policy,
        }))
        .await?;
        let probe = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"},
            "spec": {"priorityClassName": name, "containers": [{"name": "main", "image": "i"}]},
        });
        let probe = serde_json::to_vec(&probe)?;
        eventually("known to admission", SOON, || async {
            let request = http::Request::post("/api/v1/namespaces/default/pods?dryRun=All")
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(probe.clone())?;
            Ok(self.admin.request_text(request).await.is_ok())
        })
        .await
    }

    pub(crate) async fn nodes(&self, n: usize) -> Result<()> {
        create_nodes(&self.admin, n, |i| node(&format!("node-{i:03}"), "4", "16Gi", 110)).await?;
        self.say(&format!("{n} nodes created"));
        Ok(())
    }

    pub(crate) async fn pods(
        &self,
        prefix: &str,
        n: usize,
        scheduler: &str,
        cpu: &str,
    ) -> Result<()> {
        create_pods(&self.admin, "default", n, |i| {
            pod(&format!("{prefix}-{i:04}"), scheduler, cpu, "256Mi")
        })
        .await?;
        self.say(&format!("{n} pods {prefix}-* created"));
        Ok(())
    }

    /// Small pods, numbered on from `first`; not a word is said of them.
    pub(crate) async fn pods_quietly(
        &self,
        prefix: &str,
        n: usize,
        scheduler: &str,
        first: u64,
    ) -> Result<()> {
        create_pods(&self.admin, "default", n, |i| {
            pod(&format!("{prefix}-{}", first + i as u64), scheduler, "50m", "64Mi")
        })
        .await
    }

    /// Starts Muster with its own identity; `name` is its log's.
    pub(crate) fn muster(&self, name: &str, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["run", "--kubeconfig"]).arg(&self.kubeconfig);
        if !arguments.contains(&"--secure-port") {
            command.args(["--secure-port", "0"]);
        }
        let process = self.cp.spawn(name, command.args(arguments))?;
        self.say(&format!("{name} started"));
        Ok(process)
    }

    /// Starts a scheduler with this profile in this process, with Muster's identity and
    /// without an election.
    pub(crate) async fn in_process(
        &self,
        mut configuration: Configuration,
        profile: Profile,
    ) -> Result<Scheduler> {
        configuration.leader_election.leader_elect = false;
        let config = self.cp.config(USER, &GROUPS)?;
        Scheduler::start(options(configuration), vec![profile], &config).await
    }

    /// Starts a scheduler in this process that does as its configuration file says, and
    /// looks at it every so often.
    pub(crate) async fn following(
        &self,
        file: &Path,
        registry: &Registry,
        every: Duration,
    ) -> Result<Scheduler> {
        let read = Configuration::load_with(Some(file), registry.plugins())?;
        let follow = Some(Follow { read: read.clone(), every });
        let config = self.cp.config(USER, &GROUPS)?;
        Scheduler::configured(Options { follow, ..options(read) }, registry, &config).await
    }

    /// Objects of a collection, decoded by the pruned types.
    pub(crate) async fn list<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<Vec<T>> {
        #[derive(serde::Deserialize)]
        struct List<T> {
            items: Vec<T>,
        }
        let request = http::Request::get(path).body(Vec::new())?;
        let text = self.admin.request_text(request).await?;
        Ok(serde_json::from_str::<List<T>>(&text)?.items)
    }

    pub(crate) async fn get_pod(&self, name: &str) -> Result<Pod> {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(serde_json::from_str(&self.admin.request_text(request).await?)?)
    }

    /// On no node do the pods ask for more than there is.
    pub(crate) async fn check_room(&self) -> Result<()> {
        let pods: Vec<Pod> = self.list("/api/v1/pods").await?;
        let mut taken: HashMap<String, ResourceList> = HashMap::new();
        for pod in pods.iter().filter(|p| !p.spec.node_name.is_empty()) {
            let node = taken.entry(pod.spec.node_name.clone()).or_default();
            *node.entry("pods".to_owned()).or_default() += Quantity::from_units(1);
            for container in &pod.spec.containers {
                for (name, amount) in &container.resources.requests {
                    *node.entry(name.clone()).or_default() += *amount;
                }
            }
        }
        for node in self.list::<Node>("/api/v1/nodes").await? {
            let name = &node.metadata.name;
            for (resource, amount) in taken.remove(name).unwrap_or_default() {
                let room = node.status.allocatable.get(&resource).copied();
                ensure!(Some(amount) <= room, "{name}: {amount} of {room:?} {resource} are taken");
            }
        }
        ensure!(taken.is_empty(), "pods on nodes that do not exist: {taken:?}");
        Ok(())
    }
}

/// How a scheduler in a test's own process is set up.
fn options(configuration: Configuration) -> Options {
    Options {
        node_selector: None,
        configuration,
        kubeconfig: None,
        serve: None,
        seed: 0,
        max_in_unschedulable_secs: 300,
        follow: None,
    }
}

/// Ends a scheduler in whose steps its checker found nothing wrong.
pub(crate) async fn end(mut scheduler: Scheduler) -> Result<()> {
    scheduler.end().await;
    let text = scheduler.metrics().encode();
    let violation = text.lines().find(|l| l.starts_with("muster_audit_violations_total{"));
    ensure!(violation.is_none(), "{violation:?}");
    Ok(())
}

/// A sample's value; 0 if there is none.
pub(crate) fn counted(metrics: &Metrics, sample: &str) -> f64 {
    let text = metrics.encode();
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(s, _)| s == sample));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

/// The path to create an object at.
fn collection(object: &Value) -> Result<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let namespace = text(&object["metadata"]["namespace"]);
    let ending = if kind.ends_with('s') { "es" } else { "s" };
    let plural = format!("{}{ending}", kind.to_lowercase());
    let root = if version.contains('/') { "apis" } else { "api" };
    ensure!(!version.is_empty() && !kind.is_empty(), "no kind: {object}");
    Ok(if namespace.is_empty() {
        format!("/{root}/{version}/{plural}")
    } else {
        format!("/{root}/{version}/namespaces/{namespace}/{plural}")
    })
}

/// A port that is free at this moment.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Polls until `ready` says yes.
pub(crate) async fn eventually<F: Future<Output = Result<bool>>>(
    what: &str,
    timeout: Duration,
    ready: impl Fn() -> F,
) -> Result<()> {
    let begin = Instant::now();
    while !ready().await? {
        ensure!(begin.elapsed() < timeout, "not {what} after {timeout:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
