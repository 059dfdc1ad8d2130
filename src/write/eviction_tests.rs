//! Evictions against a server that answers as told.

use std::collections::HashMap;

use muster_core::io::{Removal, StatusPatch, Token};
use muster_core::outbox::MAX_FLYING_EVICTIONS;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::tests::{Rig, bind, pod, rig, rig_with};
use super::*;

fn evict(token: u64, victim: &str, dry_run: bool) -> Effect {
    let how = if dry_run { Removal::DryRun } else { Removal::Evict };
    Effect::Call {
        token: Token(token),
        pod: pod("preemptor"),
        plugin: "DefaultPreemption".into(),
        request: Request::Evict { victim: pod(victim), how },
    }
}

async fn answer(rig: &mut Rig) -> (u64, Eviction) {
    let message = timeout(Duration::from_secs(20), rig.inbox.recv()).await;
    match message.unwrap().unwrap() {
        Message::Input(Input::Reply { token, reply: Reply::Evicted(eviction) }) => {
            (token.0, eviction)
        }
        _ => panic!("not an eviction's answer"),
    }
}

fn details(reason: &str, kind: &str, cause: &str) -> Value {
    json!({"reason": reason, "details": {"kind": kind, "causes": [{"reason": cause}]}})
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_say_what_became_of_an_eviction() {
    let refused = Eviction::Refused("said 429 Too Many Requests".into());
    // victim, codes, what the Status says, what the core is told, calls made
    let table: Vec<(&str, &[u16], Value, Eviction, usize)> = vec![
        ("fine", &[], Value::Null, Eviction::Accepted, 1),
        ("budget", &[429], details("TooManyRequests", "", "DisruptionBudget"), refused, 1),
        ("gone", &[404], details("NotFound", "pods", ""), Eviction::Gone, 1),
        ("other", &[409; 3], details("Conflict", "Pod", ""), Eviction::Gone, 3),
        ("raced", &[409], details("Conflict", "pods", ""), Eviction::Accepted, 2),
        ("busy", &[429], details("TooManyRequests", "", ""), Eviction::Accepted, 2),
        (
            "down",
            &[503; 3],
            details("ServiceUnavailable", "", ""),
            Eviction::Unavailable("said 503 Service Unavailable".into()),
            3,
        ),
        (
            "twice",
            &[500],
            Value::Null,
            Eviction::Failed("said 500 Internal Server Error".into()),
            1,
        ),
        (
            "denied",
            &[403],
            details("Forbidden", "pods", ""),
            Eviction::Failed("said 403 Forbidden".into()),
            1,
        ),
    ];
    let ends: Vec<String> = table.iter().map(|row| format!("/{}/eviction", row.0)).collect();
    let codes: Vec<(&str, &[u16])> =
        ends.iter().zip(&table).map(|(end, row)| (end.as_str(), row.1)).collect();
    let mut rig = rig(&codes).await;
    for (end, row) in ends.iter().zip(&table) {
        if !row.2.is_null() {
            rig.server.lock().unwrap().details.insert(end.clone(), row.2.clone());
        }
    }
    let effects = (0..).zip(&table).map(|(token, row)| evict(token, row.0, token % 2 == 0));
    assert!(rig.writer.submit(effects.collect()).is_empty());
    let mut told = HashMap::new();
    for _ in &table {
        let (token, eviction) = answer(&mut rig).await;
        told.insert(token, eviction);
    }
    let seen = rig.server.lock().unwrap().seen.clone();
    for (token, (victim, _, _, expected, calls)) in (0..).zip(&table) {
        assert_eq!(&told[&token], expected, "{victim}");
        let path = format!("POST /api/v1/namespaces/ns/pods/{victim}/eviction");
        let made: Vec<_> = seen.iter().filter(|(call, _)| *call == path).collect();
        assert_eq!(made.len(), *calls, "{victim}");
        let options = &made[0].1["deleteOptions"];
        assert_eq!(options["preconditions"]["uid"], format!("u-{victim}"));
        let dry = if token % 2 == 0 { json!(["All"]) } else { Value::Null };
        assert_eq!(options["dryRun"], dry, "{victim}");
    }
    assert_eq!(rig.writer.unanswered_binds(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_delete_nothing_is_written_on_a_victim() {
    let mut rig = rig(&[("/pods/v", &[403])]).await;
    for (token, victim) in [(1, "v"), (2, "w")] {
        let mut effect = evict(token, victim, false);
        if let Effect::Call { request: Request::Evict { how, .. }, .. } = &mut effect {
            *how = Removal::Delete;
        }
        rig.writer.submit(vec![effect]);
        let (_, eviction) = answer(&mut rig).await;
        match &eviction {
            Eviction::Failed(why) => assert!(why.contains("rbac.deletePods") && victim == "v"),
            eviction => assert_eq!((eviction, victim), (&Eviction::Accepted, "w")),
        }
    }
    let seen = rig.server.lock().unwrap().seen.clone();
    let calls: Vec<(&str, bool)> =
        seen.iter().map(|(call, body)| (call.as_str(), !body["dryRun"].is_null())).collect();
    let (v, w) = ("DELETE /api/v1/namespaces/ns/pods/v", "DELETE /api/v1/namespaces/ns/pods/w");
    let status = "PATCH /api/v1/namespaces/ns/pods/w/status";
    assert_eq!(calls, [(v, true), (w, true), (status, false), (w, false)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_evicted_without_the_lease() {
    let until = tokio::sync::watch::channel(None).1;
    let mut rig = rig_with(&[], Leadership::granted(until)).await;
    rig.writer.submit(vec![evict(1, "v", true), evict(2, "v", false)]);
    for _ in 0..2 {
        let (_, eviction) = answer(&mut rig).await;
        assert!(matches!(&eviction, Eviction::Unavailable(m) if m.contains("not the leader")));
    }
    rig.writer.drain().await;
    assert!(rig.server.lock().unwrap().seen.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_without_an_answer_ends_with_the_lease() {
    let soon = tokio::time::Instant::now() + Duration::from_millis(300);
    let (sender, until) = tokio::sync::watch::channel(Some(soon));
    let mut rig = rig_with(&[("v/eviction", &[0])], Leadership::granted(until)).await;
    rig.writer.submit(vec![evict(1, "v", false)]);
    let (_, eviction) = answer(&mut rig).await;
    assert!(matches!(eviction, Eviction::Unavailable(_)), "{eviction:?}");
    assert!(soon.elapsed() < Duration::from_secs(2));
    drop(sender);
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_evictions_leave_lanes_for_binds() {
    let more = MAX_FLYING_EVICTIONS as u64 * 4 + 1;
    let silent = vec![0; usize::try_from(more).unwrap()];
    let mut rig = rig(&[("v/eviction", &silent)]).await;
    rig.writer.submit((0..more).map(|token| evict(token, "v", false)).collect());
    rig.until_seen(MAX_FLYING_EVICTIONS).await;
    rig.writer.submit(vec![bind("p")]);
    let message = timeout(Duration::from_secs(4), rig.inbox.recv()).await;
    assert!(matches!(message, Ok(Some(Message::Input(Input::BindDone { .. })))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nomination_is_set_and_cleared_by_itself() {
    let rig = rig(&[]).await;
    let patch = |node: &str| {
        Effect::PatchStatus(StatusPatch {
            pod: pod("p"),
            condition: None,
            shown: Some(false),
            nominated_node: Some(node.into()),
        })
    };
    rig.writer.submit(vec![patch("n")]);
    rig.until_seen(1).await;
    rig.writer.submit(vec![patch("")]);
    let seen = rig.until_seen(2).await;
    assert_eq!(seen[0].1["status"], json!({"nominatedNodeName": "n"}));
    assert_eq!(seen[1].1["status"], json!({"nominatedNodeName": null}));
}
