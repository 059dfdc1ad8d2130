//! The writer against a server that answers as told.

use std::collections::HashMap;
use std::sync::Mutex as StdMutex;

use axum::body::Bytes;
use axum::extract::State as Extract;
use axum::http::{Method, StatusCode, Uri};
use muster_core::io::{
    Condition, EventRecord, ObjectKey, ObjectPatch, PodRef, StatusPatch, WriteError,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::*;

/// What the server saw, and what it answers per pod.
#[derive(Default)]
pub(super) struct Server {
    pub(super) seen: Vec<(String, Value)>,
    /// Codes to answer with, per path end; then 201.
    answers: HashMap<String, Vec<u16>>,
    /// What a `Status` says beside its message, per path end.
    pub(super) details: HashMap<String, Value>,
    /// Pods of which a call is on its way: never two at a time.
    busy: HashMap<String, usize>,
    overlaps: usize,
    /// Calls that only open connections.
    warm: usize,
}

type Shared = Arc<StdMutex<Server>>;

async fn handle(
    Extract(server): Extract<Shared>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> (StatusCode, [(&'static str, &'static str); 1], String) {
    let path = uri.path().to_owned();
    if path == "/version" {
        let alone = {
            let mut server = server.lock().unwrap();
            server.warm += 1;
            server.warm == 1
        };
        // The others all at once, or the deadline passes: each has a connection of its own.
        while !alone && server.lock().unwrap().warm <= lanes::WARM {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        return (StatusCode::OK, [("x-test", "1")], "{}".to_owned());
    }
    let pod = path.split('/').nth(6).unwrap_or_default().to_owned();
    let (code, details) = {
        let mut server = server.lock().unwrap();
        let value = serde_json::from_slice(&body).unwrap_or_default();
        server.seen.push((format!("{method} {path}"), value));
        let busy = server.busy.entry(pod.clone()).or_default();
        *busy += 1;
        let overlap = *busy > 1 && !pod.is_empty();
        server.overlaps += usize::from(overlap);
        let told = server.answers.iter_mut().find(|(end, _)| path.ends_with(end.as_str()));
        let code = told.and_then(|(_, codes)| (!codes.is_empty()).then(|| codes.remove(0)));
        let details = server.details.iter().find(|(end, _)| path.ends_with(end.as_str()));
        (code, details.map(|(_, details)| details.clone()))
    };
    tokio::time::sleep(Duration::from_millis(5)).await;
    *server.lock().unwrap().busy.entry(pod).or_default() -= 1;
    if code == Some(0) {
        // Never.
        std::future::pending::<()>().await;
    }
    let code = StatusCode::from_u16(code.unwrap_or(201)).unwrap();
    let mut body = json!({"kind": "Status", "message": format!("said {code}"),
        "metadata": {"resourceVersion": "12"}});
    if let Some(details) = details {
        body["reason"] = details["reason"].clone();
        body["details"] = details["details"].clone();
    }
    (code, [("x-test", "1")], body.to_string())
}

pub(super) struct Rig {
    pub(super) server: Shared,
    pub(super) writer: Writer,
    pub(super) inbox: mpsc::Receiver<Message>,
}

pub(super) async fn rig(answers: &[(&str, &[u16])]) -> Rig {
    rig_with(answers, Leadership::always()).await
}

pub(super) async fn rig_with(answers: &[(&str, &[u16])], leadership: Leadership) -> Rig {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server: Shared = Arc::default();
    for (end, codes) in answers {
        let mut server = server.lock().unwrap();
        server.answers.insert((*end).to_owned(), codes.to_vec());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().fallback(handle).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let (answers, inbox) = mpsc::channel(64);
    let (writer, _) = start(Setup {
        config: kube::Config::new(url.parse().unwrap()),
        leadership,
        limits: Limits::default(),
        answers,
        metrics: Metrics::new(),
        host: "host".to_owned(),
    })
    .unwrap();
    Rig { server, writer, inbox }
}

/// Waits until so many calls that only open connections have come.
async fn warmed(server: &Shared, count: usize) {
    let come = async {
        while server.lock().unwrap().warm < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), come).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_opened_when_leading_begins_and_not_before() {
    let (lead, leads) = tokio::sync::watch::channel(None);
    let mut rig = rig_with(&[], Leadership::granted(leads)).await;
    rig.writer.submit(vec![bind("early")]);
    let _ = rig.answer().await;
    assert_eq!(rig.server.lock().unwrap().warm, 0, "somebody else leads");
    lead.send(Some(tokio::time::Instant::now() + Duration::from_secs(60))).unwrap();
    warmed(&rig.server, 1 + lanes::WARM).await;
}

impl Rig {
    async fn answer(&mut self) -> (String, Result<(), WriteError>) {
        let message = timeout(Duration::from_secs(10), self.inbox.recv()).await;
        let Message::Input(Input::BindDone { pod, result, .. }) = message.unwrap().unwrap() else {
            panic!("not a bind's answer");
        };
        (pod.name.to_string(), result)
    }

    pub(super) async fn until_seen(&self, n: usize) -> Vec<(String, Value)> {
        for _ in 0..1_000 {
            let seen = self.server.lock().unwrap().seen.clone();
            if seen.len() >= n {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.server.lock().unwrap().seen);
    }
}

pub(super) fn pod(name: &str) -> PodRef {
    PodRef { namespace: "ns".into(), name: name.into(), uid: format!("u-{name}").into() }
}

pub(super) fn bind(name: &str) -> Effect {
    Effect::Bind { pod: pod(name), node: "n".into(), attempt: 1, devices: None }
}

fn patch(name: &str, message: &str) -> Effect {
    Effect::PatchStatus(StatusPatch {
        pod: pod(name),
        condition: Some(Condition {
            status: false,
            reason: "Unschedulable",
            message: message.into(),
            observed_generation: None,
        }),
        shown: None,
        nominated_node: None,
    })
}

fn warning(name: &str) -> Effect {
    Effect::Event(EventRecord {
        pod: pod(name),
        related: None,
        warning: true,
        reason: "FailedScheduling",
        action: "Scheduling",
        note: "no room".into(),
        reporting_controller: "muster".into(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_say_what_became_of_a_bind() {
    let mut rig = rig(&[
        ("gone/binding", &[404]),
        ("taken/binding", &[409]),
        ("bad/binding", &[422]),
        ("flaky/binding", &[500, 500, 201]),
        ("broken/binding", &[500, 500, 500, 500]),
        ("doubt/binding", &[500, 409]),
    ])
    .await;
    let names = ["fine", "gone", "taken", "bad", "flaky", "broken", "doubt"];
    assert!(rig.writer.submit(names.map(bind).into()).is_empty());
    let mut results = HashMap::new();
    for _ in names {
        let (name, result) = rig.answer().await;
        results.insert(name, result);
    }
    let said = |code: &str| format!("said {code}");
    assert_eq!(results["fine"], Ok(()));
    assert_eq!(results["gone"], Err(WriteError::NotFound(said("404 Not Found"))));
    assert_eq!(results["taken"], Err(WriteError::Conflict(said("409 Conflict"))));
    assert!(matches!(&results["bad"], Err(WriteError::Rejected(_))));
    assert_eq!(results["flaky"], Ok(()));
    assert!(matches!(&results["broken"], Err(WriteError::Unknown(_))));
    assert!(matches!(&results["doubt"], Err(WriteError::Conflict(_))));
    assert_eq!(rig.writer.unanswered_binds(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_per_pod_at_a_time_and_the_newest_wins() {
    let mut rig = rig(&[]).await;
    rig.writer.submit(vec![patch("p", "first")]);
    rig.until_seen(1).await;
    // While the first is on its way: two merge into one, then a bind beats them.
    rig.writer.submit(vec![patch("p", "second"), patch("p", "third"), bind("p")]);
    assert_eq!(rig.answer().await, ("p".to_owned(), Ok(())));
    rig.writer.submit(vec![patch("q", "a"), patch("r", "b")]);
    let seen = rig.until_seen(4).await;
    let calls: Vec<_> = seen.iter().map(|(call, _)| call.as_str()).collect();
    assert_eq!(calls[0], "PATCH /api/v1/namespaces/ns/pods/p/status");
    assert_eq!(calls[1], "POST /api/v1/namespaces/ns/pods/p/binding");
    assert_eq!(seen[0].1["status"]["conditions"][0]["message"], "first");
    assert_eq!(rig.server.lock().unwrap().overlaps, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transition_has_a_time_and_a_repetition_has_none() {
    let rig = rig(&[("p/status", &[503, 200])]).await;
    rig.writer.submit(vec![patch("p", "first")]);
    rig.until_seen(2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.writer.submit(vec![patch("p", "second")]);
    let seen = rig.until_seen(3).await;
    let time = |i: usize| seen[i].1["status"]["conditions"][0]["lastTransitionTime"].clone();
    // The failed one and its repetition, then the same status again.
    assert!(time(0).is_string() && time(1).is_string() && time(2).is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_the_api_server_showed_already_keeps_its_time() {
    let rig = rig(&[]).await;
    let Effect::PatchStatus(mut known) = patch("p", "again") else { unreachable!() };
    known.shown = Some(false);
    rig.writer.submit(vec![Effect::PatchStatus(known)]);
    let seen = rig.until_seen(1).await;
    let condition = &seen[0].1["status"]["conditions"][0];
    assert_eq!(condition["message"], "again");
    assert!(condition["lastTransitionTime"].is_null(), "{condition}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_repeat_as_a_series() {
    let rig = rig(&[]).await;
    rig.writer.submit(vec![warning("p")]);
    let first = rig.until_seen(1).await;
    rig.writer.submit(vec![warning("p")]);
    let seen = rig.until_seen(2).await;
    rig.writer.submit(vec![warning("p")]);
    let name = first[0].1["metadata"]["name"].as_str().unwrap();
    let events = "/apis/events.k8s.io/v1/namespaces/ns/events";
    assert_eq!(seen[0].0, format!("POST {events}"));
    assert_eq!(seen[1].0, format!("PATCH {events}/{name}"));
    assert_eq!(seen[1].1["series"]["count"], 2);
    rig.writer.drain().await;
    assert_eq!(rig.server.lock().unwrap().seen.len(), 2, "the third is only counted");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_without_the_lease() {
    let until = tokio::sync::watch::channel(None).1;
    let mut rig = rig_with(&[], Leadership::granted(until)).await;
    rig.writer.submit(vec![bind("p"), patch("q", "no"), warning("r")]);
    let (_, result) = rig.answer().await;
    assert!(matches!(&result, Err(WriteError::Rejected(m)) if m.contains("not the leader")));
    rig.writer.drain().await;
    assert!(rig.server.lock().unwrap().seen.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_leaves_the_bind_unknown_by_the_lease_end() {
    let soon = tokio::time::Instant::now() + Duration::from_millis(300);
    let (sender, until) = tokio::sync::watch::channel(Some(soon));
    let mut rig = rig_with(&[("p/binding", &[0])], Leadership::granted(until)).await;
    rig.writer.submit(vec![bind("p")]);
    let (_, result) = rig.answer().await;
    assert!(matches!(result, Err(WriteError::Unknown(_))), "{result:?}");
    assert!(soon.elapsed() < Duration::from_secs(2));
    drop(sender);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_writes_what_waits_and_starts_nothing_after() {
    let rig = rig(&[]).await;
    let pods: Vec<_> = (0..200).map(|i| bind(&i.to_string())).collect();
    let Rig { writer, server, mut inbox } = rig;
    tokio::spawn(async move { while inbox.recv().await.is_some() {} });
    writer.submit(pods);
    writer.drain().await;
    assert_eq!(writer.unanswered_binds(), 0);
    assert_eq!(server.lock().unwrap().seen.len(), 200);
    writer.submit(vec![bind("late"), warning("late")]);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.lock().unwrap().seen.len(), 200);
}

fn writes(token: u64) -> Effect {
    let claim = |name: &str| ObjectKey {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        uid: "u".to_owned(),
    };
    let bind = ObjectPatch::BindVolume {
        volume: "pv".into(),
        version: "1".into(),
        claim: claim("c"),
        claim_version: "2".into(),
        by_controller: true,
    };
    let select =
        ObjectPatch::SelectNode { claim: claim("d"), version: "3".into(), node: "n".into() };
    Effect::Call {
        token: muster_core::io::Token(token),
        pod: pod("p"),
        plugin: "VolumeBinding".into(),
        request: Request::Write([bind, select].into()),
    }
}

async fn reply(rig: &mut Rig) -> Reply {
    let message = timeout(Duration::from_secs(10), rig.inbox.recv()).await;
    match message.unwrap().unwrap() {
        Message::Input(Input::Reply { reply, .. }) => reply,
        _ => panic!("not a reply"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_written_in_order_and_their_versions_told() {
    let mut rig = rig(&[]).await;
    assert!(rig.writer.submit(vec![writes(1)]).is_empty());
    let versions = vec![("pv".into(), "12".into()), ("ns/d".into(), "12".into())];
    assert_eq!(reply(&mut rig).await, Reply::Written { versions, error: None });
    let seen: Vec<String> = rig.until_seen(2).await.into_iter().map(|(path, _)| path).collect();
    assert_eq!(
        seen,
        [
            "PATCH /api/v1/persistentvolumes/pv",
            "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/d"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_written_ends_the_rest_and_is_not_tried_again() {
    let mut rig = rig(&[("persistentvolumeclaims/d", &[409])]).await;
    rig.writer.submit(vec![writes(1)]);
    let Reply::Written { versions, error } = reply(&mut rig).await else {
        panic!("not written");
    };
    assert_eq!(versions, [("pv".into(), "12".into())]);
    assert!(error.is_some_and(|e| e.contains("said 409")));
    assert_eq!(rig.until_seen(2).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_nothing_handles_is_answered() {
    let rig = rig(&[]).await;
    let token = muster_core::io::Token(7);
    let call = Effect::Call { token, pod: pod("p"), plugin: "X".into(), request: "?".into() };
    let answers = rig.writer.submit(vec![call]);
    assert!(
        matches!(&answers[..], [Input::Reply { token: t, reply: Reply::Failed(_) }] if *t == token)
    );
}
