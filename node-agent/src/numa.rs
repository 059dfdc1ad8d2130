//! NUMA nodes: their CPUs, memory, hugepages and distances.
//!
//! Owns `devices/system/node` of sysfs. Must never assume that ids are dense, that a node has CPUs, or
//! that column `i` of a distance row is node `i`: it is the `i`-th *online* node.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cpulist::CpuList;
use crate::sysfs::{Error, Tree, noted};

const NODES: &str = "devices/system/node";
const CPUS: &str = "devices/system/cpu/online";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaNode {
    pub id: u32,
    /// Online CPUs. Empty for a node of memory only (CXL, memory of a GPU).
    pub cpus: Option<CpuList>,
    pub memory_bytes: Option<u64>,
    pub free_memory_bytes: Option<u64>,
    /// By size of page.
    pub hugepages: Vec<Hugepages>,
    /// From this node to each online node, itself included.
    pub distances: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hugepages {
    pub page_bytes: u64,
    pub total: u64,
    pub free: u64,
}

impl NumaNode {
    pub fn is_memory_only(&self) -> bool {
        self.cpus.as_ref().is_some_and(CpuList::is_empty) && self.memory_bytes.unwrap_or(0) > 0
    }
}

/// All online NUMA nodes by id. A kernel without NUMA is one node of everything.
pub fn read(sysfs: &Tree, proc: &Tree, notes: &mut Vec<String>) -> Result<Vec<NumaNode>, Error> {
    let online = match read_list(sysfs, &format!("{NODES}/online")) {
        Err(error) if error.is_not_found() => {
            notes.push(format!("{error}; the machine is shown as one NUMA node"));
            return without_numa(sysfs, proc, notes).map(|node| vec![node]);
        }
        online => online?,
    };
    Ok(online.iter().map(|id| read_node(sysfs, id, &online, notes)).collect())
}

fn read_node(sysfs: &Tree, id: u32, online: &CpuList, notes: &mut Vec<String>) -> NumaNode {
    let dir = format!("{NODES}/node{id}");
    let (memory_bytes, free_memory_bytes) = read_memory(sysfs, &format!("{dir}/meminfo"), notes);
    NumaNode {
        id,
        cpus: noted(read_list(sysfs, &format!("{dir}/cpulist")), notes),
        memory_bytes,
        free_memory_bytes,
        hugepages: read_hugepages(sysfs, &format!("{dir}/hugepages"), notes),
        distances: noted(read_distances(sysfs, &format!("{dir}/distance"), online), notes)
            .unwrap_or_default(),
    }
}

fn without_numa(sysfs: &Tree, proc: &Tree, notes: &mut Vec<String>) -> Result<NumaNode, Error> {
    let cpus = read_list(sysfs, CPUS)?;
    let (memory_bytes, free_memory_bytes) = read_memory(proc, "meminfo", notes);
    Ok(NumaNode {
        id: 0,
        cpus: Some(cpus),
        memory_bytes,
        free_memory_bytes,
        hugepages: read_hugepages(sysfs, "kernel/mm/hugepages", notes),
        distances: BTreeMap::new(),
    })
}

/// Total and free memory.
fn read_memory(tree: &Tree, path: &str, notes: &mut Vec<String>) -> (Option<u64>, Option<u64>) {
    let Some(text) = noted(tree.read(path), notes) else {
        return (None, None);
    };
    let mut bytes = |name| {
        let found = meminfo_bytes(&text, name);
        if found.is_none() {
            let expected = format!("a list with {name} in kB");
            notes.push(tree.malformed(path, &text, &expected).to_string());
        }
        found
    };
    (bytes("MemTotal"), bytes("MemFree"))
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
        Some("kB") => number.checked_mul(1024),
        _ => None,
    }
}

fn read_hugepages(sysfs: &Tree, dir: &str, notes: &mut Vec<String>) -> Vec<Hugepages> {
    let names = noted(sysfs.list(dir), notes).unwrap_or_default();
    let mut pages: Vec<_> = names
        .iter()
        .filter_map(|name| {
            let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let page_bytes = kib.checked_mul(1024)?;
            let count = |file| sysfs.parse(format!("{dir}/{name}/{file}"), "a number of pages");
            let total = noted(count("nr_hugepages"), notes)?;
            let free = noted(count("free_hugepages"), notes)?;
            Some(Hugepages { page_bytes, total, free })
        })
        .collect();
    pages.sort_unstable_by_key(|p| p.page_bytes);
    pages
}

fn read_distances(sysfs: &Tree, path: &str, online: &CpuList) -> Result<BTreeMap<u32, u32>, Error> {
    let text = sysfs.read(path)?;
    let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    match row {
        Ok(row) if row.len() == online.count() as usize => Ok(online.iter().zip(row).collect()),
        _ => {
            let expected = format!("a row of {} distances", online.count());
            Err(sysfs.malformed(path, &text, &expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
