//! Files of the kernel that are not as they should be: read or named, never a panic.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use muster_api::muster::node_topology::Hardware;
use muster_node_agent::Sources;
use muster_node_agent::reader::Reader;
use proptest::prelude::*;
use tempfile::TempDir;

const GPU: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:07:00.0";
const NIC: &str = "sys/devices/pci0000:00/0000:00:03.0/0000:0c:00.0";

/// A machine with two NUMA nodes, a GPU behind a switch and a NIC.
fn machine() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |path: &str, text: &str| put(dir.path(), path, format!("{text}\n").as_bytes());
    file("proc/meminfo", "MemTotal: 2048 kB");
    file("sys/devices/system/node/online", "0-1");
    for (node, cpus, row) in [(0, "0-1", "10 21"), (1, "2-3", "21 10")] {
        let at = format!("sys/devices/system/node/node{node}");
        file(&format!("{at}/cpulist"), cpus);
        file(&format!("{at}/meminfo"), &format!("Node {node} MemTotal: 1024 kB"));
        file(&format!("{at}/distance"), row);
        file(&format!("{at}/hugepages/hugepages-2048kB/nr_hugepages"), "4");
    }
    file("sys/devices/system/cpu/online", "0-3");
    for cpu in 0..4 {
        let at = format!("sys/devices/system/cpu/cpu{cpu}");
        file(&format!("{at}/topology/physical_package_id"), &(cpu / 2).to_string());
        file(&format!("{at}/topology/thread_siblings_list"), &cpu.to_string());
        file(&format!("{at}/cache/index3/level"), "3");
        file(&format!("{at}/cache/index3/size"), "32768K");
        file(&format!("{at}/cache/index3/shared_cpu_list"), &cpu.to_string());
    }
    for (at, class, id) in [(GPU, "0x030200", "0x10de"), (NIC, "0x020700", "0x15b3")] {
        file(&format!("{at}/class"), class);
        file(&format!("{at}/vendor"), id);
        file(&format!("{at}/device"), "0x2330");
        file(&format!("{at}/numa_node"), "0");
        file(&format!("{at}/local_cpulist"), "0-1");
        file(&format!("{at}/max_link_speed"), "32.0 GT/s PCIe");
        file(&format!("{at}/max_link_width"), "16");
        let name = at.rsplit('/').next().unwrap_or_default();
        let target = format!("../../../{}", at.trim_start_matches("sys/"));
        link(dir.path(), &format!("sys/bus/pci/devices/{name}"), &target);
    }
    let port = format!("{NIC}/infiniband/mlx5_0/ports/1");
    file(&format!("{NIC}/infiniband/mlx5_0/node_guid"), "a088:c203:0012:3456");
    for (name, text) in
        [("state", "4: ACTIVE"), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", "InfiniBand")]
    {
        file(&format!("{port}/{name}"), text);
    }
    dir
}

fn put(dir: &Path, path: &str, bytes: &[u8]) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, bytes).expect("a file");
}

fn link(dir: &Path, path: &str, target: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    let _ = fs::remove_file(&path);
    symlink(target, path).expect("a link");
}

/// One thing that is not as it should be.
#[derive(Clone, Debug)]
struct Oddity {
    is_link: bool,
    path: String,
    content: Vec<u8>,
}

impl Oddity {
    fn apply(&self, dir: &Path) {
        if self.is_link {
            link(dir, &self.path, &String::from_utf8_lossy(&self.content));
        } else {
            put(dir, &self.path, &self.content);
        }
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'\\', [b'x', a, b, tail @ ..]) => {
                let digits = [*a, *b];
                let digits = std::str::from_utf8(&digits).expect("two digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
                tail
            }
            (b'\\', [letter, tail @ ..]) => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'\\' => b'\\',
                    other => panic!("\\{} is no escape", char::from(*other)),
                });
                tail
            }
            (byte, tail) => {
                bytes.push(*byte);
                tail
            }
        };
    }
    bytes
}

fn corpus() -> Vec<Oddity> {
    let lines = include_str!("corpus/hardware.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (is_link, line) =
                line.strip_prefix("link ").map_or((false, line), |line| (true, line));
            let (path, content) = line.split_once(' ').unwrap_or((line, ""));
            let path = String::from_utf8(unescape(path)).expect("a path");
            Oddity { is_link, path, content: unescape(content) }
        })
        .collect()
}

/// Reads the machine; what is reported is what an object may hold.
fn read(dir: &Path) -> Hardware {
    let sources = Sources {
        sysfs_root: dir.join("sys"),
        proc_root: dir.join("proc"),
        nvml_library: Some(PathBuf::from("/nowhere/libnvidia-ml.so.1")),
    };
    let reading = Reader::once(sources).expect("both roots are there");
    let hardware = reading.hardware;
    let plain = |text: &str, more: &str| {
        text.bytes().all(|b| b.is_ascii_digit() || more.as_bytes().contains(&b))
    };
    for node in &hardware.numa {
        assert!(
            node.id < 1 << 20 && plain(&node.cpus, ",-") && node.cpus.len() <= 4096,
            "{node:?}"
        );
        assert!(node.memory_bytes <= 1 << 53, "{node:?}");
        assert!(node.hugepages.iter().all(|h| h.page_bytes <= 1 << 53 && h.count <= 1 << 53));
        assert!(node.distances.iter().all(|d| *d <= 1023), "{node:?}");
    }
    for gpu in &hardware.gpus {
        assert!(plain(&gpu.cpus, ",-"), "{gpu:?}");
        assert!(gpu.pci.len() <= 16 && plain(&gpu.pci, "abcdef:."), "{gpu:?}");
        assert!(gpu.numa.is_none_or(|numa| numa < 1 << 20), "{gpu:?}");
        assert!(gpu.root.len() <= 32 && gpu.root.bytes().all(|b| (b' '..=b'~').contains(&b)));
    }
    for nic in &hardware.nics {
        assert!(nic.pci.len() <= 16 && nic.gigabits_per_second <= 1_000_000, "{nic:?}");
        let layer = nic.link_layer.as_deref().unwrap_or_default();
        assert!(layer.bytes().all(|b| (b' '..=b'~').contains(&b)), "{nic:?}");
        assert!(nic.guid.as_ref().is_none_or(|guid| guid.len() <= 32), "{nic:?}");
    }
    hardware
}

#[test]
fn kept_files_are_read_or_named() {
    let whole = machine();
    let hardware = read(whole.path());
    assert_eq!((hardware.numa.len(), hardware.gpus.len(), hardware.nics.len()), (2, 1, 1));
    assert_eq!(hardware.gpus[0].switch.as_deref(), Some("0000:01:00.0"));
    let kept = corpus();
    assert!(kept.len() > 70, "{}", kept.len());
    for oddity in kept {
        let dir = machine();
        oddity.apply(dir.path());
        eprintln!("{oddity:?}");
        read(dir.path());
    }
}

/// Bytes that are put in, taken out or doubled.
fn damage(mut bytes: Vec<u8>, changes: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(at, kind, byte) in changes {
        let at = at % (bytes.len() + 1);
        match kind % 3 {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => drop(bytes.remove(at)),
            _ => bytes.extend_from_within(at..),
        }
        bytes.truncate(1 << 16);
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_files_are_read_or_named(
        which in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        changes in prop::collection::vec((0..64_usize, any::<u8>(), any::<u8>()), 0..6),
    ) {
        let kept = corpus();
        let dir = machine();
        for index in which {
            let mut oddity = index.get(&kept).clone();
            if !oddity.is_link {
                oddity.content = damage(oddity.content, &changes);
            }
            oddity.apply(dir.path());
        }
        read(dir.path());
    }
}
