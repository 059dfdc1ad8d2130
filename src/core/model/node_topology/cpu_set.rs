//! A set of CPUs as bits: what the CPU Manager counts, subtracts and compares.

use std::fmt;

use smallvec::SmallVec;

/// The highest CPU that is accepted: what the largest kernels are built for.
pub const MAX_CPU: u32 = 8191;

/// A set of CPUs. Two sets of the same CPUs are equal.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// No word at the end is 0.
    words: SmallVec<[u64; 4]>,
}

impl CpuSet {
    /// Reads a list as the kernel prints it: `0-15,32-47`.
    ///
    /// # Errors
    /// If it is no such list, or names a CPU above [`MAX_CPU`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut set = Self::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| {
                let plain = digits.bytes().all(|b| b.is_ascii_digit());
                digits.parse::<u32>().ok().filter(|n| plain && *n <= MAX_CPU)
            };
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => set.insert_range(first, last),
                _ => return Err(format!("{part:?} is not a CPU, or a range like 0-3")),
            }
        }
        Ok(set)
    }

    /// Puts in a CPU. Those above [`MAX_CPU`] are left out.
    pub fn insert(&mut self, cpu: u32) {
        if cpu <= MAX_CPU {
            self.insert_range(cpu, cpu);
        }
    }

    fn insert_range(&mut self, first: u32, last: u32) {
        let (from, to) = ((first / 64) as usize, (last / 64) as usize);
        if self.words.len() <= to {
            self.words.resize(to + 1, 0);
        }
        for (at, word) in self.words.iter_mut().enumerate().take(to + 1).skip(from) {
            let low = if at == from { first % 64 } else { 0 };
            let high = if at == to { last % 64 } else { 63 };
            *word |= (u64::MAX << low) & (u64::MAX >> (63 - high));
        }
    }

    /// How many CPUs.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether a CPU is in it.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get((cpu / 64) as usize).is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                // At most MAX_CPU / 64 words.
                Some(at as u32 * 64 + bit)
            })
        })
    }

    /// CPUs in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) =
            if self.words.len() >= other.words.len() { (self, other) } else { (other, self) };
        let mut set = long.clone();
        set.words.iter_mut().zip(&short.words).for_each(|(word, more)| *word |= more);
        set
    }

    /// CPUs in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let both = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self { words: both.collect() }.trimmed()
    }

    /// CPUs that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.words.iter_mut().zip(&other.words).for_each(|(word, less)| *word &= !less);
        set.trimmed()
    }

    /// How many CPUs are in both.
    #[must_use]
    pub fn common(&self, other: &Self) -> u32 {
        self.words.iter().zip(&other.words).map(|(a, b)| (a & b).count_ones()).sum()
    }

    fn trimmed(mut self) -> Self {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        self
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::default();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{self}]")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_read_and_printed() {
        let cases = [
            ("", "", 0),
            ("0", "0", 1),
            ("3,1,2", "1-3", 3),
            ("0-15,32-47", "0-15,32-47", 32),
            ("60-130", "60-130", 71),
            ("8191", "8191", 1),
        ];
        for (text, printed, count) in cases {
            let set = CpuSet::parse(text).unwrap();
            assert_eq!((set.to_string().as_str(), set.len()), (printed, count), "{text:?}");
        }
        for text in ["a", "0,,2", "3-1", "-1", "+1", "0-8192", "1-", " 1", "99999999999"] {
            assert!(CpuSet::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_set_of_bits_is_a_set(
            a in prop::collection::btree_set(0..400_u32, 0..60),
            b in prop::collection::btree_set(0..400_u32, 0..60),
        ) {
            let set = |cpus: &BTreeSet<u32>| cpus.iter().copied().collect::<CpuSet>();
            let (x, y) = (set(&a), set(&b));
            prop_assert_eq!(x.union(&y), set(&(&a | &b)));
            prop_assert_eq!(x.intersection(&y), set(&(&a & &b)));
            prop_assert_eq!(x.difference(&y), set(&(&a - &b)));
            prop_assert_eq!(x.common(&y) as usize, (&a & &b).len());
            prop_assert_eq!(x.len() as usize, a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert_eq!(CpuSet::parse(&x.to_string()), Ok(x.clone()));
            prop_assert!((0..401).all(|cpu| x.contains(cpu) == a.contains(&cpu)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,+ -]{0,24}") {
            if let Ok(set) = CpuSet::parse(&text) {
                prop_assert_eq!(CpuSet::parse(&set.to_string()), Ok(set));
            }
        }
    }
}
