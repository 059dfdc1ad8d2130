//! The node agent as the chart describes it: a pod of its DaemonSet on a node with eight GPUs, as a process
//! of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use http::Method;
use kube::{Client, Config};
use muster_control_plane::{Process, create_nodes, node};
use muster_machines::mock::Stage;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster::{Cluster, SOON, eventually, free_port, read};
use crate::support::{NAMESPACE, root};

const NODE: &str = "gpu-0";
const MACHINE: &str = "dgx-h100";
const GPUS: usize = 8;

/// The agent, and the machine that it sees.
pub(super) struct Agent {
    process: Process,
    _machine: TempDir,
}

impl Agent {
    /// Starts what the DaemonSet describes, with the account that it names and a token as the kubelet
    /// gets one, bound to the pod; returns when the node's object is written.
    pub(super) async fn start(cluster: &Cluster) -> Result<Self> {
        let program = program()?;
        create_nodes(&cluster.admin, 1, |_| node(NODE, "8", "16Gi", 110)).await?;
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": "nvidia"}, "handler": "nvidia"});
        cluster.create(&class).await?;
        let pod = pod(cluster).await?;
        let kubeconfig = cluster.cp.token_kubeconfig("agent", &token(cluster, &pod).await?)?;

        let machine = tempfile::tempdir()?;
        let stage = Stage::build(MACHINE, machine.path())?;
        let kubelet = machine.path().join("kubelet");
        fs::create_dir(&kubelet)?;
        let port = free_port()?;
        let container = &pod["spec"]["containers"][0];
        let mut command = Command::new(program);
        for argument in container["args"].as_array().context("arguments")? {
            let argument = argument.as_str().context("an argument")?;
            command.arg(match argument.split_once('=') {
                Some(("--sysfs-root", "/host/sys")) => at("--sysfs-root", &stage.sysfs()),
                Some(("--proc-root", "/host/proc")) => at("--proc-root", &stage.procfs()),
                Some(("--kubelet-root", _)) => at("--kubelet-root", &kubelet),
                Some(("--listen", _)) => format!("--listen=127.0.0.1:{port}"),
                _ => argument.to_owned(),
            });
        }
        command.envs(environment(&pod)?).env("LD_LIBRARY_PATH", machine.path());
        command.arg("--kubeconfig").arg(&kubeconfig);
        let process = cluster.cp.spawn("agent", &command)?;

        let surface = Client::try_from(Config::new(format!("http://127.0.0.1:{port}").parse()?))?;
        let probe = container["readinessProbe"]["httpGet"]["path"].as_str().context("a probe")?;
        let ready = eventually("ready", SOON, async || {
            ensure!(process.is_running(), "the agent has ended: {}", process.log_tail(4_000));
            Ok(read(&surface, probe).await.is_ok())
        });
        ready.await.with_context(|| process.log_tail(4_000))?;
        let path = format!("/apis/muster.dev/v1alpha1/nodetopologies/{NODE}");
        let object = cluster.get(&path).await?.context("the NodeTopology")?;
        let gpus = object["hardware"]["gpus"].as_array().map_or(0, Vec::len);
        ensure!(gpus == GPUS, "{gpus} GPUs in {object}");
        cluster.say("the agent has said what its node is");
        Ok(Self { process, _machine: machine })
    }

    pub(super) fn log(&self) -> String {
        self.process.log_tail(4_000)
    }

    /// Ends it as the kubelet does.
    pub(super) fn end(&self) -> Result<()> {
        self.process.terminate()?;
        ensure!(self.process.wait_exit(SOON)? == 0, "{}", self.log());
        Ok(())
    }
}

fn at(flag: &str, path: &Path) -> String {
    format!("{flag}={}", path.display())
}

/// The pod that the DaemonSet's controller would make for the node.
async fn pod(cluster: &Cluster) -> Result<Value> {
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/muster-node-agent");
    let set = cluster.get(&path).await?.context("the DaemonSet")?;
    let template = &set["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
        "metadata": {"name": "muster-node-agent-0", "namespace": NAMESPACE,
            "labels": template["metadata"]["labels"]}});
    pod["spec"]["nodeName"] = NODE.into();
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    // Admission learns of runtime classes by a watch of its own.
    eventually("accepted", SOON, async || {
        Ok(cluster.call(Method::POST, &pods, &pod).await?.is_ok())
    })
    .await?;
    cluster.get(&format!("{pods}/muster-node-agent-0")).await?.context("the agent's pod")
}

async fn token(cluster: &Cluster, pod: &Value) -> Result<String> {
    let account = pod["spec"]["serviceAccountName"].as_str().context("an account")?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod",
            "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}}});
    let answer = cluster.call(Method::POST, &path, &request).await?.map_err(anyhow::Error::msg)?;
    Ok(answer["status"]["token"].as_str().context("no token")?.to_owned())
}

/// The container's environment, fields of the pod among it.
fn environment(pod: &Value) -> Result<Vec<(String, String)>> {
    let all = pod["spec"]["containers"][0]["env"].as_array().context("an environment")?;
    let value = |variable: &Value| {
        let field = variable.pointer("/valueFrom/fieldRef/fieldPath").and_then(Value::as_str);
        let value = match field {
            Some(field) => pod.pointer(&format!("/{}", field.replace('.', "/"))),
            None => variable.get("value"),
        };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        text(variable.get("name")).zip(text(value)).with_context(|| variable.to_string())
    };
    all.iter().map(value).collect()
}

/// The agent's program, beside the scheduler's. Cargo builds it with all tests, but not with those of the
/// chart alone: then it is built here, if it is missing or older than what it is made of.
fn program() -> Result<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_muster")).with_file_name("muster-node-agent");
    if is_current(&program) {
        return Ok(program);
    }
    let profile = program.parent().context("a directory")?;
    let target = profile.parent().context("a target directory")?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--package", "muster-node-agent", "--target-dir"]);
    cargo.arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let output = cargo.output().context("run cargo")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

/// Whether it is there and newer than every file that cargo says it is made of.
fn is_current(program: &Path) -> bool {
    let modified = |file: &Path| -> Option<SystemTime> { fs::metadata(file).ok()?.modified().ok() };
    let files = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let Some((_, files)) = files.split_once(": ") else { return false };
    let mut files = files.split_whitespace().map(|file| modified(Path::new(file)));
    modified(program).is_some_and(|made| files.all(|file| file.is_some_and(|file| file <= made)))
}
