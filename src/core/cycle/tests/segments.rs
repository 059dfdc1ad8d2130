//! Members of consecutive ranks that are kept together, and the order of ranks along the tree.

use std::collections::BTreeMap;

use muster_api::k8s;
use serde_json::{Value, json};

use super::gang::group;
use super::harness::Harness;
use super::topology::{cluster, member, settle};
use crate::testing::PodExt;

const INDEX: &str = "batch.kubernetes.io/job-completion-index";

fn ranked(name: &str, gang: &str, rank: usize) -> k8s::Pod {
    member(name, gang).pod_label(INDEX, &rank.to_string())
}

fn gang(h: &mut Harness, members: usize, topology: &Value) {
    h.object(group("g", &json!({"minMember": members, "topology": topology})));
    // Not in order of their ranks.
    for rank in (0..members).rev() {
        h.pod(ranked(&format!("g-{rank:03}"), "g", rank));
    }
}

/// Racks with the ranks in them: `b1-r1:0,1 b1-r2:2`.
fn ranks(h: &Harness) -> String {
    let mut racks: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for node in h.core.cache_view().nodes {
        let rack = node.name.rsplit_once('-').map_or("", |(rack, _)| rack).to_owned();
        for pod in node.pods.iter().filter(|p| !p.contains("/other-")) {
            let rank = pod.rsplit_once("g-").expect("a member").1;
            let rank = rank.trim_end_matches(|c: char| !c.is_ascii_digit());
            racks.entry(rack.clone()).or_default().push(rank.parse().expect("a rank"));
        }
    }
    let text = |(rack, mut ranks): (String, Vec<usize>)| {
        ranks.sort_unstable();
        let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
        format!("{rack}:{}", ranks.join(","))
    };
    racks.into_iter().map(text).collect::<Vec<_>>().join(" ")
}

/// `racks`, `members`, `topology`, the ranks in each rack; or what is said.
fn check(racks: &[(&str, usize, usize)], members: usize, topology: &Value, expect: &str) {
    let mut h = cluster(racks);
    gang(&mut h, members, topology);
    let effects = h.run();
    let said = effects.iter().find_map(|e| e.strip_prefix("group default/g "));
    if let Some(said) = said.filter(|said| said.starts_with("Unschedulable")) {
        assert_eq!(said, expect, "{racks:?} {topology}");
        assert_eq!(ranks(&h), "", "nobody has room");
        return;
    }
    assert_eq!(ranks(&h), expect, "{racks:?} {topology}");
}

fn segments(size: usize, level: &str) -> Value {
    json!({"segments": [{"size": size, "required": level}]})
}

#[test]
fn each_segment_is_in_one_domain() {
    // Racks with room for 6: a segment of 4 each, though two racks would hold all members.
    let racks = [("b1-r1", 3, 0), ("b1-r2", 3, 0), ("b1-r3", 3, 0)];
    check(&racks, 12, &segments(4, "rack"), "b1-r1:0,1,2,3 b1-r2:4,5,6,7 b1-r3:8,9,10,11");
    // All in one rack if there is one: it is nearer.
    check(&[("b1-r1", 2, 0), ("b1-r2", 4, 0)], 8, &segments(4, "rack"), "b1-r2:0,1,2,3,4,5,6,7");
    // Within what the gang requires, though another block has room for one more segment.
    let racks = [("b1-r1", 2, 0), ("b2-r1", 2, 0), ("b2-r2", 2, 0)];
    let block = json!({"required": "block", "segments": [{"size": 4, "required": "rack"}]});
    check(&racks, 8, &block, "b2-r1:0,1,2,3 b2-r2:4,5,6,7");
    // The last segment is smaller: it takes what is left beside a whole one.
    let racks = [("b1-r1", 3, 0), ("b1-r2", 2, 0)];
    check(&racks, 10, &segments(4, "rack"), "b1-r1:4,5,6,7,8,9 b1-r2:0,1,2,3");
}

#[test]
fn what_cannot_be_says_how_many_segments_have_room() {
    // 8 seats, and no rack with more than 3.
    let racks = [("b1-r1", 2, 1), ("b1-r2", 2, 1), ("b1-r3", 1, 0)];
    check(
        &racks,
        8,
        &segments(4, "rack"),
        "Unschedulable: room for 0 of 2 segments of 4 ranks, each in one rack",
    );
    let block = json!({"required": "block", "segments": [{"size": 4, "required": "rack"}]});
    let racks = [("b1-r1", 3, 0), ("b1-r2", 1, 0), ("b2-r1", 1, 0), ("b2-r2", 3, 1)];
    check(
        &racks,
        8,
        &block,
        "Unschedulable: room for 1 of 2 segments of 4 ranks, each in one rack in the best block \
         (b1)",
    );
    check(
        &[("b1-r1", 4, 0)],
        4,
        &segments(2, "rakc"),
        "Unschedulable: segments of 2 ranks: topology.required: \"rakc\" is neither a level of a \
         ClusterTopology nor a label of any node; levels are block, rack",
    );
}

#[test]
fn a_member_that_must_be_in_a_segment_needs_a_rank() {
    let mut h = cluster(&[("b1-r1", 4, 0)]);
    h.object(group("g", &json!({"minMember": 2, "topology": segments(2, "rack")})));
    h.pod(ranked("g-000", "g", 0));
    h.pod(member("g-001", "g").pod_label(INDEX, "one"));
    let effects = h.run();
    let why = "topology.segments: member g-001 has no rank: its label \
               batch.kubernetes.io/job-completion-index is missing, or no number from 0; label \
               members with their ranks, or name their label as rankLabel";
    assert!(effects.iter().any(|e| e.contains(why)), "{effects:?}");
    // Its own label.
    let topology = json!({"rankLabel": "rank", "segments": [{"size": 2, "required": "rack"}]});
    h.object(group("g", &json!({"minMember": 2, "topology": topology})));
    for (name, rank) in [("g-000", "0"), ("g-001", "1")] {
        h.pod(member(name, "g").pod_label("rank", rank).pod_version("2"));
    }
    h.sleep(10);
    assert_eq!(h.run_binds().len(), 2);
}

#[test]
fn segments_within_segments() {
    // Blocks for 8 ranks, racks for 4; one rack of b1 is short of a seat.
    let racks = [
        ("b1-r1", 2, 0),
        ("b1-r2", 2, 1),
        ("b1-r3", 1, 0),
        ("b2-r1", 2, 0),
        ("b2-r2", 2, 0),
        ("b3-r1", 2, 0),
        ("b3-r2", 2, 0),
    ];
    let nested = json!({"segments": [
        {"size": 8, "required": "block"}, {"size": 4, "required": "rack"},
    ]});
    let expect = "b2-r1:0,1,2,3 b2-r2:4,5,6,7 b3-r1:8,9,10,11 b3-r2:12,13,14,15";
    check(&racks, 16, &nested, expect);
}

#[test]
fn segments_that_should_be_together_are_apart_if_there_is_no_room() {
    let soft = json!({"preferred": "block", "segments": [{"size": 4, "preferred": "rack"}]});
    let racks = [("b1-r1", 2, 0), ("b1-r2", 1, 0), ("b1-r3", 1, 0)];
    check(&racks, 8, &soft, "b1-r1:0,1,2,3 b1-r2:4,5 b1-r3:6,7");
    check(&[("b1-r1", 2, 0), ("b1-r2", 2, 0)], 8, &soft, "b1-r1:0,1,2,3 b1-r2:4,5,6,7");
}

#[test]
fn consecutive_ranks_are_near_each_other_along_the_tree() {
    // Room for 4, 2 and 6: the small rack between them is full before the next begins.
    let racks = [("b1-r1", 2, 0), ("b1-r2", 1, 0), ("b1-r3", 3, 0)];
    let block = json!({"required": "block"});
    check(&racks, 12, &block, "b1-r1:0,1,2,3 b1-r2:4,5 b1-r3:6,7,8,9,10,11");
    check(&racks, 10, &block, "b1-r1:0,1,2,3 b1-r3:4,5,6,7,8,9");
}

#[test]
fn a_replacement_is_where_the_segment_of_its_rank_is() {
    let mut h = cluster(&[("b1-r1", 4, 0), ("b1-r2", 4, 0), ("b1-r3", 4, 0)]);
    gang(&mut h, 12, &segments(6, "rack"));
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r1:0,1,2,3,4,5 b1-r2:6,7,8,9,10,11");
    // Two of each are lost, and replaced in one pass by pods of other names.
    for rank in [2, 5, 8, 11] {
        h.gone(&format!("g-{rank:03}"));
    }
    for rank in [11, 2, 8, 5] {
        h.pod(ranked(&format!("g-{rank:03}x"), "g", rank).uid(&format!("again-{rank}")));
    }
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r1:0,1,2,3,4,5 b1-r2:6,7,8,9,10,11");
    // A late member too: it would be in a segment of its own, and is near the last rank.
    h.pod(ranked("g-012", "g", 12));
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r1:0,1,2,3,4,5 b1-r2:6,7,8,9,10,11,12");
}

#[test]
fn a_late_member_waits_if_its_segment_has_no_room() {
    let mut h = cluster(&[("b1-r1", 2, 1), ("b1-r2", 4, 0)]);
    h.object(group("g", &json!({"minMember": 3, "topology": segments(4, "rack")})));
    for rank in 0..3 {
        h.pod(ranked(&format!("g-{rank:03}"), "g", rank));
    }
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r1:0,1,2");
    for rank in 3..6 {
        h.pod(ranked(&format!("g-{rank:03}"), "g", rank));
    }
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r1:0,1,2 b1-r2:4,5", "rank 3 waits for its rack");
    h.gone("other-b1-r1-0");
    h.sleep(20);
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r1:0,1,2,3 b1-r2:4,5");
}

#[test]
fn roles_have_segments_of_their_own() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 2, 0), ("b1-r3", 1, 0)]);
    let role = |name: &str, min: i32, topology: Value| {
        json!({
            "name": name, "minMember": min, "topology": topology,
            "selector": {"matchLabels": {"role": name}},
        })
    };
    let spec = json!({
        "minMember": 9,
        "roles": [
            role("launcher", 1, json!({"preferred": "rack"})),
            role("worker", 8, segments(4, "rack")),
        ],
    });
    h.object(group("g", &spec));
    h.pod(member("g-099", "g").pod_label("role", "launcher"));
    for rank in 0..8 {
        let worker = ranked(&format!("g-{rank:03}"), "g", rank).pod_label("role", "worker");
        h.pod(worker);
    }
    settle(&mut h);
    let all = ranks(&h);
    assert!(all.contains("b1-r1:0,1,2,3 b1-r2:4,5,6,7"), "{all}");
}

#[test]
fn a_rack_that_turns_out_to_be_smaller_is_tried_no_further() {
    // One member a node: rack r1 has room for 4 by its CPUs, and for 2 by its ports.
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 4, 0)]);
    h.object(group("g", &json!({"minMember": 4, "topology": segments(4, "rack")})));
    for rank in 0..4 {
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"muster.dev/pod-group": "g"}},
            "topologyKey": "kubernetes.io/hostname",
        }]});
        let pod = ranked(&format!("g-{rank:03}"), "g", rank);
        h.pod(pod.edit(|p| {
            let affinity = json!({"podAntiAffinity": affinity});
            p.spec.affinity = serde_json::from_value(affinity).expect("affinity");
        }));
    }
    for (rack, nodes) in [("b1-r1", 2), ("b1-r2", 4)] {
        for i in 0..nodes {
            let name = format!("{rack}-n{i}");
            let host = super::topology::host(&name, rack);
            h.node(crate::testing::NodeExt::label(host, "kubernetes.io/hostname", &name));
        }
    }
    settle(&mut h);
    assert_eq!(ranks(&h), "b1-r2:0,1,2,3");
}
