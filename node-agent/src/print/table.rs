//! Tables, with a matrix like that of `nvidia-smi topo -m`.

use muster_api::muster::node_topology::{
    Gpu, GpuState, Hardware, Nic, NumaKind, NumaNode, PortState,
};

use super::bytes;
use crate::cpulist::CpuList;
use crate::reading::Reading;

pub(super) const UNKNOWN: &str = "<unknown>";
const NONE: &str = "<none>";

pub(super) fn render(reading: &Reading) -> String {
    let hardware = &reading.hardware;
    let mut sections = vec![numa_nodes(&hardware.numa)];
    if hardware.numa.len() > 1 {
        sections.push(distances(&hardware.numa));
    }
    let empty: CpuList = hardware.numa.iter().filter(|n| is_empty(n)).map(|n| n.id).collect();
    if !empty.is_empty() {
        sections.push(format!("NUMA nodes without CPUs and memory: {empty}\n"));
    }
    if hardware.gpus.is_empty() {
        sections.push("No GPU or accelerator on the PCI bus.\n".to_owned());
    } else {
        sections.push(gpus(&hardware.gpus, &reading.gpus));
        sections.push(matrix(hardware));
    }
    if hardware.gpus.iter().any(|gpu| gpu.mig.as_ref().is_some_and(|mig| mig.enabled)) {
        sections.push(mig(&hardware.gpus));
    }
    if !hardware.nics.is_empty() {
        sections.push(nics(&hardware.nics));
    }
    if let Some(domain) = &hardware.domain {
        let place = [
            ("chassis", domain.chassis.clone()),
            ("slot", text(domain.slot)),
            ("tray", text(domain.tray)),
            ("host", text(domain.host)),
        ];
        let place =
            place.iter().filter_map(|(name, value)| Some(format!(", {name} {}", value.as_ref()?)));
        sections.push(format!("NVLink domain: {}{}\n", domain.clique, place.collect::<String>()));
    }
    sections.push(conditions(reading));
    sections.join("\n")
}

fn text(number: Option<u32>) -> Option<String> {
    number.map(|n| n.to_string())
}

/// Set aside for parts of GPUs, for one: a tray of a GB200 NVL72 has 28 of these.
fn is_empty(node: &NumaNode) -> bool {
    node.kind == NumaKind::Empty
}

fn numa_nodes(nodes: &[NumaNode]) -> String {
    let row = |node: &NumaNode| {
        let pages = node.hugepages.iter().filter(|p| p.count > 0);
        let pages: Vec<_> =
            pages.map(|p| format!("{} x {}", p.count, bytes(p.page_bytes))).collect();
        let of_cpus = |text: String| if node.cpus.is_empty() { NONE.to_owned() } else { text };
        vec![
            node.id.to_string(),
            of_cpus(known(node.socket)),
            cpus(node),
            of_cpus(node.cores.first().map_or(1, |core| count(core)).to_string()),
            of_cpus(node.caches.len().max(1).to_string()),
            bytes(node.memory_bytes),
            list(&pages),
        ]
    };
    let head = ["NUMA", "SOCKET", "CPUS", "THREADS", "CACHES", "MEMORY", "HUGEPAGES"];
    aligned(&head.map(str::to_owned), nodes.iter().filter(|node| !is_empty(node)).map(row))
}

fn count(list: &str) -> u32 {
    list.parse::<CpuList>().map_or(0, |list| list.count())
}

fn cpus(node: &NumaNode) -> String {
    match node.kind {
        NumaKind::Cpu if node.cpus.is_empty() => UNKNOWN.to_owned(),
        NumaKind::Cpu => format!("{} ({})", node.cpus, count(&node.cpus)),
        NumaKind::Memory => format!("{NONE} (memory only)"),
        NumaKind::GpuMemory => format!("{NONE} (memory of a GPU)"),
        NumaKind::Empty => NONE.to_owned(),
    }
}

fn distances(nodes: &[NumaNode]) -> String {
    // Column i of a row is the i-th node, whatever its id.
    let shown: Vec<usize> = (0..nodes.len()).filter(|&i| !is_empty(&nodes[i])).collect();
    let row = |&from: &usize| {
        let to = |&i: &usize| known(nodes[from].distances.get(i).copied());
        std::iter::once(nodes[from].id.to_string()).chain(shown.iter().map(to)).collect()
    };
    let ids = shown.iter().map(|&i| nodes[i].id.to_string());
    let head: Vec<_> = std::iter::once("DISTANCE".to_owned()).chain(ids).collect();
    aligned(&head, shown.iter().map(row))
}

fn gpus(gpus: &[Gpu], states: &[GpuState]) -> String {
    let row = |(i, gpu): (usize, &Gpu)| {
        let state = states.get(i);
        let health = state.map_or_else(String::new, |s| match &s.reasons[..] {
            [] => s.health.to_string(),
            reasons => format!("{} ({})", s.health, reasons.join(", ")),
        });
        vec![
            format!("GPU{i}"),
            gpu.uuid.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
            gpu.model.clone().unwrap_or_else(|| gpu.pci_id.clone()),
            bytes(gpu.memory_bytes),
            gpu.pci.clone(),
            gpu.nvlinks.map_or_else(|| NONE.to_owned(), |l| format!("{}/{}", l.active, l.total)),
            health,
            state.map_or_else(String::new, |s| s.activity.to_string()),
        ]
    };
    let head = ["GPU", "UUID", "MODEL", "MEMORY", "PCI", "NVLINKS", "HEALTH", "ACTIVITY"];
    aligned(&head.map(str::to_owned), gpus.iter().enumerate().map(row))
}

/// Rows of GPUs, columns of GPUs and NICs, as `nvidia-smi topo -m` has them.
fn matrix(hardware: &Hardware) -> String {
    let names = (0..hardware.gpus.len()).map(|i| format!("GPU{i}"));
    let nics = (0..hardware.nics.len()).map(|i| format!("NIC{i}"));
    let tail = ["CPU AFFINITY", "NUMA AFFINITY", "GPU NUMA ID"].map(str::to_owned);
    let head: Vec<_> =
        std::iter::once(String::new()).chain(names).chain(nics).chain(tail).collect();
    let cell = |a: usize, b: usize| {
        let (low, high) = (a.min(b) as u32, a.max(b) as u32);
        match hardware.links.iter().find(|link| (link.a, link.b) == (low, high)) {
            _ if a == b => "X".to_owned(),
            Some(link) if link.nvlinks > 0 => format!("NV{}", link.nvlinks),
            Some(link) => link.path.to_string(),
            None => UNKNOWN.to_owned(),
        }
    };
    let row = |(i, gpu): (usize, &Gpu)| {
        let gpus = (0..hardware.gpus.len()).map(|j| cell(i, j));
        let nics = hardware.nics.iter().map(|nic| {
            nic.gpu_paths.get(i).map_or_else(|| UNKNOWN.to_owned(), ToString::to_string)
        });
        let cpus = if gpu.cpus.is_empty() { "N/A".to_owned() } else { gpu.cpus.clone() };
        let numa = |id: Option<u32>| text(id).unwrap_or_else(|| "N/A".to_owned());
        let tail = [cpus, numa(gpu.numa), numa(gpu.memory_numa)];
        std::iter::once(format!("GPU{i}")).chain(gpus).chain(nics).chain(tail).collect()
    };
    aligned(&head, hardware.gpus.iter().enumerate().map(row))
}

fn mig(gpus: &[Gpu]) -> String {
    let mut rows = Vec::new();
    for (i, gpu) in gpus.iter().enumerate() {
        let Some(mig) = gpu.mig.as_ref().filter(|mig| mig.enabled) else { continue };
        for device in &mig.devices {
            let place = device.placement.map(|p| format!("{}+{}", p.start, p.size));
            rows.push(vec![
                format!("GPU{i}"),
                device.profile.clone(),
                device.uuid.clone(),
                format!("{}/{}", device.gpu_instance, device.compute_instance),
                place.unwrap_or_else(|| UNKNOWN.to_owned()),
                bytes(device.memory_bytes),
            ]);
        }
        if mig.devices.is_empty() {
            rows.push(vec![format!("GPU{i}"), NONE.to_owned()]);
        }
    }
    let head = ["MIG", "PROFILE", "UUID", "GI/CI", "SLICES", "MEMORY"];
    aligned(&head.map(str::to_owned), rows.into_iter())
}

fn nics(nics: &[Nic]) -> String {
    let row = |(i, nic): (usize, &Nic)| {
        let rate = match (nic.rdma, nic.gigabits_per_second) {
            (false, _) => NONE.to_owned(),
            (true, 0) => UNKNOWN.to_owned(),
            (true, rate) => format!("{rate} Gb/s"),
        };
        let state = if nic.state == PortState::Unknown {
            UNKNOWN.to_owned()
        } else {
            nic.state.to_string()
        };
        vec![
            format!("NIC{i}"),
            nic.name.clone(),
            nic.pci.clone(),
            known(nic.numa),
            nic.link_layer.clone().unwrap_or_else(|| NONE.to_owned()),
            rate,
            state,
            list(&nic.interfaces),
        ]
    };
    let head = ["NIC", "NAME", "PCI", "NUMA", "RDMA", "RATE", "PORT", "INTERFACES"];
    aligned(&head.map(str::to_owned), nics.iter().enumerate().map(row))
}

fn conditions(reading: &Reading) -> String {
    let mut text = String::new();
    for finding in &reading.findings {
        let message = finding.message.replace('\n', "\n  ");
        text += &format!("{}={} ({}): {message}\n", finding.kind, finding.status(), finding.reason);
    }
    text
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

fn known(value: Option<u32>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

fn list(items: &[String]) -> String {
    if items.is_empty() { NONE.to_owned() } else { items.join(", ") }
}
