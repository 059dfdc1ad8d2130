//! Maps with fixed hashers: the same inputs give the same layout on every run.

#![allow(clippy::disallowed_types, reason = "this is the one place that names the std maps")]

use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

/// For keys that come from outside (strings): SipHash with fixed keys.
pub(crate) type TextMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// For keys that are dense ids of our own: fast and not floodable, since
/// outsiders do not choose them.
pub(crate) type IdMap<K, V> = rustc_hash::FxHashMap<K, V>;
/// As [`IdMap`], without values.
pub(crate) type IdSet<K> = rustc_hash::FxHashSet<K>;

/// A reversible scramble of 32 bits (lowbias32): equal scores are ranked by it,
/// so a tie needs neither a scan nor a table.
#[must_use]
pub(crate) const fn scramble(mut x: u32, seed: u32) -> u32 {
    x ^= seed;
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// The inverse of [`scramble`].
#[must_use]
pub(crate) const fn unscramble(mut x: u32, seed: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x4302_1123);
    x ^= (x >> 15) ^ (x >> 30);
    x = x.wrapping_mul(0x1d69_e2a5);
    x ^= x >> 16;
    x ^ seed
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn unscramble_undoes_scramble(x: u32, seed: u32) {
            proptest::prop_assert_eq!(unscramble(scramble(x, seed), seed), x);
        }
    }
}
