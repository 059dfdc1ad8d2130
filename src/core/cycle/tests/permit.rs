//! Waiting at Permit: allowed, refused, timed out.

use super::binding::pair;
use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::framework::Status;
use crate::report::Observation;
use crate::testing::{node, pod};

const TIMEOUT: &str = "0/1 nodes are available: 1 rejected due to timeout after waiting 30s at \
                       plugin Slow.";

#[test]
fn a_refusal_at_permit_unreserves() {
    let refuse = Script { permit: Some(Status::unschedulable("denied")), ..Script::default() };
    let (mut h, one, _) = pair(refuse, Script::default());
    h.pod(pod("a"));
    check(
        h.run(),
        "Warning default/a FailedScheduling: 0/1 nodes are available: 1 denied.
         status default/a false Unschedulable: 0/1 nodes are available: 1 denied.",
    );
    check(one.calls(), "reserve One\nreserve Two\npermit One\nunreserve Two\nunreserve One");
}

#[test]
fn a_pod_waits_at_permit_until_all_who_wait_allow_it() {
    let wait = Script { wait: Some(30), ..Script::default() };
    let (mut h, _, _) = pair(wait.clone(), wait);
    h.pod(pod("a"));
    check(h.run(), "");
    assert_eq!(h.cache(), ["n1: default/a"]);
    h.permit("a", "Nobody", Ok(()));
    h.permit("a", "Two", Ok(()));
    h.permit("a", "Two", Ok(()));
    check(h.effects(), "");
    h.permit("a", "One", Ok(()));
    check(h.effects(), "bind default/a -> n1");
    h.bound("a", "n1");
    h.assert_idle();
}

#[test]
fn a_wait_at_permit_ends_with_a_timeout_in_upstreams_words() {
    let slow = Probe::new("Slow", Script { wait: Some(30), ..Script::default() });
    let mut h = Harness::with(profile(&[&slow]));
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    slow.calls();
    h.sleep(29);
    check(h.effects(), "");
    h.sleep(1);
    check(
        h.effects(),
        &format!(
            "Warning default/a FailedScheduling: {TIMEOUT}
             status default/a false Unschedulable: {TIMEOUT}"
        ),
    );
    check(slow.calls(), "unreserve Slow");
    assert_eq!((h.queue_of("a"), h.cache()), ("unschedulable", vec!["n1: ".to_owned()]));
    // An answer after the fact changes nothing.
    h.permit("a", "Slow", Ok(()));
    check(h.effects(), "");
}

#[test]
fn a_later_deadline_holds_after_the_plugin_with_the_first_one_allowed() {
    let (mut h, _, _) = pair(
        Script { wait: Some(10), ..Script::default() },
        Script { wait: Some(90), ..Script::default() },
    );
    h.pod(pod("a"));
    h.run();
    h.permit("a", "One", Ok(()));
    h.sleep(89);
    assert_eq!(h.queue_of("a"), "permit");
    h.sleep(1);
    let effects = h.effects();
    assert!(effects[0].ends_with("timeout after waiting 1m30s at plugin Two."), "{effects:?}");
}

#[test]
fn of_two_deadlines_missed_the_earlier_is_named() {
    let (mut h, _, _) = pair(
        Script { wait: Some(20), ..Script::default() },
        Script { wait: Some(10), ..Script::default() },
    );
    h.pod(pod("a"));
    h.run();
    h.now = h.now.after_secs(60); // The driver was away.
    h.core.advance(h.now);
    let effects = h.effects();
    assert!(effects[0].ends_with("timeout after waiting 10s at plugin Two."), "{effects:?}");
}

#[test]
fn a_wait_is_capped_at_fifteen_minutes() {
    let slow = Probe::new("Slow", Script { wait: Some(7_200), ..Script::default() });
    let mut h = Harness::with(profile(&[&slow]));
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    h.sleep(899);
    assert_eq!(h.queue_of("a"), "permit");
    h.sleep(1);
    assert!(h.effects()[0].ends_with("after waiting 15m0s at plugin Slow."));
}

#[test]
fn the_time_at_permit_is_observed() {
    let wait = Script { wait: Some(30), ..Script::default() };
    let (mut h, _, _) = pair(wait, Script::default());
    h.pod(pod("a"));
    h.run();
    h.sleep(2);
    h.permit("a", "One", Ok(()));
    let waited = Observation::PermitWait { status: "Success", micros: 2_000_000 };
    let seen = h.core.take_observations();
    assert!(seen.contains(&waited), "{seen:?}");
}
