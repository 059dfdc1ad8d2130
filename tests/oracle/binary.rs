//! Builds a Go program that asks upstream's own code once per version of its
//! sources, into the cache that the control plane's programs share.

use std::env;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The plugins decide some things by the version they think they are.
const LDFLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.1 \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37";

/// A program of the folder `tests/NAME`.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Whose code it asks.
    pub(crate) asks: &'static str,
    pub(crate) sources: &'static [&'static str],
}

/// The path of the program, built first if need be.
pub(crate) fn binary(program: &Program) -> Result<PathBuf> {
    let mut key = Fnv::default();
    for file in program.sources {
        key.add(&fs::read(module(program).join(file)).with_context(|| format!("read {file}"))?);
    }
    key.add(LDFLAGS.as_bytes());
    key.add(go_version(program)?.as_bytes());
    let folder = cache()?.join(program.name).join(format!("{:016x}", key.0));
    let path = folder.join(program.name);
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let lock = File::options().create(true).append(true).open(folder.join("lock"))?;
    lock.lock().context("lock the cache")?;
    if !path.exists() {
        build(program, &path)?;
    }
    Ok(path)
}

fn build(program: &Program, path: &Path) -> Result<()> {
    let Program { name, asks, .. } = program;
    say(&format!("building {name} from {asks}'s sources (once; 1 to 5 minutes on two cores) ..."));
    let begin = Instant::now();
    let partial = path.with_extension("partial");
    let output = go(program)
        .args(["build", "-trimpath", "-mod=readonly", "-ldflags", LDFLAGS, "-o"])
        .arg(&partial)
        .arg(".")
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        bail!("building {name} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(&partial, path)?;
    say(&format!("built {name} in {} s", begin.elapsed().as_secs()));
    Ok(())
}

/// The folder of the program: a test of another package of the workspace may ask it, too.
fn module(program: &Program) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = |root: &Path| root.join("tests").join(program.name);
    let mut roots = package.ancestors().map(folder);
    roots.find(|folder| folder.join("go.mod").exists()).unwrap_or_else(|| folder(package))
}

fn go(program: &Program) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module(program)).env("CGO_ENABLED", "0").env("GOWORK", "off");
    go
}

fn go_version(program: &Program) -> Result<String> {
    let output = match go(program).arg("version").output() {
        Err(e) if e.kind() == ErrorKind::NotFound => bail!(
            "Go is missing: {} is built from upstream's sources; \
             install Go 1.26 or newer (https://go.dev/dl) and put `go` in PATH",
            program.name
        ),
        other => other.context("run `go version`")?,
    };
    if !output.status.success() {
        bail!("`go version`: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Outside `target` and shared between checkouts.
fn cache() -> Result<PathBuf> {
    let from = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("MUSTER_CACHE")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("muster")))
        .or_else(|| Some(from("HOME")?.join(".cache/muster")))
        .context("set MUSTER_CACHE, XDG_CACHE_HOME or HOME: the oracle is built into a cache")
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
    let _ = writeln!(std::io::stderr(), "[oracle] {text}");
}
