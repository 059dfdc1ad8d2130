//! The machine as a text for people and as JSON for programs.
//!
//! Owns the formats. Must never read anything: what is not in the [`Machine`] is not printed.

use clap::ValueEnum;

use crate::Machine;
use crate::cpulist::CpuList;
use crate::numa::{Hugepages, NumaNode};
use crate::nvml::{Gpu, Nvml};
use crate::pci::PciDevice;

const UNKNOWN: &str = "<unknown>";
const NONE: &str = "<none>";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Table,
    Json,
}

/// The whole output, with its final newline.
pub fn render(machine: &Machine, format: Format) -> serde_json::Result<String> {
    match format {
        Format::Table => Ok(table(machine)),
        Format::Json => serde_json::to_string_pretty(machine).map(|json| json + "\n"),
    }
}

fn table(machine: &Machine) -> String {
    let mut sections = vec![numa_nodes(&machine.numa_nodes)];
    if machine.numa_nodes.iter().any(|node| !node.distances.is_empty()) {
        sections.push(distances(&machine.numa_nodes));
    }
    sections.push(pci_devices(&machine.pci_devices));
    sections.push(nvml(machine));
    if !machine.notes.is_empty() {
        sections.push(format!("Notes:\n- {}\n", machine.notes.join("\n- ")));
    }
    sections.join("\n")
}

fn numa_nodes(nodes: &[NumaNode]) -> String {
    let row = |node: &NumaNode| {
        let pages: Vec<_> = node.hugepages.iter().map(hugepages).collect();
        vec![
            node.id.to_string(),
            node.cpus.as_ref().map_or_else(|| UNKNOWN.to_owned(), cpus),
            bytes(node.memory_bytes),
            bytes(node.free_memory_bytes),
            list(&pages),
        ]
    };
    let head = ["NUMA", "CPUS", "MEMORY", "FREE", "HUGEPAGES"];
    aligned(&head.map(str::to_owned), nodes.iter().map(row))
}

fn cpus(list: &CpuList) -> String {
    match list.count() {
        0 => format!("{NONE} (memory only)"),
        count => format!("{list} ({count})"),
    }
}

/// `512 x 2.0 MiB (500 free)`.
fn hugepages(pages: &Hugepages) -> String {
    let size = bytes(Some(pages.page_bytes));
    match pages.total {
        0 => format!("0 x {size}"),
        total => format!("{total} x {size} ({} free)", pages.free),
    }
}

fn distances(nodes: &[NumaNode]) -> String {
    let row = |from: &NumaNode| {
        let to = |to: &NumaNode| known(from.distances.get(&to.id));
        std::iter::once(from.id.to_string()).chain(nodes.iter().map(to)).collect()
    };
    let ids = nodes.iter().map(|node| node.id.to_string());
    let head: Vec<_> = std::iter::once("DISTANCE".to_owned()).chain(ids).collect();
    aligned(&head, nodes.iter().map(row))
}

fn pci_devices(devices: &[PciDevice]) -> String {
    if devices.is_empty() {
        return "No GPU, accelerator or network device on the PCI bus.\n".to_owned();
    }
    let row = |device: &PciDevice| {
        vec![
            device.address.clone(),
            device.kind.to_string(),
            known(device.numa_node.as_ref()),
            format!("{:04x}:{:04x}", device.vendor, device.device),
            list(&device.names),
            device.path.join("/"),
        ]
    };
    let head = ["PCI", "KIND", "NUMA", "ID", "NAMES", "PATH"];
    aligned(&head.map(str::to_owned), devices.iter().map(row))
}

fn nvml(machine: &Machine) -> String {
    let (driver, gpus, problems) = match &machine.nvml {
        Nvml::Unavailable { reason } => return format!("NVML: {reason}\n"),
        Nvml::Available { driver_version, gpus, problems } => (driver_version, gpus, problems),
    };
    let mut text = format!("NVML: {} GPU(s), driver {}\n", gpus.len(), known(driver.as_ref()));
    for problem in problems {
        text += &format!("NVML: {problem}\n");
    }
    if gpus.is_empty() {
        return text;
    }
    let row = |gpu: &Gpu| {
        let numa = gpu.pci_bus_id.as_deref().and_then(|address| machine.numa_of(address));
        vec![
            gpu.index.to_string(),
            known(gpu.uuid.as_ref()),
            known(gpu.name.as_ref()),
            bytes(gpu.memory_bytes),
            known(gpu.pci_bus_id.as_ref()),
            known(numa.as_ref()),
        ]
    };
    let head = ["GPU", "UUID", "NAME", "MEMORY", "PCI", "NUMA"];
    text + &aligned(&head.map(str::to_owned), gpus.iter().map(row))
}

/// Columns as wide as their widest cell, three spaces apart, as kubectl prints them.
fn aligned(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = std::iter::once(head.to_vec()).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + 3
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<String>().trim_end())
    };
    rows.iter().map(line).collect()
}

fn known<T: ToString>(value: Option<&T>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), ToString::to_string)
}

fn list(items: &[String]) -> String {
    if items.is_empty() { NONE.to_owned() } else { items.join(", ") }
}

fn bytes(value: Option<u64>) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let Some(value) = value else {
        return UNKNOWN.to_owned();
    };
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
            (None, "<unknown>"),
            (Some(0), "0.0 KiB"),
            (Some(2 << 20), "2.0 MiB"),
            (Some(85_520_809_984), "79.6 GiB"),
            (Some(u64::MAX), "16384.0 PiB"),
        ];
        for (value, expected) in cases {
            assert_eq!(bytes(value), expected);
        }
    }
}
