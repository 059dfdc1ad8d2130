//! NUMA nodes: their CPUs, cores, caches, memory, hugepages and distances.
//!
//! Owns `devices/system/node` and `devices/system/cpu` of sysfs. Must never assume that ids are
//! dense, that a node has CPUs, or that column `i` of a distance row is node `i`: it is the `i`-th
//! *online* node.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::muster::node_topology::{
    CpuCache, Hugepages, MAX_COUNT, MAX_DISTANCE, MAX_NUMA_NODES, NumaKind, NumaNode,
};

use crate::cpulist::CpuList;
use crate::sysfs::{Error, Tree, noted};

const NODES: &str = "devices/system/node";
const CPUS: &str = "devices/system/cpu";
/// Most CPUs whose cores and caches are read.
const MAX_CPUS: usize = 4096;
/// Most cores of a node that are listed.
const MAX_CORES: usize = 1024;
/// Longest list of the CPUs of a core that is shown.
const MAX_CORE: usize = 64;
/// Most sizes of hugepages of a node.
const MAX_PAGE_SIZES: usize = 8;
/// Most caches of a node that are listed.
const MAX_CACHES: usize = 64;

/// All online NUMA nodes by id. A kernel without NUMA is one node of everything; so is one whose
/// files cannot be read, as far as they can.
pub fn read(sysfs: &Tree, proc: &Tree, notes: &mut Vec<String>) -> Vec<NumaNode> {
    let online = match read_list(sysfs, &format!("{NODES}/online")) {
        Ok(online) => online,
        Err(error) => {
            notes.push(format!("{error}; the machine is shown as one NUMA node"));
            return vec![without_numa(sysfs, proc, notes)];
        }
    };
    if online.count() as usize > MAX_NUMA_NODES {
        notes.push(format!("{} NUMA nodes; the first {MAX_NUMA_NODES} are shown", online.count()));
    }
    let ids = online.iter().take(MAX_NUMA_NODES);
    ids.map(|id| read_node(sysfs, id, &online, notes)).collect()
}

fn read_node(sysfs: &Tree, id: u32, online: &CpuList, notes: &mut Vec<String>) -> NumaNode {
    let dir = format!("{NODES}/node{id}");
    let cpus = noted(read_list(sysfs, &format!("{dir}/cpulist")), notes);
    let memory_bytes = read_memory(sysfs, &format!("{dir}/meminfo"), notes);
    let distances = noted(read_distances(sysfs, &format!("{dir}/distance"), online), notes);
    let mut distances = distances.unwrap_or_default();
    distances.truncate(MAX_NUMA_NODES);
    let hugepages = read_hugepages(sysfs, &format!("{dir}/hugepages"), notes);
    let node = NumaNode { id, memory_bytes, hugepages, distances, ..NumaNode::default() };
    match cpus {
        Some(cpus) => with_cpus(node, &cpus, sysfs, notes),
        None => node,
    }
}

fn without_numa(sysfs: &Tree, proc: &Tree, notes: &mut Vec<String>) -> NumaNode {
    let cpus = noted(read_list(sysfs, &format!("{CPUS}/online")), notes).unwrap_or_default();
    let memory_bytes = read_memory(proc, "meminfo", notes);
    let hugepages = read_hugepages(sysfs, "kernel/mm/hugepages", notes);
    let node = NumaNode { id: 0, memory_bytes, hugepages, ..NumaNode::default() };
    with_cpus(node, &cpus, sysfs, notes)
}

/// The node with what its CPUs tell: socket, cores, caches.
fn with_cpus(
    mut node: NumaNode,
    cpus: &CpuList,
    sysfs: &Tree,
    notes: &mut Vec<String>,
) -> NumaNode {
    node.kind = match (cpus.is_empty(), node.memory_bytes) {
        (false, _) => NumaKind::Cpu,
        (true, 0) => NumaKind::Empty,
        (true, _) => NumaKind::Memory,
    };
    node.cpus = cpus.shown();
    let (mut sockets, mut cores, mut caches) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    // A core or a cache is read once, by the first of its CPUs.
    let (mut in_core, mut in_cache) = (BTreeSet::new(), BTreeSet::new());
    for cpu in cpus.iter().take(MAX_CPUS) {
        let dir = format!("{CPUS}/cpu{cpu}");
        if !in_core.contains(&cpu) {
            sockets.extend(socket(sysfs, &dir, notes));
            let siblings = read_list(sysfs, &format!("{dir}/topology/thread_siblings_list"));
            if let Some(core) = optional(siblings, notes) {
                in_core.extend(core.iter());
                cores.insert(cpu, core);
            }
        }
        if !in_cache.contains(&cpu)
            && let Some((shared, bytes)) = last_cache(sysfs, &dir, notes)
        {
            in_cache.extend(shared.iter());
            caches.insert(cpu, CpuCache { cpus: shared.shown(), bytes });
        }
    }
    // A negative number is a package that the firmware does not name.
    node.socket = match sockets.into_iter().collect::<Vec<i64>>()[..] {
        [socket] => u16::try_from(socket).ok().map(u32::from),
        _ => None,
    };
    if cores.values().any(|core| core.count() > 1) {
        let texts = cores.values().map(ToString::to_string).filter(|core| core.len() <= MAX_CORE);
        node.cores = texts.take(MAX_CORES).collect();
    }
    if caches.len() > 1 {
        node.caches = caches.into_values().take(MAX_CACHES).collect();
    }
    node
}

fn socket(sysfs: &Tree, dir: &str, notes: &mut Vec<String>) -> Option<i64> {
    optional(
        sysfs.parse(format!("{dir}/topology/physical_package_id"), "the number of a socket"),
        notes,
    )
}

/// A value that some kernels and containers do not show.
fn optional<T>(result: Result<T, Error>, notes: &mut Vec<String>) -> Option<T> {
    match result {
        Err(error) if error.is_not_found() => None,
        result => noted(result, notes),
    }
}

/// The CPUs that share a CPU's cache of the highest level, and its size.
fn last_cache(sysfs: &Tree, dir: &str, notes: &mut Vec<String>) -> Option<(CpuList, u64)> {
    let names = optional(sysfs.list(format!("{dir}/cache")), notes)?;
    let index = |name: &String| name.strip_prefix("index")?.parse::<u32>().ok();
    let index = names.iter().filter_map(index).max()?;
    let dir = format!("{dir}/cache/index{index}");
    // The second level belongs to one core: nothing to align by.
    let level: u32 = optional(sysfs.parse(format!("{dir}/level"), "the level of a cache"), notes)?;
    if level < 3 {
        return None;
    }
    let shared = optional(read_list(sysfs, &format!("{dir}/shared_cpu_list")), notes)?;
    let size =
        optional(sysfs.read(format!("{dir}/size")), notes).and_then(|text| cache_bytes(&text));
    Some((shared, size.unwrap_or(0)))
}

/// `32768K` in bytes.
fn cache_bytes(text: &str) -> Option<u64> {
    let (digits, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor).filter(|bytes| *bytes <= MAX_COUNT)
}

/// Total memory; 0 if not known.
fn read_memory(tree: &Tree, path: &str, notes: &mut Vec<String>) -> u64 {
    let Some(text) = noted(tree.read(path), notes) else { return 0 };
    let found = meminfo_bytes(&text, "MemTotal");
    if found.is_none() {
        notes.push(tree.malformed(path, &text, "a list with MemTotal in kB").to_string());
    }
    found.unwrap_or(0)
}

fn read_list(sysfs: &Tree, path: &str) -> Result<CpuList, Error> {
    let text = sysfs.read(path)?;
    text.parse().map_err(|cause| sysfs.malformed(path, &text, &format!("a list of ids ({cause})")))
}

/// `MemTotal` of "Node 0 MemTotal:  123 kB" (sysfs) or "MemTotal:  123 kB" (procfs), in bytes.
fn meminfo_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| {
        let (head, tail) = line.split_once(':')?;
        (head.split_whitespace().last() == Some(name)).then_some(tail)
    })?;
    let mut words = line.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    match words.next() {
        Some("kB") => number.checked_mul(1024).filter(|bytes| *bytes <= MAX_COUNT),
        _ => None,
    }
}

fn read_hugepages(sysfs: &Tree, dir: &str, notes: &mut Vec<String>) -> Vec<Hugepages> {
    let names = noted(sysfs.list(dir), notes).unwrap_or_default();
    let mut pages: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let page_bytes = kib.checked_mul(1024).filter(|bytes| *bytes <= MAX_COUNT)?;
            let path = format!("{dir}/{name}/nr_hugepages");
            let count: u64 = noted(sysfs.parse(&path, "a number of pages"), notes)?;
            if count > MAX_COUNT {
                notes.push(
                    sysfs.malformed(&path, &count.to_string(), "a number of pages").to_string(),
                );
                return None;
            }
            Some(Hugepages { page_bytes, count })
        })
        .collect();
    pages.sort_unstable_by_key(|p| p.page_bytes);
    pages.truncate(MAX_PAGE_SIZES);
    pages
}

fn read_distances(sysfs: &Tree, path: &str, online: &CpuList) -> Result<Vec<u32>, Error> {
    let text = sysfs.read(path)?;
    let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    match row {
        Ok(row)
            if row.len() == online.count() as usize
                && row.iter().all(|distance| *distance <= MAX_DISTANCE) =>
        {
            Ok(row)
        }
        _ => {
            let expected = format!("a row of {} distances", online.count());
            Err(sysfs.malformed(path, &text, &expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_meminfo_is_read_or_refused(text in "(Node [0-9]{1,3} )?Mem(Total|Free)?:?[ \\t]*[0-9]{0,22} ?(kB)?\\n?\\PC*") {
            let _ = meminfo_bytes(&text, "MemTotal");
        }

        #[test]
        fn meminfo_of_any_node_is_read(node in 0..1000_u32, kib in 0..1_u64 << 43, pad in " {1,9}") {
            let text = format!("Node {node} MemUsed: 1 kB\nNode {node} MemTotal:{pad}{kib} kB\n");
            prop_assert_eq!(meminfo_bytes(&text, "MemTotal"), Some(kib * 1024));
        }

        #[test]
        fn any_cache_size_is_read_or_refused(text in "\\PC*") {
            let _ = cache_bytes(&text);
        }
    }

    #[test]
    fn cache_sizes() {
        let cases = [
            ("32768K", Some(32 << 20)),
            ("36M", Some(36 << 20)),
            ("512", Some(512)),
            ("K", None),
            ("1G", None),
            ("99999999999999999999K", None),
        ];
        for (text, expected) in cases {
            assert_eq!(cache_bytes(text), expected, "{text}");
        }
    }

    #[test]
    fn meminfo_of_both_file_systems() {
        let cases = [
            ("Node 0 MemTotal:       14508612 kB\nNode 0 MemFree: 1 kB", Some(14_508_612 * 1024)),
            ("MemTotal:       14508612 kB", Some(14_508_612 * 1024)),
            ("Node 0 MemTotalX:  1 kB", None),
            ("Node 0 MemTotal:  1", None),
            ("Node 0 MemTotal:  x kB", None),
            ("Node 0 MemTotal:  18446744073709551615 kB", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(meminfo_bytes(text, "MemTotal"), expected, "{text:?}");
        }
    }
}
