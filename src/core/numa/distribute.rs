//! The CPU Manager's option `distribute-cpus-across-numa`: the same number of CPUs from
//! each of as few NUMA nodes as will do, the rest from those that leave the machine
//! most even.
//!
//! The kubelet keeps the best combination as a slice that shares memory with later
//! ones, so that some of its nodes change after it was chosen. Predicted are its acts,
//! not its intentions: [`Combination`] shares in the same way.

use super::cpus::{CpuLayout, CpuSet, numa_id};
use super::machine::CpuOptions;
use super::refusal::Cause;
use super::take::{Hand, packed};

/// Takes CPUs evenly from several NUMA nodes.
pub(super) fn take(
    layout: &CpuLayout,
    options: CpuOptions,
    available: &CpuSet,
    count: usize,
) -> Result<CpuSet, Cause> {
    let spread = options.across_cores;
    let size = if options.full_cores_only { layout.per_core() } else { 1 };
    if size == 0 || !count.is_multiple_of(size) {
        return packed(layout, available, count, spread, false);
    }
    let hand = Hand::new(layout, available, count);
    if hand.satisfied() {
        return Ok(hand.taken);
    }
    if hand.left.len() < count {
        return Err(Cause::TooFewCpus { asked: count, available: available.len() });
    }
    let (least, most) = range(&hand, layout, size);
    let search = Search {
        layout,
        count,
        size,
        by_socket: options.align_by_socket,
        numas: hand.numas().iter().map(|numa| numa_id(numa)).collect(),
        left: layout.numas.iter().map(|n| (numa_id(n), n.cpus.common(&hand.left))).collect(),
    };
    for nodes in least..=most {
        if let Some((chosen, rest)) = search.best(nodes)? {
            return deal(hand, &search, spread, &chosen, &rest);
        }
    }
    packed(layout, available, count, spread, false)
}

/// How many NUMA nodes could hold what is wanted: at least, at most.
fn range(hand: &Hand<'_>, layout: &CpuLayout, size: usize) -> (usize, usize) {
    let groups = layout.all.len().div_ceil(size);
    let per_numa = groups.div_ceil(layout.numas.len().max(1)).max(1);
    let needed = usize::try_from(hand.wanted).unwrap_or(0).div_ceil(size);
    let with_cpus = layout.numas.iter().filter(|n| n.cpus.common(&hand.left) > 0).count();
    (needed.div_ceil(per_numa).max(1), needed.min(with_cpus))
}

/// Gives out what was decided.
fn deal(
    mut hand: Hand<'_>,
    search: &Search<'_>,
    spread: bool,
    chosen: &[u8],
    rest: &[u8],
) -> Result<CpuSet, Cause> {
    let on = |hand: &Hand<'_>, numa: u8| {
        let group = search.layout.numas.iter().find(|group| numa_id(group) == numa);
        group.map_or_else(CpuSet::default, |group| group.cpus.intersection(&hand.left))
    };
    let mut each = search.count / chosen.len() / search.size * search.size;
    for &numa in chosen {
        each = each.min(on(&hand, numa).len() / search.size * search.size);
    }
    let some = |hand: &mut Hand<'_>, numa: u8, count: usize| {
        // If it cannot be had, nothing is taken, and the sum below will not be right.
        let cpus = packed(search.layout, &on(hand, numa), count, spread, false);
        hand.take(&cpus.unwrap_or_default());
    };
    for &numa in chosen {
        some(&mut hand, numa, each);
    }
    let mut remainder = search.count.saturating_sub(each * chosen.len());
    while remainder > 0 {
        let before = remainder;
        for &numa in rest {
            if remainder == 0 {
                break;
            }
            if on(&hand, numa).len() >= search.size {
                some(&mut hand, numa, search.size);
                remainder = remainder.saturating_sub(search.size);
            }
        }
        if remainder == before {
            return Err(Cause::Endless);
        }
    }
    match hand.wanted {
        0 => Ok(hand.taken),
        wanted => Err(Cause::MiscountedCpus { remaining: wanted }),
    }
}

struct Search<'a> {
    layout: &'a CpuLayout,
    count: usize,
    /// CPUs are given in groups of this many.
    size: usize,
    by_socket: bool,
    /// NUMA nodes with CPUs left, in the order in which they are tried.
    numas: Vec<u8>,
    /// CPUs left per NUMA node.
    left: Vec<(u8, usize)>,
}

/// The nodes to take from, and those to take the remainder from.
type Chosen = (Vec<u8>, Vec<u8>);

/// The best combination so far: its balance, the nodes of the remainder, the nodes.
struct Best {
    balance: f64,
    rest: Option<Combination>,
    chosen: Option<Combination>,
    in_one_socket: bool,
}

impl Search<'_> {
    fn left_on(&self, numa: u8) -> usize {
        self.left.iter().find(|(id, _)| *id == numa).map_or(0, |(_, left)| *left)
    }

    /// The best of all combinations of so many nodes.
    fn best(&self, nodes: usize) -> Result<Option<Chosen>, Cause> {
        let mut memory = Memory::default();
        let mut best = Best { balance: f64::MAX, rest: None, chosen: None, in_one_socket: false };
        let mut endless = false;
        combinations(&self.numas, nodes, &mut memory, &mut |memory, combination| {
            if best.balance == 0.0 && (!self.by_socket || best.in_one_socket) {
                return Flow::Stop;
            }
            endless |= self.weigh(memory, combination, &mut best).is_err();
            if endless { Flow::Stop } else { Flow::Go }
        });
        if endless {
            return Err(Cause::Endless);
        }
        Ok(best.chosen.map(|chosen| {
            let rest = best.rest.map(|rest| memory.read(rest)).unwrap_or_default();
            (memory.read(chosen), rest)
        }))
    }

    fn weigh(
        &self,
        memory: &mut Memory,
        combination: Combination,
        best: &mut Best,
    ) -> Result<(), Cause> {
        let nodes = memory.read(combination);
        let left: usize = nodes.iter().map(|&numa| self.left_on(numa)).sum();
        let groups: usize = nodes.iter().map(|&numa| self.left_on(numa) / self.size).sum();
        if left < self.count || groups * self.size < self.count {
            return Ok(());
        }
        let mut each = self.count / nodes.len() / self.size * self.size;
        if self.by_socket {
            for &numa in &nodes {
                each = each.min(self.left_on(numa) / self.size * self.size);
            }
        }
        if nodes.iter().any(|&numa| self.left_on(numa) < each) {
            return Ok(());
        }
        let mut after: Vec<(u8, usize)> =
            self.numas.iter().map(|&numa| (numa, self.left_on(numa))).collect();
        for (numa, left) in &mut after {
            if nodes.contains(numa) {
                *left -= each;
            }
        }
        let remainder = self.count - each * nodes.len();
        let (balance, rest) = if remainder == 0 {
            (deviation(&after), None)
        } else {
            self.spread_rest(memory, &nodes, &after, remainder)?
        };
        let one_socket = self.by_socket && self.in_one_socket(&nodes);
        let better = if self.by_socket && one_socket != best.in_one_socket {
            one_socket
        } else {
            balance < best.balance
        };
        if better {
            *best = Best { balance, rest, chosen: Some(combination), in_one_socket: one_socket };
        }
        Ok(())
    }

    /// The best balance if the remainder comes from some of the nodes.
    fn spread_rest(
        &self,
        memory: &mut Memory,
        nodes: &[u8],
        after: &[(u8, usize)],
        remainder: usize,
    ) -> Result<(f64, Option<Combination>), Cause> {
        let left_after =
            |numa: u8| after.iter().find(|(id, _)| *id == numa).map_or(0, |(_, left)| *left);
        let able: Vec<u8> =
            nodes.iter().copied().filter(|&numa| left_after(numa) >= self.size).collect();
        let (mut best, mut chosen, mut endless) = (f64::MAX, None, false);
        for nodes in (1..=able.len()).rev() {
            combinations(&able, nodes, memory, &mut |memory, combination| {
                let subset = memory.read(combination);
                if subset.iter().map(|&numa| left_after(numa)).sum::<usize>() < remainder {
                    return Flow::Go;
                }
                let Some(even) = self.dealt(after, &subset, remainder) else {
                    endless = true;
                    return Flow::Stop;
                };
                let balance = deviation(&even);
                if balance < best {
                    (best, chosen) = (balance, Some(combination));
                }
                Flow::Go
            });
        }
        if endless { Err(Cause::Endless) } else { Ok((best, chosen)) }
    }

    /// What is left when the remainder was taken in turn; `None` if that never ends.
    fn dealt(
        &self,
        after: &[(u8, usize)],
        subset: &[u8],
        remainder: usize,
    ) -> Option<Vec<(u8, usize)>> {
        let (mut even, mut remainder) = (after.to_vec(), remainder);
        while remainder > 0 {
            let before = remainder;
            for numa in subset {
                if remainder == 0 {
                    break;
                }
                let left = even.iter_mut().find(|(id, _)| id == numa);
                if let Some((_, left)) = left.filter(|(_, left)| *left >= self.size) {
                    *left -= self.size;
                    remainder = remainder.saturating_sub(self.size);
                }
            }
            if remainder == before {
                return None;
            }
        }
        Some(even)
    }

    fn in_one_socket(&self, nodes: &[u8]) -> bool {
        let cpus = self.layout.numas.iter().filter(|numa| nodes.contains(&numa_id(numa)));
        let cpus = cpus.fold(CpuSet::default(), |all, numa| all.union(&numa.cpus));
        self.layout.sockets.iter().filter(|socket| socket.cpus.common(&cpus) > 0).count() <= 1
    }
}

/// The standard deviation of what is left, to three digits, as the kubelet rounds it.
fn deviation(left: &[(u8, usize)]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "numbers of CPUs")]
    let values: Vec<f64> = left.iter().map(|(_, left)| *left as f64).collect();
    #[expect(clippy::cast_precision_loss, reason = "numbers of NUMA nodes")]
    let count = values.len() as f64;
    let rounded = |x: f64| (x * 1000.0).round() / 1000.0;
    let mean = rounded(values.iter().sum::<f64>() / count);
    let sum: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
    rounded((sum / count).sqrt())
}

#[derive(Clone, Copy, PartialEq)]
enum Flow {
    Go,
    Stop,
}

/// A slice of shared memory.
#[derive(Clone, Copy)]
struct Combination {
    array: usize,
    len: usize,
}

/// Arrays that grow as slices do in Go: when full, into a new one of twice the size;
/// else in place, under the eyes of whoever holds a slice of them.
#[derive(Default)]
struct Memory {
    arrays: Vec<Vec<u8>>,
}

impl Memory {
    fn empty(&mut self) -> Combination {
        self.arrays.push(Vec::new());
        Combination { array: self.arrays.len() - 1, len: 0 }
    }

    fn append(&mut self, to: Combination, numa: u8) -> Combination {
        let size = self.arrays[to.array].len();
        if to.len < size {
            self.arrays[to.array][to.len] = numa;
            return Combination { array: to.array, len: to.len + 1 };
        }
        let mut array = self.arrays[to.array].clone();
        array.resize((size * 2).max(1), 0);
        array[to.len] = numa;
        self.arrays.push(array);
        Combination { array: self.arrays.len() - 1, len: to.len + 1 }
    }

    fn read(&self, combination: Combination) -> Vec<u8> {
        self.arrays[combination.array][..combination.len].to_vec()
    }
}

/// Shows every combination of so many nodes, in order, until told to stop.
fn combinations(
    nodes: &[u8],
    count: usize,
    memory: &mut Memory,
    show: &mut dyn FnMut(&mut Memory, Combination) -> Flow,
) {
    fn walk(
        nodes: &[u8],
        count: usize,
        from: usize,
        held: Combination,
        memory: &mut Memory,
        show: &mut dyn FnMut(&mut Memory, Combination) -> Flow,
    ) -> Flow {
        if count == 0 {
            return show(memory, held);
        }
        for at in from..(nodes.len() + 1).saturating_sub(count) {
            let held = memory.append(held, nodes[at]);
            if walk(nodes, count - 1, at + 1, held, memory, show) == Flow::Stop {
                return Flow::Stop;
            }
        }
        Flow::Go
    }
    if count > 0 {
        let held = memory.empty();
        walk(nodes, count, 0, held, memory, show);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_combination_changes_as_a_slice_in_go_does() {
        let mut memory = Memory::default();
        let mut first = None;
        combinations(&[0, 1, 2, 3, 4], 4, &mut memory, &mut |memory, combination| {
            if first.is_none() {
                assert_eq!(memory.read(combination), [0, 1, 2, 3]);
                first = Some(combination);
            }
            Flow::Go
        });
        // The slice of three had room for a fourth: 0,1,2,4 was written over it.
        assert_eq!(first.map(|first| memory.read(first)), Some(vec![0, 1, 2, 4]));
    }

    #[test]
    fn deviations_are_rounded_to_three_digits() {
        assert!((deviation(&[(0, 1), (1, 2)]) - 0.5).abs() < f64::EPSILON);
        assert!((deviation(&[(0, 1), (1, 2), (2, 4)]) - 1.247).abs() < f64::EPSILON);
    }
}
