//! Rules of kube-scheduler that are easily got wrong, and the tests that hold them.
//!
//! | rule | test |
//! |---|---|
//! | one tie-break for one seed (upstream's heap order is not copied) | `random::the_same_inputs_give_the_same_effects` |
//! | Unschedulable or UnschedulableAndUnresolvable, per plugin and cause | tables in `plugins/tests` |
//! | PreFilter: Skip takes its Filter away | [`a_plugin_that_skips_is_not_asked_about_nodes`] |
//! | PreFilter: Unschedulable lets the others run, the other codes stop | [`an_unschedulable_pre_filter_lets_the_others_run`] |
//! | PreFilter: node sets are intersected, the others say who left them out | [`nodes_that_pre_filter_leaves_out_say_so`] |
//! | PreFilter: sets without a common node | [`plugins_that_contradict_each_other_are_named_and_all_heard`] |
//! | an error on one node ends the attempt, in the error heap, with no rejectors | [`an_error_on_one_node_ends_the_attempt`] |
//! | only the first plugin that rejects a node is counted | [`the_first_plugin_that_rejects_a_node_is_the_only_one_counted`] |
//! | one feasible node is not scored | [`one_feasible_node_is_not_scored`] |
//! | backoff: truncated, equal window still backs off, aligned flush | `order::backoff_doubles_and_an_expiry_in_this_second_still_backs_off` |
//! | backoff: errors counted apart from rejections | `order::an_error_is_counted_apart_from_rejections` |
//! | backoff: popped early from the normal heap only | `order::an_error_waits_its_backoff_out_and_a_rejection_is_popped_early` |
//! | backoff: by window, then by the queue's order | [`queue::of_pods_that_back_off_equally_long_the_more_important_goes_first`] |
//! | backoff: PreEnqueue on the way in | `order::a_pod_gated_after_a_failure_keeps_its_backoff_when_the_gate_opens` |
//! | in flight: events are replayed through hints | `wake::an_event_that_helps_while_a_pod_is_in_flight_is_not_lost` and the three after it |
//! | in flight: the log is bounded and pruned | `wake::more_events_than_are_kept_count_as_one_that_helps`, `queue/tests.rs` |
//! | in flight: ends after Permit, before PreBind | [`events_are_kept_until_permit_is_over`] |
//! | a failed binding tells others of its room after it is queued, and not itself | `wake::a_rejected_pod_is_not_woken_by_its_own_release`, `binding::a_failed_bind_frees_room_for_pods_that_lack_it` |
//! | events: a general update does not match a registration of a particular one | [`queue::a_general_update_wakes_only_who_asked_for_any`] |
//! | events: one node update may be several | [`queue::one_update_of_a_node_is_an_event_of_each_kind`] |
//! | events: the end of a cordon is a change of taints, its beginning nothing | [`queue::the_end_of_a_cordon_is_a_change_of_taints_and_its_beginning_nothing`] |
//! | events: only plugins that rejected the pod are asked | `wake::only_plugins_that_rejected_the_pod_are_asked` |
//! | events: of no interest to anyone are not even kept | [`queue::an_event_nobody_asked_for_is_not_kept`] |
//! | no rejectors: tried again after backing off, whatever happens | `order::with_no_nodes_a_pod_backs_off_as_after_an_error`, [`queue::after_an_error_no_event_is_waited_for`] |
//! | Pending: a hint of it skips backoff, another plugin's does not | [`queue::what_a_pending_plugin_waited_for_ends_backoff`] |
//! | gates: only events of the gating plugin, and only by hints | [`queue::a_gated_pod_hears_only_what_its_gating_plugin_asked_for`] |
//! | gates: the gating plugin is asked first | [`queue::the_plugin_that_gated_a_pod_is_asked_first`] |
//! | gates: silent, no attempt counted | `order::a_gated_pod_waits_silently_and_goes_when_its_gate_does` |
//! | leftover flush: every 30 s, after more than 5 min | `order::what_waits_five_minutes_is_tried_again_at_the_next_half_minute` |
//! | leftover flush: gated pods too | `order::the_leftover_flush_looks_at_gated_pods_every_five_minutes_only` |
//! | Activate: from anywhere but flight, gates hold; in flight it is remembered | `holds::activate_*` |
//! | an update in active or backoff stays there | [`queue::a_change_does_not_end_backoff`] |
//! | an update with a known resourceVersion is none | [`queue::a_version_already_seen_is_no_update`] |
//! | Reserve: all are unreserved, in reverse | `binding::a_failed_reserve_unreserves_all_in_reverse` |
//! | Permit: a rejection stops, waits before it do not count | [`a_rejection_at_permit_ends_the_waits_before_it`] |
//! | Permit: deadlines, capped, in upstream's words | `permit::*` |
//! | Bind: Skip leaves it to the next; PostBind once | `binding::a_bind_plugin_may_leave_the_pod_to_the_next`, `binding::every_point_is_called_in_order_and_post_bind_once` |
//! | assumed pods do not expire | [`a_reservation_never_expires`] |
//! | deletion, end, recreation, a foreign bind, at every stage | `stages::*` |
//! | deletion of an assumed pod: a wait at Permit ends | `stages::a_pod_deleted_while_it_waits_at_permit_gives_its_room_back_at_once` |
//! | a deleting pod is skipped with an event | `stages::a_pod_that_is_being_deleted_is_skipped` |
//! | messages: reasons counted one by one, sorted as strings | `report::fit_error` |
//! | messages: cut in the event, whole in the condition | `order::a_message_too_long_is_cut_in_the_event_and_whole_in_the_condition` |
//! | nominated: the node is tried alone first, and chosen without scores | `nominate::an_expected_pod_takes_its_node_without_a_look_at_the_others` |
//! | nominated: equal priority leaves room, two passes | `nominate::equal_priority_leaves_the_room_and_higher_does_not`, `nominate::nobody_relies_on_a_pod_that_is_only_expected` |
//! | nominated: its end is told to pods of no higher priority only | `nominate::the_room_of_an_expected_pod_that_goes_is_told_to_those_who_left_it_to_it` |
//! | nominated: cleared or left alone | `nominate::a_failure_on_the_way_to_binding_ends_the_expectation`, `nominate::a_pod_that_may_not_preempt_keeps_its_expectation` |
//! | nominated: written before a wait at Permit | `preempt::a_pod_that_waits_at_permit_is_announced_and_gives_way_without_an_eviction` |
//! | preemption: only nodes that said Unschedulable | `preempt::nodes_that_evictions_cannot_help_are_counted_as_such` |
//! | preemption: budgets by importance, reprieve, six criteria, sums | `tests/oracle`, tables in `preemption` |
//! | preemption: the preemptor is gated meanwhile | `preempt::the_least_important_pod_goes_and_the_preemptor_takes_its_place` |
//! | preemption: lower pods expected on the node look elsewhere | `preempt::room_that_a_less_important_pod_waits_for_is_taken_from_it` |
//! | preemption: victims at Permit or PreBind go in memory, and the preemptor is tried at once | `preempt::a_pod_that_waits_at_permit_is_announced_and_gives_way_without_an_eviction` |
//! | preemption: terminating victims are waited for | `preempt::a_victim_that_the_server_does_not_know_is_not_asked_for_again_before_it_is_seen_to_go`, `preempt::a_deletion_seen_before_the_eviction_is_answered_is_not_missed` |
//! | preemption: an error of the server activates the preemptor | `preempt::a_refused_dry_run_evicts_nobody_and_another_victim_is_found` |
//! | balanced allocation, least allocated, spreading, affinity | tables in `plugins/tests`, `tests/oracle` |
//!
//! Groups are not there yet.

mod queue;

use super::choosy::{Choosy, Mind, minded};
use super::harness::{Harness, check};
use super::probe::{Probe, Script, node_events, profile};
use crate::framework::{Code, Status};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

fn no(reason: &str) -> Status {
    Status::unschedulable(reason)
}

/// What the condition says after an attempt, without what preemption adds.
fn said(h: &mut Harness) -> String {
    let effects = h.run();
    effects[1].split(" preemption: ").next().unwrap_or_default().to_owned()
}

#[test]
fn a_plugin_that_skips_is_not_asked_about_nodes() {
    let plugin = Choosy::new("A", Mind { skip: true, ..Mind::default() });
    plugin.tell(|m| m.verdicts = vec![("n1", no("never said"))]);
    let mut h = Harness::with(minded(&[&plugin]));
    h.node(node("n1"));
    h.pod(pod("a"));
    check(h.run_binds(), "bind default/a -> n1");
    assert!(!plugin.calls().contains(&"filter".to_owned()));
}

#[test]
fn an_unschedulable_pre_filter_lets_the_others_run() {
    let table = [
        (no("not now"), true, "Unschedulable: 0/1 nodes are available: not now."),
        (Status::unresolvable("never"), false, "Unschedulable: 0/1 nodes are available: never."),
        (Status::error("broken"), false, "SchedulerError: running PreFilter plugin \"A\": broken"),
        // Upstream has no such answer here and takes it for an error.
        (
            Status::new(Code::Pending, "soon"),
            false,
            "SchedulerError: running PreFilter plugin \"A\": soon",
        ),
    ];
    for (status, runs_on, says) in table {
        let first = Choosy::new("A", Mind { reject: Some(status), ..Mind::default() });
        let second = Choosy::new("B", Mind::default());
        let mut h = Harness::with(minded(&[&first, &second]));
        h.node(node("n1"));
        h.pod(pod("a"));
        assert_eq!(said(&mut h), format!("status default/a false {says}"));
        assert_eq!(second.calls().contains(&"prefilter".to_owned()), runs_on, "{says}");
    }
}

#[test]
fn nodes_that_pre_filter_leaves_out_say_so() {
    let narrow = Choosy::new("A", Mind { nodes: Some(&["n1", "gone"]), ..Mind::default() });
    narrow.tell(|m| m.events = node_events());
    let mut h = Harness::with(minded(&[&narrow]));
    h.node(node("n1"));
    h.node(node("n2").cpu("64"));
    h.pod(pod("a").req(&[("cpu", "9")]));
    let says =
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [A].";
    assert_eq!(said(&mut h), format!("status default/a false Unschedulable: {says}"));
    // Who narrowed is among those that rejected it: its hint is asked.
    h.node(node("n3"));
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn plugins_that_contradict_each_other_are_named_and_all_heard() {
    let a =
        Choosy::new("A", Mind { nodes: Some(&["n1"]), events: node_events(), ..Mind::default() });
    let b = Choosy::new("B", Mind { nodes: Some(&["n2"]), ..Mind::default() });
    let mut h = Harness::with(minded(&[&b, &a]));
    h.node(node("n1"));
    h.pod(pod("a"));
    let says = "node(s) didn't satisfy plugin(s) [A B] simultaneously";
    let says = format!("0/1 nodes are available: {says}.");
    assert_eq!(said(&mut h), format!("status default/a false Unschedulable: {says}"));
    h.node(node("n2"));
    assert_eq!(h.queue_of("a"), "backoff");
}

#[test]
fn an_error_on_one_node_ends_the_attempt() {
    let plugin = Choosy::new("A", Mind { events: node_events(), ..Mind::default() });
    plugin.tell(|m| m.verdicts = vec![("n2", Status::error("broken"))]);
    let mut h = Harness::with(minded(&[&plugin]));
    h.node(node("n1"));
    h.node(node("n2"));
    h.pod(pod("a"));
    check(
        h.run(),
        "Warning default/a FailedScheduling: running \"A\" filter plugin: broken
         status default/a false SchedulerError: running \"A\" filter plugin: broken",
    );
    // No plugin rejected it: no event helps, and it is not popped early.
    h.node(node("n3"));
    assert_eq!(h.queue_of("a"), "backoff");
    check(h.run(), "");
}

#[test]
fn the_first_plugin_that_rejects_a_node_is_the_only_one_counted() {
    let a = Choosy::new("A", Mind { verdicts: vec![("n1", no("first"))], ..Mind::default() });
    let b = Choosy::new("B", Mind { verdicts: vec![("n1", no("second"))], ..Mind::default() });
    b.tell(|m| m.events = node_events());
    let mut h = Harness::with(minded(&[&a, &b]));
    h.node(node("n1"));
    h.pod(pod("a"));
    let says = "0/1 nodes are available: 1 first.";
    assert_eq!(said(&mut h), format!("status default/a false Unschedulable: {says}"));
    h.node(node("n2"));
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn one_feasible_node_is_not_scored() {
    let plugin = Choosy::new("A", Mind { score: Some(Status::error("broken")), ..Mind::default() });
    let mut h = Harness::with(minded(&[&plugin]));
    h.node(node("n1"));
    h.node(node("n2").unschedulable());
    h.pod(pod("a"));
    check(h.run(), "bind default/a -> n1");
    h.node(node("n2"));
    h.pod(pod("b"));
    assert_eq!(
        h.run()[1],
        "status default/b false SchedulerError: running PreScore plugin \"A\": broken"
    );
}

#[test]
fn events_are_kept_until_permit_is_over() {
    let wait = Script { wait: Some(60), park: Some("work"), ..Script::default() };
    let probe = Probe::new("Probe", wait);
    let mut h = Harness::with(profile(&[&probe]));
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    assert_eq!((h.queue_of("a"), h.core.queue.tracked()), ("permit", (1, 1)));
    h.permit("a", "Probe", Ok(()));
    assert_eq!((h.queue_of("a"), h.core.queue.tracked()), ("prebind", (1, 0)));
}

#[test]
fn a_rejection_at_permit_ends_the_waits_before_it() {
    let one = Probe::new("One", Script { wait: Some(60), ..Script::default() });
    let two = Probe::new("Two", Script { permit: Some(no("no")), ..Script::default() });
    let two = two.log_to(&one);
    let three = Probe::new("Three", Script::default()).log_to(&one);
    let mut h = Harness::with(profile(&[&one, &two, &three]));
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    let permits: Vec<String> =
        one.calls().into_iter().filter(|c| c.starts_with("permit")).collect();
    assert_eq!(permits, ["permit One", "permit Two"]);
    assert_eq!((h.queue_of("a"), h.cache()), ("unschedulable", vec!["n1: ".to_owned()]));
    assert_eq!(h.core.timers.len(), 0);
}

#[test]
fn a_reservation_never_expires() {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a"));
    h.run();
    h.answer("a", Ok(()));
    h.sleep(24 * 3600);
    assert_eq!(h.cache(), ["n1: default/a"]);
}
