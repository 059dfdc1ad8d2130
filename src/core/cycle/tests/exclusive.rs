//! Gangs that have a domain for themselves.

use serde_json::json;

use super::gang::group;
use super::harness::Harness;
use super::topology::{cluster, host, member, settle};

fn gang(h: &mut Harness, name: &str, members: usize, topology: Option<serde_json::Value>) {
    let mut spec = json!({"minMember": members});
    if let Some(topology) = topology {
        spec["topology"] = topology;
    }
    h.object(group(name, &spec));
    for i in 0..members {
        h.pod(member(&format!("{name}-{i:03}"), name));
    }
}

fn alone() -> Option<serde_json::Value> {
    Some(json!({"required": "rack", "exclusive": true}))
}

#[test]
fn an_exclusive_gang_enters_no_domain_where_another_is() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 3, 1)]);
    gang(&mut h, "a", 2, Some(json!({"required": "rack"})));
    assert_eq!(settle(&mut h), "b1-r2:2", "a rack in use before a whole one");
    // r1 has room for 4, and r2 for 3 more: the other gang is there.
    gang(&mut h, "x", 3, alone());
    assert_eq!(settle(&mut h), "b1-r1:3 b1-r2:2");
    // Pods of no gang are no concern, neither way.
    h.pod(crate::testing::PodExt::req(crate::testing::pod("other-1"), &[("cpu", "2")]));
    for effect in h.run_binds() {
        assert!(effect.starts_with("bind default/other-1"), "{effect}");
    }
}

#[test]
fn no_other_gang_enters_a_domain_that_is_held() {
    let mut h = cluster(&[("b1-r1", 3, 0)]);
    gang(&mut h, "x", 2, alone());
    assert_eq!(settle(&mut h), "b1-r1:2");
    for (name, topology) in [("a", None), ("b", Some(json!({"required": "rack"}))), ("y", alone())]
    {
        gang(&mut h, name, 2, topology);
        let effects = h.run();
        let why = "gang default/x has rack b1-r1 for itself";
        let told = effects
            .iter()
            .any(|e| e.contains(&format!("group default/{name} ")) && e.contains(why));
        let other = effects.iter().any(|e| e.contains("it wants a rack for itself (exclusive)"));
        assert!(told || name == "y" && other, "{name}: {effects:?}");
    }
    // Its own late member has room there.
    h.pod(member("x-late", "x"));
    assert_eq!(settle(&mut h), "b1-r1:3");
    // The last of its members goes: somebody else has the rack.
    for name in ["x-000", "x-001", "x-late"] {
        h.gone(name);
    }
    h.sleep(20);
    assert!(settle(&mut h).starts_with("b1-r1:"), "whoever waited has room");
}

#[test]
fn what_waits_for_a_domain_of_its_own_is_woken_by_the_last_to_leave() {
    let mut h = cluster(&[("b1-r1", 3, 0)]);
    gang(&mut h, "a", 1, None);
    assert_eq!(settle(&mut h), "b1-r1:1");
    gang(&mut h, "x", 2, alone());
    let effects = h.run();
    let why = "no rack is open to it: it wants a rack for itself (exclusive), and other gangs are \
               in 1 of 1, such as gang default/a in b1-r1";
    assert!(effects.iter().any(|e| e.contains(why)), "{effects:?}");
    h.gone("a-000");
    h.sleep(20);
    assert_eq!(settle(&mut h), "b1-r1:2");
}

#[test]
fn a_late_member_of_another_gang_goes_elsewhere() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 2, 0)]);
    gang(&mut h, "x", 1, alone());
    assert_eq!(settle(&mut h), "b1-r1:1");
    gang(&mut h, "a", 1, None);
    assert_eq!(settle(&mut h), "b1-r1:1 b1-r2:1");
    for i in 0..4 {
        h.pod(member(&format!("a-late{i}"), "a"));
    }
    assert_eq!(settle(&mut h), "b1-r1:1 b1-r2:4");
    let effects = h.run();
    h.sleep(400);
    let effects = [effects, h.run()].concat();
    let told = effects.iter().any(|e| e.contains("has rack b1-r1 for itself"));
    assert!(told || effects.is_empty(), "{effects:?}");
}

#[test]
fn a_role_has_a_domain_for_itself_within_its_own_gang() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 2, 0)]);
    gang(&mut h, "a", 1, None);
    let first = settle(&mut h);
    let role = json!({
        "name": "decode", "minMember": 2, "selector": {"matchLabels": {"role": "decode"}},
        "topology": {"required": "rack", "exclusive": true},
    });
    h.object(group("x", &json!({"minMember": 4, "roles": [role]})));
    for i in 0..4 {
        let pod = member(&format!("x-{i}"), "x");
        let role = if i < 2 { "decode" } else { "prefill" };
        h.pod(crate::testing::PodExt::pod_label(pod, "role", role));
    }
    settle(&mut h);
    let decode: Vec<String> = h
        .core
        .cache_view()
        .nodes
        .into_iter()
        .filter(|n| n.pods.iter().any(|p| p.ends_with("x-0") || p.ends_with("x-1")))
        .map(|n| n.name.rsplit_once('-').unwrap().0.to_owned())
        .collect();
    assert!(!decode.is_empty(), "the gang is seated");
    assert!(decode.iter().all(|rack| !first.contains(rack.as_str())), "{first} {decode:?}");
}

#[test]
fn a_domain_that_came_to_be_shared_is_not_bound_to() {
    let mut h = cluster(&[("b1-r1", 2, 0), ("b1-r2", 1, 0)]);
    gang(&mut h, "a", 2, None);
    settle(&mut h);
    gang(&mut h, "x", 2, alone());
    settle(&mut h);
    // A node of the other gang is moved into the rack: who runs is left alone.
    for name in ["b1-r1-n0", "b1-r1-n1", "b1-r2-n0"] {
        h.node(host(name, "b1-r1"));
    }
    h.pod(member("x-late", "x"));
    let effects = h.run();
    let why = "it wants a rack for itself (exclusive)";
    assert!(effects.iter().any(|e| e.contains(why)), "{effects:?}");
}

#[test]
fn a_domain_is_open_once_the_node_of_its_last_gang_is_gone() {
    let mut h = cluster(&[("b1-r1", 2, 0)]);
    gang(&mut h, "a", 1, None);
    settle(&mut h);
    gang(&mut h, "x", 2, alone());
    assert_eq!(settle(&mut h), "b1-r1:1");
    let nodes = h.core.cache_view().nodes;
    let busy = nodes.iter().find(|n| !n.pods.is_empty()).expect("a member").name.clone();
    h.node_gone(&busy);
    h.sleep(20);
    // The pod is still there, on a node that is not.
    assert_eq!(h.run_binds().len(), 2);
}
