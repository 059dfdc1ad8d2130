//! How many whole sets there are in a set of GPUs.

use super::{GpuMask, SIZES, subsets};

/// For each set of GPUs: how many sets of two, four and eight can be had out of it, one
/// beside the other, each as good as the machine has any.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    counts: Box<[[u8; 3]]>,
}

impl Whole {
    /// Counts, given the best sets of each size.
    pub(super) fn new(count: usize, aligned: &[Vec<GpuMask>]) -> Self {
        let mut counts = vec![[0_u8; 3]; 1 << count].into_boxed_slice();
        for (at, size) in SIZES.iter().enumerate().filter(|(_, size)| **size <= count) {
            let sets = &aligned[*size];
            for set in sets {
                counts[usize::from(*set)][at] = 1;
            }
            spread(&mut counts, at, count);
            let all = (u32::from(GpuMask::MAX) >> (GpuMask::BITS as usize - count)) as GpuMask;
            for many in 2..=count / size {
                // A set with room for so many has a part of just their size that has.
                for mask in subsets(all, many * size) {
                    let low = mask & mask.wrapping_neg();
                    let fits = |set: &&GpuMask| **set & low != 0 && **set & !mask == 0;
                    let left = |set: &GpuMask| usize::from(counts[usize::from(mask & !set)][at]);
                    if sets.iter().filter(fits).any(|set| left(set) + 1 >= many) {
                        counts[usize::from(mask)][at] = many as u8;
                    }
                }
                spread(&mut counts, at, count);
            }
        }
        Self { counts }
    }

    pub(super) fn of(&self, free: GpuMask) -> [u8; 3] {
        self.counts[usize::from(free)]
    }
}

/// Whoever holds a set holds what is in it.
fn spread(counts: &mut [[u8; 3]], at: usize, count: usize) {
    for gpu in 0..count {
        for set in (0..counts.len()).filter(|set| set >> gpu & 1 == 1) {
            counts[set][at] = counts[set][at].max(counts[set & !(1 << gpu)][at]);
        }
    }
}
