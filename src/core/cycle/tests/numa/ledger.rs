//! What is on a node counts, however it came to be there: seats of gangs, pods that are
//! expected, pods that somebody else bound; and what leaves it, be it for a trial.

use serde_json::json;

use super::super::gang::group;
use super::super::harness::{Harness, check};
use super::{asks, harness, message, report};
use crate::io::Eviction;
use crate::testing::PodExt as _;

fn strict(held: &[(&str, &str, &[u32])]) -> Harness {
    let mut h = harness(&json!({}), &["n"]);
    h.object(report("n", 1, "Restricted", held));
    h
}

/// A gang of pods that ask for so many CPUs and GPUs each.
fn gang(h: &mut Harness, members: &[(&str, u32, u32)]) -> Vec<String> {
    h.object(group("g", &json!({"minMember": members.len()})));
    for (name, cpus, gpus) in members {
        h.pod(asks(name, *cpus, *gpus).pod_label("muster.dev/pod-group", "g"));
    }
    let mut binds = h.run_binds();
    binds.sort();
    binds
}

#[test]
fn members_of_a_gang_see_each_other() {
    let mut h = strict(&[]);
    let binds = gang(&mut h, &[("a", 8, 4), ("b", 8, 4)]);
    check(binds, "bind default/a -> n\nbind default/b -> n");
    // By numbers alone a third would fit: there are CPUs, and GPUs for it.
    let mut h = strict(&[]);
    check(gang(&mut h, &[("a", 12, 3), ("b", 12, 3), ("c", 8, 2)]), "");
    let why = message(&h, "c");
    assert!(why.contains("room for 2 of 3 members"), "{why}");
    // Nothing is left of the attempt.
    h.pod(asks("alone", 12, 4));
    h.pod(asks("other", 12, 4));
    check(h.run_binds(), "bind default/alone -> n\nbind default/other -> n");
}

#[test]
fn members_whose_order_of_arrival_matters_are_not_put_together() {
    // GPUs 0, 1 and 2, 3 of the one node, and 4, 5 of the other are free.
    let mut h = strict(&[("uid-old", "16", &[6, 7])]);
    h.pod(asks("old", 1, 2).on("n"));
    // If `two` is first it takes half of node 0, and no node has four.
    check(gang(&mut h, &[("four", 4, 4), ("two", 4, 2)]), "");
    let mut h = strict(&[("uid-old", "16", &[6, 7])]);
    h.pod(asks("old", 1, 2).on("n"));
    check(
        gang(&mut h, &[("one", 4, 2), ("two", 4, 2)]),
        "bind default/one -> n\nbind default/two -> n",
    );
}

/// Four pods of priority 1 with two GPUs each, as the agent saw them: a and b on one NUMA node,
/// c and d on the other.
fn full() -> Harness {
    let held: [(&str, &str, &[u32]); 4] = [
        ("uid-a", "0-3", &[0, 1]),
        ("uid-b", "4-7", &[2, 3]),
        ("uid-c", "16-19", &[4, 5]),
        ("uid-d", "20-23", &[6, 7]),
    ];
    let mut h = strict(&held);
    for (name, started) in [("a", 1), ("c", 2), ("b", 3), ("d", 4)] {
        h.pod(asks(name, 4, 2).priority(1).on("n").edit(|p| {
            p.status.start_time = Some(muster_api::k8s::Time(started * 1_000_000));
        }));
    }
    h
}

/// Who is asked to go, whom the answers make go, and nothing else.
fn evict_all(h: &mut Harness, victims: &[&str]) {
    for victim in victims {
        h.evicted(victim, Eviction::Accepted);
    }
    h.effects();
    for victim in victims {
        h.evicted(victim, Eviction::Accepted);
    }
    h.effects();
}

#[test]
fn an_eviction_that_is_tried_frees_what_it_frees() {
    let mut h = full();
    h.pod(asks("four", 8, 4).priority(10));
    let asked: Vec<String> = h.run().into_iter().filter(|e| e.starts_with("ask")).collect();
    // Two GPUs of each NUMA node would not do: both of one have to go.
    let together = ["ask default/a\nask default/b", "ask default/c\nask default/d"];
    let mut sorted = asked.clone();
    sorted.sort();
    assert!(together.contains(&sorted.join("\n").as_str()), "{asked:?}");
    let victims: Vec<&str> =
        asked.iter().map(|ask| ask.trim_start_matches("ask default/")).collect();
    evict_all(&mut h, &victims);
    // Once they have left it has a place; the agent need not have said so.
    for victim in &victims {
        h.gone(victim);
    }
    h.sleep(20);
    check(h.run_binds(), "bind default/four -> n");
}

#[test]
fn who_is_expected_on_a_node_counts_there() {
    let mut h = full();
    h.pod(asks("four", 8, 4).priority(10));
    let asked: Vec<String> = h.run().into_iter().filter(|e| e.starts_with("ask")).collect();
    let victims: Vec<String> =
        asked.iter().map(|ask| ask.trim_start_matches("ask default/").to_owned()).collect();
    let names: Vec<&str> = victims.iter().map(String::as_str).collect();
    evict_all(&mut h, &names);
    assert_eq!(h.nominated("four"), Some("n"));
    // One has left: its room is for `four`, though nobody has it yet.
    h.gone(names[0]);
    h.pod(asks("two", 4, 2).priority(1));
    check(h.run_binds(), "");
    h.gone(names[1]);
    h.sleep(20);
    check(h.run_binds(), "bind default/four -> n");
}

#[test]
fn after_a_restart_pods_that_were_bound_and_not_seen_count_whoever_bound_them() {
    // What a restarted core is shown: a pod with eight CPUs of ours, and one of another
    // scheduler with four GPUs, that the agent has not seen.
    for (scheduler, cpus, gpus) in [("muster", 8, 0), ("other", 8, 4)] {
        let mut h = harness(&json!({}), &["n"]);
        h.pod(asks("bound", cpus, gpus).scheduler(scheduler).on("n"));
        h.object(report("n", 1, "Restricted", &[]));
        h.pod(asks("wide", 12, 4));
        h.pod(asks("wider", 12, 4));
        // Beside it there is room for one.
        assert_eq!(h.run_binds().len(), 1, "{scheduler}");
        let uid = h.last("bound").metadata.uid;
        let gpus: &[u32] = if gpus > 0 { &[0, 1, 2, 3] } else { &[] };
        h.object(report("n", 2, "Restricted", &[(&uid, "0-7", gpus)]));
        h.sleep(20);
        assert_eq!(h.run_binds().len(), 0, "{scheduler}");
    }
}

#[test]
fn a_pod_that_asks_for_nothing_of_its_own_is_not_waited_for() {
    let mut h = strict(&[]);
    // Half a CPU is nobody's own, and the Memory Manager is off.
    h.pod(asks("plain", 1, 0).on("n").edit(|p| {
        let cpu = crate::testing::quantity("500m");
        p.spec.containers[0].resources.requests.insert("cpu".to_owned(), cpu);
    }));
    h.pod(asks("wide", 20, 8));
    check(h.run_binds(), "bind default/wide -> n");
}

#[test]
fn whom_others_may_have_met_and_nobody_saw_makes_a_node_wait() {
    let mut h = strict(&[]);
    h.pod(asks("short", 16, 1));
    h.pod(asks("long", 4, 2));
    check(h.run_binds(), "bind default/short -> n\nbind default/long -> n");
    h.bound("short", "n");
    h.bound("long", "n");
    // If `long` met it, it is on node 1; else on node 0.
    h.gone("short");
    h.pod(asks("four", 4, 4));
    check(h.run_binds(), "");
    assert!(message(&h, "four").contains("has not seen 1 pod(s) yet"), "{}", message(&h, "four"));
    h.object(report("n", 2, "Restricted", &[("uid-long", "16-19", &[4, 5])]));
    h.sleep(20);
    check(h.run_binds(), "bind default/four -> n");
}

#[test]
fn evictions_are_not_tried_where_only_the_agent_is_waited_for() {
    let mut h = strict(&[("uid-old", "16", &[4, 5])]);
    h.pod(asks("old", 1, 2).priority(1).on("n"));
    h.pod(asks("four", 4, 4).priority(1));
    check(h.run_binds(), "bind default/four -> n");
    h.pod(asks("two", 4, 2).priority(10));
    let effects = h.run();
    assert!(effects.iter().all(|e| !e.starts_with("ask")), "{effects:?}");
    assert!(message(&h, "two").contains("has not seen 1 pod(s) yet"), "{effects:?}");
}
