//! Every state of a gang, and the ways between them.

mod losses;
mod properties;

use muster_api::k8s::LabelSelector;
use muster_api::muster::{MemberCounts, Role};

use super::*;
use crate::model::LabelSet;

/// One member per word group: `name state node`, groups separated by commas. States:
/// `pending`, `starting`, `pulling` (ImagePullBackOff), `running`, `succeeded`,
/// `failed`, `refused`; `~` before a state: being deleted. The role is the name's
/// letter.
fn members(text: &str) -> Vec<Member> {
    let groups = text.split(',').map(str::trim).filter(|g| !g.is_empty());
    groups.map(member).collect()
}

fn member(text: &str) -> Member {
    let mut words = text.split_whitespace();
    let (name, state) = (words.next().unwrap(), words.next().unwrap());
    let terminating = state.starts_with('~');
    let (state, trouble) = match state.trim_start_matches('~') {
        "pending" | "starting" => (State::Pending, None),
        "pulling" => (State::Pending, Some(("ImagePullBackOff", "Back-off pulling image \"x\""))),
        "running" => (State::Running, None),
        "succeeded" => (State::Succeeded, None),
        "failed" => (State::Failed, Some(("OOMKilled", "exit code 137"))),
        "refused" => (State::Failed, Some(("UnexpectedAdmissionError", "no GPU left"))),
        other => panic!("unknown state {other}"),
    };
    let labels = [("kind".to_owned(), name[..1].to_owned())].into();
    Member {
        name: name.into(),
        labels: LabelSet::of(&labels),
        node: words.next().unwrap_or_default().into(),
        state,
        terminating,
        trouble: trouble
            .map(|(reason, message)| Trouble { reason: reason.into(), message: message.into() })
            .map(Box::new),
    }
}

/// Nodes whose name begins with `x` are not ready, with `gone` are gone.
fn lost(node: &str) -> Option<Lost> {
    match node {
        n if n.starts_with('x') => Some(Lost::NotReady),
        n if n.starts_with("gone") => Some(Lost::Gone),
        _ => None,
    }
}

fn at(seconds: i64) -> Time {
    Time(1_800_000_000_000_000 + seconds * 1_000_000)
}

/// A gang, followed through time.
struct Gang {
    spec: PodGroupSpec,
    status: PodGroupStatus,
    says: Says,
    due: Option<Time>,
}

impl Gang {
    fn of(min: i32) -> Self {
        let spec = PodGroupSpec { min_member: Some(min), ..PodGroupSpec::default() };
        Self { spec, status: PodGroupStatus::default(), says: Says::default(), due: None }
    }

    fn says(&mut self, reason: &str, message: &str) -> &mut Self {
        self.says = Says { reason: reason.into(), message: message.into(), ..Says::default() };
        self
    }

    /// Lets time pass with these members, and compares the status in one line:
    /// `Phase/Reason ready/min +conditions that are true | message`.
    #[track_caller]
    fn step(&mut self, seconds: i64, members_text: &str, expected: &str) -> &mut Self {
        let members = members(members_text);
        let facts = Facts {
            spec: &self.spec,
            generation: Some(7),
            says: &self.says,
            previous: &self.status,
            now: at(seconds),
        };
        let made = status(&facts, members.iter(), lost);
        // Nothing happens: nothing changes.
        let again = Facts { previous: &made.status, now: Time(at(seconds).0 + 400_000), ..facts };
        assert_eq!(status(&again, members.iter(), lost), made, "not settled: {members_text}");
        self.status = made.status;
        self.due = made.due;
        assert_eq!(self.line(), expected, "at {seconds} s: {members_text}");
        self
    }

    fn line(&self) -> String {
        let s = &self.status;
        let held: Vec<&str> =
            s.conditions.iter().filter(|c| c.is_true()).map(|c| c.kind.as_str()).collect();
        let message = s.message.as_deref().map(|m| format!(" | {m}")).unwrap_or_default();
        format!(
            "{}/{} {}/{} +{}{message}",
            s.phase.unwrap(),
            s.reason.as_deref().unwrap(),
            s.members.unwrap().ready,
            s.min_member.unwrap(),
            held.join("+"),
        )
    }

    fn condition(&self, kind: &str) -> String {
        let c = self.status.condition(kind).unwrap();
        format!("{} {} | {}", c.status, c.reason, c.message)
    }

    fn since(&self, kind: &str) -> i64 {
        (self.status.condition(kind).unwrap().last_transition_time.0 - at(0).0) / 1_000_000
    }
}

#[test]
fn a_gang_goes_from_nothing_to_its_end() {
    let mut gang = Gang::of(2);
    gang.step(0, "", "Pending/GangIncomplete 0/2 + | 0 of 2 members exist")
        .step(1, "a pending", "Pending/GangIncomplete 0/2 + | 1 of 2 members exist")
        .step(2, "a pending, b pending", "Scheduling/Scheduling 0/2 +")
        .says(reason::UNSCHEDULABLE, "0/3 nodes are available: 3 Insufficient cpu.")
        .step(
            3,
            "a pending, b pending",
            "Scheduling/Unschedulable 0/2 + | 0/3 nodes are available: 3 Insufficient cpu.",
        )
        .says(reason::WAITING_FOR_PERMIT, "2 members wait for ExternalApproval")
        .step(
            4,
            "a pending, b pending",
            "Waiting/WaitingForPermit 0/2 + | 2 members wait for ExternalApproval",
        )
        .says("", "")
        .step(5, "a pending n1, b pending", "Scheduling/HalfBound 0/2 + | 1 of 2 members are bound")
        .step(
            6,
            "a pending n1, b pending n2",
            "Scheduled/Starting 0/2 +Scheduled | 0 of 2 members run",
        )
        .step(
            7,
            "a running n1, b starting n2",
            "Scheduled/Starting 1/2 +Scheduled | 1 of 2 members run",
        )
        .step(8, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started")
        .step(9, "a succeeded n1, b running n2", "Running/Running 2/2 +Scheduled+Started")
        .step(
            10,
            "a succeeded n1, b succeeded n2",
            "Succeeded/Succeeded 2/2 +Scheduled+Started+Finished",
        );
    let s = &gang.status;
    let times = [s.schedule_start_time, s.scheduled_time, s.start_time, s.completion_time];
    assert_eq!(times, [2, 6, 8, 10].map(|t| Some(at(t))));
    assert_eq!([condition::SCHEDULED, condition::STARTED].map(|c| gang.since(c)), [6, 8]);
    assert_eq!(s.observed_generation, Some(7));
    // Its pods are tidied away: it has succeeded all the same.
    gang.step(11, "a succeeded n1", "Succeeded/Succeeded 2/2 +Scheduled+Started+Finished")
        .step(12, "", "Succeeded/Succeeded 2/2 +Scheduled+Started+Finished")
        .step(13, "c pending", "Pending/GangIncomplete 0/2 + | 1 of 2 members exist");
    let s = &gang.status;
    assert_eq!([s.scheduled_time, s.start_time, s.completion_time], [None; 3]);
}

#[test]
fn a_verdict_outlives_the_scheduler_and_a_wait_does_not() {
    for (said, expected) in [
        (reason::UNSCHEDULABLE, "Scheduling/Unschedulable 0/1 + | why"),
        (reason::SCHEDULE_TIMEOUT, "Scheduling/ScheduleTimeout 0/1 + | why"),
        (reason::REJECTED, "Scheduling/Rejected 0/1 + | why"),
        (reason::WAITING_FOR_PERMIT, "Scheduling/Scheduling 0/1 +"),
        (reason::ACCUMULATING, "Scheduling/Scheduling 0/1 +"),
    ] {
        let mut gang = Gang::of(1);
        let phase = if waits(said) { "Waiting" } else { "Scheduling" };
        gang.says(said, "why").step(0, "a pending", &format!("{phase}/{said} 0/1 + | why"));
        gang.says("", "").step(1, "a pending", expected);
    }
}

#[test]
fn members_count_once_and_only_while_they_are_there() {
    let counts = |text: &str| {
        let mut gang = Gang::of(9);
        let members = members(text);
        let facts = Facts {
            spec: &gang.spec,
            generation: None,
            says: &Says::default(),
            previous: &gang.status,
            now: at(0),
        };
        gang.status = status(&facts, members.iter(), lost).status;
        let c: MemberCounts = gang.status.members.unwrap();
        [c.existing, c.scheduled, c.running, c.ready, c.succeeded, c.failed, c.lost, c.terminating]
    };
    for (text, expected) in [
        ("", [0, 0, 0, 0, 0, 0, 0, 0]),
        ("a pending", [1, 0, 0, 0, 0, 0, 0, 0]),
        ("a pending n", [1, 1, 0, 0, 0, 0, 0, 0]),
        ("a running n", [1, 1, 1, 1, 0, 0, 0, 0]),
        ("a succeeded n", [1, 0, 0, 1, 1, 0, 0, 0]),
        ("a failed n", [0, 0, 0, 0, 0, 1, 0, 0]),
        // On a lost node: lost, unless it has ended there.
        ("a running x1", [0, 0, 0, 0, 0, 0, 1, 0]),
        ("a pending gone1", [0, 0, 0, 0, 0, 0, 1, 0]),
        ("a succeeded x1", [1, 0, 0, 1, 1, 0, 0, 0]),
        // Being deleted: nothing but that, unless it has ended.
        ("a ~running n", [0, 0, 0, 0, 0, 0, 0, 1]),
        ("a ~running x1", [0, 0, 0, 0, 0, 0, 0, 1]),
        ("a ~pending", [0, 0, 0, 0, 0, 0, 0, 1]),
        ("a ~succeeded n", [1, 0, 0, 1, 1, 0, 0, 0]),
        ("a ~failed n", [0, 0, 0, 0, 0, 1, 0, 0]),
        // The replacement of one that is stuck counts, the stuck one does not.
        ("a ~running x1, b running n", [1, 1, 1, 1, 0, 0, 0, 1]),
    ] {
        assert_eq!(counts(text), expected, "{text}");
    }
}

#[test]
fn every_role_has_its_own_minimum() {
    let mut gang = Gang::of(3);
    let role = |name: &str, kind: &str, min_member| Role {
        name: name.to_owned(),
        min_member,
        selector: LabelSelector {
            match_labels: [("kind".to_owned(), kind.to_owned())].into(),
            ..LabelSelector::default()
        },
        topology: None,
    };
    gang.spec.roles = vec![role("launcher", "l", 1), role("worker", "w", 2)];
    gang.step(
        0,
        "w1 pending, w2 pending, w3 pending",
        "Pending/GangIncomplete 0/3 + | 3 of 3 members exist (role launcher: 0 of 1)",
    )
    .step(
        1,
        "l1 pending, l2 pending, o1 pending, w1 pending",
        "Pending/GangIncomplete 0/3 + | 4 of 3 members exist (role worker: 1 of 2)",
    )
    .step(2, "l1 pending, w1 pending, w2 pending", "Scheduling/Scheduling 0/3 +")
    .step(
        3,
        "l1 running n, w1 running n, w2 pending, w3 pending",
        "Scheduling/HalfBound 2/3 + | 2 of 3 members are bound (role worker: 1 of 2)",
    )
    .step(
        4,
        "l1 running n, w1 running n, w2 running n",
        "Running/Running 3/3 +Scheduled+Started",
    );
    let counts: Vec<_> = gang.status.roles.iter().map(|r| (&*r.name, r.members.ready)).collect();
    assert_eq!(counts, [("launcher", 1), ("worker", 2)]);
    // Without a minimum of its own the group has the sum of its roles'.
    gang.spec.min_member = None;
    gang.spec.roles[1].min_member = 4;
    gang.step(
        5,
        "l1 running n, w1 running n, w2 running n",
        "Degraded/MembersLost 3/5 +Degraded | 3 of 5 members are left (role worker: 2 of 4)",
    );
}

#[test]
fn a_changed_minimum_acts_at_once() {
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started");
    gang.spec.min_member = Some(3);
    gang.step(
        1,
        "a running n1, b running n2",
        "Degraded/MembersLost 2/3 +Degraded | 2 of 3 members are left",
    );
    gang.spec.min_member = Some(1);
    gang.step(2, "a running n1, b running n2", "Running/Running 2/1 +Scheduled+Started");
    gang.spec.min_member = Some(4);
    gang.step(3, "a pending, b pending", "Pending/GangIncomplete 0/4 + | 2 of 4 members exist");
}

#[test]
fn a_gang_that_was_released_begins_anew() {
    let mut gang = Gang::of(2);
    gang.step(0, "a running n1, b running n2", "Running/Running 2/2 +Scheduled+Started")
        .step(
            1,
            "a ~running n1, b ~running n2",
            "Pending/GangIncomplete 0/2 + | 0 of 2 members exist",
        )
        .step(2, "a ~running n1, c pending, d pending", "Scheduling/Scheduling 0/2 +");
    assert_eq!(gang.status.scheduled_time, None);
    assert_eq!(gang.status.schedule_start_time, Some(at(2)));
}

#[test]
fn a_domain_is_kept_while_a_member_is_there() {
    let domain = |value: &str| Domain {
        level: "rack".to_owned(),
        key: "example.com/rack".to_owned(),
        value: value.to_owned(),
    };
    let mut gang = Gang::of(1);
    gang.says.domain = Some(domain("r1"));
    gang.step(0, "a running n1", "Running/Running 1/1 +Scheduled+Started");
    gang.says.domain = None; // the scheduler was started anew
    gang.step(1, "a running n1", "Running/Running 1/1 +Scheduled+Started");
    assert_eq!(gang.status.domain, Some(domain("r1")));
    gang.step(2, "b pending", "Scheduling/Scheduling 0/1 +");
    assert_eq!(gang.status.domain, None);
}

#[test]
fn conditions_of_others_stay() {
    let mut gang = Gang::of(1);
    let foreign = Condition {
        kind: "example.com/Audited".to_owned(),
        status: "True".to_owned(),
        reason: "Seen".to_owned(),
        last_transition_time: at(-5),
        ..Condition::default()
    };
    gang.status.conditions.push(foreign.clone());
    gang.step(0, "a pending", "Scheduling/Scheduling 0/1 +example.com/Audited");
    assert_eq!(gang.status.conditions.last(), Some(&foreign));
}

#[test]
fn messages_are_bounded() {
    let many: Vec<String> =
        (0..400).map(|i| format!("m{i:03} running x{:0>200}", i % 50)).collect();
    let mut gang = Gang::of(400);
    let whole = many.join(",").replace(" x", " n");
    gang.step(0, &whole, "Running/Running 400/400 +Scheduled+Started");
    let members = members(&many.join(","));
    let facts = Facts {
        spec: &gang.spec,
        generation: None,
        says: &gang.says,
        previous: &gang.status,
        now: at(1),
    };
    let made = status(&facts, members.iter(), lost).status;
    for c in &made.conditions {
        assert!(c.message.len() <= 1024, "{}: {}", c.kind, c.message.len());
    }
    let message = made.message.unwrap();
    assert!(message.ends_with("and 47 more nodes"), "{message}");
}
