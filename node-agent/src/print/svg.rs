//! A picture of the node: NUMA nodes as boxes, in them PCI switches with their NICs and
//! GPUs, NVLinks below.
//!
//! Owns the layout: every box is as wide as what is in it, so that nothing is covered.

use std::collections::BTreeMap;
use std::fmt::Write;

use muster_api::muster::node_topology::{
    Gpu, GpuHealth, GpuState, Hardware, LinkVia, Nic, NumaKind, NumaNode, PortState,
};

use super::bytes;

const TILE: i64 = 108;
const TILE_HEIGHT: i64 = 46;
const GAP: i64 = 10;
const TOP: i64 = 44;
/// Below the top of a NUMA node: its two lines of text.
const NUMA_HEAD: i64 = 52;
/// Below the top of a switch: its line of text.
const SWITCH_HEAD: i64 = 22;
/// Width of a NUMA node with nothing in it.
const EMPTY: i64 = 214;
/// What a direct link bends down per tile of distance.
const BEND: i64 = 34;

const STYLE: &str = "text{font:12px sans-serif;fill:#1b1f24}.h{font-weight:bold}.s{font-size:10px;fill:#57606a}\
.numa{fill:#f6f8fa;stroke:#8c959f}.mem{fill:#fff8e5;stroke:#bf8700}.sw{fill:#fff;stroke:#afb8c1;stroke-dasharray:4 3}\
.gpu{fill:#dafbe1;stroke:#1a7f37}.warn{fill:#fff1c2;stroke:#9a6700}.bad{fill:#ffdcd7;stroke:#cf222e}.unk{fill:#eaeef2;stroke:#6e7781}\
.nic{fill:#ddf4ff;stroke:#0969da}.down{fill:#eaeef2;stroke:#6e7781}.nvs{fill:#e7dcfd;stroke:#8250df}\
.nv{stroke:#8250df;fill:none}.l{font-size:10px;stroke:#fff;stroke-width:3px;paint-order:stroke}";

/// Devices below one switch, or beside each other on one root complex.
#[derive(Default)]
struct Group {
    title: String,
    is_switch: bool,
    gpus: Vec<usize>,
    nics: Vec<usize>,
}

impl Group {
    fn width(&self) -> i64 {
        let tiles = self.gpus.len().max(self.nics.len()) as i64;
        tiles * (TILE + GAP) + GAP
    }
}

/// A NUMA node with its groups; `None`: devices whose NUMA node is not known.
struct Block<'a> {
    node: Option<&'a NumaNode>,
    groups: Vec<Group>,
}

impl Block<'_> {
    fn width(&self) -> i64 {
        let groups: i64 = self.groups.iter().map(|g| g.width() + GAP).sum();
        (groups + GAP).max(EMPTY)
    }
}

/// The picture.
pub(super) fn render(hardware: &Hardware, states: &[GpuState]) -> String {
    let blocks = blocks(hardware);
    let width: i64 = blocks.iter().map(|b| b.width() + GAP).sum::<i64>() + GAP;
    let inner = SWITCH_HEAD + 2 * (TILE_HEIGHT + GAP);
    let height = NUMA_HEAD + inner + GAP;
    let mut body = String::new();
    let mut places: BTreeMap<usize, i64> = BTreeMap::new();
    let mut x = GAP;
    for block in &blocks {
        block_head(&mut body, hardware, block, x, height);
        let mut left = x + GAP;
        for group in &block.groups {
            let top = TOP + NUMA_HEAD;
            if group.is_switch {
                rect(&mut body, "sw", left, top, group.width(), inner);
            }
            text(&mut body, "s", left + 6, top + 15, &group.title);
            for (i, &nic) in group.nics.iter().enumerate() {
                let at = left + GAP + i as i64 * (TILE + GAP);
                nic_tile(&mut body, &hardware.nics[nic], nic, at, top + SWITCH_HEAD);
            }
            for (i, &gpu) in group.gpus.iter().enumerate() {
                let at = left + GAP + i as i64 * (TILE + GAP);
                let y = top + SWITCH_HEAD + TILE_HEIGHT + GAP;
                gpu_tile(&mut body, &hardware.gpus[gpu], states.get(gpu), gpu, at, y);
                places.insert(gpu, at + TILE / 2);
            }
            left += group.width() + GAP;
        }
        x += block.width() + GAP;
    }
    // Tiles of GPUs end where the last row of a group does.
    let bottom = TOP + NUMA_HEAD + inner - GAP;
    let links = links(&mut body, hardware, &places, bottom, TOP + height);
    let total = TOP + height + links + 30;
    let width = width.max(420);
    let title = title(hardware);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {total}\" width=\"{width}\" \
         height=\"{total}\">\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    text(&mut svg, "h", GAP, 26, &title);
    svg + &body + "</svg>\n"
}

fn title(hardware: &Hardware) -> String {
    let model = hardware.gpus.iter().find_map(|gpu| gpu.model.as_deref());
    let mut title = match (hardware.gpus.len(), model) {
        (0, _) => "no GPU".to_owned(),
        (n, Some(model)) => format!("{n} x {model}"),
        (n, None) => format!("{n} GPU(s), no driver"),
    };
    if let Some(driver) = &hardware.source.driver {
        let _ = write!(title, ", driver {driver}");
    }
    if let Some(domain) = &hardware.domain {
        let _ = write!(title, ", NVLink domain {}", domain.clique);
    }
    title
}

fn blocks(hardware: &Hardware) -> Vec<Block<'_>> {
    let is_place = |node: &&NumaNode| {
        let here = Some(node.id);
        node.kind != NumaKind::Empty
            || hardware.gpus.iter().any(|gpu| gpu.numa == here)
            || hardware.nics.iter().any(|nic| nic.numa == here)
    };
    let nodes = hardware.numa.iter().filter(is_place);
    let mut blocks: Vec<Block<'_>> =
        nodes.map(|node| Block { node: Some(node), groups: Vec::new() }).collect();
    let is_unknown = |numa: Option<u32>| !hardware.numa.iter().any(|n| Some(n.id) == numa);
    let gpus = hardware.gpus.iter().map(|gpu| gpu.numa);
    if gpus.chain(hardware.nics.iter().map(|nic| nic.numa)).any(is_unknown) {
        blocks.push(Block { node: None, groups: Vec::new() });
    }
    for (i, gpu) in hardware.gpus.iter().enumerate() {
        group(hardware, &mut blocks, gpu.numa, gpu.switch.as_ref(), &gpu.root).gpus.push(i);
    }
    for (i, nic) in hardware.nics.iter().enumerate() {
        group(hardware, &mut blocks, nic.numa, nic.switch.as_ref(), &nic.root).nics.push(i);
    }
    blocks
}

/// The group of a device: by the highest switch above it, else by its root complex.
fn group<'b>(
    hardware: &Hardware,
    blocks: &'b mut [Block<'_>],
    numa: Option<u32>,
    switch: Option<&String>,
    root: &str,
) -> &'b mut Group {
    let at = blocks.iter().position(|b| b.node.map(|n| n.id) == numa && b.node.is_some());
    let at = at.unwrap_or(blocks.len() - 1);
    let mut highest = switch;
    // As many steps as there are switches: a circle ends too.
    for _ in &hardware.switches {
        let own = hardware.switches.iter().find(|s| Some(&s.pci) == highest);
        match own.and_then(|s| s.parent.as_ref()) {
            Some(parent) => highest = Some(parent),
            None => break,
        }
    }
    let title = highest.map_or_else(|| root.to_owned(), |pci| format!("switch {pci}"));
    let groups = &mut blocks[at].groups;
    let found = groups.iter().position(|group| group.title == title).unwrap_or_else(|| {
        let is_switch = highest.is_some();
        groups.push(Group { title, is_switch, ..Group::default() });
        groups.len() - 1
    });
    &mut groups[found]
}

fn block_head(out: &mut String, hardware: &Hardware, block: &Block<'_>, x: i64, height: i64) {
    let Some(node) = block.node else {
        rect(out, "numa", x, TOP, block.width(), height);
        text(out, "h", x + GAP, TOP + 20, "NUMA node unknown");
        return;
    };
    let class = if node.kind == NumaKind::Cpu { "numa" } else { "mem" };
    rect(out, class, x, TOP, block.width(), height);
    let socket = node.socket.map_or_else(String::new, |socket| format!(", socket {socket}"));
    let kind = match node.kind {
        NumaKind::Cpu => socket,
        NumaKind::Memory => ", memory only".to_owned(),
        NumaKind::GpuMemory => {
            let owner = hardware.gpus.iter().position(|gpu| gpu.memory_numa == Some(node.id));
            owner.map_or_else(String::new, |gpu| format!(", memory of GPU{gpu}"))
        }
        NumaKind::Empty => ", empty".to_owned(),
    };
    text(out, "h", x + GAP, TOP + 20, &format!("NUMA {}{kind}", node.id));
    let cpus = if node.cpus.is_empty() { String::new() } else { format!("CPUs {}, ", node.cpus) };
    text(out, "s", x + GAP, TOP + 38, &format!("{cpus}{}", bytes(node.memory_bytes)));
}

fn gpu_tile(out: &mut String, gpu: &Gpu, state: Option<&GpuState>, number: usize, x: i64, y: i64) {
    let class = match state.map(|s| s.health) {
        Some(GpuHealth::Healthy) => "gpu",
        Some(GpuHealth::Degraded) => "warn",
        Some(GpuHealth::Unhealthy | GpuHealth::Lost) => "bad",
        Some(GpuHealth::Unknown) | None => "unk",
    };
    rect(out, class, x, y, TILE, TILE_HEIGHT);
    text(out, "h", x + 8, y + 19, &format!("GPU{number}"));
    let parts = gpu.mig.as_ref().filter(|mig| mig.enabled).map(|mig| mig.devices.len());
    // In words too: not everybody tells the colours apart.
    let wrong = state.map(|s| s.health).filter(|health| *health != GpuHealth::Healthy);
    match (wrong, parts) {
        (Some(health), _) => text(out, "s", x + 52, y + 19, &health.to_string()),
        (None, Some(parts)) => text(out, "s", x + 56, y + 19, &format!("MIG x{parts}")),
        (None, None) => {}
    }
    text(out, "s", x + 8, y + 36, &gpu.pci);
}

fn nic_tile(out: &mut String, nic: &Nic, number: usize, x: i64, y: i64) {
    let class = if nic.state == PortState::Down { "down" } else { "nic" };
    rect(out, class, x, y, TILE, TILE_HEIGHT);
    text(out, "h", x + 8, y + 19, &format!("NIC{number}"));
    if nic.gigabits_per_second > 0 {
        text(out, "s", x + 56, y + 19, &format!("{} Gb/s", nic.gigabits_per_second));
    } else if nic.state == PortState::Down {
        text(out, "s", x + 56, y + 19, "down");
    }
    let name: String = nic.name.chars().take(14).collect();
    text(out, "s", x + 8, y + 36, &name);
}

/// NVLinks; the height that they take below the NUMA nodes.
fn links(
    out: &mut String,
    hardware: &Hardware,
    places: &BTreeMap<usize, i64>,
    bottom: i64,
    floor: i64,
) -> i64 {
    let of = |via| hardware.links.iter().filter(move |l| l.nvlinks > 0 && l.via == Some(via));
    let mut height = 0;
    let switched: Vec<usize> = (0..hardware.gpus.len())
        .filter(|&i| of(LinkVia::Switch).any(|l| l.a as usize == i || l.b as usize == i))
        .collect();
    let ends: Vec<i64> = switched.iter().filter_map(|gpu| places.get(gpu).copied()).collect();
    if let (Some(first), Some(last)) = (ends.iter().min(), ends.iter().max()) {
        let top = floor + 30;
        for (gpu, x) in switched.iter().zip(&ends) {
            let count = hardware.gpus[*gpu].nvlinks.map_or(0, |l| l.to_switch);
            line(out, &format!("M{x} {bottom}V{top}"), 1 + i64::from(count) / 6);
            text(out, "l", x + 6, floor + 20, &format!("x{count}"));
        }
        rect(out, "nvs", first - TILE / 2, top, last - first + TILE, 26);
        text(out, "h", first - TILE / 2 + 10, top + 18, "NVSwitch");
        height = 66;
    }
    let mut deepest = 0;
    for link in of(LinkVia::Direct) {
        let (Some(a), Some(b)) = (places.get(&(link.a as usize)), places.get(&(link.b as usize)))
        else {
            continue;
        };
        let (a, b) = (*a.min(b), *a.max(b));
        // Wider spans bend lower, so that arcs do not lie on each other.
        let depth = BEND + (b - a) * BEND / (TILE + GAP) / 2;
        let low = floor + depth;
        line(
            out,
            &format!("M{a} {bottom}C{a} {low} {b} {low} {b} {bottom}"),
            1 + i64::from(link.nvlinks) / 2,
        );
        // A cubic curve's lowest point is three quarters of the way to its handles.
        let y = bottom + (low - bottom) * 3 / 4;
        text(out, "l", i64::midpoint(a, b) - 8, y + 3, &format!("x{}", link.nvlinks));
        deepest = deepest.max(y - floor);
    }
    height.max(deepest + 10)
}

fn line(out: &mut String, path: &str, width: i64) {
    let _ = writeln!(out, "<path class=\"nv\" stroke-width=\"{width}\" d=\"{path}\"/>");
}

fn rect(out: &mut String, class: &str, x: i64, y: i64, width: i64, height: i64) {
    let _ = writeln!(
        out,
        "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"5\"/>"
    );
}

fn text(out: &mut String, class: &str, x: i64, y: i64, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{content}</text>");
}
