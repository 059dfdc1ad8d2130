//! The board in virtual time: what is written, when, and what is forgotten.

mod foreign;
mod topologies;

use std::time::Duration;

use muster_api::k8s::{Node, Pod};
use muster_api::muster::{PodGroup, PodGroupStatus};
use muster_core::gang::GangKey;
use muster_core::io::GroupSays;
use serde_json::json;

use super::board::Due;
use super::roll::Side;
use super::state::State;
use super::*;

const EPOCH: i64 = 1_800_000_000_000_000;

/// A controller without a cluster.
struct Fixture {
    state: State,
    begin: Instant,
    now: Instant,
    version: u64,
    /// What each write said: `seconds group Phase/Reason existing/scheduled/ready`.
    written: Vec<String>,
}

impl Fixture {
    /// With nodes `n0` to `n3`, and lists that are complete.
    fn new() -> Self {
        let begin = Instant::now();
        let mut new =
            Self { state: State::default(), begin, now: begin, version: 0, written: Vec::new() };
        for note in [Note::Listing, Note::Listed] {
            new.state.note_pod(note, Side::Live, begin);
            new.state.note_pod(note, Side::Ended, begin);
        }
        new.state.note_group(Note::Listing, begin);
        new.state.note_group(Note::Listed, begin);
        new.state.note_node(Note::Listing, begin);
        for i in 0..4 {
            new.state.note_node(Note::Changed(&node(&format!("n{i}"), false)), begin);
        }
        new.state.note_node(Note::Listed, begin);
        new
    }

    fn group(&mut self, name: &str, uid: &str, min: i32) {
        self.version += 1;
        let group = group(name, uid, min, self.version);
        self.state.note_group(Note::Changed(&group), self.now);
    }

    fn pod(&mut self, pod: &Pod) {
        self.state.note_pod(Note::Changed(pod), Side::Live, self.now);
    }

    fn ended(&mut self, pod: &Pod) {
        self.state.note_pod(Note::Changed(pod), Side::Ended, self.now);
    }

    fn pod_gone(&mut self, pod: &Pod) {
        self.state.note_pod(Note::Gone(pod), Side::Live, self.now);
    }

    fn due(&mut self) -> Due {
        let micros = i64::try_from((self.now - self.begin).as_micros()).unwrap();
        self.state.due(self.now, Time(EPOCH + micros), LANES)
    }

    /// Lets time pass; every write succeeds at once.
    fn pass(&mut self, millis: u64) -> &mut Self {
        let end = self.now + Duration::from_millis(millis);
        loop {
            let due = self.due();
            for write in due.writes {
                self.note_down(&write);
                self.version += 1;
                let outcome = Outcome::Written(self.version.to_string().into());
                self.state.settled(write, outcome, self.now);
            }
            match self.due_at() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = end;
        self
    }

    fn due_at(&self) -> Option<Instant> {
        self.state.first()
    }

    fn note_down(&mut self, write: &Write) {
        let status = &write.status;
        let c = status.members.unwrap();
        self.written.push(format!(
            "{} {}/{} {}/{}/{}",
            write.key.name,
            status.phase.unwrap(),
            status.reason.as_deref().unwrap(),
            c.existing,
            c.scheduled,
            c.ready
        ));
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.written)
    }
}

fn group(name: &str, uid: &str, min: i32, version: u64) -> PodGroup {
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": name, "uid": uid, "generation": 1,
            "resourceVersion": version.to_string()},
        "spec": {"minMember": min},
    }))
    .unwrap()
}

/// A member: `state` is `pending`, `bound`, `running`, `succeeded` or `failed`.
fn pod(name: &str, group: &str, state: &str) -> Pod {
    let phase = match state {
        "running" => "Running",
        "succeeded" => "Succeeded",
        "failed" => "Failed",
        _ => "Pending",
    };
    let node = if state == "pending" { "" } else { "n1" };
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": name, "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-16T10:00:00Z",
            "labels": {"muster.dev/pod-group": group}},
        "spec": {"nodeName": node}, "status": {"phase": phase},
    }))
    .unwrap()
}

fn node(name: &str, lost: bool) -> Node {
    let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"});
    let taints = if lost { vec![taint] } else { vec![] };
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"taints": taints}})).unwrap()
}

#[test]
fn nothing_is_said_before_everything_was_listed() {
    let now = Instant::now();
    let later = now + Duration::from_secs(9);
    let mut state = State::default();
    state.note_group(Note::Listing, now);
    state.note_group(Note::Changed(&group("g", "u", 1, 1)), now);
    state.note_group(Note::Listed, now);
    assert!(state.due(later, Time(EPOCH), LANES).writes.is_empty());
    state.note_pod(Note::Listed, Side::Live, now);
    state.note_pod(Note::Listed, Side::Ended, now);
    assert!(state.due(later, Time(EPOCH), LANES).writes.is_empty());
    state.note_node(Note::Listed, now);
    assert_eq!(state.due(later, Time(EPOCH), LANES).writes.len(), 1);
}

#[test]
fn a_gang_of_a_thousand_costs_tens_of_writes() {
    let mut f = Fixture::new();
    f.group("g", "u", 1000);
    // Created in 10 s, bound in 3 s, started within a minute, ended within ten.
    for (state, pause) in [("pending", 10), ("bound", 3), ("running", 60), ("succeeded", 600)] {
        for i in 0..1000 {
            let pod = pod(&format!("m{i:04}"), "g", state);
            if state == "succeeded" {
                f.pod_gone(&pod);
                f.ended(&pod);
            } else {
                f.pod(&pod);
            }
            f.pass(pause);
        }
    }
    f.pass(60_000);
    let written = f.take();
    assert_eq!(written.last().unwrap(), "g Succeeded/Succeeded 1000/0/1000");
    assert!(written.len() < 60, "{} writes:\n{}", written.len(), written.join("\n"));
}

#[test]
fn a_change_of_substance_is_told_at_once() {
    let mut f = Fixture::new();
    f.group("g", "u", 2);
    f.pass(150);
    f.pod(&pod("a", "g", "pending"));
    f.pass(2_000);
    assert_eq!(f.take(), ["g Pending/GangIncomplete 0/0/0"], "a count can wait");
    f.pod(&pod("b", "g", "pending"));
    f.pass(150);
    assert_eq!(f.take(), ["g Scheduling/Scheduling 2/0/0"]);
    f.pod(&pod("a", "g", "running"));
    f.pod(&pod("b", "g", "running"));
    f.pass(1_000);
    assert_eq!(f.take(), ["g Running/Running 2/2/2"]);
    // Nothing happens: nothing is written, whoever repeats it.
    f.pod(&pod("a", "g", "running"));
    f.pass(600_000);
    assert!(f.take().is_empty());
}

#[test]
fn a_success_that_a_waiting_member_needs_is_told_at_once() {
    let mut f = Fixture::new();
    f.group("g", "u", 3);
    for name in ["a", "b", "c"] {
        f.pod(&pod(name, "g", "running"));
    }
    f.pass(2_000);
    f.take();
    f.pod_gone(&pod("a", "g", "running"));
    f.ended(&pod("a", "g", "succeeded"));
    f.pass(2_000);
    assert!(f.take().is_empty(), "a count can wait");
    f.pod(&pod("d", "g", "pending"));
    f.pass(150);
    assert_eq!(f.take(), ["g Running/Running 4/2/3"]);
}

#[test]
fn a_member_that_ends_is_never_missing() {
    for first in ["gone", "ended"] {
        let mut f = Fixture::new();
        f.group("g", "u", 2);
        f.pod(&pod("a", "g", "running"));
        f.pod(&pod("b", "g", "running"));
        f.pass(2_000);
        assert_eq!(f.take(), ["g Running/Running 2/2/2"]);
        // The two watches are not in step.
        if first == "gone" {
            f.pod_gone(&pod("b", "g", "running"));
            f.pass(1_500);
            f.ended(&pod("b", "g", "succeeded"));
        } else {
            f.ended(&pod("b", "g", "succeeded"));
            f.pod(&pod("b", "g", "running"));
            f.pass(1_500);
            f.pod_gone(&pod("b", "g", "running"));
        }
        f.pass(60_000);
        assert_eq!(f.take(), ["g Running/Running 2/1/2"], "{first} first");
    }
    // One that is deleted is missing after a moment.
    let mut f = Fixture::new();
    f.group("g", "u", 2);
    f.pod(&pod("a", "g", "running"));
    f.pod(&pod("b", "g", "running"));
    f.pass(2_000);
    f.pod_gone(&pod("b", "g", "running"));
    f.pass(3_000);
    assert_eq!(f.take(), ["g Running/Running 2/2/2", "g Degraded/MembersLost 1/1/1"]);
}

#[test]
fn late_words_on_a_pod_of_the_same_name_are_not_heard() {
    let mut f = Fixture::new();
    f.group("g", "u", 1);
    let old = pod("a", "g", "failed");
    let mut new = pod("a", "g", "running");
    new.metadata.uid = "another".to_owned();
    f.pod(&new);
    f.ended(&old);
    f.state.note_pod(Note::Gone(&old), Side::Ended, f.now);
    f.pod_gone(&pod("a", "g", "running"));
    f.pass(10_000);
    assert_eq!(f.take(), ["g Running/Running 1/1/1"]);
}

#[test]
fn groups_that_are_missing_deleted_or_made_anew() {
    let mut f = Fixture::new();
    f.pod(&pod("a", "g", "running"));
    f.pass(10_000);
    assert!(f.take().is_empty(), "there is no group to write to");
    f.group("g", "first", 1);
    f.pass(200);
    assert_eq!(f.take(), ["g Running/Running 1/1/1"]);
    f.state.note_group(Note::Gone(&group("g", "first", 1, 9)), f.now);
    f.pod(&pod("b", "g", "running"));
    f.pass(100_000);
    assert!(f.take().is_empty());
    f.group("g", "second", 1);
    let due = f.pass(90).due();
    assert!(due.writes.is_empty());
    f.now += Duration::from_millis(20);
    let due = f.due();
    assert_eq!(&*due.writes[0].uid, "second", "at once: it has a pace of its own");
}

#[test]
fn members_follow_their_label() {
    let mut f = Fixture::new();
    f.group("g", "u1", 1);
    f.group("h", "u2", 1);
    f.pod(&pod("a", "g", "running"));
    f.pass(2_000);
    f.take();
    f.pod(&pod("a", "h", "running"));
    f.pass(2_000);
    let mut written = f.take();
    written.sort();
    assert_eq!(written, ["g Pending/GangIncomplete 0/0/0", "h Running/Running 1/1/1"]);
    let mut free = pod("a", "h", "running");
    free.metadata.labels.clear();
    f.pod(&free);
    f.pass(2_000);
    assert_eq!(f.take(), ["h Pending/GangIncomplete 0/0/0"]);
}

#[test]
fn what_a_new_list_does_not_name_is_gone() {
    let mut f = Fixture::new();
    f.group("g", "u1", 2);
    f.group("h", "u2", 1);
    for name in ["a", "b"] {
        f.pod(&pod(name, "g", "running"));
    }
    f.ended(&pod("c", "h", "succeeded"));
    f.pass(2_000);
    f.take();
    f.state.note_pod(Note::Listing, Side::Live, f.now);
    f.pod(&pod("a", "g", "running"));
    f.state.note_pod(Note::Listed, Side::Live, f.now);
    f.state.note_group(Note::Listing, f.now);
    f.group("g", "u1", 2);
    f.state.note_group(Note::Listed, f.now);
    f.pass(10_000);
    assert_eq!(f.take().last().unwrap(), "g Degraded/MembersLost 1/1/1", "b and h are gone");
    f.state.note_node(Note::Listing, f.now);
    f.state.note_node(Note::Changed(&node("n0", false)), f.now);
    assert!(f.state.note_node(Note::Listed, f.now), "n1 is gone");
    f.pass(10_000);
    assert_eq!(f.take(), ["g Degraded/NodeLost 0/0/0"]);
}

#[test]
fn a_lost_node_is_told_and_so_is_its_return() {
    let mut f = Fixture::new();
    f.group("g", "u", 1);
    f.pod(&pod("a", "g", "running"));
    f.pass(2_000);
    assert!(f.state.note_node(Note::Changed(&node("n1", true)), f.now));
    assert!(!f.state.note_node(Note::Changed(&node("n1", true)), f.now));
    f.pass(2_000);
    assert!(f.state.note_node(Note::Changed(&node("n1", false)), f.now));
    f.pass(2_000);
    assert_eq!(
        f.take(),
        ["g Running/Running 1/1/1", "g Degraded/NodeLost 0/0/0", "g Running/Running 1/1/1"]
    );
}

#[test]
fn a_write_that_fails_is_made_again_and_only_one_is_on_its_way() {
    let mut f = Fixture::new();
    f.group("g", "u", 1);
    f.now += Duration::from_millis(200);
    let mut times = Vec::new();
    for outcome in
        [Outcome::Conflict, Outcome::Failed("down".to_owned()), Outcome::NotLeading, Outcome::Gone]
    {
        let mut due = f.due();
        let write = due.writes.pop().unwrap();
        f.pod(&pod("a", "g", "pending"));
        f.now += Duration::from_secs(1);
        assert!(f.due().writes.is_empty(), "one is on its way");
        f.state.settled(write, outcome, f.now);
        let at = f.due_at().unwrap();
        times.push((at - f.now).as_millis());
        f.now = at;
    }
    assert_eq!(times, [250, 2_000, 4_000, 8_000]);
    f.pass(1);
    assert_eq!(f.take(), ["g Scheduling/Scheduling 1/0/0"]);
}

#[test]
fn a_deadline_is_an_appointment() {
    let mut f = Fixture::new();
    let mut object = group("g", "u", 1, 1);
    object.spec.start_timeout_seconds = Some(30);
    f.state.note_group(Note::Changed(&object), f.now);
    f.pod(&pod("a", "g", "bound"));
    f.pass(29_000);
    assert_eq!(f.take(), ["g Scheduled/Starting 1/1/0"]);
    f.pass(2_000);
    assert_eq!(f.take(), ["g Scheduled/StartTimeout 1/1/0"]);
}

#[test]
fn what_others_wrote_is_set_right_by_a_new_leader() {
    let mut f = Fixture::new();
    let mut object = group("g", "u", 1, 1);
    object.status = PodGroupStatus { reason: Some("Nonsense".to_owned()), ..object.status };
    f.state.note_group(Note::Changed(&object), f.now);
    f.pod(&pod("a", "g", "running"));
    f.state.look_at_all(f.now);
    f.pass(0);
    assert_eq!(f.take(), ["g Running/Running 1/1/1"]);
}

#[test]
fn nothing_remains_of_what_is_gone() {
    let mut f = Fixture::new();
    for i in 0..50 {
        let name = format!("g{i}");
        f.group(&name, &name, 1);
        f.pod(&pod(&format!("a{i}"), &name, "running"));
        f.ended(&pod(&format!("b{i}"), &name, "succeeded"));
    }
    f.pass(5_000);
    assert_eq!(f.state.sizes(), (50, 100));
    for i in 0..50 {
        let name = format!("g{i}");
        f.pod_gone(&pod(&format!("a{i}"), &name, "running"));
        let ended = pod(&format!("b{i}"), &name, "succeeded");
        f.state.note_pod(Note::Gone(&ended), Side::Ended, f.now);
        f.state.note_group(Note::Gone(&group(&name, &name, 1, 1)), f.now);
    }
    f.pass(10_000);
    assert_eq!(f.state.sizes(), (0, 0));
    assert_eq!(f.due_at(), None);
}

/// What the core says of a gang is in its status; what it takes back is not.
#[tokio::test(start_paused = true)]
async fn the_scheduler_is_heard() {
    let board = Board::default();
    for note in [Note::Listing, Note::Listed] {
        board.note_pod(note);
        board.note_ended(Api::Muster, note);
    }
    for note in [Note::Listing, Note::Listed] {
        board.note_node(note);
    }
    board.note_group(Note::Listing);
    board.note_group(Note::Changed(&group("g", "u1", 2, 1)));
    board.note_group(Note::Listed);
    for name in ["a", "b"] {
        board.note_pod(Note::Changed(&pod(name, "g", "pending")));
    }
    let key = |api| GangKey { api, namespace: "team".into(), name: "g".into() };
    let says = |api, reason, message: &str| GroupSays {
        gang: key(api),
        reason,
        message: message.into(),
        gave_up: false,
        domain: None,
        role_domains: Vec::new(),
    };
    let status = async |reason, message: &str| {
        board.say(says(Api::Muster, reason, message));
        // Of another API, though its name is the same.
        board.say(says(Api::Native, "Rejected", "no"));
        tokio::time::advance(Duration::from_secs(60)).await;
        let mut due = board.due(Instant::now(), Time(EPOCH), LANES).writes;
        let write = due.pop().expect("a status to write");
        let said = (write.status.reason.clone(), write.status.message.clone());
        board.settled(write, Outcome::Written("2".into()), Instant::now());
        (said.0.unwrap_or_default(), said.1.unwrap_or_default())
    };
    let said = status("Unschedulable", "room for 1 of 2 members").await;
    assert_eq!(said, ("Unschedulable".to_owned(), "room for 1 of 2 members".to_owned()));
    let said = status("WaitingForPermit", "member a: budget").await;
    assert_eq!(said, ("WaitingForPermit".to_owned(), "member a: budget".to_owned()));
    let said = status("", "").await;
    assert_eq!(said, ("Scheduling".to_owned(), String::new()));
}
