//! The quickstart: the very commands of the document, in its order, with the real kubectl.
//!
//! Blocks of `sh` are run as they are; those of the second terminal in the background. What a
//! block of `text` shows was printed by the block before it, but for ages and for where a tie
//! may lead.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use muster_control_plane::{ControlPlane, Tool, binary};

use crate::support::Cluster;

/// A block of the document: what it is, and its text.
struct Block {
    info: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in document.lines() {
        match (line.strip_prefix("```"), open.as_mut()) {
            (Some(info), None) => open = Some(Block { info: info.to_owned(), text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_the_quickstart_works() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/quickstart.md"))?;
    let builder = ControlPlane::builder().kwok(true).controllers(&["job-controller"]);
    let cluster = Cluster::start(builder).await?;
    let bin = tempfile::tempdir()?;
    let program = Path::new(env!("CARGO_BIN_EXE_muster"));
    symlink(binary(Tool::Kubectl)?, bin.path().join("kubectl"))?;
    for name in ["muster", "kubectl-muster"] {
        symlink(program, bin.path().join(name))?;
    }
    let shell = |text: &str| -> Result<Command> {
        let mut command = Command::new("sh");
        let path = format!("{}:/usr/bin:/bin", bin.path().display());
        command.args(["-euc", text]).current_dir(root).env("PATH", path);
        command.env("KUBECONFIG", cluster.cp.admin_kubeconfig()?).env("HOME", bin.path());
        Ok(command)
    };
    let mut second = None;
    let (mut said, mut ran) = (String::new(), 0);
    for block in blocks(&document) {
        match block.info.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["sh", "terminal=2"] => {
                // The shell's place is taken by the program, so that it can be ended.
                let command = shell(&format!("exec {}", block.text))?;
                second = Some(cluster.cp.spawn("terminal-2", &command)?);
            }
            ["sh", rest @ ..] => {
                let expected = rest.iter().find_map(|word| word.strip_prefix("exit="));
                let output = shell(&block.text)?.output()?;
                said = String::from_utf8_lossy(&output.stdout).into_owned();
                let complaint = String::from_utf8_lossy(&output.stderr);
                cluster.say(&format!("$ {}{said}{complaint}", block.text));
                let code = output.status.code().unwrap_or(-1);
                ensure!(
                    code == expected.map_or(Ok(0), str::parse)?,
                    "exit code {code} of\n{}{said}{complaint}{}",
                    block.text,
                    second
                        .as_ref()
                        .map(|p: &muster_control_plane::Process| p.log_tail(4_000))
                        .unwrap_or_default()
                );
                ran += 1;
            }
            ["text"] => check(&block.text, &said)?,
            ["console"] => {}
            other => bail!("a block of {other:?}: the test knows sh, text and console"),
        }
    }
    ensure!(ran >= 7, "{ran} blocks were run");
    let second = second.context("a second terminal")?;
    second.terminate()?;
    Ok(())
}

/// Every line that is shown was printed, in this order.
fn check(shown: &str, said: &str) -> Result<()> {
    let mut lines = said.lines();
    for line in shown.lines() {
        ensure!(
            lines.any(|printed| printed.trim_end() == line.trim_end()),
            "the document shows\n{line}\nand this was printed:\n{said}"
        );
    }
    Ok(())
}
