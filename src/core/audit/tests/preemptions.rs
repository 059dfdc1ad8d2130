//! Wrong preemptions, at least one per rule: each is called wrong, by its name.

use muster_api::k8s;

use super::histories::{History, delete_pod, key};
use crate::io::{Effect, Eviction, Input, Object, Removal, Reply, Request, Token};
use crate::testing::{NodeExt as _, PodExt as _, node, pod};

fn runs(name: &str, priority: i32, cpu: &str) -> k8s::Pod {
    let mut wire = pod(name).priority(priority).req(&[("cpu", cpu)]).on("n");
    wire.metadata.labels.insert("app".into(), "a".into());
    wire.status.phase = "Running".into();
    wire.status.conditions = vec![k8s::PodCondition {
        kind: "Ready".into(),
        status: "True".into(),
        ..Default::default()
    }];
    wire
}

fn budget(name: &str, allowed: i32, disrupted: &[&str]) -> Input {
    let mut wire = k8s::PodDisruptionBudget::default();
    (wire.metadata.namespace, wire.metadata.name) = ("default".into(), name.into());
    let selector = wire.spec.selector.insert(k8s::LabelSelector::default());
    selector.match_labels.insert("app".into(), "a".into());
    wire.status.disruptions_allowed = allowed;
    wire.status.disrupted_pods = disrupted.iter().map(|n| ((*n).to_owned(), None)).collect();
    Input::Object(Box::new(Object::PodDisruptionBudget(wire)))
}

impl History {
    fn evict(&mut self, token: u64, victim: &str, dry_run: bool) -> &mut Self {
        self.evict_for("p", token, victim, dry_run)
    }

    fn evict_for(&mut self, pod: &str, token: u64, victim: &str, dry_run: bool) -> &mut Self {
        let how = if dry_run { Removal::DryRun } else { Removal::Evict };
        self.remove_for(pod, token, victim, how)
    }

    fn remove_for(&mut self, pod: &str, token: u64, victim: &str, how: Removal) -> &mut Self {
        self.effect(&Effect::Call {
            token: Token(token),
            pod: key(pod),
            plugin: "DefaultPreemption".into(),
            request: Request::Evict { victim: key(victim), how },
        })
    }

    fn said(&mut self, token: u64, eviction: Eviction) -> &mut Self {
        self.input(&Input::Reply { token: Token(token), reply: Reply::Evicted(eviction) })
    }

    fn yes(&mut self, token: u64) -> &mut Self {
        self.said(token, Eviction::Accepted)
    }

    /// Nothing more happens in this step.
    fn over(&mut self) -> &mut Self {
        self.input(&Input::RelistStarted(crate::io::Kind::PriorityClass))
    }
}

/// A node for 4 CPUs with two pods of 2, and a pod of priority 10 that needs 2.
fn full_node() -> History {
    let mut history = History::new();
    history.node(node("n").cpu("4")).pod(runs("a", 1, "2")).pod(runs("b", 2, "2"));
    history.pod(pod("p").priority(10).req(&[("cpu", "2")]));
    history
}

#[test]
fn a_dry_run_and_then_the_eviction_are_right() {
    full_node().evict(1, "a", true).yes(1).evict(2, "a", false).yes(2).over().expect(&[]);
    // Asked again when the server could not be asked; gone meanwhile.
    let busy = || Eviction::Unavailable("busy".into());
    let mut history = full_node();
    history.evict(1, "a", true).said(1, busy()).evict(2, "a", true).yes(2);
    history.evict(3, "a", false).said(3, busy()).evict(4, "a", false).said(4, Eviction::Gone);
    history.over().expect(&[]);
}

#[test]
fn s4_nobody_is_deleted_where_budgets_are_to_be_kept() {
    full_node().remove_for("p", 1, "a", Removal::Delete).over().expect(&["S4"]);
}

#[test]
fn two_preemptors_of_one_victim_spend_a_budget_once() {
    let mut history = full_node();
    history.input(&budget("b", 1, &[]));
    history.pod(pod("q").priority(20).req(&[("cpu", "2")]));
    history.evict(1, "a", true).yes(1).evict(2, "a", false);
    history.evict_for("q", 3, "a", true).yes(3).evict_for("q", 4, "a", false).over().expect(&[]);
}

#[test]
fn a_preemptor_that_an_old_list_hid_may_begin_again() {
    let mut history = full_node();
    history.evict(1, "a", true).yes(1).evict(2, "a", false).over();
    history.input(&Input::RelistStarted(crate::io::Kind::Pod));
    history.pod(runs("a", 1, "2")).pod(runs("b", 2, "2"));
    history.input(&Input::RelistDone(crate::io::Kind::Pod));
    history.pod(pod("p").priority(10).req(&[("cpu", "2")]));
    history.evict(3, "a", true).over().expect(&[]);
}

#[test]
fn s4_no_eviction_without_a_dry_run_that_was_allowed() {
    full_node().evict(1, "a", false).over().expect(&["S4"]);
    full_node().evict(1, "a", true).evict(2, "a", false).over().expect(&["S4"]);
    let refused = || Eviction::Refused("budget".into());
    full_node().evict(1, "a", true).said(1, refused()).evict(2, "a", false).expect(&["S4"]);
}

#[test]
fn s4_no_budget_is_overdrawn() {
    full_node().input(&budget("b", 1, &[])).evict(1, "a", true).over().expect(&[]);
    full_node().input(&budget("b", 0, &[])).evict(1, "a", true).over().expect(&["S4"]);
    // What was asked for and is not seen yet counts; what the budget shows does not.
    let mut history = full_node();
    history.pod(pod("q").priority(10).req(&[("cpu", "2")])).input(&budget("b", 1, &[]));
    history.evict(1, "a", true).yes(1).evict(2, "a", false).over().expect(&[]);
    history.input(&budget("b", 1, &["a"])).evict_for("q", 3, "b", true).over().expect(&[]);
    history.input(&budget("b", 1, &[])).yes(3);
    history.evict_for("q", 4, "b", false).over().expect(&["S4"]);
    // The server counts before it answers: what the budget shows after that has it.
    let mut history = full_node();
    history.pod(pod("q").priority(10).req(&[("cpu", "2")])).input(&budget("b", 2, &[]));
    history.evict(1, "a", true).yes(1).evict(2, "a", false).yes(2).over().expect(&[]);
    history.input(&budget("b", 1, &[])).evict_for("q", 3, "b", true).over().expect(&[]);
    // Allowed when it was planned, not any more when it is done.
    let mut history = full_node();
    history.input(&budget("b", 1, &[])).evict(1, "a", true).over().expect(&[]);
    history.yes(1).input(&budget("b", 0, &[])).evict(2, "a", false).over().expect(&["S4"]);
}

#[test]
fn s4_nobody_under_two_budgets_goes() {
    let mut history = full_node();
    history.input(&budget("b", 5, &[])).input(&budget("c", 5, &[]));
    history.evict(1, "a", true).over().expect(&["S4"]);
}

#[test]
fn s5_only_lesser_pods_make_room_for_pods_that_may_ask() {
    let mut history = full_node();
    history.pod(pod("e").priority(2).req(&[("cpu", "2")]));
    history.evict_for("e", 1, "b", true).over().expect(&["S5"]);
    let mut modest = pod("m").priority(10).req(&[("cpu", "2")]);
    modest.spec.preemption_policy = Some("Never".into());
    let mut history = full_node();
    history.pod(modest).evict_for("m", 1, "a", true).over().expect(&["S5"]);
    // It has a node already.
    let mut history = full_node();
    history.evict_for("b", 1, "a", true).over().expect(&["S5"]);
}

#[test]
fn s5_as_many_go_as_have_to() {
    full_node().evict(1, "a", true).evict(2, "b", true).over().expect(&["S5"]);
    let mut history = full_node();
    history.pod(pod("big").priority(10).req(&[("cpu", "4")]));
    history.evict_for("big", 1, "a", true).over().expect(&["S5"]);
    let mut history = full_node();
    history.pod(pod("big").priority(10).req(&[("cpu", "4")]));
    history.evict_for("big", 1, "a", true).evict_for("big", 2, "b", true).over().expect(&[]);
    history.yes(1).yes(2).evict_for("big", 3, "a", false).over().expect(&["S5"]);
    // A pod that is expected there takes room as well.
    let mut expected = pod("e").priority(20).req(&[("cpu", "2")]);
    expected.status.nominated_node_name = "n".into();
    let mut history = full_node();
    history.pod(expected).evict(1, "a", true).evict(2, "b", true).over().expect(&[]);
}

#[test]
fn s5_one_plan_at_a_time() {
    let mut history = full_node();
    history.evict(1, "a", true).over().evict(2, "b", true).over().expect(&["S5"]);
    let mut history = full_node();
    history.evict(1, "a", true).said(1, Eviction::Refused("budget".into()));
    history.evict(2, "b", true).over().expect(&[]);
    history.yes(2).evict(3, "b", false).evict(4, "b", false).over().expect(&["S5"]);
}

#[test]
fn a_nomination_is_no_reservation_and_explains_why_nothing_fits() {
    let mut expected = pod("e").priority(20).req(&[("cpu", "3")]);
    expected.status.nominated_node_name = "n".into();
    let mut history = full_node();
    history.input(&delete_pod("a")).pod(expected);
    history
        .fail("e", crate::Outcome::Unschedulable)
        .fail("p", crate::Outcome::Unschedulable)
        .over()
        .expect(&[]);
    // Whoever is more important may have the room.
    history.sleep(30).choose("p", "n").over().expect(&[]);
    let mut history = full_node();
    history.input(&delete_pod("a")).fail("p", crate::Outcome::Unschedulable).over();
    history.expect(&["L1"]);
}

fn group(name: &str, min: i32) -> Input {
    let mut wire = muster_api::muster::PodGroup::default();
    (wire.metadata.namespace, wire.metadata.name) = ("default".into(), name.into());
    wire.spec.min_member = Some(min);
    Input::Object(Box::new(Object::PodGroup(wire)))
}

fn of(mut wire: k8s::Pod, group: &str) -> k8s::Pod {
    wire.metadata.labels.insert("muster.dev/pod-group".into(), group.into());
    wire
}

/// A node for 6 CPUs full of three members of a gang that needs two, or three.
fn gang_node(min: i32) -> History {
    let mut history = History::new();
    history.node(node("n").cpu("6")).input(&group("low", min));
    for name in ["a", "b", "c"] {
        history.pod(of(runs(name, 1, "2"), "low"));
    }
    history
}

#[test]
fn s5_a_gang_is_not_left_below_its_minimum() {
    let one = |min: i32| {
        let mut history = gang_node(min);
        history.pod(pod("p").priority(10).req(&[("cpu", "2")]));
        history
    };
    one(2).evict(1, "a", true).over().expect(&[]);
    one(3).evict(1, "a", true).over().expect(&["S5"]);
    one(3).evict(1, "a", true).evict(2, "b", true).evict(3, "c", true).over().expect(&[]);
}

#[test]
fn s5_a_gang_has_as_many_go_as_it_needs() {
    let high = |need: i32| {
        let mut history = gang_node(1);
        history.input(&group("high", need));
        for name in ["p", "q"] {
            history.pod(of(pod(name).priority(10).req(&[("cpu", "2")]), "high"));
        }
        history
    };
    high(2).evict(1, "a", true).evict(2, "b", true).over().expect(&[]);
    high(2).evict(1, "a", true).over().expect(&["S5"]);
    high(1).evict(1, "a", true).over().expect(&[]);
    high(1).evict(1, "a", true).evict(2, "b", true).over().expect(&["S5"]);
}
