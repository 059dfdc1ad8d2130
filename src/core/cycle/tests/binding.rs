//! From Reserve to PostBind.

use std::sync::Arc;

use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::framework::{Profile, Status};
use crate::io::{Input, Reply, WriteError};
use crate::plugins::DefaultBinder;
use crate::report::Observation;
use crate::testing::{PodExt as _, SCHEDULER, node, pod};

/// Two plugins that share a log.
pub(super) fn pair(first: Script, second: Script) -> (Harness, Probe, Probe) {
    let one = Probe::new("One", first);
    let two = Probe::new("Two", second).log_to(&one);
    let mut h = Harness::with(profile(&[&one, &two]));
    h.node(node("n1"));
    (h, one, two)
}

#[test]
fn every_point_is_called_in_order_and_post_bind_once() {
    let (mut h, one, _) = pair(Script::default(), Script::default());
    h.pod(pod("a"));
    check(h.run(), "bind default/a -> n1");
    check(
        one.calls(),
        "reserve One\nreserve Two\npermit One\npermit Two\nprebind One\nprebind Two",
    );
    h.answer("a", Ok(()));
    check(h.effects(), "Normal default/a Scheduled: Successfully assigned default/a to n1");
    check(one.calls(), "postbind One\npostbind Two");
    h.answer("a", Ok(()));
    h.edit("a", |p| "n1".clone_into(&mut p.spec.node_name));
    check(h.effects(), "");
    check(one.calls(), "");
    assert_eq!(h.cache(), ["n1: default/a"]);
    h.assert_idle();
}

#[test]
fn the_watch_may_be_faster_than_the_answer() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    h.edit("a", |p| "n1".clone_into(&mut p.spec.node_name));
    check(h.effects(), "Normal default/a Scheduled: Successfully assigned default/a to n1");
    h.answer("a", Ok(()));
    check(h.effects(), "");
    h.assert_idle();
}

#[test]
fn a_failed_reserve_unreserves_all_in_reverse() {
    let refuse = Script { reserve: Some(Status::unschedulable("busy")), ..Script::default() };
    let (mut h, one, _) = pair(Script::default(), refuse);
    h.pod(pod("a"));
    assert_eq!(h.run().len(), 2);
    check(one.calls(), "reserve One\nreserve Two\nunreserve Two\nunreserve One");
    assert_eq!(h.cache(), ["n1: "]);
}

#[test]
fn pre_bind_parks_and_resumes_where_it_was() {
    let park = |request| Script { park: Some(request), ..Script::default() };
    let (mut h, one, _) = pair(park("volume"), park("claim"));
    h.pod(pod("a"));
    check(h.run(), "call default/a One: volume");
    assert_eq!(h.queue_of("a"), "prebind");
    h.reply("a", Reply::Done("ok".into()));
    check(h.effects(), "call default/a Two: claim");
    h.apply(Input::Reply { token: crate::io::Token(0), reply: Reply::Done("".into()) });
    check(h.effects(), "");
    h.reply("a", Reply::Done("ok".into()));
    check(h.effects(), "bind default/a -> n1");
    h.reply("a", Reply::Failed("late".into()));
    check(h.effects(), "");
    one.calls();
    h.bound("a", "n1");
    h.assert_idle();
}

#[test]
fn a_failed_pre_bind_is_an_error_that_backs_off() {
    let (mut h, one, _) =
        pair(Script { park: Some("volume"), ..Script::default() }, Script::default());
    h.pod(pod("a"));
    h.run();
    one.calls();
    h.reply("a", Reply::Failed("disk on fire".into()));
    check(
        h.effects(),
        "Warning default/a FailedScheduling: running PreBind plugin \"One\": disk on fire
         status default/a false SchedulerError: running PreBind plugin \"One\": disk on fire",
    );
    check(one.calls(), "unreserve Two\nunreserve One");
    assert_eq!(h.queue_of("a"), "backoff");
    check(h.run(), "");
    h.sleep(2);
    check(h.run(), "call default/a One: volume");
}

#[test]
fn a_refusal_at_pre_bind_is_unschedulable_and_backs_off() {
    let script = Script { pre_bind: Some(Status::unschedulable("no claim")), ..Script::default() };
    let (mut h, _, _) = pair(script, Script::default());
    h.pod(pod("a"));
    check(
        h.run(),
        "Warning default/a FailedScheduling: no claim
         status default/a false Unschedulable: no claim",
    );
    // No event could be replayed any more: it comes back by itself.
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn a_bind_plugin_may_leave_the_pod_to_the_next() {
    let skip = Probe::new("Skip", Script { binds: Some(false), ..Script::default() });
    let take = Probe::new("Take", Script { binds: Some(true), ..Script::default() }).log_to(&skip);
    let plugins = Profile::defaults().iter().copied().filter(|(n, _)| *n != "DefaultBinder");
    let build = || {
        let (args, registry) = (Default::default(), crate::framework::Registry::in_tree());
        Profile::build(SCHEDULER, plugins.clone(), &args, &registry).unwrap()
    };
    let with = |p: Profile, probe: &Probe| p.with_plugin(Arc::new(probe.clone()), 1);

    let mut h = Harness::with(with(build(), &skip).with_plugin(Arc::new(DefaultBinder), 1));
    h.node(node("n1"));
    h.pod(pod("a"));
    check(h.run(), "bind default/a -> n1");

    let mut h = Harness::with(with(with(build(), &skip), &take));
    h.node(node("n1"));
    h.pod(pod("a"));
    check(h.run(), "bind default/a -> n1");
    h.answer("a", Err(WriteError::Rejected("no".into())));
    assert_eq!(
        h.effects()[0],
        "Warning default/a FailedScheduling: running Bind plugin \"Take\": no"
    );

    let mut h = Harness::with(with(build(), &skip));
    h.node(node("n1"));
    h.pod(pod("a"));
    assert_eq!(h.run()[0], "Warning default/a FailedScheduling: no Bind plugin handles the pod");
    assert_eq!((h.queue_of("a"), h.cache()), ("backoff", vec!["n1: ".to_owned()]));
}

#[test]
fn a_rejected_bind_unreserves_and_backs_off() {
    let (mut h, one, _) = pair(Script::default(), Script::default());
    h.pod(pod("a"));
    h.run();
    one.calls();
    for error in [WriteError::Rejected("denied".into()), WriteError::NotFound("denied".into())] {
        h.answer("a", Err(error));
        let effects = h.effects();
        assert_eq!(
            effects[0],
            "Warning default/a FailedScheduling: running Bind plugin \"DefaultBinder\": denied"
        );
        check(&one.calls()[..2], "unreserve Two\nunreserve One");
        assert_eq!((h.queue_of("a"), h.cache()), ("backoff", vec!["n1: ".to_owned()]));
        h.sleep(10);
        check(h.run(), "bind default/a -> n1");
        one.calls();
    }
}

#[test]
fn a_failed_bind_frees_room_for_pods_that_lack_it() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "3")]));
    h.run();
    h.pod(pod("b").req(&[("cpu", "3")]));
    assert_eq!(h.run().len(), 2);
    h.answer("a", Err(WriteError::Rejected("denied".into())));
    check(h.run_binds(), "bind default/b -> n1");
}

#[test]
fn a_bind_without_an_answer_keeps_its_room_and_is_sent_again() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "3")]));
    h.run();
    let first = h.last_bind("a");
    h.answer("a", Err(WriteError::Unknown("timeout".into())));
    check(h.effects(), "");
    assert_eq!(h.cache(), ["n1: default/a"]);
    h.sleep_millis(999);
    check(h.effects(), "");
    h.sleep_millis(1);
    check(h.effects(), "bind default/a -> n1");
    // The answer to the first one is stale now.
    let (key, attempt) = first;
    h.apply(Input::BindDone {
        pod: key,
        attempt,
        result: Err(WriteError::Rejected("late".into())),
    });
    check(h.effects(), "");
    assert_eq!(h.queue_of("a"), "binding");
    h.bound("a", "n1");
    h.assert_idle();
}

#[test]
fn a_bind_that_never_gets_an_answer_is_given_up_in_the_end() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    for _ in 0..60 {
        h.answer("a", Err(WriteError::Unknown("timeout".into())));
        h.sleep(1);
        check(h.effects(), "bind default/a -> n1");
    }
    h.answer("a", Err(WriteError::Unknown("timeout".into())));
    assert_eq!((h.effects().len(), h.queue_of("a")), (2, "backoff"));
}

#[test]
fn a_conflict_waits_for_the_watch_and_then_asks_again() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    h.pod(pod("b"));
    h.run();
    for name in ["a", "b"] {
        h.answer(name, Err(WriteError::Conflict("already bound".into())));
    }
    h.sleep(4);
    check(h.effects(), "");
    assert_eq!(h.cache(), ["n1: default/a, default/b"]);
    h.edit("a", |p| "n1".clone_into(&mut p.spec.node_name));
    check(h.effects(), "Normal default/a Scheduled: Successfully assigned default/a to n1");
    // The watch may be late, and the pod be bound where we wanted it: its room stays.
    h.sleep(1);
    check(h.effects(), "bind default/b -> n1");
    assert_eq!(h.cache(), ["n1: default/a, default/b"]);
    for _ in 0..59 {
        h.answer("b", Err(WriteError::Conflict("already bound".into())));
        h.sleep(5);
        check(h.effects(), "bind default/b -> n1");
    }
    h.answer("b", Err(WriteError::Conflict("already bound".into())));
    h.sleep(5);
    let effects = h.effects();
    assert!(
        effects[1].starts_with("status default/b false SchedulerError: running Bind plugin"),
        "{effects:?}"
    );
    assert_eq!((h.queue_of("b"), h.cache()), ("backoff", vec!["n1: default/a".to_owned()]));
}

#[test]
fn a_refusal_after_a_bind_without_an_answer_keeps_the_room() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    h.answer("a", Err(WriteError::Unknown("timeout".into())));
    h.sleep(1);
    check(h.effects(), "bind default/a -> n1");
    h.answer("a", Err(WriteError::Rejected("connection refused".into())));
    check(h.effects(), "");
    assert_eq!(h.cache(), ["n1: default/a"]);
    h.sleep(1);
    check(h.effects(), "bind default/a -> n1");
}

#[test]
fn a_bound_pod_is_counted_from_when_it_was_first_seen() {
    let mut h = Harness::new();
    h.pod(pod("a"));
    h.run();
    h.sleep(3);
    h.node(node("n1"));
    h.run();
    h.core.take_observations();
    h.sleep(1);
    h.bound("a", "n1");
    let seen = h.core.take_observations();
    let bound = Observation::Bound { attempts: 2, since_queued_micros: 4_000_000 };
    assert!(seen.contains(&bound), "{seen:?}");
}
