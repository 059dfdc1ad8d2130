//! Talks to one kubelet-oracle process: one command, one answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::binary::{Program, binary};

const PROGRAM: Program = Program {
    name: "kubelet-oracle",
    asks: "the kubelet",
    sources: &["go.mod", "go.sum", "main.go", "kubelet.go", "plugin.go", "state.go"],
};

/// What the kubelet did, and what is in use then.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    pub(crate) admitted: bool,
    #[serde(default)]
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) state: Option<KubeletState>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KubeletState {
    pub(crate) shared: Option<Vec<u16>>,
    pub(crate) memory: Option<Vec<MemoryState>>,
    pub(crate) taken: BTreeMap<String, Vec<String>>,
    pub(crate) given: BTreeMap<String, BTreeMap<String, Given>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct MemoryState {
    pub(crate) id: u8,
    pub(crate) free: BTreeMap<String, u64>,
    pub(crate) allocatable: BTreeMap<String, u64>,
    pub(crate) blocks: u64,
    pub(crate) group: Vec<u8>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Given {
    pub(crate) cpus: Vec<u16>,
    pub(crate) memory: Vec<u8>,
    pub(crate) devices: BTreeMap<String, Vec<String>>,
}

/// A kubelet's managers in a process of their own.
pub(crate) struct Kubelet {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Kubelet {
    pub(crate) fn start(pod_level: bool) -> Result<Self> {
        let path = binary(&PROGRAM)?;
        let mut child = Command::new(&path)
            .arg(format!("-pod-level={pod_level}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", path.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self { child, input, output: BufReader::new(output.context("no output")?) })
    }

    /// Makes a machine; the one before it is forgotten.
    pub(crate) fn open(&mut self, machine: &impl Serialize) -> Result<KubeletState> {
        self.tell(&json!({ "open": machine })).and_then(state)
    }

    /// Asks for the admission of a pod, as the API server has it.
    pub(crate) fn admit(&mut self, pod: &Value) -> Result<Answer> {
        self.tell(&json!({ "admit": pod }))
    }

    pub(crate) fn remove(&mut self, uid: &str) -> Result<KubeletState> {
        self.tell(&json!({ "remove": uid })).and_then(state)
    }

    pub(crate) fn report(&mut self, devices: &impl Serialize) -> Result<KubeletState> {
        self.tell(&json!({ "devices": devices })).and_then(state)
    }

    fn tell(&mut self, command: &Value) -> Result<Answer> {
        let input = self.input.as_mut().context("the oracle is stopped")?;
        input.write_all(format!("{command}\n").as_bytes()).context("write to the oracle")?;
        let mut line = String::new();
        if self.output.read_line(&mut line).context("read the oracle's answer")? == 0 {
            bail!("the oracle ended early; it needs user namespaces: try `unshare -Urm true`");
        }
        let answer: Answer = serde_json::from_str(&line)?;
        match &answer.error {
            Some(error) => bail!("the oracle says: {error}\nto {command}"),
            None => Ok(answer),
        }
    }
}

fn state(answer: Answer) -> Result<KubeletState> {
    answer.state.context("no state in the answer")
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}
