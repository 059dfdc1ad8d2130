//! A gang at Permit: who is waited for, and where.

use serde_json::json;

use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::io::Object;
use crate::report::Observation;
use crate::testing::{node, pod, wire};

/// A gang of these on one node, each held at Permit for half a minute.
fn gang(names: &[&str]) -> Harness {
    let slow = Probe::new("Slow", Script { wait: Some(30), ..Script::default() });
    let mut h = Harness::with(profile(&[&slow]));
    h.node(node("n1"));
    let group = json!({"metadata": {"namespace": "default", "name": "g", "uid": "g"},
        "spec": {"minMember": names.len()}});
    h.object(Object::PodGroup(wire(group)));
    for name in names {
        let mut pod = pod(name);
        pod.metadata.labels.insert("muster.dev/pod-group".to_owned(), "g".to_owned());
        h.pod(pod);
    }
    h
}

/// The words follow the permits, at most every five seconds, and every member is expected
/// on its node until the gang is bound.
#[test]
fn a_gang_at_permit_says_who_is_waited_for_and_where() {
    let mut h = gang(&["a", "b"]);
    let said = |h: &mut Harness| -> Vec<String> {
        h.run();
        h.sleep(5);
        let effects = h.effects();
        effects.into_iter().filter(|e| e.starts_with("group")).collect()
    };
    h.run();
    assert_eq!((h.nominated("a"), h.nominated("b")), (Some("n1"), Some("n1")));
    h.permit("a", "Slow", Ok(()));
    check(
        said(&mut h),
        "group default/g WaitingForPermit: 1 of 2 members wait at Permit, at most 300s; member b",
    );
    assert_eq!(h.cache(), ["n1: default/a, default/b"]);
    h.permit("b", "Slow", Ok(()));
    assert_eq!(h.run_binds().len(), 2);
}

/// A gang that is refused is expected nowhere.
#[test]
fn a_gang_that_gave_up_is_expected_nowhere() {
    let mut h = gang(&["a"]);
    h.run();
    assert_eq!(h.nominated("a"), Some("n1"));
    h.edit("a", |p| p.status.nominated_node_name = "n1".to_owned());
    h.permit("a", "Slow", Err("no"));
    h.effects();
    assert_eq!(h.nominated("a"), Some(""));
}

/// Nobody refused a gang whose node is deleted: it is planned again at once.
#[test]
fn a_gang_whose_node_is_deleted_is_planned_again_at_once() {
    let mut h = gang(&["a"]);
    h.run();
    h.node(node("n2"));
    h.node_gone("n1");
    h.run();
    assert_eq!(h.cache(), ["n2: default/a"]);
    assert_eq!(h.nominated("a"), Some("n2"));
    h.permit("a", "Slow", Ok(()));
    check(h.run_binds(), "bind default/a -> n2");
}

/// Refused, out of time, or its node lost: the waits of all members are counted, once each.
#[test]
fn a_gang_that_gives_up_counts_the_waits_of_all_members() {
    type GiveUp = fn(&mut Harness);
    let ways: [(&str, GiveUp); 3] = [
        ("refused", |h| h.permit("b", "Slow", Err("no"))),
        ("out of time", |h| h.sleep(28)),
        ("node lost", |h| h.node_gone("n1")),
    ];
    for (way, give_up) in ways {
        let mut h = gang(&["a", "b", "c"]);
        h.run();
        h.sleep(2);
        h.permit("a", "Slow", Ok(()));
        h.core.take_observations();
        give_up(&mut h);
        h.run();
        let seen = h.core.take_observations();
        let waits: Vec<&Observation> =
            seen.iter().filter(|o| matches!(o, Observation::PermitWait { .. })).collect();
        let bad = |o: &&&Observation| {
            matches!(o, Observation::PermitWait { status: "Unschedulable", .. })
        };
        assert_eq!((waits.len(), waits.iter().filter(bad).count()), (2, 2), "{way}: {waits:?}");
    }
}
