//! GPUs, accelerators and NICs on the PCI bus.
//!
//! Owns `bus/pci/devices` of sysfs. Must never turn an unknown NUMA node (-1, usual in virtual
//! machines) into node 0.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::sysfs::{Error, Tree, noted};

const DEVICES: &str = "bus/pci/devices";
const AMD: u16 = 0x1002;
const INTEL: u16 = 0x8086;
const NVIDIA: u16 = 0x10de;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PciDevice {
    /// As sysfs writes it: `0000:07:00.0`.
    pub address: String,
    pub kind: Kind,
    /// `None`: the firmware does not say.
    pub numa_node: Option<u32>,
    #[serde(serialize_with = "hex")]
    pub vendor: u16,
    #[serde(serialize_with = "hex")]
    pub device: u16,
    /// Network interfaces and RDMA devices.
    pub names: Vec<String>,
    /// From the root complex (`pci0000:00`) over the bridges to the device itself.
    pub path: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    Gpu,
    Accelerator,
    Ethernet,
    InfiniBand,
    Network,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpu => "gpu",
            Self::Accelerator => "accelerator",
            Self::Ethernet => "ethernet",
            Self::InfiniBand => "infiniband",
            Self::Network => "network",
        })
    }
}

impl Kind {
    /// From the class code (base class, subclass, interface); `None` for what is of no interest.
    fn of(class: u32, vendor: u16) -> Option<Self> {
        match class >> 8 {
            0x0302 => Some(Self::Gpu),
            // Also the class of the screens of management controllers and virtual machines.
            0x0300 | 0x0380 if [AMD, INTEL, NVIDIA].contains(&vendor) => Some(Self::Gpu),
            0x1200..=0x12ff => Some(Self::Accelerator),
            0x0200 => Some(Self::Ethernet),
            0x0207 => Some(Self::InfiniBand),
            0x0201..=0x02ff => Some(Self::Network),
            _ => None,
        }
    }
}

impl PciDevice {
    pub fn is_nvidia_gpu(&self) -> bool {
        self.kind == Kind::Gpu && self.vendor == NVIDIA
    }
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
    addresses
        .into_iter()
        .filter_map(|address| noted(read_device(sysfs, address, notes), notes).flatten())
        .collect()
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
        address: address.to_string(),
        kind,
        numa_node: numa.and_then(|n| u32::try_from(n).ok()),
        vendor,
        device: read_id(sysfs, &format!("{dir}/device"))?,
        names: noted(read_names(sysfs, &dir), notes).unwrap_or_default(),
        path: path_from_root(&sysfs.resolve(Path::new(&dir))?),
    }))
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

/// Interfaces hang below the device, or below its virtio device in a virtual machine.
fn read_names(sysfs: &Tree, dir: &str) -> Result<Vec<String>, Error> {
    let mut names = sysfs.list(format!("{dir}/net"))?;
    for child in sysfs.list(dir)?.iter().filter(|name| name.starts_with("virtio")) {
        names.extend(sysfs.list(format!("{dir}/{child}/net"))?);
    }
    names.extend(sysfs.list(format!("{dir}/infiniband"))?);
    Ok(names)
}

/// Drops what comes before the root complex: `devices`, and on Hyper-V and ARM the firmware's nodes.
fn path_from_root(resolved: &Path) -> Vec<String> {
    let all: Vec<_> = resolved.iter().map(|c| c.to_string_lossy().into_owned()).collect();
    let is_root = |c: &String| c.strip_prefix("pci").is_some_and(|rest| rest.contains(':'));
    let start = all.iter().position(is_root).unwrap_or(0);
    all[start..].to_vec()
}

fn hex<S: serde::Serializer>(id: &u16, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("0x{id:04x}"))
}

#[cfg(test)]
mod tests {
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
            assert_eq!(path_from_root(Path::new(resolved)).join("/"), expected);
        }
    }
}
