//! The two barriers of a gang: Permit and PreBound.

use serde_json::json;

use super::gang::{group, member};
use super::harness::{Harness, check};
use super::probe::{Probe, Script, profile};
use crate::framework::Status;
use crate::io::Reply;
use crate::testing::{NodeExt, PodExt, node, pod};

fn gang_of_two(script: Script, seconds: i32) -> (Harness, Probe) {
    let probe = Probe::new("One", script);
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.object(group("g", &json!({"minMember": 2, "scheduleTimeoutSeconds": seconds})));
    h.pod(member("a", "g"));
    h.pod(member("b", "g"));
    (h, probe)
}

fn wait() -> Script {
    Script { wait: Some(30), ..Script::default() }
}

#[test]
fn one_member_that_waits_at_permit_holds_the_whole_gang() {
    let (mut h, _) = gang_of_two(wait(), 300);
    let effects = h.run();
    assert!(!effects.iter().any(|e| e.starts_with("bind")), "{effects:?}");
    assert!(effects[0].starts_with("group default/g WaitingForPermit: 2 of 2 members wait"));
    assert_eq!((h.queue_of("a"), h.queue_of("b")), ("permit", "permit"));
    h.permit("a", "One", Ok(()));
    check(h.effects(), "");
    h.permit("b", "One", Ok(()));
    check(h.effects(), "bind default/a -> n1\nbind default/b -> n1");
    h.bound("a", "n1");
    h.bound("b", "n1");
    h.run();
    h.assert_idle();
}

#[test]
fn a_refusal_at_permit_gives_back_the_room_of_all() {
    let (mut h, probe) = gang_of_two(wait(), 300);
    h.run();
    probe.calls();
    h.permit("a", "One", Ok(()));
    h.permit("b", "One", Err("denied"));
    let effects = h.effects();
    assert!(
        effects[0]
            .starts_with("group default/g Rejected: member b: 0/1 nodes are available: 1 denied."),
        "{effects:?}"
    );
    assert!(effects[0].ends_with("(gave up)"));
    // In reverse order.
    check(probe.calls(), "unreserve One\nunreserve One");
    assert_eq!(h.cache(), ["n1: "]);
    assert_eq!((h.queue_of("a"), h.queue_of("b")), ("backoff", "backoff"));
}

#[test]
fn a_wait_ends_at_the_groups_deadline_or_at_the_plugins() {
    for (seconds, expected) in [(10, 10), (300, 30)] {
        let (mut h, _) = gang_of_two(wait(), seconds);
        h.run();
        h.sleep(expected - 1);
        check(h.effects(), "");
        h.sleep(1);
        let effects = h.effects();
        assert!(effects[0].starts_with("group default/g ScheduleTimeout: "), "{effects:?}");
        assert_eq!(h.cache(), ["n1: "]);
    }
}

#[test]
fn no_bind_goes_out_before_pre_bind_of_all_has_succeeded() {
    let park = Script { park: Some("please"), ..Script::default() };
    let (mut h, _) = gang_of_two(park, 300);
    check(h.run(), "call default/a One: please\ncall default/b One: please");
    h.reply("a", Reply::Done("".into()));
    check(h.effects(), "");
    assert_eq!(h.queue_of("a"), "prebind");
    h.reply("b", Reply::Done("".into()));
    check(h.effects(), "bind default/a -> n1\nbind default/b -> n1");
}

#[test]
fn a_failure_at_pre_bind_gives_back_the_room_of_all() {
    let park = Script { park: Some("please"), ..Script::default() };
    let (mut h, _) = gang_of_two(park, 300);
    h.run();
    h.reply("a", Reply::Done("".into()));
    h.reply("b", Reply::Failed("broken".into()));
    let effects = h.effects();
    assert!(effects[0].contains("SchedulerError: member b: "), "{effects:?}");
    assert_eq!(h.cache(), ["n1: "]);
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn a_failure_of_one_at_reserve_leaves_none_with_room() {
    let (mut h, probe) = gang_of_two(Script::default(), 300);
    probe.tell(|s| s.reserve = Some(Status::unschedulable("full")));
    let effects = h.run();
    assert!(effects[0].contains("room for 0 of 2 members; member a:"), "{effects:?}");
    assert_eq!(h.cache(), ["n1: "]);
}

#[test]
fn a_member_deleted_while_the_gang_waits_gives_back_the_room_of_all() {
    let (mut h, _) = gang_of_two(wait(), 300);
    h.pod(member("c", "g"));
    h.run();
    let on: Vec<String> = h.cache();
    assert!(on[0].contains("default/a, default/b"), "{on:?}");
    h.edit("b", |p| p.metadata.deletion_timestamp = Some(muster_api::k8s::Time(0)));
    assert_eq!(h.cache(), ["n1: "]);
    // The third takes its place.
    h.run();
    assert_eq!(h.cache(), ["n1: default/a, default/c"]);
}

#[test]
fn a_member_that_somebody_else_binds_meanwhile_counts_as_bound() {
    let (mut h, _) = gang_of_two(wait(), 300);
    h.run();
    h.edit("b", |p| "n1".clone_into(&mut p.spec.node_name));
    h.run();
    h.permit("a", "One", Ok(()));
    check(h.effects(), "bind default/a -> n1");
}

#[test]
fn a_node_that_is_cordoned_tainted_or_deleted_has_the_gang_planned_again() {
    type Befalls = fn(&mut Harness);
    let befalls: [(&str, Befalls); 3] = [
        ("cordoned", |h| h.node(node("n1").unschedulable())),
        ("tainted", |h| h.node(node("n1").taint("gone", "", "NoExecute"))),
        ("deleted", |h| h.node_gone("n1")),
    ];
    for (what, befall) in befalls {
        let (mut h, _) = gang_of_two(wait(), 300);
        h.run();
        h.node(node("n2"));
        befall(&mut h);
        h.run();
        let on_n2 = h.cache().into_iter().find(|n| n.starts_with("n2"));
        assert_eq!(on_n2.as_deref(), Some("n2: default/a, default/b"), "{what}");
    }
}

#[test]
fn a_more_important_pod_may_take_the_place_of_a_gang_that_waits() {
    let (mut h, _) = gang_of_two(wait(), 300);
    h.run();
    h.pod(pod("vip").req(&[("cpu", "4")]).priority(10));
    h.run();
    assert_eq!(h.cache(), ["n1: default/vip"]);
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn a_panic_leaves_no_member_with_room_and_the_gang_alone_until_it_changes() {
    let (mut h, probe) = gang_of_two(Script::default(), 300);
    probe.tell(|s| s.panic = "permit");
    let effects = h.run();
    assert!(effects.iter().any(|e| e.contains("the scheduling cycle panicked")), "{effects:?}");
    assert_eq!((h.cache(), h.queue_of("a")), (vec!["n1: ".to_owned()], "quarantined"));
    probe.tell(|s| s.panic = "");
    h.sleep(60);
    assert_eq!(h.queue_of("a"), "quarantined");
    h.pod(member("c", "g"));
    h.sleep(3);
    assert_eq!(h.run_binds().len(), 2);
}
