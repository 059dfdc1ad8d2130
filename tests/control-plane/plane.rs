//! Starting, holding and stopping one control plane.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::binaries::say;
use crate::certs::{Authority, Pair, service_account_keys};
use crate::process::{Process, spawn, tail};
use crate::servers::{self, free_port, http_ok};

/// How long a server may take to come up: long, because two cores may be busy
/// with other tests.
const START: Duration = Duration::from_secs(120);

/// The user for whom every cluster has a role and a fairness level.
pub const KUBE_SCHEDULER: &str = "system:kube-scheduler";

/// What to start; made by [`ControlPlane::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) controllers: Vec<String>,
    pub(crate) kwok: bool,
    pub(crate) feature_gates: Vec<String>,
    pub(crate) runtime_config: Vec<String>,
    pub(crate) audit_log: bool,
    pub(crate) fairness: bool,
    pub(crate) api_server_args: Vec<String>,
    pub(crate) controller_manager_args: Vec<String>,
}

fn owned(items: &[&str]) -> Vec<String> {
    items.iter().map(|s| (*s).to_owned()).collect()
}

impl Builder {
    /// Runs kube-controller-manager with exactly these controllers (names as
    /// in upstream's `--controllers`, for instance `job-controller`). Admission
    /// plugins that make objects wait for a controller are on only if it runs:
    /// ServiceAccount, TaintNodesByCondition, StorageObjectInUseProtection.
    pub fn controllers(mut self, names: &[&str]) -> Self {
        self.controllers = owned(names);
        self
    }

    /// Runs kwok: nodes with the annotation `kwok.x-k8s.io/node: fake` become
    /// Ready, pods bound to them run (and end after [`crate::RUN_SECONDS`]).
    pub fn kwok(mut self, on: bool) -> Self {
        self.kwok = on;
        self
    }

    /// Feature gates of the API server and the controllers, `Name=true`.
    pub fn feature_gates(mut self, gates: &[&str]) -> Self {
        self.feature_gates = owned(gates);
        self
    }

    /// API versions to serve beyond the default, `group/version=true`.
    pub fn runtime_config(mut self, versions: &[&str]) -> Self {
        self.runtime_config = owned(versions);
        self
    }

    /// Records every request (metadata only), see [`ControlPlane::audit_events`].
    pub fn audit_log(mut self, on: bool) -> Self {
        self.audit_log = on;
        self
    }

    /// API priority and fairness; on unless switched off.
    pub fn priority_and_fairness(mut self, on: bool) -> Self {
        self.fairness = on;
        self
    }

    /// Further arguments of kube-apiserver.
    pub fn api_server_args(mut self, args: &[&str]) -> Self {
        self.api_server_args = owned(args);
        self
    }

    /// Further arguments of kube-controller-manager.
    pub fn controller_manager_args(mut self, args: &[&str]) -> Self {
        self.controller_manager_args = owned(args);
        self
    }

    /// Starts everything and returns when the API server is ready. Blocks the
    /// calling thread, inside a runtime too.
    pub fn start(self) -> Result<ControlPlane> {
        ControlPlane::start(self)
    }
}

/// A running control plane. Dropping it stops every server.
pub struct ControlPlane {
    // Fields drop in this order: clients of a server before the server, and
    // the directory last.
    kwok: Option<Process>,
    controller_manager: Option<Process>,
    api_server: Mutex<Option<Process>>,
    etcd: Process,
    port: u16,
    etcd_port: u16,
    builder: Builder,
    authority: Authority,
    serving: Pair,
    tokens: Pair,
    identities: Mutex<HashMap<(String, Vec<String>), PathBuf>>,
    dir: Directory,
}

impl ControlPlane {
    /// An API server with RBAC on an empty etcd, and nothing else.
    pub fn builder() -> Builder {
        Builder {
            controllers: Vec::new(),
            kwok: false,
            feature_gates: Vec::new(),
            runtime_config: Vec::new(),
            audit_log: false,
            fairness: true,
            api_server_args: Vec::new(),
            controller_manager_args: Vec::new(),
        }
    }

    fn start(builder: Builder) -> Result<Self> {
        // Fails only if somebody has installed a provider: just as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = Directory::new()?;
        let path = dir.path();
        let authority = Authority::new()?;
        fs::write(path.join("ca.crt"), &authority.pem)?;
        fs::write(path.join("kwok.yaml"), servers::KWOK_CONFIG)?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}],
        });
        fs::write(path.join("audit-policy.json"), policy.to_string())?;
        let serving = authority.serving(&path.join("serving"))?;
        let tokens = service_account_keys(path)?;
        let (etcd, etcd_port) = start_etcd(path)?;
        let mut plane = Self {
            kwok: None,
            controller_manager: None,
            api_server: Mutex::new(None),
            etcd,
            port: 0,
            etcd_port,
            builder,
            authority,
            serving,
            tokens,
            identities: Mutex::new(HashMap::new()),
            dir,
        };
        retry_on_port_clash(|| {
            plane.port = free_port()?;
            plane.start_api_server()
        })?;
        // Kubeconfigs written from here on know the port.
        let admin = plane.admin_kubeconfig()?;
        if !plane.builder.controllers.is_empty() {
            let command =
                servers::controller_manager(&plane.builder, plane.dir(), &admin, &plane.tokens)?;
            plane.controller_manager = Some(plane.spawn("kube-controller-manager", &command)?);
        }
        if plane.builder.kwok {
            plane.kwok = Some(plane.start_kwok(&admin)?);
        }
        Ok(plane)
    }

    fn start_kwok(&self, kubeconfig: &Path) -> Result<Process> {
        let mut kwok = None;
        retry_on_port_clash(|| {
            let port = free_port()?;
            let command = servers::kwok(self.dir(), kubeconfig, port)?;
            let process = self.spawn("kwok", &command)?;
            process.wait_until("ready", START, || http_ok(port, "/readyz"))?;
            kwok = Some(process);
            Ok(())
        })?;
        kwok.context("kwok")
    }

    /// Stops kube-apiserver hard and starts it again, on the same port and the
    /// same etcd.
    pub fn restart_api_server(&self) -> Result<()> {
        self.stop_api_server()?;
        self.start_api_server()
    }

    /// Kills kube-apiserver; etcd and the other programs go on.
    pub fn stop_api_server(&self) -> Result<()> {
        match self.slot().take() {
            Some(server) => server.kill(),
            None => Ok(()),
        }
    }

    /// Starts kube-apiserver after [`ControlPlane::stop_api_server`] and waits
    /// until it is ready; does nothing if it runs.
    pub fn start_api_server(&self) -> Result<()> {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(Process::is_running) {
            return Ok(());
        }
        let api_server = servers::ApiServer {
            dir: self.dir(),
            port: self.port,
            etcd: self.etcd_port,
            serving: &self.serving,
            tokens: &self.tokens,
        };
        let command = api_server.command(&self.builder)?;
        let server = self.spawn("kube-apiserver", &command)?;
        let mut config = self.probe()?;
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_secs(5));
        // The default namespace comes a little after readiness.
        on_runtime(async {
            let client = Client::try_from(config)?;
            for path in ["/readyz", "/api/v1/namespaces/default"] {
                wait_for(&server, &client, path).await?;
            }
            anyhow::Ok(())
        })?;
        *slot = Some(server);
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, Option<Process>> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An administrator's configuration that leaves no kubeconfig behind: the
    /// port may still change.
    fn probe(&self) -> Result<Config> {
        let dir = self.dir().join("probe");
        let pair = self.authority.client("probe", &["system:masters"], &dir)?;
        self.config_of(&pair.cert, &pair.key)
    }

    /// A kubeconfig for any user and up to two groups. The identity has no
    /// rights beyond those of its groups (`system:masters` has all).
    pub fn kubeconfig(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let mut known = self.identities.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (user.to_owned(), owned(groups));
        if let Some(path) = known.get(&key) {
            return Ok(path.clone());
        }
        let dir = self.dir().join("identities").join(known.len().to_string());
        let pair = self.authority.client(user, groups, &dir)?;
        let path = dir.join("kubeconfig");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": self.url(),
                "certificate-authority": self.dir().join("ca.crt"),
            }}],
            "users": [{"name": user, "user": {
                "client-certificate": pair.cert, "client-key": pair.key,
            }}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
        });
        // JSON is YAML.
        fs::write(&path, serde_json::to_vec_pretty(&config)?)?;
        known.insert(key, path.clone());
        Ok(path)
    }

    /// A kubeconfig with a token, in the file `NAME.kubeconfig`.
    pub fn token_kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": self.url(), "certificate-authority": self.dir().join("ca.crt"),
            }}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        });
        let path = self.dir().join(format!("{name}.kubeconfig"));
        fs::write(&path, serde_json::to_vec(&config)?)?;
        Ok(path)
    }

    /// The kubeconfig of an administrator.
    pub fn admin_kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig("admin", &["system:masters"])
    }

    /// The configuration of a client with this identity, to change before use.
    pub fn config(&self, user: &str, groups: &[&str]) -> Result<Config> {
        let path = self.kubeconfig(user, groups)?;
        self.config_of(&path.with_file_name("tls.crt"), &path.with_file_name("tls.key"))
    }

    fn config_of(&self, cert: &Path, key: &Path) -> Result<Config> {
        let mut config = Config::new(self.url().parse()?);
        config.root_cert = Some(vec![self.authority.der.clone()]);
        config.auth_info.client_certificate = Some(cert.display().to_string());
        config.auth_info.client_key = Some(key.display().to_string());
        Ok(config)
    }

    /// A client with this identity. To be called inside a tokio runtime and
    /// used in that one only.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Client> {
        Ok(Client::try_from(self.config(user, groups)?)?)
    }

    /// A client that may do everything; see [`ControlPlane::client`].
    pub fn admin(&self) -> Result<Client> {
        self.client("admin", &["system:masters"])
    }

    /// The API server's address, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The authority that signed the API server's certificate, as PEM.
    pub fn ca_pem(&self) -> &str {
        &self.authority.pem
    }

    /// Where the servers keep their data, logs and certificates.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Pids of the running servers by name.
    pub fn pids(&self) -> Vec<(String, u32)> {
        let slot = self.slot();
        let others = [Some(&self.etcd), self.controller_manager.as_ref(), self.kwok.as_ref()];
        others
            .into_iter()
            .chain([slot.as_ref()])
            .flatten()
            .filter(|p| p.is_running())
            .map(|p| (p.name().to_owned(), p.pid()))
            .collect()
    }

    /// The end of the log of a program started here.
    pub fn log_tail(&self, name: &str, bytes: u64) -> String {
        tail(&self.dir().join(format!("{name}.log")), bytes)
    }

    /// Every request that the audit log has recorded so far.
    pub fn audit_events(&self) -> Result<Vec<Value>> {
        if !self.builder.audit_log {
            bail!("the control plane was started without audit_log(true)");
        }
        let text = fs::read_to_string(self.dir().join("audit.log"))?;
        // The last line may be half written.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// How to start the real kube-scheduler: default profile, no election, no
    /// rate limit worth the name, no port.
    pub fn kube_scheduler(&self, feature_gates: &[&str]) -> Result<Command> {
        let kubeconfig = self.kubeconfig(KUBE_SCHEDULER, &[])?;
        servers::scheduler(self.dir(), &kubeconfig, feature_gates)
    }

    /// Starts a program under test with its output in `NAME.log` in
    /// [`ControlPlane::dir`]; keep the [`Process`], dropping it kills.
    pub fn spawn(&self, name: &str, command: &Command) -> Result<Process> {
        spawn(command, &self.dir().join(format!("{name}.log")))
    }
}

fn start_etcd(dir: &Path) -> Result<(Process, u16)> {
    let mut started = None;
    retry_on_port_clash(|| {
        let (client, peer) = (free_port()?, free_port()?);
        let command = servers::etcd(dir, client, peer)?;
        let process = spawn(&command, &dir.join("etcd.log"))?;
        process.wait_until("healthy", START, || http_ok(client, "/health"))?;
        started = Some((process, client));
        Ok(())
    })?;
    started.context("etcd")
}

/// Between finding a free port and using it, another test may take it.
fn retry_on_port_clash(mut start: impl FnMut() -> Result<()>) -> Result<()> {
    let mut left = 5;
    loop {
        match start() {
            Err(e) if left > 0 && format!("{e:#}").contains("address already in use") => left -= 1,
            other => return other,
        }
    }
}

/// Polls until `path` answers with success; fails if the server dies.
async fn wait_for(server: &Process, client: &Client, path: &str) -> Result<()> {
    let deadline = tokio::time::Instant::now() + START;
    loop {
        let request = http::Request::get(path).body(Vec::new())?;
        let answer = client.request_text(request).await;
        let Err(error) = answer else { return Ok(()) };
        // Fails if the process has ended.
        server.wait_until("ready", START, || true)?;
        if tokio::time::Instant::now() >= deadline {
            bail!(
                "{path} of {} still fails after {START:?}: {error}; its log ends with:\n{}",
                server.name(),
                server.log_tail(4_000)
            );
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Runs a future to its end from synchronous code, whether or not the caller
/// is inside a runtime.
fn on_runtime<T: Send>(future: impl Future<Output = Result<T>> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
        });
        thread.join().unwrap_or_else(|_| bail!("the thread that waits for the server panicked"))
    })
}

/// The temporary directory, kept for inspection with `MUSTER_KEEP=1`.
struct Directory(Option<TempDir>, PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("muster-control-plane-").tempdir()?;
        let path = dir.path().to_owned();
        Ok(Self(Some(dir), path))
    }

    fn path(&self) -> &Path {
        &self.1
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if std::env::var_os("MUSTER_KEEP").is_some_and(|v| v == "1")
            && let Some(dir) = self.0.take()
        {
            say(&format!("MUSTER_KEEP=1: kept {}", dir.keep().display()));
        }
    }
}
