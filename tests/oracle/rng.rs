//! A small seeded random source (SplitMix64): states must be the same for the
//! same seed on every machine and for ever.

pub(crate) struct Rng(u64);

impl Rng {
    /// The source for the `index`-th state of a run, so that each state can be
    /// made again without those before it.
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        let mut rng = Self(seed ^ index.wrapping_mul(0xd134_2543_de82_ef95));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..limit`; the bias is far below what a test could see.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 32).unwrap_or(0) % limit.max(1)
    }

    /// A number in `low..=high`.
    pub(crate) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }

    /// Each item with the given chance, in their order.
    pub(crate) fn some<'a, T: ?Sized>(&mut self, items: &[&'a T], percent: usize) -> Vec<&'a T> {
        items.iter().copied().filter(|_| self.chance(percent)).collect()
    }
}
