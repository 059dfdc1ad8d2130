//! Network devices: interfaces, and the first RDMA port of each.
//!
//! Owns `net` and `infiniband` below a PCI device. Must never take the rate of a port that
//! is down for what it could carry: a port that is down says a number of no meaning.

use std::path::{Path, PathBuf};

use muster_api::muster::node_topology::{MAX_NICS, Nic, PortState};

use crate::pci::{DEVICES, PciDevice};
use crate::sysfs::{Error, Tree, noted, plain};

/// All RDMA devices.
const RDMA: &str = "class/infiniband";
/// Longest name of an interface or an RDMA device.
const MAX_NAME: usize = 64;
/// Longest name of what a port talks.
const MAX_LAYER: usize = 32;
/// Most interfaces of one device that are listed.
const MAX_INTERFACES: usize = 16;

/// The physical NICs among devices, in their order.
pub(crate) fn read(sysfs: &Tree, devices: &[PciDevice], notes: &mut Vec<String>) -> Vec<Nic> {
    let physical = devices.iter().filter(|d| d.kind.is_nic() && !d.is_virtual);
    let mut nics: Vec<Nic> = physical.map(|device| read_nic(sysfs, device, notes)).collect();
    if nics.len() > MAX_NICS {
        notes.push(format!("{} NICs; the first {MAX_NICS} are shown", nics.len()));
        nics.truncate(MAX_NICS);
    }
    nics
}

fn read_nic(sysfs: &Tree, device: &PciDevice, notes: &mut Vec<String>) -> Nic {
    let dir = format!("{DEVICES}/{}", device.address);
    let mut interfaces = noted(read_interfaces(sysfs, &dir), notes).unwrap_or_default();
    interfaces.retain(|name| plain(name, MAX_NAME).is_some());
    interfaces.truncate(MAX_INTERFACES);
    let rdma = noted(sysfs.list(format!("{dir}/infiniband")), notes).unwrap_or_default();
    let rdma = rdma.into_iter().find(|name| plain(name, MAX_NAME).is_some());
    let pci = device.address.to_string();
    let mut nic = Nic {
        name: rdma.as_ref().or(interfaces.first()).unwrap_or(&pci).clone(),
        pci,
        pci_id: device.id(),
        numa: device.numa,
        root: device.path.root().to_owned(),
        switch: device.path.switch(),
        interfaces,
        rdma: rdma.is_some(),
        ..Nic::default()
    };
    if let Some(rdma) = rdma {
        read_port(sysfs, &format!("{dir}/infiniband/{rdma}"), &mut nic, notes);
    }
    nic
}

/// Interfaces hang below the device, or below its virtio device in a virtual machine.
fn read_interfaces(sysfs: &Tree, dir: &str) -> Result<Vec<String>, Error> {
    let mut names = sysfs.list(format!("{dir}/net"))?;
    for child in sysfs.list(dir)?.iter().filter(|name| name.starts_with("virtio")) {
        names.extend(sysfs.list(format!("{dir}/{child}/net"))?);
    }
    Ok(names)
}

fn read_port(sysfs: &Tree, dir: &str, nic: &mut Nic, notes: &mut Vec<String>) {
    nic.guid = sysfs.read(format!("{dir}/node_guid")).ok().filter(|guid| is_guid(guid));
    let ports = noted(sysfs.list(format!("{dir}/ports")), notes).unwrap_or_default();
    let Some(port) = ports.first() else { return };
    let read = |file: &str| sysfs.read(format!("{dir}/ports/{port}/{file}")).ok();
    nic.link_layer = read("link_layer").filter(|layer| plain(layer, MAX_LAYER).is_some());
    nic.state = read("state").map_or(PortState::Unknown, |text| state(&text));
    if nic.state == PortState::Active {
        nic.gigabits_per_second = read("rate").and_then(|text| gigabits(&text)).unwrap_or(0);
    }
}

/// The state of each NIC's first RDMA port: what of a NIC changes while it runs.
#[derive(Debug, Default)]
pub(crate) struct Ports(Vec<(PathBuf, Option<String>)>);

impl Ports {
    pub(crate) fn read(sysfs: &Tree) -> Self {
        let state = |file: PathBuf| {
            let state = sysfs.read_resolved(&file);
            (file, state)
        };
        Self(ports(sysfs).into_iter().map(state).collect())
    }

    /// Whether one is other than it was. A NIC that came is none: a reading will find it.
    pub(crate) fn differ(&self, sysfs: &Tree) -> bool {
        self.0.iter().any(|(file, state)| sysfs.read_resolved(file) != *state)
    }
}

/// The files with the states, without links in their paths.
fn ports(sysfs: &Tree) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for name in sysfs.list(RDMA).unwrap_or_default().iter().take(MAX_NICS) {
        let ports = sysfs.list(format!("{RDMA}/{name}/ports")).unwrap_or_default();
        let Some(port) = ports.first() else { continue };
        let file = format!("{RDMA}/{name}/ports/{port}/state");
        files.extend(sysfs.resolve(Path::new(&file)));
    }
    files
}

fn is_guid(text: &str) -> bool {
    text.len() <= 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f' | b':'))
}

/// `4: ACTIVE`.
fn state(text: &str) -> PortState {
    match text.split(':').next() {
        Some("4") => PortState::Active,
        Some("1" | "2" | "3") => PortState::Down,
        _ => PortState::Unknown,
    }
}

/// `400 Gb/sec (4X NDR)`; the rate may have a fraction (`2.5`), which is dropped.
fn gigabits(text: &str) -> Option<u32> {
    let number = text.strip_suffix(')').unwrap_or(text).split_once(" Gb/sec")?.0;
    let whole = number.split('.').next()?.parse().ok()?;
    (whole <= 1_000_000).then_some(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_and_states_of_ports() {
        assert_eq!(gigabits("400 Gb/sec (4X NDR)"), Some(400));
        assert_eq!(gigabits("2.5 Gb/sec (1X SDR)"), Some(2));
        assert_eq!(gigabits("fast"), None);
        assert_eq!(gigabits("99999999999 Gb/sec"), None);
        assert_eq!(state("4: ACTIVE"), PortState::Active);
        assert_eq!(state("1: DOWN"), PortState::Down);
        assert_eq!(state("2: INIT"), PortState::Down);
        assert_eq!(state(""), PortState::Unknown);
    }

    proptest! {
        #[test]
        fn any_rate_is_read_or_refused(text in "\\PC*") {
            let _ = (gigabits(&text), state(&text));
        }
    }
}
