//! Members and nodes that are lost, members that fail, gangs that do not start.

use super::super::*;
use super::{Gang, at};

#[test]
fn a_lost_node_is_named_until_the_gang_is_whole_again() {
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started")
        .step(
            10,
            "a running n1, b running x2",
            "Degraded/NodeLost 1/2 +Degraded | node x2 is not ready: lost b",
        )
        // The taint manager deletes the pod; nobody there confirms it.
        .step(
            20,
            "a running n1, b ~running x2",
            "Degraded/NodeLost 1/2 +Degraded | node x2 is not ready: lost b",
        )
        .step(
            30,
            "a running n1, b ~running x2, c pending",
            "Degraded/NodeLost 1/2 +Degraded | node x2 is not ready: lost b",
        );
    assert_eq!(
        gang.condition(condition::SCHEDULED),
        "False HalfBound | 1 of 2 members are bound",
        "the replacement waits"
    );
    gang.says(reason::UNSCHEDULABLE, "0/1 nodes are available").step(
        40,
        "a running n1, c pending",
        "Degraded/NodeLost 1/2 +Degraded | node x2 is not ready: lost b",
    );
    assert_eq!(
        gang.condition(condition::SCHEDULED),
        "False Unschedulable | 0/1 nodes are available"
    );
    gang.says("", "").step(
        50,
        "a running n1, c starting n3",
        "Scheduled/Starting 1/2 +Scheduled | 1 of 2 members run",
    );
    assert_eq!(gang.status.scheduled_time, Some(at(50)), "bound anew");
    gang.step(60, "a running n1, c running n3", "Running/Running 2/2 +Scheduled+Started");
    assert_eq!(gang.since(condition::DEGRADED), 50);
}

#[test]
fn who_is_stuck_on_a_lost_node_is_missed_until_it_is_replaced() {
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started")
        .step(
            10,
            "a running n1, b ~running x2, c pending",
            "Degraded/NodeLost 1/2 +Degraded | node x2 is not ready: lost b",
        )
        .step(
            20,
            "a running n1, b ~running x2, c starting n3",
            "Scheduled/Starting 1/2 +Scheduled | 1 of 2 members run",
        )
        .step(
            30,
            "a running n1, b ~running x2, c running n3",
            "Running/Running 2/2 +Scheduled+Started",
        );
}

#[test]
fn a_gang_above_its_minimum_runs_on_and_says_what_it_lost() {
    let mut gang = Gang::of(1);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/1 +Scheduled+Started")
        .step(
            1,
            "a running n1, b running gone2",
            "Running/NodeLost 1/1 +Scheduled+Started+Degraded | node gone2 is gone: lost b",
        )
        .step(2, "a running n1", "Running/Running 1/1 +Scheduled+Started");
}

#[test]
fn a_node_that_comes_back_brings_its_members() {
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started")
        .step(
            1,
            "a running x1, b running x2",
            "Degraded/NodeLost 0/2 +Degraded | node x1 is not ready: lost a; node x2 is not ready: lost b",
        )
        .step(2, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started");
}

#[test]
fn failed_members_are_named_with_what_they_failed_by() {
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b starting n2", "Scheduled/Starting 1/2 +Scheduled | 1 of 2 members run")
        .step(
            1,
            "a running n1, b refused n2",
            "Degraded/MembersLost 1/2 +Degraded | 1 of 2 members are left; \
             member b on node n2 failed: UnexpectedAdmissionError: no GPU left",
        )
        .step(
            2,
            "a failed n1, b refused n2",
            "Failed/Failed 0/2 +Finished | 0 of 2 members have succeeded; member a on node n1 failed: \
             OOMKilled: exit code 137; member b on node n2 failed: UnexpectedAdmissionError: no GPU left",
        )
        // Its controller makes new ones: it begins anew, failed pods or not.
        .step(3, "a failed n1, b refused n2, c pending, d pending", "Scheduling/Scheduling 0/2 +")
        .step(4, "c running n1, d succeeded n2", "Running/Running 2/2 +Scheduled+Started");
}

#[test]
fn the_end_waits_for_who_could_still_fail_but_not_for_who_is_stuck() {
    let mut gang = Gang::of(2);
    gang.step(
        0,
        "a running n1, b running n2, c running n3",
        "Running/Running 3/2 +Scheduled+Started",
    )
    .step(
        1,
        "a succeeded n1, b succeeded n2, c running n3",
        "Running/Running 3/2 +Scheduled+Started",
    )
    .step(
        2,
        "a succeeded n1, b succeeded n2, c ~running n3",
        "Succeeded/Succeeded 2/2 +Scheduled+Started+Finished",
    );
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started").step(
        1,
        "a failed n1, b ~running n2",
        "Pending/GangIncomplete 0/2 + | 0 of 2 members exist",
    );
}

#[test]
fn a_gang_that_does_not_start_names_the_member_and_what_keeps_it() {
    let mut gang = Gang::of(3);
    gang.spec.start_timeout_seconds = Some(60);
    let begun = "a running n1, b pulling n2, c starting n3";
    gang.step(
        0,
        "a starting n1, b starting n2, c starting n3",
        "Scheduled/Starting 0/3 +Scheduled | 0 of 3 members run",
    );
    assert_eq!(gang.due, Some(at(60)));
    gang.step(59, begun, "Scheduled/Starting 1/3 +Scheduled | 1 of 3 members run");
    gang.step(
        60,
        begun,
        "Scheduled/StartTimeout 1/3 +Scheduled | 1 of 3 members run after 60 s: \
         member b on node n2 does not run: ImagePullBackOff: Back-off pulling image \"x\"; \
         member c on node n3 does not run",
    );
    assert_eq!(gang.due, None);
    gang.step(
        61,
        "a running n1, b running n2, c running n3",
        "Running/Running 3/3 +Scheduled+Started",
    );
    // A member that crashes later has its time anew.
    gang.step(1_000, begun, "Scheduled/Starting 1/3 +Scheduled | 1 of 3 members run");
    assert_eq!(gang.due, Some(at(1_060)));
    // A member that was refused is named too.
    gang.step(
        1_060,
        "a running n1, b refused n2, c starting n3",
        "Degraded/MembersLost 1/3 +Degraded | 2 of 3 members are left; member b on node n2 failed: \
         UnexpectedAdmissionError: no GPU left",
    );
    assert_eq!(
        gang.condition(condition::STARTED),
        "False StartTimeout | 1 of 3 members run after 60 s: member c on node n3 does not run; \
         member b on node n2 failed: UnexpectedAdmissionError: no GPU left"
    );
}
