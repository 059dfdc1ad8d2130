//! What nodes are inside, by the name of a machine.

use super::ScenarioError;
use super::cursor::Cursor;
use muster_api::k8s::ResourceList;

/// The resource that GPUs of machines are.
pub const GPU: &str = "nvidia.com/gpu";

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Eight GPUs behind NVSwitches, four beside each of two sockets.
    Hgx,
}

impl Machine {
    /// As a scenario names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hgx => "hgx",
        }
    }

    /// How many GPUs it has.
    #[must_use]
    pub const fn gpus(self) -> usize {
        match self {
            Self::Hgx => 8,
        }
    }

    pub(super) fn decode(at: &Cursor<'_>, list: &ResourceList) -> Result<Self, ScenarioError> {
        let name = at.text()?;
        if name != Self::Hgx.name() {
            return Err(at.error(format!("{name:?} is no machine; write hgx")));
        }
        let own = Self::Hgx.gpus();
        let has = list.get(GPU).map_or(0, |quantity| quantity.value());
        if usize::try_from(has) != Ok(own) {
            return Err(at.error(format!(
                "an {name} has {own} GPUs, and allocatable says {has}; write {GPU}: {own}"
            )));
        }
        Ok(Self::Hgx)
    }
}
