//! The program as a whole on fake file systems: `check(fixture, golden text)`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use muster_api::muster::node_topology::Hardware;
use muster_machines::mock::Stage;
use muster_machines::{Machine, files};
use tempfile::TempDir;

/// Most bytes of a hardware part: 5,000 of them are a watch's first answer.
const MAX_OBJECT: usize = 16 * 1024;

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

/// Compares with `golden/<name>`; `UPDATE_GOLDEN=1` writes the file instead.
#[track_caller]
fn golden(actual: &str, name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).expect("golden file");
    }
    let expected = fs::read_to_string(&path).expect("golden file; UPDATE_GOLDEN=1 writes it");
    assert!(actual == expected, "printed:\n{actual}\n{name} has:\n{expected}");
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
    check(&gpu_machine(), "gpu-machine.txt");
}

#[test]
fn a_machine_without_numa_or_gpu() {
    check(
        "sys/devices/system/cpu/online = 0-1
         proc/meminfo = MemTotal: 2097152 kB|MemFree: 1048576 kB",
        "no-numa.txt",
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
    check(&[broken, outside, &odd].concat(), "broken.txt");
}

/// The program on a machine, the library found as the system's is.
fn run_machine(stage: &Stage, dir: &Path, format: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_muster-node-agent"));
    command.arg("print");
    if !stage.library().exists() {
        // Else that of the machine that runs the test would be found, if it has one.
        command.arg("--nvml-library").arg(stage.library());
    }
    let output = command
        .args(["-o", format, "--sysfs-root"])
        .arg(stage.sysfs())
        .arg("--proc-root")
        .arg(stage.procfs())
        .env("LD_LIBRARY_PATH", dir)
        .output()
        .expect("the program starts");
    assert_eq!(text(&output.stderr, dir), "");
    text(&output.stdout, dir)
}

/// The object without what changes with the agent's version.
fn masked(yaml: &str) -> String {
    let mask = |line: &str| match line.trim_start().split_once(": ") {
        Some(("hash", _)) => "  hash: HASH\n".to_owned(),
        Some(("agent", _)) => "    agent: VERSION\n".to_owned(),
        _ => format!("{line}\n"),
    };
    yaml.lines().map(mask).collect()
}

#[track_caller]
fn check_machine(name: &str) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let stage = Stage::build(name, dir.path()).expect("a machine");
    golden(&run_machine(&stage, dir.path(), "table"), &format!("machines/{name}.txt"));
    let yaml = run_machine(&stage, dir.path(), "yaml");
    golden(&masked(&yaml), &format!("machines/{name}.yaml"));
    let object: serde_json::Value = serde_saphyr::from_str(&yaml).expect("YAML");
    let hardware: Hardware = serde_json::from_value(object["hardware"].clone()).expect("hardware");
    assert_eq!(hardware.clone().sealed(), hardware, "{name}: the hash is right");
    let size = object["hardware"].to_string().len();
    assert!(size < MAX_OBJECT, "{name}: {size} bytes are too many for 5,000 nodes");
    picture_holds_every_device(name, &run_machine(&stage, dir.path(), "svg"));
}

/// Every box lies in the picture; what it looks like, eyes must say.
fn picture_holds_every_device(name: &str, svg: &str) {
    let machine = Machine::parse(files::text(name).expect("a machine")).expect("a machine");
    for i in 0..machine.gpus.len() {
        assert!(svg.contains(&format!(">GPU{i}</text>")), "{name}: GPU{i}");
    }
    for nic in machine.nics.iter().filter(|nic| nic.physfn.is_none()) {
        let label = nic.rdma.as_ref().or(nic.interface.as_ref()).expect("a name");
        let label: String = label.chars().take(14).collect();
        assert!(svg.contains(&format!(">{label}</text>")), "{name}: {label}");
    }
    let number = |text: &str, key: &str| -> i64 {
        let rest = text.split_once(&format!("{key}=\"")).expect("an attribute").1;
        rest.split_once('"').expect("a value").0.parse().expect("a number")
    };
    let size = (number(svg, " width"), number(svg, " height"));
    for line in svg.lines().filter(|line| line.starts_with("<rect class")) {
        let right = number(line, " x") + number(line, " width");
        let bottom = number(line, " y") + number(line, " height");
        assert!(right <= size.0 && bottom <= size.1, "{name}: {line} outside of {size:?}");
    }
}

#[test]
fn machines_with_switches() {
    ["dgx-a100", "dgx-h100", "b200", "gb200"].into_iter().for_each(check_machine);
}

#[test]
fn machines_with_direct_links_or_none() {
    ["dgx-1v", "a100-bridges", "l40s", "mig"].into_iter().for_each(check_machine);
}

#[test]
fn machines_that_lack_something() {
    ["b200-degraded", "h100-7-of-8", "vm", "no-driver", "no-gpu"]
        .into_iter()
        .for_each(check_machine);
}

#[test]
fn every_machine_is_checked() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/machines");
    for name in files::NAMES {
        assert!(golden.join(format!("{name}.yaml")).exists(), "{name} has no golden file");
    }
}

#[test]
fn json_and_yaml_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::build("mig", dir.path()).unwrap();
    let json = run_machine(&stage, dir.path(), "json");
    let yaml = run_machine(&stage, dir.path(), "yaml");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap());
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

    let output = run(dir.path(), &["-o", "xml"]);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr, dir.path());
    assert!(message.contains("[possible values: table, json, yaml, svg]"), "{message}");
}
