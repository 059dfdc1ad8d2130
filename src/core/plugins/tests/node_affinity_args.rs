//! NodeAffinity's `addedAffinity`.

use serde_json::{Value, json};

use super::node_affinity::{preferred, required};
use super::{judge, on_add, on_update, rate};
use crate::framework::Hint;
use crate::plugins::{NodeAffinity, NodeAffinityArgs};
use crate::testing::{NodeExt, PodExt, cluster, node, pod, wire};

fn with(added: Value) -> Result<NodeAffinity, String> {
    let args = NodeAffinityArgs { added_affinity: Some(wire(added)) };
    NodeAffinity::new(&args).map_err(|e| e.to_string())
}

fn in_zone(zone: &str) -> Value {
    json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]})
}

#[test]
fn added_terms_bind_every_pod_before_its_own() {
    const ENFORCED: &str = "UU: node(s) didn't match scheduler-enforced node affinity";
    const OWN: &str = "UU: node(s) didn't match Pod's node affinity/selector";
    let plugin = with(required(json!([in_zone("a")]))).unwrap();
    let nodes = || {
        let rack =
            |n: &str, zone: &str, rack: &str| node(n).label("zone", zone).label("rack", rack);
        cluster([rack("a1", "a", "1"), rack("a2", "a", "2"), rack("b1", "b", "1")])
    };
    let table = [
        ("a pod that asks for nothing", pod("p"), ["ok", "ok", ENFORCED]),
        ("a pod with a selector", pod("p").node_selector("rack", "1"), ["ok", OWN, ENFORCED]),
    ];
    for (row, pod, expected) in table {
        assert_eq!(judge(&plugin, &mut nodes(), &pod), expected, "{row}");
    }
}

#[test]
fn added_wishes_are_scored_with_the_pods_own() {
    let plugin = with(preferred(json!([{"weight": 10, "preference": in_zone("a")}]))).unwrap();
    let nodes = || cluster([node("a").label("zone", "a"), node("b").label("zone", "b")]);
    // Raw 10, 0.
    assert_eq!(rate(&plugin, &mut nodes(), &pod("p")), Ok(vec![100, 0]));
    // Raw 10, 40: 100*10/40 = 25.
    let own =
        pod("p").node_affinity(preferred(json!([{"weight": 40, "preference": in_zone("b")}])));
    assert_eq!(rate(&plugin, &mut nodes(), &own), Ok(vec![25, 100]));
}

#[test]
fn a_node_outside_the_added_terms_wakes_nobody() {
    let plugin = with(required(json!([in_zone("a")]))).unwrap();
    let (a, b) = (node("n").label("zone", "a"), node("n").label("zone", "b"));
    assert_eq!(on_add(&plugin, &pod("p"), &a), Hint::Queue);
    assert_eq!(on_add(&plugin, &pod("p"), &b), Hint::Skip);
    // Upstream skips this one: there only the pod's own terms decide whether it matched
    // before, and a pod without terms always did.
    assert_eq!(on_update(&plugin, &pod("p"), &b, &a), Hint::Queue);
}

#[test]
fn added_affinity_that_cannot_be_parsed_is_refused() {
    let bad = json!({"matchExpressions": [{"key": "zone", "operator": "Like"}]});
    let operators =
        "supported values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\"";
    let table = [
        (
            "required",
            required(json!([in_zone("a"), bad])),
            format!(
                "NodeAffinity: addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: \
                 nodeSelectorTerms[1].matchExpressions[0].operator: Unsupported value: \"Like\": \
                 {operators}"
            ),
        ),
        (
            "preferred",
            preferred(json!([{"weight": 1, "preference": bad}])),
            format!(
                "NodeAffinity: addedAffinity.preferredDuringSchedulingIgnoredDuringExecution: \
                 [0].matchExpressions[0].operator: Unsupported value: \"Like\": {operators}"
            ),
        ),
        (
            "a key no label can have",
            required(json!([{"matchExpressions": [{"key": "/x", "operator": "Exists"}]}])),
            "NodeAffinity: addedAffinity.requiredDuringSchedulingIgnoredDuringExecution: \
             nodeSelectorTerms[0].matchExpressions[0].key: Invalid value: \"/x\": prefix part must \
             be non-empty"
                .to_owned(),
        ),
    ];
    for (row, added, expected) in table {
        assert_eq!(with(added).err(), Some(expected), "{row}");
    }
    assert!(with(preferred(json!([{"weight": 0, "preference": bad}]))).is_ok(), "never used");
}
