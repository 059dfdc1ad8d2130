//! What the rest of the agent gets to know of the hardware: one [`Reading`] per call.
//!
//! Owns the seam between reading the hardware and reporting it. Must never hold a clock
//! (times of conditions are the reporter's) and never fail: what cannot be read is a
//! [`Finding`].

use muster_api::muster::node_topology::{GpuState, Hardware};

/// All that one look at the hardware tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The hardware part of the object, with its hash.
    pub hardware: Hardware,
    /// `status.gpus`: health and activity, in the order of `hardware.gpus`.
    pub gpus: Vec<GpuState>,
    /// Conditions of the hardware, one per type, always the same types in the same order.
    pub findings: Vec<Finding>,
    /// Numbers for metrics, in the order of `hardware.gpus`. They never enter the object.
    pub gauges: Vec<GpuGauges>,
}

impl Reading {
    /// Whether another reading says anything else but for the numbers that only metrics show.
    pub fn is_news(&self, other: &Self) -> bool {
        self.hardware != other.hardware
            || self.gpus != other.gpus
            || self.findings != other.findings
    }
}

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One of `muster_api::muster::node_topology::node_condition`.
    pub kind: &'static str,
    /// `None`: not known.
    pub holds: Option<bool>,
    /// One word.
    pub reason: &'static str,
    /// For people; at most [`MAX_MESSAGE`] bytes.
    pub message: String,
}

/// Longest message of a finding, in bytes.
pub const MAX_MESSAGE: usize = muster_api::muster::MAX_MESSAGE;

impl Finding {
    /// The status of the condition.
    pub fn status(&self) -> &'static str {
        match self.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// Numbers of one GPU that change all the time. What the driver does not say is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuGauges {
    pub uuid: Option<String>,
    pub index: Option<u32>,
    pub pci: String,
    /// Neither lost nor unhealthy, as far as known.
    pub healthy: bool,
    /// Share of time in which a kernel ran, 0 to 100.
    pub utilisation_percent: Option<u32>,
    pub memory_used_bytes: Option<u64>,
    pub power_milliwatts: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub nvlinks_active: Option<u32>,
    pub nvlinks_total: Option<u32>,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// XID events seen since the agent was started, those included that do no harm.
    pub xids: u64,
}
