//! What nodes are inside, by the name of a machine.

use super::ScenarioError;
use super::cursor::Cursor;
use muster_api::k8s::ResourceList;

/// The resource that GPUs of machines are.
pub const GPU: &str = "nvidia.com/gpu";

/// A machine: eight GPUs behind NVSwitches, four beside each of two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Its kubelet gives GPUs of either side, or of both.
    Hgx,
    /// Its kubelet refuses pods whose GPUs would be on more sides than they have to be.
    HgxRestricted,
    /// Its kubelet refuses pods whose GPUs would be on two sides.
    HgxSingleNumaNode,
}

impl Machine {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hgx, Self::HgxRestricted, Self::HgxSingleNumaNode];

    /// As a scenario names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hgx => "hgx",
            Self::HgxRestricted => "hgx-restricted",
            Self::HgxSingleNumaNode => "hgx-single-numa-node",
        }
    }

    /// How many GPUs it has.
    #[must_use]
    pub const fn gpus(self) -> usize {
        8
    }

    pub(super) fn decode(at: &Cursor<'_>, list: &ResourceList) -> Result<Self, ScenarioError> {
        let name = at.text()?;
        let Some(machine) = Self::ALL.into_iter().find(|machine| machine.name() == name) else {
            let names = Self::ALL.map(Self::name).join(", ");
            return Err(at.error(format!("{name:?} is no machine; write one of {names}")));
        };
        let own = machine.gpus();
        let has = list.get(GPU).map_or(0, |quantity| quantity.value());
        if usize::try_from(has) != Ok(own) {
            return Err(at.error(format!(
                "an {name} has {own} GPUs, and allocatable says {has}; write {GPU}: {own}"
            )));
        }
        Ok(machine)
    }
}
