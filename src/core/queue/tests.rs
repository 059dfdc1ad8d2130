//! What is remembered for pods in flight. All else is tested through the core, in
//! `cycle/tests`.

use super::hints::InFlightEvents;
use crate::framework::{Actions, ClusterEvent, Resource, Subject};
use crate::model::PodId;

fn event(label: &'static str) -> ClusterEvent {
    let (resource, actions) = (Resource::Node, Actions::ADD);
    ClusterEvent { resource, actions, label, subject: Subject::None }
}

fn missed(log: &InFlightEvents, pod: u32) -> Option<Vec<&'static str>> {
    Some(log.missed(PodId(pod))?.map(|e| e.label).collect())
}

#[test]
fn a_pod_misses_what_came_after_it_was_popped_and_other_pods_own_updates_never() {
    let mut log = InFlightEvents::default();
    log.record(&event("before"), None);
    log.begin(PodId(1));
    log.record(&event("first"), None);
    log.begin(PodId(2));
    log.record(&event("own"), Some(PodId(1)));
    log.record(&event("last"), None);
    assert_eq!(missed(&log, 1), Some(vec!["first", "own", "last"]));
    assert_eq!(missed(&log, 2), Some(vec!["last"]));
    assert_eq!(missed(&log, 3), None);
}

#[test]
fn nothing_is_kept_when_nothing_is_in_flight() {
    let mut log = InFlightEvents::default();
    log.begin(PodId(1));
    log.record(&event("a"), None);
    log.end(PodId(1));
    log.record(&event("b"), None);
    log.begin(PodId(2));
    assert_eq!((missed(&log, 1), missed(&log, 2)), (None, Some(vec![])));
    assert_eq!(log.len(), 1);
}

#[test]
fn the_log_is_bounded_and_says_when_it_forgot() {
    let mut log = InFlightEvents::default();
    log.begin(PodId(1));
    log.record(&event("x"), None);
    log.begin(PodId(2));
    (0..4_096).for_each(|_| log.record(&event("y"), None));
    assert_eq!(missed(&log, 1), None);
    assert_eq!(missed(&log, 2).map(|e| e.len()), Some(4_096));
}

#[test]
fn what_only_a_pod_that_left_could_need_is_dropped() {
    let mut log = InFlightEvents::default();
    log.begin(PodId(1));
    log.record(&event("a"), None);
    log.begin(PodId(2));
    log.record(&event("b"), None);
    log.record(&event("own"), Some(PodId(3)));
    assert_eq!(log.kept(), 2);
    log.end(PodId(1));
    assert_eq!((log.kept(), missed(&log, 2)), (1, Some(vec!["b"])));
    log.end(PodId(2));
    assert_eq!((log.kept(), log.len()), (0, 0));
}
