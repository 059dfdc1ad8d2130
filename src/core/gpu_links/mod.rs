//! Which GPUs of a machine a pod should get: the set that talks fastest now, and what it
//! leaves for those who come later.
//!
//! Owns the arithmetic of one machine: how good each set of GPUs is ([`Links`], made once per
//! machine model and looked up ever after), which set of a size is the best among those that are
//! free, and how many whole sets of two, four and eight are lost by it ([`Links::choose`]); the same for
//! GPUs that are divided ([`mig`]); and what sizes have been asked for of late ([`Demand`]).
//! Exact for up to [`MAX_GPUS`] GPUs. Must know nothing of clusters or time, and take nothing.

mod choose;
mod demand;
pub mod mig;
mod sets;
#[cfg(test)]
mod tests;
mod whole;
mod wiring;

pub use choose::{Choice, Limit, Now};
pub use demand::{Demand, Shares};
pub use sets::Links;
pub use wiring::Wiring;

/// Most GPUs of a machine whose sets are judged.
pub const MAX_GPUS: usize = 16;

/// A set of GPUs: a bit for each position in the machine's list.
pub type GpuMask = u16;

/// The sizes of sets that are worth keeping whole.
pub const SIZES: [usize; 3] = [2, 4, 8];

/// The positions in a set, ascending.
pub fn positions(set: GpuMask) -> impl Iterator<Item = usize> {
    (0..MAX_GPUS).filter(move |at| set >> at & 1 == 1)
}

/// All sets of `size` GPUs out of `of`, in no order that matters.
pub(crate) fn subsets(of: GpuMask, size: usize) -> impl Iterator<Item = GpuMask> {
    let members: smallvec::SmallVec<[GpuMask; MAX_GPUS]> =
        positions(of).map(|at| 1 << at).collect();
    let end = 1_u32 << members.len();
    let first = (size <= members.len()).then(|| (1_u32 << size) - 1);
    let mut next = first.filter(|first| *first < end);
    std::iter::from_fn(move || {
        let packed = next?;
        // Gosper's hack: the next number with as many bits.
        let low = packed & packed.wrapping_neg();
        let ripple = packed + low;
        next = (low != 0)
            .then(|| (((ripple ^ packed) >> 2) / low) | ripple)
            .filter(|following| *following < end);
        let chosen = members.iter().enumerate().filter(|(at, _)| packed >> at & 1 == 1);
        Some(chosen.fold(0, |set, (_, member)| set | member))
    })
}
