//! A token bucket: client-go's `qps` and `burst`.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets `burst` calls through at once and `qps` per second in the long run.
pub(super) struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket will be empty of debts: at most `burst` intervals away
    /// means that a token is there.
    next: Mutex<Option<Instant>>,
}

impl Bucket {
    /// `None` (no limit) if `qps` is not positive.
    pub(super) fn new(qps: f64, burst: u32) -> Option<Self> {
        if qps <= 0.0 || !qps.is_finite() {
            return None;
        }
        Some(Self {
            interval: Duration::from_secs_f64(1.0 / qps),
            burst: burst.max(1),
            next: Mutex::new(None),
        })
    }

    /// Takes a token and says when it may be used.
    fn slot(&self, now: Instant) -> Instant {
        let mut next = self.next.lock();
        // A bucket never holds more than `burst` tokens.
        let full = now.checked_sub(self.interval * (self.burst - 1)).unwrap_or(now);
        let slot = next.map_or(full, |n| n.max(full));
        *next = Some(slot + self.interval);
        slot
    }

    /// Waits for a token.
    pub(super) async fn take(&self) {
        let now = Instant::now();
        let slot = self.slot(now);
        if slot > now {
            tokio::time::sleep_until(slot).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_a_steady_rate() {
        tokio::time::advance(Duration::from_secs(60)).await;
        let bucket = Bucket::new(10.0, 5).unwrap();
        let begin = Instant::now();
        for _ in 0..5 {
            bucket.take().await;
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            bucket.take().await;
        }
        assert!(begin.elapsed() >= Duration::from_millis(999), "{:?}", begin.elapsed());
        assert!(begin.elapsed() < Duration::from_millis(1_100));
    }

    #[test]
    fn zero_and_negative_mean_no_limit() {
        assert!(Bucket::new(0.0, 100).is_none());
        assert!(Bucket::new(-1.0, 100).is_none());
        assert!(Bucket::new(f64::NAN, 100).is_none());
    }
}
