//! Finds the servers, or builds them once from the pinned Go modules.
//!
//! `MUSTER_KUBERNETES=1.35` takes the API server of that version instead of the newest one.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::tail;

/// A program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// The store.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers.
    KubeControllerManager,
    /// Upstream's scheduler, to compare with.
    KubeScheduler,
    /// Simulated nodes and pods.
    Kwok,
    /// The chart installer.
    Helm,
    /// What people type.
    Kubectl,
}

/// Paths of all programs.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// etcd
    pub etcd: PathBuf,
    /// kube-apiserver
    pub kube_apiserver: PathBuf,
    /// kube-controller-manager
    pub kube_controller_manager: PathBuf,
    /// kube-scheduler
    pub kube_scheduler: PathBuf,
    /// kwok
    pub kwok: PathBuf,
    /// helm
    pub helm: PathBuf,
    /// kubectl
    pub kubectl: PathBuf,
}

/// The environment variable that names another minor version of the API server.
const KUBERNETES: &str = "MUSTER_KUBERNETES";
/// Where the older API server is pinned.
const OLDER: &str = "kubernetes-1.35";

/// Whether an older API server is asked for. The other programs stay what they are.
fn older() -> bool {
    wanted().is_some_and(|version| OLDER.strip_prefix("kubernetes-") == Some(&version))
}

fn wanted() -> Option<String> {
    env::var(KUBERNETES).ok().filter(|version| !version.is_empty())
}

/// All programs, built where needed. Tests that need only some should ask for
/// those with [`binary`], so that nobody waits for the others.
pub fn binaries() -> Result<Binaries> {
    Ok(Binaries {
        etcd: binary(Tool::Etcd)?,
        kube_apiserver: binary(Tool::KubeApiserver)?,
        kube_controller_manager: binary(Tool::KubeControllerManager)?,
        kube_scheduler: binary(Tool::KubeScheduler)?,
        kwok: binary(Tool::Kwok)?,
        helm: binary(Tool::Helm)?,
        kubectl: binary(Tool::Kubectl)?,
    })
}

impl Tool {
    /// The program's file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
            Self::Kubectl => "kubectl",
        }
    }

    /// Folder of the Go module beside this file.
    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver if older() => OLDER,
            Self::KubeApiserver | Self::KubeControllerManager | Self::KubeScheduler => "kubernetes",
            Self::Kwok => "kwok",
            Self::Helm => "helm",
            Self::Kubectl => "kubectl",
        }
    }

    /// Go module whose version is the tool's.
    fn pinned(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver | Self::KubeControllerManager | Self::KubeScheduler => {
                "k8s.io/kubernetes"
            }
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::Helm => "helm.sh/helm/v4",
            Self::Kubectl => "k8s.io/kubectl",
        }
    }

    fn package(self) -> String {
        match self {
            Self::Etcd => self.pinned().to_owned(),
            // A library: what starts it is in the folder.
            Self::Kubectl => ".".to_owned(),
            _ => format!("{}/cmd/{}", self.pinned(), self.name()),
        }
    }

    /// What a cold build costs on two cores, to tell who waits.
    fn cost(self) -> &'static str {
        match self {
            Self::Etcd => "about a minute",
            Self::KubeApiserver => "5 to 15 minutes",
            Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kwok
            | Self::Helm
            | Self::Kubectl => "a few minutes",
        }
    }
}

/// The pinned version of a tool, for instance `v1.37.1`.
pub fn version(tool: Tool) -> Result<String> {
    let text = fs::read_to_string(module_dir(tool).join("go.mod"))?;
    let pinned = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|w| *w == "require");
        (words.next() == Some(tool.pinned())).then(|| words.next().map(str::to_owned))?
    });
    pinned.with_context(|| format!("{}/go.mod does not pin {}", tool.module(), tool.pinned()))
}

/// The path of one program: from `KUBEBUILDER_ASSETS` if that has it,
/// otherwise from the cache, where it is built first if need be.
pub fn binary(tool: Tool) -> Result<PathBuf> {
    if let Some(assets) = env::var_os("KUBEBUILDER_ASSETS") {
        let path = PathBuf::from(assets).join(tool.name());
        if path.exists() {
            return Ok(path);
        }
        if matches!(tool, Tool::Etcd | Tool::KubeApiserver) {
            bail!("KUBEBUILDER_ASSETS is set, but {} does not exist", path.display());
        }
    }
    if let Some(version) = wanted().filter(|_| tool == Tool::KubeApiserver && !older()) {
        bail!("{KUBERNETES}={version}: only 1.35 is pinned beside the default; name that or none");
    }
    let recipe = Recipe::new(tool)?;
    let path = recipe.dir.join(tool.name());
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&recipe.dir).with_context(|| format!("create {}", recipe.dir.display()))?;
    let _lock = lock(&recipe.dir.join("lock"), tool)?;
    if !path.exists() {
        recipe.build(&path)?;
    }
    Ok(path)
}

fn module_dir(tool: Tool) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(tool.module())
}

/// Outside `target` and shared between checkouts.
fn cache_dir() -> Result<PathBuf> {
    let from = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("MUSTER_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("muster")))
        .or_else(|| Some(from("HOME")?.join(".cache/muster")))
        .context("set MUSTER_CACHE, XDG_CACHE_HOME or HOME: the servers are built into a cache")
}

/// How a tool is built and where it goes: the place is named by everything
/// that decides the outcome.
struct Recipe {
    tool: Tool,
    version: String,
    ldflags: String,
    dir: PathBuf,
}

impl Recipe {
    fn new(tool: Tool) -> Result<Self> {
        let version = version(tool)?;
        let ldflags = match tool.module() {
            "kubernetes" | OLDER => kubernetes_ldflags(&version)?,
            // Its modules are v0 of what is v1 of Kubernetes.
            "kubectl" => kubernetes_ldflags(&version.replacen("v0", "v1", 1))?,
            _ => "-s -w".to_owned(),
        };
        let module = module_dir(tool);
        let mut hash = Fnv::default();
        for file in ["go.mod", "go.sum"] {
            hash.add(&fs::read(module.join(file))?);
        }
        hash.add(ldflags.as_bytes());
        hash.add(go_version(tool)?.as_bytes());
        let key = format!("{}-{version}-{:016x}", tool.module(), hash.0);
        let dir = cache_dir()?.join("control-plane").join(key);
        Ok(Self { tool, version, ldflags, dir })
    }

    fn build(&self, path: &Path) -> Result<()> {
        let what = format!("{} {}", self.tool.name(), self.version);
        let cost = self.tool.cost();
        let partial = self.dir.join(format!(".{}.partial", self.tool.name()));
        let log = self.dir.join(format!("{}.build.log", self.tool.name()));
        let output = File::create(&log)?;
        let begin = Instant::now();
        say(&format!("building {what} (once; {cost} on two cores) ..."));
        let mut child = go(self.tool)
            .args(["build", "-trimpath", "-mod=readonly", "-ldflags", &self.ldflags, "-o"])
            .arg(&partial)
            .arg(self.tool.package())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let mut ticker = Ticker::new();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if let Some(seconds) = ticker.due() {
                say(&format!("building {what} (once; {cost} on two cores) ... {seconds} s"));
            }
            sleep(Duration::from_millis(100));
        };
        if !status.success() {
            bail!("building {what} failed ({status}):\n{}", tail(&log, 4_000));
        }
        fs::rename(&partial, path)?;
        say(&format!("built {what} in {} s", begin.elapsed().as_secs()));
        Ok(())
    }
}

/// Without these the servers think that they are v0.0.0.
fn kubernetes_ldflags(version: &str) -> Result<String> {
    let mut parts = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
        bail!("{version} is not a version");
    };
    let variable = "k8s.io/component-base/version.git";
    Ok(format!(
        "-s -w -X {variable}Version={version} -X {variable}Major={major} -X {variable}Minor={minor}"
    ))
}

fn go(tool: Tool) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module_dir(tool)).env("CGO_ENABLED", "0").env("GOWORK", "off");
    go
}

/// The toolchain that would build the module; it may differ from the installed
/// one, because Go fetches what `go.mod` asks for.
fn go_version(tool: Tool) -> Result<String> {
    const INSTALL: &str = "the tests run a real Kubernetes control plane, built from source: \
        install Go 1.26 or newer (https://go.dev/dl) and put `go` in PATH";
    let output = match go(tool).arg("version").output() {
        Err(e) if e.kind() == ErrorKind::NotFound => bail!("Go is missing: {INSTALL}"),
        other => other.context("run `go version`")?,
    };
    if !output.status.success() {
        bail!("`go version`: {}{INSTALL}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn lock(path: &Path, tool: Tool) -> Result<File> {
    let file = File::options().create(true).append(true).open(path)?;
    let mut ticker = Ticker::new();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("lock {}", path.display()));
            }
        }
        if let Some(seconds) = ticker.due() {
            say(&format!(
                "waiting for {} until another process has built its part ... {seconds} s",
                tool.name()
            ));
        }
        sleep(Duration::from_millis(100));
    }
}

/// Says when another quarter of a minute has passed.
struct Ticker {
    begin: Instant,
    next: Duration,
}

impl Ticker {
    const STEP: Duration = Duration::from_secs(15);

    fn new() -> Self {
        Self { begin: Instant::now(), next: Self::STEP }
    }

    fn due(&mut self) -> Option<u64> {
        let passed = self.begin.elapsed();
        (passed >= self.next).then(|| {
            self.next += Self::STEP;
            passed.as_secs()
        })
    }
}

/// FNV-1a, which unlike the standard library's hasher is fixed for ever.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// Prints past the capture of the test harness.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "[control plane] {text}");
}
