//! How often the status of one group may be written.
//!
//! A change of substance (phase, reasons, conditions) is written soon, as long as
//! the group has tokens; mere counts wait, and the longer the more of them
//! follow each other. So a gang of a thousand costs tens of writes, and one that
//! flaps for ever a few per minute.

use std::time::Duration;

use muster_api::muster::{MemberCounts, PodGroupStatus};
use tokio::time::Instant;

/// Changes gather this long before the first look.
pub(super) const GATHER: Duration = Duration::from_millis(100);
/// Two writes of a group are at least this far apart.
const APART: Duration = Duration::from_secs(1);
/// Counts alone are written this long after the write before, twice as long each
/// time in a row.
const COUNTS: Duration = Duration::from_secs(5);
/// Longest such time.
const MAX_COUNTS: Duration = Duration::from_secs(60);
/// Changes of substance that may follow each other at once.
const BURST: u32 = 10;
/// One more after this long.
const REFILL: Duration = Duration::from_secs(10);
/// Pause after a write that failed, twice as long each time in a row.
const RETRY: Duration = Duration::from_secs(1);
/// Longest such pause.
const MAX_RETRY: Duration = Duration::from_secs(30);
/// After a conflict the watch has news: look again after this.
const CONFLICT: Duration = Duration::from_millis(250);

/// The pace of one group.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace {
    wrote: Option<Instant>,
    /// Writes of counts alone in a row.
    counts: u32,
    failures: u32,
    tokens: Option<(u32, Instant)>,
}

impl Pace {
    /// The earliest time for a write.
    pub(super) fn allowed(&self, substance: bool, now: Instant) -> Instant {
        let Some(wrote) = self.wrote else { return now };
        if !substance {
            let pause = COUNTS.saturating_mul(1 << self.counts.min(8)).min(MAX_COUNTS);
            return wrote + pause;
        }
        let (tokens, since) = self.tokens_at(now);
        let token = if tokens > 0 { now } else { since + REFILL };
        (wrote + APART).max(token)
    }

    /// A write of that kind was made.
    pub(super) fn wrote(&mut self, substance: bool, now: Instant) {
        self.wrote = Some(now);
        self.failures = 0;
        if substance {
            self.counts = 0;
            let (tokens, since) = self.tokens_at(now);
            self.tokens = Some((tokens.saturating_sub(1), since));
        } else {
            self.counts += 1;
        }
    }

    /// A write has failed: when to look again.
    pub(super) fn failed(&mut self, now: Instant) -> Instant {
        self.failures += 1;
        now + RETRY.saturating_mul(1 << (self.failures - 1).min(8)).min(MAX_RETRY)
    }

    /// Somebody else has written: when to look again.
    pub(super) fn conflicted(&mut self, now: Instant) -> Instant {
        self.failures += 1;
        now + CONFLICT.saturating_mul(1 << (self.failures - 1).min(8)).min(MAX_RETRY)
    }

    /// Writes that failed in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    fn tokens_at(&self, now: Instant) -> (u32, Instant) {
        let (tokens, since) = self.tokens.unwrap_or((BURST, now));
        let more = now.saturating_duration_since(since).as_secs() / REFILL.as_secs();
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        if tokens.saturating_add(more) >= BURST {
            return (BURST, now);
        }
        (tokens + more, since + REFILL * more)
    }
}

/// Whether two statuses differ in more than counts and their words. While a member
/// waits for a node, how many have succeeded is of substance too: the scheduler
/// counts them toward the minimum by what the status says.
pub(super) fn differs_in_substance(old: &PodGroupStatus, new: &PodGroupStatus) -> bool {
    let waiting = new.members.is_some_and(|m| m.existing > m.scheduled + m.succeeded);
    (waiting && succeeded(old) != succeeded(new)) || skeleton(old) != skeleton(new)
}

/// By group and by role.
fn succeeded(status: &PodGroupStatus) -> Vec<i32> {
    let all = status.members.unwrap_or_default().succeeded;
    std::iter::once(all).chain(status.roles.iter().map(|r| r.members.succeeded)).collect()
}

fn skeleton(status: &PodGroupStatus) -> PodGroupStatus {
    let mut bare = status.clone();
    bare.message = None;
    bare.members = None;
    for role in &mut bare.roles {
        role.members = MemberCounts::default();
    }
    for condition in &mut bare.conditions {
        condition.message = String::new();
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes as soon as allowed for `seconds`, and counts.
    fn writes(seconds: u64, substance: bool) -> u32 {
        let begin = Instant::now();
        let (mut pace, mut now, mut n) = (Pace::default(), begin, 0);
        while now < begin + Duration::from_secs(seconds) {
            pace.wrote(substance, now);
            n += 1;
            now = pace.allowed(substance, now).max(now);
        }
        n
    }

    #[test]
    fn counts_alone_become_rare() {
        // At 0, 10, 30, 70 s and every minute from then on.
        assert_eq!(writes(60, false), 3);
        assert_eq!(writes(3_600, false), 4 + 58);
    }

    #[test]
    fn changes_of_substance_come_at_once_and_then_at_a_rate() {
        assert_eq!(writes(10, true), 10);
        // Ten at once, then one in ten seconds.
        assert_eq!(writes(600, true), 10 + 59);
    }

    #[test]
    fn failures_are_repeated_ever_later() {
        let now = Instant::now();
        let mut pace = Pace::default();
        let pauses: Vec<u64> = (0..7).map(|_| (pace.failed(now) - now).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        pace.wrote(true, now);
        assert_eq!((pace.conflicted(now) - now).as_millis(), 250);
    }
}
