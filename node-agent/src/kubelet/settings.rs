//! The kubelet's settings, as far as they decide which pods it admits.
//!
//! Owns: the reading of `/configz`, of the configuration file with its drop-ins, and of what the
//! kubelet's answers betray. Must never fail: what cannot be read is a default, and a note says why.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use muster_api::k8s::Quantity;
use muster_api::muster::node_topology::{
    Confidence, CpuManager, KubeletSettings, MAX_NUMA_NODES, MemoryManager, ReservedMemory,
    TopologyManager, TopologyPolicy, TopologyScope,
};
use serde_json::Value;

use crate::cpulist::CpuList;
use crate::podresources::Allocatable;

/// Longest configuration that is read.
const MAX_FILE: u64 = 1 << 20;
/// Most drop-in files that are read.
const MAX_DROP_INS: usize = 64;
/// Most options of a policy that are kept, and longest of them.
const MAX_OPTIONS: usize = 16;
const MAX_OPTION: usize = 64;
/// Most feature gates that are kept, and longest of them.
const MAX_GATES: usize = 128;
const MAX_GATE: usize = 128;
/// Most entries of reserved memory that are kept.
const MAX_RESERVED: usize = MAX_NUMA_NODES * 8;

/// Where the kubelet's configuration may be found on disk.
#[derive(Clone, Debug)]
pub struct Files {
    /// The file, `config.yaml` in the kubelet's directory unless told otherwise.
    pub file: PathBuf,
    /// The directory of `*.conf` files that are laid over it in the order of their names.
    pub drop_ins: Option<PathBuf>,
}

/// What was found, before the kubelet's own answers are held against it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The kubelet's configuration object; null if none was found.
    config: Value,
    confidence: Confidence,
    /// What stood in the way of something better.
    pub notes: Vec<String>,
}

impl Found {
    /// From the body of `/configz`.
    pub fn configz(body: &str) -> Result<Self, String> {
        let mut body: Value =
            serde_json::from_str(body).map_err(|error| format!("configz is no JSON: {error}"))?;
        match body.get_mut("kubeletconfig").map(Value::take) {
            Some(config @ Value::Object(_)) => {
                Ok(Self { config, confidence: Confidence::Configz, notes: Vec::new() })
            }
            _ => Err("configz has no kubeletconfig".to_owned()),
        }
    }

    /// From the files. `notes` tell why there is nothing better.
    pub fn files(files: &Files, mut notes: Vec<String>) -> Self {
        match read_files(files) {
            Ok(config) => Self { config, confidence: Confidence::File, notes },
            Err(note) => {
                notes.push(note);
                Self { config: Value::Null, confidence: Confidence::Inferred, notes }
            }
        }
    }

    /// Whether the settings were read, not inferred.
    pub fn is_known(&self) -> bool {
        self.confidence != Confidence::Inferred
    }

    /// The settings. What the kubelet does counts for more than what its file says: a flag may
    /// have overridden it, and then the second part says so.
    pub fn settings(
        &self,
        version: &str,
        evidence: Option<&Allocatable>,
    ) -> (KubeletSettings, Vec<String>) {
        let mut notes = self.notes.clone();
        let c = &self.config;
        let mut settings = KubeletSettings {
            confidence: self.confidence,
            version: plain(version, 64),
            topology_manager: topology_manager(c, &mut notes),
            cpu_manager: cpu_manager(c, &mut notes),
            memory_manager: memory_manager(c, &mut notes),
            feature_gates: feature_gates(c),
        };
        if let Some(evidence) = evidence {
            let cpu = &mut settings.cpu_manager.is_static;
            correct(cpu, !evidence.cpus.is_empty(), "cpuManagerPolicy", self, &mut notes);
            let memory = &mut settings.memory_manager.is_static;
            correct(memory, !evidence.memory.is_empty(), "memoryManagerPolicy", self, &mut notes);
        }
        (settings, notes)
    }
}

/// Puts what is seen in place of what was read.
fn correct(value: &mut bool, seen: bool, field: &str, found: &Found, notes: &mut Vec<String>) {
    if *value != seen && found.is_known() {
        let word = if seen { "static" } else { "none" };
        notes.push(format!(
            "{field} is not {word} in the configuration, but the kubelet acts as if it were: \
             does a flag override it?"
        ));
    }
    *value = seen;
}

fn read_files(files: &Files) -> Result<Value, String> {
    let mut config = read_yaml(&files.file)?;
    let Some(dir) = &files.drop_ins else { return Ok(config) };
    let fail = |error: io::Error| format!("{}: {error}", dir.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_some_and(|ending| ending == "conf") {
            names.push(path);
        }
    }
    names.sort_unstable();
    if names.len() > MAX_DROP_INS {
        return Err(format!("{}: more than {MAX_DROP_INS} files", dir.display()));
    }
    for path in names {
        lay_over(&mut config, read_yaml(&path)?);
    }
    Ok(config)
}

fn read_yaml(path: &Path) -> Result<Value, String> {
    let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = fs::File::open(path).map_err(|e| fail(&e))?;
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|e| fail(&e))?;
    if text.len() as u64 > MAX_FILE {
        return Err(fail(&format!("longer than {MAX_FILE} bytes")));
    }
    parse_yaml(&text).map_err(|e| fail(&e))
}

/// A YAML (or JSON) text that is a mapping.
fn parse_yaml(text: &str) -> Result<Value, String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err("not a configuration object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// As the kubelet merges drop-ins: mappings by key, anything else as a whole.
fn lay_over(below: &mut Value, above: Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above,
    }
}

fn topology_manager(config: &Value, notes: &mut Vec<String>) -> TopologyManager {
    let options = strings(&config["topologyManagerPolicyOptions"]);
    let policy = match text(&config["topologyManagerPolicy"]) {
        None | Some("none") => TopologyPolicy::None,
        Some("best-effort") => TopologyPolicy::BestEffort,
        Some("restricted") => TopologyPolicy::Restricted,
        Some("single-numa-node") => TopologyPolicy::SingleNumaNode,
        Some(other) => unknown("topologyManagerPolicy", other, notes),
    };
    let scope = match text(&config["topologyManagerScope"]) {
        None | Some("container") => TopologyScope::Container,
        Some("pod") => TopologyScope::Pod,
        Some(other) => unknown("topologyManagerScope", other, notes),
    };
    let max = options.get("max-allowable-numa-nodes").and_then(|max| max.parse().ok());
    TopologyManager {
        policy,
        scope,
        prefer_closest_numa_nodes: is_on(&options, "prefer-closest-numa-nodes"),
        max_allowable_numa_nodes: max.filter(|&max| max <= 1024),
    }
}

fn cpu_manager(config: &Value, notes: &mut Vec<String>) -> CpuManager {
    let options = strings(&config["cpuManagerPolicyOptions"]);
    let named = text(&config["reservedSystemCPUs"]).filter(|cpus| !cpus.is_empty());
    let reserved_cpus = named.and_then(|cpus| match cpus.parse::<CpuList>() {
        Ok(cpus) => Some(cpus.to_string()),
        Err(error) => {
            notes.push(format!("reservedSystemCPUs: {error}"));
            None
        }
    });
    let milli = |field: &str| quantity(&config[field]["cpu"]).map_or(0, Quantity::milli_value);
    let milli = milli("kubeReserved").saturating_add(milli("systemReserved"));
    let milli = u32::try_from(milli).ok().filter(|&milli| milli > 0 && milli <= 100_000_000);
    let options = options.iter().filter(|(name, value)| {
        *value == "true" && name.len() <= MAX_OPTION && name.bytes().all(is_option_byte)
    });
    CpuManager {
        is_static: text(&config["cpuManagerPolicy"]) == Some("static"),
        options: options.map(|(name, _)| name.clone()).take(MAX_OPTIONS).collect(),
        reserved_milli_cpus: if reserved_cpus.is_none() { milli } else { None },
        reserved_cpus,
    }
}

fn memory_manager(config: &Value, notes: &mut Vec<String>) -> MemoryManager {
    let mut reserved = Vec::new();
    let entries = config["reservedMemory"].as_array().map(Vec::as_slice).unwrap_or_default();
    for entry in entries {
        let numa = entry["numaNode"].as_u64().unwrap_or(0);
        let Ok(numa) = u32::try_from(numa) else { continue };
        for (resource, amount) in entry["limits"].as_object().into_iter().flatten() {
            let bytes = quantity(amount).map(Quantity::value).and_then(|v| u64::try_from(v).ok());
            match bytes {
                Some(bytes) if reserved.len() < MAX_RESERVED => {
                    reserved.push(ReservedMemory { numa, resource: plain(resource, 63), bytes });
                }
                Some(_) => {}
                None => notes.push(format!("reservedMemory of NUMA node {numa}: {amount}")),
            }
        }
    }
    reserved.sort_unstable_by(|a, b| (a.numa, &a.resource).cmp(&(b.numa, &b.resource)));
    MemoryManager { is_static: text(&config["memoryManagerPolicy"]) == Some("Static"), reserved }
}

fn feature_gates(config: &Value) -> Vec<String> {
    let gates = config["featureGates"].as_object().into_iter().flatten();
    let gates = gates.filter_map(|(name, on)| Some(format!("{name}={}", on.as_bool()?)));
    let mut gates: Vec<_> = gates
        .filter(|gate| gate.len() <= MAX_GATE)
        .filter(|gate| gate.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'='))
        .take(MAX_GATES)
        .collect();
    gates.sort_unstable();
    gates
}

/// The default, and a note.
fn unknown<T: Default>(field: &str, value: &str, notes: &mut Vec<String>) -> T {
    notes.push(format!("{field}: {value:?} is not known here; taken for the default"));
    T::default()
}

fn is_option_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'
}

fn text(value: &Value) -> Option<&str> {
    value.as_str()
}

/// A mapping of texts; numbers and truth values, which YAML may take them for, among them.
fn strings(value: &Value) -> BTreeMap<String, String> {
    let entries = value.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), scalar(value))).collect()
}

fn scalar(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_on(options: &BTreeMap<String, String>, name: &str) -> bool {
    options.get(name).is_some_and(|value| value == "true")
}

fn quantity(value: &Value) -> Option<Quantity> {
    if value.is_null() {
        return None;
    }
    Quantity::parse(&scalar(value)).ok()
}

/// Printable ASCII, cut.
fn plain(text: &str, max: usize) -> String {
    text.chars().filter(|c| (' '..='~').contains(c)).take(max).collect()
}

#[cfg(test)]
mod tests;
