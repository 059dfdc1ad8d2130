//! How long a pod that failed stays away.

use crate::io::Tick;

/// Bounds of the backoff, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub initial_secs: i64,
    /// At most; 0 switches backoff off.
    pub max_secs: i64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial_secs: 1, max_secs: 10 }
    }
}

impl Backoff {
    /// The second until which a pod that failed `count` times backs off, as
    /// upstream: doubled per failure, truncated to whole seconds; a pod is still
    /// backing off in the very second it returns.
    pub(super) fn expiry(self, since: Tick, count: u32) -> Option<i64> {
        if count == 0 || self.max_secs == 0 {
            return None;
        }
        let doubled = self.initial_secs.saturating_mul(1 << (count - 1).min(32));
        Some(since.after_secs(doubled.min(self.max_secs)).secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound_and_is_truncated_to_seconds() {
        let backoff = Backoff::default();
        let failed = Tick(100_700_000); // 100.7 s
        // 1 s, 2 s, 4 s, 8 s, then 10 s; 100.7 + d truncated.
        let expiries = [1, 2, 3, 4, 5, 60].map(|n| backoff.expiry(failed, n));
        assert_eq!(expiries, [101, 102, 104, 108, 110, 110].map(Some));
        assert_eq!(backoff.expiry(failed, 0), None);
        assert_eq!(Backoff { max_secs: 0, ..backoff }.expiry(failed, 3), None);
    }
}
