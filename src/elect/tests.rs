//! The driver against a server that holds one Lease and can misbehave.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::sync::broadcast;
use tokio::time::{Instant, timeout};

use super::*;

/// Enough for a busy machine; what is awaited usually comes at once.
const SOON: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Good,
    /// Answers nothing.
    Hangs,
    /// Answers with an error.
    Fails,
    /// Refuses watches only.
    ForbidsWatch,
}

#[derive(Clone)]
struct Server(Arc<Mutex<Inner>>);

struct Inner {
    mood: Mood,
    lease: Option<Lease>,
    version: u64,
    writes: Vec<Lease>,
    watchers: broadcast::Sender<Value>,
}

impl Server {
    fn new() -> Self {
        let (watchers, _) = broadcast::channel(64);
        Self(Arc::new(Mutex::new(Inner {
            mood: Mood::Good,
            lease: None,
            version: 1,
            writes: Vec::new(),
            watchers,
        })))
    }

    fn client(&self) -> kube::Client {
        let base = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
        let router = Router::new()
            .route(base, get(watch_lease).post(create))
            .route(&format!("{base}/muster"), get(read).put(replace))
            .with_state(self.clone());
        kube::Client::new(router, "ns")
    }

    fn set(&self, mood: Mood) {
        self.0.lock().mood = mood;
    }

    fn lease(&self) -> LeaseSpec {
        let lease = self.0.lock().lease.clone();
        lease.and_then(|lease| lease.spec).unwrap_or_default()
    }

    /// Changes the object behind everybody's back.
    fn edit(&self, change: impl FnOnce(&mut Lease)) {
        let mut inner = self.0.lock();
        let mut lease = inner.lease.clone().unwrap();
        change(&mut lease);
        inner.store(lease);
    }

    fn delete(&self) {
        let mut inner = self.0.lock();
        let lease = inner.lease.take();
        let _ = inner.watchers.send(json!({"type": "DELETED", "object": lease}));
    }

    fn candidate(&self, identity: &str, times: [u64; 3]) -> Candidate {
        let [lease_duration, renew_deadline, retry_period] = times.map(Duration::from_millis);
        let cfg = ElectConfig {
            namespace: "ns".to_owned(),
            name: "muster".to_owned(),
            identity: identity.to_owned(),
            lease_duration,
            renew_deadline,
            retry_period,
            schedules: format!("pods of {identity}"),
        };
        let shutdown = Shutdown::new();
        let (leadership, handle) = start(self.client(), cfg, shutdown.clone());
        Candidate { leadership, handle, shutdown }
    }
}

impl Inner {
    fn store(&mut self, mut lease: Lease) -> Lease {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        let _ = self.watchers.send(json!({"type": "MODIFIED", "object": lease}));
        lease
    }
}

struct Candidate {
    leadership: Leadership,
    handle: JoinHandle<Result<(), ElectError>>,
    shutdown: Shutdown,
}

impl Candidate {
    /// Waits for the next change, which must be to this.
    async fn becomes(&mut self, leader: bool) {
        timeout(SOON, self.leadership.changed()).await.expect("a change");
        assert_eq!(self.leadership.is_leader(), leader);
    }

    async fn ends(self) -> Result<(), ElectError> {
        timeout(SOON, self.handle).await.expect("an end").unwrap()
    }
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
    });
    (StatusCode::from_u16(code).unwrap(), axum::Json(body)).into_response()
}

impl Server {
    /// The mood, as an answer.
    async fn mood(&self) -> Option<Response> {
        let mood = self.0.lock().mood;
        match mood {
            Mood::Good | Mood::ForbidsWatch => None,
            Mood::Hangs => std::future::pending().await,
            Mood::Fails => Some(status(503, "overloaded")),
        }
    }
}

async fn read(State(server): State<Server>) -> Response {
    if let Some(answer) = server.mood().await {
        return answer;
    }
    let lease = server.0.lock().lease.clone();
    lease.map_or_else(|| status(404, "no such lease"), |lease| axum::Json(lease).into_response())
}

async fn create(State(server): State<Server>, body: Bytes) -> Response {
    if let Some(answer) = server.mood().await {
        return answer;
    }
    let mut inner = server.0.lock();
    if inner.lease.is_some() {
        return status(409, "exists");
    }
    let lease: Lease = serde_json::from_slice(&body).unwrap();
    inner.writes.push(lease.clone());
    axum::Json(inner.store(lease)).into_response()
}

async fn replace(State(server): State<Server>, body: Bytes) -> Response {
    if let Some(answer) = server.mood().await {
        return answer;
    }
    let mut inner = server.0.lock();
    let lease: Lease = serde_json::from_slice(&body).unwrap();
    let Some(held) = &inner.lease else {
        return status(404, "no such lease");
    };
    if held.metadata.resource_version != lease.metadata.resource_version {
        return status(409, "changed");
    }
    inner.writes.push(lease.clone());
    axum::Json(inner.store(lease)).into_response()
}

async fn watch_lease(
    State(server): State<Server>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    if let Some(answer) = server.mood().await {
        return answer;
    }
    assert_eq!(query["watch"], "true");
    assert_eq!(query["fieldSelector"], "metadata.name=muster");
    if server.0.lock().mood == Mood::ForbidsWatch {
        return status(403, "no watch for you");
    }
    let receiver = server.0.lock().watchers.subscribe();
    let lines = stream::unfold(receiver, |mut receiver| async {
        let event = receiver.recv().await.ok()?;
        Some((Ok::<_, Infallible>(Bytes::from(format!("{event}\n"))), receiver))
    });
    Body::from_stream(lines).into_response()
}

/// Nothing runs out during these.
const SLOW: [u64; 3] = [60_000, 50_000, 500];

#[tokio::test(start_paused = true)]
async fn first_come_leads_and_renews() {
    let server = Server::new();
    let mut a = server.candidate("a", [60_000, 50_000, 30]);
    a.becomes(true).await;
    let first = a.leadership.may_write_until().unwrap();
    while server.0.lock().writes.len() < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(a.leadership.may_write_until().unwrap() > first);
    let writes = server.0.lock().writes.clone();
    let [first, .., last] = writes.as_slice() else { panic!("{writes:?}") };
    let (first, last) = (first.spec.clone().unwrap(), last.spec.clone().unwrap());
    assert_eq!(first.holder_identity.as_deref(), Some("a"));
    let said = writes[0].metadata.annotations.as_ref().unwrap().get(lock::SCHEDULES);
    assert_eq!(said.map(String::as_str), Some("pods of a (a)"));
    assert_eq!((first.lease_duration_seconds, first.lease_transitions), (Some(60), Some(0)));
    assert_eq!(first.acquire_time, first.renew_time);
    assert_eq!((&last.acquire_time, last.lease_transitions), (&first.acquire_time, Some(0)));
    assert!(last.renew_time > first.renew_time);
}

/// The lease is a minute long, but who waits hears of its release at once.
#[tokio::test(start_paused = true)]
async fn release_hands_over_at_once() {
    let server = Server::new();
    let mut a = server.candidate("a", SLOW);
    a.becomes(true).await;
    let mut b = server.candidate("b", SLOW);
    let early = timeout(Duration::from_millis(300), b.leadership.changed()).await;
    assert!(early.is_err() && !b.leadership.is_leader());

    a.shutdown.trigger();
    a.becomes(false).await;
    assert!(a.leadership.may_write_until().is_none());
    a.ends().await.unwrap();
    b.becomes(true).await;
    let held = server.lease();
    assert_eq!((held.holder_identity.as_deref(), held.lease_transitions), (Some("b"), Some(1)));
    let released = server.0.lock().writes.iter().rev().nth(1).and_then(|l| l.spec.clone()).unwrap();
    assert_eq!(released.holder_identity.as_deref(), Some(""));
    assert_eq!((released.lease_duration_seconds, released.lease_transitions), (Some(1), Some(0)));

    // A standby that is not needed ends without a word.
    let c = server.candidate("c", SLOW);
    c.shutdown.trigger();
    c.ends().await.unwrap();
    assert_eq!(server.lease().holder_identity.as_deref(), Some("b"));
}

/// A leader that is gone without release is replaced when its lease runs out,
/// and not before; with or without a watch.
#[tokio::test(start_paused = true)]
async fn death_hands_over_after_the_lease() {
    for mood in [Mood::Good, Mood::ForbidsWatch] {
        let server = Server::new();
        server.set(mood);
        let times = [2_000, 1_500, 200];
        let mut a = server.candidate("a", times);
        a.becomes(true).await;
        let mut b = server.candidate("b", times);
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        assert!(a.leadership.is_leader() && !b.leadership.is_leader());
        a.handle.abort();
        let _ = (&mut a.handle).await;
        let end = a.leadership.may_write_until().unwrap();
        b.becomes(true).await;
        // The old leader stopped by itself, before.
        assert!(Instant::now() > end && !a.leadership.is_leader());
        a.becomes(false).await;
        assert_eq!(server.lease().lease_transitions, Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_stops_in_time() {
    for mood in [Mood::Hangs, Mood::Fails] {
        let server = Server::new();
        let mut a = server.candidate("a", [2_000, 1_000, 100]);
        a.becomes(true).await;
        server.set(mood);
        a.becomes(false).await;
        let error = a.ends().await.unwrap_err().to_string();
        assert!(
            error.starts_with(
                "lost lease ns/muster: not renewed within 1s; last attempt: renewal: "
            ),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_is_survived() {
    let server = Server::new();
    let mut a = server.candidate("a", [60_000, 50_000, 50]);
    a.becomes(true).await;
    let before = server.lease().renew_time;
    server.set(Mood::Fails);
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.set(Mood::Good);
    // Somebody labels the Lease: the version is another, the holder is not.
    server.edit(|lease| {
        lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    });
    let renewed = || server.lease().renew_time > before;
    timeout(SOON, async {
        while !renewed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    // Somebody deletes it: it is made again.
    server.delete();
    timeout(SOON, async {
        while server.0.lock().lease.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    assert!(a.leadership.is_leader() && !a.handle.is_finished());
    assert_eq!(server.lease().holder_identity.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn who_is_deposed_ends() {
    let server = Server::new();
    let mut a = server.candidate("a", [60_000, 50_000, 50]);
    a.becomes(true).await;
    server.edit(|lease| {
        let spec = lease.spec.as_mut().unwrap();
        spec.holder_identity = Some("usurper".to_owned());
        spec.renew_time =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(Timestamp::UNIX_EPOCH));
    });
    a.becomes(false).await;
    let error = a.ends().await.unwrap_err().to_string();
    assert_eq!(error, "lost lease ns/muster: taken over by usurper");
    assert_eq!(server.lease().holder_identity.as_deref(), Some("usurper"), "left alone");
}

#[tokio::test(start_paused = true)]
async fn of_many_candidates_one_leads() {
    let server = Server::new();
    let mut candidates: Vec<_> = (0..8).map(|i| server.candidate(&format!("c{i}"), SLOW)).collect();
    while candidates.len() > 1 {
        let won = timeout(SOON, async {
            loop {
                let leader = candidates.iter().position(|c| c.leadership.is_leader());
                if let Some(leader) = leader {
                    break leader;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let won = won.await.expect("a leader");
        assert_eq!(candidates.iter().filter(|c| c.leadership.is_leader()).count(), 1);
        let leader = candidates.swap_remove(won);
        leader.shutdown.trigger();
        leader.ends().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn without_election_one_always_leads() {
    let mut leadership = Leadership::always();
    leadership.changed().await;
    assert!(leadership.is_leader());
    assert!(leadership.may_write_until().unwrap() > Instant::now() + Duration::from_secs(1 << 20));
    let never = timeout(Duration::from_millis(50), leadership.clone().changed()).await;
    assert!(never.is_err());
}

#[test]
fn identities_differ() {
    let (a, b) = (identity(), identity());
    assert_ne!(a, b);
    let uuid = a.rsplit('_').next().unwrap();
    assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
}
