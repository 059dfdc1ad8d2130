//! What is wrong with a machine, while it runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::{Fabric, Mig};

/// Faults, as a file that the mock reads again at every call. GPUs are named by their
/// number in the driver's order on the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Faults {
    /// Every call about these answers that the GPU is lost.
    pub lost: Vec<u32>,
    /// These are not counted any more; the others move up.
    pub gone: Vec<u32>,
    /// NVML's return value by function.
    pub errors: BTreeMap<String, u32>,
    /// How long a call takes, in ms, by function; `*` is any other function.
    pub delays: BTreeMap<String, u64>,
    /// Links that are down, by GPU.
    pub links_down: BTreeMap<u32, Vec<u32>>,
    /// Events. Each is told once; the list may only grow.
    pub xids: Vec<Xid>,
    /// As `nvmlDeviceGpuRecoveryAction_t`, by GPU.
    pub recovery: BTreeMap<u32, u32>,
    /// In percent, by GPU.
    pub utilisation: BTreeMap<u32, u32>,
    /// GPUs that are divided otherwise than the machine file says. A change is an event.
    pub mig: BTreeMap<u32, Mig>,
    /// Rows of memory whose replacement waits for a reset (`false`) or failed (`true`).
    pub remap: BTreeMap<u32, bool>,
    /// Uncorrected errors of memory, by GPU.
    pub ecc: BTreeMap<u32, u64>,
    /// What the fabric manager says instead, by GPU.
    pub fabric: BTreeMap<u32, Fabric>,
    /// Processes that compute, by GPU.
    pub processes: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Xid {
    pub gpu: u32,
    pub xid: u64,
    /// The GPU instance it is about.
    #[serde(default)]
    pub instance: Option<u32>,
}

impl Faults {
    /// Reads faults from the text of a file.
    ///
    /// # Errors
    ///
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|e| e.to_string())
    }

    /// Puts the faults into force: the file is replaced in one step.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_saphyr::to_string(self).map_err(io::Error::other)?;
        let beside = path.with_extension("new");
        fs::write(&beside, text)?;
        fs::rename(&beside, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("faults.yaml");
        let faults = Faults {
            lost: vec![2],
            delays: [("*".to_owned(), 600)].into(),
            links_down: [(1, vec![0, 17])].into(),
            xids: vec![Xid { gpu: 1, xid: 79, instance: None }],
            remap: [(3, true)].into(),
            fabric: [(0, Fabric { state: 2, ..Fabric::default() })].into(),
            mig: [(0, Mig { enabled: true, devices: Vec::new() })].into(),
            ..Faults::default()
        };
        faults.write(&path).unwrap();
        assert_eq!(Faults::parse(&fs::read_to_string(&path).unwrap()), Ok(faults));
        assert_eq!(Faults::parse(" \n"), Ok(Faults::default()));
        assert!(Faults::parse("lots: [1]").is_err());
    }
}
