//! What is read while something goes wrong: `check(machine, faults, expect)`.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use muster_api::muster::node_topology::{
    Activity, FabricState, GpuHealth, PciPath, Recovery, node_condition,
};
use muster_machines::faults::Xid;
use muster_machines::mock::Stage;
use muster_machines::{Fabric, Faults, Mig, MigDevice, files};
use muster_node_agent::Sources;
use muster_node_agent::reader::Reader;
use muster_node_agent::reading::{Finding, Reading};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);

/// A reader on a machine.
struct Bench {
    stage: Stage,
    reader: Reader,
    woken: Receiver<()>,
    _dir: TempDir,
}

impl Bench {
    fn new(machine: &str) -> Self {
        Self::without(machine, &[])
    }

    /// The same with a driver that lacks functions.
    fn without(machine: &str, functions: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let stage = Stage::build(machine, dir.path()).expect("a machine");
        if !functions.is_empty() {
            stage.without(functions).expect("an older library");
        }
        let (sender, woken) = mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let notify = move || {
            let _ = sender.lock().expect("a sender").send(());
        };
        let sources = Sources {
            sysfs_root: stage.sysfs(),
            proc_root: stage.procfs(),
            nvml_library: Some(stage.library()),
        };
        let reader = Reader::new(sources, Box::new(notify)).expect("roots");
        Self { stage, reader, woken, _dir: dir }
    }

    fn read(&mut self) -> Reading {
        self.reader.hardware(Instant::now())
    }

    fn fault(&mut self, faults: &Faults) -> Reading {
        self.stage.set(faults).expect("faults");
        self.read()
    }

    /// Reads each time it is woken, until something holds.
    fn woken_until(&mut self, what: &str, holds: impl Fn(&Reading) -> bool) -> Reading {
        let deadline = Instant::now() + SOON;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            self.woken.recv_timeout(left).unwrap_or_else(|_| panic!("not woken for {what}"));
            let reading = self.read();
            if holds(&reading) {
                return reading;
            }
        }
    }
}

fn finding<'a>(reading: &'a Reading, kind: &str) -> &'a Finding {
    reading.findings.iter().find(|f| f.kind == kind).expect("a finding")
}

#[track_caller]
fn check(machine: &str, faults: &Faults, gpu: usize, health: GpuHealth, reason: &str) -> Reading {
    let mut bench = Bench::new(machine);
    let before = bench.read();
    assert_eq!(before.gpus[gpu].health, GpuHealth::Healthy, "{:?}", before.findings);
    let reading = bench.fault(faults);
    assert_eq!(reading.gpus[gpu].health, health, "{:?}", reading.gpus[gpu]);
    assert_eq!(reading.gpus[gpu].reasons, [reason], "{:?}", reading.gpus[gpu]);
    for (i, other) in reading.gpus.iter().enumerate().filter(|(i, _)| *i != gpu) {
        assert_eq!(other.health, GpuHealth::Healthy, "GPU {i}: {other:?}");
    }
    reading
}

#[test]
fn a_lost_gpu_keeps_its_name_and_its_place() {
    for faults in [
        Faults { lost: vec![2], ..Faults::default() },
        Faults { gone: vec![2], ..Faults::default() },
    ] {
        let reading = check("dgx-h100", &faults, 2, GpuHealth::Lost, "GpuLost");
        let gpu = &reading.hardware.gpus[2];
        assert_eq!(gpu.pci, "0000:52:00.0");
        assert!(gpu.uuid.is_some() && gpu.index.is_none(), "{gpu:?}");
        assert_eq!(reading.gpus[2].recovery, Recovery::RebootNode);
        assert_eq!(reading.hardware.gpus.len(), 8);
        let link = |a, b| reading.hardware.links.iter().find(|l| (l.a, l.b) == (a, b)).unwrap();
        assert_eq!((link(1, 2).nvlinks, link(1, 2).path), (0, PciPath::NODE));
        assert_eq!(link(1, 3).nvlinks, 18);
        let healthy = finding(&reading, node_condition::GPUS_HEALTHY);
        assert_eq!((healthy.holds, healthy.reason), (Some(false), "GpuLost"));
        assert_eq!(healthy.message, "GPU 2 (0000:52:00.0): Lost GpuLost");
        assert!(finding(&reading, node_condition::NVML_AVAILABLE).holds.unwrap());
    }
}

#[test]
fn a_gpu_that_is_lost_wakes() {
    let mut bench = Bench::new("l40s");
    bench.read();
    bench.stage.set(&Faults { lost: vec![3], ..Faults::default() }).unwrap();
    let reading = bench.woken_until("the loss", |r| r.gpus[3].health == GpuHealth::Lost);
    assert_eq!(finding(&reading, node_condition::GPUS_HEALTHY).reason, "GpuLost");
    let back = bench.fault(&Faults::default());
    assert_eq!(back.gpus[3].health, GpuHealth::Healthy, "it is back");
}

/// The library says that some GPU is lost where it would tell an event.
#[test]
fn the_loss_of_one_gpu_does_not_hide_what_happens_to_others() {
    let mut bench = Bench::new("b200");
    bench.read();
    let lost = Faults { lost: vec![3], ..Faults::default() };
    bench.stage.set(&lost).unwrap();
    bench.woken_until("the loss", |r| r.gpus[3].health == GpuHealth::Lost);
    let xids = vec![Xid { gpu: 1, xid: 79, instance: None }];
    bench.stage.set(&Faults { xids, ..lost }).unwrap();
    let began = Instant::now();
    bench.woken_until("XID 79", |r| r.gpus[1].health == GpuHealth::Unhealthy);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn links_that_go_down_are_a_class_of_their_own() {
    let faults = Faults { links_down: [(1, vec![17])].into(), ..Faults::default() };
    let reading = check("dgx-h100", &faults, 1, GpuHealth::Degraded, "NvlinksDown:17/18");
    let link = |a, b| reading.hardware.links.iter().find(|l| (l.a, l.b) == (a, b)).unwrap();
    assert_eq!(link(0, 1).nvlinks, 17);
    assert_eq!(link(0, 2).nvlinks, 18);
    assert_eq!(finding(&reading, node_condition::FABRIC_READY).holds, Some(false));
    // Degraded is not unhealthy.
    assert_eq!(finding(&reading, node_condition::GPUS_HEALTHY).holds, Some(true));
}

/// Without switches both ends of a link have fewer than before.
#[test]
fn a_direct_link_goes_down_at_both_ends() {
    let mut bench = Bench::new("dgx-1v");
    bench.read();
    let reading = bench.fault(&Faults { links_down: [(0, vec![2])].into(), ..Faults::default() });
    let reasons: Vec<_> = reading.gpus.iter().map(|gpu| gpu.reasons.join(",")).collect();
    let down = "NvlinksDown:5/6";
    assert_eq!(reasons, [down, "", "", down, "", "", "", ""]);
    let pair = reading.hardware.links.iter().find(|l| (l.a, l.b) == (0, 3)).unwrap();
    assert_eq!(pair.nvlinks, 1);
}

#[test]
fn what_the_driver_wants_done_makes_a_gpu_unfit() {
    let faults = Faults { recovery: [(3, 1)].into(), ..Faults::default() };
    let reading = check("b200", &faults, 3, GpuHealth::Unhealthy, "RecoveryAction:ResetGpu");
    assert_eq!(reading.gpus[3].recovery, Recovery::ResetGpu);
    let faults = Faults { remap: [(3, true)].into(), ..Faults::default() };
    check("b200", &faults, 3, GpuHealth::Unhealthy, "RowRemapFailed");
    let faults = Faults { remap: [(3, false)].into(), ..Faults::default() };
    let reading = check("b200", &faults, 3, GpuHealth::Degraded, "RowRemapPending");
    assert_eq!(reading.gpus[3].recovery, Recovery::ResetGpu);
    let faults = Faults { ecc: [(3, 2)].into(), ..Faults::default() };
    let reading = check("b200", &faults, 3, GpuHealth::Healthy, "EccUncorrected:2");
    assert_eq!(reading.gauges[3].ecc_uncorrected, Some(2));
}

#[test]
fn a_gpu_off_the_fabric_is_degraded() {
    let fabric = Fabric { state: 2, ..Fabric::default() };
    let faults = Faults { fabric: [(0, fabric)].into(), ..Faults::default() };
    let reading = check("gb200", &faults, 0, GpuHealth::Degraded, "FabricInProgress");
    let fabric = reading.hardware.gpus[0].fabric.as_ref().unwrap();
    assert_eq!(fabric.state, FabricState::InProgress);
    assert_eq!(reading.hardware.domain, None, "the GPUs do not agree");
    // Its links are up, and lead nowhere.
    assert_eq!(reading.hardware.gpus[0].nvlinks.unwrap().active, 18);
    assert!(reading.hardware.links.iter().all(|l| (l.nvlinks > 0) == (l.a != 0)));
}

#[test]
fn an_xid_wakes_and_counts_until_the_driver_wants_nothing_more() {
    let mut bench = Bench::new("b200");
    bench.read();
    let harmless = Xid { gpu: 1, xid: 31, instance: None };
    let bad = Xid { gpu: 1, xid: 79, instance: None };
    bench.stage.set(&Faults { xids: vec![harmless, bad], ..Faults::default() }).unwrap();
    let reading = bench.woken_until("XID 79", |r| r.gpus[1].health == GpuHealth::Unhealthy);
    assert_eq!(reading.gpus[1].reasons, ["XID79"]);
    assert_eq!(reading.gauges[1].xids, 2);
    assert_eq!(finding(&reading, node_condition::GPUS_HEALTHY).reason, "GpuUnhealthy");
    let later = Instant::now() + Duration::from_secs(61);
    let reading = bench.reader.hardware(later);
    assert_eq!(reading.gpus[1].health, GpuHealth::Healthy, "{:?}", reading.gpus[1]);
}

/// Where the driver does not tell, nothing says that it is over.
#[test]
fn an_xid_counts_for_ever_on_an_old_driver() {
    let mut bench = Bench::new("dgx-a100");
    bench.read();
    let xids = vec![Xid { gpu: 0, xid: 48, instance: None }];
    bench.stage.set(&Faults { xids, ..Faults::default() }).unwrap();
    bench.woken_until("XID 48", |r| r.gpus[0].health == GpuHealth::Unhealthy);
    let reading = bench.reader.hardware(Instant::now() + Duration::from_secs(3600));
    assert_eq!(reading.gpus[0].health, GpuHealth::Unhealthy);
}

#[test]
fn an_xid_of_a_part_spares_the_others() {
    let mut bench = Bench::new("mig");
    let before = bench.read();
    let parts = &before.hardware.gpus[1].mig.as_ref().unwrap().devices;
    let part = parts.iter().find(|p| p.gpu_instance == 5).unwrap().uuid.clone();
    let xids = vec![Xid { gpu: 1, xid: 94, instance: Some(5) }];
    bench.stage.set(&Faults { xids, ..Faults::default() }).unwrap();
    let reading = bench.woken_until("XID 94", |r| !r.gpus[1].unhealthy_mig_devices.is_empty());
    assert_eq!(reading.gpus[1].unhealthy_mig_devices, [part]);
    assert_eq!(reading.gpus[1].health, GpuHealth::Healthy);
}

#[test]
fn another_division_wakes() {
    let mut bench = Bench::new("mig");
    let before = bench.read();
    let device = MigDevice { profile: "3g.20gb".to_owned(), instance: 2, start: 4 };
    let mig = Mig { enabled: true, devices: vec![device] };
    bench.stage.set(&Faults { mig: [(2, mig)].into(), ..Faults::default() }).unwrap();
    let divided = |r: &Reading| r.hardware.gpus[2].mig.as_ref().unwrap().devices.len() == 1;
    let reading = bench.woken_until("the division", divided);
    let device = &reading.hardware.gpus[2].mig.as_ref().unwrap().devices[0];
    assert_eq!((device.profile.as_str(), device.placement.unwrap().start), ("3g.20gb", 4));
    assert_ne!(reading.hardware.hash, before.hardware.hash);
}

/// The functions that came last; a driver of 2021 has none of them.
#[test]
fn an_old_driver_lacks_functions_and_nothing_else() {
    let mut bench = Bench::without(
        "dgx-1v",
        &[
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetModuleId",
            "nvmlDeviceGetPlatformInfo",
            "nvmlDeviceGetNumaNodeId",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlEventSetWait_v2",
            "nvmlShutdown",
        ],
    );
    let reading = bench.read();
    assert_eq!(reading.hardware.gpus[0].memory_bytes, 32_510 << 20);
    let pair = reading.hardware.links.iter().find(|l| (l.a, l.b) == (0, 3)).unwrap();
    assert_eq!(pair.nvlinks, 2);
    assert!(reading.gpus.iter().all(|gpu| gpu.health == GpuHealth::Healthy), "{:?}", reading.gpus);
    let nvml = finding(&reading, node_condition::NVML_AVAILABLE);
    assert_eq!(nvml.holds, Some(true));
    assert!(
        nvml.message.contains("the driver lacks nvmlDeviceGetComputeRunning"),
        "{}",
        nvml.message
    );
}

#[test]
fn slow_calls_hold_nobody_up() {
    let mut bench = Bench::new("l40s");
    let before = bench.read();
    let delays = [("*".to_owned(), 600)].into();
    bench.stage.set(&Faults { delays, ..Faults::default() }).unwrap();
    let began = Instant::now();
    let reading = bench.read();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(reading.hardware, before.hardware);
    let nvml = finding(&reading, node_condition::NVML_AVAILABLE);
    assert_eq!((nvml.holds, nvml.reason), (Some(true), "Slow"), "{}", nvml.message);
    // What has once kept the reader waiting does not do so again, and says the same: no write of the object.
    let began = Instant::now();
    assert_eq!(bench.read().findings, reading.findings);
    assert!(!bench.reader.differs(), "no quick look while the driver is busy");
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

#[test]
fn a_slow_driver_is_known_at_a_glance() {
    let mut bench = Bench::new("l40s");
    bench.read();
    assert!(!bench.reader.differs());
    let delays = [("*".to_owned(), 600)].into();
    bench.stage.set(&Faults { delays, ..Faults::default() }).unwrap();
    let began = Instant::now();
    assert!(bench.reader.differs());
    let reading = bench.read();
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    let nvml = finding(&reading, node_condition::NVML_AVAILABLE);
    assert_eq!((nvml.holds, nvml.reason), (Some(true), "Slow"), "{}", nvml.message);
}

/// It would do nothing else.
#[test]
fn a_slow_driver_may_rest() {
    let mut bench = Bench::new("l40s");
    bench.read();
    // Rows that wait are a reason to ask everything: some hundred calls, two or three seconds.
    let delays = [("*".to_owned(), 20)].into();
    let remap = [(1, false)].into();
    bench.stage.set(&Faults { delays, remap, ..Faults::default() }).unwrap();
    let reading = bench.read();
    assert_eq!(finding(&reading, node_condition::NVML_AVAILABLE).reason, "Slow");
    let reading = bench.woken_until("the answer", |r| r.gpus[1].health == GpuHealth::Degraded);
    assert_eq!(finding(&reading, node_condition::NVML_AVAILABLE).reason, "Slow");
    // Now it rests, and what it said is said again at once.
    bench.stage.set(&Faults::default()).unwrap();
    let began = Instant::now();
    assert_eq!(bench.read().gpus[1].health, GpuHealth::Degraded);
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    // An event ends its rest.
    let mig = Mig { enabled: false, devices: Vec::new() };
    bench.stage.set(&Faults { mig: [(0, mig)].into(), ..Faults::default() }).unwrap();
    let reading = bench.woken_until("news", |r| r.gpus[1].health == GpuHealth::Healthy);
    assert_eq!(finding(&reading, node_condition::NVML_AVAILABLE).reason, "Answers");
}

#[test]
fn a_driver_that_hangs_is_a_condition() {
    let mut bench = Bench::new("l40s");
    let before = bench.read();
    let delays = [("nvmlDeviceGetPowerUsage".to_owned(), 9_000)].into();
    bench.stage.set(&Faults { delays, ..Faults::default() }).unwrap();
    let deadline = Instant::now() + SOON;
    let reading = loop {
        let reading = bench.read();
        if finding(&reading, node_condition::NVML_AVAILABLE).holds == Some(false) {
            break reading;
        }
        assert!(Instant::now() < deadline, "{:?}", reading.findings);
    };
    let nvml = finding(&reading, node_condition::NVML_AVAILABLE);
    assert_eq!(nvml.reason, "NoAnswer");
    assert!(
        nvml.message.starts_with("nvmlDeviceGetPowerUsage has not come back for over 5 s"),
        "{}",
        nvml.message
    );
    assert_eq!(reading.hardware.gpus, before.hardware.gpus, "GPUs are as they were");
    // The call comes back at last, and says so.
    bench.stage.set(&Faults::default()).unwrap();
    bench.woken_until("the answer", |r| {
        let nvml = finding(r, node_condition::NVML_AVAILABLE);
        // It took long, so the driver may rest.
        nvml.message.starts_with("4 GPU(s), driver 550.54.15") && nvml.reason == "Slow"
    });
}

/// As after an update of the driver: the library is loaded anew.
#[test]
fn a_library_that_fails_is_loaded_again() {
    let mut bench = Bench::new("l40s");
    let before = bench.read();
    let errors = [("nvmlDeviceGetCount_v2".to_owned(), 18)].into();
    let reading = bench.fault(&Faults { errors, ..Faults::default() });
    let nvml = finding(&reading, node_condition::NVML_AVAILABLE);
    assert_eq!((nvml.holds, nvml.reason), (Some(false), "Unavailable"));
    assert!(nvml.message.contains("reboot, or reload the kernel module"), "{}", nvml.message);
    assert_eq!(reading.gpus[0].health, GpuHealth::Unknown);
    assert_eq!(reading.hardware.gpus[0].uuid, before.hardware.gpus[0].uuid, "its name is kept");
    let reading = bench.fault(&Faults::default());
    assert_eq!(reading.hardware, before.hardware);
}

#[test]
fn work_is_seen() {
    let mut bench = Bench::new("b200");
    assert_eq!(bench.read().gpus[0].activity, Activity::Idle);
    let faults =
        Faults { utilisation: [(0, 97)].into(), processes: [(0, 2)].into(), ..Faults::default() };
    let reading = bench.fault(&faults);
    assert_eq!(reading.gpus[0].activity, Activity::Busy);
    assert_eq!(reading.gpus[0].processes, Some(2));
    assert_eq!(reading.gauges[0].utilisation_percent, Some(97));
    assert_eq!(reading.gauges[0].power_milliwatts, Some(555_000));
    // A pause changes nothing.
    let reading = bench.fault(&Faults::default());
    assert_eq!(reading.gpus[0].activity, Activity::Busy);
}

/// Whoever writes the object compares: what has not changed must be equal.
#[test]
fn two_readings_of_one_state_are_equal() {
    for name in ["dgx-1v", "mig", "no-driver"] {
        let mut bench = Bench::new(name);
        assert_eq!(bench.read(), bench.read(), "{name}");
    }
}

/// Two ways to know how near two GPUs are: the driver's and sysfs'.
#[test]
fn sysfs_and_the_driver_agree_on_distances() {
    for name in files::NAMES {
        let dir = tempfile::tempdir().unwrap();
        let stage = Stage::build(name, dir.path()).unwrap();
        let read = |library| {
            let sources = Sources {
                sysfs_root: stage.sysfs(),
                proc_root: stage.procfs(),
                nvml_library: Some(library),
            };
            let reading = Reader::once(sources).unwrap();
            reading.hardware.links.iter().map(|l| (l.a, l.b, l.path)).collect::<Vec<_>>()
        };
        assert_eq!(read(stage.library()), read(dir.path().join("none")), "{name}");
    }
}
