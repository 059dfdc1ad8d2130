//! Conditions count as written when the watch shows them.

use muster_api::k8s::PodCondition;

use super::harness::Harness;
use crate::testing::{PodExt as _, node, pod};

fn statuses(effects: Vec<String>) -> Vec<String> {
    effects.into_iter().filter(|e| e.starts_with("status ")).collect()
}

fn waiting() -> (Harness, String) {
    let mut h = Harness::new();
    h.node(node("n1"));
    h.pod(pod("a").req(&[("cpu", "64000")]));
    let said = statuses(h.run());
    assert_eq!(said.len(), 1, "{said:?}");
    (h, said[0].clone())
}

#[test]
fn a_condition_that_the_watch_does_not_show_is_asked_for_again() {
    let (mut h, said) = waiting();
    h.sleep(29);
    assert!(statuses(h.effects()).is_empty());
    for _ in 0..20 {
        h.sleep(30);
        assert_eq!(statuses(h.effects()), std::slice::from_ref(&said));
    }
    h.sleep(300);
    assert!(statuses(h.effects()).is_empty(), "not for ever");
}

#[test]
fn a_condition_that_was_seen_is_left_alone() {
    let (mut h, said) = waiting();
    let message = said.split_once("Unschedulable: ").map(|(_, m)| m.to_owned()).unwrap();
    h.edit("a", |p| {
        p.status.conditions.push(PodCondition {
            kind: "PodScheduled".into(),
            status: "False".into(),
            reason: "Unschedulable".into(),
            message,
        });
    });
    h.effects();
    h.sleep(100);
    assert!(statuses(h.effects()).is_empty());
}

#[test]
fn a_condition_that_a_late_write_spoils_is_set_right() {
    let (mut h, said) = waiting();
    let message = said.split_once("Unschedulable: ").map(|(_, m)| m.to_owned()).unwrap();
    let show = |h: &mut Harness, message: &str| {
        h.edit("a", |p| {
            p.status.conditions = vec![PodCondition {
                kind: "PodScheduled".into(),
                status: "False".into(),
                reason: "Unschedulable".into(),
                message: message.into(),
            }];
        });
    };
    show(&mut h, &message);
    show(&mut h, "what a scheduler said that is no more");
    h.effects();
    h.sleep(30);
    assert_eq!(statuses(h.effects()), std::slice::from_ref(&said));
    show(&mut h, &message);
    h.sleep(300);
    assert!(statuses(h.effects()).is_empty(), "once is enough");
}

#[test]
fn a_pod_that_is_gone_is_not_spoken_of() {
    let (mut h, _) = waiting();
    h.gone("a");
    h.sleep(100);
    assert!(statuses(h.effects()).is_empty());
    h.assert_idle();
}
