//! Victims that want to save their work first: who is asked, and for how long they are waited for.

use muster_api::k8s;
use serde_json::json;

use super::gang::group;
use super::harness::{Harness, check};
use crate::io::{Eviction, Object};
use crate::testing::{NodeExt, PodExt, node, pod, wire};

const WAIT: &str = "muster.dev/checkpoint-before-eviction";
const ASKED: &str = "muster.dev/checkpoint-requested";
const SAVED: &str = "muster.dev/last-checkpoint";

/// A pod that runs, fills its node, and wants to be waited for for so long.
fn runs(h: &mut Harness, name: &str, node: &str, wait: &str) {
    let mut there = pod(name).req(&[("cpu", "2")]).priority(1).on(node).pod_label("app", name);
    there.status.phase = "Running".into();
    there.status.start_time = Some(k8s::Time(h.now.0 - 100_000_000));
    there.metadata.annotations.insert(WAIT.into(), wait.into());
    h.pod(there);
}

/// A node full of `low`, and `high`, which wants its place.
fn contended(wait: &str) -> Harness {
    let mut h = Harness::new();
    h.node(node("n1").cpu("2"));
    runs(&mut h, "low", "n1", wait);
    h.pod(pod("high").req(&[("cpu", "2")]).priority(10));
    h
}

/// What is done to victims, in order.
fn done(effects: &[String]) -> Vec<&str> {
    let kinds = ["checkpoint ", "ask ", "evict ", "delete "];
    effects.iter().map(String::as_str).filter(|e| kinds.iter().any(|k| e.starts_with(k))).collect()
}

fn note(h: &mut Harness, name: &str, key: &str, seconds_ago: i64) {
    let at = k8s::Time((h.now.secs() - seconds_ago) * 1_000_000).to_string();
    h.edit(name, |p| drop(p.metadata.annotations.insert(key.into(), at)));
}

/// The note that was asked for is on the pod, and the watch shows it.
fn asked(h: &mut Harness, name: &str) {
    h.evicted(name, Eviction::Accepted);
    note(h, name, ASKED, 0);
}

#[test]
fn a_victim_is_asked_first_and_goes_when_it_has_saved_its_work() {
    let mut h = contended("60");
    assert_eq!(done(&h.run()), ["checkpoint default/low"]);
    assert_eq!(h.nominated("high"), Some("n1"));
    asked(&mut h, "low");
    check(
        h.effects(),
        "Normal default/low CheckpointRequested: To be preempted by pod uid-high: it has 60s to \
         save its work",
    );
    h.sleep(20);
    assert!(done(&h.run()).is_empty(), "it is waited for");
    note(&mut h, "low", SAVED, 21);
    assert!(done(&h.run()).is_empty(), "what it saved before it was asked is not what it has now");
    note(&mut h, "low", SAVED, 0);
    h.sleep(2);
    assert_eq!(done(&h.run()), ["ask default/low"]);
    assert_eq!(h.queue_of("high"), "gated");
    h.evicted("low", Eviction::Accepted);
    assert_eq!(done(&h.effects()), ["evict default/low"]);
    h.evicted("low", Eviction::Accepted);
    h.gone("low");
    h.sleep(3);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
    h.bound("high", "n1");
    h.assert_idle();
}

#[test]
fn a_victim_that_says_nothing_goes_when_its_time_is_over_and_no_wait_is_longer_than_five_minutes() {
    for (wait, seconds) in [("60", 60), ("100000", 300)] {
        let mut h = contended(wait);
        assert_eq!(done(&h.run()), ["checkpoint default/low"]);
        asked(&mut h, "low");
        h.sleep(seconds - 2);
        assert!(done(&h.run()).is_empty(), "{wait}");
        h.sleep(4);
        assert_eq!(done(&h.run()), ["ask default/low"], "{wait}");
    }
}

#[test]
fn what_makes_no_sense_and_what_does_not_run_is_not_waited_for() {
    for wait in ["", "0", "-5", "soon", "1.5"] {
        assert_eq!(done(&contended(wait).run()), ["ask default/low"], "{wait:?}");
    }
    let mut h = contended("60");
    h.edit("low", |p| p.status.phase = "Pending".into());
    assert_eq!(done(&h.run()), ["ask default/low"]);
}

#[test]
fn a_process_that_takes_over_goes_on_from_the_note_on_the_pod() {
    // Asked by a process before this one: seconds ago, and whether it has answered.
    let begins = |ago: i64, saved: Option<i64>| {
        let mut h = contended("60");
        note(&mut h, "low", ASKED, ago);
        if let Some(saved) = saved {
            note(&mut h, "low", SAVED, saved);
        }
        let first = done(&h.run()).first().map_or(String::new(), ToString::to_string);
        (h, first)
    };
    assert_eq!(begins(30, Some(10)).1, "ask default/low", "it has saved its work");
    assert_eq!(begins(90, None).1, "ask default/low", "it has had its time");
    assert_eq!(begins(3_000, None).1, "checkpoint default/low", "that was for another");
    assert_eq!(begins(3_000, Some(2_990)).1, "checkpoint default/low");
    assert_eq!(begins(-1_000, None).1, "checkpoint default/low", "by a clock that is ahead");
    let (mut h, first) = begins(40, None);
    assert_eq!(first, "", "nobody asks again");
    h.sleep(18);
    assert!(done(&h.run()).is_empty());
    h.sleep(4);
    assert_eq!(done(&h.run()), ["ask default/low"]);
}

#[test]
fn room_that_comes_meanwhile_is_taken_and_nobody_goes() {
    let mut h = contended("60");
    h.run();
    asked(&mut h, "low");
    h.sleep(5);
    h.node(node("n2").cpu("2"));
    h.sleep(2);
    assert_eq!(h.run_binds(), ["bind default/high -> n2"]);
    h.bound("high", "n2");
    note(&mut h, "low", SAVED, 0);
    h.sleep(100);
    assert!(done(&h.run()).is_empty());
    h.assert_idle();
}

#[test]
fn what_changes_meanwhile_counts() {
    // A budget forbids it by then.
    let mut h = contended("60");
    h.run();
    asked(&mut h, "low");
    h.effects();
    h.object(Object::PodDisruptionBudget(wire(json!({
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}},
        "status": {"disruptionsAllowed": 0},
    }))));
    h.sleep(70);
    let effects = h.run();
    assert!(done(&effects).is_empty(), "{effects:?}");
    assert!(effects.join("\n").contains("PodDisruptionBudget default/keep forbids"), "{effects:?}");
    // It ends by itself.
    let mut h = contended("60");
    h.run();
    asked(&mut h, "low");
    h.gone("low");
    h.sleep(2);
    assert_eq!(h.run_binds(), ["bind default/high -> n1"]);
    h.bound("high", "n1");
    h.assert_idle();
    // The preemptor is gone.
    let mut h = contended("60");
    h.run();
    asked(&mut h, "low");
    h.gone("high");
    h.sleep(100);
    assert!(done(&h.run()).is_empty());
    h.assert_idle();
}

#[test]
fn an_attempt_meanwhile_says_what_it_waits_for() {
    let mut h = contended("60");
    h.run();
    asked(&mut h, "low");
    h.sleep(2);
    let mut tainted = node("n2").cpu("2");
    tainted.spec.taints = vec![k8s::Taint {
        key: "not".into(),
        effect: "NoSchedule".into(),
        ..k8s::Taint::default()
    }];
    h.node(tainted);
    h.sleep(2);
    let effects = h.run();
    let says = "preemption: waiting for 1 pods to save their work";
    assert!(effects.iter().any(|e| e.ends_with(says)), "{effects:?}");
}

#[test]
fn a_question_that_cannot_be_asked_ends_the_plan() {
    let mut h = contended("60");
    h.run();
    for _ in 0..3 {
        h.evicted("low", Eviction::Unavailable("busy".into()));
        h.effects();
        h.sleep(2);
        assert_eq!(done(&h.run()), ["checkpoint default/low"], "it is asked again");
    }
    h.evicted("low", Eviction::Failed("pods \"low\" is forbidden".into()));
    h.sleep(5);
    let effects = h.run();
    assert!(done(&effects).is_empty(), "{effects:?}");
    let says =
        "node(s) need the eviction of default/low, which was refused: pods \"low\" is forbidden";
    assert!(effects.join("\n").contains(says), "{effects:?}");
    h.sleep(40);
    assert_eq!(done(&h.run()), ["checkpoint default/low"]);
}

#[test]
fn a_gang_waits_for_all_of_its_victims_and_is_expected_in_their_room() {
    let mut h = Harness::new();
    ["n1", "n2"].iter().for_each(|name| h.node(node(name).cpu("2")));
    h.object(group("high", &json!({"minMember": 2})));
    runs(&mut h, "a", "n1", "60");
    runs(&mut h, "b", "n2", "30");
    for name in ["x", "y"] {
        let own = pod(name).req(&[("cpu", "2")]).priority(10);
        h.pod(own.pod_label("muster.dev/pod-group", "high"));
    }
    let effects = h.run();
    let mut both = done(&effects);
    both.sort_unstable();
    assert_eq!(both, ["checkpoint default/a", "checkpoint default/b"]);
    asked(&mut h, "a");
    asked(&mut h, "b");
    let told = h.effects().join("\n");
    assert!(told.contains("pod group default/high for its pod"), "{told}");
    h.sleep(40);
    assert!(done(&h.run()).is_empty(), "one has had its time, the other has not");
    let mut held: Vec<&str> = ["x", "y"].iter().filter_map(|m| h.nominated(m)).collect();
    held.sort_unstable();
    assert_eq!(held, ["n1", "n2"]);
    note(&mut h, "a", SAVED, 0);
    h.sleep(3);
    let effects = h.run();
    let mut both = done(&effects);
    both.sort_unstable();
    assert_eq!(both, ["ask default/a", "ask default/b"], "{effects:?}");
    for name in ["a", "b"] {
        h.evicted(name, Eviction::Accepted);
    }
    h.effects();
    for name in ["a", "b"] {
        h.evicted(name, Eviction::Accepted);
        h.gone(name);
    }
    h.sleep(3);
    let mut binds = h.run_binds();
    binds.sort_unstable();
    assert_eq!(binds.len(), 2, "{binds:?}");
}
