//! Faults of the hardware and of devices, one by one, while the agent runs.

use anyhow::{Context, Result, ensure};
use muster_machines::faults::Xid;
use muster_machines::{Faults, Mig, MigDevice};
use serde_json::Value;

use crate::support::{Cluster, GPU, Node, PROMPT, SOON, condition, device};

/// Health of a GPU.
fn health(object: &Value, gpu: usize) -> &str {
    object["status"]["gpus"][gpu]["health"].as_str().unwrap_or_default()
}

fn healthy(object: &Value) -> bool {
    condition(object, "GpusHealthy") == "True"
        && condition(object, "FabricReady") == "True"
        && condition(object, "NvmlAvailable") == "True"
}

/// The reason of a condition.
fn reason<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|c| c["type"] == kind);
    found.and_then(|c| c["reason"].as_str()).unwrap_or_default()
}

type Right = fn(&Value) -> bool;

/// Faults that end when the cause does, and what the object says meanwhile.
fn passing() -> Vec<(&'static str, Faults, Right)> {
    vec![
        ("a GPU is lost", Faults { lost: vec![3], ..Faults::default() }, |o| {
            health(o, 3) == "Lost" && condition(o, "GpusHealthy") == "False"
        }),
        (
            "a link is down",
            Faults { links_down: [(1, vec![0, 5])].into(), ..Faults::default() },
            |o| health(o, 1) == "Degraded" && condition(o, "FabricReady") == "False",
        ),
        (
            "memory errors wait for a reset",
            Faults { remap: [(5, true)].into(), ..Faults::default() },
            |o| health(o, 5) == "Unhealthy",
        ),
        (
            "the driver asks for a reset",
            Faults { recovery: [(6, 1)].into(), ..Faults::default() },
            |o| o["status"]["gpus"][6]["recovery"] == "ResetGpu",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_in_the_object_within_two_seconds() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut node = Node::new(&cluster, "b200").await?;
    node.start(&cluster, &[])?;
    let (first, _) = node.until(&cluster, "healthy", SOON, healthy).await?;
    for (what, faults, right) in passing() {
        node.set(&faults)?;
        let (_, came) = node.until(&cluster, what, PROMPT, right).await?;
        node.set(&Faults::default())?;
        let (_, went) = node.until(&cluster, "healthy again", PROMPT, healthy).await?;
        eprintln!("{what}: seen after {came:.1?}, its end after {went:.1?}");
    }

    eprintln!("a GPU falls off, and the others move up in the driver's count");
    node.set(&Faults { gone: vec![2], ..Faults::default() })?;
    let lost = |o: &Value| {
        let gpus = o["status"]["gpus"].as_array().map(Vec::as_slice).unwrap_or_default();
        gpus.len() == 8 && gpus.iter().filter(|g| g["health"] == "Lost").count() == 1
    };
    node.until(&cluster, "seven of eight", PROMPT, lost).await?;
    node.set(&Faults::default())?;
    node.until(&cluster, "healthy again", PROMPT, healthy).await?;

    eprintln!("a port of a NIC is down");
    let nics = node.stage.sysfs().join("class/infiniband");
    let nic = std::fs::read_dir(&nics)?.next().context("a NIC")??.file_name();
    let port = nics.join(&nic).join("ports/1/state");
    std::fs::write(&port, "1: DOWN\n")?;
    let is = |o: &Value, state: &str| {
        let all = o["hardware"]["nics"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter()
            .any(|own| nic == *own["name"].as_str().unwrap_or_default() && own["state"] == state)
    };
    let (_, came) = node.until(&cluster, "down", PROMPT, |o| is(o, "Down")).await?;
    std::fs::write(&port, "4: ACTIVE\n")?;
    node.until(&cluster, "active again", PROMPT, |o| is(o, "Active")).await?;
    eprintln!("seen after {came:.1?}");

    eprintln!("an XID comes by an event, and stays");
    let mut xids = vec![Xid { gpu: 4, xid: 79, instance: None }];
    node.set(&Faults { xids: xids.clone(), ..Faults::default() })?;
    let told = |o: &Value, gpu: usize| {
        let reasons = o["status"]["gpus"][gpu]["reasons"].to_string();
        health(o, gpu) == "Unhealthy" && reasons.contains("79")
    };
    let (_, took) = node.until(&cluster, "told", PROMPT, |o| told(o, 4)).await?;
    eprintln!("after {took:.1?}");

    eprintln!(
        "each call takes 600 ms, and that holds up nothing else: the kubelet's news, and events"
    );
    let slow = |xids: &[Xid]| Faults {
        delays: [("*".to_owned(), 600)].into(),
        xids: xids.to_vec(),
        ..Faults::default()
    };
    node.set(&slow(&xids))?;
    let known = |o: &Value| {
        reason(o, "NvmlAvailable") == "Slow" && (0..8).all(|i| i == 4 || health(o, i) == "Healthy")
    };
    let (_, took) = node.until(&cluster, "slow", PROMPT, known).await?;
    eprintln!("known after {took:.1?}");
    let id = node.uuids()[0].clone();
    node.kubelet.unhealthy(GPU, &id)?;
    let broken = |o: &Value| device(o, &id) == "Unhealthy" && known(o);
    let (_, took) = node.until(&cluster, "the kubelet's news", PROMPT, broken).await?;
    eprintln!("the kubelet's news after {took:.1?}");
    xids.push(Xid { gpu: 6, xid: 79, instance: None });
    node.set(&slow(&xids))?;
    let (_, took) = node.until(&cluster, "the other XID", PROMPT, |o| told(o, 6)).await?;
    eprintln!("an XID after {took:.1?}");
    node.set(&Faults { xids, ..Faults::default() })?;
    node.kubelet.device(GPU, &id, &[0])?;
    let fine = |o: &Value| device(o, &id) == "Free" && told(o, 4) && told(o, 6);
    let (last, _) = node.until(&cluster, "all known", PROMPT, fine).await?;
    node.check_rest()?;
    let number = |o: &Value| o["status"]["sequence"].as_u64().unwrap_or_default();
    ensure!(number(&last) > number(&first), "the sequence rises");
    eprintln!("{} writes, none within a second of another", cluster.check_pace()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn mig_made_anew_is_seen_and_old_devices_are_forgotten() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut node = Node::new(&cluster, "mig").await?;
    node.start(&cluster, &[])?;
    let read = |o: &Value| condition(o, "PodResourcesAvailable") == "True";
    node.until(&cluster, "written", SOON, read).await?;
    let found = node.machine.reported().enumerate().find_map(|(i, gpu)| {
        let mig = gpu.mig.clone().filter(|mig| mig.devices.len() > 1)?;
        Some((i, gpu.clone(), mig))
    });
    let (index, gpu, mig) = found.expect("a divided GPU");
    let old = gpu.mig_uuid(&mig.devices[0]);
    let first = mig.devices[0].clone();
    let anew = MigDevice { instance: first.instance + 40, ..first };
    let id = gpu.mig_uuid(&anew);
    let mut devices = mig.devices.clone();
    devices[0] = anew;
    let index = u32::try_from(index)?;
    let faults = Faults {
        mig: [(index, Mig { enabled: true, devices: devices.clone() })].into(),
        ..Faults::default()
    };
    node.set(&faults)?;
    let resource = format!("nvidia.com/mig-{}", devices[0].profile.replace('+', "."));
    node.kubelet.unhealthy(&resource, &old)?;
    node.kubelet.device(&resource, &id, &[i64::from(gpu.numa)])?;
    let right = |o: &Value| {
        device(o, &id) == "Free"
            && device(o, &old).is_empty()
            && o["hardware"]["gpus"][index as usize]["mig"].to_string().contains(&id)
    };
    let (_, took) = node.until(&cluster, "divided anew", PROMPT, right).await?;
    eprintln!("after {took:.1?}");
    node.check_rest()?;
    cluster.check_pace()?;
    Ok(())
}

/// The functions that came last: what an older driver lacks is absent, and named.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_driver_is_told_of_within_two_seconds_of_the_start() -> Result<()> {
    let cluster = Cluster::start().await?;
    let mut node = Node::new(&cluster, "dgx-h100").await?;
    let lacking = ["nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetModuleId", "nvmlEventSetWait_v2"];
    node.stage.without(&lacking)?;
    node.start(&cluster, &[])?;
    let right = |o: &Value| {
        let words = o["status"]["conditions"].to_string();
        let gpus = o["hardware"]["gpus"].as_array().map(Vec::as_slice).unwrap_or_default();
        healthy(o)
            && lacking[..2].iter().all(|function| words.contains(function))
            && gpus.len() == 8
            && gpus.iter().all(|gpu| gpu["nvlinks"]["active"] == 18 && gpu["fabric"].is_null())
    };
    let (_, took) = node.until(&cluster, "written", PROMPT, right).await?;
    eprintln!("after {took:.1?}");

    eprintln!("without events a lost GPU is seen by a quick look");
    node.set(&Faults { lost: vec![3], ..Faults::default() })?;
    let (_, took) = node.until(&cluster, "lost", PROMPT, |o| health(o, 3) == "Lost").await?;
    eprintln!("after {took:.1?}");
    node.check_rest()?;
    cluster.check_pace()?;
    Ok(())
}
