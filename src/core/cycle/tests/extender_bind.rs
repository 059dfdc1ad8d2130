//! Binds that an extender makes.

use super::extender::{broken, extender, harness, plain};
use super::harness::{Harness, check};
use crate::framework::ExtenderSpec;
use crate::io::{ExtenderReply, WriteError};
use crate::testing::node;

fn lent(ignorable: bool) -> Harness {
    let mut h = harness([ExtenderSpec { ignorable, ..extender("e", "bind") }]);
    h.node(node("n1"));
    h.pod(plain("p"));
    check(h.run(), "e binds p to n1");
    assert_eq!(h.queue_of("p"), "binding");
    h
}

fn in_doubt() -> ExtenderReply {
    ExtenderReply::Failed { error: "Post \"e/bind\": timeout".into(), in_doubt: true }
}

fn failed(message: &str) -> String {
    format!(
        "Warning default/p FailedScheduling: {message}
         status default/p false SchedulerError: {message}"
    )
}

#[test]
fn the_watch_says_whether_the_extender_bound_it() {
    for reply in [ExtenderReply::Bound, in_doubt()] {
        let mut h = lent(false);
        check(h.extender("p", reply), "");
        h.edit("p", |p| p.spec.node_name = "n1".into());
        check(h.effects(), "Normal default/p Scheduled: Successfully assigned default/p to n1");
        h.assert_idle();
    }
}

#[test]
fn a_bind_seen_before_the_answer_counts() {
    let mut h = lent(false);
    h.edit("p", |p| p.spec.node_name = "n1".into());
    check(h.effects(), "Normal default/p Scheduled: Successfully assigned default/p to n1");
    check(h.extender("p", ExtenderReply::Bound), "");
    h.assert_idle();
}

#[test]
fn a_bind_that_never_shows_is_given_up_and_the_room_with_it() {
    let late = "extender \"e\" says that it bound the pod, but the API server does not show it \
                after 10s";
    for (reply, message) in [(ExtenderReply::Bound, late), (in_doubt(), "Post \"e/bind\": timeout")]
    {
        let mut h = lent(false);
        h.extender("p", reply);
        h.sleep(9);
        assert_eq!(h.cache(), ["n1: default/p"], "the room is kept while it is in doubt");
        h.sleep(1);
        check(h.effects(), &failed(message));
        assert_eq!((h.cache(), h.queue_of("p")), (vec!["n1: ".to_owned()], "backoff"));
        h.sleep(3);
        check(h.run(), "e binds p to n1");
    }
}

#[test]
fn a_refusal_is_an_error() {
    let mut h = lent(false);
    check(h.extender("p", broken("no device is left")), &failed("no device is left"));
    assert_eq!(h.queue_of("p"), "backoff");
}

#[test]
fn without_an_ignorable_extender_the_pod_is_bound_as_ever() {
    for reply in [broken("down"), in_doubt()] {
        let mut h = lent(true);
        check(h.extender("p", reply), "bind default/p -> n1");
        // If it had bound it after all, the server says so and the watch shows where.
        h.answer("p", Err(WriteError::Conflict("already bound".into())));
        h.edit("p", |p| p.spec.node_name = "n1".into());
        h.assert_idle();
    }
}

#[test]
fn a_pod_that_is_deleted_while_an_extender_binds_it_gives_its_room_back() {
    let mut h = lent(false);
    h.gone("p");
    check(h.extender("p", ExtenderReply::Bound), "");
    assert_eq!(h.cache(), ["n1: "]);
    h.assert_idle();
}
