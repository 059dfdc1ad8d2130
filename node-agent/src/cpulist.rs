//! The kernel's list syntax for ids of CPUs and NUMA nodes: `0-3,8,10-11`.
//!
//! Owns parsing and printing. Must never expand a range it has not bounded, and never panic: the
//! text comes from outside.

use std::fmt;
use std::str::FromStr;

use muster_api::muster::node_topology::MAX_CPU_LIST;

/// The highest id that is accepted: far above what any kernel is built for, low enough to iterate.
pub const MAX_ID: u32 = (1 << 20) - 1;

/// A set of ids, kept as sorted, disjoint, non-adjacent, inclusive ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(Vec<(u32, u32)>);

/// Why a text is not a list of ids.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    #[error("{0:?} is not a number or a range like 0-3")]
    Syntax(String),
    #[error("the range {0:?} ends before it begins")]
    Backwards(String),
    #[error("{0} is above the highest supported id {MAX_ID}")]
    TooHigh(u32),
}

impl CpuList {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ids are in the set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// The ids in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Whether all ids are in `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        let inside = |&(first, last): &(u32, u32)| {
            other.0.iter().any(|&(from, to)| from <= first && last <= to)
        };
        self.0.iter().all(inside)
    }

    /// The list as an object may hold it; empty if it is too long for that.
    pub fn shown(&self) -> String {
        let text = self.to_string();
        if text.len() > MAX_CPU_LIST { String::new() } else { text }
    }

    fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(previous) if first <= previous.1 + 1 => previous.1 = previous.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}

impl FromIterator<u32> for CpuList {
    /// Ids above [`MAX_ID`] are left out.
    fn from_iter<I: IntoIterator<Item = u32>>(ids: I) -> Self {
        Self::from_ranges(ids.into_iter().filter(|&id| id <= MAX_ID).map(|id| (id, id)).collect())
    }
}

impl FromStr for CpuList {
    type Err = ParseError;

    /// The empty text is the empty set: a NUMA node without CPUs has one.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.split(',').map(parse_range).collect::<Result<_, _>>().map(Self::from_ranges)
    }
}

fn parse_range(text: &str) -> Result<(u32, u32), ParseError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |part: &str| {
        // `parse` alone would take "+3".
        let digits = part.bytes().all(|b| b.is_ascii_digit());
        let value = if digits { part.parse().ok() } else { None };
        value.ok_or_else(|| ParseError::Syntax(text.to_owned()))
    };
    match (number(first)?, number(last)?) {
        (first, last) if first > last => Err(ParseError::Backwards(text.to_owned())),
        (_, last) if last > MAX_ID => Err(ParseError::TooHigh(last)),
        range => Ok(range),
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_what_the_kernel_prints() {
        let cases = [
            ("", "", 0),
            ("\n", "", 0),
            ("0\n", "0", 1),
            ("0-1,4", "0-1,4", 3),
            ("48-63,176-191\n", "48-63,176-191", 32),
            // Not what a kernel prints, but the same set.
            ("3,1,2,2-5", "1-5", 5),
            ("1048575", "1048575", 1),
        ];
        for (text, canonical, count) in cases {
            let list: CpuList = text.parse().unwrap();
            assert_eq!((list.to_string().as_str(), list.count()), (canonical, count), "{text:?}");
        }
    }

    #[test]
    fn refuses_the_rest_by_name() {
        let syntax = |part: &str| ParseError::Syntax(part.to_owned());
        let cases = [
            ("a", syntax("a")),
            ("0,,2", syntax("")),
            ("0-", syntax("0-")),
            ("-1", syntax("-1")),
            ("+1", syntax("+1")),
            ("0-1-2", syntax("0-1-2")),
            ("0-31:2/4", syntax("0-31:2/4")),
            ("4294967296", syntax("4294967296")),
            ("3-1", ParseError::Backwards("3-1".to_owned())),
            ("0-4294967295", ParseError::TooHigh(u32::MAX)),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<CpuList>(), Err(error), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "\\PC*") {
            let _ = text.parse::<CpuList>();
        }

        #[test]
        fn near_misses_parse_or_are_refused(text in "[0-9,:/ \n-]{0,40}") {
            if let Ok(list) = text.parse::<CpuList>() {
                prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
            }
        }

        #[test]
        fn prints_and_parses_back(ids in prop::collection::btree_set(0..300_u32, 0..80)) {
            let list: CpuList = ids.iter().copied().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list.clone()));
            prop_assert_eq!(list.iter().collect::<BTreeSet<_>>(), ids.clone());
            prop_assert_eq!(list.count() as usize, ids.len());
        }

        #[test]
        fn within_is_subset(
            a in prop::collection::btree_set(0..40_u32, 0..8),
            b in prop::collection::btree_set(0..40_u32, 0..40),
        ) {
            let list = |ids: &BTreeSet<u32>| ids.iter().copied().collect::<CpuList>();
            prop_assert_eq!(list(&a).is_within(&list(&b)), a.is_subset(&b));
        }
    }
}
