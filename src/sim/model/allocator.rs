//! Which GPUs NVIDIA's device plugin gives: the best-effort policy of go-gpuallocator.
//!
//! All ways to part the free GPUs into sets of the size are rated by the sum over their pairs; of the
//! best, the best set is given. Links through NVSwitches are not seen by it, only places on PCI. Which
//! of equals it takes depends on the order of a map in Go: here it is drawn.

use crate::rng::Rng;

/// The set that is given out of the free GPUs, which are at least as many.
pub(crate) fn best_effort(
    pair: impl Fn(usize, usize) -> u32,
    free: &[usize],
    size: usize,
    rng: &mut Rng,
) -> Vec<usize> {
    if size == 1 {
        // One is rated alone, and all rate the same.
        return vec![free[draw(rng, free.len())]];
    }
    let value = |set: &[usize]| -> u32 {
        let rest = |at: usize| set[at + 1..].iter();
        (0..set.len())
            .flat_map(|at| rest(at).map(move |b| (at, *b)))
            .map(|(at, b)| pair(set[at], b))
            .sum()
    };
    let mut best: (u32, usize, Vec<Vec<usize>>) = (0, 0, Vec::new());
    let rest = free.len() % size;
    partitions(free, size, rest, &mut Vec::new(), &mut |sets| {
        let sum: u32 = sets.iter().map(|set| value(set)).sum();
        if best.1 == 0 || sum > best.0 {
            best = (sum, 1, sets.to_vec());
        } else if sum == best.0 {
            best.1 += 1;
            if draw(rng, best.1) == 0 {
                best.2 = sets.to_vec();
            }
        }
    });
    let whole = || best.2.iter().filter(|set| set.len() == size);
    let most = whole().map(|set| value(set)).max();
    let equals: Vec<&Vec<usize>> = whole().filter(|set| Some(value(set)) == most).collect();
    equals[draw(rng, equals.len())].clone()
}

/// A number below `of`.
fn draw(rng: &mut Rng, of: usize) -> usize {
    let most = i64::try_from(of).unwrap_or(i64::MAX) - 1;
    usize::try_from(rng.between(0, most)).unwrap_or(0)
}

/// All ways to part some GPUs into sets of a size and one of the rest.
fn partitions(
    of: &[usize],
    size: usize,
    rest: usize,
    sets: &mut Vec<Vec<usize>>,
    found: &mut dyn FnMut(&[Vec<usize>]),
) {
    let Some((first, others)) = of.split_first() else {
        return found(sets);
    };
    for (own, rest) in [(size, rest), (rest, 0)] {
        // The rest is parted off once.
        if own == 0 || own > of.len() {
            continue;
        }
        choose(others, own - 1, &mut vec![*first], &mut |set| {
            let left: Vec<usize> = of.iter().copied().filter(|gpu| !set.contains(gpu)).collect();
            sets.push(set.to_vec());
            partitions(&left, size, rest, sets, found);
            sets.pop();
        });
    }
}

fn choose(of: &[usize], count: usize, set: &mut Vec<usize>, found: &mut dyn FnMut(&[usize])) {
    if count == 0 {
        return found(set);
    }
    for (at, gpu) in of.iter().enumerate() {
        set.push(*gpu);
        choose(&of[at + 1..], count - 1, set, found);
        set.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Two sides of four: 20 on a side, 10 across.
    fn given(free: &[usize], size: usize) -> BTreeMap<Vec<usize>, u32> {
        let mut rng = Rng::new(7);
        let mut all = BTreeMap::new();
        for _ in 0..400 {
            let pair = |a: usize, b: usize| if a / 4 == b / 4 { 20 } else { 10 };
            let mut set = best_effort(pair, free, size, &mut rng);
            set.sort_unstable();
            *all.entry(set).or_default() += 1;
        }
        all
    }

    #[test]
    fn fours_stay_on_a_side_and_pairs_may_break_one() {
        let sides = given(&[0, 1, 2, 3, 4, 5, 6, 7], 4);
        assert_eq!(sides.keys().cloned().collect::<Vec<_>>(), [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        // Only a side is whole.
        assert_eq!(given(&[1, 2, 4, 5, 6, 7], 4).into_keys().collect::<Vec<_>>(), [[4, 5, 6, 7]]);
        // A pair of either side is as good to it, although one side is whole.
        let pairs = given(&[0, 1, 4, 5, 6, 7], 2);
        assert!(pairs.contains_key(&vec![0, 1]) && pairs.contains_key(&vec![4, 5]), "{pairs:?}");
        assert!(pairs.keys().all(|pair| pair[0] / 4 == pair[1] / 4), "{pairs:?}");
        assert_eq!(given(&[2, 5, 7], 1).len(), 3);
        assert_eq!(given(&[1, 5], 2).into_keys().collect::<Vec<_>>(), [[1, 5]]);
    }
}
