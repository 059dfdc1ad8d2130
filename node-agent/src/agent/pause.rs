//! Pauses between attempts: they grow, and end.

use std::time::Duration;

/// Pause after the first failure; doubles with each further one.
pub const FIRST: Duration = Duration::from_millis(500);
/// Longest pause: whatever was away, we are back within it.
pub const LAST: Duration = Duration::from_secs(8);

/// How long to wait after the next failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    failures: u32,
}

impl Pause {
    /// Something went well.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after one more failure.
    pub fn grow(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        spread(pause.min(LAST))
    }

    /// Waits out the pause after one more failure.
    pub async fn wait(&mut self) {
        let pause = self.grow();
        tokio::time::sleep(pause).await;
    }
}

/// Takes up to a quarter off, so that the agents of a cluster do not come back in step. The clock's
/// lowest digits are random enough for that.
fn spread(pause: Duration) -> Duration {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let digits = now.map_or(0, |now| now.subsec_micros() % 256);
    pause - pause.mul_f64(f64::from(digits) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_bounded() {
        let mut pause = Pause::default();
        let mut within = |expected: Duration| {
            let next = pause.grow();
            assert!(next <= expected && next >= expected.mul_f64(0.75), "{next:?} {expected:?}");
        };
        for expected in [0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0] {
            within(Duration::from_secs_f64(expected));
        }
        pause.failures = u32::MAX;
        assert!(pause.grow() <= LAST);
        pause.reset();
        assert!(pause.grow() <= FIRST);
    }
}
