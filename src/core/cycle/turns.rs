//! So many in so much time, and whose turn it is.
//!
//! Owns one bucket and the line before it: what was not used for a whole span may be used at
//! once, more than a span's worth is charged whole when that much is there, and the next wait
//! the longer. Who is first in order goes first, whatever others need. Must never know what
//! the turns are for.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::restraint::Seeker;
use crate::io::Tick;

/// Most that are called at a time.
const MAX_CALLED: usize = 64;
/// How long after a call the next follows, if those called had no use for their turn.
const CALL_MICROS: i64 = 1_000_000;

/// Who comes first: the more important, then the older.
pub(super) type Order = (Reverse<i32>, Tick, Seeker);

/// See the module's text.
#[derive(Debug)]
pub(super) struct Turns {
    rate: i64,
    span_micros: i64,
    /// What may be used now, times the span; below 0 after more was used than a span allows.
    level: i64,
    filled: Tick,
    /// With how many turns each needs.
    line: BTreeMap<Order, i64>,
    /// When those that are first are called.
    alarm: Option<Tick>,
}

impl Turns {
    /// A full bucket of `rate` turns in every span.
    pub(super) fn new(now: Tick, rate: i64, span_micros: i64) -> Self {
        let level = rate.saturating_mul(span_micros);
        Self { rate, span_micros, level, filled: now, line: BTreeMap::new(), alarm: None }
    }

    /// Lets time pass, at this rate from now on.
    pub(super) fn refill(&mut self, now: Tick, rate: i64) {
        let passed = now.0.saturating_sub(self.filled.0).max(0);
        let more = passed.saturating_mul(self.rate);
        (self.filled, self.rate) = (now.max(self.filled), rate);
        self.level = self.level.saturating_add(more).min(rate.saturating_mul(self.span_micros));
    }

    /// How many turns one may use now; none: any number.
    pub(super) fn open_to(&self, order: &Order) -> Option<i64> {
        let others = self.line.first_key_value().is_some_and(|(first, _)| first < order);
        if others {
            return Some(0);
        }
        let full = self.level >= self.rate.saturating_mul(self.span_micros);
        (!full).then(|| self.level.max(0) / self.span_micros)
    }

    pub(super) fn spend(&mut self, turns: i64) {
        self.level = self.level.saturating_sub(turns.saturating_mul(self.span_micros));
    }

    /// Gives turns back that were not used.
    pub(super) fn refund(&mut self, turns: i64) {
        let back = self.level.saturating_add(turns.saturating_mul(self.span_micros));
        self.level = back.min(self.rate.saturating_mul(self.span_micros));
    }

    /// Has one wait for so many turns.
    pub(super) fn join(&mut self, order: Order, turns: i64) {
        self.line.insert(order, turns.max(1));
        self.set_alarm(self.filled);
    }

    /// One waits no more.
    pub(super) fn leave(&mut self, order: &Order) {
        self.line.remove(order);
        if self.line.is_empty() {
            self.alarm = None;
        }
    }

    /// How many come before one.
    pub(super) fn before(&self, order: &Order) -> usize {
        self.line.range(..order).count()
    }

    pub(super) fn alarm(&self) -> Option<Tick> {
        self.alarm
    }

    /// Those whose turn it is: they wait no more.
    pub(super) fn call(&mut self, now: Tick) -> Vec<Seeker> {
        let mut called = Vec::new();
        if self.alarm.is_none_or(|at| at > now) {
            return called;
        }
        let rate = self.rate;
        self.refill(now, rate);
        let mut left = self.level;
        while let Some((_, turns)) = self.line.first_key_value() {
            if called.len() >= MAX_CALLED || left < self.needed(*turns) {
                break;
            }
            left -= turns.saturating_mul(self.span_micros);
            called.extend(self.line.pop_first().map(|((.., seeker), _)| seeker));
        }
        self.alarm = None;
        self.set_alarm(if called.is_empty() { now } else { now.after_micros(CALL_MICROS) });
        called
    }

    /// All that wait.
    pub(super) fn disperse(&mut self) -> Vec<Seeker> {
        self.alarm = None;
        std::mem::take(&mut self.line).into_keys().map(|(.., seeker)| seeker).collect()
    }

    /// What has to be there for so many turns.
    fn needed(&self, turns: i64) -> i64 {
        turns.min(self.rate).saturating_mul(self.span_micros)
    }

    fn set_alarm(&mut self, earliest: Tick) {
        let Some((_, turns)) = self.line.first_key_value() else {
            self.alarm = None;
            return;
        };
        let missing = self.needed(*turns).saturating_sub(self.level).max(0);
        let due = self.filled.after_micros(up(missing, self.rate.max(1)));
        self.alarm = Some(due.max(earliest));
    }
}

/// Division of numbers that are not negative, rounded up.
fn up(number: i64, by: i64) -> i64 {
    number / by + i64::from(number % by != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PodId;

    const MINUTE: i64 = 60_000_000;

    fn at(secs: i64) -> Tick {
        Tick::default().after_secs(secs)
    }

    fn order(priority: i32, pod: u32) -> Order {
        (Reverse(priority), at(0), Seeker::Pod(PodId(pod)))
    }

    fn pods(called: &[Seeker]) -> Vec<u32> {
        called
            .iter()
            .map(|seeker| match seeker {
                Seeker::Pod(pod) => pod.0,
                Seeker::Gang(gang) => gang.0,
            })
            .collect()
    }

    #[test]
    fn a_minutes_worth_may_be_used_at_once_and_no_more() {
        let mut turns = Turns::new(at(0), 6, MINUTE);
        assert_eq!(turns.open_to(&order(0, 1)), None);
        turns.spend(5);
        assert_eq!(turns.open_to(&order(0, 1)), Some(1));
        turns.spend(1);
        assert_eq!(turns.open_to(&order(0, 1)), Some(0));
        turns.refill(at(19), 6);
        assert_eq!(turns.open_to(&order(0, 1)), Some(1), "one in ten seconds");
        turns.refill(at(1_000), 6);
        turns.spend(7);
        turns.refill(at(1_020), 6);
        assert_eq!(turns.open_to(&order(0, 1)), Some(1), "what was too much is paid back");
    }

    #[test]
    fn the_first_in_order_is_called_when_enough_is_there_and_nobody_passes_it() {
        let mut turns = Turns::new(at(0), 6, MINUTE);
        turns.spend(6);
        turns.join(order(0, 2), 1);
        turns.join(order(5, 1), 4);
        assert_eq!(turns.open_to(&order(0, 3)), Some(0));
        turns.refill(at(30), 6);
        assert_eq!(turns.open_to(&order(0, 3)), Some(0), "others come first");
        assert_eq!(turns.open_to(&order(9, 3)), Some(3), "nobody comes before this one");
        assert!(turns.call(at(30)).is_empty());
        assert_eq!(turns.alarm(), Some(at(40)));
        assert_eq!(pods(&turns.call(at(40))), [1]);
        turns.spend(4);
        assert_eq!(pods(&turns.call(at(49))), [0_u32; 0]);
        assert_eq!(pods(&turns.call(at(60))), [2]);
        assert_eq!(turns.alarm(), None);
    }

    #[test]
    fn more_than_a_minutes_worth_waits_for_a_full_bucket() {
        let mut turns = Turns::new(at(0), 6, MINUTE);
        turns.spend(1);
        turns.join(order(0, 1), 100);
        assert_eq!(turns.alarm(), Some(at(10)));
        assert_eq!(pods(&turns.call(at(10))), [1]);
        turns.refill(at(10), 6);
        assert_eq!(turns.open_to(&order(0, 1)), None);
        turns.spend(100);
        turns.join(order(0, 2), 1);
        assert_eq!(turns.alarm(), Some(at(10 + 950)), "95 turns to make up for");
    }

    #[test]
    fn another_rate_counts_from_now_on() {
        let mut turns = Turns::new(at(0), 60, MINUTE);
        turns.spend(60);
        turns.refill(at(10), 6);
        assert_eq!(turns.open_to(&order(0, 1)), None, "ten were there, and six are a minute's");
        turns.refill(at(10), 600);
        assert_eq!(turns.open_to(&order(0, 1)), Some(6));
    }
}
