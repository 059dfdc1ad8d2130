//! Questions of plugins to servers of the user's own.
//!
//! Owns: how many are asked at a time, how many may wait for that, and the limit on
//! each. Every question is asked once and answered once, with the server's words or
//! with why there are none; whether it is asked again is its plugin's business. Must
//! never hold up the owner, or write to the API server.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Uri};
use muster_core::io::{Input, Post, Reply, Token};
use muster_core::outbox::Failure;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::client::{Call, Wire};
use crate::run::Message;

/// Questions on their way at a time.
pub const FLYING: usize = 32;
/// Questions that may wait for their turn; more are answered at once, by a refusal.
pub const WAITING: usize = 4096;
/// Servers to which connections are kept.
const MAX_WIRES: usize = 64;

type Server = (Uri, Option<Arc<str>>);

/// Connections to servers.
#[derive(Clone, Default)]
pub(crate) struct Wires(Arc<Mutex<HashMap<Server, Wire>>>);

/// Asks. Cheap to clone.
#[derive(Clone)]
pub struct Asker {
    questions: mpsc::Sender<(Token, Arc<Post>)>,
}

impl Asker {
    /// Starts to ask, on the runtime of the caller; answers go to `answers`.
    #[must_use]
    pub fn start(answers: mpsc::Sender<Message>) -> Self {
        let (questions, inbox) = mpsc::channel(WAITING);
        tokio::spawn(take_turns(inbox, answers));
        Self { questions }
    }

    /// Takes a question over; an answer at once is why not.
    #[must_use]
    pub fn submit(&self, token: Token, post: Arc<Post>) -> Option<Input> {
        let refused = self.questions.try_send((token, post)).err()?;
        let why = match refused {
            mpsc::error::TrySendError::Full(_) => "too many questions wait for an answer",
            mpsc::error::TrySendError::Closed(_) => "the scheduler is ending",
        };
        Some(Input::Reply { token, reply: Reply::Failed(why.into()) })
    }
}

async fn take_turns(mut inbox: mpsc::Receiver<(Token, Arc<Post>)>, answers: mpsc::Sender<Message>) {
    let turns = Arc::new(Semaphore::new(FLYING));
    let wires = Wires::default();
    while let Some((token, post)) = inbox.recv().await {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else {
            return;
        };
        let (answers, wires) = (answers.clone(), wires.clone());
        tokio::spawn(async move {
            let reply = match ask(&wires, &post).await {
                Ok(body) => Reply::Done(body.into()),
                Err(error) => {
                    warn!(url = %post.url, "a plugin's question has no answer: {error}");
                    Reply::Failed(error.into())
                }
            };
            debug!(url = %post.url, ?reply, "asked for a plugin");
            drop(turn);
            // Fails only when the owner has ended, and then the process does.
            let _ = answers.send(Message::Input(Input::Reply { token, reply })).await;
        });
    }
}

async fn ask(wires: &Wires, post: &Post) -> Result<String, String> {
    let body = Bytes::copy_from_slice(post.body.as_bytes());
    let limit = Duration::from_secs(u64::from(post.timeout_seconds));
    wires.call(Method::POST, &post.url, post.ca_file.clone(), body, limit).await
}

impl Wires {
    /// Makes one call and returns the body of the answer, or why there is none.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: &str,
        ca_file: Option<Arc<str>>,
        body: Bytes,
        limit: Duration,
    ) -> Result<String, String> {
        let uri: Uri = url.parse().map_err(|e| format!("{url}: {e}"))?;
        let wire = self.wire(&uri, ca_file)?;
        let path = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
        let call = Call { method, path, content_type: "application/json", body };
        match wire.fetch(call, Instant::now() + limit).await {
            Ok(body) => String::from_utf8(body).map_err(|_| "the answer is not UTF-8".to_owned()),
            Err(Failure::TimedOut) => Err(format!("nothing within {limit:?}")),
            Err(Failure::Status { code, message, .. }) => Err(format!("{code}: {message}")),
            Err(other) => Err(other.to_string()),
        }
    }

    /// The connections to a server.
    fn wire(&self, uri: &Uri, ca_file: Option<Arc<str>>) -> Result<Wire, String> {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let root = Uri::from_parts(parts).map_err(|e| format!("{uri}: {e}"))?;
        let mut wires = self.0.lock();
        if let Some(wire) = wires.get(&(root.clone(), ca_file.clone())) {
            return Ok(wire.clone());
        }
        let mut config = kube::Config::new(root.clone());
        config.root_cert_file = ca_file.as_deref().map(PathBuf::from);
        let wire = Wire::new(&config, FLYING).map_err(|e| format!("{uri}: {e}"))?;
        if wires.len() >= MAX_WIRES {
            wires.clear();
        }
        wires.insert((root, ca_file), wire.clone());
        Ok(wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::post;
    use tokio::sync::Notify;

    /// A server that answers by path; `/silent` never.
    async fn server() -> (String, Arc<Notify>) {
        let asked = Arc::new(Notify::new());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new()
            .route("/echo", post(|body: String| async move { body }))
            .route("/down", post(|| async { (StatusCode::SERVICE_UNAVAILABLE, "come back") }))
            .route(
                "/silent",
                post(|State(asked): State<Arc<Notify>>| async move {
                    asked.notify_one();
                    std::future::pending::<String>().await
                }),
            )
            .with_state(Arc::clone(&asked));
        tokio::spawn(async move { axum::serve(listener, app).await });
        (url, asked)
    }

    fn question(url: String) -> Arc<Post> {
        let body = r#"{"pod":"a"}"#.into();
        Arc::new(Post { url: url.into(), ca_file: None, body, timeout_seconds: 1 })
    }

    async fn next(inbox: &mut mpsc::Receiver<Message>) -> (u64, Reply) {
        match inbox.recv().await {
            Some(Message::Input(Input::Reply { token, reply })) => (token.0, reply),
            _ => panic!("no reply"),
        }
    }

    #[tokio::test]
    async fn every_question_is_answered_once() {
        let (url, _) = server().await;
        let (answers, mut inbox) = mpsc::channel(8);
        let asker = Asker::start(answers);
        let closed = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            format!("http://{}", listener.local_addr().unwrap())
        };
        let table = [
            (format!("{url}/echo"), Ok(r#"{"pod":"a"}"#)),
            (format!("{url}/down"), Err("503: come back")),
            (format!("{url}/silent"), Err("nothing within 1s")),
            (format!("{url}/nowhere"), Err("404")),
            (closed, Err("Connection refused")),
            ("http://".to_owned(), Err("http://")),
        ];
        for (i, (url, expected)) in table.into_iter().enumerate() {
            assert!(asker.submit(Token(i as u64), question(url.clone())).is_none());
            let (token, reply) = next(&mut inbox).await;
            assert_eq!(token, i as u64);
            match (reply, expected) {
                (Reply::Done(body), Ok(expected)) => assert_eq!(&*body, expected),
                (Reply::Failed(why), Err(expected)) => {
                    assert!(why.contains(expected), "{url}: {why}");
                }
                (reply, _) => panic!("{url}: {reply:?}"),
            }
        }
    }

    #[tokio::test]
    async fn questions_are_bounded() {
        let (url, asked) = server().await;
        let (answers, _inbox) = mpsc::channel(8);
        let asker = Asker::start(answers);
        let silent = question(format!("{url}/silent"));
        assert!(asker.submit(Token(0), Arc::clone(&silent)).is_none());
        asked.notified().await;
        // The runtime has one thread: nothing is taken from the queue meanwhile.
        let all: Vec<_> =
            (0..=WAITING as u64).map(|i| asker.submit(Token(i), Arc::clone(&silent))).collect();
        assert_eq!(all.iter().filter(|refused| refused.is_some()).count(), 1);
        let Some(Some(Input::Reply { reply: Reply::Failed(why), .. })) = all.last() else {
            panic!("not refused");
        };
        assert_eq!(&**why, "too many questions wait for an answer");
    }
}
