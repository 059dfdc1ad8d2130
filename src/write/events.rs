//! Events: which ones become a new object, a count on an old one, or nothing.
//!
//! As in client-go, an event that repeats within [`SERIES_WINDOW`] becomes a
//! series on the first one. Unlike there, another text is another event: a
//! reason that changed must be seen. Memory is bounded by [`MAX_SERIES`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use muster_core::io::EventRecord;
use tokio::time::Instant;

use super::bodies;

/// An event that repeats within this time of the last one belongs to its series.
pub const SERIES_WINDOW: Duration = Duration::from_secs(6 * 60);
/// A series is written at most this often, after its first repetition.
pub const SERIES_REFRESH: Duration = Duration::from_secs(60);
/// Most series remembered (client-go's figure); the oldest are forgotten.
pub const MAX_SERIES: usize = 4096;

/// What to write for an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// A new object of this name.
    Create(String),
    /// A new count on the object of this name.
    Count(String, u32),
    /// Nothing: it was written a moment ago.
    Skip,
}

/// Pod UID and reason.
type Key = (Arc<str>, &'static str);

struct Series {
    note: Arc<str>,
    name: String,
    count: u32,
    seen: Instant,
    written: Instant,
}

/// The warnings written lately.
#[derive(Default)]
pub(super) struct Recent {
    series: HashMap<Key, Series>,
    order: VecDeque<Key>,
}

impl Recent {
    pub(super) fn plan(&mut self, record: &EventRecord, now: Instant) -> Plan {
        let name = || bodies::event_name(&record.pod.name, unique_nanos());
        // What went well happens once.
        if !record.warning {
            return Plan::Create(name());
        }
        let key = (record.pod.uid.clone(), record.reason);
        if let Some(series) = self.series.get_mut(&key)
            && series.note == record.note
            && now.duration_since(series.seen) < SERIES_WINDOW
        {
            series.count += 1;
            series.seen = now;
            if series.count > 2 && now.duration_since(series.written) < SERIES_REFRESH {
                return Plan::Skip;
            }
            series.written = now;
            return Plan::Count(series.name.clone(), series.count);
        }
        let name = name();
        let series = Series {
            note: record.note.clone(),
            name: name.clone(),
            count: 1,
            seen: now,
            written: now,
        };
        if self.series.insert(key.clone(), series).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_SERIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.series.remove(&oldest);
        }
        Plan::Create(name)
    }

    /// The event's object is gone (or never was): the next one is a new object.
    pub(super) fn forget(&mut self, record: &EventRecord) {
        let key = (record.pod.uid.clone(), record.reason);
        if let Some(series) = self.series.get_mut(&key) {
            // Its place in `order` stays, so that the two agree.
            series.note = Arc::from("");
        }
    }
}

/// Nanoseconds since the epoch, never twice the same.
fn unique_nanos() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX - 1);
    let next = |last: i64| Some(now.max(last + 1));
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    last.map_or(now, |last| now.max(last + 1))
}

#[cfg(test)]
mod tests {
    use muster_core::io::PodRef;

    use super::*;

    fn record(pod: usize, warning: bool, note: &str) -> EventRecord {
        EventRecord {
            pod: PodRef { namespace: "n".into(), name: "p".into(), uid: pod.to_string().into() },
            related: None,
            warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            note: note.into(),
            reporting_controller: "muster".into(),
        }
    }

    fn created(plan: Plan) -> String {
        let Plan::Create(name) = plan else { panic!("{plan:?}") };
        name
    }

    #[test]
    fn repetitions_are_counted_and_written_seldom() {
        let mut recent = Recent::default();
        let begin = Instant::now();
        let at = |s: u64| begin + Duration::from_secs(s);
        let warning = record(1, true, "no room");
        let name = created(recent.plan(&warning, at(0)));
        assert_eq!(recent.plan(&warning, at(5)), Plan::Count(name.clone(), 2));
        assert_eq!(recent.plan(&warning, at(10)), Plan::Skip);
        assert_eq!(recent.plan(&warning, at(66)), Plan::Count(name.clone(), 4));
        // Another text, and another after a long silence, are new events.
        let other = created(recent.plan(&record(1, true, "less room"), at(67)));
        assert_ne!(name, other);
        created(recent.plan(&record(1, true, "less room"), at(67 + 360)));
    }

    #[test]
    fn good_news_is_never_a_series() {
        let mut recent = Recent::default();
        let a = created(recent.plan(&record(1, false, "bound"), Instant::now()));
        let b = created(recent.plan(&record(1, false, "bound"), Instant::now()));
        assert_ne!(a, b);
    }

    #[test]
    fn a_lost_object_is_made_anew() {
        let mut recent = Recent::default();
        let now = Instant::now();
        created(recent.plan(&record(1, true, "x"), now));
        recent.forget(&record(1, true, "x"));
        created(recent.plan(&record(1, true, "x"), now));
        assert_eq!(recent.order.len(), 1);
    }

    #[test]
    fn is_bounded() {
        let mut recent = Recent::default();
        let now = Instant::now();
        for pod in 0..MAX_SERIES + 10 {
            created(recent.plan(&record(pod, true, "x"), now));
        }
        assert_eq!((recent.series.len(), recent.order.len()), (MAX_SERIES, MAX_SERIES));
        created(recent.plan(&record(0, true, "x"), now));
    }
}
