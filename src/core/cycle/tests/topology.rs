//! Gangs whose members must be near each other: where they go, what is said, and what
//! changes under way.

use muster_api::k8s;
use serde_json::{Value, json};

use super::gang::group;
use super::harness::Harness;
use super::policy::policy;
use crate::io::{Kind, Object, ObjectKey};
use crate::testing::{NodeExt, PodExt, node, pod, wire};

pub(super) fn topology(levels: &[(&str, &str)]) -> Object {
    let levels: Vec<Value> =
        levels.iter().map(|(name, key)| json!({"name": name, "nodeLabel": key})).collect();
    Object::ClusterTopology(wire(json!({"metadata": {"name": "net"}, "spec": {"levels": levels}})))
}

const LEVELS: &[(&str, &str)] = &[("block", "example.com/block"), ("rack", "example.com/rack")];

/// A node of rack `b1-r2`, block `b1`, with 4 CPUs: room for two members.
pub(super) fn host(name: &str, rack: &str) -> k8s::Node {
    let (block, _) = rack.split_once('-').expect("block-rack");
    node(name).label("example.com/block", block).label("example.com/rack", rack)
}

/// A member that asks for 2 of a node's 4 CPUs.
pub(super) fn member(name: &str, gang: &str) -> k8s::Pod {
    pod(name).req(&[("cpu", "2")]).pod_label("muster.dev/pod-group", gang)
}

/// A pod of nobody's, on a node.
fn filler(name: &str, node: &str) -> k8s::Pod {
    pod(name).req(&[("cpu", "2")]).edit(|p| node.clone_into(&mut p.spec.node_name))
}

/// `racks`: name, nodes, members of nobody's on its first nodes, one each.
pub(super) fn cluster(racks: &[(&str, usize, usize)]) -> Harness {
    let mut h = Harness::new();
    h.object(topology(LEVELS));
    for (rack, nodes, busy) in racks {
        for i in 0..*nodes {
            h.node(host(&format!("{rack}-n{i}"), rack));
        }
        for i in 0..*busy {
            h.pod(filler(&format!("other-{rack}-{i}"), &format!("{rack}-n{i}")));
        }
    }
    h
}

/// Binds what the core asks for and shows it; racks with the number of members bound.
pub(super) fn settle(h: &mut Harness) -> String {
    for effect in h.run_binds() {
        let (name, node) =
            effect.strip_prefix("bind default/").unwrap().split_once(" -> ").unwrap();
        h.bound(name, node);
    }
    h.run();
    spread(h)
}

/// Racks with the number of gang members in them.
pub(super) fn spread(h: &Harness) -> String {
    let mut racks: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for node in h.core.cache_view().nodes {
        let rack = node.name.rsplit_once('-').map_or("", |(rack, _)| rack).to_owned();
        let members = node.pods.iter().filter(|p| !p.contains("/other-")).count();
        *racks.entry(rack).or_default() += members;
    }
    let used = racks.into_iter().filter(|(_, members)| *members > 0);
    used.map(|(rack, members)| format!("{rack}:{members}")).collect::<Vec<_>>().join(" ")
}

fn gang(h: &mut Harness, name: &str, members: usize, topology: &Value) {
    h.object(group(name, &json!({"minMember": members, "topology": topology})));
    for i in 0..members {
        h.pod(member(&format!("{name}-{i:03}"), name));
    }
}

/// `racks`, `members`, `topology`, where they end up; a message if they do not.
fn check(racks: &[(&str, usize, usize)], members: usize, topology: &Value, expect: &str) {
    let mut h = cluster(racks);
    gang(&mut h, "g", members, topology);
    let effects = h.run();
    let said = effects.iter().find_map(|e| e.strip_prefix("group default/g "));
    if let Some(said) = said.filter(|said| said.starts_with("Unschedulable")) {
        assert_eq!(said, expect, "{racks:?} {topology}");
        assert_eq!(spread(&h), "", "nobody has room");
        return;
    }
    assert_eq!(spread(&h), expect, "{racks:?} {topology}");
}

#[test]
fn required_members_are_in_one_domain_the_tightest_that_fits() {
    let rack = json!({"required": "rack"});
    let small = [("b1-r1", 3, 0), ("b1-r2", 2, 0)];
    check(&small, 4, &rack, "b1-r2:4");
    check(&small, 6, &rack, "b1-r1:6");
    // A rack in use is taken before a whole one, though the whole one is tighter.
    check(&[("b1-r1", 3, 1), ("b1-r2", 2, 0)], 4, &rack, "b1-r1:4");
    // A whole rack of a block in use, not of a whole block.
    check(&[("b1-r1", 2, 0), ("b2-r1", 2, 0), ("b2-r2", 2, 4)], 4, &rack, "b2-r1:4");
    // The label itself.
    check(&small, 5, &json!({"required": "example.com/rack"}), "b1-r1:5");
    // As near as possible within what is required: one rack of the block.
    check(&[("b1-r1", 2, 0), ("b1-r2", 2, 0)], 3, &json!({"required": "block"}), "b1-r1:3");
    // As few racks of the block as possible.
    let racks = [("b1-r1", 1, 0), ("b1-r2", 1, 0), ("b1-r3", 2, 0), ("b2-r1", 2, 0)];
    check(&racks, 6, &json!({"required": "block"}), "b1-r1:2 b1-r3:4");
}

#[test]
fn what_cannot_be_says_the_best_domain_and_who_blocks() {
    let rack = json!({"required": "rack"});
    check(
        &[("b1-r1", 2, 1), ("b1-r2", 2, 0)],
        6,
        &rack,
        "Unschedulable: room for 4 of 6 members in the best rack (b1-r2); member g-004: 0/2 nodes \
         are available: 2 Insufficient cpu.",
    );
    check(
        &[("b1-r1", 2, 0)],
        2,
        &json!({"required": "rakc"}),
        "Unschedulable: topology.required: \"rakc\" is neither a level of a ClusterTopology nor a \
         label of any node; levels are block, rack",
    );
    check(
        &[("b1-r1", 2, 0)],
        2,
        &json!({"required": "example.com/zone"}),
        "Unschedulable: there is no example.com/zone: no node has the label example.com/zone, and \
         those of wider levels",
    );
}

#[test]
fn preferred_members_are_as_near_as_there_is_room() {
    let rack = json!({"preferred": "rack"});
    let racks = [("b1-r1", 2, 0), ("b1-r2", 1, 0), ("b2-r1", 2, 0), ("b2-r2", 2, 0)];
    check(&racks, 4, &rack, "b1-r1:4");
    // Not in one rack: in one block, and few racks of it.
    check(&racks, 6, &rack, "b1-r1:4 b1-r2:2");
    check(&racks, 8, &rack, "b2-r1:4 b2-r2:4");
    // Not in one block: in few racks of the cluster.
    check(&racks, 10, &rack, "b1-r2:2 b2-r1:4 b2-r2:4");
    // Up to what is required and no further.
    check(&racks, 8, &json!({"required": "block", "preferred": "rack"}), "b2-r1:4 b2-r2:4");
    check(
        &racks,
        9,
        &json!({"required": "block", "preferred": "rack"}),
        "Unschedulable: room for 8 of 9 members in the best block (b2); member g-008: 0/4 nodes \
         are available: 4 Insufficient cpu.",
    );
}

#[test]
fn a_preferred_level_that_nobody_knows_is_no_reason_to_wait() {
    check(&[("b1-r1", 2, 0)], 3, &json!({"preferred": "rakc"}), "b1-r1:3");
    let both = json!({"required": "rack", "preferred": "tsoh"});
    check(&[("b1-r1", 1, 0), ("b1-r2", 2, 0)], 4, &both, "b1-r2:4");
}

#[test]
fn racks_of_one_name_in_two_blocks_are_two_racks() {
    let mut h = Harness::new();
    h.object(topology(LEVELS));
    for (name, block) in [("n1", "b1"), ("n2", "b2")] {
        h.node(node(name).label("example.com/block", block).label("example.com/rack", "r1"));
    }
    h.node(node("n3").label("example.com/rack", "r1"));
    gang(&mut h, "g", 3, &json!({"required": "rack"}));
    let effects = h.run();
    assert!(effects[0].contains("room for 2 of 3 members in the best rack (r1)"), "{effects:?}");
    // By the label alone they are one.
    h.object(group("g", &json!({"minMember": 3, "topology": {"required": "example.com/rack"}})));
    h.sleep(3);
    assert_eq!(h.run_binds().len(), 3);
}

#[test]
fn late_members_and_replacements_go_where_the_others_are() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 4, 0)]);
    gang(&mut h, "g", 3, &json!({"required": "rack"}));
    assert_eq!(settle(&mut h), "b1-r1:3");
    h.pod(member("g-late", "g"));
    assert_eq!(settle(&mut h), "b1-r1:4");
    // No room where the others are: it waits, though there is room elsewhere.
    h.pod(member("g-more", "g"));
    let effects = h.run();
    let why = "0/2 nodes are available: 2 Insufficient cpu.";
    assert!(effects.iter().any(|e| e.contains(why) && e.contains("g-more")), "{effects:?}");
    assert_eq!(spread(&h), "b1-r1:4");
    // One is lost: whoever waits takes its place, in the same rack.
    h.gone("g-001");
    h.sleep(20);
    assert_eq!(settle(&mut h), "b1-r1:4");
    assert_eq!(h.queue_of("g-more"), "none");
}

#[test]
fn several_lost_members_are_replaced_together_where_the_rest_is() {
    let mut h = cluster(&[("b1-r1", 3, 0), ("b1-r2", 3, 0)]);
    gang(&mut h, "g", 5, &json!({"required": "rack"}));
    assert_eq!(settle(&mut h), "b1-r1:5");
    for name in ["g-001", "g-003"] {
        h.gone(name);
    }
    h.pod(filler("other-in", "b1-r1-n0"));
    for name in ["g-new1", "g-new2"] {
        h.pod(member(name, "g"));
    }
    let effects = h.run();
    let why = "room for 4 of 5 members in rack b1-r1, where the others are; member g-new";
    let others = effects.iter().any(|e| e.contains(why));
    assert!(others || spread(&h) == "b1-r1:5", "{effects:?} {}", spread(&h));
    h.gone("other-in");
    h.sleep(20);
    assert_eq!(settle(&mut h), "b1-r1:5");
}

#[test]
fn a_preferred_late_member_goes_near_if_there_is_room_and_anywhere_if_not() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 1, 0), ("b2-r1", 4, 0)]);
    gang(&mut h, "g", 3, &json!({"preferred": "rack"}));
    assert_eq!(settle(&mut h), "b1-r1:3");
    for (name, expect) in [
        ("g-x1", "b1-r1:4"),
        ("g-x2", "b1-r1:4 b1-r2:1"),
        ("g-x3", "b1-r1:4 b1-r2:2"),
        ("g-x4", "b1-r1:4 b1-r2:2 b2-r1:1"),
    ] {
        h.pod(member(name, "g"));
        assert_eq!(settle(&mut h), expect);
    }
}

#[test]
fn a_label_that_goes_or_comes_is_seen() {
    let mut h = cluster(&[("b1-r1", 2, 0)]);
    gang(&mut h, "g", 4, &json!({"required": "rack"}));
    h.node(node("b1-r1-n1"));
    let effects = h.run();
    assert!(effects[0].contains("room for 2 of 4 members in the best rack"), "{effects:?}");
    // The label comes back: nothing else could wake it.
    h.node(host("b1-r1-n1", "b1-r1"));
    h.run();
    h.sleep(5);
    assert_eq!(settle(&mut h), "b1-r1:4");
}

#[test]
fn levels_that_come_later_wake_whoever_asked_for_them() {
    let mut h = Harness::new();
    h.node(host("b1-r1-n0", "b1-r1"));
    gang(&mut h, "g", 2, &json!({"required": "rack"}));
    let effects = h.run();
    assert!(effects[0].contains("there is no ClusterTopology with levels"), "{effects:?}");
    h.object(topology(LEVELS));
    h.run();
    h.sleep(5);
    assert_eq!(settle(&mut h), "b1-r1:2");
    // Without it a member that comes later has nowhere to go.
    let key = ObjectKey { name: "net".into(), ..ObjectKey::default() };
    h.apply(crate::io::Input::ObjectGone(Kind::ClusterTopology, key));
    h.node(host("b1-r1-n1", "b1-r1"));
    h.pod(member("g-late", "g"));
    let effects = h.run();
    assert!(effects.iter().any(|e| e.contains("neither a level")), "{effects:?}");
}

#[test]
fn members_in_two_domains_are_named_and_nobody_joins_them() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 2, 0)]);
    h.object(group("g", &json!({"minMember": 3, "topology": {"required": "rack"}})));
    for (name, node) in [("g-1", "b1-r1-n0"), ("g-2", "b1-r2-n0")] {
        h.pod(member(name, "g").edit(|p| node.clone_into(&mut p.spec.node_name)));
    }
    h.pod(member("g-3", "g"));
    let effects = h.run();
    let why = "members are in rack b1-r1 and in rack b1-r2, and must be in one rack: those in one \
               of them have to go";
    assert!(effects.iter().any(|e| e.contains(why)), "{effects:?}");
}

#[test]
fn the_domain_is_told_once_the_gang_is_placed() {
    let mut h = cluster(&[("b1-r1", 2, 0)]);
    gang(&mut h, "g", 4, &json!({"required": "rack"}));
    let mut domains = Vec::new();
    for _ in 0..50 {
        let more = h.core.schedule_one(h.now).is_some();
        for effect in h.core.take_effects() {
            if let crate::io::Effect::Group(says) = effect {
                domains.extend(says.domain);
            }
        }
        if !more {
            break;
        }
    }
    let [domain] = domains.as_slice() else { panic!("{domains:?}") };
    let shown = (domain.level.as_str(), domain.key.as_str(), domain.value.as_str());
    assert_eq!(shown, ("rack", "example.com/rack", "b1-r1"));
}

#[test]
fn kubernetes_own_groups_have_their_label_honoured() {
    let mut h = cluster(&[("b1-r1", 1, 0), ("b1-r2", 2, 0)]);
    h.object(Object::NativePodGroup(wire(json!({
        "metadata": {"name": "n", "namespace": "default", "uid": "u"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
        },
    }))));
    for name in ["a", "b", "c"] {
        let group = k8s::SchedulingGroup { pod_group_name: Some("n".into()) };
        h.pod(pod(name).req(&[("cpu", "2")]).edit(|p| p.spec.scheduling_group = Some(group)));
    }
    h.run();
    assert_eq!(spread(&h), "b1-r2:3");
}

#[test]
fn roles_have_domains_of_their_own_within_their_gangs() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 2, 0), ("b2-r1", 3, 0)]);
    let role = |name: &str, min: i32| {
        json!({
            "name": name, "minMember": min, "topology": {"required": "rack"},
            "selector": {"matchLabels": {"role": name}},
        })
    };
    let spec = json!({
        "minMember": 7, "topology": {"required": "block"},
        "roles": [role("prefill", 4), role("decode", 3)],
    });
    h.object(group("g", &spec));
    for i in 0..7 {
        let role = if i < 4 { "prefill" } else { "decode" };
        h.pod(member(&format!("g-{i}"), "g").pod_label("role", role));
    }
    h.run();
    assert_eq!(spread(&h), "b1-r1:4 b1-r2:3");
}

#[test]
fn a_gang_that_asks_for_nothing_has_what_its_policy_asks_for() {
    let racks = [("b1-r1", 2, 1), ("b1-r2", 1, 0), ("b2-r1", 3, 0)];
    let rack = json!({"priority": 1, "topology": {"required": "rack"}});
    let members = |h: &mut Harness, spec: &Value| {
        h.object(group("g", spec));
        for i in 0..4 {
            h.pod(member(&format!("g-{i}"), "g"));
        }
    };
    let mut h = cluster(&racks);
    h.object(policy("p", &rack));
    members(&mut h, &json!({"minMember": 4}));
    assert_eq!(settle(&mut h), "b2-r1:4");
    // The group's own word counts.
    let small = [("b1-r1", 1, 0), ("b1-r2", 1, 0)];
    let mut h = cluster(&small);
    h.object(policy("p", &rack));
    members(&mut h, &json!({"minMember": 4, "topology": {"required": "block"}}));
    assert_eq!(settle(&mut h), "b1-r1:2 b1-r2:2");
    // It ends with the policy, and what waits is tried again.
    let mut h = cluster(&small);
    h.object(policy("p", &rack));
    members(&mut h, &json!({"minMember": 4}));
    assert_eq!(settle(&mut h), "");
    h.sleep(10);
    let key = ObjectKey { name: "p".into(), ..ObjectKey::default() };
    h.apply(crate::io::Input::ObjectGone(Kind::SchedulingPolicy, key));
    assert_eq!(settle(&mut h), "b1-r1:2 b1-r2:2");
}

#[test]
fn members_that_differ_are_in_one_domain_too() {
    let mut h = cluster(&[("b1-r1", 1, 0), ("b1-r2", 2, 0), ("b2-r1", 3, 1)]);
    h.object(group("g", &json!({"minMember": 4, "topology": {"required": "rack"}})));
    let launcher = pod("g-launcher").req(&[("cpu", "1")]);
    h.pod(launcher.pod_label("muster.dev/pod-group", "g"));
    for i in 0..3 {
        h.pod(member(&format!("g-{i}"), "g"));
    }
    // 1 + 3 * 2 CPUs: rack b1-r1 has 4, b1-r2 has 8 and nobody uses it, b2-r1 has 10 left.
    h.run();
    assert_eq!(spread(&h), "b2-r1:4");
}

#[test]
fn pods_of_one_controller_are_near_each_other_if_a_policy_says_so() {
    let owned = |name: &str, owner: &str| {
        pod(name).req(&[("cpu", "2")]).edit(|p| {
            let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner,
                "uid": format!("uid-{owner}"), "controller": true}]);
            p.metadata.owner_references = serde_json::from_value(owner).expect("owners");
        })
    };
    let racks = [("b1-r1", 2, 0), ("b1-r2", 2, 0), ("b2-r1", 4, 0), ("b2-r2", 4, 0)];
    let mut h = cluster(&racks);
    h.object(policy("p", &json!({"priority": 1, "topology": {"preferred": "rack"}})));
    h.pod(owned("web-00", "web").edit(|p| "b1-r1-n0".clone_into(&mut p.spec.node_name)));
    // Local first: the rack, then the block, then anywhere.
    for (i, expect) in [
        (1, "b1-r1:2"),
        (2, "b1-r1:3"),
        (3, "b1-r1:4"),
        (4, "b1-r1:4 b1-r2:1"),
        (5, "b1-r1:4 b1-r2:2"),
    ] {
        h.pod(owned(&format!("web-{i:02}"), "web"));
        assert_eq!(settle(&mut h), expect);
    }
    for i in 6..9 {
        h.pod(owned(&format!("web-{i:02}"), "web"));
        settle(&mut h);
    }
    let all = spread(&h);
    assert!(all.starts_with("b1-r1:4 b1-r2:4 b2-"), "nobody waits: {all}");
    // Without the policy it is up to the scores: the emptiest node.
    let key = ObjectKey { name: "p".into(), ..ObjectKey::default() };
    h.apply(crate::io::Input::ObjectGone(Kind::SchedulingPolicy, key));
    for i in 0..4 {
        h.pod(owned(&format!("db-{i:02}"), "db"));
        settle(&mut h);
    }
    let all = spread(&h);
    assert!(all.contains("b2-r1:") && all.contains("b2-r2:"), "{all}");
}

#[test]
fn what_is_required_of_gangs_is_preferred_of_other_pods() {
    let owned = |name: &str| {
        pod(name).req(&[("cpu", "2")]).edit(|p| {
            let owner = json!([{"kind": "Job", "name": "j", "uid": "u", "controller": true}]);
            p.metadata.owner_references = serde_json::from_value(owner).expect("owners");
        })
    };
    for topology in [json!({"required": "rack"}), json!({"required": "rakc", "preferred": "rack"})]
    {
        let mut h = cluster(&[("b1-r1", 1, 0), ("b1-r2", 1, 0)]);
        h.object(policy("p", &json!({"priority": 1, "topology": topology})));
        for i in 0..3 {
            h.pod(owned(&format!("j-{i}")));
            settle(&mut h);
        }
        let all = spread(&h);
        assert!(["b1-r1:1 b1-r2:2", "b1-r1:2 b1-r2:1"].contains(&all.as_str()), "{all}");
    }
}
