//! A reading as a text for people, as JSON or YAML for programs, and as a picture.
//!
//! Owns the formats. Must never read anything: what is not in the [`Reading`] is not printed.

mod svg;
mod table;

use clap::ValueEnum;
use muster_api::muster::node_topology::{GpuState, Hardware};
use serde::Serialize;

use crate::reading::Reading;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables, with a matrix like that of `nvidia-smi topo -m`
    #[default]
    Table,
    Json,
    Yaml,
    /// A picture of the node
    Svg,
}

/// Why nothing could be printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("as YAML: {0}")]
    Yaml(String),
}

/// The parts of a `NodeTopology` that the hardware gives, with conditions that have no times.
#[derive(Serialize)]
struct Printed<'a> {
    hardware: &'a Hardware,
    status: Status<'a>,
}

#[derive(Serialize)]
struct Status<'a> {
    conditions: Vec<Condition<'a>>,
    gpus: &'a [GpuState],
}

#[derive(Serialize)]
struct Condition<'a> {
    r#type: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl<'a> Printed<'a> {
    fn new(reading: &'a Reading) -> Self {
        let condition = |finding: &'a crate::reading::Finding| Condition {
            r#type: finding.kind,
            status: finding.status(),
            reason: finding.reason,
            message: &finding.message,
        };
        let conditions = reading.findings.iter().map(condition).collect();
        Self { hardware: &reading.hardware, status: Status { conditions, gpus: &reading.gpus } }
    }
}

/// The whole output, with its final newline.
pub fn render(reading: &Reading, format: Format) -> Result<String, Error> {
    let mut text = match format {
        Format::Table => table::render(reading),
        Format::Svg => svg::render(&reading.hardware, &reading.gpus),
        Format::Json => serde_json::to_string_pretty(&Printed::new(reading))?,
        Format::Yaml => serde_saphyr::to_string(&Printed::new(reading))
            .map_err(|error| Error::Yaml(error.to_string()))?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// `80 GiB`, `1.5 TiB`: a size as people say it.
fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value == 0 {
        return table::UNKNOWN.to_owned();
    }
    let (mut scaled, mut unit) = (value as f64 / 1024.0, 0);
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_the_unit_that_fits() {
        let cases = [
            (0, "<unknown>"),
            (512, "0.5 KiB"),
            (2 << 20, "2.0 MiB"),
            (85_520_809_984, "79.6 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ];
        for (value, expected) in cases {
            assert_eq!(bytes(value), expected);
        }
    }
}
