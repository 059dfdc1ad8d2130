//! Which GPUs a pod should get, and what it costs those who come later.

use smallvec::SmallVec;

use super::{GpuMask, Links, SIZES, Shares, subsets};

/// Points that a set loses for a GPU in it that is not well, though its links are.
const DEGRADED: u8 = 25;
/// Points for one that should not be used at all.
const BROKEN: u8 = 50;

/// How the GPUs of a machine are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Those that can be had.
    pub free: GpuMask,
    /// Those that are well enough for work of their own.
    pub degraded: GpuMask,
    /// Those that are not to be used if it can be helped.
    pub broken: GpuMask,
}

/// Where a kubelet would take GPUs from: so many out of each set, the sets having no GPU in
/// common.
pub type Limit = SmallVec<[(GpuMask, u32); 4]>;

/// GPUs for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which.
    pub set: GpuMask,
    /// How good they are beside the best that the machine could ever give: at most 100.
    pub points: u8,
    /// What is lost for those who come later, in thousandths: 1000 if a whole machine is broken up
    /// for one GPU.
    pub damage: u16,
    /// Whether no set of its size could ever be better.
    pub aligned: bool,
}

impl Links {
    /// The best set of `size` GPUs that can be had within one of the limits, or anywhere if there
    /// is none. Of those with equal links the one that leaves most for others, then the closest,
    /// then the first.
    #[must_use]
    pub fn choose(
        &self,
        now: Now,
        size: usize,
        limits: &[Limit],
        shares: Shares,
    ) -> Option<Choice> {
        let unwell = (now.degraded | self.wiring().down) & !now.broken;
        let sound = now.free & !unwell & !now.broken;
        let alone = size == 1;
        // Smaller is better. One GPU has no links to lose, so what is not well goes first.
        let rough = |set: GpuMask| {
            let unwell = (set & unwell).count_ones();
            let (wish, rank) = if alone { (1 - unwell, 0) } else { (unwell, self.rank(set).0) };
            ((set & now.broken).count_ones(), wish, rank)
        };
        let mut best: Option<((u32, u32, u16), u16, GpuMask)> = None;
        for set in subsets(now.free, size).filter(|set| allowed(*set, limits)) {
            let key = rough(set);
            if best.is_some_and(|(known, ..)| known < key) {
                continue;
            }
            let damage = self.damage(sound, set, shares);
            let better = best.is_none_or(|(known, least, first)| {
                let by = key.cmp(&known).then(damage.cmp(&least));
                let by = by.then_with(|| self.rank(set).1.cmp(&self.rank(first).1));
                by.then_with(|| before(set, first)).is_lt()
            });
            if better {
                best = Some((key, damage, set));
            }
        }
        let ((broken, _, _), damage, set) = best?;
        let unfit = if alone { 0 } else { (set & unwell).count_ones() };
        let lost = u32::from(DEGRADED) * unfit.min(1) + u32::from(BROKEN) * broken.min(1);
        let points = u32::from(self.points(set)).saturating_sub(lost) as u8;
        let aligned = self.is_aligned(set) && broken == 0 && unfit == 0;
        Some(Choice { set, points, damage, aligned })
    }

    /// Whole sets that are lost beyond those that are given away, weighted by what is asked for.
    fn damage(&self, sound: GpuMask, set: GpuMask, shares: Shares) -> u16 {
        let (before, after) = (self.whole(sound), self.whole(sound & !set));
        let own = self.whole(set & sound);
        let (mut lost, mut most) = (0, 0);
        for (at, &whole) in SIZES.iter().enumerate() {
            let gone = whole * usize::from(before[at].saturating_sub(after[at]));
            let used = whole * usize::from(own[at]);
            lost += gone.saturating_sub(used) * shares[at] as usize;
            most += 8 * shares[at] as usize;
        }
        (lost * 1000).checked_div(most).map_or(0, |part| part.min(1000) as u16)
    }
}

fn allowed(set: GpuMask, limits: &[Limit]) -> bool {
    let within =
        |limit: &Limit| limit.iter().all(|(side, count)| (set & side).count_ones() == *count);
    limits.is_empty() || limits.iter().any(within)
}

/// Sets of one size in the order of their GPUs.
fn before(a: GpuMask, b: GpuMask) -> std::cmp::Ordering {
    let differ = a ^ b;
    let lowest = differ & differ.wrapping_neg();
    (b & lowest).cmp(&(a & lowest))
}
