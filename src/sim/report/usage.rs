//! Step functions of time: how much was in use, when.

use muster_core::io::Tick;

use crate::record::{NodeRecord, PodRecord, Record};

/// A quantity that changes in steps, as a sorted list of changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps(Vec<(Tick, i64)>);

impl Steps {
    /// The sum of intervals: `amount` from `from` to `to` (or for ever).
    pub(crate) fn new(intervals: impl Iterator<Item = (Tick, Option<Tick>, i64)>) -> Self {
        let mut changes = Vec::new();
        for (from, to, amount) in intervals.filter(|(_, _, amount)| *amount != 0) {
            changes.push((from, amount));
            changes.extend(to.map(|to| (to, -amount)));
        }
        changes.sort_unstable(); // releases before takings within an instant
        Self(changes)
    }

    /// The largest value at or before `end`, and when it was first reached.
    pub(crate) fn peak(&self, end: Tick) -> (Tick, i64) {
        let mut value = 0;
        let mut peak = (Tick(i64::MIN), 0);
        let mut changes = self.0.iter().take_while(|(at, _)| *at <= end).peekable();
        while let Some((at, change)) = changes.next() {
            value += change;
            let settled = changes.peek().is_none_or(|(next, _)| next > at);
            if settled && value > peak.1 {
                peak = (*at, value);
            }
        }
        peak
    }

    /// The integral over each of `buckets` equal parts of `from..to`, in units × µs.
    pub(crate) fn integrals(&self, from: Tick, to: Tick, buckets: usize) -> Vec<i128> {
        let mut changes = self.0.iter().peekable();
        let mut value = 0i128;
        let mut at = from.0;
        let mut sums = Vec::with_capacity(buckets);
        for bucket in 1..=buckets {
            let span = i128::from(to.0 - from.0) * bucket as i128 / buckets as i128;
            let edge = from.0 + span as i64;
            let mut sum = 0;
            while let Some((Tick(when), change)) = changes.next_if(|(when, _)| when.0 < edge) {
                let when = (*when).max(from.0);
                sum += value * i128::from(when - at);
                (at, value) = (when, value + i128::from(*change));
            }
            sum += value * i128::from(edge - at);
            at = edge;
            sums.push(sum);
        }
        sums
    }
}

/// `part / whole`, bucket by bucket; 0 where there is no whole.
pub(crate) fn ratios(part: &[i128], whole: &[i128]) -> Vec<f64> {
    part.iter().zip(whole).map(|(part, whole)| ratio(*part, *whole)).collect()
}

pub(crate) fn ratio(part: i128, whole: i128) -> f64 {
    if whole <= 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What pods held, by `amount`.
pub(crate) fn held<'a>(
    record: &'a Record,
    pods: impl Iterator<Item = &'a PodRecord>,
    amount: impl Fn(&PodRecord) -> i64,
) -> Steps {
    let intervals = |pod: &'a PodRecord| {
        let amount = amount(pod);
        record.held(pod).map(move |(from, to)| (from, to, amount))
    };
    Steps::new(pods.flat_map(intervals))
}

/// Pods that were created and not yet bound.
pub(crate) fn waiting(record: &Record) -> Steps {
    Steps::new(record.pods.iter().map(|pod| (pod.created, pod.bound.or(pod.ended), 1)))
}

/// What nodes offered, by `amount`.
pub(crate) fn offered<'a>(
    nodes: impl Iterator<Item = &'a NodeRecord>,
    amount: impl Fn(&NodeRecord) -> i64,
) -> Steps {
    let intervals = |node: &'a NodeRecord| {
        let amount = amount(node);
        node.present.iter().map(move |(from, to)| (*from, *to, amount))
    };
    Steps::new(nodes.flat_map(intervals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integrals_and_peaks_of_two_overlapping_intervals() {
        // 2 from 0 to 6, 3 from 4 for ever: 2 2 2 2 | 5 5 3 3
        let steps = Steps::new([(Tick(0), Some(Tick(6)), 2), (Tick(4), None, 3)].into_iter());
        assert_eq!(steps.integrals(Tick(0), Tick(8), 2), [8, 16]);
        assert_eq!(steps.integrals(Tick(0), Tick(8), 1), [24]);
        assert_eq!(steps.peak(Tick(8)), (Tick(4), 5));
        assert_eq!(steps.peak(Tick(3)), (Tick(0), 2));
    }

    #[test]
    fn a_hand_over_within_an_instant_is_no_peak() {
        let steps =
            Steps::new([(Tick(0), Some(Tick(5)), 8), (Tick(5), Some(Tick(9)), 8)].into_iter());
        assert_eq!(steps.peak(Tick(9)), (Tick(0), 8));
    }
}
