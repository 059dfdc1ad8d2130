//! The sysfs and procfs of a machine, in a directory.
//!
//! Owns what the kernel would show. Links are relative and files end in a newline, as
//! the kernel's do.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Gpu, Machine, Nic, Numa, cpus};

/// Writes `sys` and `proc` of a machine into a directory.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(machine: &Machine, dir: &Path) -> io::Result<()> {
    let tree = Tree { root: dir.to_owned() };
    for root in ["sys/bus/pci/devices", "proc"] {
        fs::create_dir_all(dir.join(root))?;
    }
    numa(machine, &tree)?;
    cpu(machine, &tree)?;
    for gpu in &machine.gpus {
        write_gpu(machine, gpu, &tree)?;
    }
    for nic in &machine.nics {
        write_nic(machine, nic, &tree)?;
    }
    for other in &machine.others {
        tree.pci(machine, &other.path, &other.class, &other.id, -1)?;
    }
    for switch in machine.nvlink.switches.iter().filter(|s| !s.pci.is_empty()) {
        let path = format!("pci0000:{}/{}", &switch.pci[5..7], switch.pci);
        tree.pci(machine, &path, "0x068000", "10de:22a3", -1)?;
    }
    if let Some(driver) = &machine.driver {
        let line = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}");
        tree.file("proc/driver/nvidia/version", &line)?;
    }
    Ok(())
}

struct Tree {
    root: PathBuf,
}

impl Tree {
    fn file(&self, path: &str, content: &str) -> io::Result<()> {
        let path = self.root.join(path);
        let text = format!("{content}\n");
        // Most directories are there already.
        match fs::write(&path, &text) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
                fs::write(path, text)
            }
            result => result,
        }
    }

    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        match symlink(target, path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    /// A device, and the bridges above it.
    fn pci(&self, m: &Machine, path: &str, class: &str, id: &str, numa: i32) -> io::Result<()> {
        let mut above = String::new();
        let parts: Vec<&str> = path.split('/').collect();
        for (i, part) in parts.iter().enumerate() {
            above = if above.is_empty() { (*part).to_owned() } else { format!("{above}/{part}") };
            let is_device = i + 1 == parts.len();
            if i == 0
                || (!is_device && self.root.join(format!("sys/bus/pci/devices/{part}")).exists())
            {
                continue;
            }
            let (class, id) = if is_device { (class, id) } else { ("0x060400", "1000:c030") };
            let (vendor, device) = id.split_once(':').unwrap_or((id, "0000"));
            let dir = format!("sys/devices/{above}");
            self.file(&format!("{dir}/class"), class)?;
            self.file(&format!("{dir}/vendor"), &format!("0x{vendor}"))?;
            self.file(&format!("{dir}/device"), &format!("0x{device}"))?;
            self.file(&format!("{dir}/numa_node"), &numa.to_string())?;
            let node = m.numa.iter().find(|n| i64::from(n.id) == i64::from(numa));
            self.file(&format!("{dir}/local_cpulist"), node.map_or("", |n| &n.cpus))?;
            self.link(
                &format!("sys/bus/pci/devices/{part}"),
                &format!("../../../devices/{above}"),
            )?;
        }
        Ok(())
    }
}

fn write_gpu(machine: &Machine, gpu: &Gpu, tree: &Tree) -> io::Result<()> {
    let id = format!("10de:{:04x}", machine.model.device);
    tree.pci(machine, &gpu.path, "0x030200", &id, gpu.numa)?;
    let speed = match machine.model.architecture {
        ..=6 => "8.0 GT/s PCIe",
        7 | 8 => "16.0 GT/s PCIe",
        _ => "32.0 GT/s PCIe",
    };
    tree.file(&format!("sys/devices/{}/max_link_speed", gpu.path), speed)?;
    tree.file(&format!("sys/devices/{}/max_link_width", gpu.path), "16")
}

fn write_nic(machine: &Machine, nic: &Nic, tree: &Tree) -> io::Result<()> {
    let class = if nic.layer == "InfiniBand" { "0x020700" } else { "0x020000" };
    tree.pci(machine, &nic.path, class, &nic.id, nic.numa)?;
    let dir = format!("sys/devices/{}", nic.path);
    if let Some(physfn) = &nic.physfn {
        tree.link(&format!("{dir}/physfn"), &format!("../{physfn}"))?;
    }
    if let Some(name) = &nic.interface {
        tree.file(&format!("{dir}/net/{name}/mtu"), "4096")?;
    }
    let Some(name) = &nic.rdma else { return Ok(()) };
    let address = nic.path.rsplit('/').next().unwrap_or_default();
    let rdma = format!("{dir}/infiniband/{name}");
    let guid: String = address.chars().filter(char::is_ascii_hexdigit).collect();
    tree.file(
        &format!("{rdma}/node_guid"),
        &format!("a088:c203:00{}:{}", &guid[4..6], &guid[..4]),
    )?;
    let up = nic.rate > 0;
    tree.file(&format!("{rdma}/ports/1/state"), if up { "4: ACTIVE" } else { "1: DOWN" })?;
    let rate =
        if up { format!("{} Gb/sec (4X NDR)", nic.rate) } else { "40 Gb/sec (4X QDR)".into() };
    tree.file(&format!("{rdma}/ports/1/rate"), &rate)?;
    tree.file(&format!("{rdma}/ports/1/link_layer"), &nic.layer)?;
    tree.link(
        &format!("sys/class/infiniband/{name}"),
        &format!("../../devices/{}/infiniband/{name}", nic.path),
    )
}

fn numa(machine: &Machine, tree: &Tree) -> io::Result<()> {
    let total: u64 = machine.numa.iter().map(|n| n.memory << 20).sum();
    tree.file("proc/meminfo", &format!("MemTotal:       {total} kB\nMemFree:        {total} kB"))?;
    let ids: Vec<String> = machine.numa.iter().map(|n| n.id.to_string()).collect();
    tree.file("sys/devices/system/node/online", &ids.join(","))?;
    for (i, node) in machine.numa.iter().enumerate() {
        let dir = format!("sys/devices/system/node/node{}", node.id);
        tree.file(&format!("{dir}/cpulist"), &node.cpus)?;
        let kib = node.memory << 20;
        let id = node.id;
        let meminfo =
            format!("Node {id} MemTotal:       {kib} kB\nNode {id} MemFree:        {kib} kB");
        tree.file(&format!("{dir}/meminfo"), &meminfo)?;
        let usual = |j: usize| if i == j { 10 } else { 20 };
        let row = match machine.distances.get(i) {
            Some(row) => row.clone(),
            None => (0..machine.numa.len()).map(usual).collect(),
        };
        let row: Vec<String> = row.iter().map(u32::to_string).collect();
        tree.file(&format!("{dir}/distance"), &row.join(" "))?;
        hugepages(node, &dir, tree)?;
    }
    Ok(())
}

fn hugepages(node: &Numa, dir: &str, tree: &Tree) -> io::Result<()> {
    let usual = BTreeMap::from([(2048, 0), (1_048_576, 0)]);
    let pages = if node.hugepages.is_empty() { &usual } else { &node.hugepages };
    for (kib, count) in pages {
        for file in ["nr_hugepages", "free_hugepages"] {
            tree.file(&format!("{dir}/hugepages/hugepages-{kib}kB/{file}"), &count.to_string())?;
        }
        tree.file(&format!("{dir}/hugepages/hugepages-{kib}kB/surplus_hugepages"), "0")?;
    }
    Ok(())
}

fn cpu(machine: &Machine, tree: &Tree) -> io::Result<()> {
    let all: Vec<u32> = machine.numa.iter().flat_map(|n| cpus(&n.cpus)).collect();
    let count = machine.cpu_count();
    let cores = count / machine.threads_per_core.max(1);
    let last = count.saturating_sub(1);
    tree.file("sys/devices/system/cpu/online", &format!("0-{last}"))?;
    for node in &machine.numa {
        for cpu in cpus(&node.cpus) {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            let core = cpu % cores.max(1);
            let siblings: Vec<String> =
                all.iter().filter(|&c| c % cores.max(1) == core).map(u32::to_string).collect();
            tree.file(&format!("{dir}/topology/physical_package_id"), &node.socket.to_string())?;
            tree.file(&format!("{dir}/topology/thread_siblings_list"), &siblings.join(","))?;
            let cache = node.caches.iter().find(|list| cpus(list).contains(&cpu));
            tree.file(&format!("{dir}/cache/index3/shared_cpu_list"), cache.unwrap_or(&node.cpus))?;
            tree.file(&format!("{dir}/cache/index3/level"), "3")?;
            tree.file(&format!("{dir}/cache/index3/size"), "32768K")?;
        }
    }
    Ok(())
}
