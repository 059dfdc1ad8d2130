//! Metrics of the agent and of the GPUs, and what health checks ask.
//!
//! Owns: names and labels (docs/node-agent.md lists them). Labels are bounded: GPUs by the hardware's
//! limit, resources by the devices that are listed. Must never decide anything.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use muster_api::muster::NodeTopology;
use muster_api::muster::node_topology::GpuHealth;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Gauge, GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use crate::reading::{GpuGauges, Reading};

/// The main loop shows itself at least this often, or it is stuck.
pub const STUCK: Duration = Duration::from_secs(60);

/// What a gauge shows of a GPU.
type Value = fn(&GpuGauges) -> Option<f64>;

/// All metrics.
pub struct Metrics {
    registry: Registry,
    began: Instant,
    /// Milliseconds since `began` at which the main loop was last seen.
    alive: AtomicU64,
    ready: AtomicBool,
    writes: IntCounterVec,
    readings: IntCounterVec,
    predictions: IntCounterVec,
    last_write: Gauge,
    conditions: IntGaugeVec,
    devices: IntGaugeVec,
    health: IntGaugeVec,
    gpu: Vec<(GaugeVec, Value)>,
    /// Which GPUs are shown, how each is, and which of their gauges have a value.
    shown: Mutex<Vec<Shown>>,
}

/// What labels a GPU has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    name: String,
    pci: String,
    uuid: String,
    health: &'static str,
    /// A bit for each gauge that has a value.
    values: u32,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// Registers and returns; a name that is taken would be a mistake of this file, which its test shows.
fn add<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect("a valid metric");
    let _ = registry.register(Box::new(collector.clone()));
    collector
}

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        let _ = registry.register(Box::new(ProcessCollector::for_self()));
        let counter = |name: &str, help: &str, labels: &[&str]| {
            let name = format!("muster_node_agent_{name}");
            add(&registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            let name = format!("muster_node_{name}");
            add(&registry, IntGaugeVec::new(Opts::new(name, help), labels))
        };
        let last = "muster_node_agent_last_write_timestamp_seconds";
        let help = "When the NodeTopology was last written.";
        Self {
            began: Instant::now(),
            alive: AtomicU64::new(0),
            ready: AtomicBool::new(false),
            writes: counter(
                "writes_total",
                "Objects written, by kind and result.",
                &["kind", "result"],
            ),
            readings: counter(
                "readings_total",
                "Readings, by source and result.",
                &["source", "result"],
            ),
            predictions: counter(
                "predictions_total",
                "Pods with predicted devices, by what became of the prediction.",
                &["result"],
            ),
            last_write: add(&registry, Gauge::with_opts(Opts::new(last, help))),
            conditions: gauges(
                "condition",
                "Conditions of the NodeTopology: 1 true, 0 false, -1 not known.",
                &["type"],
            ),
            devices: gauges("devices", "Devices of the node, by state.", &["resource", "state"]),
            health: gauges(
                "gpu_health",
                "Health of a GPU: 1 for the state that it is in.",
                &["gpu", "pci", "uuid", "health"],
            ),
            gpu: gpu_gauges(&registry),
            shown: Mutex::default(),
            registry,
        }
    }

    /// All metrics as text.
    pub fn encode(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }

    /// The main loop has come round.
    pub fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.alive.store(now, Ordering::Relaxed);
    }

    /// Whether the main loop has come round lately.
    pub fn is_alive(&self) -> bool {
        let seen = Duration::from_millis(self.alive.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(seen) < STUCK
    }

    /// Whether the object was written since the start.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// An object was written, or not.
    pub fn wrote(&self, kind: &str, well: bool) {
        self.writes.with_label_values(&[kind, result(well)]).inc();
        if well && kind == NodeTopology::KIND {
            self.ready.store(true, Ordering::Relaxed);
            let now = jiff::Timestamp::now().as_millisecond();
            self.last_write.set(now as f64 / 1000.0);
        }
    }

    /// Something was read, or not.
    pub fn read(&self, source: &str, well: bool) {
        self.readings.with_label_values(&[source, result(well)]).inc();
    }

    /// Counts of judged predictions.
    pub fn predictions(&self, held: u64, missed: u64, invalid: u64) {
        for (word, count) in [("held", held), ("missed", missed), ("invalid", invalid)] {
            let counter = self.predictions.with_label_values(&[word]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// What the hardware says now. GPUs that are gone are gone from here. Most of the time only values have changed.
    pub fn hardware(&self, reading: &Reading) {
        let all: Vec<Shown> = reading
            .gauges
            .iter()
            .enumerate()
            .map(|(i, gpu)| self.labels(reading, i, gpu))
            .collect();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shown != all {
            self.health.reset();
            for (gauge, _) in &self.gpu {
                gauge.reset();
            }
            for gpu in &all {
                let labels = [gpu.name.as_str(), &gpu.pci, &gpu.uuid, gpu.health];
                self.health.with_label_values(&labels).set(1);
            }
            *shown = all;
        }
        for (labels, gpu) in shown.iter().zip(&reading.gauges) {
            for (gauge, value) in &self.gpu {
                if let Some(value) = value(gpu) {
                    let labels = [labels.name.as_str(), &labels.pci, &labels.uuid];
                    gauge.with_label_values(&labels).set(value);
                }
            }
        }
    }

    fn labels(&self, reading: &Reading, i: usize, gpu: &GpuGauges) -> Shown {
        let has =
            |(bit, (_, value)): (usize, &(GaugeVec, Value))| u32::from(value(gpu).is_some()) << bit;
        Shown {
            name: gpu.index.map_or(i.to_string(), |index| index.to_string()),
            pci: gpu.pci.clone(),
            uuid: gpu.uuid.clone().unwrap_or_default(),
            health: reading.gpus.get(i).map_or("unknown", |state| health(state.health)),
            values: self.gpu.iter().enumerate().map(has).sum(),
        }
    }

    /// What the object says now.
    pub fn object(&self, object: &NodeTopology) {
        for condition in &object.status.conditions {
            let value = match condition.status.as_str() {
                "True" => 1,
                "False" => 0,
                _ => -1,
            };
            self.conditions.with_label_values(&[&condition.kind]).set(value);
        }
        self.devices.reset();
        for device in &object.status.devices {
            let state = format!("{:?}", device.state);
            self.devices.with_label_values(&[&device.resource, &state]).inc();
        }
    }
}

fn result(well: bool) -> &'static str {
    if well { "success" } else { "error" }
}

fn health(health: GpuHealth) -> &'static str {
    match health {
        GpuHealth::Unknown => "unknown",
        GpuHealth::Healthy => "healthy",
        GpuHealth::Degraded => "degraded",
        GpuHealth::Unhealthy => "unhealthy",
        GpuHealth::Lost => "lost",
    }
}

fn gpu_gauges(registry: &Registry) -> Vec<(GaugeVec, Value)> {
    let gauges: [(&str, &str, Value); 8] = [
        ("utilization_ratio", "Share of time in which a kernel ran.", |g| {
            g.utilisation_percent.map(|percent| f64::from(percent) / 100.0)
        }),
        ("memory_used_bytes", "Memory in use.", |g| g.memory_used_bytes.map(|n| n as f64)),
        ("power_watts", "Power that it draws.", |g| {
            g.power_milliwatts.map(|milli| f64::from(milli) / 1000.0)
        }),
        ("temperature_celsius", "Temperature.", |g| g.temperature_celsius.map(f64::from)),
        ("nvlinks_active", "NVLinks that are up.", |g| g.nvlinks_active.map(f64::from)),
        ("nvlinks", "NVLinks that it has.", |g| g.nvlinks_total.map(f64::from)),
        ("ecc_uncorrected_errors", "Uncorrected memory errors since the driver was loaded.", |g| {
            g.ecc_uncorrected.map(|n| n as f64)
        }),
        ("xids", "XID events since the agent was started.", |g| Some(g.xids as f64)),
    ];
    let make = |(name, help, value)| {
        let options = Opts::new(format!("muster_node_gpu_{name}"), help);
        (add(registry, GaugeVec::new(options, &["gpu", "pci", "uuid"])), value)
    };
    gauges.map(make).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use muster_api::muster::node_topology::GpuState;

    use super::*;

    fn lines(metrics: &Metrics, prefix: &str) -> Vec<String> {
        let text = metrics.encode();
        text.lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// `docs/node-metrics.md` is made from the code: this test rewrites it and fails if it was out of date.
    #[test]
    fn the_book_lists_every_metric_of_the_agent() {
        let Metrics {
            registry: _,
            began: _,
            alive: _,
            ready: _,
            writes,
            readings,
            predictions,
            last_write,
            conditions,
            devices,
            health,
            gpu,
            shown: _,
        } = Metrics::new();
        let mut all = vec![writes.desc(), readings.desc(), predictions.desc(), last_write.desc()];
        all.extend([conditions.desc(), devices.desc(), health.desc()]);
        all.extend(gpu.iter().map(|(gauge, _)| gauge.desc()));
        let mut rows: Vec<String> = all
            .into_iter()
            .flatten()
            .map(|desc| {
                let kind = if desc.fq_name.ends_with("_total") { "counter" } else { "gauge" };
                let labels = desc.variable_labels.join(", ");
                format!("| `{}` | {kind} | {labels} | {} |\n", desc.fq_name, desc.help)
            })
            .collect();
        rows.sort();
        let page = format!(
            "# Metrics of the node agent\n\n`/metrics` of `muster-node-agent run` in Prometheus' text form, beside the usual \
             `process_*`. This page is generated from the\ncode.\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n{}",
            rows.concat()
        );
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/node-metrics.md");
        if std::fs::read_to_string(path).unwrap_or_default() != page {
            std::fs::write(path, page).unwrap();
            panic!("docs/node-metrics.md was out of date and has been rewritten: commit it");
        }
    }

    #[test]
    fn a_gpu_that_is_gone_is_gone_from_the_metrics() {
        let metrics = Metrics::new();
        let gauges = GpuGauges {
            uuid: Some("GPU-1".to_owned()),
            index: Some(0),
            pci: "0000:07:00.0".to_owned(),
            power_milliwatts: Some(71_500),
            ..GpuGauges::default()
        };
        let state = GpuState {
            uuid: Some("GPU-1".to_owned()),
            pci: "0000:07:00.0".to_owned(),
            health: GpuHealth::Healthy,
            ..GpuState::default()
        };
        let reading = Reading { gpus: vec![state], gauges: vec![gauges], ..Reading::default() };
        metrics.hardware(&reading);
        assert_eq!(
            lines(&metrics, "muster_node_gpu_power"),
            [r#"muster_node_gpu_power_watts{gpu="0",pci="0000:07:00.0",uuid="GPU-1"} 71.5"#]
        );
        assert_eq!(
            lines(&metrics, "muster_node_gpu_health"),
            [
                r#"muster_node_gpu_health{gpu="0",health="healthy",pci="0000:07:00.0",uuid="GPU-1"} 1"#
            ]
        );
        assert_eq!(lines(&metrics, "muster_node_gpu_utilization"), [""; 0], "not known, not there");
        metrics.hardware(&Reading::default());
        assert_eq!(lines(&metrics, "muster_node_gpu_"), [""; 0]);
    }

    #[test]
    fn ready_means_written_and_alive_means_seen() {
        let metrics = Metrics::new();
        assert!(metrics.is_alive() && !metrics.is_ready());
        metrics.wrote("Lease", true);
        metrics.wrote(NodeTopology::KIND, false);
        assert!(!metrics.is_ready());
        metrics.wrote(NodeTopology::KIND, true);
        assert!(metrics.is_ready());
        metrics.predictions(2, 1, 0);
        metrics.predictions(3, 1, 0);
        let line = r#"muster_node_agent_predictions_total{result="held"} 3"#;
        assert!(lines(&metrics, "muster_node_agent_predictions").contains(&line.to_owned()));
    }
}
