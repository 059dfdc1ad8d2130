//! Machines for tests: a file says what a machine is, and from it come its sysfs and
//! procfs ([`tree`]) and what its NVML answers (crate `nvml-mock`).
//!
//! Owns the format of machine files and of fault files. Must never share code with the
//! agent: what both got wrong in the same way, no test would find.

pub mod faults;
pub mod files;
pub mod mock;
pub mod tree;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use faults::Faults;

/// A machine, as `files/*.yaml` have it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Machine {
    /// Where its facts are from.
    pub about: String,
    /// The driver's version; absent: no driver is loaded.
    pub driver: Option<String>,
    /// CPUs per core; CPU `i` shares a core with `i + CPUs / threads`.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// By id; ids may have holes.
    pub numa: Vec<Numa>,
    /// A row per NUMA node; absent: 10 on the diagonal, 20 beside it.
    #[serde(default)]
    pub distances: Vec<Vec<u32>>,
    /// What all GPUs are.
    #[serde(default)]
    pub model: Model,
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// How GPUs are connected beside PCI.
    #[serde(default)]
    pub nvlink: NvLink,
    /// What the fabric manager has told each GPU.
    pub fabric: Option<Fabric>,
    /// The rack that it stands in.
    pub platform: Option<Platform>,
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Other devices on the bus, which are of no interest.
    #[serde(default)]
    pub others: Vec<Other>,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Numa {
    pub id: u32,
    #[serde(default)]
    pub cpus: String,
    /// In GiB.
    pub memory: u64,
    #[serde(default)]
    pub socket: u32,
    /// CPUs by cache of the last level; absent: all of the NUMA node's.
    #[serde(default)]
    pub caches: Vec<String>,
    /// Pages by size in KiB.
    #[serde(default)]
    pub hugepages: BTreeMap<u64, u64>,
}

/// What GPUs of one kind have in common.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Model {
    pub name: String,
    /// PCI device id.
    pub device: u16,
    /// As `nvmlDeviceArchitecture_t`.
    pub architecture: u32,
    pub compute: (i32, i32),
    /// In MiB.
    pub memory: u64,
    /// Links of the chip, used or not.
    #[serde(default)]
    pub links: u32,
    /// Of one link in one direction, in MB/s.
    #[serde(default)]
    pub link_speed: u32,
    /// What it can be divided into.
    #[serde(default)]
    pub mig_profiles: Vec<MigProfile>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigProfile {
    /// As `NVML_GPU_INSTANCE_PROFILE_*`.
    pub index: u32,
    pub id: u32,
    pub name: String,
    pub slices: u32,
    /// In MiB.
    pub memory: u64,
    /// Memory slices that one takes.
    pub size: u32,
    pub starts: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gpu {
    /// Root complex, bridges and the GPU itself, separated by slashes.
    pub path: String,
    /// -1: the firmware does not say.
    pub numa: i32,
    /// The NUMA node that its memory is.
    pub memory_numa: Option<u32>,
    pub module: Option<u32>,
    /// The CPUs that NVML names; absent: those of its NUMA node.
    pub affinity: Option<String>,
    pub mig: Option<Mig>,
    /// On the bus, and not known to the driver.
    #[serde(default)]
    pub unreported: bool,
    /// None of its links is up.
    #[serde(default)]
    pub links_down: bool,
    pub fabric: Option<Fabric>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mig {
    pub enabled: bool,
    #[serde(default)]
    pub devices: Vec<MigDevice>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigDevice {
    /// The name of a profile of the model.
    pub profile: String,
    /// The id of its GPU instance; its compute instance is 0.
    pub instance: u32,
    pub start: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NvLink {
    /// Switches, and how many links each GPU has to each of them.
    #[serde(default)]
    pub switches: Vec<Switch>,
    /// GPU, GPU, links.
    #[serde(default)]
    pub direct: Vec<(u32, u32, u32)>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Switch {
    /// Empty: it is not on this machine's bus.
    #[serde(default)]
    pub pci: String,
    pub links: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fabric {
    /// A UUID, or empty.
    #[serde(default)]
    pub cluster: String,
    #[serde(default)]
    pub clique: u32,
    /// 0 not supported, 1 not started, 2 in progress, 3 completed.
    pub state: u8,
    /// NVML's return value.
    #[serde(default)]
    pub status: u32,
    /// 1 healthy, 2 unhealthy, 3 limited.
    #[serde(default)]
    pub health: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Platform {
    pub chassis: String,
    pub slot: u8,
    pub tray: u8,
    pub host: u8,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nic {
    pub path: String,
    pub numa: i32,
    /// The RDMA device.
    pub rdma: Option<String>,
    /// The network interface.
    pub interface: Option<String>,
    #[serde(default = "infiniband")]
    pub layer: String,
    /// In Gbit/s; 0: the port is down.
    #[serde(default)]
    pub rate: u32,
    /// Vendor and device, as in `15b3:1021`.
    pub id: String,
    /// A virtual function of the device at this address.
    pub physfn: Option<String>,
}

fn infiniband() -> String {
    "InfiniBand".to_owned()
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Other {
    pub path: String,
    pub class: String,
    pub id: String,
}

impl Machine {
    /// Reads a machine from the text of its file.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    /// The GPUs that the driver knows, in its order.
    pub fn reported(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| !gpu.unreported)
    }

    /// How many CPUs it has.
    #[must_use]
    pub fn cpu_count(&self) -> u32 {
        self.numa.iter().map(|n| cpus(&n.cpus).len() as u32).sum()
    }
}

impl Gpu {
    /// The last component of its path.
    #[must_use]
    pub fn address(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// A UUID that is the same in every run.
    #[must_use]
    pub fn uuid(&self) -> String {
        format!("GPU-{}", uuid(self.address()))
    }

    /// The UUID of a part.
    #[must_use]
    pub fn mig_uuid(&self, device: &MigDevice) -> String {
        format!("MIG-{}", uuid(&format!("{}/{}/0", self.address(), device.instance)))
    }
}

/// Some UUID for some text: FNV-1a, twice.
fn uuid(text: &str) -> String {
    let hash = |seed: u64| {
        text.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        })
    };
    let hex = format!("{:016x}{:016x}", hash(1), hash(2));
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The CPUs of a list like `0-3,8`.
///
/// # Panics
///
/// If the list is malformed: machine files are written by hand, for tests.
#[must_use]
pub fn cpus(list: &str) -> Vec<u32> {
    let number = |text: &str| text.parse::<u32>().expect("a number in a list of CPUs");
    let range = |part: &str| match part.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None => number(part)..=number(part),
    };
    list.split(',').filter(|part| !part.is_empty()).flat_map(range).collect()
}
