//! Sets of NUMA nodes.

use std::fmt;

/// A set of NUMA nodes, one bit per id: the kubelet's bit mask, which holds ids 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mask(pub u64);

impl Mask {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// The set of one node; empty for ids that the kubelet's mask cannot hold.
    #[must_use]
    pub const fn one(id: u8) -> Self {
        if id < 64 { Self(1 << id) } else { Self::EMPTY }
    }

    /// How many nodes there are in it.
    #[must_use]
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it has no node.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a node is in it.
    #[must_use]
    pub const fn has(self, id: u8) -> bool {
        id < 64 && self.0 & (1 << id) != 0
    }

    /// Nodes in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Nodes in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether every node of the other is in it.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Its ids, ascending.
    pub fn ids(self) -> impl Iterator<Item = u8> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let id = u8::try_from(rest.trailing_zeros()).ok().filter(|id| *id < 64)?;
            rest &= rest - 1;
            Some(id)
        })
    }

    /// Every set of its nodes but the empty one. The order is of no consequence: all
    /// that the kubelet does with masks is the same in any order.
    pub fn subsets(self) -> impl Iterator<Item = Self> {
        let (all, mut last) = (self.0, 0_u64);
        std::iter::from_fn(move || {
            last = last.wrapping_sub(all) & all;
            (last != 0).then_some(Self(last))
        })
    }

    /// The kubelet's order of masks: fewer nodes first, then the smaller number.
    #[must_use]
    pub fn narrower(self, other: Self) -> bool {
        (self.count(), self.0) < (other.count(), other.0)
    }
}

impl FromIterator<u8> for Mask {
    fn from_iter<T: IntoIterator<Item = u8>>(ids: T) -> Self {
        ids.into_iter().fold(Self::EMPTY, |mask, id| mask.or(Self::one(id)))
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, id) in self.ids().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{id}")?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subset_occurs_once() {
        let mut seen: Vec<Mask> = Mask(0b1011).subsets().collect();
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 8, 9, 10, 11].map(Mask));
        assert_eq!(Mask::EMPTY.subsets().count(), 0);
        assert_eq!(Mask(1 << 63).subsets().collect::<Vec<_>>(), [Mask(1 << 63)]);
    }

    #[test]
    fn ids_come_back() {
        let ids = [0, 2, 10, 63];
        assert_eq!(ids.into_iter().collect::<Mask>().ids().collect::<Vec<_>>(), ids);
        assert_eq!(ids.into_iter().collect::<Mask>().to_string(), "{0,2,10,63}");
    }
}
