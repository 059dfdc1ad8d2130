//! GPUs, accelerators and NICs on the PCI bus.
//!
//! Owns `bus/pci/devices` of sysfs. Must never turn an unknown NUMA node (-1, usual in virtual
//! machines) into node 0.

use std::fmt;
use std::path::Path;

use muster_api::muster::node_topology::{PciPath, PciSwitch};

use crate::cpulist::{self, CpuList};
use crate::sysfs::{Error, Tree, noted, plain};

pub(crate) const DEVICES: &str = "bus/pci/devices";
const AMD: u16 = 0x1002;
const INTEL: u16 = 0x8086;
const NVIDIA: u16 = 0x10de;
/// Longest name of a root complex.
const MAX_ROOT: usize = 32;
/// Most devices of interest that are read.
const MAX_DEVICES: usize = 1024;
/// What a device of the third generation with 16 lanes carries, in MB/s, by NCCL's table.
const GEN3_X16: u64 = 12_000;

/// A device of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    pub address: Address,
    pub kind: Kind,
    /// `None`: the firmware does not say.
    pub numa: Option<u32>,
    pub vendor: u16,
    pub device: u16,
    /// A virtual function: a part of another device.
    pub is_virtual: bool,
    /// CPUs beside it, as sysfs writes them; empty if not known.
    pub local_cpus: String,
    /// What its slot can carry in one direction, in MB/s; `None` if sysfs does not say.
    pub megabytes_per_second: Option<u32>,
    pub path: BusPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gpu,
    Accelerator,
    Ethernet,
    InfiniBand,
    Network,
}

impl Kind {
    /// From the class code (base class, subclass, interface); `None` for what is of no interest.
    fn of(class: u32, vendor: u16) -> Option<Self> {
        match class >> 8 {
            0x0302 => Some(Self::Gpu),
            // Also the class of the screens of management controllers and virtual machines.
            0x0300 if vendor == NVIDIA => Some(Self::Gpu),
            0x0380 if [AMD, INTEL, NVIDIA].contains(&vendor) => Some(Self::Gpu),
            0x1200..=0x12ff => Some(Self::Accelerator),
            0x0200 => Some(Self::Ethernet),
            0x0207 => Some(Self::InfiniBand),
            0x0201..=0x02ff => Some(Self::Network),
            _ => None,
        }
    }

    pub fn is_nic(self) -> bool {
        !matches!(self, Self::Gpu | Self::Accelerator)
    }
}

impl PciDevice {
    pub fn is_nvidia_gpu(&self) -> bool {
        self.kind == Kind::Gpu && self.vendor == NVIDIA
    }

    /// Vendor and device, as in `10de:2330`.
    pub fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// The way to another device.
    pub fn way_to(&self, other: &Self) -> PciPath {
        self.path.way_to(&other.path).unwrap_or(match (self.numa, other.numa) {
            (Some(a), Some(b)) if a == b => PciPath::NODE,
            _ => PciPath::SYS,
        })
    }
}

/// From the root complex (`pci0000:00`) over the bridges to the device itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusPath(Vec<String>);

impl BusPath {
    /// Drops what comes before the root complex: `devices`, and on Hyper-V and ARM the firmware's
    /// nodes.
    pub fn new(resolved: &Path) -> Self {
        let all: Vec<_> = resolved.iter().map(|c| c.to_string_lossy().into_owned()).collect();
        let is_root = |c: &String| c.strip_prefix("pci").is_some_and(|rest| rest.contains(':'));
        let start = all.iter().position(is_root).unwrap_or(0);
        Self(all[start..].to_vec())
    }

    /// The root complex.
    pub fn root(&self) -> &str {
        self.0.first().and_then(|root| plain(root, MAX_ROOT)).unwrap_or_default()
    }

    /// Bridges between the root complex and the device: the root port first.
    fn bridges(&self) -> &[String] {
        self.0.get(1..self.0.len().saturating_sub(1)).unwrap_or_default()
    }

    /// Upstream ports of switches, the highest first: below the root port, upstream and
    /// downstream ports take turns.
    fn switches(&self) -> impl DoubleEndedIterator<Item = String> {
        let ports = self.bridges().iter().skip(1).step_by(2);
        ports.filter_map(|port| Address::parse(port)).map(|port| port.to_string())
    }

    /// The switch right above the device.
    pub fn switch(&self) -> Option<String> {
        self.switches().next_back()
    }

    /// The way to another device, if they meet below the CPU.
    fn way_to(&self, other: &Self) -> Option<PciPath> {
        let shared = self.0.iter().zip(&other.0).take_while(|(a, b)| a == b).count();
        // Bridges of each below the last one that they share.
        let below = |path: &Self| (path.0.len().saturating_sub(1)).saturating_sub(shared);
        match shared {
            0 => None,
            1 => Some(PciPath::PHB),
            // A downstream port each, of one switch: it counts as one bridge.
            _ if below(self) <= 1 && below(other) <= 1 => Some(PciPath::PIX),
            _ => Some(PciPath::PXB),
        }
    }
}

/// The switches above devices, by address.
pub fn switches<'a>(devices: impl Iterator<Item = &'a PciDevice>) -> Vec<PciSwitch> {
    let mut found: Vec<PciSwitch> = Vec::new();
    for device in devices {
        let mut parent = None;
        for pci in device.path.switches() {
            if !found.iter().any(|switch| switch.pci == pci) {
                found.push(PciSwitch {
                    pci: pci.clone(),
                    root: device.path.root().to_owned(),
                    parent: parent.clone(),
                    numa: device.numa,
                });
            }
            parent = Some(pci);
        }
    }
    found.sort_by_key(|switch| (Address::parse(&switch.pci), switch.pci.clone()));
    found
}

/// A PCI address, ordered as the bus is. The domain may exceed 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub function: u32,
}

impl Address {
    /// `0000:07:00.0`, or NVML's `00000000:07:00.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let hex = |digits: &str, max: u32| {
            let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
            let value = u32::from_str_radix(digits, 16).ok()?;
            (plain && value <= max).then_some(value)
        };
        Some(Self {
            domain: hex(domain, u32::MAX)?,
            bus: hex(bus, 0xff)?,
            device: hex(device, 0x1f)?,
            function: hex(function, 7)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

/// The devices in the order of their addresses; what cannot be read is noted and left out.
pub fn read(sysfs: &Tree, notes: &mut Vec<String>) -> Vec<PciDevice> {
    let names = noted(sysfs.list(DEVICES), notes).unwrap_or_default();
    let mut addresses: Vec<_> = names.iter().filter_map(|name| Address::parse(name)).collect();
    addresses.sort_unstable();
    let mut devices: Vec<_> = addresses
        .into_iter()
        .filter_map(|address| noted(read_device(sysfs, address, notes), notes).flatten())
        .collect();
    if devices.len() > MAX_DEVICES {
        notes.push(format!("{} PCI devices; the first {MAX_DEVICES} are looked at", devices.len()));
        devices.truncate(MAX_DEVICES);
    }
    devices
}

fn read_device(
    sysfs: &Tree,
    address: Address,
    notes: &mut Vec<String>,
) -> Result<Option<PciDevice>, Error> {
    let dir = format!("{DEVICES}/{address}");
    let class = read_hex(sysfs, &format!("{dir}/class"))?;
    let vendor = read_id(sysfs, &format!("{dir}/vendor"))?;
    let Some(kind) = Kind::of(class, vendor) else {
        return Ok(None);
    };
    let numa = match sysfs.parse::<i64>(format!("{dir}/numa_node"), "the number of a NUMA node") {
        Err(error) if error.is_not_found() => None, // a kernel without NUMA
        numa => noted(numa, notes),
    };
    Ok(Some(PciDevice {
        address,
        kind,
        numa: numa.and_then(|n| u32::try_from(n).ok()).filter(|n| *n <= cpulist::MAX_ID),
        vendor,
        device: read_id(sysfs, &format!("{dir}/device"))?,
        is_virtual: sysfs.resolve(Path::new(&format!("{dir}/physfn"))).is_ok(),
        local_cpus: local_cpus(sysfs, &dir),
        megabytes_per_second: bandwidth(sysfs, &dir),
        path: BusPath::new(&sysfs.resolve(Path::new(&dir))?),
    }))
}

/// The CPUs beside a device; none if there is no list of them.
fn local_cpus(sysfs: &Tree, dir: &str) -> String {
    let text = sysfs.read(format!("{dir}/local_cpulist")).unwrap_or_default();
    text.parse::<CpuList>().map(|list| list.shown()).unwrap_or_default()
}

/// From `max_link_speed` (the present one is lower while the device sleeps) and `max_link_width`.
fn bandwidth(sysfs: &Tree, dir: &str) -> Option<u32> {
    let speed = sysfs.read(format!("{dir}/max_link_speed")).ok()?;
    let width: u64 = sysfs.read(format!("{dir}/max_link_width")).ok()?.parse().ok()?;
    let tenths = tenths_of_gigatransfers(&speed)?;
    u32::try_from(GEN3_X16 * tenths * width.min(32) / (80 * 16)).ok()
}

/// `32.0 GT/s PCIe` in tenths.
fn tenths_of_gigatransfers(text: &str) -> Option<u64> {
    let number = text.split_whitespace().next()?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let tenth = tenth.get(..1)?;
    let value = whole.parse::<u64>().ok()?.checked_mul(10)?.checked_add(tenth.parse().ok()?)?;
    (value < 100_000).then_some(value)
}

fn read_hex(sysfs: &Tree, path: &str) -> Result<u32, Error> {
    let text = sysfs.read(path)?;
    text.strip_prefix("0x")
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .ok_or_else(|| sysfs.malformed(path, &text, "a number like 0x10de"))
}

fn read_id(sysfs: &Tree, path: &str) -> Result<u16, Error> {
    let value = read_hex(sysfs, path)?;
    u16::try_from(value).map_err(|_| sysfs.malformed(path, &value.to_string(), "a 16-bit id"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_of_sysfs_and_nvml() {
        let cases = [
            ("0000:07:00.0", Some("0000:07:00.0")),
            ("00000000:0F:00.0", Some("0000:0f:00.0")),
            ("10000:e1:1f.7", Some("10000:e1:1f.7")),
            ("0000:07:20.0", None),
            ("0000:07:00", None),
            ("0000:+7:00.0", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let address = Address::parse(text).map(|a| a.to_string());
            assert_eq!(address.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn the_path_begins_at_the_root_complex() {
        let cases = [
            (
                "devices/pci0000:00/0000:00:01.0/0000:01:00.0",
                "pci0000:00/0000:00:01.0/0000:01:00.0",
            ),
            (
                "devices/LNXSYSTM:00/VMBUS:00/guid/pci0001:00/0001:00:00.0",
                "pci0001:00/0001:00:00.0",
            ),
            ("devices/odd/0001:00:00.0", "devices/odd/0001:00:00.0"),
        ];
        for (resolved, expected) in cases {
            assert_eq!(BusPath::new(Path::new(resolved)).0.join("/"), expected);
        }
    }

    #[test]
    fn ways_between_devices() {
        let cases = [
            // Two ports of one switch, two levels of switches, two root ports, two functions.
            ("pci0:0/rp/up/d1/a", "pci0:0/rp/up/d2/b", Some(PciPath::PIX)),
            ("pci0:0/rp/up/d1/a", "pci0:0/rp/up/d2/up2/d3/b", Some(PciPath::PXB)),
            ("pci0:0/rp1/a", "pci0:0/rp2/b", Some(PciPath::PHB)),
            ("pci0:0/a", "pci0:0/b", Some(PciPath::PHB)),
            ("pci0:0/rp/a.0", "pci0:0/rp/a.1", Some(PciPath::PIX)),
            ("pci0:0/rp/a", "pci0:8/rp/b", None),
        ];
        for (a, b, expected) in cases {
            let path = |text: &str| BusPath::new(Path::new(text));
            assert_eq!(path(a).way_to(&path(b)), expected, "{a} {b}");
        }
    }

    #[test]
    fn speeds_of_slots() {
        let cases = [
            ("32.0 GT/s PCIe", Some(320)),
            ("8.0 GT/s PCIe", Some(80)),
            ("2.5 GT/s", Some(25)),
            ("16 GT/s", Some(160)),
            ("Unknown", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(tenths_of_gigatransfers(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_address_is_read_or_refused(text in "\\PC*") {
            let _ = Address::parse(&text);
        }

        #[test]
        fn addresses_print_and_parse_back(domain: u32, bus in 0..256_u32, device in 0..32_u32, function in 0..8_u32) {
            let address = Address { domain, bus, device, function };
            prop_assert_eq!(Address::parse(&address.to_string()), Some(address));
            let long = format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}");
            prop_assert_eq!(Address::parse(&long), Some(address));
        }

        #[test]
        fn any_path_has_a_way_to_any_other(a in "(/?[a-c0-9:.]{0,3}){0,7}", b in "(/?pci[a-c0-9:.]{0,3}){0,7}") {
            let (a, b) = (BusPath::new(Path::new(&a)), BusPath::new(Path::new(&b)));
            prop_assert_eq!(a.way_to(&b), b.way_to(&a));
            let _ = (a.root(), a.switch(), b.switch());
        }

        #[test]
        fn any_speed_is_read_or_refused(text in "[0-9.]{0,24} ?\\PC{0,6}") {
            let _ = tenths_of_gigatransfers(&text);
        }
    }
}
