//! NodeAffinity: `nodeSelector`, required and preferred terms.
#![allow(clippy::needless_pass_by_value, reason = "`json!` literals go in as they are")]

use serde_json::{Value, json};

use super::{judge, on_add, on_update, rate, registration};
use crate::framework::{Actions, Hint, Plugin, Resource};
use crate::plugins::{NodeAffinity, NodeAffinityArgs};
use crate::testing::{NodeExt, PodExt, cluster, node, pod};

const NO: &str = "UU: node(s) didn't match Pod's node affinity/selector";

fn plugin() -> NodeAffinity {
    NodeAffinity::new(&NodeAffinityArgs::default()).unwrap()
}

pub(super) fn required(terms: Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
}

pub(super) fn preferred(terms: Value) -> Value {
    json!({"preferredDuringSchedulingIgnoredDuringExecution": terms})
}

fn labels(list: Value) -> Value {
    json!({"matchExpressions": list})
}

/// One required term with one requirement on labels.
fn one(key: &str, operator: &str, values: Value) -> Value {
    required(json!([labels(json!([{"key": key, "operator": operator, "values": values}]))]))
}

/// One required term with requirements on fields.
fn fields(list: Value) -> Value {
    json!({"matchFields": list})
}

fn named(operator: &str, values: Value) -> Value {
    json!({"key": "metadata.name", "operator": operator, "values": values})
}

#[test]
fn a_node_must_match_selector_and_required_terms() {
    let zone_a = || labels(json!([{"key": "zone", "operator": "In", "values": ["a"]}]));
    let bad = || labels(json!([{"key": "zone", "operator": "Like", "values": ["a"]}]));
    let table = [
        ("In, the value is listed", one("zone", "In", json!(["b", "a"])), "ok"),
        ("In, the value is not listed", one("zone", "In", json!(["b"])), NO),
        ("In, the node has no such label", one("rack", "In", json!(["a"])), NO),
        ("NotIn, the value is listed", one("zone", "NotIn", json!(["a"])), NO),
        ("NotIn, the node has no such label", one("rack", "NotIn", json!(["a"])), "ok"),
        ("Exists", one("zone", "Exists", json!([])), "ok"),
        ("Exists, no such label", one("rack", "Exists", json!([])), NO),
        ("DoesNotExist", one("rack", "DoesNotExist", json!([])), "ok"),
        ("DoesNotExist, but it does", one("zone", "DoesNotExist", json!([])), NO),
        ("Gt, greater", one("gpus", "Gt", json!(["7"])), "ok"),
        ("Gt, equal is not greater", one("gpus", "Gt", json!(["8"])), NO),
        ("Lt, less", one("gpus", "Lt", json!(["9"])), "ok"),
        ("Gt, the label is no number", one("zone", "Gt", json!(["0"])), NO),
        ("Gt, no such label", one("rack", "Gt", json!(["0"])), NO),
        ("no terms match nothing", required(json!([])), NO),
        ("an empty term matches nothing", required(json!([{}])), NO),
        ("an empty term beside a good one", required(json!([{}, zone_a()])), "ok"),
        ("a term that cannot be parsed matches nothing", required(json!([bad()])), NO),
        (
            "a term that cannot be parsed beside a good one",
            required(json!([bad(), zone_a()])),
            "ok",
        ),
        ("In without values cannot be parsed", one("zone", "In", json!([])), NO),
        ("Exists with values cannot be parsed", one("zone", "Exists", json!(["a"])), NO),
        ("Gt with two values cannot be parsed", one("gpus", "Gt", json!(["1", "2"])), NO),
        ("Gt with a word cannot be parsed", one("gpus", "Gt", json!(["few"])), NO),
        (
            "a field other than the name reads as empty",
            required(json!([fields(
                json!([{"key": "spec.x", "operator": "NotIn", "values": ["v"]}])
            )])),
            "ok",
        ),
        ("NotIn on the name", required(json!([fields(json!([named("NotIn", json!(["n"]))]))])), NO),
        (
            "In with two names cannot be parsed",
            required(json!([fields(json!([named("NotIn", json!(["x", "y"]))]))])),
            NO,
        ),
        (
            "requirements of a term are ANDed",
            required(json!([labels(json!([
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "rack", "operator": "Exists"}]))])),
            NO,
        ),
    ];
    let here = || cluster([node("n").label("zone", "a").label("gpus", "8")]);
    for (row, affinity, expected) in table {
        let got = judge(&plugin(), &mut here(), &pod("p").node_affinity(affinity));
        assert_eq!(got, [expected], "{row}");
    }
    let table = [
        ("nothing asked", pod("p"), "skip"),
        ("only wishes", pod("p").node_affinity(preferred(json!([]))), "skip"),
        ("the selector matches", pod("p").node_selector("zone", "a"), "ok"),
        ("the selector does not", pod("p").node_selector("zone", "b"), NO),
        (
            "the selector matches and the terms do not",
            pod("p").node_selector("zone", "a").node_affinity(one("zone", "In", json!(["b"]))),
            NO,
        ),
    ];
    for (row, pod, expected) in table {
        assert_eq!(judge(&plugin(), &mut here(), &pod), [expected], "{row}");
    }
}

#[test]
fn terms_that_pin_names_narrow_the_nodes() {
    let in_ = |names| named("In", json!([names]));
    let table = [
        (
            "one name",
            required(json!([fields(json!([in_("b")]))])),
            vec!["outside", "ok", "outside"],
        ),
        (
            "terms are ORed",
            required(json!([fields(json!([in_("b")])), fields(json!([in_("c")]))])),
            vec!["outside", "ok", "ok"],
        ),
        (
            "one term without a name lifts the pin",
            required(json!([
                fields(json!([in_("b")])),
                labels(json!([{"key": "zone", "operator": "Exists"}]))
            ])),
            vec![NO, "ok", NO],
        ),
        (
            "names within a term are ANDed: none is left",
            required(json!([fields(json!([in_("b"), in_("c")]))])),
            vec!["rejected UU: pod affinity terms conflict"],
        ),
        (
            "a pinned node must still match the labels of its term",
            required(json!([{
                "matchFields": [in_("b")],
                "matchExpressions": [{"key": "zone", "operator": "Exists"}],
            }])),
            vec!["outside", NO, "outside"],
        ),
    ];
    for (row, affinity, expected) in table {
        let mut nodes = cluster([node("a"), node("b"), node("c")]);
        let got = judge(&plugin(), &mut nodes, &pod("p").node_affinity(affinity));
        assert_eq!(got, expected, "{row}");
    }
}

#[test]
fn matching_wishes_add_their_weights() {
    let wish = |weight: i32, zone: &str| {
        let term = labels(json!([{"key": "zone", "operator": "In", "values": [zone]}]));
        json!({"weight": weight, "preference": term})
    };
    let any =
        json!({"weight": 10, "preference": labels(json!([{"key": "zone", "operator": "Exists"}]))});
    let empty = json!({"weight": 50, "preference": {}});
    let bad =
        json!({"weight": 5, "preference": labels(json!([{"key": "zone", "operator": "Like"}]))});
    let weightless = json!({"weight": 0, "preference": bad["preference"]});
    let nodes = || [node("a").label("zone", "a"), node("b").label("zone", "b"), node("c")];
    let table = [
        // Raw 30, 0, 0; max 30.
        ("one wish", json!([wish(30, "a")]), Ok(vec![100, 0, 0])),
        // Raw 30+10, 20+10, 0; max 40: 100*30/40 = 75.
        ("wishes add up", json!([wish(30, "a"), wish(20, "b"), any]), Ok(vec![100, 75, 0])),
        // Raw 3, 1, 0; max 3: 100*1/3 = 33.
        ("quotients are cut", json!([wish(3, "a"), wish(1, "b")]), Ok(vec![100, 33, 0])),
        ("no node matches: all stay 0", json!([wish(5, "z")]), Ok(vec![0, 0, 0])),
        ("an empty preference matches nothing", json!([empty]), Ok(vec![0, 0, 0])),
        ("an empty list of wishes is still scored", json!([]), Ok(vec![0, 0, 0])),
        ("a weight of 0 is not even parsed", json!([weightless]), Ok(vec![0, 0, 0])),
        (
            "a wish that cannot be parsed is an error",
            json!([wish(5, "a"), bad]),
            Err("Error: [1].matchExpressions[0].operator: Unsupported value: \"Like\": supported \
                 values: \"In\", \"NotIn\", \"Exists\", \"DoesNotExist\", \"Gt\", \"Lt\""
                .to_owned()),
        ),
    ];
    for (row, wishes, expected) in table {
        let pod = pod("p").node_affinity(preferred(wishes));
        assert_eq!(rate(&plugin(), &mut cluster(nodes()), &pod), expected, "{row}");
    }
    assert_eq!(rate(&plugin(), &mut cluster(nodes()), &pod("p")), Err("skip".into()));
}

#[test]
fn only_a_change_from_unmatched_to_matched_wakes_a_pod() {
    let plugin = plugin();
    let events = [registration(Resource::Node, Actions::ADD | Actions::UPDATE_NODE_LABEL)];
    assert_eq!(plugin.events(), events);
    let (a, b) = (node("n").label("zone", "a"), node("n").label("zone", "b"));
    let wants_a = pod("p").node_selector("zone", "a");
    assert_eq!(on_add(&plugin, &wants_a, &a), Hint::Queue, "a node that matches joins");
    assert_eq!(on_add(&plugin, &wants_a, &b), Hint::Skip, "a node that does not match joins");
    assert_eq!(on_update(&plugin, &wants_a, &b, &a), Hint::Queue, "it matches now");
    assert_eq!(on_update(&plugin, &wants_a, &a, &b), Hint::Skip, "it no longer matches");
    let more = a.clone().label("rack", "1");
    assert_eq!(on_update(&plugin, &wants_a, &a, &more), Hint::Skip, "it matched before");
}
