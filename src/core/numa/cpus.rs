//! Sets of CPUs, and how CPUs are arranged in a machine.

use smallvec::SmallVec;

/// A set of CPUs by id. Sets with the same CPUs are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet {
    /// Without zeros at the end.
    words: SmallVec<[u64; 4]>,
}

impl CpuSet {
    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u16) {
        let word = usize::from(cpu / 64);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Whether a CPU is in it.
    #[must_use]
    pub fn has(&self, cpu: u16) -> bool {
        self.words.get(usize::from(cpu / 64)).is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// CPUs in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) =
            if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut union = long.clone();
        for (word, more) in union.words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        union
    }

    /// CPUs in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::trimmed(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Its CPUs that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let beyond = other.words.iter().copied().chain(std::iter::repeat(0));
        Self::trimmed(self.words.iter().zip(beyond).map(|(a, b)| a & !b).collect())
    }

    /// How many CPUs are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones() as usize).sum()
    }

    /// Its CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.words.iter().zip(0_u16..).flat_map(|(&word, at)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = u16::try_from(rest.trailing_zeros()).ok().filter(|bit| *bit < 64)?;
                rest &= rest - 1;
                Some(at * 64 + bit)
            })
        })
    }

    fn trimmed(mut words: SmallVec<[u64; 4]>) -> Self {
        while words.last() == Some(&0) {
            words.pop();
        }
        Self { words }
    }
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u16>>(cpus: T) -> Self {
        let mut set = Self::default();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

/// Where a CPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// Its id.
    pub id: u16,
    /// The lowest id among the CPUs of its core.
    pub core: u16,
    /// Its socket.
    pub socket: u16,
    /// Its NUMA node.
    pub numa: u8,
    /// The last-level cache it shares; its socket where that is not known.
    pub uncore: u16,
}

/// CPUs that share something: a NUMA node, a socket, a core or a cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) id: u16,
    pub(super) cpus: CpuSet,
}

/// The CPUs of a machine, grouped in each way the kubelet looks at them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuLayout {
    pub(super) all: CpuSet,
    pub(super) numas: Vec<Group>,
    pub(super) sockets: Vec<Group>,
    pub(super) cores: Vec<Group>,
    pub(super) uncores: Vec<Group>,
}

impl CpuLayout {
    /// The layout of some CPUs.
    #[must_use]
    pub fn new(cpus: &[Cpu]) -> Self {
        Self {
            all: cpus.iter().map(|cpu| cpu.id).collect(),
            numas: groups(cpus, |cpu| u16::from(cpu.numa)),
            sockets: groups(cpus, |cpu| cpu.socket),
            cores: groups(cpus, |cpu| cpu.core),
            uncores: groups(cpus, |cpu| cpu.uncore),
        }
    }

    /// Every CPU.
    #[must_use]
    pub const fn all(&self) -> &CpuSet {
        &self.all
    }

    /// How many CPUs of a set are on each NUMA node that has CPUs.
    pub fn per_numa(&self, cpus: &CpuSet) -> impl Iterator<Item = (u8, usize)> {
        self.numas.iter().map(|numa| (numa_id(numa), numa.cpus.common(cpus)))
    }

    /// Threads of a core: an average over the machine, as the kubelet has it.
    #[must_use]
    pub fn per_core(&self) -> usize {
        self.all.len().checked_div(self.cores.len()).unwrap_or(0)
    }

    pub(super) fn per_socket(&self) -> usize {
        self.all.len().checked_div(self.sockets.len()).unwrap_or(0)
    }

    pub(super) fn per_uncore(&self) -> usize {
        self.all.len().checked_div(self.uncores.len()).unwrap_or(0)
    }

    /// Every CPU of the cores that have one in a set.
    pub(super) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        let touched = self.cores.iter().filter(|core| core.cpus.common(cpus) > 0);
        touched.fold(CpuSet::default(), |all, core| all.union(&core.cpus))
    }
}

/// The id of a group that is a NUMA node.
pub(super) fn numa_id(group: &Group) -> u8 {
    u8::try_from(group.id).unwrap_or(u8::MAX)
}

fn groups(cpus: &[Cpu], key: impl Fn(&Cpu) -> u16) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for cpu in cpus {
        let id = key(cpu);
        let at = groups.binary_search_by_key(&id, |group| group.id).unwrap_or_else(|at| {
            groups.insert(at, Group { id, cpus: CpuSet::default() });
            at
        });
        groups[at].cpus.insert(cpu.id);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_equal_by_their_cpus() {
        let low: CpuSet = [1, 3].into_iter().collect();
        let wide: CpuSet = [1, 3, 300].into_iter().collect();
        let high: CpuSet = [300].into_iter().collect();
        assert_eq!(wide.difference(&high), low);
        assert_eq!(low.union(&high), wide);
        assert_eq!(wide.intersection(&low), low);
        assert_eq!(wide.iter().collect::<Vec<_>>(), [1, 3, 300]);
        assert!(low.difference(&wide).is_empty());
        assert_eq!(
            (wide.len(), wide.common(&high), wide.has(300), low.has(300)),
            (3, 1, true, false)
        );
    }
}
