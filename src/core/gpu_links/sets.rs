//! How good each set of GPUs of a machine is.
//!
//! Owns the order among sets of one size: the slowest link of the best ring through all of them,
//! then the sum over their links, then how many have a network device of their own; and how
//! close they are. All sets are rated when a machine is first seen; a rating is a look-up.

use std::cmp::Reverse;

use super::whole::Whole;
use super::{GpuMask, Wiring, positions, subsets};

/// Of the 100 points that a set can have: for the slowest link of its best ring, for the sum over its
/// links, for network devices, for closeness.
const POINTS: [u64; 4] = [40, 15, 10, 35];

/// What makes a set better than another of its size: the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    ring: u32,
    sum: u64,
    rails: u32,
    distance: Reverse<u32>,
}

impl Key {
    /// The same but for how close they are.
    const fn links(self) -> (u32, u64, u32) {
        (self.ring, self.sum, self.rails)
    }
}

/// How good each set of GPUs of a machine is, and how many whole sets there are in each.
#[derive(Clone, Debug)]
pub struct Links {
    wiring: Wiring,
    /// By set: how many better ones of its size there are, without counting equals twice: by
    /// links and network devices, and by closeness too.
    rank: Box<[(u16, u16)]>,
    /// By set: its points.
    points: Box<[u8]>,
    whole: Whole,
}

impl Links {
    /// Rates all sets of a machine.
    #[must_use]
    pub fn new(wiring: Wiring) -> Self {
        let count = wiring.count;
        let keys = rate(&wiring);
        let healed = wiring.healed();
        let ever = if healed == wiring { keys.clone() } else { rate(&healed) };
        let mut rank = vec![(0_u16, 0_u16); keys.len()];
        let mut points = vec![100_u8; keys.len()];
        let mut aligned = vec![Vec::new()];
        for size in 1..=count {
            let mut sets: Vec<GpuMask> = subsets(wiring.all(), size).collect();
            sets.sort_unstable_by_key(|set| Reverse(keys[usize::from(*set)]));
            let key = |set: &GpuMask| keys[usize::from(*set)];
            let best = sets.iter().map(|set| ever[usize::from(*set)]).max().unwrap_or_default();
            let farthest = sets.iter().map(|set| key(set).distance.0).max().unwrap_or(0);
            let (mut by_links, mut last) = (0, None);
            for (at, alike) in sets.chunk_by(|a, b| key(a) == key(b)).enumerate() {
                let links = Some(key(&alike[0]).links());
                by_links += u16::from(last.is_some() && last != links);
                last = links;
                for set in alike {
                    // At most C(16, 8) groups.
                    rank[usize::from(*set)] = (by_links, at as u16);
                    if size > 1 {
                        points[usize::from(*set)] = points_of(key(set), best, farthest);
                    }
                }
            }
            let sound = |set: &&GpuMask| **set & wiring.down == 0;
            let first = sets.iter().find(sound).map(key);
            let as_good = sets.iter().filter(sound).filter(|set| Some(key(set)) == first);
            aligned.push(as_good.copied().collect());
        }
        let (rank, points) = (rank.into_boxed_slice(), points.into_boxed_slice());
        Self { whole: Whole::new(count, &aligned), wiring, rank, points }
    }

    /// The machine.
    #[must_use]
    pub fn wiring(&self) -> &Wiring {
        &self.wiring
    }

    /// How many better sets of its size there are by links and network devices, and by closeness
    /// too; equal sets have equal ranks.
    #[must_use]
    pub fn rank(&self, set: GpuMask) -> (u16, u16) {
        self.rank[usize::from(set)]
    }

    /// How good a set is beside the best one of its size that the machine could ever give: 100 is as good.
    #[must_use]
    pub fn points(&self, set: GpuMask) -> u8 {
        self.points[usize::from(set)]
    }

    /// Whether a set is one of the best of its size, and nothing of it is down. One GPU always is,
    /// as far as links go.
    #[must_use]
    pub fn is_aligned(&self, set: GpuMask) -> bool {
        let best = self.rank(set).1 == 0 || set.count_ones() == 1;
        best && set & self.wiring.down == 0
    }

    /// How many whole sets of each of the [`SIZES`](super::SIZES) can be had out of these GPUs, one
    /// beside the other.
    #[must_use]
    pub fn whole(&self, free: GpuMask) -> [u8; 3] {
        self.whole.of(free)
    }

    /// About how many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rank.len() * 8 + self.wiring.bandwidth.len() * 8
    }
}

fn points_of(own: Key, best: Key, farthest: u32) -> u8 {
    let share = |own: u64, best: u64| (own * 1000).checked_div(best).map_or(1000, |s| s.min(1000));
    let close = match (farthest.checked_sub(best.distance.0), farthest - own.distance.0) {
        (Some(range), left) if range > 0 => share(left.into(), range.into()),
        _ => 1000,
    };
    let shares = [
        share(own.ring.into(), best.ring.into()),
        share(own.sum, best.sum),
        share(own.rails.into(), best.rails.into()),
        close,
    ];
    let sum: u64 = shares.iter().zip(POINTS).map(|(share, points)| share * points).sum();
    (sum / 1000) as u8
}

/// The key of each set.
fn rate(wiring: &Wiring) -> Vec<Key> {
    let rings = rings(wiring);
    let mut keys = vec![Key::default(); 1 << wiring.count];
    for set in 1..keys.len() {
        let low = set.trailing_zeros() as usize;
        let rest = set & (set - 1);
        let to = |square: &[u32]| -> u64 {
            let row = &square[low * wiring.count..][..wiring.count];
            positions(rest as GpuMask).map(|other| u64::from(row[other])).sum()
        };
        let before = keys[rest];
        keys[set] = Key {
            ring: rings[set],
            sum: before.sum + to(&wiring.bandwidth),
            rails: rails(wiring, set as GpuMask),
            // At most 120 pairs of less than 2^13 each.
            distance: Reverse(before.distance.0 + to(&wiring.distance) as u32),
        };
    }
    keys
}

/// Of each set the slowest link of the best ring through all of it; of a pair its link.
fn rings(wiring: &Wiring) -> Vec<u32> {
    let (count, sets) = (wiring.count, 1_usize << wiring.count);
    let link = |a: usize, b: usize| wiring.bandwidth[a * count + b];
    let mut rings = vec![0_u32; sets];
    let any = if count > 1 { link(0, 1) } else { 0 };
    let mut pairs = (0..count).flat_map(|a| (0..a).map(move |b| (a, b)));
    if pairs.all(|(a, b)| link(a, b) == any && link(b, a) == any) {
        // Behind switches all rings are alike.
        let linked = (0..sets).filter(|set| set.count_ones() > 1);
        linked.for_each(|set| rings[set] = any);
        return rings;
    }
    // paths[set][end]: the best path from the lowest of the set through all of it to an end.
    let mut paths = vec![0_u32; sets * count];
    for (set, ring) in rings.iter_mut().enumerate().skip(1) {
        let start = set.trailing_zeros() as usize;
        let rest = set & (set - 1);
        if rest == 0 {
            paths[set * count + start] = u32::MAX;
        }
        for end in positions(rest as GpuMask) {
            let before = set & !(1 << end);
            let only_start = before & (before - 1) == 0;
            let best = positions(before as GpuMask)
                .filter(|last| only_start || *last != start)
                .map(|last| paths[before * count + last].min(link(last, end)))
                .max();
            let path = best.unwrap_or(0);
            paths[set * count + end] = path;
            *ring = (*ring).max(path.min(link(end, start)));
        }
    }
    rings
}

/// How many GPUs of a set can have a near network device each.
fn rails(wiring: &Wiring, set: GpuMask) -> u32 {
    let mut holder = [None::<usize>; 64];
    let mut matched = 0;
    for gpu in positions(set) {
        let mut seen = 0_u64;
        matched += u32::from(seat(wiring, gpu, &mut holder, &mut seen));
    }
    matched
}

/// Finds a network device for a GPU; others move to another if they can.
fn seat(wiring: &Wiring, gpu: usize, holder: &mut [Option<usize>; 64], seen: &mut u64) -> bool {
    loop {
        let open = wiring.nics[gpu] & !*seen;
        if open == 0 {
            return false;
        }
        let nic = open.trailing_zeros() as usize;
        *seen |= 1 << nic;
        let moves = match holder[nic] {
            None => true,
            Some(other) => seat(wiring, other, holder, seen),
        };
        if moves {
            holder[nic] = Some(gpu);
            return true;
        }
    }
}
