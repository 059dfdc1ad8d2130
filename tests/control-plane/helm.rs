//! Running helm, without a trace in the home directory.

use std::ffi::OsStr;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::binaries::{Tool, binary};

/// Runs helm to its end and returns what it printed. An error is its complaint, in its
/// own words.
pub fn helm<I, S>(arguments: I) -> Result<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let home = tempfile::tempdir()?;
    let mut command = Command::new(binary(Tool::Helm)?);
    command.args(arguments).env_remove("KUBECONFIG");
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, home.path().join(name));
    }
    let output = command.output().context("run helm")?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    bail!("{}{printed}", String::from_utf8_lossy(&output.stderr))
}
