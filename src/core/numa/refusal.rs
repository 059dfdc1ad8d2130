//! Why a kubelet would refuse a pod: its reason, its message, and ours.

use std::fmt;
use std::sync::Arc;

/// What the kubelet writes as the reason of a pod that it refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The Topology Manager found no alignment that its policy allows.
    TopologyAffinity,
    /// CPUs are given by whole cores, and the pod asks for parts of one.
    SmtAlignment,
    /// CPU or memory of the pod as a whole is used up by some of its containers.
    EmptyPodSharedPool,
    /// A manager could not give what the Topology Manager had let pass.
    UnexpectedAdmission,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::TopologyAffinity,
        Self::SmtAlignment,
        Self::EmptyPodSharedPool,
        Self::UnexpectedAdmission,
    ];

    /// As it stands in the status of a pod.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TopologyAffinity => "TopologyAffinityError",
            Self::SmtAlignment => "SMTAlignmentError",
            Self::EmptyPodSharedPool => "EmptyPodSharedPoolError",
            Self::UnexpectedAdmission => "UnexpectedAdmissionError",
        }
    }
}

/// What exactly went wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// No alignment that the policy allows.
    NotAligned,
    /// As above, for a pod with resources of its own, under the pod scope.
    PodNotAligned,
    /// As above, under the container scope.
    ContainerOfPodNotAligned,
    /// Not a whole number of cores.
    PartOfCore {
        /// CPUs asked for.
        asked: usize,
        /// CPUs of a core.
        per_core: usize,
    },
    /// Too few whole cores are free.
    TooFewCores {
        /// CPUs asked for.
        asked: usize,
        /// CPUs of a core.
        per_core: usize,
        /// CPUs of free cores.
        available: usize,
    },
    /// Too few CPUs are free.
    TooFewCpus {
        /// CPUs asked for.
        asked: usize,
        /// CPUs that are free.
        available: usize,
    },
    /// Groups of CPUs overlap in a way that lets the kubelet lose count.
    CpusNotFound,
    /// The kubelet loses count while it spreads CPUs over NUMA nodes.
    MiscountedCpus {
        /// CPUs still to be given.
        remaining: i64,
    },
    /// The kubelet would not end: it spreads CPUs by whole cores over NUMA nodes that
    /// have parts of cores only.
    Endless,
    /// No NUMA nodes have the memory.
    NoMemory,
    /// Memory could only be had from more NUMA nodes than it needs.
    MemoryNotPreferred,
    /// The NUMA nodes that were chosen have too little memory, and no others go with them.
    NoMemoryBeside,
    /// As above, and others would go with them, but they are more than it needs.
    MemoryBesideNotPreferred,
    /// One of the NUMA nodes gives memory to others, alone or in another group.
    MemoryGroups,
    /// Not one healthy device.
    NoHealthyDevice {
        /// The resource.
        resource: Arc<str>,
    },
    /// Too few devices are free.
    TooFewDevices {
        /// The resource.
        resource: Arc<str>,
        /// Devices still needed.
        asked: usize,
        /// Devices that are free.
        available: usize,
    },
    /// Containers of a pod with resources of its own leave nothing to the others.
    EmptyPool {
        /// The resource.
        resource: Arc<str>,
        /// It is an init container that is left without.
        init: bool,
    },
}

impl Cause {
    /// The kubelet's reason.
    #[must_use]
    pub const fn reason(&self) -> Reason {
        match self {
            Self::NotAligned | Self::PodNotAligned | Self::ContainerOfPodNotAligned => {
                Reason::TopologyAffinity
            }
            Self::PartOfCore { .. } | Self::TooFewCores { .. } => Reason::SmtAlignment,
            Self::EmptyPool { .. } => Reason::EmptyPodSharedPool,
            _ => Reason::UnexpectedAdmission,
        }
    }

    /// The kubelet's message.
    #[must_use]
    pub fn message(&self) -> String {
        match self.reason() {
            Reason::UnexpectedAdmission => {
                format!("Allocate failed due to {self}, which is unexpected")
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAligned => {
                f.write_str("Resources cannot be allocated with Topology locality")
            }
            Self::PodNotAligned => f.write_str(
                "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
            ),
            Self::ContainerOfPodNotAligned => f.write_str(
                "Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
            ),
            Self::PartOfCore { asked, per_core } => write!(
                f,
                "SMT Alignment Error: requested {asked} cpus not multiple cpus per core = {per_core}"
            ),
            Self::TooFewCores { asked, per_core, available } => write!(
                f,
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {available}, \
                 requested CPUs = {asked}, CPUs per core = {per_core}"
            ),
            Self::TooFewCpus { asked, available } => write!(
                f,
                "not enough cpus available to satisfy request: requested={asked}, available={available}"
            ),
            Self::CpusNotFound => f.write_str("failed to allocate cpus"),
            Self::MiscountedCpus { remaining } if *remaining > 0 => write!(
                f,
                "accounting error, not enough CPUs allocated, remaining: {remaining}"
            ),
            Self::MiscountedCpus { remaining } => {
                write!(f, "accounting error, too many CPUs allocated, remaining: {remaining}")
            }
            Self::Endless => f.write_str("cpus never dealt out"),
            Self::NoMemory => f.write_str(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            ),
            Self::MemoryNotPreferred => {
                f.write_str("[memorymanager] failed to find the default preferred hint")
            }
            Self::NoMemoryBeside => f.write_str(
                "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
            ),
            Self::MemoryBesideNotPreferred => {
                f.write_str("[memorymanager] failed to find the extended preferred hint")
            }
            Self::MemoryGroups => {
                f.write_str("[memorymanager] preferred hint violates NUMA node allocation")
            }
            Self::NoHealthyDevice { resource } => write!(
                f,
                "no healthy devices present; cannot allocate unhealthy devices {resource}"
            ),
            Self::TooFewDevices { resource, asked, available } => write!(
                f,
                "requested number of devices unavailable for {resource}. \
                 Requested: {asked}, Available: {available}"
            ),
            Self::EmptyPool { resource, init: true } => {
                let what = if &**resource == "cpu" { "cpus" } else { resource };
                write!(f, "pod rejected, pod has shared init containers but no {what} available for them")
            }
            Self::EmptyPool { resource, init: false } => {
                let left = if &**resource == "cpu" { "cpus" } else { "memory" };
                write!(
                    f,
                    "pod rejected, sum of exclusive container {resource} requests equals pod budget, \
                     leaving no {left} for shared containers"
                )
            }
        }
    }
}
