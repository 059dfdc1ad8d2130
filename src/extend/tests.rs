//! What goes over the wire, byte by byte as upstream's Go types have it, and what is
//! made of answers.

use std::sync::Arc;

use muster_core::io::{ExtenderReply, NodeVictims, PodRef};
use serde_json::value::RawValue;

use super::wire::*;
use super::{ExtenderId, config, ignored_resources, pods, spec};

fn raw(text: &str) -> Arc<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap().into()
}

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

#[test]
fn questions_are_written_as_go_writes_them() {
    let whole = raw(r#"{"metadata":{"name":"p"}}"#);
    let (names, nodes) = (["n1".into(), "n2".into()], [raw(r#"{"metadata":{"name":"n1"}}"#)]);
    let by_name = Args { pod: &whole, nodes: None, node_names: Some(&names) };
    assert_eq!(
        serde_json::to_string(&by_name).unwrap(),
        r#"{"Pod":{"metadata":{"name":"p"}},"Nodes":null,"NodeNames":["n1","n2"]}"#
    );
    let whole_nodes = Args { pod: &whole, nodes: Some(NodeList::new(&nodes)), node_names: None };
    assert_eq!(
        serde_json::to_string(&whole_nodes).unwrap(),
        r#"{"Pod":{"metadata":{"name":"p"}},"Nodes":{"metadata":{},"items":[{"metadata":{"name":"n1"}}]},"NodeNames":null}"#
    );
    let victims = [NodeVictims { node: "n1".into(), pods: vec![pod("v")], violations: 2 }];
    let preempt = PreemptionArgs {
        pod: &whole,
        node_name_to_victims: None,
        node_name_to_meta_victims: Some(meta_victims(&victims)),
    };
    assert_eq!(
        serde_json::to_string(&preempt).unwrap(),
        r#"{"Pod":{"metadata":{"name":"p"}},"NodeNameToVictims":null,"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"uid-v"}],"NumPDBViolations":2}}}"#
    );
    let full = Victims { pods: vec![raw(r#"{"kind":"Pod"}"#)], violations: 0 };
    let preempt = PreemptionArgs {
        pod: &whole,
        node_name_to_victims: Some([("n1", full)].into()),
        node_name_to_meta_victims: None,
    };
    assert_eq!(
        serde_json::to_string(&preempt).unwrap(),
        r#"{"Pod":{"metadata":{"name":"p"}},"NodeNameToVictims":{"n1":{"Pods":[{"kind":"Pod"}],"NumPDBViolations":0}},"NodeNameToMetaVictims":null}"#
    );
    assert_eq!(
        serde_json::to_string(&BindingArgs::new(&pod("p"), "n1")).unwrap(),
        r#"{"PodName":"p","PodNamespace":"ns","PodUID":"uid-p","Node":"n1"}"#
    );
}

fn show(reply: Result<ExtenderReply, serde_json::Error>) -> String {
    match reply {
        Ok(ExtenderReply::Filtered { nodes, failed, unresolvable }) => {
            format!("{} / {failed:?} / {unresolvable:?}", nodes.join(" "))
        }
        Ok(other) => format!("{other:?}"),
        Err(wrong) => wrong.to_string(),
    }
}

#[test]
fn a_filters_answer_is_read_as_go_reads_it() {
    let cases = [
        (
            true,
            r#"{"NodeNames":["a","b"],"FailedNodes":{"c":"no"}}"#,
            r#"a b / [("c", "no")] / []"#,
        ),
        // Names in any case, nulls, what is not known, what follows.
        (
            true,
            r#"{"nodenames":["a"],"failedNodes":null,"extra":1,"failedAndUnresolvableNodes":{"d":"never"}} trailing"#,
            r#"a / [] / [("d", "never")]"#,
        ),
        // Asked by name, an extender may still answer by nodes, not the other way round.
        (true, r#"{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#, "a / [] / []"),
        (false, r#"{"Nodes":{"items":[{"metadata":{"name":"a"}},{}]}}"#, "a  / [] / []"),
        (false, r#"{"NodeNames":["a"]}"#, " / [] / []"),
        (true, r#"{"NodeNames":[],"Nodes":{"items":[{"metadata":{"name":"a"}}]}}"#, " / [] / []"),
        (true, r#"{"NodeNames":null}"#, " / [] / []"),
        (true, "null", " / [] / []"),
        (
            true,
            r#"{"Error":"broken","NodeNames":["a"]}"#,
            r#"Failed { error: "broken", in_doubt: false }"#,
        ),
        (true, r#"{"Error":""}"#, " / [] / []"),
        (true, "", "EOF while parsing a value at line 1 column 0"),
        (true, "<html>", "expected value at line 1 column 1"),
    ];
    for (by_name, body, expected) in cases {
        assert_eq!(show(filter_result(body.as_bytes(), by_name)), expected, "{body}");
    }
    assert!(filter_result(br#"{"NodeNames":[1]}"#, true).is_err());
    assert!(filter_result(b"[]", true).is_err());
}

#[test]
fn scores_victims_and_binds_are_read_as_go_reads_them() {
    let list = |body: &str| match scores(body.as_bytes()) {
        Ok(list) => list.iter().map(|(n, s)| format!("{n}={s}")).collect::<Vec<_>>().join(" "),
        Err(_) => "malformed".to_owned(),
    };
    let cases = [
        (r#"[{"Host":"a","Score":7},{"host":"b","score":-3}]"#, "a=7 b=-3"),
        (r#"[{"Host":"a"},{"Score":1},null]"#, "a=0 =1 =0"),
        (r#"[{"Host":"a","Score":9223372036854775807}]"#, "a=9223372036854775807"),
        (r#"[{"Host":"a","Score":9223372036854775808}]"#, "malformed"),
        (r#"[{"Host":"a","Score":1.5}]"#, "malformed"),
        (r#"[{"Host":"a","Score":"7"}]"#, "malformed"),
        ("null", ""),
        ("{}", "malformed"),
    ];
    for (body, expected) in cases {
        assert_eq!(list(body), expected, "{body}");
    }
    let victims = r#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u"},null],"NumPDBViolations":1},"m":null}}"#;
    assert_eq!(
        show(preemption_result(victims.as_bytes())),
        r#"Preempted([("m", [], 0), ("n", ["u", ""], 1)])"#
    );
    assert_eq!(show(preemption_result(b"{}")), "Preempted([])");
    assert_eq!(show(binding_result(b"{}")), "Bound");
    assert_eq!(
        show(binding_result(br#"{"error":"taken"}"#)),
        r#"Failed { error: "taken", in_doubt: false }"#
    );
}

#[test]
fn objects_lose_their_managed_fields_and_nothing_else() {
    let body =
        br#"{"kind":"Node","metadata":{"name":"n","uid":"u","managedFields":[{"a":1}],"x":null},
                    "spec":{"future":[1, 2]}}"#;
    let (text, uid) = pods::trimmed(body).unwrap();
    assert_eq!(uid, "u");
    assert_eq!(
        text.get(),
        r#"{"kind":"Node","metadata":{"name":"n","uid":"u","x":null},"spec":{"future":[1, 2]}}"#
    );
    assert!(pods::trimmed(b"[]").is_err());
}

#[test]
fn the_core_is_told_what_is_configured() {
    let resource = |name: &str, ignored_by_scheduler| config::ManagedResource {
        name: name.to_owned(),
        ignored_by_scheduler,
    };
    let extender = config::Extender {
        url_prefix: "http://e".to_owned(),
        filter_verb: "f".to_owned(),
        bind_verb: "b".to_owned(),
        weight: 3,
        managed_resources: vec![resource("e.com/a", true), resource("e.com/b", false)],
        ..config::Extender::default()
    };
    let spec = spec(ExtenderId(0), &extender);
    assert_eq!((&*spec.name, spec.weight, spec.ignorable), ("http://e", 3, false));
    assert_eq!(
        (spec.filters, spec.prioritizes, spec.preempts, spec.binds),
        (true, false, false, true)
    );
    assert_eq!(spec.managed.len(), 2);
    assert_eq!(ignored_resources(&[extender]), ["e.com/a"]);
}
