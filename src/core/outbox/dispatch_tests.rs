use super::*;
use crate::io::{Condition, Removal, Token};

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

fn bind(name: &str, attempt: u64) -> PodCall {
    PodCall::Bind(Bind { pod: pod(name), node: "n".into(), attempt, devices: None })
}

fn patch(name: &str, message: Option<&str>, nominated: Option<&str>) -> PodCall {
    PodCall::Patch(StatusPatch {
        pod: pod(name),
        condition: message.map(|message| Condition {
            status: false,
            reason: "Unschedulable",
            message: message.into(),
            observed_generation: None,
        }),
        shown: None,
        nominated_node: nominated.map(Into::into),
    })
}

const READY: Added = Added::Waits { ready: true };

#[test]
fn binds_go_before_patches_in_order() {
    let mut d = Dispatch::default();
    assert_eq!(d.add(patch("p", Some("no"), None)), READY);
    assert_eq!(d.add(bind("a", 1)), READY);
    assert_eq!(d.add(bind("b", 1)), READY);
    let order: Vec<_> = std::iter::from_fn(|| d.take()).map(|c| c.pod().name.to_string()).collect();
    assert_eq!(order, ["a", "b", "p"]);
    assert_eq!(d.flying(), 3);
}

#[test]
fn patches_of_one_pod_merge() {
    let mut d = Dispatch::default();
    d.add(patch("p", Some("old"), Some("n1")));
    assert!(matches!(d.add(patch("p", Some("new"), None)), Added::Dropped(_)));
    assert_eq!(d.take(), Some(patch("p", Some("new"), Some("n1"))));
    assert_eq!(d.take(), None);
}

#[test]
fn a_bind_beats_a_patch_before_and_after() {
    let mut d = Dispatch::default();
    d.add(patch("p", Some("no"), None));
    assert_eq!(d.add(bind("p", 1)), Added::Replaced(patch("p", Some("no"), None)));
    assert!(matches!(d.add(patch("p", Some("no"), None)), Added::Dropped(_)));
    assert_eq!(d.waiting_binds, 1);
    assert_eq!(d.take(), Some(bind("p", 1)));
    assert_eq!(d.take(), None, "the patch is gone");
    assert!(!d.done(&bind("p", 1)));
    assert!(d.is_idle());
}

#[test]
fn a_newer_bind_takes_the_place_of_one_not_started() {
    let mut d = Dispatch::default();
    d.add(bind("p", 1));
    assert_eq!(d.add(bind("p", 2)), Added::Replaced(bind("p", 1)));
    assert_eq!(d.waiting_binds, 1);
    assert_eq!(d.take(), Some(bind("p", 2)));
    assert_eq!(d.take(), None);
}

#[test]
fn what_comes_during_a_call_waits_for_it() {
    let mut d = Dispatch::default();
    d.add(bind("p", 1));
    d.take();
    assert_eq!(d.add(patch("p", Some("failed"), None)), Added::Waits { ready: false });
    assert_eq!(d.take(), None);
    assert!(d.done(&bind("p", 1)), "the patch is ready now");
    assert_eq!(d.take(), Some(patch("p", Some("failed"), None)));
    d.done(&bind("p", 1));
    assert!(d.is_idle());
    assert!(d.slots.is_empty(), "nothing is kept of a pod without calls");
}

#[test]
fn is_bounded() {
    let mut d = Dispatch::default();
    for i in 0..MAX_PATCHES {
        d.add(patch(&i.to_string(), Some("no"), None));
    }
    assert!(matches!(d.add(patch("one-more", Some("no"), None)), Added::Dropped(_)));
    assert_eq!(d.add(bind("one-more", 1)), READY, "binds have their own limit");
}

#[test]
fn discard_leaves_what_flies() {
    let mut d = Dispatch::default();
    d.add(bind("a", 1));
    d.take();
    d.add(patch("a", Some("no"), None));
    d.add(bind("b", 1));
    assert_eq!(d.discard().len(), 2);
    assert_eq!((d.flying(), d.waiting_binds), (1, 0));
    assert!(!d.done(&bind("a", 1)));
    assert!(d.is_idle());
}

fn evict(token: u64, victim: &str, dry_run: bool) -> PodCall {
    let (preemptor, victim) = (pod("p"), pod(victim));
    let how = if dry_run { Removal::DryRun } else { Removal::Evict };
    PodCall::Evict(Evict { token: Token(token), preemptor, victim, how })
}

#[test]
fn evictions_go_between_binds_and_patches_and_each_is_made() {
    let mut d = Dispatch::default();
    d.add(patch("q", Some("no"), None));
    // Two preemptors may ask for the same victim: both are answered.
    assert_eq!(d.add(evict(1, "v", true)), READY);
    assert_eq!(d.add(evict(2, "v", true)), READY);
    d.add(bind("v", 1));
    assert_eq!(d.take(), Some(bind("v", 1)));
    assert_eq!(d.take(), Some(evict(1, "v", true)));
    assert_eq!(d.take(), Some(evict(2, "v", true)));
    assert_eq!(d.take(), Some(patch("q", Some("no"), None)));
    for call in [bind("v", 1), evict(1, "v", true), evict(2, "v", true), patch("q", None, None)] {
        assert!(!d.is_idle());
        d.done(&call);
    }
    assert!(d.is_idle());
}

#[test]
fn only_so_many_evictions_fly_at_a_time() {
    let mut d = Dispatch::default();
    for token in 0..=MAX_FLYING_EVICTIONS as u64 {
        d.add(evict(token, "v", false));
    }
    d.add(patch("q", Some("no"), None));
    let taken = std::iter::from_fn(|| d.take()).count();
    assert_eq!(taken, MAX_FLYING_EVICTIONS + 1, "all but one eviction, and the patch");
    assert!(d.done(&evict(0, "v", false)), "a place became free");
    assert_eq!(d.take(), Some(evict(MAX_FLYING_EVICTIONS as u64, "v", false)));
    assert_eq!(d.discard(), []);
    assert_eq!(d.flying(), MAX_FLYING_EVICTIONS + 1);
}

#[test]
fn evictions_that_wait_are_bounded() {
    let mut d = Dispatch::default();
    for token in 0..MAX_EVICTIONS as u64 {
        assert_eq!(d.add(evict(token, "v", false)), READY);
    }
    let late = evict(1 << 40, "v", false);
    assert_eq!(d.add(late.clone()), Added::Dropped(late));
    assert_eq!(d.discard().len(), MAX_EVICTIONS);
    assert!(d.is_idle());
}
