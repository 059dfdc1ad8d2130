use std::collections::BTreeMap;

use super::super::budget::Amount;
use super::*;

const NS: &str = "default";

fn pod(name: &str, app: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = name.to_owned();
    pod.metadata.namespace = NS.to_owned();
    pod.metadata.labels.insert("app".to_owned(), app.to_owned());
    pod
}

/// `count` running pods of one app.
fn running(count: usize) -> Server {
    let mut server = Server::new();
    for i in 0..count {
        let name = format!("p{i}");
        server.create_pod(pod(&name, "web")).unwrap();
        server.bind(NS, &name, None, "n1").unwrap();
        server.set_phase(NS, &name, "Running").unwrap();
    }
    server
}

fn budget(name: &str, least: Amount) -> Budget {
    Budget {
        namespace: NS.to_owned(),
        name: name.to_owned(),
        match_labels: BTreeMap::from([("app".to_owned(), "web".to_owned())]),
        min_available: Some(least),
        ..Budget::default()
    }
}

fn evict(server: &mut Server, name: &str) -> Result<(), ApiError> {
    server.evict(NS, name, &DeleteOptions::default())
}

#[test]
fn a_budget_spares_what_it_can_and_no_more() {
    let mut server = running(3);
    server.create_budget(budget("b", Amount::Count(2)));
    let unseen = evict(&mut server, "p0").unwrap_err();
    assert_eq!((unseen.code, unseen.cause), (429, Some("DisruptionBudget")), "not counted yet");
    assert_eq!(unseen.retry_after, Some(10));
    server.reconcile_budgets();
    let status = server.budget(NS, "b").unwrap();
    assert_eq!((status.disruptions_allowed, status.current_healthy), (1, 3));
    evict(&mut server, "p0").unwrap();
    let refused = evict(&mut server, "p1").unwrap_err();
    assert_eq!((refused.code, refused.reason), (429, "TooManyRequests"));
    assert_eq!(refused.retry_after, None);
    // A pod that goes is no longer counted, even while its kubelet ends it.
    server.reconcile_budgets();
    assert_eq!(server.budget(NS, "b").unwrap().current_healthy, 2);
    assert!(server.pod(NS, "p0").unwrap().metadata.deletion_timestamp.is_some());
    evict(&mut server, "p0").unwrap(); // going already: under no budget
    server.elapse(30);
    assert_eq!(server.pod(NS, "p0").unwrap_err().code, 404);
}

#[test]
fn shares_of_pods_are_rounded_up() {
    let mut server = running(5);
    server.create_budget(budget("b", Amount::Percent(50)));
    server.reconcile_budgets();
    let status = server.budget(NS, "b").unwrap();
    // 50 % of 5, rounded up, is 3: 2 may go.
    assert_eq!((status.desired_healthy, status.disruptions_allowed), (3, 2));
}

#[test]
fn a_dry_run_changes_nothing_and_two_budgets_are_an_error() {
    let mut server = running(2);
    server.create_budget(budget("b", Amount::Count(1)));
    server.reconcile_budgets();
    let dry = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
    let before = server.revision();
    server.evict(NS, "p0", &dry).unwrap();
    server.evict(NS, "p1", &dry).unwrap();
    assert_eq!(server.revision(), before);
    server.create_budget(budget("other", Amount::Count(0)));
    assert_eq!(evict(&mut server, "p0").unwrap_err().code, 500);
}

#[test]
fn pods_that_do_not_run_are_evicted_without_a_budget() {
    let mut server = running(1);
    server.create_budget(budget("b", Amount::Count(1)));
    server.reconcile_budgets();
    server.create_pod(pod("pending", "web")).unwrap();
    evict(&mut server, "pending").unwrap();
    assert_eq!(server.pod(NS, "pending").unwrap_err().code, 404, "unbound: gone at once");
    server.set_phase(NS, "p0", "Failed").unwrap();
    evict(&mut server, "p0").unwrap();
    assert_eq!(server.pod(NS, "p0").unwrap_err().code, 404, "ended: gone at once");
}

#[test]
fn an_unhealthy_pod_goes_if_the_budget_is_healthy_or_the_policy_says_so() {
    let mut server = running(2);
    server.create_budget(budget("b", Amount::Count(2)));
    server.set_unready(NS, "p0").unwrap();
    server.reconcile_budgets();
    assert_eq!(evict(&mut server, "p0").unwrap_err().code, 429, "1 of 2 is healthy");
    let mut server = running(2);
    server.create_budget(Budget { always_allow_unhealthy: true, ..budget("b", Amount::Count(2)) });
    server.set_unready(NS, "p0").unwrap();
    server.reconcile_budgets();
    evict(&mut server, "p0").unwrap();
    let mut server = running(3);
    server.create_budget(budget("b", Amount::Count(2)));
    server.set_unready(NS, "p0").unwrap();
    server.reconcile_budgets();
    evict(&mut server, "p0").unwrap();
    assert_eq!(server.budget(NS, "b").unwrap().disruptions_allowed, 0, "it did not count");
}

#[test]
fn writes_have_preconditions() {
    let mut server = running(1);
    server.create_pod(pod("a", "x")).unwrap();
    let other = server.bind(NS, "a", Some("another"), "n1").unwrap_err();
    assert_eq!((other.code, other.reason), (409, "Conflict"));
    let mut old = server.pod(NS, "a").unwrap();
    server.update_pod(&old).unwrap();
    old.metadata.labels.insert("x".to_owned(), "y".to_owned());
    server.update_pod(&old).unwrap();
    assert_eq!(server.update_pod(&old).unwrap_err().code, 409, "a stale version");
    let uid = DeleteOptions { uid: Some("another".to_owned()), ..DeleteOptions::default() };
    assert_eq!(server.delete_pod(NS, "a", &uid).unwrap_err().code, 409);
    assert_eq!(server.create_pod(pod("a", "x")).unwrap_err().reason, "AlreadyExists");
}

#[test]
fn graceful_deletion_waits_for_the_kubelet() {
    let mut server = running(1);
    let grace = DeleteOptions { grace_seconds: Some(10), ..DeleteOptions::default() };
    server.delete_pod(NS, "p0", &grace).unwrap();
    server.elapse(9);
    assert!(server.pod(NS, "p0").is_ok());
    assert_eq!(server.bind(NS, "p0", None, "n2").unwrap_err().code, 409);
    server.elapse(1);
    assert_eq!(server.pod(NS, "p0").unwrap_err().code, 404);
}

#[test]
fn lists_can_be_old_and_compacted_versions_are_gone() {
    let mut server = Server::new();
    server.create_pod(pod("a", "x")).unwrap();
    let then = server.revision();
    server.create_pod(pod("b", "x")).unwrap();
    server.bind(NS, "a", None, "n1").unwrap();
    let names = |pods: Vec<Pod>| pods.into_iter().map(|p| p.metadata.name).collect::<Vec<_>>();
    assert_eq!(names(server.list_pods(Some(then)).unwrap()), ["a"]);
    assert_eq!(names(server.list_pods(None).unwrap()), ["a", "b"]);
    assert_eq!(server.watch_pods(then).unwrap().len(), 2);
    server.compact();
    let gone = server.watch_pods(then).unwrap_err();
    assert_eq!((gone.code, gone.reason), (410, "Expired"));
    assert_eq!(server.list_pods(Some(then)).unwrap_err().code, 410);
    assert!(server.watch_pods(server.revision()).unwrap().is_empty());
}
