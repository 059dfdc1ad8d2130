//! Another configuration while pods wait, are on their way, or fail.

use std::sync::Arc;

use muster_api::k8s;
use serde_json::json;

use super::extender::{extender, left, plain};
use super::harness::{Harness, check};
use super::probe::{Probe, Script, node_events, profile};
use crate::framework::{ExtenderId, Facet, Plugin, PluginArgs, Profile, Registry, Status};
use crate::io::{Eviction, Reply, WriteError};
use crate::queue::Backoff;
use crate::testing::{NodeExt as _, PodExt as _, SCHEDULER, node, pod};
use crate::{MAX_VERSIONS, Reload, ReloadError};

impl Harness {
    fn reload(&mut self, profile: Profile) -> Result<(), ReloadError> {
        self.reload_with(profile, Backoff::default())
    }

    fn reload_with(&mut self, profile: Profile, backoff: Backoff) -> Result<(), ReloadError> {
        self.core.reload(self.now, Reload { profiles: vec![profile], backoff })
    }
}

/// A core whose profile ends with the probe `Old`, and a profile that begins with the
/// probe `New` instead: everybody has another position in it.
fn versions(script: Script) -> (Harness, Probe, Profile) {
    let old = Probe::new("Old", script);
    let new = Probe::new("New", Script::default()).log_to(&old);
    let mut h = Harness::with(profile(&[&old]));
    h.node(node("n1"));
    let all = Profile::default_named(SCHEDULER);
    let others = all.plugins().iter().map(|p| (Arc::clone(&p.plugin), p.weight));
    let named = Profile::build(SCHEDULER, [], &PluginArgs::default(), &Registry::in_tree());
    let named = named.expect("a profile without plugins").with_plugin(Arc::new(new), 1);
    (h, old, others.fold(named, |profile, (plugin, weight)| profile.with_plugin(plugin, weight)))
}

#[test]
fn whoever_waits_is_tried_under_the_new_version() {
    let script = Script::default;
    let no = || Some(Status::unschedulable("no"));
    for (queue, script, after) in [
        ("active", script(), "active"),
        ("gated", Script { gate: true, ..script() }, "active"),
        ("unschedulable", Script { filter: no(), ..script() }, "backoff"),
        ("backoff", Script { reserve: Some(Status::error("broken")), ..script() }, "backoff"),
        ("quarantined", Script { panic: "filter", ..script() }, "active"),
    ] {
        let (mut h, calls, new) = versions(script);
        h.pod(pod("a"));
        if queue != "active" {
            h.run();
        }
        assert_eq!(h.queue_of("a"), queue);
        calls.calls();
        h.reload(new).unwrap();
        assert_eq!((h.queue_of("a"), h.core.version()), (after, 1), "{queue}");
        assert_eq!(h.core.unschedulable_by_plugin(), [], "{queue}");
        h.sleep(2);
        check(h.run_binds(), "bind default/a -> n1");
        check(calls.calls(), "reserve New\npermit New\nprebind New");
        h.bound("a", "n1");
        h.assert_idle();
    }
}

#[test]
fn the_new_version_may_hold_back_whoever_was_about_to_be_tried() {
    let (mut h, _, _) = versions(Script::default());
    h.pod(pod("a"));
    let gate = Probe::new("Gate", Script { gate: true, ..Script::default() });
    h.reload(profile(&[&gate])).unwrap();
    assert_eq!(h.queue_of("a"), "gated");
    assert_eq!(h.core.unschedulable_by_plugin(), [(SCHEDULER.into(), "Gate", 1)]);
    check(h.run(), "");
    h.reload(Profile::default_named(SCHEDULER)).unwrap();
    check(h.run_binds(), "bind default/a -> n1");
}

/// A new plugin where the rejecting one was: its events mean nothing to the pod.
#[test]
fn what_rejected_a_pod_before_is_no_position_in_the_new_version() {
    let no = Script { filter: Some(Status::unschedulable("no")), ..Script::default() };
    let old = Probe::new("Old", no.clone());
    let mut h = Harness::with(profile(&[&old]));
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    let deaf = Probe::new("Deaf", Script { events: Vec::new(), ..no });
    h.reload(profile(&[&deaf])).unwrap();
    h.sleep(2);
    let said = h.run();
    assert!(said[0].contains("FailedScheduling"), "tried again, and rejected anew: {said:?}");
    assert_eq!(h.queue_of("a"), "unschedulable");
    assert_eq!(h.core.unschedulable_by_plugin()[0].1, "Deaf");
}

#[test]
fn an_attempt_under_way_ends_under_the_version_it_began_with() {
    let script = Script::default;
    for (stage, script, rest) in [
        ("permit", Script { wait: Some(30), ..script() }, "prebind Old\npostbind Old"),
        ("prebind", Script { park: Some("prepare"), ..script() }, "postbind Old"),
        ("binding", script(), "postbind Old"),
    ] {
        let (mut h, calls, new) = versions(script);
        h.pod(pod("a"));
        h.run();
        assert_eq!(h.queue_of("a"), stage);
        calls.calls();
        h.reload(new).unwrap();
        assert_eq!(h.queue_of("a"), stage, "it goes on");
        match stage {
            "permit" => h.permit("a", "Old", Ok(())),
            "prebind" => h.reply("a", Reply::Done("".into())),
            _ => {}
        }
        h.effects();
        h.bound("a", "n1");
        check(calls.calls(), rest);
        h.pod(pod("b"));
        h.run();
        check(calls.calls(), "reserve New\npermit New\nprebind New");
    }
}

#[test]
fn what_fails_after_a_reload_gives_back_under_the_old_version_and_is_tried_under_the_new() {
    let script = Script::default;
    for (stage, script) in [
        ("permit", Script { wait: Some(30), ..script() }),
        ("prebind", Script { park: Some("prepare"), ..script() }),
        ("binding", script()),
    ] {
        let (mut h, calls, new) = versions(script);
        h.pod(pod("a"));
        h.run();
        calls.calls();
        h.reload(new).unwrap();
        match stage {
            "permit" => h.permit("a", "Old", Err("denied")),
            "prebind" => h.reply("a", Reply::Failed("broken".into())),
            _ => h.answer("a", Err(WriteError::Rejected("refused".into()))),
        }
        h.effects();
        check(calls.calls(), "unreserve Old");
        assert_eq!((h.queue_of("a"), h.cache()), ("backoff", vec!["n1: ".to_owned()]), "{stage}");
        assert_eq!(h.core.unschedulable_by_plugin(), [], "{stage}");
        h.sleep(2);
        check(h.run_binds(), "bind default/a -> n1");
        check(calls.calls(), "reserve New\npermit New\nprebind New");
    }
}

#[test]
fn a_cycle_that_asks_extenders_goes_on_with_those_it_began_with() {
    let begun = [extender("e", "filter"), extender("f", "filter")];
    let mut h = Harness::with(Profile::default_named(SCHEDULER).with_extenders(begun.clone()));
    h.node(node("n1"));
    h.node(node("n2"));
    h.pod(plain("a"));
    check(h.run(), "e filters n1 n2 for a");
    let new = extender("g", "filter bind");
    h.reload(Profile::default_named(SCHEDULER).with_extenders([new.clone()])).unwrap();
    let ids = |specs: &[ExtenderId]| specs.iter().copied().collect();
    assert_eq!(h.core.extenders_in_use(), ids(&[begun[0].id, begun[1].id, new.id]));
    h.pod(plain("b"));
    check(h.run(), "g filters n1 n2 for b");
    check(h.extender("a", left("n1 n2")), "f filters n1 n2 for a");
    check(h.extender("a", left("n2")), "bind default/a -> n2");
    h.bound("a", "n2");
    assert_eq!(h.core.extenders_in_use(), ids(&[new.id]), "nobody asks the others any more");
    h.effects();
    check(h.extender("b", left("n1")), "g binds b to n1");
}

/// One shape, two versions at a time: what is kept of one is not used for the other.
#[test]
fn kept_verdicts_are_those_of_the_attempts_own_version() {
    let strict = || Profile::default_named(SCHEDULER);
    let mut h = Harness::with(strict().with_extenders([extender("e", "filter")]));
    h.node(node("n1"));
    h.node(node("n2").taint("gpu", "", "NoSchedule"));
    h.pod(plain("a"));
    check(h.run(), "e filters n1 for a");
    let plugins = Profile::defaults().iter().copied().filter(|(p, _)| *p != "TaintToleration");
    let args = PluginArgs::default();
    let lax = Profile::build(SCHEDULER, plugins, &args, &Registry::in_tree()).unwrap();
    h.reload(lax.with_extenders([extender("e", "filter")])).unwrap();
    h.pod(plain("b"));
    check(h.run(), "e filters n1 n2 for b");
    // n2 is not let pass by the version that `a` began with.
    let lies = h.extender("a", left("n1 n2"));
    assert!(lies[0].contains("node \"n2\" which is not found in the input"), "{lies:?}");
    check(h.extender("b", left("n2")), "bind default/b -> n2");
}

#[test]
fn versions_in_use_are_bounded_and_a_reload_waits_for_one_to_end() {
    let waits = || {
        let probe = Probe::new("Slow", Script { wait: Some(900), ..Script::default() });
        profile(&[&probe])
    };
    let mut h = Harness::with(waits());
    h.node(node("n1"));
    for at in 0..MAX_VERSIONS {
        h.pod(pod(&format!("p{at}")));
        h.run();
        let done = h.reload(waits());
        let full = at + 1 == MAX_VERSIONS;
        assert_eq!(done, if full { Err(ReloadError::Busy(MAX_VERSIONS)) } else { Ok(()) });
    }
    assert_eq!(h.core.version() as usize, MAX_VERSIONS - 1);
    h.permit("p3", "Slow", Ok(()));
    h.effects();
    h.bound("p3", "n1");
    assert_eq!(h.reload(waits()), Ok(()));
    // The versions that nobody uses take no place.
    (0..100).for_each(|_| h.reload(waits()).unwrap_or_default());
    assert_eq!(h.core.version() as usize, MAX_VERSIONS + 100);
}

#[test]
fn new_bounds_of_the_backoff_hold_for_whoever_backs_off() {
    let slow = Backoff { initial_secs: 60, max_secs: 600 };
    let fast = Backoff { initial_secs: 1, max_secs: 1 };
    let broken = Script { reserve: Some(Status::error("broken")), ..Script::default() };
    let (mut h, _, new) = versions(broken);
    h.reload_with(profile(&[&Probe::new("Old", Script::default())]), slow).unwrap();
    h.pod(pod("a"));
    h.run();
    h.answer("a", Err(WriteError::Rejected("refused".into())));
    h.sleep(30);
    assert_eq!(h.queue_of("a"), "backoff");
    h.reload_with(new, fast).unwrap();
    assert_eq!(h.queue_of("a"), "active", "it has backed off for longer than that");
}

#[test]
fn a_preemptor_stays_held_and_its_plan_is_carried_out() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("low").req(&[("cpu", "3")]).priority(1));
    h.run();
    h.bound("low", "n1");
    h.pod(pod("high").req(&[("cpu", "3")]).priority(9));
    let said = h.run();
    assert_eq!(said.last().map(String::as_str), Some("ask default/low"), "{said:?}");
    assert_eq!(h.queue_of("high"), "gated");
    h.reload(Profile::default_named(SCHEDULER)).unwrap();
    assert_eq!(h.queue_of("high"), "gated");
    h.evicted("low", Eviction::Accepted);
    check(h.effects(), "evict default/low");
    h.evicted("low", Eviction::Accepted);
    h.gone("low");
    h.sleep(2);
    check(h.run_binds(), "bind default/high -> n1");
}

/// Reads the namespace of pods.
struct Reader(bool);

impl Plugin for Reader {
    fn name(&self) -> &'static str {
        "Reader"
    }
    fn as_facet(&self) -> Option<&dyn Facet> {
        Some(self)
    }
}

impl Facet for Reader {
    fn facet(&self, pod: &k8s::Pod) -> Option<Box<str>> {
        Some(pod.metadata.namespace.as_str().into())
    }
    fn depends_on_args(&self) -> bool {
        self.0
    }
}

#[test]
fn what_a_running_core_cannot_follow_is_refused_and_nothing_has_changed() {
    let reads = |depends: bool, args: i64| {
        let custom = [("Reader".to_owned(), json!({"of": args}))].into();
        let args = PluginArgs { custom, ..PluginArgs::default() };
        let registry = Registry::in_tree().plugin("Reader", move |_| Ok(Reader(depends)));
        let plugins = Profile::defaults().iter().copied().chain([("Reader", 0)]);
        Profile::build(SCHEDULER, plugins, &args, &registry).unwrap()
    };
    let plain = || Profile::default_named(SCHEDULER);
    let facet = || Err(ReloadError::Facet { profile: SCHEDULER.into(), plugin: "Reader" });
    for (case, before, after, expected) in [
        ("the same", reads(true, 1), reads(true, 1), Ok(())),
        ("it is new", plain(), reads(false, 1), facet()),
        ("other arguments", reads(true, 1), reads(true, 2), facet()),
        ("arguments that it does not read with", reads(false, 1), reads(false, 2), Ok(())),
        ("it is gone", reads(true, 1), plain(), Ok(())),
        (
            "another name",
            plain(),
            Profile::default_named("other"),
            Err(ReloadError::Names { before: SCHEDULER.into(), after: "other".into() }),
        ),
    ] {
        let mut h = Harness::with(before);
        h.node(node("n1"));
        h.pod(pod("a"));
        assert_eq!(h.reload(after), expected, "{case}");
        assert_eq!(h.core.version(), u64::from(expected.is_ok()), "{case}");
        assert_eq!(h.run_binds().len(), 1, "{case}");
    }
}

/// Events that come while an attempt of the old version is under way are not missed.
#[test]
fn a_pod_rejected_under_the_old_version_needs_no_event() {
    let script = Script { wait: Some(5), events: node_events(), ..Script::default() };
    let (mut h, _, new) = versions(script);
    h.pod(pod("a"));
    h.run();
    h.reload(new).unwrap();
    h.sleep(5);
    assert_eq!(h.queue_of("a"), "backoff", "its wait timed out");
    h.sleep(2);
    check(h.run_binds(), "bind default/a -> n1");
}
