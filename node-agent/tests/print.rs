//! The program as a whole on fake file systems: `check(fixture, golden text)`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use muster_node_agent::nvml::{Gpu, Nvml};
use muster_node_agent::{Sources, collect, print};
use tempfile::TempDir;

/// A tree from lines `path = content` (`|` ends a line of it) and `path -> target of the link`.
fn tree(fixture: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    for root in ["sys", "proc"] {
        fs::create_dir_all(dir.path().join(root)).expect("directory");
    }
    for line in fixture.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let parent = |path: &str| {
            let path = dir.path().join(path.trim());
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            path
        };
        if let Some((path, target)) = line.split_once(" -> ") {
            symlink(target.trim(), parent(path)).expect("link");
        } else {
            let (path, content) = line.split_once('=').expect("a line with = or ->");
            let content = format!("{}\n", content.trim().replace('|', "\n"));
            fs::write(parent(path), content).expect("file");
        }
    }
    dir
}

/// One PCI device with the link that leads to it.
fn pci(path: &str, class: &str, id: &str, numa: &str) -> String {
    let address = path.rsplit('/').next().expect("address");
    let (vendor, device) = id.split_once(':').expect("vendor:device");
    format!(
        "sys/devices/{path}/class = {class}
         sys/devices/{path}/vendor = 0x{vendor}
         sys/devices/{path}/device = 0x{device}
         sys/devices/{path}/numa_node = {numa}
         sys/bus/pci/devices/{address} -> ../../../devices/{path}\n"
    )
}

fn run(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_muster-node-agent"))
        .arg("print")
        .arg("--sysfs-root")
        .arg(dir.join("sys"))
        .arg("--proc-root")
        .arg(dir.join("proc"))
        .arg("--nvml-library")
        .arg(dir.join("libnvidia-ml.so.1"))
        .args(args)
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8], dir: &Path) -> String {
    String::from_utf8_lossy(bytes).replace(&*dir.to_string_lossy(), "DIR")
}

/// Compares with `golden/<name>.txt`; `UPDATE_GOLDEN=1` writes the file instead.
#[track_caller]
fn golden(actual: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).expect("golden file");
    }
    let expected = fs::read_to_string(&path).expect("golden file; UPDATE_GOLDEN=1 writes it");
    assert!(actual == expected, "printed:\n{actual}\n{name}.txt has:\n{expected}");
}

#[track_caller]
fn check(fixture: &str, name: &str) {
    let dir = tree(fixture);
    let output = run(dir.path(), &[]);
    assert_eq!(text(&output.stderr, dir.path()), "");
    golden(&text(&output.stdout, dir.path()), name);
}

/// Sparse ids (0, 1, 4), a node of memory only, GPUs behind switches, a virtual machine's NIC.
fn gpu_machine() -> String {
    let numa = "
        sys/devices/system/node/online = 0-1,4
        sys/devices/system/node/node0/cpulist = 0-3,8-11
        sys/devices/system/node/node0/distance = 10 21 40
        sys/devices/system/node/node0/meminfo = Node 0 MemTotal: 67108864 kB|Node 0 MemFree: 33554432 kB
        sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages = 512
        sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages = 500
        sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages = 0
        sys/devices/system/node/node0/hugepages/hugepages-1048576kB/free_hugepages = 0
        sys/devices/system/node/node1/cpulist = 4-7,12-15
        sys/devices/system/node/node1/distance = 21 10 40
        sys/devices/system/node/node1/meminfo = Node 1 MemTotal: 67108864 kB|Node 1 MemFree: 1024 kB
        sys/devices/system/node/node4/cpulist =
        sys/devices/system/node/node4/distance = 40 40 10
        sys/devices/system/node/node4/meminfo = Node 4 MemTotal: 100663296 kB|Node 4 MemFree: 100663296 kB
    ";
    let nic = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:03:00.0";
    [
        numa,
        &pci("pci0000:00/0000:00:00.0", "0x060000", "8086:1237", "0"),
        &pci("pci0000:00/0000:00:02.0", "0x030000", "1a03:2000", "0"),
        &pci(
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:07:00.0",
            "0x030200",
            "10de:2330",
            "0",
        ),
        &pci(nic, "0x020700", "15b3:1021", "0"),
        &format!("sys/devices/{nic}/net/ibs0/mtu = 2044\n"),
        &format!("sys/devices/{nic}/infiniband/mlx5_0/node_guid = 1\n"),
        &pci("pci0000:80/0000:80:01.0/0000:87:00.0", "0x120000", "1002:74a1", "1"),
        &pci("pci10000:00/10000:00:03.0", "0x020000", "1af4:1000", "-1"),
        "sys/devices/pci10000:00/10000:00:03.0/virtio2/net/eth0/mtu = 1500\n",
    ]
    .concat()
}

#[test]
fn a_gpu_machine_without_driver() {
    check(&gpu_machine(), "gpu-machine");
}

#[test]
fn a_machine_without_numa_or_gpu() {
    check(
        "sys/devices/system/cpu/online = 0-1
         proc/meminfo = MemTotal: 2097152 kB|MemFree: 1048576 kB",
        "no-numa",
    );
}

#[test]
fn what_is_broken_is_unknown_and_noted() {
    let broken = "
        sys/devices/system/node/online = 0
        sys/devices/system/node/node0/cpulist = 0-x
        sys/devices/system/node/node0/distance = 10 20
        sys/devices/system/node/node0/meminfo = nothing
    ";
    let outside = "sys/bus/pci/devices/0000:01:00.0 -> ../../../../../elsewhere\n";
    let odd = pci("pci0000:00/0000:00:05.0", "0x030200", "10de:2330", "many");
    check(&[broken, outside, &odd].concat(), "broken");
}

#[test]
fn json_is_the_same_for_programs() {
    let dir = tree(&gpu_machine());
    let output = run(dir.path(), &["-o", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let at = |pointer: &str| json.pointer(pointer).cloned().unwrap();
    assert_eq!(at("/numaNodes/2/id"), 4);
    assert_eq!(at("/numaNodes/2/cpus"), "");
    assert_eq!(at("/numaNodes/0/cpus"), "0-3,8-11");
    assert_eq!(at("/numaNodes/0/memoryBytes"), 64_u64 << 30);
    assert_eq!(at("/numaNodes/0/hugepages/0/pageBytes"), 2 << 20);
    assert_eq!(at("/numaNodes/1/distances/4"), 40);
    assert_eq!(at("/pciDevices/1/kind"), "gpu");
    assert_eq!(at("/pciDevices/1/vendor"), "0x10de");
    assert_eq!(at("/pciDevices/1/path/0"), "pci0000:00");
    assert_eq!(at("/pciDevices/3/numaNode"), serde_json::Value::Null);
    assert_eq!(at("/nvml/state"), "unavailable");
}

#[test]
fn what_nvml_reports_is_joined_with_the_bus() {
    let dir = tree(&gpu_machine());
    let mut machine = collect(&Sources {
        sysfs_root: dir.path().join("sys"),
        proc_root: dir.path().join("proc"),
        nvml_library: Some(dir.path().join("none")),
    })
    .unwrap();
    machine.notes.clear();
    machine.nvml = Nvml::Available {
        driver_version: Some("580.95.05".to_owned()),
        gpus: vec![Gpu {
            index: 0,
            uuid: Some("GPU-8f0c".to_owned()),
            name: Some("NVIDIA H100 80GB HBM3".to_owned()),
            memory_bytes: Some(85_520_809_984),
            pci_bus_id: Some("0000:07:00.0".to_owned()),
        }],
        problems: vec!["GPU 1: handle: device fell off the bus".to_owned()],
    };
    let table = print::render(&machine, print::Format::Table).unwrap();
    let start = table.find("NVML:").unwrap();
    golden(&table[start..], "nvml");
}

#[test]
fn errors_name_the_file_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr, dir.path()),
        "error: DIR/sys: No such file or directory (os error 2); mount the host's directory there \
         or point --sysfs-root at it\n"
    );

    let output = run(dir.path(), &["-o", "yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr, dir.path());
    assert!(message.contains("[possible values: table, json]"), "{message}");
}
