//! Command lines of the servers, free ports, and how to tell that one is up.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use crate::binaries::{Tool, binary};
use crate::certs::Pair;
use crate::plane::Builder;

/// A port that is free now. Taken from below the ephemeral range, so that
/// between a server's death and its restart no outgoing connection can take
/// it (a client that knocks at a closed ephemeral port may even connect to
/// itself).
pub(crate) fn free_port() -> Result<u16> {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 12_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes begin at different places.
    let start = std::process::id().wrapping_mul(7_919);
    (0..COUNT)
        .find_map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            let port = u16::try_from(FIRST + start.wrapping_add(step) % COUNT).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
            Some(port)
        })
        .context("no free port between 20000 and 32000")
}

/// Whether a plain HTTP GET on loopback answers 200.
pub(crate) fn http_ok(port: u16, path: &str) -> bool {
    let get = || -> std::io::Result<bool> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let timeout = Duration::from_secs(2);
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(answer.ends_with(b" 200"))
    };
    get().unwrap_or(false)
}

pub(crate) fn etcd(dir: &Path, client: u16, peer: u16) -> Result<Command> {
    let client = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = Command::new(binary(Tool::Etcd)?);
    command
        .arg(format!("--data-dir={}", dir.join("etcd").display()))
        .arg("--name=test")
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=test={peer}"))
        .args(["--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=8589934592"]);
    Ok(command)
}

/// What the API server needs to know about its surroundings.
pub(crate) struct ApiServer<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) port: u16,
    pub(crate) etcd: u16,
    pub(crate) serving: &'a Pair,
    pub(crate) tokens: &'a Pair,
}

impl ApiServer<'_> {
    pub(crate) fn command(&self, builder: &Builder) -> Result<Command> {
        let (dir, tokens) = (self.dir.display(), self.tokens);
        let mut command = Command::new(binary(Tool::KubeApiserver)?);
        command
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd))
            .arg(format!("--secure-port={}", self.port))
            // Loopback is no valid endpoint, hence no reconciler.
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg("--endpoint-reconciler-type=none")
            .arg(format!("--cert-dir={dir}"))
            .arg(format!("--client-ca-file={dir}/ca.crt"))
            .arg(format!("--tls-cert-file={}", self.serving.cert.display()))
            .arg(format!("--tls-private-key-file={}", self.serving.key.display()))
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg(format!("--service-account-key-file={}", tokens.cert.display()))
            .arg(format!("--service-account-signing-key-file={}", tokens.key.display()))
            .args(["--service-cluster-ip-range=10.0.0.0/16", "--authorization-mode=RBAC"])
            .args(["--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500"])
            .args(["--allow-privileged=true", "--profiling=false"])
            .arg(format!("--enable-priority-and-fairness={}", builder.fairness));
        let without = admission_off(&builder.controllers);
        if !without.is_empty() {
            command.arg(format!("--disable-admission-plugins={}", without.join(",")));
        }
        if !builder.feature_gates.is_empty() {
            command.arg(format!("--feature-gates={}", builder.feature_gates.join(",")));
        }
        if !builder.runtime_config.is_empty() {
            command.arg(format!("--runtime-config={}", builder.runtime_config.join(",")));
        }
        if builder.audit_log {
            command
                .arg(format!("--audit-log-path={dir}/audit.log"))
                .arg(format!("--audit-policy-file={dir}/audit-policy.json"))
                .arg("--audit-log-mode=blocking");
        }
        command.args(&builder.api_server_args);
        Ok(command)
    }
}

/// Admission that leaves objects waiting for a controller nobody runs.
fn admission_off(controllers: &[String]) -> Vec<&'static str> {
    let needs = [
        // Pods wait for a service account.
        ("ServiceAccount", "serviceaccount-controller"),
        // New nodes get a not-ready taint.
        ("TaintNodesByCondition", "node-lifecycle-controller"),
        // Claims get a finalizer.
        ("StorageObjectInUseProtection", "persistentvolumeclaim-protection-controller"),
    ];
    let runs = |name: &str| controllers.iter().any(|c| c == name);
    needs.into_iter().filter(|(_, c)| !runs(c)).map(|(plugin, _)| plugin).collect()
}

pub(crate) fn controller_manager(
    builder: &Builder,
    dir: &Path,
    kubeconfig: &Path,
    tokens: &Pair,
) -> Result<Command> {
    let mut command = Command::new(binary(Tool::KubeControllerManager)?);
    command
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--controllers={}", builder.controllers.join(",")))
        .args(["--leader-elect=false", "--secure-port=0", "--profiling=false"])
        .args(["--kube-api-qps=2000", "--kube-api-burst=4000", "--concurrent-gc-syncs=20"])
        .arg(format!("--root-ca-file={}", dir.join("ca.crt").display()))
        .arg(format!("--service-account-private-key-file={}", tokens.key.display()));
    if !builder.feature_gates.is_empty() {
        command.arg(format!("--feature-gates={}", builder.feature_gates.join(",")));
    }
    command.args(&builder.controller_manager_args);
    Ok(command)
}

/// The real scheduler with its default profile, alone in the cluster.
pub(crate) fn scheduler(dir: &Path, kubeconfig: &Path, gates: &[&str]) -> Result<Command> {
    let config = dir.join("scheduler.yaml");
    let text = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        // Its default of 50 requests per second would be all that is measured.
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5_000, "burst": 5_000},
    });
    fs::write(&config, text.to_string())?;
    let mut command = Command::new(binary(Tool::KubeScheduler)?);
    command.arg("--config").arg(config).arg("--secure-port=0");
    if !gates.is_empty() {
        command.arg(format!("--feature-gates={}", gates.join(",")));
    }
    Ok(command)
}

/// Simulated nodes and pods, see `kwok.yaml`.
pub(crate) const KWOK_CONFIG: &str = include_str!("kwok.yaml");

pub(crate) fn kwok(dir: &Path, kubeconfig: &Path, port: u16) -> Result<Command> {
    let mut command = Command::new(binary(Tool::Kwok)?);
    command
        .arg(format!("--config={}", dir.join("kwok.yaml").display()))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .arg(format!("--server-address=127.0.0.1:{port}"))
        .arg("--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake")
        .args(["--manage-all-nodes=false", "--node-lease-duration-seconds=0"])
        .env("HOME", dir);
    Ok(command)
}
