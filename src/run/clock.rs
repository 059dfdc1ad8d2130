//! The core's time: the wall clock at the start, then the monotonic one.

use std::time::Instant;

use muster_core::Stopwatch;
use muster_core::io::Tick;

/// A clock that never goes backwards, whatever happens to the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    anchor: i64,
    begin: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { anchor: jiff::Timestamp::now().as_microsecond(), begin: Instant::now() }
    }

    pub(super) fn now(&self) -> Tick {
        let elapsed = self.begin.elapsed().as_micros();
        Tick(self.anchor).after_micros(i64::try_from(elapsed).unwrap_or(i64::MAX))
    }
}

impl Stopwatch for Clock {
    fn nanos(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
