//! Conditions of the hardware, in words.

use std::time::Duration;

use muster_api::muster::node_topology::{GpuHealth, GpuState, Hardware, node_condition};

use crate::nvml::Outlook;
use crate::pci::PciDevice;
use crate::reading::{Finding, MAX_MESSAGE};

/// A call that takes longer than this has hung.
const HUNG: Duration = Duration::from_secs(5);

/// What findings are made of.
pub(crate) struct Facts<'a> {
    pub(crate) notes: &'a [String],
    pub(crate) devices: &'a [PciDevice],
    pub(crate) outlook: &'a Outlook,
    /// What the kernel says of NVIDIA's driver, if it is loaded.
    pub(crate) kernel_driver: Option<String>,
    pub(crate) hardware: &'a Hardware,
    pub(crate) gpus: &'a [GpuState],
}

/// One per type, always in this order.
pub(crate) fn all(facts: &Facts<'_>) -> Vec<Finding> {
    vec![hardware_read(facts), nvml_available(facts), gpus_healthy(facts), fabric_ready(facts)]
}

fn finding(
    kind: &'static str,
    holds: Option<bool>,
    reason: &'static str,
    message: impl Into<String>,
) -> Finding {
    let mut message = message.into();
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE - 3).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    Finding { kind, holds, reason, message }
}

/// A time in words that change seldom, because each change is a write of the object.
fn over(time: Duration) -> &'static str {
    match time.as_secs() {
        ..60 => "over 5 s",
        60..600 => "over a minute",
        600..3600 => "over 10 minutes",
        3600..86_400 => "over an hour",
        _ => "over a day",
    }
}

fn hardware_read(facts: &Facts<'_>) -> Finding {
    let kind = node_condition::HARDWARE_READ;
    match facts.notes {
        [] => finding(kind, Some(true), "Read", "everything was read"),
        notes => finding(kind, Some(false), "Incomplete", notes.join("\n")),
    }
}

fn nvml_available(facts: &Facts<'_>) -> Finding {
    let kind = node_condition::NVML_AVAILABLE;
    let on_bus = facts.devices.iter().filter(|d| d.is_nvidia_gpu()).count();
    if let Some((call, time)) = facts.outlook.pending.filter(|(_, time)| *time >= HUNG) {
        let text =
            format!("{call} has not come back for {}; look for Xid lines in dmesg", over(time));
        return finding(kind, Some(false), "NoAnswer", text);
    }
    match &facts.outlook.answer {
        Ok(snapshot) => {
            let mut text = format!(
                "{} GPU(s), driver {}",
                snapshot.gpus.len(),
                snapshot.driver.as_deref().unwrap_or("unknown")
            );
            if facts.outlook.slow {
                text += "; it is slow, so it is seldom asked: GPUs may be otherwise than shown, and only events are \
                    prompt; switch on persistence mode (nvidia-persistenced)";
            }
            if !snapshot.missing.is_empty() {
                text += &format!("; the driver lacks {}", snapshot.missing.join(", "));
            }
            for problem in &snapshot.problems {
                text += &format!("\n{problem}");
            }
            finding(kind, Some(true), if facts.outlook.slow { "Slow" } else { "Answers" }, text)
        }
        Err(_) if on_bus == 0 => finding(kind, Some(true), "NoGpu", "no NVIDIA GPU on the PCI bus"),
        Err(reason) => {
            let driver = match &facts.kernel_driver {
                Some(line) => format!("the kernel driver is loaded ({line})"),
                None => "the kernel driver is not loaded".to_owned(),
            };
            let text = format!("{on_bus} NVIDIA GPU(s) on the PCI bus; {driver}; NVML: {reason}");
            finding(kind, Some(false), "Unavailable", text)
        }
    }
}

/// `GPU 2 (0000:52:00.0): XID79`, one per line.
fn list(facts: &Facts<'_>, wanted: impl Fn(&GpuState) -> bool) -> Vec<String> {
    let named = facts.gpus.iter().enumerate().filter(|(_, gpu)| wanted(gpu));
    let line = |(i, gpu): (usize, &GpuState)| {
        format!("GPU {i} ({}): {} {}", gpu.pci, gpu.health, gpu.reasons.join(", "))
    };
    named.map(line).collect()
}

fn gpus_healthy(facts: &Facts<'_>) -> Finding {
    let kind = node_condition::GPUS_HEALTHY;
    if facts.gpus.is_empty() {
        return finding(kind, Some(true), "NoGpu", "no GPU");
    }
    let bad = |gpu: &GpuState| {
        gpu.health >= GpuHealth::Unhealthy || !gpu.unhealthy_mig_devices.is_empty()
    };
    let lines = list(facts, bad);
    if !lines.is_empty() {
        let lost = facts.gpus.iter().any(|gpu| gpu.health == GpuHealth::Lost);
        let reason = if lost { "GpuLost" } else { "GpuUnhealthy" };
        return finding(kind, Some(false), reason, lines.join("\n"));
    }
    if facts.gpus.iter().all(|gpu| gpu.health == GpuHealth::Unknown) {
        return finding(kind, None, "NotKnown", "no driver tells how the GPUs are");
    }
    finding(kind, Some(true), "AllHealthy", format!("{} GPU(s)", facts.gpus.len()))
}

fn fabric_ready(facts: &Facts<'_>) -> Finding {
    let kind = node_condition::FABRIC_READY;
    let untold = facts.gpus.iter().any(|gpu| gpu.health == GpuHealth::Unknown);
    if facts.outlook.answer.is_err() && untold {
        return finding(kind, None, "NotKnown", "no driver tells of links");
    }
    if facts.hardware.gpus.iter().all(|gpu| gpu.nvlinks.is_none()) {
        return finding(kind, Some(true), "NoNvlink", "no GPU with NVLink");
    }
    let off = |gpu: &GpuState| {
        gpu.reasons.iter().any(|r| r.starts_with("NvlinksDown") || r.starts_with("Fabric"))
    };
    let lines = list(facts, off);
    if lines.is_empty() {
        finding(kind, Some(true), "Whole", "every GPU that answers has its links")
    } else {
        finding(kind, Some(false), "Degraded", lines.join("\n"))
    }
}
