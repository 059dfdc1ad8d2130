//! What holds of a status whatever happens to the members.

use proptest::prelude::*;

use super::super::*;
use super::{at, lost, member};

const STATES: [&str; 9] = [
    "pending",
    "starting n1",
    "starting x1",
    "pulling n2",
    "running n1",
    "running x2",
    "~running n1",
    "succeeded n1",
    "failed n2",
];

/// Members by number, each in one of the states or not there.
fn crowd() -> impl Strategy<Value = Vec<Option<usize>>> {
    prop::collection::vec(prop::option::weighted(0.8, 0..STATES.len()), 0..6)
}

fn made(crowd: &[Option<usize>]) -> Vec<Member> {
    let there = crowd.iter().enumerate().filter_map(|(i, state)| Some((i, (*state)?)));
    there.map(|(i, state)| member(&format!("m{i} {}", STATES[state]))).collect()
}

proptest! {
    #[test]
    fn counts_times_and_conditions_are_sound(
        min in 1..5_i32,
        timeout in prop::option::of(1..20_i32),
        steps in prop::collection::vec((0..10_i64, crowd()), 1..8),
    ) {
        let spec = PodGroupSpec {
            min_member: Some(min),
            start_timeout_seconds: timeout,
            ..PodGroupSpec::default()
        };
        let (says, mut before, mut now) = (Says::default(), PodGroupStatus::default(), 0);
        for (pause, crowd) in steps {
            now += pause;
            let members = made(&crowd);
            let facts = Facts {
                spec: &spec, generation: Some(1), says: &says, previous: &before, now: at(now),
            };
            let made = status(&facts, members.iter(), lost);
            let after = made.status;

            // Settled: the same facts give the same status, at any time before it is due.
            let later = made.due.map_or(at(now + 9_999), |due| Time(due.0 - 1));
            let again = status(&Facts { previous: &after, now: later, ..facts }, members.iter(), lost);
            prop_assert_eq!(&again.status, &after);
            prop_assert!(made.due.is_none_or(|due| due > at(now)));

            // A group that is over keeps its last counts.
            let over = before.is_true(condition::FINISHED) && after.is_true(condition::FINISHED);
            let c = after.members.unwrap();
            if !over {
                let all = c.existing + c.failed + c.lost + c.terminating;
                prop_assert_eq!(usize::try_from(all).unwrap(), members.len());
            }
            prop_assert_eq!(c.ready, c.running + c.succeeded);
            prop_assert!(c.running <= c.scheduled && c.scheduled + c.succeeded <= c.existing);

            // Conditions and phase agree with the counts, and times with the conditions.
            let phase = after.phase.unwrap();
            let bound = c.scheduled + c.succeeded >= min;
            prop_assert_eq!(after.is_true(condition::SCHEDULED), bound);
            prop_assert_eq!(after.is_true(condition::STARTED), c.ready >= min);
            prop_assert_eq!(phase == Phase::Running && !bound, false);
            prop_assert_eq!(
                after.is_true(condition::FINISHED),
                matches!(phase, Phase::Succeeded | Phase::Failed)
            );
            prop_assert_eq!(after.completion_time.is_some(), after.is_true(condition::FINISHED));
            prop_assert!(!bound || after.scheduled_time.is_some());
            prop_assert!(c.ready < min || after.start_time.is_some());
            for condition in &after.conditions {
                let old = before.condition(&condition.kind);
                match old.filter(|old| old.status == condition.status) {
                    Some(old) => {
                        prop_assert_eq!(old.last_transition_time, condition.last_transition_time);
                    }
                    None => prop_assert_eq!(condition.last_transition_time, at(now)),
                }
                prop_assert!(!condition.reason.is_empty() && condition.message.len() <= 1024);
            }
            before = after;
        }
    }
}
