//! Arguments of the plugin.

use serde::Deserialize;

use crate::framework::{Args, NodeCare, RegistryError};

/// Longest wait or pause that can be asked for: a week.
const MAX_SECONDS: u32 = 7 * 24 * 3600;
/// Most refusals that can be asked for before a node is avoided.
const MAX_REFUSALS: u32 = 100;

/// What becomes of nodes of which too little is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) enum Unknown {
    /// When the wait is over they are judged by the other plugins alone.
    #[default]
    Allow,
    /// Pods that a kubelet might refuse wait for the agent, however long.
    Wait,
}

/// Arguments, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Written {
    unknown_nodes: Unknown,
    wait_seconds: u32,
    quarantine: Quarantine,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Quarantine {
    refusals: u32,
    window_seconds: u32,
    seconds: u32,
    max_seconds: u32,
}

impl Default for Written {
    fn default() -> Self {
        let (unknown_nodes, quarantine) = (Unknown::default(), Quarantine::default());
        Self { unknown_nodes, wait_seconds: 60, quarantine }
    }
}

impl Default for Quarantine {
    fn default() -> Self {
        Self { refusals: 2, window_seconds: 600, seconds: 60, max_seconds: 3600 }
    }
}

/// Arguments, as used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) unknown: Unknown,
    pub(super) care: NodeCare,
}

impl Settings {
    pub(super) fn read(args: &Args<'_>) -> Result<Self, RegistryError> {
        let written: Written = args.parse()?;
        let Quarantine { refusals, window_seconds, seconds, max_seconds } = written.quarantine;
        for (field, value) in [
            ("waitSeconds", written.wait_seconds),
            ("quarantine.windowSeconds", window_seconds),
            ("quarantine.seconds", seconds),
            ("quarantine.maxSeconds", max_seconds),
        ] {
            if value > MAX_SECONDS {
                let rule = format!("must be at most {MAX_SECONDS}");
                return Err(args.invalid(format!("args.{field}"), value, rule));
            }
        }
        if refusals > MAX_REFUSALS {
            let rule = format!("must be at most {MAX_REFUSALS}; 0 turns it off");
            return Err(args.invalid("args.quarantine.refusals", refusals, rule));
        }
        let least = [("windowSeconds", window_seconds), ("seconds", seconds)];
        if let Some((field, value)) = least.into_iter().find(|(_, value)| *value == 0) {
            return Err(args.invalid(
                format!("args.quarantine.{field}"),
                value,
                "must be at least 1",
            ));
        }
        if max_seconds < seconds {
            let rule = format!("must be at least quarantine.seconds, {seconds}");
            return Err(args.invalid("args.quarantine.maxSeconds", max_seconds, rule));
        }
        let care = NodeCare {
            wait_seconds: written.wait_seconds.into(),
            refusals,
            window_seconds: window_seconds.into(),
            avoid_seconds: seconds.into(),
            max_avoid_seconds: max_seconds.into(),
        };
        Ok(Self { unknown: written.unknown_nodes, care })
    }
}
