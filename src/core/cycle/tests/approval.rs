//! ExternalApproval: a condition decides, or a server.

use std::sync::Arc;

use muster_api::k8s;
use serde_json::{Value, json};

use super::harness::{Harness, check};
use crate::audit::Audited;
use crate::framework::{PluginArgs, Profile, Registry};
use crate::io::{Change, Effect, Input, Reply, Request, Tick, Token};
use crate::report::Observation;
use crate::testing::{NodeExt as _, PodExt as _, SCHEDULER, node, pod};
use crate::{Config, Outcome};

const URL: &str = "http://127.0.0.1:9/approve";

fn plugin_args(args: &Value) -> PluginArgs {
    let custom = [("ExternalApproval".to_owned(), args.clone())].into();
    PluginArgs { custom, ..PluginArgs::default() }
}

fn profile(args: &Value) -> Profile {
    let made = Registry::in_tree().make("ExternalApproval", &plugin_args(args));
    Profile::default_named(SCHEDULER).with_plugin(made.expect("good arguments"), 0)
}

fn harness(args: &Value) -> Harness {
    let mut h = Harness::with(profile(args));
    h.node(node("n1"));
    h
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> k8s::PodCondition {
    let (kind, status) = (kind.to_owned(), status.to_owned());
    k8s::PodCondition { kind, status, reason: reason.to_owned(), message: message.to_owned() }
}

/// Sets or replaces a condition of a pod as last sent.
fn decide(h: &mut Harness, name: &str, decided: k8s::PodCondition) {
    h.edit(name, |p| {
        p.status.conditions.retain(|c| c.kind != decided.kind);
        p.status.conditions.push(decided);
    });
}

fn message(h: &Harness, name: &str) -> String {
    let view = h.core.queue_view();
    let found = view.pods.iter().find(|p| p.pod == format!("default/{name}"));
    found.map(|p| p.message.clone()).unwrap_or_default()
}

#[test]
fn arguments_are_checked_and_errors_name_the_field() {
    let table = [
        (
            json!({"timeoutSeconds": 0}),
            "args.timeoutSeconds: Invalid value: 0: not in valid range [1, 900]",
        ),
        (
            json!({"timeoutSeconds": 901}),
            "args.timeoutSeconds: Invalid value: 901: not in valid range [1, 900]",
        ),
        (
            json!({"timeoutSeconds": "5m"}),
            "args.timeoutSeconds: invalid type: string \"5m\", expected i64",
        ),
        (
            json!({"retryAfterSeconds": 0}),
            "args.retryAfterSeconds: Invalid value: 0: not in valid range [1, 600]",
        ),
        (
            json!({"requestTimeoutSeconds": 61}),
            "args.requestTimeoutSeconds: Invalid value: 61: not in valid range [1, 60]",
        ),
        (
            json!({"conditionType": "a b"}),
            "args.conditionType: Invalid value: \"a b\": must be a qualified name and not PodScheduled; write it as example.com/Approved",
        ),
        (
            json!({"conditionType": "PodScheduled"}),
            "args.conditionType: Invalid value: \"PodScheduled\": must be a qualified name and not PodScheduled; write it as example.com/Approved",
        ),
        (
            json!({"url": URL, "conditionType": "x"}),
            "args.url: Invalid value: \"http://127.0.0.1:9/approve\": must not be set together with conditionType: either a condition decides or a server",
        ),
        (
            json!({"url": "approvals/v1"}),
            "args.url: Invalid value: \"approvals/v1\": must be an http or https URL with a host and without credentials; write it as https://approvals.example.com/v1/pods",
        ),
        (
            json!({"url": "https://me:secret@host/"}),
            "args.url: Invalid value: \"https://me:secret@host/\": must be an http or https URL with a host and without credentials; write it as https://approvals.example.com/v1/pods",
        ),
        (
            json!({"url": "https://"}),
            "args.url: Invalid value: \"https://\": must be an http or https URL with a host and without credentials; write it as https://approvals.example.com/v1/pods",
        ),
        (
            json!({"url": URL, "caFile": "/ca.pem"}),
            "args.caFile: Invalid value: \"/ca.pem\": is of no use without TLS: give an https url",
        ),
        (
            json!({"caFile": "/ca.pem"}),
            "args.caFile: Invalid value: \"/ca.pem\": is of no use without url",
        ),
        (
            json!({"timeout": 5}),
            "args.timeout: unknown field `timeout`, expected one of `conditionType`, `url`, `caFile`, `timeoutSeconds`, `requestTimeoutSeconds`, `retryAfterSeconds`",
        ),
    ];
    for (args, expected) in table {
        let made = Registry::in_tree().make("ExternalApproval", &plugin_args(&args));
        let error = made.err().map(|e| e.to_string()).unwrap_or_default();
        assert_eq!(error, format!("ExternalApproval: {expected}"), "{args}");
    }
    for args in [
        json!({}),
        json!(null),
        json!({"conditionType": "example.com/Ok", "timeoutSeconds": 900}),
        json!({"url": "https://a.example.com:8443/x?y=1", "caFile": "/ca.pem"}),
    ] {
        let made = Registry::in_tree().make("ExternalApproval", &plugin_args(&args));
        assert_eq!(made.err(), None, "{args}");
    }
}

#[test]
fn it_is_off_by_default() {
    assert!(Profile::defaults().iter().all(|(name, _)| *name != "ExternalApproval"));
}

const WAITS: &str = "waiting at most 5m0s for ExternalApproval: condition muster.dev/Approved";

#[test]
fn a_condition_approves_and_until_then_the_pod_keeps_its_room_and_says_why() {
    let mut h = harness(&json!({}));
    h.pod(pod("a"));
    check(
        h.run(),
        &format!(
            "Normal default/a WaitingOnPermit: {WAITS} (node n1)
             status default/a false WaitingOnPermit: {WAITS} (node n1)"
        ),
    );
    assert_eq!((h.nominated("a"), h.cache()), (Some("n1"), vec!["n1: default/a".to_owned()]));
    assert_eq!((h.queue_of("a"), message(&h, "a").as_str()), ("permit", WAITS));
    // Its own condition, another's, and one that says nothing yet decide nothing.
    h.seen("a");
    decide(&mut h, "a", condition("example.com/Other", "True", "", ""));
    decide(&mut h, "a", condition("muster.dev/Approved", "Unknown", "", ""));
    check(h.effects(), "");
    h.sleep(2);
    decide(&mut h, "a", condition("muster.dev/Approved", "True", "ok", ""));
    check(h.effects(), "bind default/a -> n1");
    let waited = Observation::PermitWait { status: "Success", micros: 2_000_000 };
    assert!(h.core.take_observations().contains(&waited));
    h.bound("a", "n1");
    h.assert_idle();
}

#[test]
fn a_pod_that_is_approved_already_does_not_wait() {
    let mut h = harness(&json!({"conditionType": "example.com/Ok"}));
    let mut approved = pod("a");
    approved.status.conditions.push(condition("example.com/Ok", "True", "", ""));
    h.pod(approved);
    check(h.run(), "bind default/a -> n1");
}

#[test]
fn a_condition_denies_and_only_a_condition_brings_the_pod_back() {
    let mut h = harness(&json!({}));
    h.pod(pod("a"));
    h.run();
    decide(&mut h, "a", condition("muster.dev/Approved", "False", "Budget", "no money"));
    let denied = "0/1 nodes are available: 1 not approved: condition muster.dev/Approved is \
                  False: Budget: no money.";
    check(
        h.effects(),
        &format!(
            "Warning default/a FailedScheduling: {denied}
             status default/a false Unschedulable: {denied}"
        ),
    );
    assert_eq!((h.queue_of("a"), h.cache()), ("unschedulable", vec!["n1: ".to_owned()]));
    // What ended its wait, and what we wrote of it, are no news.
    decide(&mut h, "a", condition("PodScheduled", "False", "Unschedulable", denied));
    h.node(node("n2"));
    assert_eq!(h.queue_of("a"), "unschedulable");
    h.sleep(20);
    check(h.run(), "");
    decide(&mut h, "a", condition("muster.dev/Approved", "True", "", ""));
    h.sleep(1);
    assert_eq!(h.run_binds().len(), 1);
}

#[test]
fn nobody_decides_in_time() {
    let mut h = harness(&json!({"timeoutSeconds": 7}));
    h.pod(pod("a"));
    h.run();
    h.sleep(6);
    check(h.effects(), "");
    h.sleep(1);
    let late = "0/1 nodes are available: 1 rejected due to timeout after waiting 7s at plugin \
                ExternalApproval.";
    check(
        h.effects(),
        &format!(
            "Warning default/a FailedScheduling: {late}
             status default/a false Unschedulable: {late}"
        ),
    );
    // Approved after the fact: it is tried again, and does not wait.
    decide(&mut h, "a", condition("muster.dev/Approved", "True", "", ""));
    h.sleep(1);
    check(h.run(), "bind default/a -> n1");
}

const ASKED: &str = "post default/a to http://127.0.0.1:9/approve: \
                     {\"pod\":{\"namespace\":\"default\",\"name\":\"a\",\"uid\":\"uid-a\"},\
                     \"node\":\"n1\",\"schedulerName\":\"muster\"}";

fn asked(args: &Value) -> Harness {
    let mut h = harness(args);
    h.pod(pod("a"));
    let effects = h.run();
    assert_eq!(effects[0], ASKED, "{effects:?}");
    assert_eq!(effects.len(), 3, "{effects:?}");
    h
}

fn done(h: &mut Harness, answer: &Value) {
    h.reply("a", Reply::Done(answer.to_string().into()));
}

#[test]
fn a_server_approves_or_denies() {
    for (answer, expected) in [
        (json!({"allowed": true}), "bind default/a -> n1"),
        (
            json!({"allowed": true, "message": "fine", "retryAfterSeconds": 3}),
            "bind default/a -> n1",
        ),
        (
            json!({"allowed": false, "message": "no money"}),
            "Warning default/a FailedScheduling: 0/1 nodes are available: 1 not approved: no money.",
        ),
        (
            json!({"allowed": false}),
            "Warning default/a FailedScheduling: 0/1 nodes are available: 1 not approved.",
        ),
    ] {
        let mut h = asked(&json!({"url": URL}));
        done(&mut h, &answer);
        assert_eq!(h.effects()[0], expected, "{answer}");
    }
}

#[test]
fn a_server_that_has_not_decided_is_asked_again_when_it_says_so() {
    let mut h = asked(&json!({"url": URL}));
    done(&mut h, &json!({"retryAfterSeconds": 30, "message": "in review"}));
    check(h.effects(), "");
    assert_eq!(
        message(&h, "a"),
        "waiting at most 5m0s for ExternalApproval: an answer of http://127.0.0.1:9/approve; so \
         far: in review"
    );
    h.sleep(29);
    check(h.effects(), "");
    h.sleep(1);
    check(h.effects(), ASKED);
    // It says nothing of when: after retryAfterSeconds.
    done(&mut h, &json!({}));
    h.sleep(9);
    check(h.effects(), "");
    h.sleep(1);
    check(h.effects(), ASKED);
    // An answer to a question that was answered before changes nothing.
    h.reply("a", Reply::Done("{}".into()));
    h.reply("a", Reply::Done("{\"allowed\":true}".into()));
    check(h.effects(), "");
    h.sleep(10);
    check(h.effects(), ASKED);
    done(&mut h, &json!({"allowed": true}));
    check(h.effects(), "bind default/a -> n1");
    h.bound("a", "n1");
    h.assert_idle();
}

#[test]
fn a_server_that_fails_is_asked_again_until_the_deadline_and_no_longer() {
    let mut h = asked(&json!({"url": URL, "timeoutSeconds": 25, "retryAfterSeconds": 10}));
    h.reply("a", Reply::Failed("connection refused".into()));
    h.sleep(10);
    check(h.effects(), ASKED);
    h.reply("a", Reply::Done("<html>".into()));
    h.sleep(10);
    check(h.effects(), ASKED);
    h.reply("a", Reply::Failed("503 Service Unavailable".into()));
    h.sleep(5);
    let effects = h.effects();
    assert_eq!(
        effects[0],
        "Warning default/a FailedScheduling: 0/1 nodes are available: 1 rejected due to timeout \
         after waiting 25s at plugin ExternalApproval: no answer: 503 Service Unavailable."
    );
    h.sleep(25);
    check(h.effects(), "");
}

#[test]
fn a_server_that_is_silent_has_no_second_question_and_its_late_answer_changes_nothing() {
    let mut h = asked(&json!({"url": URL, "timeoutSeconds": 20}));
    h.sleep(19);
    check(h.effects(), "");
    h.sleep(1);
    assert_eq!(h.effects().len(), 2, "the event and the condition");
    done(&mut h, &json!({"allowed": true}));
    check(h.effects(), "");
    assert_eq!(h.queue_of("a"), "unschedulable");
}

#[test]
fn nothing_is_left_of_a_pod_that_goes_while_a_server_thinks() {
    let mut h = asked(&json!({"url": URL}));
    h.gone("a");
    done(&mut h, &json!({"retryAfterSeconds": 1}));
    check(h.effects(), "");
    h.assert_idle();
}

/// Drives both ways of deciding under the eyes of the checker.
#[test]
fn the_checker_has_nothing_to_object() {
    for (args, by_condition) in [(json!({}), true), (json!({"url": URL}), false)] {
        let config = Config { profiles: vec![profile(&args)], ..Config::default() };
        let mut core = Audited::new(config, 1);
        let mut now = Tick(1_000_000_000);
        let upsert = |pod: &k8s::Pod| Input::Pod(Change::Upsert(Box::new(pod.clone())));
        core.apply(now, Input::Node(Change::Upsert(Box::new(node("n1").alloc("cpu", "8")))));
        let mut pods: Vec<k8s::Pod> =
            ["yes", "no", "late", "gone"].map(|n| pod(n).req(&[("cpu", "1")])).into();
        for pod in &mut pods {
            pod.metadata.resource_version = "1".to_owned();
            core.apply(now, upsert(pod));
            let decision = core.schedule_one(now).expect("a pod is ready");
            assert_eq!(decision.outcome, Outcome::WaitingOnPermit { node: "n1".into() });
        }
        let mut tokens: Vec<Token> = calls(&core.take_effects());
        for round in 2..4 {
            now = now.after_secs(10);
            core.advance(now);
            for (i, status) in ["True", "False"].iter().enumerate().filter(|_| by_condition) {
                let answer = condition("muster.dev/Approved", status, "", "");
                pods[i].status.conditions = vec![answer];
                pods[i].metadata.resource_version = round.to_string();
                core.apply(now, upsert(&pods[i]));
            }
            let answers = [r#"{"allowed":true}"#, r#"{"allowed":false}"#, "{}", "{}"];
            for (answer, token) in answers.iter().zip(std::mem::take(&mut tokens)) {
                // Each is not decided at first.
                let answer = if round == 2 { "{}" } else { answer };
                let reply = Reply::Done(Arc::from(answer));
                core.apply(now, Input::Reply { token, reply });
            }
            now = now.after_secs(10);
            core.advance(now);
            tokens.extend(calls(&core.take_effects()));
        }
        pods[3].metadata.deletion_timestamp = Some(k8s::Time(now.0));
        pods[3].metadata.resource_version = "9".to_owned();
        core.apply(now, upsert(&pods[3]));
        for _ in 0..40 {
            now = now.after_secs(10);
            core.advance(now);
        }
        core.full(now);
        assert_eq!(core.take_violations(), [], "{args}");
        let view = core.core().queue_view();
        let stages: Vec<String> =
            view.pods.iter().map(|p| format!("{} {}", p.pod, p.queue)).collect();
        assert!(stages.contains(&"default/yes binding".to_owned()), "{args}: {stages:?}");
        assert!(!stages.iter().any(|s| s.ends_with("permit")), "{args}: {stages:?}");
    }
}

fn calls(effects: &[Effect]) -> Vec<Token> {
    let token = |effect: &Effect| match effect {
        Effect::Call { token, request: Request::Post(_), .. } => Some(*token),
        _ => None,
    };
    effects.iter().filter_map(token).collect()
}
