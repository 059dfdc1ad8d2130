//! What all tests need: a cluster with the agent's rights in it, and agents on fake machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http::Method;
use kube::Client;
use muster_control_plane::{ControlPlane, Process};
use muster_machines::files;
use muster_machines::mock::Stage;
use muster_machines::{Faults, Machine, cpus};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::kubelet::Kubelet;

pub(crate) const NAMESPACE: &str = "muster-system";
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// For whatever should happen soon, on a slow machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How soon after a change the object shall be right. Programs without optimisation on a machine that is busy with
/// other tests get a little more.
pub(crate) const PROMPT: Duration =
    if cfg!(debug_assertions) { Duration::from_secs(4) } else { Duration::from_secs(2) };

/// What the agent may use, in parts of a core, while one thing after the other goes wrong.
const MAX_BUSY: f64 = if cfg!(debug_assertions) { 0.3 } else { 0.05 };

/// Two control planes at a time would make both slow.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// A control plane with the agent's definitions, role and policy.
pub(crate) struct Cluster {
    pub(crate) cp: ControlPlane,
    pub(crate) admin: Client,
    _turn: MutexGuard<'static, ()>,
}

impl Cluster {
    pub(crate) async fn start() -> Result<Self> {
        let turn = ONE_AT_A_TIME.lock().await;
        let cp = ControlPlane::builder().audit_log(true).start()?;
        let admin = cp.admin()?;
        let cluster = Self { cp, admin, _turn: turn };
        for definition in muster_api::muster::crds() {
            cluster.create(&definition).await?;
        }
        cluster.apply(include_str!("node-resource-topology.yaml")).await?;
        cluster.apply(include_str!("rights.yaml")).await?;
        for kind in [
            "muster.dev/v1alpha1/nodetopologies",
            "topology.node.k8s.io/v1alpha2/noderesourcetopologies",
        ] {
            let path = format!("/apis/{kind}");
            eventually("served", SOON, async || Ok(cluster.get(&path).await?.is_some())).await?;
        }
        Ok(cluster)
    }

    /// Creates the objects of a YAML file.
    async fn apply(&self, yaml: &str) -> Result<()> {
        for document in yaml.split("\n---\n") {
            self.create(&serde_saphyr::from_str(document)?).await?;
        }
        Ok(())
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: &Value) -> Result<()> {
        let (code, answer) =
            call(&self.admin, Method::POST, &collection(object)?, "application/json", object)
                .await?;
        ensure!(code < 300, "create {object}: {answer}");
        Ok(())
    }

    /// Reads an object; None if there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        let (code, answer) =
            call(&self.admin, Method::GET, path, "application/json", &Value::Null).await?;
        match code {
            404 => Ok(None),
            200 => Ok(Some(serde_json::from_str(&answer)?)),
            _ => bail!("get {path}: {answer}"),
        }
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let (code, answer) =
            call(&self.admin, Method::DELETE, path, "application/json", &Value::Null).await?;
        ensure!(code < 300, "delete {path}: {answer}");
        Ok(())
    }

    /// The NodeTopology of a node; null if there is none.
    pub(crate) async fn topology(&self, node: &str) -> Result<Value> {
        Ok(self.get(&topology_path(node)).await?.unwrap_or_default())
    }

    /// Makes a Node, the agent's pod on it and a token that is bound to that pod; returns a
    /// kubeconfig with the token.
    pub(crate) async fn identity(&self, node: &str) -> Result<PathBuf> {
        let exists = self.get(&format!("/api/v1/nodes/{node}")).await?.is_some();
        if !exists {
            let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}});
            self.create(&object).await?;
            let status = json!({"status": {
                "capacity": {"cpu": "8"},
                "nodeInfo": {
                    "kubeletVersion": "v1.37.1", "architecture": "amd64", "bootID": "",
                    "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
                },
            }});
            let path = format!("/api/v1/nodes/{node}/status");
            let kind = "application/merge-patch+json";
            let (code, answer) = call(&self.admin, Method::PATCH, &path, kind, &status).await?;
            ensure!(code == 200, "status of {node}: {answer}");
            self.create(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("agent-{node}"), "namespace": NAMESPACE},
                "spec": {
                    "nodeName": node, "serviceAccountName": "muster-node-agent",
                    "containers": [{"name": "agent", "image": "i"}],
                },
            }))
            .await?;
        }
        let pod = format!("/api/v1/namespaces/{NAMESPACE}/pods/agent-{node}");
        let pod = self.get(&pod).await?.context("the agent's pod")?;
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": {
                "apiVersion": "v1", "kind": "Pod",
                "name": format!("agent-{node}"), "uid": pod["metadata"]["uid"],
            }},
        });
        let path =
            format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/muster-node-agent/token");
        let (code, answer) =
            call(&self.admin, Method::POST, &path, "application/json", &request).await?;
        ensure!(code < 300, "token: {answer}");
        let answer: Value = serde_json::from_str(&answer)?;
        let token = answer["status"]["token"].as_str().context("a token")?.to_owned();
        self.kubeconfig(node, &token)
    }

    /// A kubeconfig with a token.
    pub(crate) fn kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.cp.token_kubeconfig(&format!("agent-{name}"), token)
    }

    /// When objects of a kind were written by agents, as the API server saw it, in order: the path
    /// and microseconds since the epoch.
    pub(crate) fn writes(&self, plural: &str) -> Result<Vec<(String, i64)>> {
        let mut writes = Vec::new();
        for event in self.cp.audit_events()? {
            let text =
                |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            if text("/verb") == "patch"
                && text("/stage") == "ResponseComplete"
                && text("/objectRef/resource") == plural
                && text("/user/username").ends_with(":muster-node-agent")
            {
                let at = muster_api::k8s::Time::parse(text("/requestReceivedTimestamp"))?;
                writes.push((text("/objectRef/name").to_owned(), at.0));
            }
        }
        writes.sort_unstable_by_key(|(_, at)| *at);
        Ok(writes)
    }

    /// No agent has ever written its object twice within a second.
    pub(crate) fn check_pace(&self) -> Result<usize> {
        let writes = self.writes("nodetopologies")?;
        for (i, (node, at)) in writes.iter().enumerate() {
            if let Some((_, next)) = writes[i + 1..].iter().find(|(n, _)| n == node) {
                // Clocks are read at both ends of a request; a hundredth is noise.
                ensure!(next - at >= 990_000, "{node} was written twice within {} us", next - at);
            }
        }
        Ok(writes.len())
    }
}

pub(crate) fn topology_path(node: &str) -> String {
    format!("/apis/muster.dev/v1alpha1/nodetopologies/{node}")
}

/// An agent on a fake machine with a kubelet.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) machine: Machine,
    pub(crate) stage: Stage,
    pub(crate) kubelet: Kubelet,
    pub(crate) agent: Option<Process>,
    /// When it was started.
    started: Instant,
    kubeconfig: PathBuf,
    dir: TempDir,
}

impl Node {
    /// A machine with a kubelet that offers its GPUs; the agent is not started yet.
    pub(crate) async fn new(cluster: &Cluster, machine: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let stage = Stage::build(machine, dir.path())?;
        let text = files::text(machine).context("a machine")?;
        let described = Machine::parse(text).map_err(anyhow::Error::msg)?;
        let root = dir.path().join("kubelet");
        fs::create_dir(&root)?;
        fs::write(root.join("config.yaml"), include_str!("kubelet.yaml"))?;
        let kubelet = Kubelet::start(&root)?;
        offer(&kubelet, &described)?;
        Ok(Self {
            name: machine.to_owned(),
            machine: described,
            stage,
            kubelet,
            agent: None,
            started: Instant::now(),
            kubeconfig: cluster.identity(machine).await?,
            dir,
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the agent, or starts it again.
    pub(crate) fn start(&mut self, cluster: &Cluster, arguments: &[&str]) -> Result<()> {
        self.agent = None;
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-node-agent"));
        command
            .args(["run", "--verbose", "--node-name", &self.name, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .arg("--sysfs-root")
            .arg(self.stage.sysfs())
            .arg("--proc-root")
            .arg(self.stage.procfs())
            .arg("--kubelet-root")
            .arg(self.dir().join("kubelet"))
            // The way that a real library is found.
            .env("LD_LIBRARY_PATH", self.dir())
            .args(arguments);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "none"]);
        }
        self.started = Instant::now();
        self.agent = Some(cluster.cp.spawn(&format!("agent-{}", self.name), &command)?);
        Ok(())
    }

    pub(crate) fn agent(&self) -> Result<&Process> {
        self.agent.as_ref().context("the agent was started")
    }

    pub(crate) fn set(&self, faults: &Faults) -> Result<()> {
        Ok(self.stage.set(faults)?)
    }

    /// The UUIDs of the GPUs that the driver reports.
    pub(crate) fn uuids(&self) -> Vec<String> {
        self.machine.reported().map(muster_machines::Gpu::uuid).collect()
    }

    /// The agent runs, and has not spun since its start.
    pub(crate) fn check_rest(&self) -> Result<()> {
        let agent = self.agent()?;
        ensure!(agent.is_running(), "the agent has ended: {}", agent.log_tail(2000));
        let spent = agent.cpu_seconds()? / self.started.elapsed().as_secs_f64();
        eprintln!("{:.1} % of a core since the start", spent * 100.0);
        ensure!(spent < MAX_BUSY, "{:.0} % of a core since the start", spent * 100.0);
        Ok(())
    }

    /// Waits until the object is as `right` wants it; returns it and how long it took.
    pub(crate) async fn until(
        &self,
        cluster: &Cluster,
        what: &str,
        limit: Duration,
        right: impl Fn(&Value) -> bool,
    ) -> Result<(Value, Duration)> {
        let begin = Instant::now();
        loop {
            let object = cluster.topology(&self.name).await.unwrap_or_default();
            if right(&object) {
                return Ok((object, begin.elapsed()));
            }
            let log = || self.agent.as_ref().map(|a| a.log_tail(3000)).unwrap_or_default();
            ensure!(self.agent()?.is_running(), "{what}: the agent has ended:\n{}", log());
            ensure!(
                begin.elapsed() < limit,
                "{}: not {what} after {limit:?}; status: {:#}\nlog:\n{}",
                self.name,
                object["status"],
                log()
            );
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }
}

/// The GPUs of a machine, or their parts, as NVIDIA's device plugin with the strategy mixed offers them.
fn offer(kubelet: &Kubelet, machine: &Machine) -> Result<()> {
    // Without a driver NVIDIA's plugin offers nothing.
    for gpu in machine.reported().filter(|_| machine.driver.is_some()) {
        let numa: Vec<i64> = Some(i64::from(gpu.numa)).filter(|&n| n >= 0).into_iter().collect();
        match gpu.mig.as_ref().filter(|mig| mig.enabled) {
            None => kubelet.device(GPU, &gpu.uuid(), &numa)?,
            Some(mig) => {
                for part in &mig.devices {
                    let resource = format!("nvidia.com/mig-{}", part.profile.replace('+', "."));
                    kubelet.device(&resource, &gpu.mig_uuid(part), &numa)?;
                }
            }
        }
    }
    if machine.gpus.is_empty() {
        // Devices of another vendor, of which nobody but their plugin knows.
        kubelet.device("vendor.example/accelerator", "acc-0", &[0])?;
        kubelet.device("vendor.example/accelerator", "acc-1", &[])?;
    }
    // The first two CPUs are the system's, and so is what `kubelet.yaml` reserves.
    let all = machine.numa.iter().flat_map(|numa| cpus(&numa.cpus));
    kubelet.cpus(all.filter(|&cpu| cpu > 1).map(i64::from));
    for numa in machine.numa.iter().filter(|numa| numa.memory > 0) {
        let reserved = if numa.id == 0 { 1 << 30 } else { 0 };
        kubelet.memory("memory", (numa.memory << 30) - reserved, i64::from(numa.id));
    }
    Ok(())
}

/// The status of a condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// The state of a device.
pub(crate) fn device<'a>(object: &'a Value, id: &str) -> &'a str {
    let all = object["status"]["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|d| d["id"] == id);
    found.and_then(|d| d["state"].as_str()).unwrap_or_default()
}

/// Makes a call and returns the status code and the body.
pub(crate) async fn call(
    client: &Client,
    method: Method,
    path: &str,
    kind: &str,
    body: &Value,
) -> Result<(u16, String)> {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, kind)
        .body(bytes)?;
    match client.request_text(request).await {
        Ok(text) => Ok((200, text)),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// The path to create an object at.
fn collection(object: &Value) -> Result<String> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let namespace = text(&object["metadata"]["namespace"]);
    let kind = kind.to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    ensure!(!version.is_empty() && !kind.is_empty(), "no kind: {object}");
    Ok(if namespace.is_empty() {
        format!("/{root}/{version}/{plural}")
    } else {
        format!("/{root}/{version}/namespaces/{namespace}/{plural}")
    })
}

/// Polls until `ready` says yes.
pub(crate) async fn eventually(
    what: &str,
    timeout: Duration,
    ready: impl AsyncFn() -> Result<bool>,
) -> Result<()> {
    let begin = Instant::now();
    while !ready().await? {
        ensure!(begin.elapsed() < timeout, "not {what} after {timeout:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
