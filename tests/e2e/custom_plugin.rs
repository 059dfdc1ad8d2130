//! A scheduler with a plugin of its own, `examples/custom-plugin`: built as its users
//! build it, and run on a real API server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::extract::{Json, State};
use axum::{Router, routing};
use muster_control_plane::{ControlPlane, Process};
use serde_json::{Value, json};

use crate::support::{Cluster, SOON, eventually};

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/custom-plugin");

/// What the source says, and how often it was asked.
type Source = Arc<Mutex<(Value, u64)>>;

struct Stage {
    cluster: Cluster,
    muster: Process,
    source: Source,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_in_a_crate_of_its_own_decides_by_outside_data() -> Result<()> {
    let program = tokio::task::spawn_blocking(build).await??;
    let cluster = Cluster::start(ControlPlane::builder()).await?;
    for name in ["gpu-a", "gpu-b"] {
        let room = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"});
        cluster
            .create(&json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                "status": {"capacity": room, "allocatable": room,
                    "conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .await?;
    }
    for name in ["research", "interns"] {
        let metadata = json!({"name": name});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
        cluster.create(&namespace).await?;
    }
    let source: Source = Arc::new(Mutex::new((json!({"gpu-a": 0.05, "gpu-b": 0.9}), 0)));
    let url = serve(&source).await?;
    refuses_bad_arguments(&cluster, &program)?;
    let args = json!({"url": url, "pollSeconds": 1, "weights": {"research": 1.0}});
    let muster = start(&cluster, &program, "muster", &args)?;
    let stage = Stage { cluster, muster, source };
    let played = stage.play().await;
    played.with_context(|| stage.muster.log_tail(4_000))
}

/// Builds the crate with what the workspace was built from: nothing is downloaded,
/// and what it has in common with the workspace is not built twice.
fn build() -> Result<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().context("no target directory")?;
    let manifest = format!("{CRATE}/Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--locked", "--offline", "--manifest-path", &manifest])
        .env("CARGO_TARGET_DIR", target);
    // What cargo tells this test of its package would look like a change of environment to build
    // scripts, and have the next test run build their crates anew.
    let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(told) {
            command.env_remove(name);
        }
    }
    let built = command.output().context("run cargo")?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(target.join("debug/gpu-idleness-scheduler"))
}

async fn serve(source: &Source) -> Result<String> {
    async fn tell(State(source): State<Source>) -> Json<Value> {
        let mut source = source.lock().unwrap();
        source.1 += 1;
        Json(source.0.clone())
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/idle", listener.local_addr()?);
    let app = Router::new().route("/idle", routing::get(tell)).with_state(Arc::clone(source));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

fn start(cluster: &Cluster, program: &Path, name: &str, args: &Value) -> Result<Process> {
    let file = cluster.cp.dir().join(format!("{name}.yaml"));
    // Ten times what other plugins say together.
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "profiles": [{
            "schedulerName": "gpu",
            "plugins": {"score": {"enabled": [{"name": "GpuIdleness", "weight": 100}]}},
            "pluginConfig": [{"name": "GpuIdleness", "args": args}],
        }],
    });
    std::fs::write(&file, config.to_string())?;
    let mut command = Command::new(program);
    command.arg("run").arg("--config").arg(&file).arg("--kubeconfig").arg(&cluster.kubeconfig);
    cluster.cp.spawn(name, command.args(["--secure-port", "0"]))
}

/// The program ends at once and names the field.
fn refuses_bad_arguments(cluster: &Cluster, program: &Path) -> Result<()> {
    let args = json!({"url": "http://127.0.0.1:9", "weights": {"research": 1.5}});
    let muster = start(cluster, program, "bad", &args)?;
    ensure!(muster.wait_exit(SOON)? == 1, "it runs");
    let log = muster.log_tail(4_000);
    let expected =
        "GpuIdleness: args.weights.research: Invalid value: 1.5: must be between 0 and 1";
    ensure!(log.contains("profiles[0]") && log.contains(expected), "{log}");
    Ok(())
}

impl Stage {
    async fn play(&self) -> Result<()> {
        self.heard().await?;
        // Research goes where GPUs idle, until they are all taken.
        for i in 0..4 {
            let node = self.place("research", &format!("first-{i}"), 1).await?;
            ensure!(node == "gpu-b", "first-{i} is on {node}");
        }
        // Interns have no weight: they go where there is more room.
        let node = self.place("interns", "intern", 1).await?;
        ensure!(node == "gpu-a", "the intern is on {node}");
        // Who asks for no GPU is not concerned.
        let node = self.place("research", "web", 0).await?;
        ensure!(node == "gpu-a", "web is on {node}");
        self.cluster.say("placed by idleness");

        self.source.lock().unwrap().0 = json!({"gpu-a": 1.0, "gpu-b": 0.0});
        self.heard().await?;
        let node = self.place("research", "second", 1).await?;
        ensure!(node == "gpu-a", "second is on {node}");

        // Nothing is known of gpu-a any more, and little is more than nothing.
        self.source.lock().unwrap().0 = json!({"gpu-b": 0.5});
        self.heard().await?;
        let node = self.place("research", "third", 1).await?;
        ensure!(node == "gpu-b", "third is on {node}");
        self.cluster.say("placed by what has changed");

        self.cluster.check_room().await?;
        let log = self.muster.log_tail(1 << 26);
        ensure!(!log.contains("audit:"), "the checker objects: {log}");
        self.muster.terminate()?;
        ensure!(self.muster.wait_exit(SOON)? == 0, "exit code after SIGTERM");
        Ok(())
    }

    /// Waits until what the source says now has been fed: a poll begins when the one
    /// before it has been.
    async fn heard(&self) -> Result<()> {
        let before = self.source.lock().unwrap().1;
        eventually("asked twice", SOON, || async {
            ensure!(self.muster.is_running(), "it has ended");
            Ok(self.source.lock().unwrap().1 >= before + 2)
        })
        .await
    }

    /// Creates a pod and says where it was put.
    async fn place(&self, namespace: &str, name: &str, gpus: u32) -> Result<String> {
        let mut limits = json!({"cpu": "4"});
        if gpus > 0 {
            limits["nvidia.com/gpu"] = json!(gpus.to_string());
        }
        let container = json!({"name": "main", "image": "i", "resources": {"limits": limits}});
        self.cluster
            .create(&json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"schedulerName": "gpu", "automountServiceAccountToken": false,
                    "containers": [container]},
            }))
            .await?;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let find = || async {
            let request = http::Request::get(&path).body(Vec::new())?;
            let pod: Value = self.cluster.admin.request(request).await?;
            anyhow::Ok(pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned())
        };
        eventually("bound", SOON, || async { Ok(!find().await?.is_empty()) })
            .await
            .with_context(|| name.to_owned())?;
        find().await
    }
}
