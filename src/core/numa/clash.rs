//! What stands against what when the Topology Manager finds no alignment, in words.

use std::fmt;
use std::sync::Arc;

use super::cpu_manager::{Cpus, least_nodes};
use super::device_manager::{Devices, Kinds, sum};
use super::hints::{Ask, Hints};
use super::machine::{Machine, Policy};

/// Why requests cannot be aligned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Clash {
    /// Too little is free, wherever.
    Short {
        /// What is asked for.
        resource: Arc<str>,
        /// How much.
        asked: u64,
        /// How much is free, if that is known.
        free: Option<u64>,
    },
    /// It would need more than the one NUMA node that the policy allows.
    TooWide {
        /// What is asked for.
        resource: Arc<str>,
        /// How much.
        asked: u64,
        /// NUMA nodes it needs.
        nodes: usize,
    },
    /// Two requests need different numbers of NUMA nodes.
    Widths {
        /// The one that needs fewer.
        narrow: (Arc<str>, u64, usize),
        /// The one that needs more.
        wide: (Arc<str>, u64, usize),
    },
    /// Enough is free, but not on as few NUMA nodes as an empty machine would need.
    Scattered {
        /// What is asked for.
        resource: Arc<str>,
        /// How much.
        asked: u64,
        /// NUMA nodes it may come from.
        nodes: usize,
    },
    /// Each could be had, but not from the same NUMA nodes.
    Apart {
        /// What is asked for, with amounts.
        resources: Vec<(Arc<str>, u64)>,
        /// NUMA nodes they may come from.
        nodes: usize,
    },
}

impl Clash {
    /// What stands against what among some requests.
    pub(super) fn of(
        machine: &Machine,
        asks: &[Ask],
        kinds: &[Kinds],
        cpus: &Cpus,
        devices: &[Devices],
    ) -> Option<Self> {
        let widths = Widths { machine, kinds };
        let single = machine.settings.policy == Policy::SingleNumaNode;
        let with: Vec<(&Ask, &Vec<_>)> = asks
            .iter()
            .filter_map(|ask| match &ask.hints {
                Hints::Any => None,
                Hints::Some(list) => Some((ask, list)),
            })
            .collect();
        let named = |ask: &Ask| (Arc::clone(&ask.resource), ask.amount);
        for (ask, list) in &with {
            if list.is_empty() {
                let (resource, asked) = named(ask);
                let free = widths.free(ask, cpus, devices);
                return Some(Self::Short { resource, asked, free });
            }
        }
        for (ask, _) in &with {
            let nodes = widths.least(ask);
            if single && nodes > 1 {
                let (resource, asked) = named(ask);
                return Some(Self::TooWide { resource, asked, nodes });
            }
        }
        let least = |ask: &Ask| (Arc::clone(&ask.resource), ask.amount, widths.least(ask));
        let narrow = with.iter().map(|(ask, _)| least(ask)).min_by_key(|found| found.2)?;
        let wide = with.iter().map(|(ask, _)| least(ask)).max_by_key(|found| found.2)?;
        if narrow.2 != wide.2 {
            return Some(Self::Widths { narrow, wide });
        }
        for (ask, list) in &with {
            if !list.iter().any(|(_, good)| *good) {
                let (resource, asked) = named(ask);
                return Some(Self::Scattered { resource, asked, nodes: narrow.2 });
            }
        }
        let resources = with.iter().map(|(ask, _)| named(ask)).collect();
        Some(Self::Apart { resources, nodes: narrow.2 })
    }
}

struct Widths<'a> {
    machine: &'a Machine,
    kinds: &'a [Kinds],
}

impl Widths<'_> {
    /// NUMA nodes that a request would need if nothing ran.
    fn least(&self, ask: &Ask) -> usize {
        let amount = || usize::try_from(ask.amount).unwrap_or(usize::MAX);
        if &*ask.resource == "cpu" {
            return least_nodes(self.machine, amount());
        }
        if let Some(kinds) = self.kinds.iter().find(|kinds| kinds.name == ask.resource) {
            let asked = u32::try_from(ask.amount).unwrap_or(u32::MAX);
            return kinds.least_nodes(self.machine, asked);
        }
        let mut sizes: Vec<u64> = self
            .machine
            .nodes
            .iter()
            .filter_map(|node| super::pod::amount(&node.memory, &ask.resource))
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut bytes = 0_u64;
        let nodes = sizes.iter().position(|size| {
            bytes = bytes.saturating_add(*size);
            bytes >= ask.amount
        });
        nodes.map_or(sizes.len(), |nodes| nodes + 1)
    }

    fn free(&self, ask: &Ask, cpus: &Cpus, devices: &[Devices]) -> Option<u64> {
        if &*ask.resource == "cpu" {
            return Some(cpus.shared.difference(&self.machine.reserved).len() as u64);
        }
        let mut resources = self.kinds.iter().zip(devices);
        let found = resources.find(|(kinds, _)| kinds.name == ask.resource);
        found.map(|(_, devices)| u64::from(sum(&devices.free)))
    }
}

/// An amount and a resource: "8 nvidia.com/gpu", "20 CPUs", "30 GiB of memory".
struct Amount<'a>(&'a str, u64);

impl fmt::Display for Amount<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const GIB: u64 = 1 << 30;
        const MIB: u64 = 1 << 20;
        match (self.0, self.1) {
            ("cpu", 1) => f.write_str("1 CPU"),
            ("cpu", n) => write!(f, "{n} CPUs"),
            (name, n) if name == "memory" || name.starts_with("hugepages-") => {
                let (amount, unit) =
                    if n.is_multiple_of(GIB) { (n / GIB, "GiB") } else { (n.div_ceil(MIB), "MiB") };
                write!(f, "{amount} {unit} of {name}")
            }
            (name, n) => write!(f, "{n} {name}"),
        }
    }
}

fn nodes(count: usize) -> String {
    if count == 1 { "1 NUMA node".to_owned() } else { format!("{count} NUMA nodes") }
}

fn having(count: usize) -> String {
    if count == 1 { "NUMA node has".to_owned() } else { format!("{count} NUMA nodes have") }
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { resource, asked, free } => {
                write!(f, "{} asked for", Amount(resource, *asked))?;
                match free {
                    Some(free) => write!(f, ", {free} free"),
                    None => f.write_str(", less is free"),
                }
            }
            Self::TooWide { resource, asked, nodes } => write!(
                f,
                "{} need {nodes} NUMA nodes, this kubelet allows 1",
                Amount(resource, *asked)
            ),
            Self::Widths { narrow, wide } => write!(
                f,
                "{} prefers {}, {} need {}",
                narrow.0,
                nodes(narrow.2),
                Amount(&wide.0, wide.1),
                wide.2
            ),
            Self::Scattered { resource, asked, nodes: count } => write!(
                f,
                "{} would fit on {} of an empty machine, but no {} them free",
                Amount(resource, *asked),
                nodes(*count),
                having(*count),
            ),
            Self::Apart { resources, nodes } => {
                write!(f, "no {} ", having(*nodes))?;
                for (i, (name, amount)) in resources.iter().enumerate() {
                    let joint = if i == 0 { "" } else { " and " };
                    write!(f, "{joint}{}", Amount(name, *amount))?;
                }
                f.write_str(" free together")
            }
        }
    }
}
